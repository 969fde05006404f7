"""Back-offs stay within zero and their cap, whatever the number of failures."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiodq._core.backoff import Backoff, Exponential, Failure, Fixed, backoff_ms
from aiodq._core.errors import ConfigError

FAILURE = Failure(error=ValueError("no"), failures=3, task="t", job_id="j")


def test_the_wait_doubles_up_to_the_cap() -> None:
    backoff = Exponential(first=1, cap=10, jitter=False)
    assert [backoff.wait_ms(n, 0.9) for n in range(1, 7)] == [1000, 2000, 4000, 8000, 10_000, 10_000]


def test_full_jitter_reaches_from_zero_to_the_whole_wait() -> None:
    backoff = Exponential(first=4, cap=100)
    assert backoff.wait_ms(1, 0.0) == 0
    assert backoff.wait_ms(1, 0.5) == 2000
    assert backoff.wait_ms(1, 0.999999) == 4000


def test_b132_two_hundred_attempts_at_factor_five_end_at_the_cap() -> None:
    backoff = Exponential(first=1, factor=5, cap=timedelta(hours=1), jitter=False)
    assert [backoff.wait_ms(n, 0.5) for n in (200, 10_000, 10**12)] == [3_600_000] * 3


@given(
    first=st.floats(min_value=0.001, max_value=1e6),
    more=st.floats(min_value=0, max_value=1e6),
    factor=st.floats(min_value=1, max_value=1e300),
    failures=st.integers(min_value=0, max_value=10**18),
    random=st.floats(min_value=0, max_value=1, exclude_max=True),
    jitter=st.booleans(),
)
def test_b135_a_wait_is_never_negative_nor_above_the_cap(
    first: float, more: float, factor: float, failures: int, random: float, jitter: bool
) -> None:
    backoff = Exponential(first=first, cap=first + more, factor=factor, jitter=jitter)
    assert 0 <= backoff.wait_ms(failures, random) <= math.ceil((first + more) * 1000) + 1


@pytest.mark.parametrize("factor", [0, 0.5, -1, math.nan, math.inf, True, "2", None])
def test_b135_unusable_factors_are_refused(factor: object) -> None:
    with pytest.raises(ConfigError, match="factor"):
        Exponential(factor=cast("float", factor))


@pytest.mark.parametrize("first", [0, -1, math.nan, math.inf, "1", None, True])
def test_b135_unusable_lengths_are_refused(first: object) -> None:
    with pytest.raises(ConfigError, match="first"):
        Exponential(first=cast("float", first))


@pytest.mark.parametrize("jitter", [0, 1, 1.5, -1, math.nan, "yes"])
def test_b135_jitter_is_on_or_off(jitter: object) -> None:
    with pytest.raises(ConfigError, match="jitter"):
        Exponential(jitter=cast("bool", jitter))


def test_a_cap_below_the_first_wait_is_refused() -> None:
    with pytest.raises(ConfigError, match="cap"):
        Exponential(first=10, cap=5)


def test_fixed_waits_the_same_each_time() -> None:
    assert Fixed(timedelta(seconds=2)).wait_ms() == 2000
    assert Fixed(0).wait_ms() == 0


@pytest.mark.parametrize("delay", [-1, math.nan, math.inf, "1"])
def test_fixed_refuses_what_is_no_delay(delay: object) -> None:
    with pytest.raises(ConfigError, match=r"Fixed\.delay"):
        Fixed(cast("float", delay))


def test_an_own_function_is_given_the_failure() -> None:
    seen: list[Failure] = []

    def own(failure: Failure) -> float:
        seen.append(failure)
        return failure.failures * 1.5

    assert backoff_ms(own, FAILURE, 0.5) == 4500
    assert seen == [FAILURE]


@pytest.mark.parametrize(("says", "waits"), [(-5, 0), (0, 0), (timedelta(days=365), 31_536_000_000)])
def test_an_own_wait_is_kept_within_bounds(says: float | timedelta, waits: int) -> None:
    assert backoff_ms(lambda _: says, FAILURE, 0.5) == waits


@pytest.mark.parametrize("says", [math.nan, math.inf, 1e300, "1", None])
def test_an_own_wait_that_is_none_raises(says: object) -> None:
    backoff = cast("Backoff", lambda _failure: says)  # pyright: ignore[reportUnknownLambdaType]
    with pytest.raises((TypeError, ValueError)):
        backoff_ms(backoff, FAILURE, 0.5)
