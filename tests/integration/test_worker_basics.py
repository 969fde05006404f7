"""A worker on both stores: runs what is due, when it is due, once, and stops as it should."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from aiodq import ConfigError, NotInJob, Queue, Share, Worker, current_job
from aiodq._core.settlement import Settlement
from aiodq._core.store import ClaimRequest, TurnAnswer
from aiodq.events import JobSettled, JobStarted
from tests.workers import Bench, runtime_of


async def test_due_jobs_are_run_and_gone(bench: Bench) -> None:
    done: list[str] = []

    @bench.queue.task
    async def note(word: str) -> None:
        done.append(word)

    words = [f"w{n}" for n in range(250)]
    await bench.queue.enqueue_many([note.job(word) for word in words])
    async with bench.worker(concurrency=100):
        await bench.until_empty()
    assert sorted(done) == sorted(words)
    settled = bench.told(JobSettled)
    assert [event.outcome for event in settled] == ["ack"] * 250
    assert len(bench.told(JobStarted)) == 250


async def test_a_job_starts_at_its_due_time_never_early(bench: Bench) -> None:
    late: list[timedelta] = []

    @bench.queue.task
    async def look() -> None:
        late.append(current_job().late_by)

    async with bench.worker():
        due = (await look.after(0.3).enqueue()).due_at.timestamp()
        earlier = (await look.after(0.15).enqueue()).due_at.timestamp()
        await bench.until(lambda: len(late) == 2)
        assert due > earlier
    assert all(timedelta() <= by < timedelta(seconds=0.25) for by in late), late


async def test_a_lone_job_costs_one_claim_and_one_settlement(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[tuple[int, bool]] = []

    @bench.queue.task
    async def work() -> None: ...

    async with bench.worker() as worker:
        (shard,) = runtime_of(worker)._shards
        await bench.until(lambda: shard.claimer.seat == 1)
        plain_turn = shard.access.turn

        async def counted(
            settlements: Sequence[Settlement], claim: ClaimRequest | None, /, *, last: bool = False
        ) -> TurnAnswer:
            turns.append((len(settlements), claim is not None))
            return await plain_turn(settlements, claim, last=last)

        monkeypatch.setattr(shard.access, "turn", counted)
        await work.after(0.2).enqueue()
        await bench.until_empty()
        await asyncio.sleep(0.2)
        assert turns == [(0, True), (1, False)]


async def test_no_more_handlers_run_than_slots(bench: Bench) -> None:
    now = most = 0

    @bench.queue.task
    async def work() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1

    await bench.queue.enqueue_many([work.job() for _ in range(40)])
    async with bench.worker(concurrency=7):
        await bench.until_empty()
    assert most == 7


async def test_plain_functions_run_in_threads_at_the_same_time(bench: Bench) -> None:
    together = threading.Barrier(4, timeout=5)
    seen: list[tuple[str, bool]] = []

    @bench.queue.task
    def work() -> None:
        together.wait()
        seen.append((current_job().task, threading.current_thread() is threading.main_thread()))

    await bench.queue.enqueue_many([work.job() for _ in range(4)])
    async with bench.worker(concurrency=4):
        await bench.until_empty()
    assert seen == [("work", False)] * 4


async def test_current_job_tells_what_runs(bench: Bench) -> None:
    seen: list[tuple[object, ...]] = []

    @bench.queue.task(max_attempts=3)
    async def work() -> None:
        job = current_job()
        seen.append(
            (job.id, job.queue, job.task, job.attempt, job.max_attempts, job.last_attempt, job.stopping)
        )
        seen.append((job.failures, job.crashes, job.interruptions, job.snoozes, dict(job.headers), job.state))
        assert job.fence > 0

    sent = await work.options(job_id="one", headers={"trace": "t1"}).enqueue()
    async with bench.worker():
        await bench.until_empty()
    assert seen == [
        ("one", bench.queue.name, "work", 1, 3, False, False),
        (0, 0, 0, 0, {"trace": "t1"}, None),
    ]
    assert sent.created
    with pytest.raises(NotInJob):
        current_job()


async def test_extend_renews_now(bench: Bench) -> None:
    ends: list[int] = []

    @bench.queue.task
    async def work() -> None:
        job = current_job()
        before = (await bench.find(job.id)).at_ms
        await asyncio.sleep(0.03)
        await job.extend()
        ends.append((await bench.find(job.id)).at_ms - before)

    await work.options(job_id="x").enqueue()
    async with bench.worker(lease=30):
        await bench.until_empty()
    assert 25 <= ends[0] < 5000


class Pools:
    """What a lifespan yields in these tests."""


async def test_lifespan_is_around_the_work_and_its_state_is_typed(bench: Bench) -> None:
    story: list[str] = []
    pools = Pools()

    @asynccontextmanager
    async def lifespan() -> AsyncGenerator[Pools, None]:
        story.append("open")
        yield pools
        story.append("close")

    @bench.queue.task
    async def work() -> None:
        assert current_job(Pools).state is pools
        story.append("work")

    await work.enqueue()
    async with bench.worker(lifespan=lifespan):
        await bench.until_empty()
    assert story == ["open", "work", "close"]


async def test_a_wrong_state_gives_the_job_back_uncounted(bench: Bench) -> None:
    @bench.queue.task
    async def work() -> None:
        current_job(Pools)

    await work.options(job_id="x").enqueue()
    async with bench.worker():
        await bench.until(lambda: bool(bench.told(JobSettled)))
    (settled,) = bench.told(JobSettled)
    assert settled.outcome == "release"
    assert "ConfigError" in (settled.error or "") or "WrongState" in (settled.error or "")
    assert (await bench.tally("x")).failures == 0
    await bench.queue.cancel("x")


async def test_a_burst_ends_when_nothing_is_due(bench: Bench) -> None:
    done: list[int] = []

    @bench.queue.task
    async def work(n: int) -> None:
        done.append(n)
        if n < 5:
            await work.enqueue(n + 1)

    await work.enqueue(0)
    await work.after(3600).options(job_id="later").enqueue(100)
    async with asyncio.timeout(10):
        await bench.worker().run(burst=True)
    assert done == [0, 1, 2, 3, 4, 5]
    await bench.queue.cancel("later")


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(bench: Bench) -> None:
    @bench.queue.task
    async def work() -> None:
        bench.note("x")

    await bench.queue.pause("for a test")
    await work.enqueue()
    async with bench.worker():
        await asyncio.sleep(0.15)
        assert bench.starts == []
        await bench.queue.resume()
        await bench.until_empty()
    assert bench.runs("x") == 1


async def test_health_and_names(bench: Bench) -> None:
    @bench.queue.task
    async def work() -> None: ...

    worker = bench.worker(name="w-7")
    assert worker.name == "w-7"
    assert not worker.health().consuming
    async with worker:
        health = worker.health()
        assert health.consuming
        assert health.running == 0
        assert health.last_claim_ago < timedelta(seconds=5)
    assert not worker.health().consuming


async def test_a_worker_runs_again_but_not_twice_at_once(bench: Bench) -> None:
    @bench.queue.task
    async def work() -> None: ...

    worker = bench.worker()
    async with worker:
        with pytest.raises(ConfigError, match="already runs"):
            await worker.run()
    await work.enqueue()
    async with worker:
        await bench.until_empty()


async def test_a_worker_without_handlers_refuses_to_start(bench: Bench) -> None:
    @bench.queue.stub
    async def elsewhere() -> None: ...

    with pytest.raises(ConfigError, match="handler"):
        await bench.worker().run()
    with pytest.raises(ConfigError, match="handler"):
        async with bench.worker():
            pass


async def test_two_queues_share_the_slots_of_a_worker_by_weight(bench: Bench) -> None:
    order: list[str] = []

    async with Queue(f"{bench.queue.name}-small", url=bench.url) as small:

        @bench.queue.task
        async def flood() -> None:
            order.append("flood")
            await asyncio.sleep(0.001)

        @small.task
        async def few() -> None:
            order.append("few")
            await asyncio.sleep(0.001)

        await bench.queue.enqueue_many([flood.job() for _ in range(600)])
        await small.enqueue_many([few.job() for _ in range(20)])
        async with Worker(Share(bench.queue, weight=3), Share(small), concurrency=8, lease=1, grace=2):
            await bench.until(lambda: order.count("few") == 20)
            assert order.count("flood") < 300, "the small queue had to wait for the flooded one"
            await bench.until_empty()
    assert order.count("flood") == 600


async def test_a_queue_takes_no_more_than_its_share_says(bench: Bench) -> None:
    now = most = 0

    @bench.queue.task
    async def work() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.005)
        now -= 1

    await bench.queue.enqueue_many([work.job() for _ in range(30)])
    async with Worker(Share(bench.queue, concurrency=3), concurrency=20, lease=1, grace=2):
        await bench.until_empty()
    assert most == 3


def test_wrong_settings_are_refused_with_their_value() -> None:
    queue = Queue("q", url="memory://q")
    wrongs: tuple[tuple[dict[str, Any], str], ...] = (
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"lease": 0.01}, "lease"),
        ({"lease": "30"}, "lease"),
        ({"grace": -1}, "grace"),
        ({"modules": "shop.handlers"}, "modules"),
        ({"lifespan": 5}, "lifespan"),
        ({"listeners": [5]}, "listeners"),
    )
    for wrong, match in wrongs:
        with pytest.raises(ConfigError, match=match):
            Worker(queue, **wrong)
    with pytest.raises(ConfigError, match="needs a queue"):
        Worker()
    for no_queue in ("orders", [queue], queue.stub("work")):
        with pytest.raises(ConfigError, match=r"expected Worker\(queue, …\) with Queues or Shares, got "):
            Worker(no_queue)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"write Worker\(\*queues\)"):
        Worker([queue])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="twice"):
        Worker(queue, Share(queue))
    with pytest.raises(ConfigError, match="weight"):
        Share(queue, weight=0)


async def test_a_large_backlog_is_worked_off_by_two_workers_once_each(bench: Bench) -> None:
    @bench.queue.task
    async def work(n: int) -> None:
        bench.note(str(n))

    await bench.queue.enqueue_many([work.job(n) for n in range(1000)])
    started = time.monotonic()
    async with bench.worker(concurrency=20), bench.worker(concurrency=20):
        await bench.until_empty()
    assert len({job for job, _ in bench.starts}) == len(bench.starts) == 1000
    assert time.monotonic() - started < 10
