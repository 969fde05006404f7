"""Every key name of a shard, in one place.

All names of a shard carry its hash tag, so that one script may touch them in a cluster. `{orders}` is the
only shard of a plain queue, `{orders/3}` the fourth of a sharded one.
"""

from __future__ import annotations

from typing import Final

KINDS: Final[dict[str, str]] = {
    "schedule": "ZSET: job id -> due time, ms",
    "processing": "ZSET: job id -> lease deadline, ms",
    "dead": "ZSET: job id -> when it was buried, ms",
    "payload": "HASH: job id -> encoded envelope",
    "lease": "HASH: job id -> token",
    "fence": "STRING, one day: last fence of this shard",
    "tally": "HASH: t:<id> history, c:<id> crashes, i:<id> interruptions; only for jobs that have any",
    "rate": "HASH, lifetime: a rate's bucket -> up to when its time is given away, us",
    "unique": "HASH, lifetime: name of a unique job -> end of its window, ms (15 digits), and its id",
    "idle": "ZSET, one day: waiting worker -> when it plans to look, ms",
    "workers": "ZSET, one day: lease holder -> last sign of life, ms; negative: silent since",
    "permits": "ZSET, lifetime: name of a limit, zero byte, job id -> 0: jobs that may run under it",
    "waiting": "ZSET, lifetime: name, due time, time to ask again, job id, between zero bytes -> 0",
    "order": "HASH: job id -> its number and a colon, as in the schedule; only in first-in-first-out queues",
    "seq": "STRING, one day: last number",
    "meta": "HASH: exceptions only: v (layout version), paused (reason), fifo, shards",
    "done0": "HASH, lifetime: done marks, one of a ring of three: job id -> its due time, ms",
    "done1": "HASH, lifetime: the same",
    "done2": "HASH, lifetime: the same",
    "past0": "HASH, lifetime: job id -> when it ended, us; a ring of three, only where a failover can happen",
    "past1": "HASH, lifetime: the same",
    "past2": "HASH, lifetime: the same",
}
"""Key names by what they hold. Two more are made of parts: see `ShardKeys.turn` and `ShardKeys.wake`."""


_RINGS: Final = ("done0", "done1", "done2", "past0", "past1", "past2")

SPARE: Final = frozenset({"fence", "rate", "unique", "permits", "waiting", "idle", "workers", "seq", *_RINGS})
"""Keys that nothing is lost with: workers write them anew."""


NUMBER_WIDTH: Final = 17
"""What goes before an id in the schedule of a first-in-first-out queue: a number of 16 digits and a colon."""


class ShardKeys:
    """The names of one shard, encoded once. `fifo`: its jobs have an order."""

    def __init__(
        self, queue: str, *, prefix: str = "aiodq", shard: int | None = None, fifo: bool = False
    ) -> None:
        tag = queue if shard is None else f"{queue}/{shard}"
        self.queue: Final = queue
        self.fifo: Final = fifo
        self.base: Final = f"{prefix}:{{{tag}}}:"
        self._named: Final = {name: self._encoded(name) for name in KINDS}
        self.wake: Final = self.base + "wake:"
        """Prefix of the wake channels; a worker's own is this and its id."""
        self.wake_all: Final = self.wake + "*"
        """The channel that every worker of the queue hears."""

    def _encoded(self, name: str) -> bytes:
        suffix = f"{name[:4]}:{name[4:]}" if name.startswith(("done", "past")) else name
        return f"{self.base}{suffix}".encode()

    def named(self, name: str) -> bytes:
        return self._named[name]

    def turn(self, sender: str, transition: str, lane: int = 0) -> bytes:
        """STRING, 120 s: the sender's last call id for this transition, and its answer; one for each lane in
        which calls are on their way side by side."""
        return f"{self.base}turn:{sender}:{transition}{f':{lane}' if lane else ''}".encode()
