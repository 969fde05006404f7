"""Ids of jobs: how a second call finds the first one's job."""

from __future__ import annotations

import pytest

from aiodq import DuplicateJob, Queue, Worker


async def test_an_id_of_ones_own_makes_a_second_call_harmless(orders: Queue) -> None:
    close_order = orders.stub("close_order")
    plan = close_order.options(job_id="close-A1001").after(1800)
    assert (await plan.enqueue("A1001")).created
    assert not (await plan.enqueue("A1001")).created
    assert (await orders.stats()).scheduled == 1


async def test_replace_moves_the_waiting_job(orders: Queue) -> None:
    remind = orders.stub("remind").options(job_id="remind-A1001", on_duplicate="replace")
    first = await remind.after(1800).enqueue("A1001")
    second = await remind.after(3600).enqueue("A1001")
    assert second.replaced
    assert second.due_at > first.due_at


async def test_raise_makes_a_duplicate_an_error(orders: Queue) -> None:
    plan = orders.stub("close_order").options(job_id="close-A1001", on_duplicate="raise")
    await plan.enqueue("A1001")
    with pytest.raises(DuplicateJob, match="close-A1001"):
        await plan.enqueue("A1001")


async def test_the_id_of_a_job_that_has_just_run_is_still_refused(orders: Queue) -> None:
    @orders.task
    async def close_order(order_id: str) -> None: ...

    plan = close_order.options(job_id="close-A1001")
    job = await plan.enqueue("A1001")
    await Worker(orders).run(burst=True)
    assert await job.status() == "done"
    assert not (await plan.enqueue("A1001")).created


async def test_a_job_that_is_made_first_can_be_sent_again_safely(orders: Queue) -> None:
    job = orders.stub("close_order").after(60).job("A1001")
    for _ in range(3):  # as after a lost connection
        await orders.enqueue(job)
    assert (await orders.stats()).scheduled == 1


async def test_many_jobs_are_sent_together(orders: Queue) -> None:
    ship = orders.stub("ship")
    sent = await orders.enqueue_many(ship.after(60).job(f"A{number}") for number in range(1000))
    assert len({job.id for job in sent}) == 1000
