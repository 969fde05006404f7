"""Faults of scale and fairness seen elsewhere. Sizes are small; what is counted does not depend on them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from aiodq import Bury, Queue, Retry, Worker, current_job
from tests.clusters import Cluster
from tests.monitor import Monitor
from tests.servers import ServerProcess
from tests.shards import until


async def clear(queue: Queue) -> None:
    while jobs := await queue.peek("scheduled", limit=1000):
        await asyncio.gather(*(queue.cancel(job.id) for job in jobs))


def sent_bytes(server: ServerProcess) -> int:
    with server.client() as client:
        return int(cast("dict[str, int]", client.info("stats"))["total_net_output_bytes"])


async def test_b151_jobs_that_are_not_due_are_not_sent_to_workers(
    server: ServerProcess, queue_name: str
) -> None:
    """What is not sent cannot fill a worker's memory, however much of it is scheduled."""
    assert server.port
    queue, count, body = Queue(queue_name, url=server.url), 5_000, "x" * 200

    @queue.task
    async def note(text: str) -> None: ...

    async with queue:
        await queue.enqueue_many([note.after(3600).job(body) for _ in range(count)])
        before = sent_bytes(server)
        async with Worker(queue, concurrency=100):
            await note.enqueue("now")
            await asyncio.sleep(2)
        assert sent_bytes(server) - before < 20_000
        await clear(queue)


@pytest.mark.parametrize("workers", [1, 8])
async def test_b152_what_waiting_costs_does_not_grow_with_the_backlog(
    server: ServerProcess, queue_name: str, workers: int
) -> None:
    """Commands inside scripts for ten lone jobs, with ten and with ten thousand others scheduled."""
    port, counted = server.port, dict[int, int]()
    for backlog in (10, 10_000):
        queue = Queue(f"{queue_name}-{backlog}", url=server.url)
        ran: list[int] = []

        @queue.task(name="note")
        async def note(n: int, ran: list[int] = ran) -> None:
            ran.append(n)

        async with queue:
            await queue.enqueue_many([note.after(3600).job(n) for n in range(backlog)])
            async with Worker(*[queue], concurrency=10):
                others = [Worker(queue, concurrency=10) for _ in range(workers - 1)]
                for other in others:
                    await other.__aenter__()
                await asyncio.sleep(1)
                with Monitor("127.0.0.1", port) as monitor:
                    for n in range(10):
                        await note.enqueue(n)
                        await asyncio.sleep(0.1)
                counted[backlog] = monitor.inside.total()
                for other in others:
                    await other.__aexit__(None, None, None)
            await clear(queue)
        assert len(ran) == 10
    assert counted[10_000] <= counted[10] * 1.25, counted


async def test_b155_a_herd_over_many_workers_makes_few_wasted_claims(
    server: ServerProcess, queue_name: str
) -> None:
    port, queue, jobs, ran = server.port, Queue(queue_name, url=server.url), 5_000, 0

    @queue.task
    async def work() -> None:
        nonlocal ran
        ran += 1

    async with queue:
        due = datetime.now(UTC) + timedelta(seconds=3)
        await queue.enqueue_many([work.at(due).job() for _ in range(jobs)])
        workers = [Worker(queue, concurrency=100) for _ in range(8)]
        for worker in workers:
            await worker.__aenter__()
        await asyncio.sleep(1)
        with Monitor("127.0.0.1", port) as monitor:
            await until(lambda: ran == jobs, 20)
        for worker in workers:
            await worker.__aexit__(None, None, None)
    needed = jobs / 100
    # A claim that gives jobs reads their payloads, in slices of 25; every claim asks for its own receivers.
    claims, giving = monitor.inside["PUBSUB"], monitor.inside["ZREMRANGEBYRANK"]
    assert giving >= needed
    assert claims - giving < giving / 5 + 2 * len(workers), (claims, giving)


async def test_b157_a_due_job_behind_many_claimed_ones_starts_at_once(
    redis_url: str, queue_name: str
) -> None:
    queue, done, started = Queue(queue_name, url=redis_url), asyncio.Event(), list[str]()

    @queue.task
    async def work(name: str) -> None:
        started.append(name)
        if name == "long":
            await done.wait()

    async with queue, Worker(queue, concurrency=200):
        await queue.enqueue_many([work.job("long") for _ in range(200)])
        await until(lambda: len(started) == 200, 10)
        async with Worker(queue, concurrency=1):
            await work.enqueue("short")
            await until(lambda: started[-1] == "short", 1)
        done.set()


async def test_b159_a_heap_of_due_retries_does_not_hold_up_what_is_due_with_them(
    redis_url: str, queue_name: str
) -> None:
    """Retries and first runs wait in one schedule, by their due times: neither has a set of its own that is
    served first."""
    queue, ran, first = Queue(queue_name, url=redis_url), list[str](), datetime.now(UTC)

    @queue.task(backoff=lambda _: 0)
    async def work(name: str) -> None:
        if name == "failing" and current_job().attempt == 1:
            raise Retry(at=first + timedelta(seconds=1.5))
        ran.append(name)

    async with queue:
        await queue.enqueue_many([work.job("failing") for _ in range(2_000)])
        await work.at(first + timedelta(seconds=1)).enqueue("scheduled")
        async with Worker(queue, concurrency=20):
            await until(lambda: len(ran) == 2_001, 30)
    assert ran[0] == "scheduled"


async def test_b160_jobs_of_every_ending_leave_nothing_without_a_lifetime(
    server: ServerProcess | Cluster, queue_name: str
) -> None:
    queue = Queue(queue_name, url=server.url)

    @queue.task(max_attempts=2, backoff=lambda _: 0)
    async def work(n: int) -> None:
        match n % 5:
            case 1:
                raise Bury("no use")
            case 2:
                raise ValueError("twice, and then dead")
            case 3 if current_job().attempt == 1:
                raise Retry(0)
            case _:
                pass

    async with queue:
        jobs = await queue.enqueue_many([work.options(job_id=f"job-{n}").job(n) for n in range(500)])
        expired = await work.options(expires=0.001).enqueue(4)
        cancelled = await work.after(60).enqueue(4)
        assert await cancelled.cancel()
        await asyncio.sleep(0.01)
        await Worker(queue).run(burst=True)
        assert await expired.status() in ("absent", "done")
        assert len(await queue.dead.list(limit=1000)) == 200
        assert await queue.dead.purge(older_than=0) == 200
        assert {await job.status() for job in jobs} <= {"absent", "done"}
        assert not (await queue.check()).findings
    with server.client() as client:
        found = cast("Iterator[bytes]", client.scan_iter(match=f"aiodq:{{{queue_name}}}:*"))
        keys = [key for key in found if client.pttl(key) == -1]
    assert not keys


async def test_b163_renewals_go_on_while_all_slots_are_busy(redis_url: str, queue_name: str) -> None:
    """Four leases long, with more jobs due than slots: each runs once, by the worker that holds it."""
    queue, started, ended = Queue(queue_name, url=redis_url), list[int](), list[int]()

    @queue.task
    async def work(n: int) -> None:
        started.append(n)
        await asyncio.sleep(2)
        ended.append(n)

    async with queue:
        await queue.enqueue_many([work.job(n) for n in range(12)])
        async with Worker(queue, concurrency=4, lease=0.5), Worker(queue, concurrency=4, lease=0.5):
            await until(lambda: len(ended) == 12, 20)
    assert sorted(started) == sorted(ended) == list(range(12))
