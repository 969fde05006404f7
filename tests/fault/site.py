"""A queue served by real worker processes, in the event loop of the test that watches it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import redis.asyncio
from msgspec import Struct

from aiodq import Queue
from tests.fault.events import Event
from tests.fault.history import Verdict, check
from tests.fault.processes import Fleet, WorkerProcess, held_by, restarts_ms
from tests.fault.programs.settings import WorkerSettings
from tests.fault.recording import recording_producer
from tests.servers import ServerProcess
from tests.shards import RedisShard, State

SLOW_MACHINE_MS: Final = 400
"""Added to what is promised: on a busy machine a process may wait that long for the processor."""


class Aftermath(Struct, frozen=True):
    """What became of a killed worker's jobs: `held`: their ids; `again_ms`: how long after the kill each of
    those that had not ended was claimed again, sorted."""

    verdict: Verdict
    held: set[str]
    again_ms: list[float]


class Site:
    """A queue with its fleet; `open_site` makes one."""

    def __init__(self, server: ServerProcess, fleet: Fleet, queue: Queue) -> None:
        self.fleet = fleet
        self.queue = queue
        self.kind = server.kind
        self.client = redis.asyncio.Redis(host="127.0.0.1", port=server.port)
        self._shard = RedisShard(cast("Any", None), self.client, queue.name, server.kind)

    async def state(self) -> State:
        return await self._shard.state()

    async def start(self, count: int) -> list[WorkerProcess]:
        return await asyncio.to_thread(self.fleet.start, count)

    async def write(self, count: int, run_s: float, *, over_s: float = 0.0) -> None:
        """Writes jobs due evenly over that time."""
        task = self.queue.stub("work")
        await self.queue.enqueue_many([task.after(over_s * n / count).job(run_s) for n in range(count)])

    async def after_kill(self, victim: WorkerProcess) -> Aftermath:
        """Kills a worker, and waits until all is done."""
        killed_ms = await asyncio.to_thread(self.fleet.kill, victim)
        events, verdict = await self.come_to_rest()
        held = held_by(events, victim.name, killed_ms)
        again_ms = restarts_ms(events, held, killed_ms)
        print(f"{self.kind}: held {len(held)}, restarted after {again_ms[:1]}..{again_ms[-1:]} ms")
        return Aftermath(verdict, set(held), again_ms)

    async def until(self, condition: Callable[[State], bool], timeout_s: float = 60.0) -> State:
        async with asyncio.timeout(timeout_s):
            while not condition(state := await self.state()):  # noqa: ASYNC110 - the server tells no event
                await asyncio.sleep(0.02)
        return state

    async def come_to_rest(self) -> tuple[list[Event], Verdict]:
        """Waits until nothing waits or is held, and judges."""
        await self.until(lambda state: not state.schedule and not state.processing)
        await asyncio.to_thread(self.fleet.stop_all)
        events = self.fleet.history()
        return events, check(events, await self.state(), late_ms=60_000)


@asynccontextmanager
async def open_site(server: ServerProcess, queue: str, folder: Path, **settings: Any) -> AsyncGenerator[Site]:
    told = WorkerSettings(url=server.url, queue=queue, folder=str(folder), **settings)
    with Fleet(told) as fleet, recording_producer(fleet.recorder):
        site = Site(server, fleet, Queue(queue, url=server.url))
        try:
            yield site
        finally:
            await site.queue.aclose()
            await site.client.aclose()
