"""Rates: how often jobs of one task may start, over all workers of its queue.

A rate is a token bucket, kept as one number: the moment up to which its time is given away. A start takes
`per / count` of that time, and may lie `burst - 1` such lengths before its own; so no stretch of time has
more starts than `burst` and its part of `count`. Who comes while the time is given away gets a later moment,
and keeps it: it is booked once and not asked for again and again.

The server keeps the number and books (`admit`); what a booking means for each job is worked out here.

Source: the generic cell rate algorithm, ITU-T Recommendation I.371, Annex A (virtual scheduling); as a rate
limiter with one stored number: "Rate Limiting, Cells, and GCRA", B. Leach, 2015.
"""

from __future__ import annotations

import hashlib
import math
from typing import Final

import msgspec
from msgspec import Struct

from aiodq._core.durations import Duration, length_ms
from aiodq._core.errors import ConfigError
from aiodq._core.tally import Reservation

FARTHEST_US: Final = 9_000_000_000_000_000
"""No bucket is booked beyond this moment (in 2255): up to it a double is exact to the microsecond."""

PER_MS_MAX: Final = 31 * 86_400_000
KEY_LENGTH: Final = 100
"""Longer keys stand in a bucket's name as their hash."""

LATE_MS: Final = 1000
"""So late a job may come for its moment, and for the length of one start if that is more. Those that come
later ask again: after an outage, all moments that have passed would otherwise be used at once."""


class Rate(Struct, frozen=True):
    """How often jobs of a task may start, over all workers: `count` in each `per` (1 s), evenly spaced.

    Jobs that come too early wait, which counts as nothing: no failure, no snooze, no slot.

    Args:
        count: starts per `per`, at least 1.
        per: seconds or timedelta, at most 31 days.
        burst: how many may start at once after a quiet time; 1 by default.
        key: name of a parameter of the handler: each of its values has a rate of its own.

    Raises:
        ConfigError: a value outside these ranges.
    """

    count: int
    per: Duration = 1
    burst: int | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        _check_count("Rate.count", self.count)
        if self.burst is not None:
            _check_count("Rate.burst", self.burst)
        if self.key is not None and (type(self.key) is not str or not self.key):
            raise ConfigError(f"Rate.key={self.key!r}: expected the name of a parameter of the handler")
        try:
            per_ms = length_ms(self.per, "Rate.per")
        except (TypeError, ValueError) as error:
            raise ConfigError(str(error)) from error
        if per_ms > PER_MS_MAX:
            raise ConfigError(f"Rate.per={self.per!r}: expected at most 31 days")

    @property
    def per_us(self) -> int:
        return length_ms(self.per, "per") * 1000

    def width_us(self, starts: int) -> int:
        """How much of a bucket's time that many starts take, µs."""
        return -(-starts * self.per_us // self.count)

    @property
    def late_ms(self) -> int:
        """How late a job may come for the moment that was booked for it."""
        return max(LATE_MS, self.width_us(1) // 1000)

    def starts_us(self, begins_us: int, now_us: int, starts: int) -> list[int]:
        """When each of so many jobs may start that booked from `begins_us` on at `now_us`; `now_us`: at
        once."""
        ahead_us = ((self.burst or 1) - 1) * self.per_us // self.count
        return [max(now_us, begins_us + self.width_us(n) - ahead_us) for n in range(starts)]


class Booking(Struct, frozen=True):
    """A question to the server: the bucket's time from when it is free, `width_us` of it. Buckets of one call
    differ."""

    bucket: str
    width_us: int


class Booked(Struct, frozen=True):
    """The answer: the server's time, and from when the time of each bucket is the caller's, Unix µs."""

    now_us: int
    begins_us: list[int]


def book(until_us: int, now_us: int, width_us: int) -> tuple[int, int]:
    """One booking in a bucket whose time is given away up to `until_us`: where it begins, and up to when the
    bucket's time is given away then. The same as in `lua/admit.lua`."""
    begins_us = max(until_us, now_us)
    return begins_us, min(begins_us + width_us, FARTHEST_US)


def bucket_name(task: str, key: str | None = None) -> str:
    """`key`: the value of the rate's key as text."""
    if key is None:
        return task
    if len(key) > KEY_LENGTH:
        key = hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest()
    return f"{task}:{key}"


def short_name(bucket: str) -> str:
    """Ten letters that stand for it, where it is the shard key of ids."""
    return hashlib.sha1(bucket.encode(), usedforsecurity=False).hexdigest()[:10]


def key_text(value: object) -> str:
    """A parameter's value as text: the same for equal values, in every process. Raises what encoding
    raises."""
    return msgspec.json.encode(value, enc_hook=_dump, order="deterministic").decode()


def home_of(bucket: str, shards: int) -> int:
    """The shard that keeps a bucket, of so many: the same for all workers."""
    if shards == 1:
        return 0
    digest = hashlib.sha1(bucket.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big") % shards


def applies(reservation: Reservation, due_ms: int) -> bool:
    """The job waits for its reservation still, though its due time may have been in the past when it was
    written. False: somebody gave it another due time since."""
    return reservation.at_ms <= due_ms <= reservation.at_ms + LATE_MS


def is_admitted(
    rate: Rate, reservation: Reservation | None, *, due_ms: int, now_ms: int, losses: int
) -> bool:
    """A job claimed now may start without asking: its moment has come, is not long past, and no run has used
    it."""
    return (
        reservation is not None
        and applies(reservation, due_ms)
        and reservation.losses == losses
        and now_ms <= reservation.at_ms + rate.late_ms
    )


def moment_ms(start_us: int) -> int:
    """The due time of a start, rounded up: never early."""
    return math.ceil(start_us / 1000)


def _dump(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    return repr(value) if dump is None or isinstance(value, type) else dump(by_alias=True, round_trip=True)


def _check_count(what: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000_000:
        raise ConfigError(f"{what}={value!r}: expected a whole number from 1 to 1,000,000")
