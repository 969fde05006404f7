"""What a handler raises to say how its run is to end, instead of leaving it to the task's rules.

Directives are no errors of aiodq's, so `except AiodqError` in a handler does not swallow them. They pass
through task groups: an exception group that holds exactly one directive and nothing else is that directive.
"""

from __future__ import annotations

from datetime import datetime
from typing import cast, overload

from aiodq._core.due import Due
from aiodq._core.durations import Duration, delay_ms, instant_ms


class Directive(Exception):
    """Base of `Retry`, `Snooze` and `Bury`. `reason` is kept in the job's history."""

    reason: str

    def __init__(self, reason: str = "", /) -> None:
        super().__init__(reason)
        self.reason = _text(reason)


class Retry(Directive):
    """Run the job again; this run counts as a failure. After the last attempt the job is buried all the same.

    Args:
        after: how long to wait, seconds or timedelta; None: by the task's backoff.
        at: run it again at this instant (an aware datetime) instead.
        reason: for the job's history.

    Raises:
        TypeError, ValueError: both or unusable times were given.
    """

    due: Due | None
    """When to run again; None: by the task's backoff."""

    def __init__(
        self, after: Duration | None = None, /, *, at: datetime | None = None, reason: str = ""
    ) -> None:
        super().__init__(reason)
        if after is not None and at is not None:
            raise TypeError("Retry takes a delay or at=, not both")
        self.due = _due(after, at)


class Snooze(Directive):
    """Run the job again later; not a failure, and counted apart.

    Args:
        after: how long to wait, seconds or timedelta.
        at: run it again at this instant (an aware datetime) instead.
        reason: for the job's history.

    Raises:
        TypeError, ValueError: both, none or unusable times were given.
    """

    due: Due

    @overload
    def __init__(self, after: Duration, /, *, reason: str = "") -> None: ...

    @overload
    def __init__(self, /, *, at: datetime, reason: str = "") -> None: ...

    def __init__(
        self, after: Duration | None = None, /, *, at: datetime | None = None, reason: str = ""
    ) -> None:
        super().__init__(reason)
        due = _due(after, at)
        if due is None or (after is not None and at is not None):
            raise TypeError("Snooze takes either a delay or at=")
        self.due = due


class Bury(Directive):
    """Put the job to the dead letters now, whatever attempts are left."""


def _text(reason: object) -> str:
    if not isinstance(reason, str):
        raise TypeError(f"expected reason to be a string, got {reason!r}")
    return reason


def _due(after: Duration | None, at: datetime | None) -> Due | None:
    if at is not None:
        return Due(instant_ms(at), relative=False)
    return None if after is None else Due(delay_ms(after))


def sole_directive(error: BaseException) -> Directive | None:
    """The directive that `error` is, or that is all an exception group holds; else None."""
    leaves = leaves_of(error)
    sole = leaves[0]
    return sole if len(leaves) == 1 and isinstance(sole, Directive) else None


def leaves_of(error: BaseException) -> list[BaseException]:
    """The errors at the ends of a tree of exception groups; an error that is no group is its own leaf."""
    leaves: list[BaseException] = []
    rest: list[BaseException] = [error]
    while rest:  # not recursive: groups may be nested deeper than Python's stack
        item = rest.pop()
        if isinstance(item, BaseExceptionGroup):
            rest.extend(reversed(cast("BaseExceptionGroup[BaseException]", item).exceptions))
        else:
            leaves.append(item)
    return leaves
