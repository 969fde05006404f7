"""One worker for many queues: what it costs while nothing is due, and that none waits for the others."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from aiodq import Queue, Share, Worker
from tests.clusters import Cluster
from tests.monitor import Monitor
from tests.servers import ServerProcess
from tests.shards import until

MANY = 200
IDLE_PER_S = 0.2
"""Commands a second of one idle worker, however many queues it serves."""


def one_server(server: ServerProcess | Cluster) -> ServerProcess:
    if isinstance(server, Cluster):
        pytest.skip("commands are counted on one server")
    return server


async def test_two_hundred_idle_queues_cost_what_one_costs(
    server: ServerProcess | Cluster, queue_name: str
) -> None:
    port = one_server(server).port
    queues = [Queue(f"{queue_name}-{n}", url=server.url) for n in range(MANY)]
    started: list[int] = []
    for n, queue in enumerate(queues):

        @queue.task(name="note")
        async def note(n: int) -> None:
            started.append(n)

        await queue.stub("note").after(3600).options(job_id="later").enqueue(n)
    async with Worker(*queues):
        await asyncio.sleep(3)
        window_s = 12.0
        with Monitor("127.0.0.1", port) as monitor:
            await asyncio.sleep(window_s)
        # One ping of the subscriber may fall into the window.
        assert monitor.sent.total() <= IDLE_PER_S * window_s + 1, monitor.sent

        # All sleep for a long time now, and each is woken by its own notice.
        await asyncio.gather(*(queue.stub("note").enqueue(n) for n, queue in enumerate(queues)))
        await until(lambda: len(started) == MANY, 5)
    assert sorted(started) == list(range(MANY))
    for queue in queues:
        assert await queue.cancel("later")


async def test_small_queues_beside_a_flooded_one_start_in_time(redis_url: str, queue_name: str) -> None:
    flooded = Queue(f"{queue_name}-flood", url=redis_url)
    small = [Queue(f"{queue_name}-small-{n}", url=redis_url) for n in range(9)]
    flood, late_s = 0, list[float]()

    @flooded.task
    async def work(n: int) -> None:
        nonlocal flood
        flood += 1
        await asyncio.sleep(0.001)

    for queue in small:

        @queue.task
        async def remind(due: float) -> None:
            late_s.append(time.time() - due)

    async with flooded:
        await flooded.enqueue_many([work.job(n) for n in range(100_000)])
        async with Worker(flooded, *small, concurrency=50):
            await until(lambda: flood > 500, 30)
            for _ in range(5):
                due = datetime.now(UTC) + timedelta(seconds=0.5)
                for queue in small:
                    await queue.stub("remind").at(due).enqueue(due.timestamp())
                await asyncio.sleep(0.5)
            await until(lambda: len(late_s) == 45, 30)
            stats = await flooded.stats()
            assert stats.due > 10_000, "it was flooded all the while"
            await flooded.pause()
        while found := await flooded.peek("scheduled", limit=10_000):
            await asyncio.gather(*(flooded.cancel(job.id) for job in found))
    assert max(late_s) < 1.0, sorted(late_s)[-5:]
    assert flood > 1000


async def test_a_higher_priority_goes_first_altogether(redis_url: str, queue_name: str) -> None:
    urgent, slow = Queue(f"{queue_name}-urgent", url=redis_url), Queue(f"{queue_name}-slow", url=redis_url)
    ran: list[str] = []
    for queue, name in ((urgent, "urgent"), (slow, "slow")):

        @queue.task(name="work")
        async def work(name: str) -> None:
            ran.append(name)
            await asyncio.sleep(0.002)

        await queue.enqueue_many([work.job(name) for _ in range(300)])
    async with Worker(Share(urgent, priority=1), slow, concurrency=10):
        await until(lambda: len(ran) == 600, 30)
    # Both first claims are on their way before either queue is known to have jobs.
    assert ran[:300].count("slow") <= 20


async def test_slots_are_shared_by_weight(redis_url: str, queue_name: str) -> None:
    heavy, light = Queue(f"{queue_name}-heavy", url=redis_url), Queue(f"{queue_name}-light", url=redis_url)
    ran: list[str] = []
    for queue, name in ((heavy, "heavy"), (light, "light")):

        @queue.task(name="work")
        async def work(name: str) -> None:
            ran.append(name)
            await asyncio.sleep(0.005)

        await queue.enqueue_many([work.job(name) for _ in range(900)])
    async with Worker(Share(heavy, weight=3), light, concurrency=20):
        await until(lambda: len(ran) == 1800, 30)
    share = ran[:800].count("heavy") / 800
    assert 0.65 <= share <= 0.85, share


async def test_a_cap_holds_while_others_leave_slots_free(redis_url: str, queue_name: str) -> None:
    queue, other = Queue(queue_name, url=redis_url), Queue(f"{queue_name}-other", url=redis_url)
    running = most = done = 0

    @queue.task
    async def work() -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        done += 1

    @other.task(name="work")
    async def idle() -> None: ...

    await queue.enqueue_many([work.job() for _ in range(100)])
    async with Worker(Share(queue, concurrency=4), other, concurrency=50):
        await until(lambda: done == 100, 30)
    assert most == 4
