"""Limits: how many jobs of one task, or of one value of a parameter, run at a time over all workers."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from aiodq._core.errors import ConfigError

MOST: Final = 10_000

AGAIN_MS: Final = 15_000
"""A job that waits for a permit is let go on when one is free. This long after, at the earliest, it asks by
itself, so that nothing waits for ever for a worker that died before it could say that a permit is free."""

AGAIN_EACH_MS: Final = 50
"""With many that wait for one name, each asks the seldomer: all together twenty times a second at most."""


class MaxRunning(Struct, frozen=True):
    """How many jobs of a task may run at a time, over all workers.

    Args:
        count: so many; 1: one after the other.
        key: name of a parameter of the handler: so many of each of its values.

    Raises:
        ConfigError: a value outside 1 to 10,000, or no name.
    """

    count: int
    key: str | None = None

    def __post_init__(self) -> None:
        if not _is_count(self.count):
            raise ConfigError(f"MaxRunning.count={self.count!r}: expected a whole number from 1 to {MOST:,}")
        if self.key is not None and (type(self.key) is not str or not self.key):
            raise ConfigError(f"MaxRunning.key={self.key!r}: expected the name of a parameter of the handler")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST


class Permit(Struct, frozen=True):
    """A question for one job: may it run? Or, when it has left processing: its place is free.

    Attributes:
        name: what the limit is on.  limit: how many of that name.
        due_ms: the job's own due time.  since_ms: the one that it was claimed at.
        again_ms: when it asks again, if it may not.
    """

    job_id: str
    name: str
    limit: int
    due_ms: int = 0
    since_ms: int = 0
    again_ms: int = 0


class Granted(Struct, frozen=True):
    """The answer: whether it may run; and how many wait for that name."""

    may_run: bool
    crowd: int


def again_in_ms(crowd: int, random: float) -> int:
    """How long a job waits until it asks by itself, with so many others; `random` from [0, 1)."""
    return int(max(AGAIN_MS, crowd * AGAIN_EACH_MS) * (1 + random))
