"""A user's mistakes. Both checkers must refuse every line that ends in `# wrong`, and no other line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta

from redis import Redis as BlockingRedis

from aiodq import (
    Backlog,
    Exponential,
    MaxRunning,
    NewJob,
    Queue,
    Rate,
    Retry,
    Share,
    Snooze,
    Unique,
    Worker,
    current_job,
    inject,
)


class Session: ...


class State:
    sessions: int


async def get_session() -> AsyncIterator[Session]:
    yield Session()


orders = Queue("orders", url="redis://127.0.0.1")


@orders.task(max_attempts=5)
async def close_order(order_id: str, note: str = "", *, db: Session = inject(get_session)) -> bool:
    return True


@orders.task
def render(page: int) -> bytes:
    return b""


@orders.stub
async def ship(order_id: str) -> None: ...


async def arguments() -> None:
    await close_order.enqueue()  # wrong
    await close_order.enqueue(17)  # wrong
    await close_order.enqueue("A1", nota="x")  # wrong
    await close_order.enqueue("A1", "x", "y")  # wrong
    await close_order.after(60).enqueue(order=1)  # wrong
    await render.enqueue("1")  # wrong
    await ship.enqueue(None)  # wrong
    close_order.job()  # wrong
    render("1")  # wrong
    await close_order.enqueue("A1", max_attempts=3)  # wrong
    await close_order.enqueue("A1", after=30)  # wrong


async def results() -> None:
    job = await close_order.enqueue("A1")
    number: str = await close_order("A1")  # wrong
    job.due_at = datetime.now(UTC)  # wrong
    text: NewJob[str] = render.job(1)  # wrong
    print(number, text, job.result)  # wrong


async def times() -> None:
    close_order.after("60")  # wrong
    close_order.after(minutes="3")  # wrong
    close_order.after(day=3)  # wrong
    close_order.after(None)  # wrong
    close_order.at(60)  # wrong
    close_order.at(date(2030, 1, 1))  # wrong
    close_order.at("2030-01-01")  # wrong
    await orders.reschedule("x")  # wrong
    await orders.reschedule("x", after=60, at=datetime.now(UTC))  # wrong
    await orders.reschedule("x", 60)  # wrong
    await orders.send("close_order", ("A1",), delay=30)  # wrong
    raise Retry(timedelta(1), after=3)  # wrong


async def options() -> None:
    close_order.options(job_idd="x")  # wrong
    close_order.options(on_duplicate="ignore")  # wrong
    close_order.options(max_attempts="3")  # wrong
    close_order.options(backoff=Exponential())  # wrong
    close_order.options(keep_result=60)  # wrong
    close_order.options(shard_key=7)  # wrong
    close_order.options(headers={"a": 1})  # wrong


@orders.task(max_atempts=3)  # wrong
async def misspelt() -> None: ...


@orders.task(job_id="x")  # wrong
async def call_option() -> None: ...


@orders.task(retry_on=OSError)  # wrong
async def no_tuple() -> None: ...


@orders.task(rate=3)  # wrong
async def rated() -> None: ...


@orders.task(rate=Rate(3, tenant="x"))  # wrong
async def keyed() -> None: ...


@orders.task
async def injected(*, db: str = inject(get_session)) -> None: ...  # wrong


@ship.implement  # wrong
async def ship_number(number: int) -> None: ...


@ship.implement  # wrong
async def ship_name(order: str) -> None: ...


async def queues() -> None:
    Queue("orders", backlog=100)  # wrong
    Queue("orders", backlog=Backlog(100))  # wrong
    close_order.options(rate=Rate(3))  # wrong
    MaxRunning(1, keys="tenant")  # wrong
    close_order.options(max_running=MaxRunning(1))  # wrong
    close_order.options(unique=60)  # wrong
    close_order.options(unique=Unique(60, mode="newest"))  # wrong
    close_order.options(spread="10 min")  # wrong
    await orders.dead.replay("a", spread="10 min")  # wrong
    Queue("orders", redis=BlockingRedis())  # wrong
    Queue("orders", "redis://127.0.0.1")  # wrong
    Queue("orders", scripting="lua")  # wrong
    Queue("orders", fifo="yes")  # wrong
    Queue("orders", shards="4")  # wrong
    Queue("orders", defaults={"timeoutt": 3})  # wrong
    await orders.send("close_order", args="A1001")  # wrong
    await orders.enqueue(close_order)  # wrong
    await orders.enqueue_many([close_order])  # wrong
    await orders.peek("done")  # wrong
    await orders.dead.purge()  # wrong
    Worker(orders, concurrenzy=3)  # wrong
    Worker("orders")  # wrong
    Share(orders, wait=2)  # wrong
    _ = current_job(State).state.db  # wrong
    _ = current_job().state.sessions  # wrong
    Snooze()  # wrong
