"""Handles of jobs: an id, its queue, and what can be asked of the two."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, Protocol, TypeVar, overload

from aiodq._core.answers import Change, Explanation, JobState
from aiodq._core.durations import Duration, to_instant
from aiodq._core.store import Placed

R_co = TypeVar("R_co", covariant=True)


class Home(Protocol):
    """The queue of a job, as its handle needs it."""

    @property
    def name(self) -> str: ...
    async def explain(self, job_id: str, /) -> Explanation: ...
    async def cancel(self, job_id: str, /) -> Change: ...
    async def _state(self, job_id: str, /) -> JobState: ...
    async def _reschedule(self, job_id: str, after: Duration | None, at: datetime | None, /) -> Change: ...


class Job(Generic[R_co]):
    """A job by its id, whether it exists or not; making the handle asks nobody. See `task.by_id`,
    `queue.by_id`.

    Every method raises `StoreUnavailable` when the server does not answer.
    """

    __slots__ = ("_queue", "id")

    def __init__(self, job_id: str, queue: Home) -> None:
        self.id: str = job_id
        self._queue = queue

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r} of queue {self._queue.name!r}>"

    async def status(self) -> JobState:
        """Where the job is now. "absent" is also said of one that has ended."""
        return await self._queue._state(self.id)

    async def explain(self) -> Explanation:
        """Why the job does (not) run, in words."""
        return await self._queue.explain(self.id)

    async def cancel(self) -> Change:
        """Removes the job if it is scheduled; one that runs already goes on."""
        return await self._queue.cancel(self.id)

    @overload
    async def reschedule(self, *, after: Duration) -> Change: ...
    @overload
    async def reschedule(self, *, at: datetime) -> Change: ...
    async def reschedule(self, *, after: Duration | None = None, at: datetime | None = None) -> Change:
        """Gives the job another due time if it is scheduled: `after` from now (server's clock), or `at`.

        Raises:
            TypeError, ValueError: both or none of the two, or no usable time.
        """
        return await self._queue._reschedule(self.id, after, at)


class Enqueued(Job[R_co]):
    """The handle that enqueuing returns.

    Attributes:
        created: no job had this id before.
        replaced: a waiting or dead job had it, and got these arguments and due time. Both false: there
            was a job with this id, and it was kept as it is.

    Of a job that is `unique`, the handle may be that of another one, which is there in its place.
    """

    __slots__ = ("_due_ms", "created", "replaced")

    def __init__(self, job_id: str, queue: Home, placed: Placed) -> None:
        self.id = job_id
        self._queue = queue
        self.created: bool = placed.created
        self.replaced: bool = placed.replaced
        self._due_ms = placed.due_ms

    @property
    def due_at(self) -> datetime:
        """When the job that has this id now is due (UTC)."""
        return to_instant(self._due_ms)
