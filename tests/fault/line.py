"""One worker behind a proxy, and its queue from beside: what whole workers do when their link is hurt."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from typing import Final

from aiodq import Queue, Worker, current_job
from aiodq.events import Event
from tests.fault.proxy import Proxy
from tests.servers import ServerProcess
from tests.shards import until

PATIENCE_S: Final = 10.0


class Line:
    """A worker behind a proxy, its queue from beside, and what ran. `work(seconds)` is its only task."""

    def __init__(self, proxy: Proxy, served: Queue, beside: Queue) -> None:
        self.proxy = proxy
        self.served = served
        self.beside = beside
        self.starts: list[tuple[str, float]] = []
        self.events: list[Event] = []
        self._task = beside.stub("work")

        @served.task
        async def work(seconds: float) -> None:
            self.starts.append((current_job().id, time.monotonic()))
            await asyncio.sleep(seconds)

    async def put(self, job_id: str, seconds: float = 0.0, *, after_s: float = 0.0) -> None:
        await self._task.options(job_id=job_id).after(after_s).enqueue(seconds)

    async def started(self, *job_ids: str, within_s: float = PATIENCE_S) -> None:
        await until(lambda: set(job_ids) <= {job_id for job_id, _ in self.starts}, within_s)

    def runs(self, job_id: str) -> int:
        return [started for started, _ in self.starts].count(job_id)

    async def ended(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while (stats := await self.beside.stats()).scheduled or stats.processing:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def open_line(
    server: ServerProcess, queue_name: str, *, options: str = "", lease: float = 1.0
) -> AsyncGenerator[Line]:
    async with (
        Proxy(server.port) as proxy,
        Queue(queue_name, url=proxy.url + options) as served,
        Queue(queue_name, url=server.url) as beside,
    ):
        line = Line(proxy, served, beside)
        async with Worker(served, lease=lease, grace=3, listeners=[line.events.append]):
            yield line
            await line.ended()
