"""The arithmetic of rates: how starts are spaced, against what a rate promises of every stretch of time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiodq import ConfigError, Rate
from aiodq._core.rate import (
    FARTHEST_US,
    LATE_MS,
    applies,
    book,
    bucket_name,
    home_of,
    is_admitted,
    key_text,
    moment_ms,
)
from aiodq._core.tally import SPENT, Reservation

T0_US = 1_750_000_000_000_000


def starts(rate: Rate, arrivals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What jobs that arrive (at µs, how many) are told: (arrival, start), through one bucket."""
    until_us, told = 0, list[tuple[int, int]]()
    for now_us, count in arrivals:
        begins_us, until_us = book(until_us, now_us, rate.width_us(count))
        told += [(now_us, start) for start in rate.starts_us(begins_us, now_us, count)]
    return told


rates = st.builds(
    Rate,
    count=st.integers(1, 1000),
    per=st.sampled_from([0.001, 0.5, 1, 7, 60, timedelta(hours=1)]),
    burst=st.one_of(st.none(), st.integers(1, 50)),
)
arrivals = st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(1, 40)), min_size=1, max_size=20)


@given(rate=rates, gaps=arrivals)
def test_no_stretch_of_time_has_more_starts_than_burst_and_its_part(
    rate: Rate, gaps: list[tuple[int, int]]
) -> None:
    """Against the promise itself, for every pair of starts: n starts within t means n <= burst + rate * t.
    Moments are whole microseconds, so a stretch may look one shorter than it is."""
    now_us, times = T0_US, list[tuple[int, int]]()
    for gap, count in gaps:
        now_us += gap
        times.append((now_us, count))
    told = starts(rate, times)
    began = sorted(start for _, start in told)
    burst = rate.burst or 1
    for first in range(len(began)):
        for last in range(first, min(len(began), first + 120)):
            stretch_us = began[last] - began[first] + 1
            assert (last - first + 1 - burst) * rate.per_us <= stretch_us * rate.count
    assert all(start >= arrival for arrival, start in told), "never early"


@given(rate=rates, gaps=arrivals)
def test_nobody_waits_longer_than_a_full_bucket_makes_him(rate: Rate, gaps: list[tuple[int, int]]) -> None:
    """Against a plain simulation: `level` tokens, filled with time up to `burst`, each start takes one; a job
    that finds none starts when its own has dripped in. Rounding costs each booking a microsecond at most."""
    burst, level, seen_us = rate.burst or 1, float(rate.burst or 1), T0_US
    now_us, bookings, expected = T0_US, list[tuple[int, int]](), list[float]()
    for gap, count in gaps:
        now_us += gap
        bookings.append((now_us, count))
        level = min(float(burst), level + (now_us - seen_us) * rate.count / rate.per_us)
        seen_us = now_us
        for _ in range(count):
            level -= 1
            expected.append(now_us + max(0.0, -level) * rate.per_us / rate.count)
    told = [start for _, start in starts(rate, bookings)]
    for start, wanted in zip(told, expected, strict=True):
        assert -2 <= start - wanted <= len(bookings) + 2


def test_one_start_after_another_by_default() -> None:
    told = starts(Rate(100), [(T0_US, 5)])
    assert [start - T0_US for _, start in told] == [0, 10_000, 20_000, 30_000, 40_000]


def test_a_burst_starts_at_once_and_then_waits() -> None:
    told = starts(Rate(10, per=1, burst=3), [(T0_US, 5)])
    assert [start - T0_US for _, start in told] == [0, 0, 0, 100_000, 200_000]


def test_thirds_do_not_add_up_to_a_slower_rate() -> None:
    """Rounding up once per booking, not once per job."""
    told = starts(Rate(3, per=1), [(T0_US, 100)])
    assert told[99][1] - T0_US == 33_000_000


