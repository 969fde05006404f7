"""Tasks: functions that can be enqueued, and stubs of such."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from aiodq._api.handlers import FunctionHandler
from aiodq._api.plan import Sender, TaskRef
from aiodq._core.arguments import Arguments
from aiodq._core.errors import ConfigError
from aiodq._core.options import TaskOptions, make_policy, read_task_options
from aiodq._core.signature import Parameters, check_function, is_async

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Registry(Sender, Protocol):
    """The queue of a task, as stubs need it."""

    def _register(self, task: TaskRef[..., object], /, *, implements: bool = False) -> None: ...


class _Function(TaskRef[P, R_co]):
    """What coroutine and plain functions have in common as tasks."""

    def __init__(
        self, queue: Sender, name: str, fn: Callable[..., object], options: tuple[TaskOptions, ...]
    ) -> None:
        self._parameters = Parameters(name, fn)
        super().__init__(queue, name, Arguments(name, self._parameters), options, typed=True)
        self._handler = FunctionHandler(
            name,
            make_policy(*options, queue._defaults),
            fn,
            self._arguments,
            self._parameters,
            is_async=isinstance(self, Task),
        )
        rate = self._handler.policy.rate
        if rate is not None and rate.key is not None:
            self._parameters.check_key(rate.key, "Rate.key")
        limit = self._handler.policy.max_running
        if limit is not None and limit.key is not None:
            self._parameters.check_key(limit.key, "MaxRunning.key")
        if self._unique is not None and self._unique.key is not None:
            self._parameters.check_key(self._unique.key, "Unique.key")
        functools.update_wrapper(cast("Callable[..., object]", self), fn)


class Task(_Function[P, R_co]):
    """A task with a coroutine function as its handler. Called plainly it is that function."""

    fn: Callable[P, Awaitable[R_co]]

    def __init__(
        self, queue: Sender, name: str, fn: Callable[P, Awaitable[R_co]], options: tuple[TaskOptions, ...]
    ) -> None:
        super().__init__(queue, name, fn, options)
        self.fn = fn

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        """The handler's coroutine, run here and now; injected parameters must be passed."""
        self._parameters.check_plain_call(args, kwargs)
        return cast("Coroutine[Any, Any, R_co]", self.fn(*args, **kwargs))


class SyncTask(_Function[P, R_co]):
    """A task with a plain function as its handler, which workers run in threads. Called plainly it is that
    function.

    A thread cannot be cancelled: a long handler looks at `current_job().stopping`.
    """

    fn: Callable[P, R_co]

    def __init__(
        self, queue: Sender, name: str, fn: Callable[P, R_co], options: tuple[TaskOptions, ...]
    ) -> None:
        super().__init__(queue, name, fn, options)
        self.fn = fn

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Calls the handler here and now; injected parameters must be passed."""
        self._parameters.check_plain_call(args, kwargs)
        return self.fn(*args, **kwargs)


class Implement(Protocol[P, R]):
    """`@stub.implement(max_attempts=3)`"""

    @overload  # they overlap: a coroutine function is also a function that returns something; the first wins
    def __call__(self, fn: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncTask[P, R]: ...


class TaskDecorator(Protocol):
    """`@queue.task(max_attempts=3)`"""

    @overload  # as in Implement
    def __call__(self, fn: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncTask[P, R]: ...


class StubDecorator(Protocol):
    """`@queue.stub(max_attempts=3)`"""

    @overload
    def __call__(self, fn: Callable[P, Awaitable[R]], /) -> Stub[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Stub[P, R]: ...


class Stub(TaskRef[P, R]):
    """A task by its signature, for producers that do not import its handler. See `queue.stub`."""

    def __init__(self, queue: Registry, name: str, fn: Callable[..., object], options: TaskOptions) -> None:
        self._parameters = Parameters(name, fn)
        if self._parameters.injected:
            raise ConfigError(
                f"{name}(): a stub declares what jobs bring; inject belongs to its implementation"
            )
        super().__init__(queue, name, Arguments(name, self._parameters), (options,), typed=True)
        if self._unique is not None and self._unique.key is not None:
            self._parameters.check_key(self._unique.key, "Unique.key")
        self._registry = queue
        functools.update_wrapper(cast("Callable[..., object]", self), fn)

    @overload  # as in Implement
    def implement(self, fn: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def implement(self, fn: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def implement(self, /, **options: Unpack[TaskOptions]) -> Implement[P, R]: ...
    def implement(self, fn: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]) -> object:
        """Makes a function, or a bound method, the handler of this task. It takes what the stub takes;
        more only with defaults or injected. Its options go before the stub's.

        Raises:
            ConfigError: another signature, or the task has another handler already.
            TypeError: an unknown option.
        """
        read = read_task_options(f"{self.name}()", options)

        def implement(fn: Callable[..., Any], /) -> object:
            check_function(fn)
            task = make_task(self._registry, self.name, fn, (read, *self._options))
            task._parameters.check_takes_what(self._parameters)
            self._registry._register(task, implements=True)
            self._headers, self._spread_ms, self._unique = task._headers, task._spread_ms, task._unique
            return task

        return implement if fn is None else implement(fn)


def make_task(
    queue: Sender, name: str, fn: Callable[..., Any], options: tuple[TaskOptions, ...]
) -> Task[..., Any] | SyncTask[..., Any]:
    return (Task if is_async(fn) else SyncTask)(queue, name, fn, options)


def same_function(one: object, other: object) -> bool:
    """Whether two tasks are made of one function, seen twice because its module was loaded again."""
    names = [(getattr(x, "__module__", None), getattr(x, "__qualname__", None)) for x in (one, other)]
    return names[0] == names[1] and None not in names[0]


def name_of(fn: Callable[..., object]) -> str:
    """The name of a function as a task. Raises ConfigError for one without a name of its own."""
    inner = inspect.unwrap(fn)
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise ConfigError(f"{fn!r} has no name for its task: pass name=…")
    return name
