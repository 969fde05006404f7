"""How fast and how much: rates, limits, smeared bursts, full queues, unique jobs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from aiodq import Backlog, Bury, MaxRunning, Queue, QueueFull, Rate, Unique, Worker, current_job


async def test_a_rate_lets_jobs_start_so_often_over_all_workers(orders: Queue) -> None:
    started: list[datetime] = []
    all_have_started = asyncio.Event()

    @orders.task(rate=Rate(20, per=1))  # twenty a second, evenly spaced
    async def call_the_bank(order_id: str) -> None:
        job = current_job()
        started.append(datetime.now(UTC))
        assert (job.attempt, job.snoozes) == (1, 0)  # waiting for one's turn counts as nothing
        if len(started) == 4:
            all_have_started.set()

    await orders.enqueue_many([call_the_bank.job(f"A{n}") for n in range(4)])
    async with Worker(orders):
        await all_have_started.wait()
    assert started[3] - started[0] > timedelta(milliseconds=3 * 50 - 20)


async def test_after_a_quiet_time_a_burst_may_start_at_once(orders: Queue) -> None:
    started: list[str] = []

    @orders.task(rate=Rate(100, per=3600, burst=3))
    async def call_the_bank(order_id: str) -> None:
        started.append(order_id)

    await orders.enqueue_many([call_the_bank.job(f"A{n}") for n in range(10)])
    await Worker(orders).run(burst=True)  # until nothing is due: the other seven wait for their moments
    assert len(started) == 3
    assert (await orders.stats()).scheduled == 7


async def test_a_rate_may_be_one_for_each_value_of_a_parameter(orders: Queue) -> None:
    started: list[str] = []

    @orders.task(rate=Rate(1, per=3600, key="tenant"))
    async def report(day: str, tenant: str) -> None:
        started.append(tenant)

    await report.enqueue("Monday", "t7")
    await report.enqueue("Tuesday", "t7")
    await report.enqueue("Monday", tenant="t8")
    await Worker(orders).run(burst=True)
    assert sorted(started) == ["t7", "t8"]


async def test_jobs_due_at_one_moment_can_be_smeared_over_a_while(orders: Queue) -> None:
    @orders.task(spread=timedelta(minutes=10))
    async def remind(customer: str) -> None: ...

    midnight = datetime(2100, 1, 1, tzinfo=UTC)
    sent = await orders.enqueue_many([remind.at(midnight).job(f"c{n}") for n in range(50)])
    assert all(midnight <= job.due_at <= midnight + timedelta(minutes=10) for job in sent)
    assert len({job.due_at for job in sent}) > 40

    job = await remind.options(spread=0).at(midnight).enqueue("c1")  # the call goes before the task
    assert job.due_at == midnight


async def test_dead_letters_can_come_back_smeared(orders: Queue) -> None:
    @orders.task
    async def close_order(order_id: str) -> None:
        raise Bury("the bank is closed")

    await orders.enqueue_many([close_order.job(f"A{n}") for n in range(20)])
    await Worker(orders).run(burst=True)
    dead = [job.id async for job in orders.dead.scan()]
    await orders.dead.replay(dead, after=60, spread=600)
    due = [job.due_at for job in await orders.peek("scheduled") if job.due_at is not None]
    assert len(set(due)) == len(dead) == 20
    assert max(due) - min(due) > timedelta(seconds=60)


async def test_a_queue_can_refuse_what_is_too_much(queue_name: str) -> None:
    backlog = Backlog(max_jobs=3, horizon=timedelta(days=30))
    async with Queue("orders", url=f"memory://{queue_name}", backlog=backlog) as orders:

        @orders.task
        async def close_order(order_id: str) -> None: ...

        await orders.enqueue_many([close_order.after(60).job(f"A{n}") for n in range(3)])
        with pytest.raises(QueueFull, match=r"Backlog\(max_jobs=3\)"):
            await close_order.enqueue("A4")
        with pytest.raises(ValueError, match="horizon"):
            await close_order.after(days=31).enqueue("A5")
        assert (await orders.stats()).scheduled == 3


async def test_one_job_is_enough_for_a_while(orders: Queue) -> None:
    reports: list[str] = []

    @orders.task(unique=Unique(timedelta(hours=1), key="tenant"))
    async def report(tenant: str, day: str) -> None:
        reports.append(day)

    first = await report.after(60).enqueue("t7", "Monday")
    second = await report.enqueue("t7", "Tuesday")  # one for t7 waits: it is enough
    assert (second.id, second.created, second.due_at) == (first.id, False, first.due_at)
    assert (await report.enqueue("t8", "Monday")).created

    await first.cancel()  # taken back, done or dead: the next one is made
    assert (await report.enqueue("t7", "Wednesday")).created
    await Worker(orders).run(burst=True)
    assert sorted(reports) == ["Monday", "Wednesday"]


async def test_or_the_last_of_them_counts(orders: Queue) -> None:
    indexed: list[str] = []

    @orders.task(unique=Unique(30, key="document", mode="last"))
    async def index(document: str, text: str) -> None:
        indexed.append(text)

    first = await index.after(5).enqueue("d1", "a")
    second = await index.after(20).enqueue("d1", "ab")  # the same job, with new arguments and a later time
    assert (second.id, second.replaced) == (first.id, True)
    third = await index.after(3600).enqueue("d1", "abc")  # but no later than 30 s after the first
    assert third.due_at - first.due_at < timedelta(seconds=26)

    last = await index.enqueue("d1", "abcd")
    assert last.id == first.id
    await Worker(orders).run(burst=True)
    assert indexed == ["abcd"]


async def test_jobs_of_one_account_run_one_after_the_other(orders: Queue) -> None:
    running: set[str] = set()
    settled: list[int] = []
    all_settled = asyncio.Event()

    @orders.task(max_running=MaxRunning(1, key="account"))
    async def settle(account: str, cents: int) -> None:
        assert account not in running
        running.add(account)
        await asyncio.sleep(0.01)
        running.discard(account)
        settled.append(cents)
        if len(settled) == 10:
            all_settled.set()

    await orders.enqueue_many(
        [settle.job(account, cents) for cents in range(5) for account in ("Ann", "Bob")]
    )
    async with Worker(orders, concurrency=10):
        await all_settled.wait()
    assert sorted(settled) == sorted([*range(5), *range(5)])
