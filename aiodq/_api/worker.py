"""The worker that users start: checks its settings, opens its queues, and runs the runtime in a task of its
own.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from types import TracebackType
from typing import Final, Self, cast

import anyio
from msgspec import Struct

from aiodq._api.share import ServedQueue, Share
from aiodq._core.durations import Duration, length_ms
from aiodq._core.errors import ConfigError
from aiodq._core.lease import LEASE_MS_MAX, LEASE_MS_MIN, WORKER_ID_LENGTH
from aiodq._core.names import job_id_from
from aiodq._worker.events import Event
from aiodq._worker.runtime import Runtime, Settings, Source

log: Final = logging.getLogger("aiodq.worker")

EXIT_STUCK: Final = 70
"""Exit code of a process whose handlers did not stop within the grace: `run()` then ends it at once."""

ENTER_S: Final = 5.0
"""How long entering waits for the first answers of the server; the worker goes on trying after that."""

_WORKER_VERSION: Final = "1"


class Health(Struct, frozen=True):
    """How a worker is. `consuming`: it claims, and the server answers; `running`: handlers running now;
    `last_claim_ago`: since a claim was last answered (an idle worker claims every ten to some tens of
    seconds), `timedelta.max` for a worker that does not run."""

    consuming: bool
    running: int
    last_claim_ago: timedelta


class Worker:
    """Runs the handlers of one or more queues. Constructing it does nothing else.

    Args:
        queues: the queues, or `Share`s of them.
        concurrency: how many handlers run at a time.
        lease: how long a job stays this worker's without renewal, 0.1 s to a day. Renewal is automatic; a
            longer lease bears longer outages, a shorter one gives jobs of a lost machine back sooner.
        grace: how long a stop may take. Running handlers may use most of it (all but a quarter, two seconds
            at most); then they are cancelled and their jobs given back, uncounted.
        lifespan: an async context manager around the work, without arguments; `current_job(State).state` is
            what it yields.
        modules: imported at the start, for the handlers in them.
        listeners: called in the worker's event loop with each event of `aiodq.events`; must not block.
        name: for logs; by default the host and process.
        presence: look for other workers that died, so that their jobs are taken over within a second.
            Without it they are taken over when their leases run out.

    Raises:
        ConfigError: a setting cannot be used.
    """

    def __init__(
        self,
        *queues: ServedQueue | Share,
        concurrency: int = 100,
        lease: Duration = 30,
        grace: Duration = 20,
        lifespan: Callable[[], AbstractAsyncContextManager[object]] | None = None,
        modules: Sequence[str] = (),
        listeners: Sequence[Callable[[Event], None]] = (),
        name: str | None = None,
        presence: bool = True,
    ) -> None:
        self._shares = _shares(queues)
        self._concurrency = _count("concurrency", concurrency)
        self._lease_ms = _length("lease", lease)
        if not LEASE_MS_MIN <= self._lease_ms <= LEASE_MS_MAX:
            raise ConfigError(f"expected lease to be 0.1 s to one day, got {lease!r}")
        self._grace_ms = _length("grace", grace, zero=True)
        if lifespan is not None:
            _function("lifespan", lifespan)
        self._lifespan = lifespan
        self._modules = _names("modules", modules)
        self._listeners = tuple(listeners)
        for listener in self._listeners:
            _function("listeners", listener)
        self._name = name
        self._presence = presence
        self._busy = False
        self._stop_asked = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runtime: Runtime | None = None
        self._entered: AbstractAsyncContextManager[tuple[Runtime, asyncio.Task[None]]] | None = None

    @property
    def name(self) -> str:
        """The name in logs."""
        return self._name or f"{os.uname().nodename}-{os.getpid()}"

    async def run(self, *, burst: bool = False) -> None:
        """Works until stopped: by `stop()`, SIGINT or SIGTERM (in the main thread), or with `burst` when
        nothing is due. A second signal cuts the grace short.

        Cancelling it stops the worker too: handlers are cancelled at once, their jobs given back, then the
        cancellation passes on. If a handler does not stop within the grace and signals are ours, the
        process ends with exit code 70 (`EXIT_STUCK`), as nothing else would end it; its job is given back
        before.

        Raises:
            ConfigError: no handler was found, or the worker already runs.
        """
        runtime: Runtime | None = None
        signals = _Signals(self)
        with signals:
            try:
                async with self._opened(burst=burst, exits=signals.ours) as (runtime, task):
                    await _over(runtime, task)
            except asyncio.CancelledError:
                if not signals.cancelled_start:
                    raise
                log.info("worker %s stopped while it was starting", self.name)
        if runtime is not None and runtime.stuck and signals.ours:
            log.critical(
                "worker %s: handlers did not stop; the process exits with code %d", self.name, EXIT_STUCK
            )
            logging.shutdown()
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            os._exit(EXIT_STUCK)

    def stop(self) -> None:
        """Stops gracefully: no more claims, running handlers may end within the grace. From any thread; at
        once a no-op for a worker that does not run."""
        self._tell(lambda runtime: runtime.stop())

    def cut_short(self) -> None:
        """Stops and cancels running handlers now; their jobs are given back, uncounted. From any thread."""
        self._tell(lambda runtime: runtime.cut_short())

    def health(self) -> Health:
        """How the worker is right now; no I/O."""
        runtime = self._runtime
        if runtime is None:
            return Health(consuming=False, running=0, last_claim_ago=timedelta.max)
        ago = timedelta(seconds=max(0.0, time.monotonic() - runtime.last_claim))
        return Health(consuming=runtime.answering, running=runtime.running, last_claim_ago=ago)

    async def __aenter__(self) -> Self:
        """Starts the worker inside an application, without signals; returns when it consumes (or after 5 s
        without the server, when it goes on trying).

        Raises:
            ConfigError: no handler was found, or the worker already runs.
        """
        opened = self._opened(burst=False, exits=False)
        runtime, task = await opened.__aenter__()
        try:
            await _consuming(runtime, task)
        except BaseException:
            if not await opened.__aexit__(*sys.exc_info()):
                raise
        self._entered = opened
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Stops the worker gracefully, within the grace; cancelled meanwhile, it cuts the grace short. A
        handler that does not stop is logged and left behind."""
        opened, self._entered = self._entered, None
        if opened is not None:
            await opened.__aexit__(None, None, None)

    @asynccontextmanager
    async def _opened(
        self, *, burst: bool, exits: bool
    ) -> AsyncGenerator[tuple[Runtime, asyncio.Task[None]], None]:
        """The worker at work, between lifespan and queues around it and the end of its runtime."""
        loop = _asyncio_loop()
        if self._busy:
            raise ConfigError("this worker already runs: make another one")
        self._busy, self._loop = True, loop
        try:
            async with AsyncExitStack() as stack:
                sources = await self._sources(stack)
                state: object = None
                if self._lifespan is not None:
                    state = await stack.enter_async_context(self._lifespan())
                settings = Settings(
                    worker_id=_worker_id(),
                    concurrency=self._concurrency,
                    lease_ms=self._lease_ms,
                    grace_ms=self._grace_ms,
                    presence=self._presence,
                    burst=burst,
                    exits=exits,
                )
                runtime = Runtime(settings, sources, state=state, listeners=self._listeners)
                # Its own task: no cancellation of the caller's comes between a claim and its end.
                task = asyncio.create_task(runtime.run(), name="aiodq-worker")
                self._runtime = runtime
                if self._stop_asked:
                    runtime.stop()
                log.info("worker %s serves %s", self.name, ", ".join(source.queue for source in sources))
                try:
                    yield runtime, task
                finally:
                    runtime.stop()
                    await _over(runtime, task)
        finally:
            self._busy, self._stop_asked, self._runtime, self._loop = False, False, None, None

    async def _sources(self, stack: AsyncExitStack) -> list[Source]:
        for module in self._modules:
            importlib.import_module(module)
        if not any(share.queue._handlers() for share in self._shares):
            names = ", ".join(share.queue.name for share in self._shares)
            raise ConfigError(
                f"no task of queue {names} has a handler here: import the modules that define them, "
                'or name these as Worker(modules=("shop.handlers",))'
            )
        sources: list[Source] = []
        for share in self._shares:
            await stack.enter_async_context(share.queue)
            await share.queue._agree()
            sources.append(
                Source(
                    queue=share.queue.name,
                    stores=share.queue._stores(),
                    handlers=share.queue._handlers(),
                    weight=share.weight,
                    concurrency=share.concurrency,
                    priority=share.priority,
                    dead_age_ms=share.queue._retention.age_ms,
                    dead_count=share.queue._retention.count,
                )
            )
        return sources

    def _tell(self, message: Callable[[Runtime], None]) -> None:
        loop = self._loop
        if loop is None:
            return
        self._stop_asked = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: it is over
            loop.call_soon_threadsafe(self._deliver, message)

    def _deliver(self, message: Callable[[Runtime], None]) -> None:
        if self._runtime is not None:
            message(self._runtime)


