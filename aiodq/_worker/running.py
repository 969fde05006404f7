"""A job that runs here: what the worker keeps of it (`Run`), and what its handler sees (`RunningJob`)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, Generic, Protocol, TypeVar, cast, overload

from msgspec import Struct

from aiodq._core.decision import StopReason, WrongState
from aiodq._core.durations import to_instant, to_length
from aiodq._core.errors import NotInJob
from aiodq._core.lease import Lease
from aiodq._core.limit import Permit
from aiodq._core.policy import Policy
from aiodq._core.rate import applies
from aiodq._core.settlement import Settlement
from aiodq._core.tally import Tally, read_tally

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)

_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
_UNKNOWN_POLICY: Final = Policy()


class Host(Protocol):
    """What a running job needs of the shard it came from."""

    @property
    def queue(self) -> str: ...

    @property
    def state(self) -> object:
        """What the worker's lifespan yielded."""
        ...

    async def extend(self, run: Run, /) -> None: ...


class Run(Struct, eq=False, kw_only=True):
    """One claimed job while this worker has it: from the claim until the store has answered its settlement.

    Changed in the worker's event loop only; the keeper's thread reads it, and writes `renewed_at`. All times
    are of the monotonic clock.

    Attributes:
        token: of the newest claim of this job by this worker; later than the lease's after an adoption.
        bucket: of its task's rate, if it has to ask for its start.
        permit: of its task's limit, if there is one.
        late_ms: how late it was claimed, by the server's clock.
        renewed_at: from when its lease counts at least.
        keep_until: the keeper renews its lease up to this moment.
        deadline: when the handler is to be stopped, or next looked at after that.
        stopped: why the handler was cancelled.
        lost: another claim has the job; nothing of this run is written any more.
        stuck: its handler ignores its cancellation; the job may run again beside it.
        ended: the handler has ended, or will never begin.
        unsure: its settlement was sent once without an answer, so a refusal says little.
        refusals: how often the server refused its settlement as such.
    """

    lease: Lease
    host: Host
    token: str
    task: str = ""
    policy: Policy = _UNKNOWN_POLICY
    headers: Mapping[str, str] | None = None
    remember: bool = False
    bucket: str | None = None
    permit: Permit | None = None
    late_ms: int = 0
    started: float = 0.0
    finished: float = 0.0
    renewed_at: float = 0.0
    keep_until: float = math.inf
    deadline: float = math.inf
    handle: asyncio.Task[None] | None = None
    stopped: StopReason | None = None
    lost: bool = False
    stuck: bool = False
    ended: bool = False
    settlement: Settlement | None = None
    error: str | None = None
    unsure: bool = False
    refusals: int = 0
    seen: Tally | None = None

    @property
    def job_id(self) -> str:
        return self.lease.job_id

    @property
    def tally(self) -> Tally:
        """Read when first asked for: most runs end well and never need it."""
        if self.seen is None:
            self.seen = read_tally(self.lease.tally)
        return self.seen

    @property
    def due_ms(self) -> int:
        """The job's due time, Unix ms; also where its task's rate has put its start off since."""
        lease = self.lease
        if lease.tally is None:
            return lease.due_ms
        reservation = self.tally.reservation
        if reservation is None or not applies(reservation, lease.due_ms):
            return lease.due_ms
        return reservation.due_ms

    def stop(self, why: StopReason) -> None:
        """Cancels the handler for that reason; the first reason stays."""
        if self.stopped is None:
            self.stopped = why
        if self.handle is not None:
            self.handle.cancel(f"aiodq: {why}")


current_run: Final[ContextVar[Run]] = ContextVar("aiodq_current_run")


class RunningJob(Generic[S_co]):
    """The job that the current handler runs, as `current_job()` gives it.

    Attributes are those of the claim: `attempt` is failures + 1; crashes (a worker died with the job),
    interruptions (its lease was lost by a living worker) and snoozes do not move it.
    """

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        self._run = run

    def __repr__(self) -> str:
        return f"<RunningJob {self.id!r} of {self.task!r}, attempt {self.attempt} of {self.max_attempts}>"

    @property
    def id(self) -> str:
        return self._run.lease.job_id

    @property
    def queue(self) -> str:
        return self._run.host.queue

    @property
    def task(self) -> str:
        return self._run.task

    @property
    def fence(self) -> int:
        """Number of the claim; grows with every claim in the job's shard. For guarding writes to other
        systems.
        """
        return self._run.lease.fence

    @property
    def attempt(self) -> int:
        return self._run.tally.failures + 1

    @property
    def max_attempts(self) -> int:
        return self._run.policy.max_attempts

    @property
    def last_attempt(self) -> bool:
        """A failure of this run puts the job to the dead letters."""
        return self.attempt >= self.max_attempts

    @property
    def failures(self) -> int:
        return self._run.tally.failures

    @property
    def crashes(self) -> int:
        return self._run.lease.crashes

    @property
    def interruptions(self) -> int:
        return self._run.lease.interruptions

    @property
    def snoozes(self) -> int:
        return self._run.tally.snoozes

    @property
    def due_at(self) -> datetime:
        """When the job was due; aware, UTC."""
        return to_instant(self._run.due_ms)

    @property
    def late_by(self) -> timedelta:
        """How long after its due time the job was claimed, by the server's clock."""
        return to_length(self._run.late_ms)

    @property
    def headers(self) -> Mapping[str, str]:
        headers = self._run.headers
        return MappingProxyType(headers) if headers else _NO_HEADERS

    @property
    def stopping(self) -> bool:
        """The run is to end: timed out, lease lost, or the worker shuts down. For handlers in threads, which
        cannot be cancelled; coroutines are."""
        return self._run.stopped is not None

    @property
    def state(self) -> S_co:
        """What the worker's `lifespan` yielded; None without one."""
        return cast("S_co", self._run.host.state)

    async def extend(self) -> None:
        """Renews the lease now: for the moment before an act that cannot be undone. Renewal as such is
        automatic.

        Raises:
            LeaseLost: another claim has the job. Stop.
            StoreUnavailable: the server did not answer, so nothing is known.
        """
        await self._run.host.extend(self._run)


@overload
def current_job() -> RunningJob[object]: ...
@overload
def current_job(state: type[S], /) -> RunningJob[S]: ...
def current_job(state: type[S] | None = None, /) -> RunningJob[S] | RunningJob[object]:
    """The job that this handler runs; works in everything it awaits, in its tasks and in its threads.

    Args:
        state: the type that the worker's `lifespan` yields, to have `job.state` typed and checked.

    Raises:
        NotInJob: not called from a handler.
        ConfigError: the lifespan made another type. The job is given back, uncounted, with a delay.
    """
    run = current_run.get(None)
    if run is None:
        raise NotInJob("no job runs here: current_job() is for handlers and what they call")
    if state is not None and not isinstance(run.host.state, state):
        raise WrongState(
            f"expected the worker's lifespan to yield {state.__qualname__} for task {run.task!r}, "
            f"got {type(run.host.state).__qualname__}"
        )
    return RunningJob(run)
