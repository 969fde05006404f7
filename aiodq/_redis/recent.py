"""What one process wrote in the last seconds, to be sent again if the server turns out to have lost it."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

T = TypeVar("T")

KEPT_S: Final = 30.0
"""How far back writes are kept. Replicas lag by milliseconds to seconds; half of `REPLAY_MS`, so that it is
still noted what has ended of them after an outage of half a minute."""

KEPT_COUNT: Final = 20_000
KEPT_BYTES: Final = 16 * 1024 * 1024
"""Of one shard. What is beyond, the oldest, is not sent again."""


class Recent(Generic[T]):
    """Items by key, in the order of their writing; the newest of a key counts. Bounded by time, count, bytes.

    Time only runs out while the server is heard (`prune`): an outage does not make anything too old.
    """

    def __init__(self) -> None:
        self._items: dict[str, tuple[float, T, int]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def put(self, key: str, item: T, size: int, now: float) -> None:
        self.drop(key)
        self._items[key] = now, item, size
        self._bytes += size
        while len(self._items) > KEPT_COUNT or self._bytes > KEPT_BYTES:
            self.drop(next(iter(self._items)))

    def drop(self, key: str) -> None:
        old = self._items.pop(key, None)
        if old is not None:
            self._bytes -= old[2]

    def prune(self, now: float) -> None:
        """The server has just been heard: what was written too long ago is safe by now."""
        while self._items:
            key = next(iter(self._items))
            if now - self._items[key][0] <= KEPT_S:
                return
            self.drop(key)

    def items(self) -> list[tuple[float, str, T]]:
        """(when written, key, item), oldest first."""
        return [(at, key, item) for key, (at, item, _) in self._items.items()]
