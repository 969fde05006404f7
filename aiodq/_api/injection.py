"""Injected parameters: values that the worker makes for each run, such as a database session."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import TypeVar, cast, overload

from aiodq._core.errors import ConfigError
from aiodq._core.signature import Injected, Provider

T = TypeVar("T")


@overload
def inject(provider: Callable[[], AsyncIterator[T]], /) -> T: ...
@overload
def inject(provider: Callable[[], Awaitable[T]], /) -> T: ...
@overload
def inject(provider: Callable[[], T], /) -> T: ...
def inject(provider: Callable[[], object], /) -> object:
    """As the default of a handler's parameter: the worker calls `provider` for each run and passes what
    it gives.

    ```python
    async def get_session() -> AsyncIterator[Session]:
        async with pool.session() as session:
            yield session


    @orders.task
    async def close_order(order_id: str, *, db: Session = inject(get_session)) -> None: ...
    ```

    A provider takes no arguments and is an async generator (what follows its `yield` runs after the
    handler, whose error is raised at the `yield` and cannot be swallowed there), a coroutine function, or
    a function, which is called in the event loop and must not block. An injected parameter is never part
    of a job: passing it to `enqueue` is a TypeError. In a plain call of the handler it must be passed.

    Raises:
        ConfigError: not such a provider.
    """
    _check_provider(provider)
    return Injected(provider)


def _check_provider(provider: object) -> None:
    if not callable(provider):
        raise ConfigError(f"inject({provider!r}): expected a function that gives the value")
    name = getattr(provider, "__qualname__", repr(provider))
    if inspect.isgeneratorfunction(provider):
        raise ConfigError(f"inject({name}): a generator must be an async one: async def with yield")
    try:
        parameters = inspect.signature(provider).parameters.values()
    except ValueError:  # some built-in functions have no signature to look at
        return
    needed = [
        p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if needed:
        raise ConfigError(
            f"inject({name}): nobody would pass {', '.join(needed)}; a provider takes no arguments"
        )


async def call_injected(
    call: Callable[..., Awaitable[object]],
    args: tuple[object, ...],
    kwargs: dict[str, object],
    injected: Mapping[str, Injected],
) -> object:
    """Calls a handler with what its providers give, in their order, and ends the providers afterwards, in
    reverse."""
    providers = AsyncExitStack()
    try:
        for name, parameter in injected.items():
            kwargs[name] = await _value(parameter.provider, providers)
        result = await call(*args, **kwargs)
    except BaseException as error:
        await providers.__aexit__(type(error), error, error.__traceback__)
        raise  # whatever a provider made of it
    await providers.aclose()
    return result


async def _value(provider: Provider, providers: AsyncExitStack) -> object:
    made = provider()
    if isinstance(made, AsyncGenerator):
        values = cast("AsyncGenerator[object, None]", made)
        return await providers.enter_async_context(contextlib.asynccontextmanager(lambda: values)())
    if inspect.isawaitable(made):
        return await made
    return made
