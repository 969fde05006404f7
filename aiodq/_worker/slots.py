"""The worker's slots, shared by the shards of its queues: who may claim how many.

A slot is taken from the sending of a claim that may fill it until the handler has ended. Shards that have
nothing to claim take none; shards that want more than there are share by weight, so that a small queue beside
a flooded one gets its part of every batch of freed slots. Queues of a higher priority go first altogether.
"""

from __future__ import annotations

import math


class Limit:
    """The slots of one queue within the worker: at most `most` (None: as many as there are), over all its
    shards.
    """

    __slots__ = ("most", "taken")

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self.taken = 0

    def room(self, free: int) -> int:
        return free if self.most is None else min(free, self.most - self.taken)


class Portion:
    """One shard's part. `waits`: it would claim now if it had slots; `flooded`: its last claim gave all that
    it wanted, so that it will wait again as soon as the next one is answered."""

    __slots__ = ("_slots", "flooded", "limit", "priority", "taken", "waits", "weight")

    def __init__(self, slots: Slots, weight: float, priority: int, limit: Limit) -> None:
        self._slots = slots
        self.weight = weight
        self.priority = priority
        self.limit = limit
        self.taken = 0
        self.waits = False
        self.flooded = False

    def grant(self, most: int) -> int:
        """How many slots this shard may take now, at most `most`. Takes none."""
        slots = self._slots
        free = self.limit.room(slots.free)
        if free <= 0 or slots.closed:
            return 0
        if slots.narrow:
            return min(most, 1) if slots.taken == 0 else 0
        if len(slots.portions) == 1:
            return min(free, most)
        rivals = [p for p in slots.portions if p.is_rival and p is not self]
        if any(p.priority > self.priority for p in rivals):
            return 0
        return min(most, self._part_of(free, [p for p in rivals if p.priority == self.priority]))

    @property
    def is_rival(self) -> bool:
        """It can use slots: now, or as soon as its claim that is on its way is answered."""
        return (self.waits or self.flooded) and self.limit.room(1) > 0

    def take(self, count: int) -> None:
        self.taken += count
        self.limit.taken += count
        self._slots.free -= count

    def give_back(self, count: int) -> None:
        self.taken -= count
        self.limit.taken -= count
        self._slots.free += count

    def _part_of(self, free: int, rivals: list[Portion]) -> int:
        if not rivals:
            return free
        weights = self.weight + sum(p.weight for p in rivals)
        share = self._slots.count / weights
        # What waiting rivals are still short of their share stays theirs.
        kept = sum(max(0, math.ceil(p.weight * share) - p.taken) for p in rivals)
        part = max(free - kept, int(free * self.weight / weights))
        if part <= 0 and all(self.taken / self.weight <= p.taken / p.weight for p in rivals):
            return 1  # whoever has least for its weight always gets on
        return max(0, part)


class Slots:
    """All slots of one worker. `closed`: none is given out for now; `narrow`: only one at a time."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.free = count
        self.closed = False
        self.narrow = False
        self.portions: list[Portion] = []

    @property
    def taken(self) -> int:
        return self.count - self.free

    def portion(self, *, weight: float = 1.0, priority: int = 0, limit: Limit | None = None) -> Portion:
        """A further shard's part."""
        portion = Portion(self, weight, priority, limit or Limit())
        self.portions.append(portion)
        return portion
