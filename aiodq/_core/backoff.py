"""How long a failed job waits for its next run.

Pure: the caller passes the random number in, so the same failure and number always give the same wait.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from aiodq._core.durations import Duration, delay_ms, length_ms
from aiodq._core.errors import ConfigError


class Failure(Struct, frozen=True):
    """What rules and own back-offs are told of a failed run.

    Attributes:
        error: what the handler raised; a TimeoutError when it was stopped at its time limit; a RuntimeError
            with the cause set when it raised what is no Exception (a CancelledError of its own, SystemExit).
        failures: how often the job has failed, this time included.
        task: name of its task.
        job_id: its id.
    """

    error: Exception
    failures: int
    task: str
    job_id: str


class Exponential(Struct, frozen=True, kw_only=True):
    """Waits longer after each failure: `first`, then `factor` times as long each time, at most `cap`.

    With `jitter` (the default) the wait is drawn evenly from zero up to that length ("full jitter"), so that
    jobs that failed together do not come back together. Cannot overflow, whatever the number of failures.

    Args:
        first: the longest wait after the first failure; seconds or timedelta, above zero.
        cap: the longest wait at all; not below `first`.
        factor: growth from one failure to the next, at least 1.
        jitter: False waits exactly that long instead.

    Raises:
        ConfigError: for values outside these ranges, NaN and infinities included.

    Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """

    first: Duration = 1
    cap: Duration = 300
    factor: float = 2
    jitter: bool = True

    def __post_init__(self) -> None:
        first_ms = _checked_ms(self.first, "Exponential.first")
        cap_ms = _checked_ms(self.cap, "Exponential.cap")
        if cap_ms < first_ms:
            raise ConfigError(
                f"expected Exponential.cap to be at least first ({self.first!r}), got {self.cap!r}"
            )
        _check_growth(self.factor, self.jitter)

    def longest_ms(self, failures: int) -> int:
        """The wait after that many failures before jitter, ms."""
        first_ms, cap_ms = length_ms(self.first, "first"), length_ms(self.cap, "cap")
        steps = max(0, failures - 1)
        # Compared as logarithms: factor ** steps leaves the range of floats after some hundred failures.
        if steps and steps * math.log(self.factor) >= math.log(cap_ms / first_ms):
            return cap_ms
        return min(cap_ms, round(first_ms * self.factor**steps))

    def wait_ms(self, failures: int, random: float) -> int:
        """The wait after that many failures, ms; `random` is from [0, 1)."""
        longest = self.longest_ms(failures)
        return min(longest, int(random * (longest + 1))) if self.jitter else longest


class Fixed(Struct, frozen=True):
    """Waits equally long after every failure, without jitter; seconds or timedelta, zero or more.

    Raises:
        ConfigError: for a negative or endless delay.
    """

    delay: Duration

    def __post_init__(self) -> None:
        self.wait_ms()

    def wait_ms(self) -> int:
        """The wait after any failure, ms."""
        return _checked_ms(self.delay, "Fixed.delay", zero=True)


Backoff: TypeAlias = Exponential | Fixed | Callable[[Failure], Duration]
"""A task's back-off: one of ours, or a function that is given the failure and returns how long to wait."""


def backoff_ms(backoff: Backoff, failure: Failure, random: float) -> int:
    """How long the job waits, ms; zero or more.

    Raises whatever a function of the user's raises, and TypeError or ValueError for what is no duration.
    """
    if isinstance(backoff, Exponential):
        return backoff.wait_ms(failure.failures, random)
    if isinstance(backoff, Fixed):
        return backoff.wait_ms()
    return delay_ms(backoff(failure), "backoff")


def _check_growth(factor: object, jitter: object) -> None:
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 <= factor < math.inf:
        raise ConfigError(f"expected Exponential.factor to be a number of at least 1, got {factor!r}")
    if not isinstance(jitter, bool):
        raise ConfigError(f"expected Exponential.jitter to be True or False, got {jitter!r}")


def _checked_ms(value: Duration, what: str, *, zero: bool = False) -> int:
    """A length in ms, for settings: what durations refuse as a wrong argument is a wrong set-up here."""
    try:
        return length_ms(value, what, zero=zero)
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error
