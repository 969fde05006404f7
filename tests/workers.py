"""A queue with everything a worker test wants to see: what ran, what was told, where jobs are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from aiodq import Queue, Worker
from aiodq._core.due import Due
from aiodq._core.envelope import Envelope, encode_envelope
from aiodq._core.store import Entry, Found, Store
from aiodq._core.tally import Tally, read_tally
from aiodq._worker.runtime import Runtime
from aiodq.events import Event

E = TypeVar("E", bound=Event)

PATIENCE_S = 10.0


class Bench:
    """A queue of one test, on one kind of store.

    Attributes:
        starts: (job id, `time.monotonic()`) of each start of a handler that notes itself.
        events: what all workers made here told.
        dead_workers: the test left some in the list of lease holders.
    """

    def __init__(self, queue: Queue, url: str) -> None:
        self.queue = queue
        self.url = url
        self.starts: list[tuple[str, float]] = []
        self.events: list[Event] = []
        self.dead_workers = False

    def worker(self, **settings: Any) -> Worker:
        """A worker of this queue; short lease and grace unless said otherwise."""
        settings.setdefault("lease", 1)
        settings.setdefault("grace", 2)
        settings.setdefault("listeners", [self.events.append])
        return Worker(self.queue, **settings)

    @property
    def store(self) -> Store:
        return self.queue._stores()[0]

    def note(self, job_id: str) -> None:
        self.starts.append((job_id, time.monotonic()))

    def runs(self, job_id: str) -> int:
        return [started for started, _ in self.starts].count(job_id)

    def told(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    async def put(self, job_id: str, task: str, *, payload: bytes | None = None, after_ms: int = 0) -> None:
        """A job under the producer's interface: for tasks this process does not know, and odd payloads."""
        written = encode_envelope(Envelope(1, task)) if payload is None else payload
        await self.store.enqueue([Entry(job_id, written, Due(after_ms))])

    async def find(self, job_id: str) -> Found:
        (found,) = await self.store.find([job_id])
        return found

    async def tally(self, job_id: str) -> Tally:
        return read_tally((await self.find(job_id)).tally)

    async def where(self, job_id: str) -> str:
        return (await self.find(job_id)).was

    async def until(self, holds: Callable[[], bool], what: str = "") -> None:
        """Waits until it holds; fails after `PATIENCE_S`."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"did not come true within {PATIENCE_S:g} s: {what or holds}")
            await asyncio.sleep(0.005)

    async def until_in(self, place: str, job_id: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while (was := await self.where(job_id)) != place:
            if time.monotonic() > deadline:
                raise AssertionError(f"{job_id} is {was} after {PATIENCE_S:g} s, not {place}")
            await asyncio.sleep(0.005)

    async def until_put_off(self, job_id: str) -> None:
        """Waits until its task's rate has put the job's start off."""
        deadline = time.monotonic() + PATIENCE_S
        while (await self.where(job_id), (await self.tally(job_id)).reservation is None) != (
            "scheduled",
            False,
        ):
            assert time.monotonic() < deadline, f"{job_id} has no reservation after {PATIENCE_S:g} s"
            await asyncio.sleep(0.005)

    async def until_empty(self) -> None:
        """Waits until no job is scheduled or processing."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            stats = await self.store.stats()
            if not stats.scheduled and not stats.processing:
                return
            if time.monotonic() > deadline:
                raise AssertionError(f"still there after {PATIENCE_S:g} s: {stats}")
            await asyncio.sleep(0.01)


def runtime_of(worker: Worker) -> Runtime:
    """The inside of a running worker."""
    assert worker._runtime is not None
    return worker._runtime
