"""Plans: a task with options and a due time, waiting for arguments."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from datetime import datetime
from typing import Final, Generic, ParamSpec, Protocol, TypeVar, Unpack

from msgspec import UNSET

from aiodq._api.job import Enqueued, Home, Job
from aiodq._core.arguments import Arguments
from aiodq._core.due import NOW, Due
from aiodq._core.durations import Duration, instant_ms, summed_delay_ms
from aiodq._core.jobs import NO_HEADERS, NewJob
from aiodq._core.names import JOB_ID_BYTES, check_job_id, job_id_from
from aiodq._core.options import (
    NO_OPTIONS,
    CallOptions,
    CallSpec,
    TaskOptions,
    read_call_options,
    spread_ms_of,
    unique_of,
)
from aiodq._core.rate import bucket_name, key_text, short_name
from aiodq._core.spread import smeared
from aiodq._core.unique import Hold, Unique

IDS_AHEAD: Final = 64
"""Job ids made at a time: asking the system for random bytes costs more than the rest of an id."""

_ids: list[str] = []
os.register_at_fork(after_in_child=_ids.clear)  # or the child would give its jobs the parent's next ids

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Sender(Home, Protocol):
    """The queue of a task, as plans need it."""

    @property
    def tasks(self) -> Mapping[str, TaskRef[..., object]]: ...
    @property
    def _defaults(self) -> TaskOptions: ...
    async def _send(self, job: NewJob[R], /) -> Enqueued[R]: ...


class Plan(Generic[P, R_co]):
    """A task with options and a due time. Immutable: each step gives a new plan, and a later step wins.

    ```python
    await close_order.after(minutes=30).enqueue("A1001")
    ```
    """

    __slots__ = ("_due", "_given", "_ref", "_spec", "_used", "name")

    name: str
    _ref: TaskRef[P, R_co]
    _due: Due
    _given: CallOptions
    _spec: CallSpec
    _used: bool

    def __init__(self, ref: TaskRef[P, R_co], due: Due, given: CallOptions, spec: CallSpec) -> None:
        self.name = ref.name
        self._ref = ref
        self._due = due
        self._given = given
        self._spec = spec
        self._used = False

    def __repr__(self) -> str:
        when = f", after {self._due.ms} ms" if self._due.relative else f", at {self._due.ms} ms"
        return f"<{type(self).__name__} {self.name!r}{when if self._due is not NOW else ''}>"

    if sys.flags.dev_mode:

        def __del__(self) -> None:
            """`close_order.after(60)` and nothing more is a mistake that no checker sees."""
            if not getattr(self, "_used", True):
                text = f"a plan for task {self.name!r} was made but never sent: call .enqueue(…) or .job(…)"
                warnings.warn(text, RuntimeWarning, stacklevel=2, source=self)

    def after(
        self,
        delay: Duration = 0,
        /,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> Plan[P, R_co]:
        """Due that long after the server takes the job in, by the server's clock: seconds or a
        `timedelta`, or in parts; all given ones are summed. A negative delay means now.

        Raises:
            TypeError, ValueError: no usable length of time, or more than a thousand years.
        """
        ms = summed_delay_ms(delay, days=days, hours=hours, minutes=minutes, seconds=seconds)
        return self._with(Due(ms), self._given, self._spec)

    def at(self, when: datetime, /) -> Plan[P, R_co]:
        """Due at that instant, an aware datetime; one in the past means now.

        Raises:
            TypeError, ValueError: no datetime, or one without a time zone.
        """
        return self._with(Due(instant_ms(when), relative=False), self._given, self._spec)

    def options(self, **options: Unpack[CallOptions]) -> Plan[P, R_co]:
        """With options for this call, added to those of earlier steps. See `CallOptions` in `aiodq.types`.

        Raises:
            TypeError, ValueError: an unknown option or an unusable value.
        """
        given: CallOptions = {**self._given, **options}
        return self._with(self._due, given, read_call_options(given))

    def job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob[R_co]:
        """The job with these arguments, checked, encoded and with an id, but not sent: for
        `enqueue_many`, or to send it again safely.

        Raises:
            TypeError: the arguments do not fit the handler's signature or types.
            PayloadError: a value cannot be stored, or all are too large.
            ConfigError: the handler's annotations cannot be used.
        """
        self._used = True
        ref, spec = self._ref, self._spec
        known = ref if ref._typed else ref._queue.tasks.get(ref.name, ref)
        packed = known._arguments.encode(args, kwargs)
        headers = known._headers if spec.headers is None else spec.headers
        hold = None
        unique = known._unique if spec.unique is UNSET else spec.unique
        if unique is not None:
            hold = self._hold(unique, known._arguments, args, kwargs)
        shard_key = spec.shard_key if hold is None else f"{{{short_name(hold.name)}}}"
        job_id, due = spec.job_id or shard_key + _new_id(), self._due
        spread_ms = known._spread_ms if spec.spread_ms is None else spec.spread_ms
        if spread_ms:
            due = smeared(due, job_id, spread_ms)
        return NewJob(job_id, ref._queue.name, ref.name, args, kwargs, headers, packed, due, spec, hold)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued[R_co]:
        """Sends the job with these arguments. When it returns, the server has the job.

        Safe to cancel and to repeat only with a job of its own id: a cancelled or failed `enqueue` may have
        arrived. Where that matters use `options(job_id=…)`, or send a `job(…)` again.

        Raises:
            TypeError, PayloadError, ConfigError: as `job`; nothing was sent.
            DuplicateJob: with on_duplicate="raise", there is a job of that id.
            QueueFull: the server is out of memory, or the queue's backlog full; nothing was changed.
            ValueError: due beyond the backlog's horizon; nothing was sent.
            StoreUnavailable: the server did not answer in time; the job may or may not be there.
        """
        return await self._ref._queue._send(self.job(*args, **kwargs))

    def _hold(
        self, unique: Unique, arguments: Arguments, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> Hold:
        spec = self._spec
        if spec.job_id is not None:
            raise ValueError(
                f"job_id={spec.job_id!r} with unique={unique!r}: an id of your own is unique by itself; pass "
                "unique=None"
            )
        if spec.shard_key:
            raise ValueError(
                f"shard_key with unique={unique!r}: jobs that are unique together are in a shard of their own"
            )
        if spec.on_duplicate == "replace" or (spec.on_duplicate == "raise" and unique.mode == "last"):
            raise ValueError(
                f'on_duplicate="{spec.on_duplicate}" with unique={unique!r}: the mode says what happens to '
                "the other job"
            )
        key = None if unique.key is None else key_text(arguments.value_of(unique.key, args, kwargs))
        return Hold(bucket_name(self.name, key), unique.window_ms, unique.mode)

    def _with(self, due: Due, given: CallOptions, spec: CallSpec) -> Plan[P, R_co]:
        self._used = True
        return Plan(self._ref, due, given, spec)


def _new_id() -> str:
    """A job id that nobody has. Threads may call it at once: each takes from the list in one step."""
    try:
        return _ids.pop()
    except IndexError:
        letters = job_id_from(os.urandom(IDS_AHEAD * JOB_ID_BYTES))
        first, *others = (letters[at : at + JOB_ID_BYTES] for at in range(0, len(letters), JOB_ID_BYTES))
        _ids.extend(others)
        return first


class TaskRef(Plan[P, R_co]):
    """A task, by name, stub or handler; as a plan it is due now."""

    def __init__(
        self, queue: Sender, name: str, arguments: Arguments, options: tuple[TaskOptions, ...], *, typed: bool
    ) -> None:
        self.name = name
        self._ref = self
        self._due = NOW
        self._given = {}
        self._spec = NO_OPTIONS
        self._used = True
        self._queue = queue
        self._typed = typed
        self._arguments = arguments
        self._options = options
        places = (*options, queue._defaults)
        self._headers: Mapping[str, str] = next((o["headers"] for o in places if "headers" in o), NO_HEADERS)
        self._unique = next((u for o in places if (u := unique_of(o)) is not UNSET), None)
        self._spread_ms = next((ms for o in places if (ms := spread_ms_of(o)) is not None), 0)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of queue {self._queue.name!r}>"

    def by_id(self, job_id: str, /) -> Job[R_co]:
        """The handle of a job of this task.

        Raises:
            TypeError, ValueError: no possible id.
        """
        return Job(check_job_id(job_id), self._queue)
