"""A user's module, with every form of the public interface. Both checkers must accept it in strict mode."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import assert_type

from redis.asyncio import Redis

from aiodq import (
    Backlog,
    Bury,
    DeadRetention,
    Directive,
    DuplicateJob,
    Enqueued,
    Exponential,
    Failure,
    Fixed,
    Job,
    MaxRunning,
    NewJob,
    Plan,
    Queue,
    Rate,
    Retry,
    RunningJob,
    Share,
    Snooze,
    TaskRef,
    Unique,
    Worker,
    current_job,
    inject,
)
from aiodq.types import (
    CallOptions,
    Change,
    DeadJob,
    Explanation,
    JobInfo,
    JobState,
    QueueStats,
    Replayed,
    TaskOptions,
)


@dataclass
class Order:
    id: str
    total: float


class Session:
    async def save(self, order: Order) -> None: ...


@dataclass
class State:
    sessions: int


def settings_url() -> str:
    return "redis://127.0.0.1"


async def get_session() -> AsyncIterator[Session]:
    yield Session()


async def get_token() -> str:
    return "t"


def get_limit() -> int:
    return 3


def judge(failure: Failure) -> Directive | None:
    if failure.failures > 3:
        return Bury("too often")
    return Retry(timedelta(minutes=1)) if isinstance(failure.error, OSError) else None


DEFAULTS: TaskOptions = {"timeout": 30, "headers": {"team": "shop"}}
CALL: CallOptions = {"job_id": "close-A1", "on_duplicate": "keep"}

orders = Queue("orders", url="redis://127.0.0.1:6379/0", defaults=DEFAULTS)
emails = Queue("emails", url=settings_url, prefix="shop", scripting="functions", fifo=True, shards=4)
lent = Queue("lent", redis=Redis(host="127.0.0.1"), retention=DeadRetention(age=timedelta(days=1)))


@orders.task(
    max_attempts=5,
    backoff=Exponential(first=1, cap=300),
    timeout=timedelta(seconds=30),
    expires=None,
    retry_on=(OSError,),
    bury_on=(ValueError,),
    on_error=judge,
    on_expired="bury",
    max_crashes=2,
)
async def close_order(
    order_id: str,
    note: str = "",
    *,
    db: Session = inject(get_session),
    token: str = inject(get_token),
    limit: int = inject(get_limit),
) -> bool:
    job = current_job(State)
    assert_type(job, RunningJob[State])
    assert_type(job.state.sessions, int)
    await db.save(Order(order_id, job.attempt))
    if job.last_attempt:
        raise Snooze(at=datetime(2030, 1, 1, tzinfo=UTC), reason=token)
    await job.extend()
    return limit > job.failures + job.crashes + job.interruptions + job.snoozes


@orders.task
async def plain(order: Order) -> Order:
    assert_type(current_job(), RunningJob[object])
    return order


@orders.task(
    rate=Rate(100, per=timedelta(minutes=1), burst=10, key="tenant"),
    spread=60,
    max_running=MaxRunning(1, key="tenant"),
)
async def rated(tenant: str) -> None:
    await rated.options(spread=timedelta(seconds=5)).enqueue("t7")


@orders.task(rate=None, spread=0, unique=Unique(60, key="n", mode="last"))
async def unrated(n: int) -> None:
    await unrated.options(unique=None).enqueue(1)
    await unrated.options(unique=Unique(timedelta(minutes=1))).enqueue(1)


@orders.task(name="render", backoff=Fixed(2))
def render(page: int, *, scale: float = 1.0) -> bytes:
    return bytes(page) if not current_job().stopping else b""


@orders.stub
async def ship(order_id: str) -> None: ...


@orders.stub(max_attempts=3)
async def weigh(order_id: str) -> float:
    raise NotImplementedError


@ship.implement
async def ship_it(order_id: str) -> None: ...


@weigh.implement(timeout=5)
async def weigh_it(order_id: str) -> float:
    return 1.0


class Service:
    async def weigh(self, order_id: str) -> float:
        return 2.0


def chosen(task: TaskRef[[str], object], late: bool) -> Plan[[str], object]:
    return task.after(60) if late else task


async def produce() -> None:
    assert_type(await close_order("A1", db=Session(), token="t", limit=1), bool)
    assert_type(render(3, scale=2), bytes)
    job = await close_order.enqueue("A1")
    assert_type(job, Enqueued[bool])
    assert_type(job.due_at, datetime)
    assert_type((job.created, job.replaced), tuple[bool, bool])
    assert_type(await plain.enqueue(Order("A1", 1)), Enqueued[Order])
    assert_type(await render.after(timedelta(hours=1)).enqueue(1, scale=2), Enqueued[bytes])
    assert_type(await weigh.enqueue("A1"), Enqueued[float])
    await close_order.after(minutes=30).enqueue("A1", note="late")
    await close_order.at(datetime(2030, 1, 1, tzinfo=UTC)).enqueue("A1")
    await (
        close_order.options(job_id="close-A1", on_duplicate="replace", max_attempts=2).after(5).enqueue("A1")
    )
    await close_order.options(**CALL).enqueue("A1")
    new = close_order.after(60).job("A1").with_headers({"trace": "1"})
    assert_type(new, NewJob[bool])
    assert_type(await orders.enqueue(new), Enqueued[bool])
    assert_type(await orders.enqueue_many([new]), list[Enqueued[bool]])
    mixed: list[NewJob[object]] = [close_order.job("A1"), ship.after(1).job("A2")]
    assert_type(await orders.enqueue_many(mixed), list[Enqueued[object]])
    await orders.enqueue_many(ship.job(f"A{number}") for number in range(3))
    assert_type(await orders.send("close_order", ("A1",), after=30), Enqueued[object])
    await orders.send("close_order", ["A1"], {"note": "x"}, at=datetime.now(UTC), job_id="x")
    await orders.stub("close_order").after(30).enqueue("A1", note="x")
    try:
        await close_order.options(on_duplicate="raise").enqueue("A1")
    except DuplicateJob as error:
        assert_type(error.job_id, str)


async def operate() -> None:
    assert_type(close_order.by_id("close-A1"), Job[bool])
    assert_type(orders.by_id("x", returns=bool), Job[bool])
    assert_type(orders.by_id("x"), Job[object])
    handle = orders.by_id("x")
    assert_type(await handle.status(), JobState)
    assert_type(await handle.explain(), Explanation)
    change = await handle.cancel()
    assert_type(change, Change)
    if not change and change.was == "processing":
        await handle.reschedule(after=60)
    assert_type(await orders.reschedule("x", at=datetime.now(UTC)), Change)
    assert_type(await orders.cancel("x"), Change)
    assert_type(await orders.stats(), QueueStats)
    assert_type(await orders.peek("scheduled", limit=5), list[JobInfo])
    assert_type(await orders.dead.list(limit=5, task="close_order", error="OSError"), Sequence[DeadJob])
    async for dead in orders.dead.scan(error="OSError"):
        assert_type(dead, DeadJob)
        assert_type(await orders.dead.replay(dead.id), Replayed)
    assert_type(await orders.dead.replay(["a", "b"], after=5), Replayed)
    assert_type(await orders.dead.replay("a", spread=timedelta(minutes=10)), Replayed)
    assert_type(await orders.dead.purge(older_than=timedelta(days=3), task="x"), int)
    assert_type(await orders.dead.get("x"), DeadJob | None)
    Queue("orders", backlog=Backlog(max_jobs=1000, max_bytes=1 << 30, horizon=timedelta(days=30)))
    await orders.pause("stock-taking")
    await orders.resume()
    await orders.aclose()


@asynccontextmanager
async def open_pools() -> AsyncGenerator[State]:
    yield State(3)


worker = Worker(
    orders,
    Share(emails, weight=2, concurrency=5),
    concurrency=100,
    lease=30,
    grace=timedelta(seconds=20),
    lifespan=open_pools,
    modules=("shop.handlers",),
)


async def in_an_app() -> None:
    async with orders, worker:
        assert_type(worker.health().running, int)
