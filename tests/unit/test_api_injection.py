"""Handlers as the worker calls them: arguments decoded, threads, injected values made and ended."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, cast

import pytest

from aiodq import ConfigError, PayloadError, Queue, inject
from aiodq._core.envelope import Envelope, decode_envelope
from aiodq._core.jobs import to_entry


@pytest.fixture
def orders() -> Queue:
    return Queue("orders", url="memory://injection")


log: list[str] = []


@pytest.fixture(autouse=True)
def empty_log() -> None:
    log.clear()


async def session() -> AsyncIterator[str]:
    log.append("open")
    try:
        yield "session"
    except BaseException as error:
        log.append(f"undo {type(error).__name__}")
        raise
    else:
        log.append("commit")
    finally:
        log.append("close")


async def token() -> str:
    await asyncio.sleep(0)
    return "token"


def limit() -> int:
    return 3


async def in_thread(call: Callable[[], object]) -> object:
    return await asyncio.to_thread(call)


async def run(queue: Queue, name: str, *args: object, **kwargs: object) -> object:
    """As a worker would: from the stored job to the handler's result."""
    entry = to_entry(cast("Any", queue.tasks[name]).job(*args, **kwargs))
    return await queue._handlers()[name].prepare(decode_envelope(entry.payload), in_thread)()


async def test_a_handler_gets_its_arguments(orders: Queue) -> None:
    @orders.task
    async def close_order(order_id: str, *, times: int = 1) -> str:
        return order_id * times

    assert await run(orders, "close_order", "A", times=3) == "AAA"


async def test_a_plain_function_runs_in_a_thread(orders: Queue) -> None:
    @orders.task
    def render(page: int) -> tuple[int, bool]:
        return page, threading.current_thread() is threading.main_thread()

    assert await run(orders, "render", 3) == (3, False)


async def test_a_plain_function_that_gives_a_coroutine_is_awaited(orders: Queue) -> None:
    async def inner(order_id: str) -> str:
        return order_id

    def outer(order_id: str) -> Coroutine[Any, Any, str]:
        return inner(order_id)

    orders.task(name="both")(outer)
    assert await run(orders, "both", "A") == "A"


async def test_arguments_called_like_internal_ones_reach_the_handler(orders: Queue) -> None:
    @orders.task
    def odd(
        fn: int, call: int, self: int = 0, *, args: int, kwargs: int, db: str = inject(token)
    ) -> list[object]:
        return [fn, call, self, args, kwargs, db]

    assert await run(orders, "odd", 1, 2, 3, args=4, kwargs=5) == [1, 2, 3, 4, 5, "token"]


async def test_bound_methods_and_partials_run(orders: Queue) -> None:
    class Service:
        def __init__(self, name: str) -> None:
            self.name = name

        async def close(self, order_id: str, note: str = "") -> str:
            return self.name + order_id + note

    orders.task(name="bound")(Service("s").close)
    orders.task(name="part")(functools.partial(Service("p").close, note="!"))
    assert await run(orders, "bound", "A") == "sA"
    assert await run(orders, "part", "A") == "pA!"


async def test_values_are_made_for_each_run_and_ended_after_it(orders: Queue) -> None:
    @orders.task
    async def close_order(
        order_id: str, *, db: str = inject(session), key: str = inject(token), most: int = inject(limit)
    ) -> list[object]:
        log.append("run")
        return [order_id, db, key, most]

    for _ in range(2):
        assert await run(orders, "close_order", "A1") == ["A1", "session", "token", 3]
    assert log == ["open", "run", "commit", "close"] * 2


async def test_a_plain_function_gets_injected_values_too(orders: Queue) -> None:
    @orders.task
    def render(page: int, db: str = inject(session)) -> str:
        return f"{page} {db}"

    assert await run(orders, "render", 1) == "1 session"
    assert log == ["open", "commit", "close"]


