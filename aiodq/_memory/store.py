"""The three faces of a store, over a shard in memory.

No reply can be lost here, so nothing is ever repeated, and nothing is ever unavailable. Every call lets the
event loop run once *before* it acts: a cancelled call has done nothing, and loops over a store stay fair.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence

from aiodq._core.due import Due
from aiodq._core.lease import CLAIM_ID_LENGTH
from aiodq._core.lifecycle import Place
from aiodq._core.limit import Granted, Permit
from aiodq._core.rate import Booked, Booking
from aiodq._core.settlement import Acked, Buried, Deferred, Released, Settlement
from aiodq._core.store import (
    UNBOUNDED,
    Bounds,
    ClaimRequest,
    Entry,
    Found,
    Notice,
    Page,
    Placed,
    Revival,
    ShardStats,
    SweepAnswer,
    TurnAnswer,
    Was,
)
from aiodq._memory.inspector import MemoryInspector
from aiodq._memory.shard import Shard


class MemoryStore:
    """Producers' and operators' face of one shard. Usable from any event loop and thread of the process."""

    def __init__(self, shard: Shard, bounds: Bounds = UNBOUNDED) -> None:
        self.shard = shard
        self._bounds = bounds

    async def enqueue(self, entries: Sequence[Entry], /) -> list[Placed]:
        await asyncio.sleep(0)
        return self.shard.enqueue(entries, self._bounds)

    async def replace(self, entries: Sequence[Entry], /) -> list[Placed]:
        await asyncio.sleep(0)
        return self.shard.replace(entries, self._bounds)

    async def unite(self, entries: Sequence[Entry], /) -> list[Placed]:
        await asyncio.sleep(0)
        return self.shard.unite(entries, self._bounds)

    async def cancel(self, job_ids: Sequence[str], /) -> list[Was]:
        await asyncio.sleep(0)
        return self.shard.cancel(job_ids)

    async def reschedule(self, moves: Sequence[tuple[str, Due]], /) -> list[Was]:
        await asyncio.sleep(0)
        return self.shard.reschedule(moves)

    async def replay(self, revivals: Sequence[Revival], /) -> list[bool]:
        await asyncio.sleep(0)
        return self.shard.replay(revivals)

    async def purge(self, job_ids: Sequence[str], /) -> list[bool]:
        await asyncio.sleep(0)
        return self.shard.purge(job_ids)

    async def trim(self, *, age_ms: int, count: int) -> int:
        await asyncio.sleep(0)
        return self.shard.trim(age_ms=age_ms, count=count)

    async def find(self, job_ids: Sequence[str], /) -> list[Found]:
        await asyncio.sleep(0)
        return self.shard.find(job_ids)

    async def peek(self, place: Place, /, *, limit: int, offset: int = 0) -> Page:
        await asyncio.sleep(0)
        return self.shard.peek(place, limit=limit, offset=offset)

    async def stats(self) -> ShardStats:
        await asyncio.sleep(0)
        return self.shard.stats()

    async def pause(self, reason: str, /) -> None:
        await asyncio.sleep(0)
        self.shard.pause(reason)

    async def resume(self) -> None:
        await asyncio.sleep(0)
        self.shard.resume()

    def worker(self, worker_id: str, on_notice: Callable[[Notice], None], /) -> MemoryWorkerStore:
        """Must be called in the event loop that is to hear the notices."""
        return MemoryWorkerStore(self.shard, worker_id, on_notice)

    def keeper(self, worker_id: str, /) -> MemoryKeeperStore:
        return MemoryKeeperStore(self.shard, worker_id)

    def inspector(self) -> MemoryInspector:
        return MemoryInspector(self.shard)


class LoopEar:
    """A worker's subscription: hands notices over to its event loop, from whatever thread they come."""

    def __init__(self, on_notice: Callable[[Notice], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_notice = on_notice

    def hear(self, notice: Notice, /) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._on_notice, notice)
        except RuntimeError:  # the loop was closed: as deaf as a killed process
            return False
        return True

    def is_open(self) -> bool:
        return not self._loop.is_closed()


class MemoryWorkerStore:
    """One worker's access to one shard."""

    def __init__(self, shard: Shard, worker_id: str, on_notice: Callable[[Notice], None]) -> None:
        self._shard = shard
        self._worker_id = worker_id
        self._on_notice = on_notice
        self._ear = LoopEar(on_notice)
        self._claims = itertools.count(1)

    @property
    def unbroken_since(self) -> float | None:
        """Since ever: a memory has no connection to lose, so its workers are steady from the start."""
        return 0.0

    @property
    def trouble(self) -> str:
        return ""

    async def listen(self) -> None:
        self._shard.subscribe(self._worker_id, self._ear)
        try:
            self._on_notice(Notice("connected"))
            await asyncio.get_running_loop().create_future()
        finally:
            self._shard.unsubscribe(self._worker_id, self._ear)

    async def turn(
        self, settlements: Sequence[Settlement], claim: ClaimRequest | None, /, *, last: bool = False
    ) -> TurnAnswer:
        await asyncio.sleep(0)
        settled = self._settle(settlements)
        if last:
            self._shard.no_longer_holds(self._worker_id)
        if claim is None:
            return TurnAnswer(settled, None)
        claim_id = f"{next(self._claims):0{CLAIM_ID_LENGTH}x}"
        return TurnAnswer(settled, self._shard.claim(self._worker_id, claim_id, claim))

    def _settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Kind by kind, as the scripts of a turn go out; answers in the order of the questions."""
        acked = [s for s in settlements if isinstance(s, Acked)]
        deferred = [s for s in settlements if isinstance(s, Deferred)]
        released = [s for s in settlements if isinstance(s, Released)]
        buried = [s for s in settlements if isinstance(s, Buried)]
        answers: dict[type[Settlement], list[bool]] = {
            Acked: self._shard.ack(acked),
            Deferred: self._shard.retry(deferred),
            Released: self._shard.release(released),
            Buried: self._shard.bury(buried),
        }
        return [answers[type(settlement)].pop(0) for settlement in settlements]

    async def admit(self, bookings: Sequence[Booking], /) -> Booked:
        await asyncio.sleep(0)
        return self._shard.admit(bookings)

    async def occupy(self, permits: Sequence[Permit], /) -> list[Granted]:
        await asyncio.sleep(0)
        return self._shard.occupy(permits)

    async def vacate(self, permits: Sequence[Permit], /) -> int:
        await asyncio.sleep(0)
        return self._shard.vacate(permits)

    async def leave(self, *, holds: bool) -> None:
        await asyncio.sleep(0)
        self._shard.leave(self._worker_id, holds=holds)

    async def sweep(self) -> SweepAnswer:
        await asyncio.sleep(0)
        return self._shard.sweep(self._worker_id)

    async def evicts(self) -> str | None:
        return None

    async def convict(self, worker: str, /) -> bool:
        await asyncio.sleep(0)
        return self._shard.convict(worker)

    async def aclose(self) -> None:
        self._shard.unsubscribe(self._worker_id, self._ear)


class MemoryKeeperStore:
    """Lease renewal for one worker, from any thread."""

    def __init__(self, shard: Shard, worker_id: str) -> None:
        self._shard = shard
        self._worker_id = worker_id

    async def extend(self, leases: Sequence[tuple[str, str]], /, *, lease_ms: int) -> list[bool]:
        await asyncio.sleep(0)
        return self._shard.extend(self._worker_id, leases, lease_ms)

    async def aclose(self) -> None:
        return None
