"""A worker under uvloop and under the standard loop: the same behaviour."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest
import uvloop

from aiodq import Bury, Queue, Worker
from aiodq.events import Event, JobSettled
from tests.servers import ServerProcess

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "standard": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.mark.parametrize("loop", LOOPS)
def test_all_kinds_of_ends(valkey: ServerProcess, queue_name: str, loop: str) -> None:
    queue = Queue(queue_name, url=valkey.url)
    events: list[Event] = []

    @queue.task
    async def ends() -> None:
        await asyncio.sleep(0.01)

    @queue.task
    def thread() -> None:
        time.sleep(0.01)
        assert threading.current_thread() is not threading.main_thread()

    @queue.task(timeout=0.05, max_attempts=1)
    async def slow() -> None:
        await asyncio.sleep(60)

    @queue.task
    async def bury() -> None:
        raise Bury

    @queue.task(max_attempts=1)
    async def leaves() -> None:
        raise SystemExit(3)

    async def main() -> None:
        async with queue:
            jobs = [task.job() for task in (ends, thread, slow, bury, leaves) for _ in range(5)]
            await queue.enqueue_many(jobs)
            await Worker(queue, lease=1, grace=2, listeners=[events.append]).run(burst=True)
            stats = await queue.stats()
            assert (stats.scheduled, stats.processing, stats.dead) == (0, 0, 15)
            await queue.dead.purge(older_than=0)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(main())
    outcomes = sorted((e.task, e.outcome) for e in events if isinstance(e, JobSettled))
    assert outcomes == sorted(
        [("ends", "ack"), ("thread", "ack"), ("slow", "bury"), ("bury", "bury"), ("leaves", "bury")] * 5
    )


@pytest.mark.parametrize("loop", LOOPS)
def test_b05_a_job_due_in_300_years_lets_it_sleep_and_an_earlier_one_wakes_it(
    valkey: ServerProcess, queue_name: str, loop: str
) -> None:
    queue = Queue(queue_name, url=valkey.url)
    started = asyncio.Event()

    @queue.task
    async def work() -> None:
        started.set()

    async def main() -> None:
        async with queue:
            await work.options(job_id="far").after(days=300 * 365).enqueue()
            async with Worker(queue, lease=1, grace=1):
                used = time.process_time()
                await asyncio.sleep(0.5)
                assert time.process_time() - used < 0.2, "it spins"
                assert not started.is_set()
                await work.after(0.1).enqueue()
                async with asyncio.timeout(2):
                    await started.wait()
            await queue.cancel("far")

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(main())
