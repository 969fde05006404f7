"""What questions to a queue are answered with. Plain values; times are aware datetimes in UTC and
timedeltas."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from msgspec import Struct

from aiodq._core.durations import Duration, length_ms
from aiodq._core.errors import ConfigError

JobState: TypeAlias = Literal["scheduled", "processing", "dead", "done", "absent"]
"""Where a job is. "done" is only known for a while, of jobs whose id the caller gave; other ended jobs
are "absent"."""


class Change(Struct, frozen=True):
    """Whether something was changed, and where the job was. True where it was."""

    made: bool
    was: JobState

    def __bool__(self) -> bool:
        return self.made


class Replayed(Struct, frozen=True):
    """The ids that came back from the dead letters, and those that were not (or no longer) there."""

    ids: tuple[str, ...]
    missing: tuple[str, ...]


class JobInfo(Struct, frozen=True):
    """One job of a list. `due_at` is None where it is no longer known (dead letters)."""

    id: str
    task: str
    state: JobState
    due_at: datetime | None


class DeadJob(Struct, frozen=True):
    """One dead letter: why it was buried, after how many failures, and what it was to do.

    `args` and `kwargs` are shown without the handler's types: a date is text, a dataclass a dict.
    `traceback` is that of its last error, as text; empty if there was none.
    """

    id: str
    task: str
    reason: str
    buried_at: datetime
    failures: int
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    traceback: str = ""


class QueueStats(Struct, frozen=True):
    """Counts at one moment of the server's clock. `due` are those of the scheduled jobs whose time has
    come; `oldest_overdue` is how long the first of them has waited.
    """

    due: int
    scheduled: int
    processing: int
    dead: int
    oldest_overdue: timedelta
    paused: bool


class Explanation(Struct, frozen=True):
    """Why a job does (not) run, in words."""

    job_id: str
    state: JobState
    text: str

    def __str__(self) -> str:
        return self.text


class DeadRetention(Struct, frozen=True, kw_only=True):
    """How long a queue's dead letters are kept: for `age` (30 days), and the newest `count` of them.

    Raises:
        ConfigError: an age or a count that is not above zero.
    """

    age: Duration = 2_592_000
    count: int = 10_000

    def __post_init__(self) -> None:
        _check_count(self.count)
        try:
            length_ms(self.age, "DeadRetention.age")
        except (TypeError, ValueError) as error:
            raise ConfigError(str(error)) from error

    @property
    def age_ms(self) -> int:
        return length_ms(self.age, "age")


def _check_count(count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ConfigError(f"DeadRetention.count={count!r}: expected a whole number of at least 1")