class _Signals:
    """SIGINT and SIGTERM stop the worker while this is entered, where the platform and the thread allow
    it.
    """

    def __init__(self, worker: Worker) -> None:
        self.ours = False
        self.cancelled_start = False
        self._worker = worker
        self._before: dict[signal.Signals, object] = {}
        self._count = 0
        self._task: asyncio.Task[object] | None = None

    def __enter__(self) -> Self:
        loop = _asyncio_loop()
        self._task = asyncio.current_task()
        try:
            if threading.current_thread() is not threading.main_thread():
                raise RuntimeError("not the main thread")
            for number in (signal.SIGINT, signal.SIGTERM):
                before = signal.getsignal(number)
                loop.add_signal_handler(number, self._received, number)
                self._before[number] = before
            self.ours = True
        except (NotImplementedError, RuntimeError, ValueError) as error:
            log.warning("signals do not stop this worker (%s); use worker.stop(), or cancel run()", error)
        return self

    def __exit__(self, *exc: object) -> None:
        loop = _asyncio_loop()
        for number, before in self._before.items():
            loop.remove_signal_handler(number)
            if callable(before) or isinstance(before, signal.Handlers):
                signal.signal(number, before)
        self._before.clear()

    def _received(self, number: signal.Signals) -> None:
        self._count += 1
        worker = self._worker
        if worker._runtime is None:
            if self._task is not None and not self.cancelled_start:
                self.cancelled_start = True
                self._task.cancel()
        elif self._count == 1:
            log.info("%s: worker %s stops; again to cut it short", signal.Signals(number).name, worker.name)
            worker.stop()
        else:
            log.warning("%s again: worker %s cancels its handlers", signal.Signals(number).name, worker.name)
            worker.cut_short()


