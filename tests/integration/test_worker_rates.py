"""Rates over real workers: starts are spaced, waiting costs nothing, and nobody is held up behind it."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest

from aiodq import ConfigError, Queue, Rate, Retry, Snooze, Unique, Worker, current_job
from aiodq._core.errors import ScriptError
from aiodq._core.rate import Booked, Booking
from aiodq.events import JobSettled
from tests.monitor import Monitor
from tests.servers import ServerProcess
from tests.workers import Bench, runtime_of


def gaps(bench: Bench) -> list[float]:
    times = sorted(at for _, at in bench.starts)
    return [later - earlier for earlier, later in itertools.pairwise(times)]


async def test_starts_are_spaced_and_waiting_counts_as_nothing(bench: Bench) -> None:
    seen: list[tuple[int, int, int, timedelta]] = []

    @bench.queue.task(rate=Rate(20))
    async def close(n: int) -> None:
        job = current_job()
        bench.note(str(n))
        seen.append((job.attempt, job.snoozes, job.interruptions, job.late_by))

    await bench.queue.enqueue_many([close.job(n) for n in range(12)])
    began = time.monotonic()
    async with bench.worker():
        await bench.until(lambda: len(bench.starts) == 12)
        await bench.until_empty()
    took = time.monotonic() - began
    assert took > 11 / 20 - 0.01
    assert all(bench.runs(str(n)) == 1 for n in range(12))
    assert {counts[:3] for counts in seen} == {(1, 0, 0)}
    # Lateness is that of the jobs, which were all due at the beginning.
    assert [round(late.total_seconds(), 1) for *_, late in seen][-1] >= 0.5
    settled = bench.told(JobSettled)
    assert [event.outcome for event in settled].count("ack") == 12
    assert [event.outcome for event in settled].count("release") == 11, "each was put off once"


async def test_a_burst_starts_at_once(bench: Bench) -> None:
    @bench.queue.task(rate=Rate(2, per=60, burst=5))
    async def close(n: int) -> None:
        bench.note(str(n))

    await bench.queue.enqueue_many([close.job(n) for n in range(8)])
    async with bench.worker():
        await bench.until(lambda: len(bench.starts) == 5)
        await asyncio.sleep(0.1)
        assert len(bench.starts) == 5
        stats = await bench.queue.stats()
        assert (stats.scheduled, stats.processing, stats.due) == (3, 0, 0)
    for job in await bench.queue.peek("scheduled"):
        await bench.queue.cancel(job.id)


async def test_each_value_of_the_key_has_its_own_rate(bench: Bench) -> None:
    @bench.queue.task(rate=Rate(1, per=60, key="tenant"))
    async def close(n: int, tenant: str = "none") -> None:
        bench.note(tenant)

    await close.enqueue(1, "a")
    await close.enqueue(2, tenant="a")
    await bench.queue.send("close", args=(3, "b"))
    await bench.queue.send("close", args=(4,), kwargs={"tenant": "b"})
    await bench.queue.send("close", args=(5,))
    await close.enqueue(6, "none")
    async with bench.worker():
        await bench.until(lambda: len(bench.starts) == 3)
        await asyncio.sleep(0.1)
        assert sorted(name for name, _ in bench.starts) == ["a", "b", "none"]
    for job in await bench.queue.peek("scheduled"):
        await bench.queue.cancel(job.id)


async def test_jobs_of_other_tasks_are_not_held_up(bench: Bench) -> None:
    @bench.queue.task(rate=Rate(1, per=60))
    async def slow(n: int) -> None: ...

    @bench.queue.task
    async def quick() -> None:
        bench.note("quick")

    await bench.queue.enqueue_many([slow.job(n) for n in range(500)])
    await quick.enqueue()
    async with bench.worker(concurrency=10):
        began = time.monotonic()
        await bench.until(lambda: bench.runs("quick") == 1)
        assert time.monotonic() - began < 5
    # The last of them waits for its moment, hours ahead, under no lease.
    stats = await bench.queue.stats()
    assert (stats.scheduled, stats.processing, stats.due) == (499, 0, 0)
    moments = [job.due_at for job in await bench.queue.peek("scheduled", limit=500) if job.due_at]
    assert max(moments) - min(moments) == timedelta(minutes=498)
    for job in await bench.queue.peek("scheduled", limit=500):
        await bench.queue.cancel(job.id)


async def test_a_retry_asks_again_and_its_history_goes_on(bench: Bench) -> None:
    attempts: list[tuple[int, int, float]] = []

    @bench.queue.task(rate=Rate(10))
    async def close() -> None:
        job = current_job()
        attempts.append((job.attempt, job.snoozes, time.monotonic()))
        if len(attempts) == 1:
            raise Retry(0)
        if len(attempts) == 2:
            raise Snooze(0)

    await close.enqueue()
    async with bench.worker():
        await bench.until(lambda: len(attempts) == 3)
        await bench.until_empty()
    assert [counts[:2] for counts in attempts] == [(1, 0), (2, 0), (2, 1)]
    assert attempts[1][2] - attempts[0][2] > 0.09
    assert attempts[2][2] - attempts[1][2] > 0.09


async def test_after_an_outage_moments_that_have_passed_are_not_used_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiodq._core.rate.LATE_MS", 200)

    @bench.queue.task(rate=Rate(25))
    async def close(n: int) -> None:
        bench.note(str(n))

    await bench.queue.enqueue_many([close.job(n) for n in range(30)])
    async with bench.worker():
        await bench.until(lambda: len(bench.starts) >= 2)
        await bench.queue.pause("an outage")
        await asyncio.sleep(0.05)
        before = len(bench.starts)
        await asyncio.sleep(0.8)
        assert len(bench.starts) == before
        # All moments up to now have passed: 20 jobs wait that had one.
        assert (await bench.queue.stats()).due >= 10
        await bench.queue.resume()
        resumed = time.monotonic()
        await bench.until(lambda: len(bench.starts) == 30)
        await bench.until_empty()
    times = [at for _, at in bench.starts if at >= resumed]
    in_the_first_200_ms = sum(at < times[0] + 0.2 for at in times)
    assert in_the_first_200_ms <= 5 + 5 + 2, "what may be late, what was its turn, and some for the clock"


async def test_a_stop_in_the_middle_of_a_run_uses_its_start_up(bench: Bench) -> None:
    due: list[datetime] = []

    @bench.queue.task(rate=Rate(2, per=1))
    async def close(n: int) -> None:
        job = current_job()
        due.append(job.due_at)
        bench.note(job.id)
        if bench.runs(job.id) == 1 and n == 2:
            await asyncio.sleep(60)

    first, second = await bench.queue.enqueue_many([close.options(job_id=f"job-{n}").job(n) for n in (1, 2)])
    async with bench.worker(grace=0.5):
        await bench.until(lambda: len(bench.starts) == 2)
    assert await bench.where(second.id) == "scheduled"
    reservation = (await bench.tally(second.id)).reservation
    assert reservation is not None
    async with bench.worker():
        await bench.until(lambda: bench.runs(second.id) == 2)
        await bench.until_empty()
    assert gaps(bench)[1] > 0.45
    assert due == [first.due_at, second.due_at, second.due_at], "the job's own due time all along"


async def test_a_rescheduled_job_loses_its_moment(bench: Bench) -> None:
    @bench.queue.task(rate=Rate(1, per=1))
    async def close(n: int) -> None:
        bench.note(current_job().id)

    first, second = await bench.queue.enqueue_many([close.options(job_id=f"job-{n}").job(n) for n in (1, 2)])
    async with bench.worker():
        await bench.until(lambda: bench.runs(first.id) == 1)
        await bench.until_put_off(second.id)
        assert await bench.queue.reschedule(second.id, after=0)
        await asyncio.sleep(0.2)
        assert bench.runs(second.id) == 0, "it asked again, and was told a later moment"
        await bench.until(lambda: bench.runs(second.id) == 1)
        await bench.until_empty()
    assert gaps(bench)[0] > 0.95


async def test_a_server_that_refuses_to_admit_costs_a_second_and_no_attempt(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("aiodq._worker.admission.ASK_AGAIN_MS", 50)

    @bench.queue.task(rate=Rate(100))
    async def close() -> None:
        bench.note(f"attempt {current_job().attempt}")

    async with bench.worker() as worker:
        (shard,) = runtime_of(worker)._shards
        plain, refused = shard.access.admit, list[int]()

        async def refusing(bookings: list[Booking], /) -> Booked:
            if len(refused) < 3:
                refused.append(len(bookings))
                raise ScriptError("no")
            return await plain(bookings)

        monkeypatch.setattr(shard.access, "admit", refusing)
        await close.enqueue()
        await bench.until(lambda: len(bench.starts) == 1)
        await bench.until_empty()
    assert bench.runs("attempt 1") == 1
    assert refused == [1, 1, 1]
    assert "put off" in caplog.text


async def test_a_job_whose_lease_was_lost_while_it_asked_is_not_begun(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    @bench.queue.task(rate=Rate(100))
    async def close() -> None:
        bench.note("run")

    async with bench.worker() as worker:
        (shard,) = runtime_of(worker)._shards
        plain, asked, go_on = shard.access.admit, asyncio.Event(), asyncio.Event()

        async def held_up(bookings: list[Booking], /) -> Booked:
            if not asked.is_set():
                asked.set()
                await go_on.wait()
            return await plain(bookings)

        monkeypatch.setattr(shard.access, "admit", held_up)
        job = await close.enqueue()
        await asked.wait()
        run = shard.held[job.id]
        runtime_of(worker)._executor.lost(shard, run, run.token)
        go_on.set()
        await asyncio.sleep(0.1)
        assert bench.starts == []
        assert runtime_of(worker)._slots.taken == 0
    assert await bench.where(job.id) == "processing"
    async with bench.worker():
        await bench.until(lambda: bench.runs("run") == 1)  # after its lease
        await bench.until_empty()


async def test_an_answer_that_was_long_on_its_way_starts_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be repeated for a minute; meanwhile others have started what it allowed."""
    monkeypatch.setattr("aiodq._core.rate.LATE_MS", 100)

    @bench.queue.task(rate=Rate(100, burst=10))
    async def close() -> None:
        bench.note("run")

    async with bench.worker() as worker:
        (shard,) = runtime_of(worker)._shards
        plain, asked = shard.access.admit, list[float]()

        async def slow(bookings: list[Booking], /) -> Booked:
            asked.append(time.monotonic())
            booked = await plain(bookings)
            if len(asked) == 1:
                await asyncio.sleep(0.2)
            return booked

        monkeypatch.setattr(shard.access, "admit", slow)
        await close.enqueue()
        await bench.until(lambda: len(bench.starts) == 1)
        await bench.until_empty()
    assert len(asked) == 2


