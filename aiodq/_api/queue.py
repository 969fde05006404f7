"""The queue: where tasks are declared, and jobs are sent, looked at, moved and taken back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Literal, Never, ParamSpec, Self, TypeVar, Unpack, overload

from aiodq._api.checking import check_shard
from aiodq._api.connections import Connections, RedisClient, Scripting, Url
from aiodq._api.dead import DeadLetters
from aiodq._api.job import Enqueued, Job
from aiodq._api.plan import TaskRef
from aiodq._api.sending import check_args, check_job, due_of, place, write
from aiodq._api.task import (
    Stub,
    StubDecorator,
    SyncTask,
    Task,
    TaskDecorator,
    make_task,
    name_of,
    same_function,
)
from aiodq._core.answers import Change, DeadRetention, Explanation, JobInfo, JobState, QueueStats
from aiodq._core.arguments import Arguments
from aiodq._core.backlog import Backlog
from aiodq._core.consistency import CheckReport, merged
from aiodq._core.due import Due
from aiodq._core.durations import Duration, to_length
from aiodq._core.errors import ConfigError, DuplicateJob, StoreUnavailable
from aiodq._core.explain import explain_job, show_job
from aiodq._core.handler import Handler
from aiodq._core.jobs import NewJob, on_duplicate_of, to_entry, writer_of
from aiodq._core.jobs import due_of as due_of_job
from aiodq._core.names import check_job_id, check_prefix, check_queue_name, check_task_name
from aiodq._core.options import NO_OPTIONS, CallOptions, TaskOptions, check_known, read_task_options
from aiodq._core.signature import check_function
from aiodq._core.store import QueueStore, Store, Was

P = ParamSpec("P")
R = TypeVar("R")

log: Final = logging.getLogger("aiodq.worker")

_AGREE_AGAIN_S: Final = 1.0
_OPTIONS: Final = (
    "url",
    "redis",
    "prefix",
    "shards",
    "fifo",
    "scripting",
    "defaults",
    "retention",
    "backlog",
)
_LISTED: Final = ("scheduled", "processing", "dead")
_MOST_LISTED: Final = 10_000


class Queue:
    """A named queue of delayed jobs on a server. Make one at module level; constructing it connects
    nothing.

    The first use in an event loop opens its connection there, shared with other queues of the same URL; the
    loop's end closes it. `async with queue` opens at once and closes at its end, if no other `async with`
    is left. A queue may be used in several event loops and threads, and after a fork.

    Args:
        name: 1 to 128 characters: letters, digits and . _ : / + @ = , ~ # % -
        url: `redis://`, `rediss://`, `unix://`, `redis+sentinel://HOST,HOST/SERVICE`,
            `redis+cluster://HOST,HOST`, `embedded://DIR` (the bundled server), `memory://NAME` (in this
            process); or a function that gives one, called on opening. By default the environment's
            `AIODQ_URL`, else its `REDIS_URL`.
        redis: a `redis.asyncio.Redis` or `redis.asyncio.RedisCluster` client instead, also a Sentinel's
            `master_for(…)`: its settings are used, not its connections.
        shards: into how many shards it is divided, 1 to 1024; recorded, and every process must say the same.
            See docs/shards.md.
        fifo: of jobs due in one millisecond the one that was enqueued first is given out first. Chosen
            when the queue is empty, for good; every process must say the same. Costs some 100 bytes a job.
        prefix: what the queue's keys begin with.
        scripting: "functions" uses Redis Functions (Redis 7 and later) instead of EVALSHA.
        defaults: options of its tasks where they have none of their own.
        retention: how long and how many dead letters are kept.
        backlog: how far the queue may fill up until enqueuing is refused.

    Raises:
        ConfigError: a name or a setting that cannot be.
    """

    def __init__(
        self,
        name: str,
        *,
        url: Url | None = None,
        redis: RedisClient | None = None,
        prefix: str = "aiodq",
        shards: int = 1,
        fifo: bool = False,
        scripting: Scripting = "eval",
        defaults: TaskOptions | None = None,
        retention: DeadRetention | None = None,
        backlog: Backlog | None = None,
        **unknown: Never,
    ) -> None:
        check_known("option of Queue", unknown, _OPTIONS)
        try:
            self._name = check_queue_name(name)
            check_prefix(prefix)
        except (TypeError, ValueError) as error:
            raise ConfigError(str(error)) from error
        self._backlog = _backlog_of(name, backlog)
        self._connections = Connections(
            name,
            prefix=prefix,
            url=url,
            client=redis,
            scripting=scripting,
            fifo=fifo,
            shards=shards,
            bounds=self._backlog.bounds(),
        )
        self._defaults = read_task_options(f"queue {name!r}, defaults", defaults or {})
        self._retention = retention or DeadRetention()
        self._tasks: dict[str, TaskRef[..., object]] = {}
        self.dead: DeadLetters = DeadLetters(self)

    def __repr__(self) -> str:
        return f"<Queue {self._name!r}>"

    @property
    def name(self) -> str:
        return self._name

    @property
    def tasks(self) -> Mapping[str, TaskRef[..., object]]:
        """The tasks and stubs declared in this process, by name."""
        return MappingProxyType(self._tasks)

    # ---- declaring tasks. The overloads overlap: a coroutine function is also a function that returns
    # something; the first that fits wins.

    @overload
    def task(self, fn: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, fn: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def task(self, /, *, name: str | None = None, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
    def task(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        **options: Unpack[TaskOptions],
    ) -> object:
        """Makes a function a task of this queue; its name is the function's, or `name`.

        ```python
        @orders.task(max_attempts=5, timeout=30)
        async def close_order(order_id: str) -> None: ...
        ```

        Raises:
            ConfigError: not a function that can be a handler, an unusable option, or a second task of
                that name. TypeError: an unknown option.
        """

        def declare(fn: Callable[..., Any], /) -> object:
            task_name, fn = _named(fn, name)
            task = make_task(self, task_name, fn, (read,))
            self._register(task)
            return task

        read = read_task_options(f"task {name or _shown(fn)}", options)
        return declare if fn is None else declare(fn)

    @overload
    def stub(self, name: str, /) -> TaskRef[..., object]: ...
    @overload
    def stub(self, fn: Callable[P, Awaitable[R]], /) -> Stub[P, R]: ...
    @overload
    def stub(self, fn: Callable[P, R], /) -> Stub[P, R]: ...
    @overload
    def stub(self, /, *, name: str | None = None, **options: Unpack[TaskOptions]) -> StubDecorator: ...
    def stub(
        self,
        fn: Callable[..., Any] | str | None = None,
        /,
        *,
        name: str | None = None,
        **options: Unpack[TaskOptions],
    ) -> object:
        """A task whose handler is elsewhere: declared by its signature, or just named.

        ```python
        @orders.stub  # where producers import it
        async def ship(order_id: str) -> None: ...


        @ship.implement  # where the worker imports it
        async def _ship(order_id: str) -> None: ...


        await orders.stub("close_order").enqueue("A1001")  # by name: checked for plain values only
        ```

        Raises:
            ConfigError: not a function, a name that cannot be, or a second task of that name.
            TypeError: an unknown option.
        """
        if isinstance(fn, str):
            return self._by_name(fn)

        def declare(fn: Callable[..., Any], /) -> object:
            task_name, fn = _named(fn, name)
            stub: Stub[..., Any] = Stub(self, task_name, fn, read)
            self._register(stub)
            return stub

        read = read_task_options(f"stub {name or _shown(fn)}", options)
        return declare if fn is None else declare(fn)

    # ---- sending

    async def enqueue(self, job: NewJob[R], /) -> Enqueued[R]:
        """Sends one job that `task.job(…)` made. Sending it again is a repeat, not a second job.

        Raises:
            TypeError, ConfigError: not a job, or one of another queue.
            DuplicateJob, QueueFull, StoreUnavailable: as `Plan.enqueue`.
        """
        check_job(job, self._name)
        return await self._send(job)

    async def enqueue_many(self, jobs: Iterable[NewJob[R]], /) -> list[Enqueued[R]]:
        """Sends any number of jobs, in batches; answers in their order.

        All are checked before the first is sent. Each batch (100 jobs) is written whole or not at all,
        but not all of them together: after an error some may have been sent. Sending the same jobs again
        is safe.

        Raises:
            TypeError, ConfigError: one is not a job, or of another queue; none was sent.
            DuplicateJob: one with on_duplicate="raise" has an id that was taken; all others were sent.
            QueueFull, StoreUnavailable: as `Plan.enqueue`. ValueError: one is due beyond the backlog's
                horizon; none was sent.
        """
        checked = list(jobs)
        for job in checked:
            check_job(job, self._name)
            self._check_horizon(due_of_job(job), job.id)
        if not checked:
            return []
        placed = await place(await self._store(), checked)
        for job, answer in zip(checked, placed, strict=True):
            if not answer.created and on_duplicate_of(job) == "raise":
                raise DuplicateJob(answer.job_id or job.id)
        return [
            Enqueued(answer.job_id or job.id, self, answer)
            for job, answer in zip(checked, placed, strict=True)
        ]

    async def send(
        self,
        task: str,
        args: tuple[object, ...] | list[object] = (),
        kwargs: Mapping[str, object] | None = None,
        *,
        after: Duration | None = None,
        at: datetime | None = None,
        **options: Unpack[CallOptions],
    ) -> Enqueued[object]:
        """Sends a job for a task by name: short for `queue.stub(task).after(after).enqueue(*args,
        **kwargs)`.

        Raises:
            TypeError, ValueError: wrong times, options or arguments; a string as `args` too.
            PayloadError, DuplicateJob, QueueFull, StoreUnavailable: as `Plan.enqueue`.
        """
        check_args(args, kwargs)
        plan = self._by_name(task)._with(due_of(after, at, needed=False), {}, NO_OPTIONS)
        return await plan.options(**options).enqueue(*args, **(kwargs or {}))

    async def _send(self, job: NewJob[R], /) -> Enqueued[R]:
        self._check_horizon(due_of_job(job), job.id)
        store = self._connections.ready() or await self._connections.store()
        (placed,) = await write(store, writer_of(job), [to_entry(job)])
        if on_duplicate_of(job) == "raise" and not placed.created:
            raise DuplicateJob(placed.job_id or job.id)
        return Enqueued(placed.job_id or job.id, self, placed)

    # ---- one job by its id

    @overload
    def by_id(self, job_id: str, /) -> Job[object]: ...
    @overload
    def by_id(self, job_id: str, /, *, returns: type[R]) -> Job[R]: ...
    def by_id(self, job_id: str, /, *, returns: type[R] | None = None) -> Job[R] | Job[object]:
        """The handle of a job; `returns` is the type of its result, for type checkers.

        Raises:
            TypeError, ValueError: no possible id.
        """
        del returns
        return Job(check_job_id(job_id), self)

    async def cancel(self, job_id: str, /) -> Change:
        """Removes a scheduled job. The answer is true if it was, and says where the job was."""
        (was,) = await (await self._store()).cancel([check_job_id(job_id)])
        return _changed(was)

    @overload
    async def reschedule(self, job_id: str, /, *, after: Duration) -> Change: ...
    @overload
    async def reschedule(self, job_id: str, /, *, at: datetime) -> Change: ...
    async def reschedule(
        self, job_id: str, /, *, after: Duration | None = None, at: datetime | None = None
    ) -> Change:
        """Gives a scheduled job another due time: `after` counts from now, not from its old due time.

        Raises:
            TypeError, ValueError: both or none of the two, no usable time or id, or a time beyond the
                backlog's horizon.
            QueueFull: the server is out of memory; nothing was changed.
        """
        return await self._reschedule(job_id, after, at)

    async def explain(self, job_id: str, /) -> Explanation:
        """Why a job does (not) run, in words: where it is, due in, held by whom, its errors, a pause."""
        store = await self._store()
        (found,) = await store.find([check_job_id(job_id)])
        return explain_job(found, self._name, await store.stats())

    async def _state(self, job_id: str, /) -> JobState:
        (found,) = await (await self._store()).find([job_id])
        return found.was

    async def _reschedule(self, job_id: str, after: Duration | None, at: datetime | None, /) -> Change:
        move = check_job_id(job_id), due_of(after, at, needed=True)
        self._check_horizon(move[1], job_id)
        (was,) = await (await self._store()).reschedule([move])
        return _changed(was)

    # ---- the whole queue

    async def stats(self) -> QueueStats:
        """How many jobs are where, at one moment."""
        now = await (await self._store()).stats()
        overdue = to_length(now.oldest_overdue_ms)
        return QueueStats(now.due, now.scheduled, now.processing, now.dead, overdue, now.paused is not None)

    async def peek(
        self, state: Literal["scheduled", "processing", "dead"], /, *, limit: int = 20
    ) -> list[JobInfo]:
        """The first `limit` jobs of a place: by due time, by the end of their lease, or by burial.

        Raises:
            ValueError: another state, or a limit outside of 1 to 10,000.
        """
        if state not in _LISTED:
            raise ValueError(f"state={state!r}: expected one of {', '.join(map(repr, _LISTED))}")
        if not 1 <= limit <= _MOST_LISTED:
            raise ValueError(f"limit={limit!r}: expected 1 to {_MOST_LISTED}")
        page = await (await self._store()).peek(state, limit=limit)
        return [show_job(job) for job in page.jobs]

    async def pause(self, reason: str = "") -> None:
        """Lets no worker take a job from now on, until `resume`; those that run go on. Enqueuing goes on
        too."""
        await (await self._store()).pause(reason)

    async def resume(self) -> None:
        """Ends a pause; waiting workers look at once."""
        await (await self._store()).resume()

    async def check(self, *, repair: bool = False) -> CheckReport:
        """Looks for what contradicts itself in the stored queue, and mends it if told to. It goes through
        all of the queue in short steps; workers and producers go on meanwhile.

        A sound queue has nothing to find. Faults are left by an evicting server, a restored snapshot, or
        changes by hand. A job is brought back rather than dropped: it may run a second time.
        """
        await self._store()
        reports = [
            await check_shard(self._name, part.inspector(), repair=repair)
            for part in self._connections.parts()
        ]
        return merged(self._name, reports)

    # ---- connections

    async def aclose(self) -> None:
        """Closes the connection of this event loop, unless an `async with` holds it. Later use opens
        again."""
        await self._connections.aclose()

    async def __aenter__(self) -> Self:
        await self._connections.enter()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._connections.leave()

    # ---- for workers and the parts of this room

    async def _agree(self) -> None:
        """Returns when the layout is known to be ours; for a worker, which waits for its server as long as it
        takes. Raises ConfigError for another layout."""
        told = False
        while True:
            try:
                await self._store()
            except StoreUnavailable as error:
                if not told:
                    log.warning(
                        "queue %s: its shards cannot be asked for yet, trying on: %s", self._name, error
                    )
                told = True
                await asyncio.sleep(_AGREE_AGAIN_S)
            else:
                return

    def _stores(self) -> Sequence[Store]:
        return self._connections.parts()

    def _handlers(self) -> Mapping[str, Handler]:
        """The tasks that this process can run. Raises ConfigError for one whose annotations cannot be
        read."""
        handlers: dict[str, Handler] = {}
        for name, task in self._tasks.items():
            if isinstance(task, Task | SyncTask):
                task._handler.make_ready()
                shards = self._connections.shards
                if shards > 1 and task._handler.policy.max_running is not None:
                    raise ConfigError(
                        f"task {name!r} has max_running, and queue {self._name!r} {shards} shards: limits "
                        "are not kept over shards in this version; give it a queue that is not divided"
                    )
                handlers[name] = task._handler
        return handlers

    def _check_horizon(self, due: Due, job_id: str) -> None:
        if self._backlog.horizon is not None:
            self._backlog.check_due(due, time.time_ns() // 1_000_000, f"job {job_id!r}")

    async def _store(self) -> QueueStore:
        return self._connections.ready() or await self._connections.store()

    def _by_name(self, name: str) -> TaskRef[..., object]:
        return TaskRef(self, check_task_name(name), Arguments(name, None), (), typed=False)

    def _register(self, task: TaskRef[..., object], /, *, implements: bool = False) -> None:
        other = self._tasks.get(task.name)
        if other is not None and not same_function(task, other):
            if isinstance(other, Stub) and not isinstance(task, Stub) and not implements:
                raise ConfigError(
                    f"task {task.name!r} is declared by a stub: register its handler with implement"
                )
            if not isinstance(other, Stub) or not implements:
                raise ConfigError(
                    f"queue {self._name!r} has a task {task.name!r} already; pass another name="
                )
        self._tasks[task.name] = task


def _named(fn: Callable[..., object], name: str | None) -> tuple[str, Callable[..., Any]]:
    check_function(fn)
    try:
        return check_task_name(name_of(fn) if name is None else name), fn
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error


def _backlog_of(queue: str, backlog: object) -> Backlog:
    if backlog is None or isinstance(backlog, Backlog):
        return backlog or Backlog()
    raise ConfigError(f"queue {queue!r}: backlog={backlog!r}: expected a Backlog or None")


def _shown(fn: object) -> str:
    return "options" if fn is None else getattr(fn, "__qualname__", repr(fn))


def _changed(was: Was) -> Change:
    return Change(was == "scheduled", was)
