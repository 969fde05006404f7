"""Handlers: functions as the worker calls them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, cast

from aiodq._api.injection import call_injected
from aiodq._core.arguments import Arguments
from aiodq._core.envelope import Envelope
from aiodq._core.handler import Call, InThread
from aiodq._core.policy import Policy
from aiodq._core.rate import bucket_name, key_text
from aiodq._core.signature import Parameters


class FunctionHandler:
    """See `aiodq._core.handler.Handler`."""

    __slots__ = ("_arguments", "_fn", "_injected", "_is_async", "_parameters", "name", "policy")

    def __init__(
        self,
        name: str,
        policy: Policy,
        fn: Callable[..., object],
        arguments: Arguments,
        parameters: Parameters,
        *,
        is_async: bool,
    ) -> None:
        self.name = name
        self.policy = policy
        self._fn = fn
        self._arguments = arguments
        self._injected = parameters.injected
        self._parameters = parameters
        self._is_async = is_async

    def make_ready(self) -> None:
        """Reads the handler's annotations. Raises ConfigError when they cannot be used."""
        self._arguments.make_ready()

    def prepare(self, envelope: Envelope, in_thread: InThread, /) -> Call:
        args, kwargs = self._arguments.decode(envelope.args, envelope.kwargs)
        if self._is_async:
            if not self._injected:
                return cast("Call", partial(self._fn, *args, **kwargs))
            call = cast("Callable[..., Awaitable[object]]", self._fn)
        else:
            call = _threaded(self._fn, in_thread)
        if not self._injected:
            return cast("Call", partial(call, *args, **kwargs))
        return partial(call_injected, call, args, kwargs, self._injected)

    def bucket(self, envelope: Envelope, /) -> str:
        return self._named(envelope, None if self.policy.rate is None else self.policy.rate.key)

    def limited(self, envelope: Envelope, /) -> str:
        limit = self.policy.max_running
        return self._named(envelope, None if limit is None else limit.key)

    def _named(self, envelope: Envelope, key: str | None) -> str:
        if key is None:
            return bucket_name(self.name)
        args, kwargs = self._arguments.decode(envelope.args, envelope.kwargs)
        return bucket_name(self.name, key_text(self._parameters.value_of(key, args, kwargs)))


def _threaded(fn: Callable[..., object], in_thread: InThread) -> Callable[..., Coroutine[Any, Any, object]]:
    async def call(*args: object, **kwargs: object) -> object:
        result = await in_thread(partial(fn, *args, **kwargs))
        if inspect.isawaitable(result):  # a plain function that gives a coroutine, by some decorator
            return await result
        return result

    return call
