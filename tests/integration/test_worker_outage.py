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
    assert caplog.text.count("nothing can be claimed or settled, trying on: ") == 1


async def test_a_worker_says_why_it_reaches_no_server(
    queue_name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiodq._worker.turns.OVERDUE_S", 0.2)
    queue = Queue(queue_name, url="redis://127.0.0.1:1/0")

    @queue.task
    async def work() -> None: ...

    worker = Worker(queue, grace=0.2)
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(PATIENCE_S):
        while "trying on" not in caplog.text:  # noqa: ASYNC110  # a log tells nobody
            await asyncio.sleep(0.01)
        worker.stop()
        await running
    assert "no answer for 0.2 s (" in caplog.text
    assert "connecting to 127.0.0.1:1" in caplog.text
