"""What users write for times, and the whole milliseconds it becomes. Faults B01, B03, B06, B08, B09."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import cast

import pytest

from aiodq._core.due import MAX_DELAY_MS, MAX_DUE_MS
from aiodq._core.durations import Duration, delay_ms, instant_ms, length_ms, to_instant

LAST = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (0, 0),
        (1, 1000),
        (30, 30_000),
        (0.5, 500),
        (0.07, 70),  # 0.07 * 1000 is 70.00000000000001
        (1.1, 1100),
        (0.0001, 1),
        (1.0005, 1001),
        (timedelta(minutes=30), 1_800_000),
        (timedelta(microseconds=1), 1),
        (timedelta(days=400), 400 * 86_400_000),
        (MAX_DELAY_MS // 1000, MAX_DELAY_MS),
        (timedelta(milliseconds=MAX_DELAY_MS), MAX_DELAY_MS),
    ],
)
def test_a_delay_becomes_whole_ms_and_is_never_early(value: Duration, ms: int) -> None:
    assert delay_ms(value) == ms


@pytest.mark.parametrize(
    "value", [-0.001, -1e12, -time.time() - 1, -1, timedelta(days=-1), timedelta.min, -1e308, -0.0]
)
def test_b01_a_negative_delay_means_now(value: Duration) -> None:
    assert delay_ms(value) == 0


@pytest.mark.parametrize("days", [25, 50, 400, 365_000])
def test_b03_delays_beyond_32_bits_are_exact(days: int) -> None:
    assert delay_ms(days * 86_400) == delay_ms(timedelta(days=days)) == days * 86_400_000


@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        (True, TypeError, "after=True: expected seconds (a number) or a timedelta, got bool"),
        ("30", TypeError, "after='30': expected seconds"),
        (None, TypeError, "got NoneType"),
        (float("nan"), ValueError, "after=nan: expected a finite number"),
        (float("inf"), ValueError, "after=inf: expected a finite number"),
        (float("-inf"), ValueError, "after=-inf: expected a finite number"),
        (MAX_DELAY_MS / 1000 + 1, ValueError, "are these milliseconds?"),
        (1e300, ValueError, "are these milliseconds?"),
        (10**400, ValueError, "an enormous number"),
        (timedelta.max, ValueError, "above a thousand years"),
    ],
)
def test_what_is_no_delay_is_refused_by_name(value: object, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as caught:
        delay_ms(cast("Duration", value))
    assert says in str(caught.value)


def test_a_length_is_above_zero() -> None:
    assert length_ms(0.0004, "timeout") == 1
    for value in (0, 0.0, -0.0, -1, -1e-9, timedelta(), timedelta(microseconds=-1)):
        with pytest.raises(ValueError, match=r"timeout=.*: expected more than zero seconds"):
            length_ms(value, "timeout")


def test_a_length_may_be_zero_where_that_means_something() -> None:
    assert length_ms(0, "older_than", zero=True) == 0
    for value in (-1, -1e-9, timedelta(microseconds=-1)):
        with pytest.raises(ValueError, match="expected zero or more seconds"):
            length_ms(value, "older_than", zero=True)


@pytest.fixture(params=["JST-9", "PST8"])
def process_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def test_b06_a_time_without_a_zone_is_refused_and_aware_ones_are_one_instant(process_zone: str) -> None:
    now = datetime.now(UTC) + timedelta(seconds=2)
    assert instant_ms(now) == instant_ms(now.astimezone())
    with pytest.raises(ValueError, match="has no time zone, so it is not one instant"):
        instant_ms(now.replace(tzinfo=None))


@pytest.mark.parametrize("value", [date(2026, 12, 24), "2026-12-24", 1_800_000_000, None])
def test_what_is_no_datetime_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="expected a datetime with a time zone"):
        instant_ms(cast("datetime", value))


@pytest.mark.parametrize("micros", [0, 1, 999, 1000])
def test_an_instant_is_rounded_up_to_the_ms(micros: int) -> None:
    base = datetime(2026, 12, 24, 18, tzinfo=UTC)
    start = int(base.timestamp()) * 1000
    assert instant_ms(base + timedelta(microseconds=micros)) == start + (micros > 0)


def test_b08_b09_the_last_instant_is_exact_and_there_is_none_after_it() -> None:
    assert instant_ms(LAST) == MAX_DUE_MS == 253_402_300_799_999
    assert to_instant(MAX_DUE_MS) == LAST
    assert instant_ms(datetime.max.replace(tzinfo=UTC)) == MAX_DUE_MS
    with pytest.raises(ValueError, match="the last instant"):
        instant_ms(datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))))


def test_instants_before_the_epoch_mean_now() -> None:
    assert instant_ms(datetime(1969, 1, 1, tzinfo=UTC)) == 0
    assert instant_ms(datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))) == 0


def test_stored_instants_come_back_exactly() -> None:
    for ms in (0, 1, 1_796_071_585_096, MAX_DUE_MS - 1):
        assert instant_ms(to_instant(ms)) == ms
