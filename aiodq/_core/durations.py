"""The border between what users write for times (seconds, `timedelta`, aware `datetime`) and milliseconds.

Everything behind this border is an integer in milliseconds. Rounding is always up, so that nothing is
early.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from aiodq._core.due import MAX_DELAY_MS, MAX_DUE_MS

Duration: TypeAlias = float | timedelta
"""Seconds, or a `timedelta`."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_MAX_S: Final = MAX_DELAY_MS // 1000
_SECONDS: Final = {"days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}


def delay_ms(value: Duration, what: str = "after") -> int:
    """A delay in whole ms, for `Due`. A negative delay means now.

    Raises:
        TypeError: not a number of seconds and not a timedelta (booleans and strings are neither).
        ValueError: NaN, infinite, or longer than a thousand years. The message names `what` and the value.
    """
    if type(value) is int:  # the usual case, without a further call
        if value <= 0:
            return 0
        if value <= _MAX_S:
            return value * 1000
    return max(0, _whole_ms(value, what))


def summed_delay_ms(delay: Duration, *, days: float, hours: float, minutes: float, seconds: float) -> int:
    """A delay in whole ms that is given in parts, as `after(hours=1, minutes=30)` has them.

    Raises:
        TypeError, ValueError: as `delay_ms`; the message names the part.
    """
    # The usual case, `after(1800)`: no part is anything but its default.
    if type(days) is type(hours) is type(minutes) is type(seconds) is int and not (
        days or hours or minutes or seconds
    ):
        return delay_ms(delay)
    parts = {"days": days, "hours": hours, "minutes": minutes, "seconds": seconds}
    total = _whole_ms(delay, "after")
    for name, value in parts.items():
        total += _whole_ms(value, name, _SECONDS[name])
    if total > MAX_DELAY_MS:
        raise ValueError(f"after: {parts} and {delay!r} are above a thousand years")
    return max(0, total)


def length_ms(value: Duration, what: str, *, zero: bool = False) -> int:
    """A length of time in whole ms: above zero, or with `zero` not below it.

    Raises:
        TypeError: not a number of seconds and not a timedelta.
        ValueError: NaN, infinite, negative, longer than a thousand years, or zero where `zero` is not set.
    """
    ms = _whole_ms(value, what)
    if ms < 0 or (ms == 0 and (not zero or _below_zero(value))):
        least = "zero or more" if zero else "more than zero"
        raise ValueError(f"{what}={value!r}: expected {least} seconds")
    return ms


def instant_ms(when: datetime, what: str = "at") -> int:
    """An instant in Unix ms, for `Due`; one in the past is allowed and means now.

    Raises:
        TypeError: not a datetime.
        ValueError: a naive datetime (the instant it means depends on the machine), or one after 9999 in
            UTC.
    """
    ms = -((_EPOCH - _aware(when, what)) // _MS)
    if ms <= MAX_DUE_MS:
        return max(0, ms)
    if ms == MAX_DUE_MS + 1:  # within the last millisecond there is
        return MAX_DUE_MS
    raise ValueError(f"{what}={when!r} is after 9999-12-31T23:59:59.999Z, the last instant of this library")


def to_instant(ms: int) -> datetime:
    """The aware UTC datetime of stored Unix ms, exact."""
    return _EPOCH + timedelta(milliseconds=ms)


def to_length(ms: int) -> timedelta:
    """The `timedelta` of a length in ms, exact."""
    return timedelta(milliseconds=ms)


def _aware(when: object, what: str) -> datetime:
    if not isinstance(when, datetime):
        raise TypeError(f"{what}={when!r}: expected a datetime with a time zone, got {_kind(when)}")
    if when.utcoffset() is None:
        raise ValueError(
            f"{what}={when!r} has no time zone, so it is not one instant: write datetime.now(UTC), "
            f"or give it a zone with .replace(tzinfo=…) or .astimezone()"
        )
    return when


def _whole_ms(value: object, what: str, seconds: int = 1) -> int:
    """That many `seconds`, in ms and rounded up; may be negative."""
    if isinstance(value, timedelta) and what not in _SECONDS:
        ms, rest = divmod(value, _MS)
        ms += bool(rest)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what}={value!r}: expected seconds (a number) or a timedelta, got {_kind(value)}")
    elif isinstance(value, int):
        ms = value * seconds * 1000
    elif math.isfinite(value):
        ms = _float_ms(value * seconds)
    else:
        raise ValueError(f"{what}={value!r}: expected a finite number of seconds")
    if ms > MAX_DELAY_MS:
        shown = repr(value) if ms.bit_length() < 128 else "an enormous number"
        raise ValueError(
            f"{what}={shown} is above a thousand years: expected seconds; are these milliseconds?"
        )
    return ms


def _float_ms(seconds: float) -> int:
    """Rounded up, but 0.07 s is 70 ms: what multiplying adds in the last binary places is not meant."""
    exact = seconds * 1000
    if not math.isfinite(exact):
        return MAX_DELAY_MS + 1 if exact > 0 else -1
    near = round(exact)
    return near if abs(exact - near) <= 2 * math.ulp(exact) else math.ceil(exact)


def _below_zero(value: Duration) -> bool:
    return value < timedelta() if isinstance(value, timedelta) else value < 0


def _kind(value: object) -> str:
    return type(value).__name__
