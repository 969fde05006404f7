"""A task's rules with every option filled in, as the worker applies them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Final, Literal, TypeAlias, cast, get_args

import msgspec
from msgspec import UNSET, Struct

from aiodq._core.backoff import Backoff, Exponential, Failure, Fixed
from aiodq._core.directives import Directive
from aiodq._core.envelope import Carried
from aiodq._core.errors import ConfigError, PayloadError
from aiodq._core.limit import MaxRunning
from aiodq._core.rate import Rate

MAX_ATTEMPTS: Final = 10
TIMEOUT_MS: Final = 3_600_000
MAX_CRASHES: Final = 3

OnError: TypeAlias = Callable[[Failure], Directive | None]
OnExpired: TypeAlias = Literal["drop", "bury"]


class Policy(Struct, frozen=True, kw_only=True):
    """The rules of one task. Checks itself; all times in ms.

    Attributes:
        max_attempts: runs that may fail, the first one included; then the job is buried.
        timeout_ms: how long one run may take; None: without limit.
        expires_ms: how long after its due time a job may still be started; None: for ever.
        keep_result_ms: how long its result is kept; 0: not at all.
        backoff: the wait after a failure.
        retry_on: only these errors are run again, others bury the job. Of an exception group every leaf must
            match (or the group itself). What is no Exception at all is always run again.
        bury_on: these bury the job at once; goes before `retry_on`. Of a group one matching leaf is enough.
        on_error: asked first about each error; returns a directive, or None for the rules above.
        on_expired: whether an expired job is dropped or buried.
        max_crashes: how many times a worker may die with the job until it is buried.
        rate: how often its jobs may start, over all workers; None: as often as they come.
        max_running: how many of its jobs may run at a time, over all workers; None: as many as can.

    Raises:
        ConfigError: a value is outside its range.
    """

    max_attempts: int = MAX_ATTEMPTS
    timeout_ms: int | None = TIMEOUT_MS
    expires_ms: int | None = None
    keep_result_ms: int = 0
    backoff: Backoff = Exponential()
    retry_on: tuple[type[Exception], ...] = (Exception,)
    bury_on: tuple[type[Exception], ...] = ()
    on_error: OnError | None = None
    on_expired: OnExpired = "drop"
    max_crashes: int = MAX_CRASHES
    rate: Rate | None = None
    max_running: MaxRunning | None = None

    def __post_init__(self) -> None:
        _whole("max_attempts", self.max_attempts, least=1)
        _whole("max_crashes", self.max_crashes, least=1)
        _whole("keep_result", self.keep_result_ms, least=0)
        if self.timeout_ms is not None:
            _whole("timeout", self.timeout_ms, least=1)
        if self.expires_ms is not None:
            _whole("expires", self.expires_ms, least=1)
        if not isinstance(self.backoff, (Exponential, Fixed)) and not callable(self.backoff):
            raise ConfigError(
                f"expected backoff to be Exponential, Fixed or a function, got {self.backoff!r}"
            )
        _error_types("retry_on", self.retry_on)
        _error_types("bury_on", self.bury_on)
        if self.on_error is not None and not callable(self.on_error):
            raise ConfigError(f"expected on_error to be a function, got {self.on_error!r}")
        for name, hook in (("on_error", self.on_error), ("backoff", self.backoff)):
            if inspect.iscoroutinefunction(hook):
                raise ConfigError(
                    f"expected {name} to be a plain function, got the coroutine function {hook!r}"
                )
        _rate_or_none(self.rate)
        _limit_or_none(self.max_running)
        if self.on_expired not in get_args(OnExpired):
            raise ConfigError(f'expected on_expired to be "drop" or "bury", got {self.on_expired!r}')

    def with_carried(self, carried: Carried | None) -> Policy:
        """These rules with the options that travelled with a job, which go first.

        Raises:
            PayloadError: the job carries a value that no producer of ours would write.
        """
        if carried is None:
            return self
        changes: dict[str, object] = {
            name: value
            for name, value in (
                ("max_attempts", carried.max_attempts),
                ("timeout_ms", carried.timeout_ms),
                ("expires_ms", carried.expires_ms),
                ("keep_result_ms", carried.keep_result_ms),
            )
            if value is not UNSET
        }
        if not changes:
            return self
        try:
            return msgspec.structs.replace(self, **changes)
        except ConfigError as error:
            raise PayloadError(f"the job carries an unusable option: {error}") from error


def _whole(name: str, value: object, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"expected {name} to be a whole number of at least {least}, got {value!r}")


def _rate_or_none(value: object) -> None:
    if value is not None and not isinstance(value, Rate):
        raise ConfigError(f"expected rate to be a Rate or None, got {value!r}")


def _limit_or_none(value: object) -> None:
    if value is not None and not isinstance(value, MaxRunning):
        raise ConfigError(f"expected max_running to be a MaxRunning or None, got {value!r}")


def _error_types(name: str, value: object) -> None:
    wanted = f"expected {name} to be a tuple of exception classes"
    if not isinstance(value, tuple):
        raise ConfigError(f"{wanted}, got {value!r}")
    for item in cast("tuple[object, ...]", value):
        if not isinstance(item, type) or not issubclass(item, Exception):
            raise ConfigError(f"{wanted}, got {item!r} in it")
        if issubclass(item, Directive):
            raise ConfigError(f"{name} cannot hold {item.__name__}: directives are obeyed before any rule")