async def _over(runtime: Runtime, task: asyncio.Task[None]) -> None:
    """Waits for the runtime's end. Cancelled meanwhile, the runtime is cut short and still waited for (its
    end is bounded); then the cancellation passes on."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        # Shielded from anyio's scopes after the first cancellation, which they would repeat without end.
        with anyio.CancelScope(shield=cancelled is not None):
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = error
                runtime.cut_short()
    if cancelled is not None:
        raise cancelled
    if not task.cancelled():
        task.result()


async def _consuming(runtime: Runtime, task: asyncio.Task[None]) -> None:
    waiting = asyncio.create_task(runtime.consuming.wait())
    try:
        await asyncio.wait((waiting, task), timeout=ENTER_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if not task.done() and not runtime.consuming.is_set():
        log.warning("the server has not answered for %g s; the worker goes on trying", ENTER_S)


def _asyncio_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError as error:
        raise ConfigError(
            "workers run on asyncio: use anyio.run(worker.run) with its default backend"
        ) from error


def _worker_id() -> str:
    """Of a fixed width, for lease tokens; made after a fork, never before."""
    random_part = job_id_from(os.urandom(WORKER_ID_LENGTH - len(_WORKER_VERSION)))
    return f"{_WORKER_VERSION}{random_part}"


def _shares(queues: Sequence[ServedQueue | Share]) -> tuple[Share, ...]:
    if not queues:
        raise ConfigError("expected Worker(queue, …): a worker needs a queue")
    for queue in queues:
        if not isinstance(cast("object", queue), Share | ServedQueue):
            several = ": write Worker(*queues)" if isinstance(queue, list | tuple) else ""
            raise ConfigError(f"expected Worker(queue, …) with Queues or Shares, got {queue!r}{several}")
    shares = tuple(queue if isinstance(queue, Share) else Share(queue) for queue in queues)
    names = [share.queue.name for share in shares]
    if len({id(share.queue) for share in shares}) < len(shares):
        raise ConfigError(f"a queue was given twice to one worker: {', '.join(names)}")
    return shares


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"expected {name} to be a whole number of at least 1, got {value!r}")
    return value


def _length(name: str, value: Duration, *, zero: bool = False) -> int:
    try:
        return length_ms(value, name, zero=zero)
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error


def _function(name: str, value: object) -> None:
    if not callable(value):
        raise ConfigError(f"expected {name} to be callable, got {value!r}")


def _names(name: str, value: Sequence[str]) -> tuple[str, ...]:
    given: object = value
    if isinstance(given, str):
        raise ConfigError(f"expected {name} to be a tuple of module names, got the string {given!r}")
    return tuple(value)
