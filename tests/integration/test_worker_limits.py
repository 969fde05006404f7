"""Limits over real workers: so many run at a time, those that wait go on at once, and none waits for ever."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import cast

import pytest

from aiodq import Bury, ConfigError, MaxRunning, Queue, Rate, Retry, Worker, current_job
from aiodq._core import limit
from aiodq._core.limit import Permit
from aiodq._core.store import ClaimRequest
from aiodq.events import JobSettled
from tests.workers import Bench


class Crowd:
    """Who runs, by key, and the most at a time."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.done: list[tuple[str, int]] = []

    async def visit(self, key: str, n: int, seconds: float = 0.01) -> None:
        self.now[key] += 1
        self.most[key] = max(self.most[key], self.now[key])
        try:
            await asyncio.sleep(seconds)
        finally:
            self.now[key] -= 1
        self.done.append((key, n))


async def test_one_at_a_time_of_each_key_over_several_workers(bench: Bench) -> None:
    crowd, jobs = Crowd(), [(key, n) for n in range(10) for key in "abc"]

    @bench.queue.task(max_running=MaxRunning(1, key="key"))
    async def visit(key: str, n: int) -> None:
        assert current_job().attempt == 1
        await crowd.visit(key, n)

    await bench.queue.enqueue_many([visit.job(key, n) for key, n in jobs])
    async with bench.worker(concurrency=10), bench.worker(concurrency=10):
        await bench.until(lambda: len(crowd.done) == len(jobs))
        await bench.until_empty()
    assert sorted(crowd.done) == sorted(jobs)
    assert set(crowd.most.values()) == {1}
    assert {event.outcome for event in bench.told(JobSettled)} == {"ack", "release"}


async def test_so_many_of_a_task_run_at_a_time(bench: Bench) -> None:
    crowd = Crowd()

    @bench.queue.task(max_running=MaxRunning(3))
    async def visit(n: int) -> None:
        await crowd.visit("all", n, 0.03)

    await bench.queue.enqueue_many([visit.job(n) for n in range(30)])
    async with bench.worker(concurrency=20), bench.worker(concurrency=20):
        await bench.until(lambda: len(crowd.done) == 30)
        await bench.until_empty()
    assert crowd.most["all"] == 3


async def test_waiting_jobs_go_on_at_once_when_one_ends(bench: Bench) -> None:
    """Not after the time at which they would ask by themselves."""
    crowd, gate = Crowd(), asyncio.Event()

    @bench.queue.task(max_running=MaxRunning(1))
    async def visit(n: int) -> None:
        bench.note(str(n))
        await gate.wait()
        await crowd.visit("all", n)

    async with bench.worker(concurrency=5):
        await bench.queue.enqueue_many([visit.job(n) for n in range(4)])
        await bench.until(lambda: len(bench.starts) == 1)
        await asyncio.sleep(0.3)
        assert len(bench.starts) == 1
        gate.set()
        await bench.until(lambda: len(crowd.done) == 4)
        await bench.until_empty()
    began, ended = bench.starts[0][1], bench.starts[-1][1]
    assert ended - began < limit.AGAIN_MS / 1000 / 3


@pytest.mark.parametrize("how", ["returns", "fails", "is buried"])
async def test_however_a_job_ends_the_next_one_goes_on(bench: Bench, how: str) -> None:
    ran: list[int] = []

    @bench.queue.task(max_running=MaxRunning(1), backoff=lambda _: 30)
    async def visit(n: int) -> None:
        ran.append(n)
        if n == 0 and how == "fails":
            raise Retry(30)
        if n == 0 and how == "is buried":
            raise Bury("no use")

    await visit.options(job_id="first").enqueue(0)
    async with bench.worker(concurrency=1):
        await bench.until(lambda: ran == [0])
        await visit.enqueue(1)
        await bench.until(lambda: ran == [0, 1])
        await bench.queue.cancel("first")
        await bench.until_empty()


async def test_a_job_that_waits_can_be_taken_back_and_moved(bench: Bench) -> None:
    gate, ran = asyncio.Event(), list[int]()

    @bench.queue.task(max_running=MaxRunning(1))
    async def visit(n: int) -> None:
        ran.append(n)
        await gate.wait()

    async with bench.worker(concurrency=5):
        await visit.enqueue(0)
        await bench.until(lambda: ran == [0])
        jobs = [await visit.enqueue(n) for n in (1, 2, 3)]
        for job in jobs:
            await bench.until_in("scheduled", job.id)
        assert await jobs[0].cancel()
        assert await jobs[1].reschedule(after=3600)
        gate.set()
        await bench.until(lambda: ran == [0, 3])
        assert await jobs[1].status() == "scheduled"
        assert await jobs[1].cancel()
        await bench.until_empty()


