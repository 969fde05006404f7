"""The store as a consistency check sees it: what is there, what contradicts itself, and repairs one by one.

Nothing here is trusted from an earlier call: each repair looks again, in the same atomic step, and does
nothing to a job that is sound by then. Workers may run meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol, TypeAlias

from msgspec import Struct

SCHEDULE: Final = 1
PROCESSING: Final = 2
DEAD: Final = 4

GONE_WAITER_MS: Final = 10_000
"""A waiting worker is gone when its look is this long overdue and its channel is silent."""

GONE_HOLDER_MS: Final = 60_000
"""A lease holder is gone when its last sign of life is this old and its channel is silent. Much longer than
presence needs, which looks after those that do hold leases."""

SOUND: Final = "-"

Kept: TypeAlias = Literal[
    "schedule", "processing", "dead", "payload", "lease", "tally", "order", "idle", "workers"
]
"""The keys that are gone through, by name."""

JOB_KEYS: Final[tuple[Kept, ...]] = ("schedule", "processing", "dead", "payload", "lease", "tally", "order")


class Diagnosis(Struct, frozen=True):
    """One job.

    Attributes:
        fault: `-` none; `p` `s` in two places, of which its run or the schedule counts; `m` a place but no
            payload; `h` the same, but a worker runs it; `o` a payload but no place; `l` a lease and a payload
            but no place; `u` in processing without a readable lease; `x` a lease that belongs to nothing;
            `t` counters, or a number in order, that belong to nothing. Of several, the first in this order.
        places: `SCHEDULE` + `PROCESSING` + `DEAD`, where it is.
    """

    fault: str
    places: int


class Scanned(Struct, frozen=True):
    """A page of a key.

    Attributes:
        members: job ids or workers; some may come twice.
        cursor: where to go on; 0: that was all.
        holders: of the key `lease`: the workers that the tokens name.
    """

    members: list[str]
    cursor: int
    holders: list[str] = []


class KeyState(Struct, frozen=True):
    """A key's type (`none`: no such key) and the one it must have. `spare`: workers write it anew."""

    name: str
    type: str
    must_be: str
    spare: bool

    @property
    def is_wrong(self) -> bool:
        return self.type not in ("none", self.must_be)


class Orphan(Struct, frozen=True):
    """A payload without a place, as it was read; `tally`: what to keep with it in the dead letters."""

    job_id: str
    payload: bytes
    tally: bytes = b""


class Inspector(Protocol):
    """One shard of one queue, for the consistency check. Calls of at most `BATCH` ids; raises as `Store`."""

    async def key_states(self) -> list[KeyState]: ...

    async def discard(self, key: str, /) -> bool:
        """Removes a spare key that has the wrong type."""
        ...

    async def scan(self, kept: Kept, cursor: int, /) -> Scanned:
        """A page of about a hundred. What is there from the first page to the last is seen."""
        ...

    async def diagnose(self, job_ids: Sequence[str], /) -> list[Diagnosis]: ...

    async def read(self, job_ids: Sequence[str], /) -> list[tuple[bytes | None, bytes | None]]:
        """Payload and tally of each."""
        ...

    async def repair(self, job_ids: Sequence[str], /) -> list[str]:
        """The fault that was found and repaired in each job now; `-` where there was none, or none that is
        repaired here (`h`, `o`)."""
        ...

    async def restore(self, orphans: Sequence[Orphan], /) -> list[bool]:
        """Schedules jobs that have a payload but no place, due now, if the payload is still that one."""
        ...

    async def condemn(self, orphans: Sequence[Orphan], /) -> list[bool]:
        """Puts them to the dead letters instead."""
        ...

    async def absent(self, listed: Literal["idle", "workers"], names: Sequence[str], /) -> list[bool]:
        """Which of the listed workers are gone: see `GONE_WAITER_MS` and `GONE_HOLDER_MS`."""
        ...

    async def dismiss(self, listed: Literal["idle", "workers"], names: Sequence[str], /) -> list[bool]:
        """Takes those off the list that are gone."""
        ...
