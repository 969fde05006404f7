"""Queues in memory, behind `memory://`: they live as long as this object, and only in this process."""

from __future__ import annotations

from threading import Lock

from aiodq._core.errors import WrongOrder, WrongShards
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
        self._stores: dict[tuple[str, str, int | None], MemoryStore] = {}
        self._layouts: dict[tuple[str, str], int] = {}
        self._lock = Lock()

    def store(
        self, queue: str, /, *, prefix: str = "aiodq", shard: int | None = None, fifo: bool = False
    ) -> MemoryStore:
        with self._lock:
            divided = self._layouts.get((prefix, queue))
            if divided is not None and shard is None:
                raise WrongShards(
                    f"memory queue {queue!r} has {divided} shards: pass shards={divided}", divided
                )
            key = (prefix, queue, shard)
            if key not in self._stores:
                self._stores[key] = MemoryStore(Shard(self._clock, fifo=fifo))
            store = self._stores[key]
        if store.shard.fifo != fifo:
            raise WrongOrder(
                f"memory queue {queue!r} was opened with fifo={not fifo}: pass the same everywhere"
            )
        return store

    async def layout(self, queue: str, /, *, prefix: str = "aiodq", shards: int) -> int:
        with self._lock:
            whole = self._stores.get((prefix, queue, None))
            if whole is not None and whole.shard.payload:
                return 0
            return self._layouts.setdefault((prefix, queue), shards)

    async def aclose(self) -> None:
        """Nothing to close; the queues stay, for the other event loops and for a later opening."""
