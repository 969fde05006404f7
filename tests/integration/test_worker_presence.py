"""Jobs of a killed worker are taken over within a second, long before their leases run out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from aiodq import Queue, Worker
from aiodq.events import Event, JobRecovered
from tests.conftest import RunScript
from tests.servers import ServerProcess

PROGRAM = """
import anyio, sys
from aiodq import Queue, Worker

queue = Queue(sys.argv[1], url=sys.argv[2])
begun = 0

@queue.task
async def work() -> None:
    global begun
    begun += 1
    if begun == 50:
        print("holds 50", flush=True)
    await anyio.sleep(60)

print("ready", flush=True)
anyio.run(Worker(queue, lease=30).run)
"""


async def until(holds: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_fifty_jobs_of_a_killed_process_start_again_within_a_second(
    valkey: ServerProcess, queue_name: str, run_script: RunScript
) -> None:
    async with Queue(queue_name, url=valkey.url) as queue:
        starts: list[float] = []
        events: list[Event] = []

        @queue.task
        async def work() -> None:
            starts.append(time.monotonic())

        await queue.enqueue_many([work.job() for _ in range(50)])
        script = run_script(PROGRAM, queue_name, valkey.url)
        script.wait_for("holds 50")
        async with Worker(queue, lease=30, grace=2, listeners=[events.append]):
            await asyncio.sleep(3.5)  # a worker accuses nobody before it is steady: three seconds
            assert starts == [], "the living process must keep its jobs"
            script.kill()
            killed = time.monotonic()
            await until(lambda: len(starts) == 50, 5)
            took = max(starts) - killed
        assert took < 1.5, took
        recovered = [event for event in events if isinstance(event, JobRecovered)]
        assert [event.crashes for event in recovered] == [1] * 50
        stats = await queue.stats()
        assert (stats.scheduled, stats.processing) == (0, 0)


@pytest.mark.slow
async def test_with_presence_off_a_killed_workers_jobs_wait_for_their_lease(
    valkey: ServerProcess, queue_name: str, run_script: RunScript
) -> None:
    async with Queue(queue_name, url=valkey.url) as queue:
        starts: list[float] = []

        @queue.task
        async def work() -> None:
            starts.append(time.monotonic())

        await queue.enqueue_many([work.job() for _ in range(50)])
        script = run_script(PROGRAM.replace("lease=30", "lease=4"), queue_name, valkey.url)
        script.wait_for("holds 50")
        async with Worker(queue, lease=4, grace=2, presence=False):
            await asyncio.sleep(3.5)
            script.kill()
            killed = time.monotonic()
            await until(lambda: len(starts) == 50, 10)
            took = min(starts) - killed
        assert 1.5 < took < 5, took
