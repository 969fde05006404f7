"""Back-pressure on producers: how far a queue may fill up until it refuses more."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from aiodq._core.due import Due
from aiodq._core.durations import Duration, length_ms, to_instant, to_length
from aiodq._core.errors import ConfigError, QueueFull
from aiodq._core.store import Bounds

WHAT: Final = {
    "jobs": ("jobs that wait or run", "max_jobs"),
    "bytes": ("bytes of payloads (an estimate)", "max_bytes"),
}


class Backlog(Struct, frozen=True, kw_only=True):
    """How far a queue may fill up; what goes beyond is refused where it is enqueued.

    Args:
        max_jobs: how many jobs may wait or run; dead letters do not count.
        max_bytes: how much of the server's memory payloads may take, as the server estimates it; those of
            dead letters count.
        horizon: how far ahead a job may be due; seconds or timedelta.

    Raises:
        ConfigError: a value that is not above zero.
    """

    max_jobs: int | None = None
    max_bytes: int | None = None
    horizon: Duration | None = None

    def __post_init__(self) -> None:
        _check_bound("Backlog.max_jobs", self.max_jobs)
        _check_bound("Backlog.max_bytes", self.max_bytes)
        if self.horizon is not None:
            try:
                length_ms(self.horizon, "Backlog.horizon")
            except (TypeError, ValueError) as error:
                raise ConfigError(str(error)) from error

    def bounds(self, shards: int = 1) -> Bounds:
        """The part of one shard of so many, rounded up."""
        return Bounds(-(-(self.max_jobs or 0) // shards), -(-(self.max_bytes or 0) // shards))

    def check_due(self, due: Due, now_ms: int, what: str) -> None:
        """`now_ms`: the present by the caller's clock, which only instants need. Raises ValueError for a due
        time beyond the horizon; `what` names whose it is."""
        if self.horizon is None:
            return
        ahead_ms = due.ms if due.relative else due.ms - now_ms
        most_ms = length_ms(self.horizon, "horizon")
        if ahead_ms > most_ms:
            when = f"in {to_length(ahead_ms)}" if due.relative else f"at {to_instant(due.ms)}"
            raise ValueError(
                f"{what} would be due {when}, which is beyond the queue's Backlog(horizon={self.horizon!r}), "
                f"{to_length(most_ms)} ahead; nothing was sent"
            )


class BacklogFull(QueueFull):
    """A batch was refused because of the queue's bounds. `room`: how much more of the bound there was."""

    def __init__(self, bound: Literal["jobs", "bytes"], most: int, have: int) -> None:
        super().__init__(bound, most, have)
        self.bound = bound
        self.room = max(0, most - have)
        self._most = most
        self._have = have

    def __str__(self) -> str:
        what, name = WHAT[self.bound]
        return (
            f"the queue has {self._have:,} {what}, and with these it would have more than its "
            f"Backlog({name}={self._most:,}) allows; nothing of this batch was written: send it again later"
        )


def _check_bound(what: str, value: object) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ConfigError(f"{what}={value!r}: expected a whole number of at least 1, or None")