async def test_a_stop_gives_jobs_back_that_still_ask(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    @bench.queue.task(rate=Rate(100))
    async def close() -> None:
        bench.note("run")

    worker = bench.worker()
    async with worker:
        (shard,) = runtime_of(worker)._shards
        plain, asked = shard.access.admit, asyncio.Event()

        async def late(bookings: list[Booking], /) -> Booked:
            asked.set()
            await asyncio.sleep(0.2)
            return await plain(bookings)

        monkeypatch.setattr(shard.access, "admit", late)
        job = await close.enqueue()
        await asked.wait()
    assert bench.starts == []
    found = await bench.find(job.id)
    assert (found.was, found.due_ms) == ("scheduled", round(job.due_at.timestamp() * 1000))
    await bench.queue.cancel(job.id)


async def test_a_burst_run_ends_when_the_rest_waits(bench: Bench) -> None:
    @bench.queue.task(rate=Rate(1, per=3600))
    async def close(n: int) -> None:
        bench.note(str(n))

    await bench.queue.enqueue_many([close.job(n) for n in range(3)])
    await bench.worker().run(burst=True)
    assert len(bench.starts) == 1
    for job in await bench.queue.peek("scheduled"):
        await bench.queue.cancel(job.id)


async def test_expiry_counts_from_the_jobs_own_due_time(bench: Bench) -> None:
    @bench.queue.task(rate=Rate(5), expires=0.3)
    async def close(n: int) -> None:
        bench.note(str(n))

    await bench.queue.enqueue_many([close.job(n) for n in range(5)])
    async with bench.worker():
        await bench.until_empty()
    assert 1 <= len(bench.starts) <= 3
    assert [event.outcome for event in bench.told(JobSettled)].count("expire") == 5 - len(bench.starts)


def test_the_key_is_checked_at_decoration() -> None:
    queue = Queue("q", url="memory://rates")

    @queue.task(rate=Rate(1, key="n"))
    async def fine(n: int, *, m: int = 0) -> None: ...

    with pytest.raises(ConfigError, match=r"wrong\(\): Rate.key is 'tenant'.*'n' or 'm'"):

        @queue.task(rate=Rate(1, key="tenant"))
        async def wrong(n: int, m: int) -> None: ...

    with pytest.raises(ConfigError, match=r"Rate\.key is 'rest'"):

        @queue.task(rate=Rate(1, key="rest"))
        async def many(*rest: int) -> None: ...

    with pytest.raises(ConfigError, match="expected rate to be a Rate or None, got 100"):
        queue.task(rate=100)  # type: ignore[call-overload]


async def test_a_hundred_a_second_over_four_workers(server: ServerProcess, queue_name: str) -> None:
    """Ten seconds of it, by the server's clock; what is counted are commands, not time."""
    port = server.port  # commands are counted on one server
    jobs, starts = 1_050, list[tuple[float, int]]()
    queue = Queue(queue_name, url=server.url)

    @queue.task(rate=Rate(100))
    async def close(n: int) -> None:
        job = current_job()
        starts.append(((job.due_at + job.late_by).timestamp(), job.attempt))

    async with queue, AsyncExitStack() as workers:
        await queue.enqueue_many(
            [close.at(datetime.now(UTC) + timedelta(seconds=1)).job(n) for n in range(jobs)]
        )
        for _ in range(4):
            await workers.enter_async_context(Worker(queue))
        with Monitor("127.0.0.1", port) as monitor:
            deadline = time.monotonic() + 30
            while len(starts) < jobs:
                assert time.monotonic() < deadline, f"{len(starts)} of {jobs}"
                await asyncio.sleep(0.05)
    assert all(attempt == 1 for _, attempt in starts)
    times = sorted(at for at, _ in starts)
    in_ten_seconds = [sum(from_ <= at < from_ + 10 for at in times) for from_ in times[:40]]
    assert all(950 <= count <= 1050 for count in in_ten_seconds), in_ten_seconds
    assert monitor.sent.total() / jobs < 5, monitor.sent


async def test_the_shards_of_a_queue_share_a_rate(bench: Bench) -> None:
    queue = Queue(f"{bench.queue.name}-sharded", url=bench.url, shards=4)

    @queue.task(rate=Rate(20))
    async def close(n: int) -> None:
        bench.note(str(n))

    async with queue, Worker(queue, lease=1, grace=2):
        await queue.enqueue_many([close.job(n) for n in range(15)])
        await bench.until(lambda: len(bench.starts) == 15)
        while (stats := await queue.stats()).scheduled or stats.processing:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)
    times = sorted(at for _, at in bench.starts)
    assert times[-1] - times[0] > 13 / 20


