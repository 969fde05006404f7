"""Directives carry a due time or refuse it, and are found in groups that hold nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from aiodq._core.directives import Bury, Directive, Retry, Snooze, sole_directive
from aiodq._core.due import Due
from aiodq._core.errors import AiodqError

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def test_a_retry_without_a_time_leaves_it_to_the_backoff() -> None:
    assert Retry().due is None
    assert Retry(reason="later").reason == "later"


def test_delays_and_instants_become_due_times() -> None:
    assert Retry(1.5).due == Due(1500)
    assert Retry(timedelta(minutes=1)).due == Due(60_000)
    assert Retry(at=NOON).due == Due(NOON_MS, relative=False)
    assert Snooze(-3).due == Due(0)
    assert Snooze(at=NOON).due == Due(NOON_MS, relative=False)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Retry(1, at=NOON),
        lambda: Retry(cast("float", "1")),
        lambda: Retry(float("nan")),
        lambda: Retry(at=NOON.replace(tzinfo=None)),
        lambda: Snooze(float("inf")),
        cast("Any", Snooze),
        lambda: cast("Any", Snooze)(1, at=NOON),
        lambda: Bury(cast("str", 5)),
    ],
)
def test_unusable_times_are_refused(make: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        make()


def test_directives_are_no_errors_of_the_library() -> None:
    assert not issubclass(Directive, AiodqError)


def test_a_group_of_one_directive_is_that_directive() -> None:
    snooze = Snooze(1)
    assert sole_directive(snooze) is snooze
    assert sole_directive(ExceptionGroup("a", [ExceptionGroup("b", [snooze])])) is snooze
    assert sole_directive(ExceptionGroup("a", [snooze, ValueError()])) is None
    assert sole_directive(ExceptionGroup("a", [snooze, Snooze(2)])) is None
    assert sole_directive(ValueError()) is None
