"""Queues in memory, behind `memory://`: they live as long as this object, and only in this process."""

from __future__ import annotations

from threading import Lock

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
        self._lock = Lock()

    def store(
        self, queue: str, /, *, prefix: str = "aiodq", shard: int | None = None, bounds: Bounds = UNBOUNDED
    ) -> MemoryStore:
        with self._lock:
            data = self._shards.setdefault((prefix, queue, shard), Shard(self._clock))
            if (data, bounds) not in self._stores:
                self._stores[data, bounds] = MemoryStore(data, bounds)
            return self._stores[data, bounds]

    async def aclose(self) -> None:
        """Nothing to close; the queues stay, for the other event loops and for a later opening."""