async def test_jobs_that_are_unique_together_are_in_one_shard(bench: Bench) -> None:
    queue = Queue(f"{bench.queue.name}-sharded", url=bench.url, shards=4)

    @queue.task(unique=Unique(3600, key="tenant"))
    async def report(tenant: str) -> None:
        bench.note(tenant)

    async with queue:
        sent = await queue.enqueue_many([report.job(f"t{n % 10}") for n in range(50)])
        assert [job.created for job in sent] == [n < 10 for n in range(50)]
        assert len({job.id for job in sent}) == 10
        assert (await queue.stats()).scheduled == 10
        assert (await sent[49].cancel()).made
        await Worker(queue, lease=1, grace=2).run(burst=True)
    assert sorted(tenant for tenant, _ in bench.starts) == [f"t{n}" for n in range(9)]


async def test_who_waits_for_a_moment_asks_nobody(server: ServerProcess, queue_name: str) -> None:
    queue, started, port = Queue(queue_name, url=server.url), asyncio.Event(), server.port

    @queue.task(rate=Rate(1, per=3600))
    async def close(n: int) -> None:
        started.set()

    async with queue, Worker(queue), Worker(queue):
        await queue.enqueue_many([close.job(n) for n in range(20)])
        await started.wait()
        while (stats := await queue.stats()).processing or stats.due:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)  # a look of the second seat
        with Monitor("127.0.0.1", port) as monitor:
            await asyncio.sleep(1.5)
        waiting = await queue.peek("scheduled", limit=20)
    for job in waiting:
        await queue.cancel(job.id)
    assert len(waiting) == 19
    assert monitor.sent.total() <= 1, monitor.sent
