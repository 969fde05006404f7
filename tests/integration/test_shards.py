"""A queue of several shards is one queue to those who use it."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from aiodq import Bury, Queue, Worker, current_job
from aiodq._core.errors import WrongShards
from aiodq._core.sharding import shard_of
from tests.clusters import Cluster, queue_slot
from tests.servers import ServerProcess
from tests.shards import until

SHARDS = 4


@pytest.fixture
def queue(redis_url: str, queue_name: str) -> Queue:
    return Queue(queue_name, url=redis_url, shards=SHARDS)


async def test_jobs_of_all_shards_run_once(queue: Queue) -> None:
    ran: Counter[str] = Counter()

    @queue.task
    async def note(n: int) -> None:
        ran[current_job().id] += 1

    async with queue:
        jobs = await queue.enqueue_many([note.job(n) for n in range(400)])
        assert all(job.created for job in jobs)
        assert {shard_of(job.id, SHARDS) for job in jobs} == set(range(SHARDS))
        async with Worker(queue, concurrency=20):
            await until(lambda: len(ran) == 400, 20)
            one = await note.enqueue(401)  # woken in its shard
            await until(lambda: one.id in ran, 2)
    assert set(ran.values()) == {1}


async def test_every_operation_finds_its_job(queue: Queue) -> None:
    note = queue.stub("note")
    async with queue:
        jobs = [await note.options(job_id=f"job-{n}").after(600 + n).enqueue(n) for n in range(20)]
        again = await note.options(job_id="job-3").after(5).enqueue(3)
        assert not again.created
        assert again.due_at == jobs[3].due_at
        replaced = await note.options(job_id="job-4", on_duplicate="replace").after(60).enqueue(4)
        assert replaced.replaced
        assert [job.id for job in await queue.peek("scheduled", limit=3)] == ["job-4", "job-0", "job-1"]
        assert await queue.reschedule("job-5", after=30)
        assert [job.id for job in await queue.peek("scheduled", limit=1)] == ["job-5"]
        assert (await queue.stats()).scheduled == 20
        assert await jobs[6].status() == "scheduled"
        assert "scheduled" in str((await queue.explain("job-6")).state)
        for job in jobs:
            assert await job.cancel()
        assert (await queue.stats()).scheduled == 0
        assert not (await queue.check()).findings


async def test_dead_letters_of_all_shards_are_listed_by_age(queue: Queue) -> None:
    @queue.task
    async def fail(n: int) -> None:
        raise Bury(f"number {n}")

    async with queue:
        for n in range(12):
            await fail.options(job_id=f"job-{n}").enqueue(n)
            await Worker(queue).run(burst=True)
        listed = await queue.dead.list()
        assert [dead.reason for dead in listed] == [f"number {n}" for n in range(12)]
        assert [dead.id async for dead in queue.dead.scan()] == [f"job-{n}" for n in range(12)]
        assert [dead.id for dead in await queue.dead.list(limit=3)] == ["job-0", "job-1", "job-2"]
        found = await queue.dead.get("job-7")
        assert found is not None
        assert found.args == (7,)
        replayed = await queue.dead.replay(["job-2", "job-9", "nobody"], after=60)
        assert (replayed.ids, replayed.missing) == (("job-2", "job-9"), ("nobody",))
        assert await queue.dead.purge(older_than=0) == 10
        for job in ("job-2", "job-9"):
            assert await queue.cancel(job)


async def test_a_pause_holds_for_all_shards(queue: Queue) -> None:
    ran: list[int] = []

    @queue.task
    async def note(n: int) -> None:
        ran.append(n)

    async with queue, Worker(queue):
        await queue.pause("stock-taking")
        await queue.enqueue_many([note.job(n) for n in range(40)])
        await asyncio.sleep(0.3)
        assert not ran
        stats = await queue.stats()
        assert (stats.paused, stats.scheduled) == (True, 40)
        await queue.resume()
        await until(lambda: len(ran) == 40, 5)


async def test_jobs_of_one_shard_key_are_in_one_shard(queue: Queue) -> None:
    note = queue.stub("note").options(shard_key="tenant-7").after(60)
    async with queue:
        jobs = [await note.enqueue(n) for n in range(10)]
        assert len({shard_of(job.id, SHARDS) for job in jobs}) == 1
        for job in jobs:
            assert await job.cancel()


async def test_order_holds_within_a_shard(redis_url: str, queue_name: str) -> None:
    queue = Queue(queue_name, url=redis_url, shards=SHARDS, fifo=True)
    ran: list[int] = []

    @queue.task
    async def note(n: int) -> None:
        ran.append(n)

    async with queue:
        plan = note.options(shard_key="one").after(timedelta(seconds=0.2))
        await queue.enqueue_many([plan.job(n) for n in range(80)])
        async with Worker(queue, concurrency=1):
            await until(lambda: len(ran) == 80, 10)
    assert ran == list(range(80))


async def test_a_flooded_shard_does_not_hold_up_the_others(queue: Queue) -> None:
    ran: Counter[str] = Counter()

    @queue.task
    async def work(where: str) -> None:
        ran[where] += 1
        await asyncio.sleep(0.002)

    async with queue:
        flooded = work.options(shard_key="flood")
        shard = shard_of("{flood}x", SHARDS)
        other = next(key for key in map(str, range(99)) if shard_of(f"{{{key}}}x", SHARDS) != shard)
        await queue.enqueue_many([flooded.job("flood") for _ in range(3000)])
        async with Worker(queue, concurrency=10):
            await until(lambda: ran["flood"] > 50, 10)
            await work.options(shard_key=other).enqueue("small")
            await until(lambda: ran["small"] == 1, 1)
            assert ran["flood"] < 3000, "it was flooded all the while"
            await until(lambda: ran["flood"] == 3000, 30)


async def test_who_says_another_number_is_refused_before_anything_is_written(
    queue: Queue, redis_url: str
) -> None:
    async with queue:
        job = await queue.stub("note").after(60).enqueue(1)
        for shards in (1, 3, 8):
            other = Queue(queue.name, url=redis_url, shards=shards)
            with pytest.raises(WrongShards, match=f"pass shards={SHARDS}"):
                await other.stub("note").after(60).enqueue(2)
        assert (await queue.stats()).scheduled == 1
        assert await job.cancel()


async def test_a_queue_that_holds_jobs_cannot_be_divided(redis_url: str, queue_name: str) -> None:
    whole = Queue(queue_name, url=redis_url)
    async with whole:
        job = await whole.stub("note").after(60).enqueue(1)
        with pytest.raises(WrongShards, match="let it run empty first"):
            await Queue(queue_name, url=redis_url, shards=2).stats()
        assert await job.cancel()


async def test_six_shards_are_on_all_masters(server: ServerProcess | Cluster, queue_name: str) -> None:
    if not isinstance(server, Cluster):
        pytest.skip("a cluster has masters")
    queue = Queue(queue_name, url=server.url, shards=6)
    async with queue:
        jobs = await queue.enqueue_many([queue.stub("note").after(60).job(n) for n in range(120)])
        masters = {server.master_of(queue_slot(queue_name, n)).port for n in range(6)}
        assert len(masters) == 3
        for job in jobs:
            assert await job.cancel()
