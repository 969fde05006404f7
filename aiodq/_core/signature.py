"""What a handler takes: its parameters, their types, which of them a job brings and which are injected.

Read when a function becomes a task; the annotations at first use, so that names may be defined later.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any, Final, TypeAlias, cast

from aiodq._core.errors import ConfigError

Provider: TypeAlias = Callable[[], object]

LOOSE: Final[object] = Any
"""The type of a parameter without annotation: anything that msgpack gives back as the type it was."""

_BY_POSITION: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_MANY: Final = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_BY_NAME: Final = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class Injected:
    """Stands as the default of a parameter whose value the worker makes for each run."""

    __slots__ = ("provider",)

    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    def __repr__(self) -> str:
        return f"inject({getattr(self.provider, '__qualname__', self.provider)})"


class Parameters:
    """The parameters of one task's function.

    Attributes:
        injected: providers by the name of their parameter.
        positions: names of the parameters that a job may bring by position.
        names: those that it may bring by name.
        rest: the name of `*rest`, if there is one; likewise `others` of `**others`.

    Raises:
        ConfigError: a parameter that no worker could fill.
    """

    def __init__(self, task: str, fn: Callable[..., object]) -> None:
        self.task = task
        self._fn = fn
        self.injected: dict[str, Injected] = {}
        taken: list[Parameter] = []
        for parameter in inspect.signature(fn).parameters.values():
            if self._is_injected(parameter):
                self.injected[parameter.name] = parameter.default
            elif not self.injected:
                taken.append(parameter)
            elif parameter.kind is Parameter.POSITIONAL_OR_KEYWORD:  # behind an injected one: by name only
                taken.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))
            elif parameter.kind is not Parameter.VAR_POSITIONAL:
                taken.append(parameter)
        self._public = Signature(sorted(taken, key=lambda parameter: parameter.kind))
        kinds = {parameter.kind: parameter.name for parameter in taken}
        self.rest: str | None = kinds.get(Parameter.VAR_POSITIONAL)
        self.others: str | None = kinds.get(Parameter.VAR_KEYWORD)
        self.positions: tuple[str, ...] = tuple(p.name for p in taken if p.kind in _BY_POSITION)
        self.names: frozenset[str] = frozenset(p.name for p in taken if p.kind in _BY_NAME)
        needed = [p for p in taken if p.default is Parameter.empty and p.kind in _BY_POSITION]
        self._least = len(needed)
        self._most = 1 << 32 if self.rest else len(self.positions)
        self._required = frozenset(p.name for p in taken if p.default is p.empty and p.kind not in _MANY)
        self._names_needed = any(
            p.kind is Parameter.KEYWORD_ONLY and p.default is Parameter.empty for p in taken
        )

    def _is_injected(self, parameter: Parameter) -> bool:
        default = parameter.default
        if isinstance(default, Injected):
            if parameter.kind is Parameter.POSITIONAL_ONLY:
                raise ConfigError(
                    f"{self.task}(): the injected parameter {parameter.name!r} must not be positional-only"
                )
            return True
        if _is_fastapi(default):
            raise ConfigError(
                f"{self.task}(): parameter {parameter.name!r} has FastAPI's Depends as its default, which "
                f"only FastAPI fills: write {parameter.name}: T = aiodq.inject(provider)"
            )
        return False

    def bind(self, args: tuple[object, ...] | list[object], kwargs: Mapping[str, object]) -> None:
        """Checks that a job may bring these. Raises TypeError like a call of the function would."""
        if not kwargs and not self._names_needed and self._least <= len(args) <= self._most:
            return
        for name in self.injected:
            if name in kwargs:
                raise TypeError(
                    f"{self.task}(): {name!r} is injected by the worker and cannot be passed with a job"
                )
        try:
            self._public.bind(*args, **kwargs)
        except TypeError as error:
            hint = f" (injected by the worker: {', '.join(self.injected)})" if self.injected else ""
            raise TypeError(f"{self.task}(): {error}{hint}") from None

    def check_plain_call(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Checks a direct call of the function: nobody injects there. Raises TypeError for the rest."""
        if self.injected:
            given = inspect.signature(self._fn).bind_partial(*args, **kwargs).arguments
            missing = [name for name in self.injected if name not in given]
            if missing:
                raise TypeError(
                    f"{self.task}(): {', '.join(map(repr, missing))} is injected when a worker runs it; "
                    f"in a plain call pass it: {missing[0]}=…"
                )

    def check_takes_what(self, stub: Parameters) -> None:
        """Checks that this function takes every job that `stub` lets through; types are for type checkers.

        Raises:
            ConfigError: it does not; the message shows both signatures.
        """
        positions = len(stub.positions)
        fits = (
            (self.positions[:positions] == stub.positions or self.rest is not None)
            and (self.others is not None or stub.names <= self.names)
            and self._required <= stub._required
            and (stub.rest is None or self.rest is not None)
            and (stub.others is None or self.others is not None)
        )
        if not fits:
            raise ConfigError(
                f"{self.task}(): the handler takes {self._public}, but its stub declares {stub._public}"
            )

    def check_key(self, name: str, of: str) -> None:
        """Checks that a job brings this parameter, by which something is told apart; `of` names the setting.

        Raises:
            ConfigError: it does not.
        """
        if name not in self._public.parameters or name in (self.rest, self.others):
            known = [known for known in self._public.parameters if known not in (self.rest, self.others)]
            raise ConfigError(
                f"{self.task}(): {of} is {name!r}, which is no parameter that jobs of this task bring: "
                f"expected {' or '.join(map(repr, known)) or 'one, and the handler has none'}"
            )

    def value_of(self, name: str, args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
        """What this parameter gets from a job's arguments; its default where they leave it out."""
        if name in kwargs:
            return kwargs[name]
        if name in self.positions and (position := self.positions.index(name)) < len(args):
            return args[position]
        return self._public.parameters[name].default

    def name_at(self, position: int) -> str:
        """The name of the parameter that an argument at this position goes to."""
        if position < len(self.positions):
            return self.positions[position]
        return f"{self.rest}[{position - len(self.positions)}]"

    def read_types(self) -> dict[str, object]:
        """The annotated type of every parameter that a job brings, `LOOSE` where there is none.

        Raises:
            ConfigError: an annotation cannot be read; the message names task and parameter.
        """
        annotations = self._annotations()
        return {name: self._read(name, annotations.get(name, LOOSE)) for name in self._public.parameters}

    def _annotations(self) -> Mapping[str, object]:
        try:
            return cast("Mapping[str, object]", getattr(_plain_function(self._fn), "__annotations__", {}))
        except NameError as error:  # Python 3.14 reads them all at this moment
            raise self._unreadable("?", error) from error

    def _read(self, name: str, annotation: object) -> object:
        holder = _Annotated({name: annotation})
        scope = getattr(_plain_function(self._fn), "__globals__", {})
        try:
            hint: object = typing.get_type_hints(holder, globalns=scope, localns={}, include_extras=True)[
                name
            ]
        except Exception as error:  # reading an annotation runs the user's code
            raise self._unreadable(name, error) from error
        if any(_is_fastapi(extra) for extra in getattr(hint, "__metadata__", ())):
            raise ConfigError(
                f"{self.task}(): parameter {name!r} is annotated with FastAPI's Depends, which only "
                f"FastAPI fills: write {name}: T = aiodq.inject(provider)"
            )
        return LOOSE if typing.get_origin(hint) is typing.Unpack else hint

    def _unreadable(self, name: str, error: Exception) -> ConfigError:
        return ConfigError(
            f"{self.task}(): the annotation of parameter {name!r} cannot be read: {error!r}. Workers need "
            f"the type at run time: define or import it at module level, outside of `if TYPE_CHECKING:`"
        )


class _Annotated:
    """Carries one annotation to `typing.get_type_hints`, so that an error has a parameter's name."""

    def __init__(self, annotations: dict[str, object]) -> None:
        self.__annotations__ = annotations


def _plain_function(fn: Callable[..., object]) -> Callable[..., object]:
    """The function inside of partials, bound methods, callable objects and well-behaved decorators."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    if not inspect.isroutine(fn):
        fn = type(fn).__call__
    return cast("Callable[..., object]", getattr(fn, "__func__", fn))


def _is_fastapi(value: object) -> bool:
    kind = type(value)
    return kind.__name__ in ("Depends", "Security") and kind.__module__.partition(".")[0] == "fastapi"


def check_function(fn: object) -> Callable[..., object]:
    """Gives a function back that can be a handler.

    Raises:
        ConfigError: a class, a generator, a method without its object, or not callable at all.
    """
    if isinstance(fn, staticmethod | classmethod):
        raise ConfigError(f"{fn!r} is not a plain function yet: put the task decorator below @staticmethod")
    if not callable(fn) or isinstance(fn, type):
        raise ConfigError(f"expected a function as handler, got {fn!r}")
    inner = _plain_function(fn)
    name = getattr(inner, "__qualname__", repr(fn))
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise ConfigError(
            f"{name} is a generator, of which a worker would run nothing: a handler returns or awaits"
        )
    if inner is fn and _lacks_its_object(fn):
        raise ConfigError(
            f"{name} is a method without its object: register the bound method of an object, "
            f"as in stub.implement(service.{name.rpartition('.')[2]})"
        )
    return fn


def is_async(fn: Callable[..., object]) -> bool:
    """Whether calling it gives a coroutine."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def _lacks_its_object(fn: Callable[..., object]) -> bool:
    scope = getattr(fn, "__qualname__", "").rpartition(".")[0]
    if not scope or scope.endswith("<locals>"):
        return False
    first = next(iter(inspect.signature(fn).parameters), "")
    return first in ("self", "cls")