def test_bookings_end_where_numbers_are_exact() -> None:
    begins_us, until_us = book(FARTHEST_US - 5, T0_US, 1000)
    assert (begins_us, until_us) == (FARTHEST_US - 5, FARTHEST_US)
    assert int(float(until_us)) == until_us
    assert book(until_us, T0_US, 1000) == (FARTHEST_US, FARTHEST_US)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: Rate(0), "Rate.count=0"),
        (lambda: Rate(True), "Rate.count=True"),
        (lambda: Rate(1.5), "Rate.count=1.5"),  # type: ignore[arg-type]
        (lambda: Rate(2_000_000), "1,000,000"),
        (lambda: Rate(1, per=0), "Rate.per=0"),
        (lambda: Rate(1, per=-1), "Rate.per=-1"),
        (lambda: Rate(1, per=float("nan")), "Rate.per=nan"),
        (lambda: Rate(1, per="1s"), "Rate.per='1s'"),  # type: ignore[arg-type]
        (lambda: Rate(1, per=timedelta(days=32)), "31 days"),
        (lambda: Rate(1, burst=0), "Rate.burst=0"),
        (lambda: Rate(1, key=""), "Rate.key=''"),
        (lambda: Rate(1, key=7), "Rate.key=7"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_rate_is_refused_by_name_and_value(wrong: object, says: str) -> None:
    assert callable(wrong)
    with pytest.raises(ConfigError, match=says):
        wrong()


# -- reservations

RATE = Rate(100)
BOOKED = Reservation(due_ms=5_000, at_ms=9_000, losses=1)


def admitted(
    reservation: Reservation | None = BOOKED,
    *,
    rate: Rate = RATE,
    due_ms: int = 9_000,
    now_ms: int = 9_000,
    losses: int = 1,
) -> bool:
    return is_admitted(rate, reservation, due_ms=due_ms, now_ms=now_ms, losses=losses)


def test_a_job_starts_at_its_moment_without_asking() -> None:
    assert admitted()
    assert admitted(now_ms=9_000 + LATE_MS)
    # Written when its moment had passed: the server gave it the time that it was.
    assert admitted(due_ms=9_020, now_ms=9_020)


def test_a_job_asks_again_that_comes_too_late_or_was_moved_or_may_have_started() -> None:
    assert not admitted(None)
    assert not admitted(now_ms=9_001 + LATE_MS)
    assert not admitted(due_ms=8_999)
    assert not admitted(due_ms=9_001 + LATE_MS, now_ms=9_001 + LATE_MS)
    assert not admitted(losses=2)
    assert not admitted(Reservation(5_000, 9_000, SPENT), losses=0)


def test_of_a_slow_rate_a_job_may_be_as_late_as_one_start_is_long() -> None:
    assert admitted(rate=Rate(1, per=60), now_ms=9_000 + 60_000)
    assert not admitted(rate=Rate(1, per=60), now_ms=9_001 + 60_000)


def test_a_job_that_was_given_another_due_time_is_not_due_when_it_was() -> None:
    assert applies(BOOKED, 9_000)
    assert not applies(BOOKED, 8_000)
    assert not applies(BOOKED, 900_000)


def test_moments_are_rounded_up() -> None:
    assert [moment_ms(us) for us in (1_000, 1_001, 1_999, 2_000)] == [1, 2, 2, 2]


# -- buckets


def test_buckets_are_told_apart_by_task_and_key() -> None:
    names = {bucket_name("close"), *(bucket_name("close", key_text(v)) for v in ("7", 7, None, (1, 2)))}
    assert len(names) == 5
    assert bucket_name("close", key_text({"b", "a", "c"})) == bucket_name("close", key_text({"c", "b", "a"}))
    assert bucket_name("close", key_text({"a": 1, "b": 2})) == bucket_name(
        "close", key_text({"b": 2, "a": 1})
    )


def test_a_bucket_has_a_short_name_however_long_its_key() -> None:
    long = [bucket_name("close", key_text("x" * 10_000 + end)) for end in "ab"]
    assert len(set(long)) == 2
    assert max(map(len, long)) < 60


def test_a_bucket_has_one_home_among_the_shards_and_buckets_are_spread_over_them() -> None:
    homes = [home_of(f"close:{n}", 8) for n in range(800)]
    assert homes == [home_of(f"close:{n}", 8) for n in range(800)]
    assert all(60 < homes.count(shard) < 150 for shard in range(8))
    assert home_of("close", 1) == 0
