"""A queue, a task, a job, a worker: the four words to begin with. One idea in each test."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from aiodq import Enqueued, Queue, Worker


async def test_a_worker_runs_what_was_enqueued(orders: Queue) -> None:
    closed = asyncio.Event()

    @orders.task
    async def close_order(order_id: str) -> None:
        assert order_id == "A1001"
        closed.set()

    await close_order.enqueue("A1001")
    async with Worker(orders):
        await asyncio.wait_for(closed.wait(), 5)


async def test_a_delay_counts_from_the_moment_the_server_takes_the_job(orders: Queue) -> None:
    @orders.task
    async def close_order(order_id: str) -> None: ...

    job = await close_order.after(minutes=30).enqueue("A1001")
    assert job.due_at > datetime.now(UTC) + timedelta(minutes=29)
    assert await job.status() == "scheduled"


async def test_delays_are_seconds_or_timedeltas_or_given_in_parts(orders: Queue) -> None:
    @orders.task
    async def close_order(order_id: str) -> None: ...

    for plan in (
        close_order.after(5400),
        close_order.after(timedelta(hours=1.5)),
        close_order.after(hours=1, minutes=30),
    ):
        assert plan.job("A1001").after == 5400


async def test_a_due_time_is_an_aware_datetime(orders: Queue) -> None:
    @orders.task
    async def close_order(order_id: str) -> None: ...

    christmas = datetime(2030, 12, 24, 18, tzinfo=UTC)
    job = await close_order.at(christmas).enqueue("A1001")
    assert job.due_at == christmas
    with pytest.raises(ValueError, match="has no time zone"):
        close_order.at(datetime(2030, 12, 24, 18))  # noqa: DTZ001


async def test_no_job_starts_before_it_is_due(orders: Queue) -> None:
    started: list[datetime] = []
    all_started = asyncio.Event()

    @orders.task
    async def note() -> None:
        started.append(datetime.now(UTC))
        if len(started) == 3:
            all_started.set()

    async with Worker(orders):
        jobs = [await note.after(delay).enqueue() for delay in (0.3, 0.1, 0.2)]
        await asyncio.wait_for(all_started.wait(), 5)
    due = sorted(job.due_at for job in jobs)
    assert all(at >= when for at, when in zip(started, due, strict=True))


async def test_a_plain_function_is_run_in_a_thread(orders: Queue) -> None:
    pages: list[int] = []

    @orders.task
    def render(page: int) -> bytes:
        pages.append(page)
        return b"%PDF"

    job = await render.enqueue(3)
    await Worker(orders).run(burst=True)  # until nothing is due
    assert pages == [3]
    assert await job.status() == "absent"


async def test_a_task_stays_the_function_it_was(orders: Queue) -> None:
    @orders.task
    async def total(prices: list[int]) -> int:
        return sum(prices)

    assert await total([1, 2, 3]) == 6


async def test_arguments_are_checked_where_the_job_is_made(orders: Queue) -> None:
    @orders.task
    async def close_order(order_id: str) -> None: ...

    with pytest.raises(TypeError, match="missing a required argument: 'order_id'"):
        await close_order.enqueue()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="argument 'order_id': Expected `str`, got `int`"):
        await close_order.enqueue(1001)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_options_go_beside_the_arguments_never_among_them(orders: Queue) -> None:
    @orders.task(max_attempts=5, timeout=30)
    async def close_order(order_id: str, timeout: int = 0) -> None: ...

    job: Enqueued[None] = await close_order.options(timeout=5).enqueue("A1001", timeout=7)
    assert job.created
