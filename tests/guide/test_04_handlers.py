"""Handlers: what they know of their job, what they are given, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiodq import Bury, Fixed, Queue, Retry, Snooze, Worker, current_job, inject


async def until_gone(queue: Queue, worker: Worker) -> None:
    async with worker:
        stats = await queue.stats()
        while stats.scheduled or stats.processing:
            await asyncio.sleep(0.01)
            stats = await queue.stats()


async def test_a_handler_that_fails_is_run_again(orders: Queue) -> None:
    attempts: list[int] = []

    @orders.task(max_attempts=3, backoff=Fixed(0.01))
    async def charge(order_id: str) -> None:
        job = current_job()
        attempts.append(job.attempt)
        if not job.last_attempt:
            raise ConnectionError("the bank is away")

    await charge.enqueue("A1001")
    await until_gone(orders, Worker(orders))
    assert attempts == [1, 2, 3]


async def test_a_handler_may_say_how_its_run_ends(orders: Queue) -> None:
    ends: list[str] = []

    @orders.task(max_attempts=2)
    async def check(order_id: str) -> None:
        job = current_job()
        if job.snoozes == 0:
            ends.append("snooze")
            raise Snooze(0.01)  # not yet; no failure
        if job.failures == 0:
            ends.append("retry")
            raise Retry(0.01, reason="not paid")  # a failure, but wait as long as I say
        ends.append("bury")
        raise Bury("never will be paid")  # give up now

    await check.enqueue("A1001")
    await until_gone(orders, Worker(orders))
    assert ends == ["snooze", "retry", "bury"]
    assert [dead.reason for dead in await orders.dead.list()] == ["never will be paid"]


async def test_a_handler_is_given_what_it_needs(orders: Queue) -> None:
    saved: list[str] = []

    class Session:
        def save(self, order_id: str) -> None:
            saved.append(order_id)

    async def get_session() -> AsyncIterator[Session]:
        saved.append("open")
        yield Session()
        saved.append("close")

    @orders.task
    async def close_order(order_id: str, *, db: Session = inject(get_session)) -> None:
        db.save(order_id)

    await close_order.enqueue("A1001")
    await until_gone(orders, Worker(orders))
    assert saved == ["open", "A1001", "close"]


@dataclass
class State:
    greeting: str


async def test_what_all_runs_share_is_made_once_by_the_lifespan(orders: Queue) -> None:
    said: list[str] = []

    @asynccontextmanager
    async def open_pools() -> AsyncGenerator[State]:
        yield State("hello")

    @orders.task
    async def greet(name: str) -> None:
        said.append(f"{current_job(State).state.greeting} {name}")

    await greet.enqueue("Ada")
    await until_gone(orders, Worker(orders, lifespan=open_pools))
    assert said == ["hello Ada"]


async def test_headers_travel_beside_the_arguments(orders: Queue) -> None:
    seen: list[str] = []

    @orders.task
    async def close_order(order_id: str) -> None:
        seen.append(current_job().headers["trace"])

    await close_order.options(headers={"trace": "4711"}).enqueue("A1001")
    await until_gone(orders, Worker(orders))
    assert seen == ["4711"]


async def test_dead_letters_can_be_looked_at_and_replayed(orders: Queue) -> None:
    broken = True

    @orders.task(max_attempts=1)
    async def close_order(order_id: str) -> None:
        if broken:
            raise LookupError(order_id)

    await close_order.enqueue("A1001")
    await until_gone(orders, Worker(orders))
    (dead,) = await orders.dead.list(error="LookupError")
    assert (dead.task, dead.args, dead.failures) == ("close_order", ("A1001",), 1)
    broken = False
    assert (await orders.dead.replay(dead.id)).ids == (dead.id,)
    await until_gone(orders, Worker(orders))
    assert await orders.dead.list() == []