async def test_due_time_and_lateness_stay_those_of_the_job(bench: Bench) -> None:
    late: list[float] = []

    @bench.queue.task(max_running=MaxRunning(1))
    async def visit(n: int) -> None:
        late.append(current_job().late_by.total_seconds())
        await asyncio.sleep(0.2)

    await bench.queue.enqueue_many([visit.job(n) for n in range(4)])
    async with bench.worker(concurrency=5):
        await bench.until(lambda: len(late) == 4)
        await bench.until_empty()
    assert [round(seconds / 0.2) for seconds in late] == [0, 1, 2, 3]


async def test_a_permit_that_nobody_gave_back_holds_up_nothing_for_long(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a worker that died between a job's end and that word."""
    monkeypatch.setattr(limit, "AGAIN_MS", 300)
    ran: list[int] = []

    @bench.queue.task(max_running=MaxRunning(1))
    async def visit(n: int) -> None:
        ran.append(n)

    hand = bench.store.worker("1ghost" + "-" * 14, lambda _: None)
    await hand.occupy([Permit("ghost", "visit", 1)])
    await hand.aclose()
    await visit.enqueue(1)
    async with bench.worker():
        await bench.until(lambda: ran == [1])
        await bench.until_empty()


async def test_a_job_that_is_not_run_any_more_gives_back_the_permit_of_its_last_run(bench: Bench) -> None:
    ran: list[int] = []

    @bench.queue.task(max_running=MaxRunning(1), expires=0.5)
    async def visit(n: int) -> None:
        ran.append(n)

    hand = bench.store.worker("1gone" + "-" * 15, lambda _: None)
    await visit.options(job_id="first").enqueue(0)
    await hand.turn([], ClaimRequest(1, 700))
    assert (await hand.occupy([Permit("first", "visit", 1)]))[0].may_run
    await hand.aclose()  # its worker dies with it
    async with bench.worker(presence=False):
        await visit.options(expires=None).enqueue(1)  # finds the permit taken, and waits
        await bench.until(lambda: ran == [1])  # as soon as the first one is dropped, which has expired
        await bench.until_empty()
    bench.dead_workers = True


async def test_a_limit_and_a_rate_hold_together(bench: Bench) -> None:
    crowd = Crowd()

    @bench.queue.task(max_running=MaxRunning(2), rate=Rate(40))
    async def visit(n: int) -> None:
        bench.note(str(n))
        await crowd.visit("all", n, 0.02)

    await bench.queue.enqueue_many([visit.job(n) for n in range(20)])
    async with bench.worker(concurrency=10), bench.worker(concurrency=10):
        await bench.until(lambda: len(crowd.done) == 20)
        await bench.until_empty()
    assert crowd.most["all"] <= 2
    times = sorted(at for _, at in bench.starts)
    assert times[-1] - times[0] > 19 / 40 - 0.05


async def test_a_job_sent_by_name_is_limited_too(bench: Bench) -> None:
    crowd = Crowd()

    @bench.queue.task(max_running=MaxRunning(1, key="key"))
    async def visit(key: str = "default", n: int = 0) -> None:
        await crowd.visit(key, n)

    for n in range(5):
        await bench.queue.send("visit", args=("a",), kwargs={"n": n})
        await bench.queue.send("visit", kwargs={"n": n})
    async with bench.worker(concurrency=10):
        await bench.until(lambda: len(crowd.done) == 10)
        await bench.until_empty()
    assert crowd.most == {"a": 1, "default": 1}


@pytest.mark.parametrize("count", [0, -1, True, 1.5, 10_001])
def test_counts_that_cannot_be(count: object) -> None:
    with pytest.raises(ConfigError, match=r"MaxRunning\.count"):
        MaxRunning(count)  # type: ignore[arg-type]


def test_a_key_names_a_parameter() -> None:
    queue = Queue("orders", url="memory://")
    with pytest.raises(ConfigError, match=r"MaxRunning\.key is 'tenant'"):

        @queue.task(max_running=MaxRunning(1, key="tenant"))
        async def visit(n: int) -> None: ...

    with pytest.raises(ConfigError, match="expected max_running to be a MaxRunning or None, got 3"):
        queue.task(max_running=cast("MaxRunning", 3))


async def test_a_queue_of_several_shards_has_no_limits(queue_name: str) -> None:
    queue = Queue("orders", url=f"memory://{queue_name}", shards=4)

    @queue.task(max_running=MaxRunning(1))
    async def visit(n: int) -> None: ...

    with pytest.raises(ConfigError, match=r"'visit' has max_running, and queue 'orders' 4 shards"):
        await Worker(queue).run(burst=True)
