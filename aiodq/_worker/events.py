"""What a worker tells its listeners. The union grows with later versions: end a match with `case _`."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias

from msgspec import Struct

from aiodq._core.settlement import Outcome


class JobStarted(Struct, frozen=True):
    """A handler starts. `late_by`: how long after its due time the job was claimed, by the server's clock."""

    job_id: str
    queue: str
    task: str
    attempt: int
    late_by: timedelta


class JobSettled(Struct, frozen=True):
    """The server accepted how a job ended. `error`: what led there, in one line; `ran_for` is zero if it
    never ran.
    """

    job_id: str
    queue: str
    task: str
    outcome: Outcome
    ran_for: timedelta
    error: str | None


class JobRecovered(Struct, frozen=True):
    """A job was taken over from an expired lease. `started`: it is run; else it is buried for its crashes."""

    job_id: str
    queue: str
    task: str
    crashes: int
    started: bool


class LeaseMissed(Struct, frozen=True):
    """Another claim has a job that this worker held: its handler was cancelled, or its settlement refused."""

    job_id: str
    queue: str
    task: str


class TaskUnknown(Struct, frozen=True):
    """A job was given back because this worker has no handler of that name; claimable again after
    `again_in`.
    """

    job_id: str
    queue: str
    task: str
    again_in: timedelta


class LoopBlocked(Struct, frozen=True):
    """The event loop stood still while handlers ran; told when it goes on (the log warns while it stands)."""

    blocked_for: timedelta
    running: tuple[str, ...]


class ClockStepped(Struct, frozen=True):
    """The server's clock was more than a second ahead of what this worker expected, or behind (`by` is
    negative)."""

    queue: str
    by: timedelta


class StoreLost(Struct, frozen=True):
    """The server does not answer. The worker tries again for ever, at least once a second."""

    queue: str
    error: str


class StoreBack(Struct, frozen=True):
    """The server answers again."""

    queue: str
    away_for: timedelta


Event: TypeAlias = (
    JobStarted
    | JobSettled
    | JobRecovered
    | LeaseMissed
    | TaskUnknown
    | LoopBlocked
    | ClockStepped
    | StoreLost
    | StoreBack
)
