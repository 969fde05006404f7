"""How a burst of jobs is smeared over a stretch of time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from aiodq import ConfigError, Queue
from aiodq._core.due import MAX_DELAY_MS, MAX_DUE_MS, NOW, Due
from aiodq._core.spread import smeared


def test_due_times_are_even_over_the_spread_never_early_and_its_end_is_reached() -> None:
    due = Due(5_000)
    later = [smeared(due, f"job-{n}", 9).ms - due.ms for n in range(10_000)]
    assert set(later) == set(range(10))
    assert all(800 < later.count(ms) < 1200 for ms in range(10))


def test_the_same_job_has_the_same_due_time_each_time() -> None:
    assert smeared(NOW, "a", 60_000) == smeared(NOW, "a", 60_000) != smeared(NOW, "b", 60_000)


def test_without_a_spread_nothing_changes() -> None:
    assert smeared(NOW, "a", 0) is NOW


def test_the_last_due_times_there_are_are_not_passed() -> None:
    for n in range(20):
        assert smeared(Due(MAX_DELAY_MS), f"{n}", 10_000).ms == MAX_DELAY_MS
        assert smeared(Due(MAX_DUE_MS, relative=False), f"{n}", 10_000).ms == MAX_DUE_MS


def test_the_call_goes_before_the_task_and_the_task_before_the_queue() -> None:
    orders = Queue("orders", url="memory://spread", defaults={"spread": 10})

    @orders.task(spread=timedelta(minutes=1))
    async def close(n: int) -> None: ...

    @orders.task
    async def ship(n: int) -> None: ...

    def longest(jobs: list[float | None]) -> float:
        return max(job or 0 for job in jobs)

    assert 55 < longest([close.after(0).job(n).after for n in range(500)]) <= 60
    assert 9 < longest([ship.job(n).after for n in range(500)]) <= 10
    assert longest([close.options(spread=0).job(n).after for n in range(100)]) == 0
    when = datetime(2100, 1, 1, tzinfo=UTC)
    moments = [close.at(when).job(n).at for n in range(100)]
    assert all(at is not None and when <= at <= when + timedelta(minutes=1) for at in moments)
    assert len(set(moments)) > 90


def test_a_stub_and_its_name_spread_too() -> None:
    orders = Queue("orders", url="memory://spread")

    @orders.stub(spread=60)
    async def close(n: int) -> None: ...

    assert max(close.job(n).after or 0 for n in range(100)) > 50
    assert max(orders.stub("close").job(n).after or 0 for n in range(100)) > 50

    @close.implement(spread=1)
    async def close_it(n: int) -> None: ...

    assert max(close.job(n).after or 0 for n in range(100)) <= 1


def test_what_is_no_spread_is_refused() -> None:
    orders = Queue("orders", url="memory://spread")
    with pytest.raises(ValueError, match="spread=-1"):
        orders.stub("close").options(spread=-1)
    with pytest.raises(ConfigError, match="spread=nan"):
        orders.task(spread=float("nan"))
