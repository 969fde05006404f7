"""Queues in memory, behind `memory://`: they live as long as this object, and only in this process."""

from __future__ import annotations

from threading import Lock

from aiodq._core.errors import WrongOrder, WrongShards
from aiodq._core.store import UNBOUNDED, Bounds
from aiodq._memory.clock import Clock, anchored_clock
from aiodq._memory.shard import Shard
from aiodq._memory.store import MemoryStore


class MemoryBackend:
    """Makes the stores of its queues. One object may be used from several event loops and threads at once.

    Args:
        clock: the store's time in Unix microseconds; by default that of the machine, without its steps.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or anchored_clock()
        self._shards: dict[tuple[str, str, int | None], Shard] = {}
        self._stores: dict[tuple[Shard, Bounds], MemoryStore] = {}
        self._layouts: dict[tuple[str, str], int] = {}
        self._lock = Lock()

    def store(
        self,
        queue: str,
        /,
        *,
        prefix: str = "aiodq",
        shard: int | None = None,
        fifo: bool = False,
        bounds: Bounds = UNBOUNDED,
    ) -> MemoryStore:
        with self._lock:
            divided = self._layouts.get((prefix, queue))
            if divided is not None and shard is None:
                raise WrongShards(
                    f"memory queue {queue!r} has {divided} shards: pass shards={divided}", divided
                )
            key = (prefix, queue, shard)
            if key not in self._shards:
                self._shards[key] = Shard(self._clock, fifo=fifo)
            data = self._shards[key]
            if data.fifo != fifo:
                raise WrongOrder(
                    f"memory queue {queue!r} was opened with fifo={not fifo}: pass the same everywhere"
                )
            if (data, bounds) not in self._stores:
                self._stores[data, bounds] = MemoryStore(data, bounds)
            return self._stores[data, bounds]

    async def layout(self, queue: str, /, *, prefix: str = "aiodq", shards: int) -> int:
        with self._lock:
            whole = self._shards.get((prefix, queue, None))
            if whole is not None and whole.payload:
                return 0
            return self._layouts.setdefault((prefix, queue), shards)

    async def aclose(self) -> None:
        """Nothing to close; the queues stay, for the other event loops and for a later opening."""