async def test_an_error_of_the_handler_reaches_the_provider_and_goes_on(orders: Queue) -> None:
    @orders.task
    async def close_order(*, db: str = inject(session)) -> None:
        raise LookupError("no such order")

    with pytest.raises(LookupError, match="no such order"):
        await run(orders, "close_order")
    assert log == ["open", "undo LookupError", "close"]


async def test_a_provider_cannot_swallow_the_handlers_error(orders: Queue) -> None:
    async def swallows() -> AsyncIterator[str]:
        try:
            yield "x"
        except LookupError:
            log.append("swallowed")

    @orders.task
    async def close_order(*, db: str = inject(swallows), other: str = inject(session)) -> None:
        raise LookupError("no such order")

    with pytest.raises(LookupError):
        await run(orders, "close_order")
    assert log == ["open", "undo LookupError", "close", "swallowed"]


async def test_a_cancelled_handlers_values_are_ended(orders: Queue) -> None:
    @orders.task
    async def close_order(*, db: str = inject(session)) -> None:
        begun.set()
        await asyncio.sleep(60)

    begun = asyncio.Event()
    task = asyncio.ensure_future(run(orders, "close_order"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["open", "undo CancelledError", "close"]


async def test_a_provider_that_fails_fails_the_run_and_ends_those_before_it(orders: Queue) -> None:
    def broken() -> int:
        raise OSError("no database")

    @orders.task
    async def close_order(*, db: str = inject(session), more: int = inject(broken)) -> None:
        log.append("run")

    with pytest.raises(OSError, match="no database"):
        await run(orders, "close_order")
    assert log == ["open", "undo OSError", "close"]


async def test_a_failing_commit_fails_the_run(orders: Queue) -> None:
    async def commits() -> AsyncIterator[str]:
        yield "x"
        raise OSError("commit refused")

    @orders.task
    async def close_order(*, db: str = inject(commits)) -> None: ...

    with pytest.raises(OSError, match="commit refused"):
        await run(orders, "close_order")


async def test_injected_parameters_are_refused_in_enqueue_and_demanded_in_a_plain_call(orders: Queue) -> None:
    @orders.task
    async def close_order(order_id: str, *, db: str = inject(session)) -> str:
        return db

    with pytest.raises(TypeError, match="'db' is injected by the worker and cannot be passed with a job"):
        await close_order.enqueue("A1", db="mine")
    with pytest.raises(
        TypeError, match="'db' is injected when a worker runs it; in a plain call pass it: db=…"
    ):
        await close_order("A1")
    assert await close_order("A1", db="mine") == "mine"
    assert log == []


def blocking_generator() -> Iterator[str]:
    yield "x"


def needs(what: str) -> str:
    return what


@pytest.mark.parametrize(
    ("provider", "says"),
    [
        (blocking_generator, "inject(blocking_generator): a generator must be an async one"),
        (needs, "inject(needs): nobody would pass what; a provider takes no arguments"),
        (7, "inject(7): expected a function that gives the value"),
    ],
)
def test_what_provides_nothing_is_refused(provider: Any, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        inject(provider)
    assert says in str(caught.value)


def test_providers_of_all_callable_kinds_are_taken() -> None:
    for provider in (limit, functools.partial(needs, "x"), dict, lambda: 1, "x".upper):
        assert repr(inject(cast("Any", provider))).startswith("inject(")


async def test_b27_a_stored_job_that_does_not_fit_is_a_payload_error_before_anything_runs(
    orders: Queue,
) -> None:
    @orders.task
    async def close_order(order_id: str, *, db: str = inject(session)) -> None: ...

    with pytest.raises(PayloadError, match="missing a required argument: 'order_id'"):
        orders._handlers()["close_order"].prepare(Envelope(1, "close_order"), in_thread)
    assert log == []


def test_a_worker_that_starts_refuses_annotations_that_it_cannot_read(orders: Queue) -> None:
    @orders.task
    async def close_order(order_id: str) -> None: ...

    close_order.fn.__annotations__["order_id"] = "Missing"
    with pytest.raises(ConfigError, match="the annotation of parameter 'order_id' cannot be read"):
        orders._handlers()
