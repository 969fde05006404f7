"""A server that goes away costs time and nothing else: said once, tried for ever, jobs settled when it is
back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from aiodq import Queue, Worker
from aiodq.events import Event, JobSettled, StoreBack, StoreLost
from tests.conftest import MakeServer
from tests.workers import PATIENCE_S


@pytest.mark.slow
async def test_a_job_that_ends_during_an_outage_is_settled_after_it(
    make_server: MakeServer, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server("--appendonly", "yes", "--appendfsync", "always")
    events: list[Event] = []
    runs = 0
    proceed = asyncio.Event()

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():  # noqa: ASYNC110  # what is waited for tells nobody
                await asyncio.sleep(0.01)

    async def told(kind: type[Event]) -> None:
        await until(lambda: any(isinstance(event, kind) for event in events))

    async with Queue(queue_name, url=server.url) as queue:

        @queue.task
        async def work() -> None:
            nonlocal runs
            runs += 1
            await proceed.wait()

        async with Worker(queue, lease=30, grace=5, listeners=[events.append]) as worker:
            await work.enqueue()
            await until(lambda: runs == 1)
            server.stop()
            proceed.set()
            await told(StoreLost)
            assert not worker.health().consuming
            server.start()
            await told(StoreBack)
            await told(JobSettled)
            assert worker.health().consuming
            await work.enqueue()
            await until(lambda: runs == 2)
    assert runs == 2
    assert [event.outcome for event in events if isinstance(event, JobSettled)] == ["ack", "ack"]
    assert caplog.text.count("no turn succeeds") == 1
