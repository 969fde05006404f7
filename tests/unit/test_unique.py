"""Unique jobs where they are declared and made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aiodq import ConfigError, DuplicateJob, Queue, Unique
from aiodq._core.jobs import to_entry
from aiodq._core.names import check_job_id
from aiodq._core.unique import Hold


@pytest.fixture
def orders(queue_name: str) -> Queue:
    return Queue("orders", url=f"memory://{queue_name}")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: Unique(0), "Unique.window=0"),
        (lambda: Unique(float("nan")), "Unique.window=nan"),
        (lambda: Unique("60"), "Unique.window='60'"),  # type: ignore[arg-type]
        (lambda: Unique(60, key=""), "Unique.key=''"),
        (lambda: Unique(60, mode="newest"), "Unique.mode='newest'"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_unique_is_refused_by_name_and_value(wrong: Callable[[], object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        wrong()


def hold(job: Any) -> Hold | None:
    return to_entry(job).hold


def test_the_call_goes_before_the_task_and_none_is_an_answer(orders: Queue) -> None:
    @orders.task(unique=Unique(60, key="tenant"))
    async def report(day: str, tenant: str = "t1") -> None: ...

    assert hold(report.job("Monday", "t7")) == Hold('report:"t7"', 60_000)
    assert hold(report.job("Monday", tenant="t7")) == Hold('report:"t7"', 60_000)
    assert hold(report.job("Monday")) == Hold('report:"t1"', 60_000)
    last = Unique(5, mode="last")
    assert hold(report.options(unique=last).job("Monday")) == Hold("report", 5000, "last")
    assert hold(report.options(unique=None).job("Monday")) is None
    assert hold(orders.stub("report").job("Monday", "t7")) == Hold('report:"t7"', 60_000)


def test_jobs_of_one_name_go_to_one_shard(orders: Queue) -> None:
    @orders.task(unique=Unique(60, key="tenant"))
    async def report(tenant: str) -> None: ...

    def shard_key(job_id: str) -> str:
        assert check_job_id(job_id) == job_id
        return job_id[: job_id.index("}")]

    ids = [report.job("t7").id for _ in range(50)]
    assert len(set(ids)) == 50
    assert len({shard_key(job_id) for job_id in ids}) == 1
    assert shard_key(report.job("t8").id) != shard_key(ids[0])


def test_the_key_is_checked_where_the_task_is_declared(orders: Queue) -> None:
    with pytest.raises(ConfigError, match=r"report\(\): Unique\.key is 'tenant'"):

        @orders.task(unique=Unique(60, key="tenant"))
        async def report(day: str) -> None: ...

    with pytest.raises(ConfigError, match=r"stubbed\(\): Unique\.key is 'tenant'"):

        @orders.stub(unique=Unique(60, key="tenant"))
        async def stubbed(day: str) -> None: ...


def test_a_task_known_by_name_only_needs_its_key_by_name(orders: Queue) -> None:
    plan = orders.stub("elsewhere").options(unique=Unique(60, key="tenant"))
    assert hold(plan.job("Monday", tenant="t7")) == Hold('elsewhere:"t7"', 60_000)
    with pytest.raises(ValueError, match="which argument is 'tenant' is not known here"):
        plan.job("Monday", "t7")


def test_ids_of_ones_own_and_other_rules_for_duplicates_contradict_it(orders: Queue) -> None:
    @orders.task(unique=Unique(60))
    async def report() -> None: ...

    with pytest.raises(ValueError, match="an id of your own is unique by itself"):
        report.options(job_id="x").job()
    assert report.options(job_id="x", unique=None).job().id == "x"
    with pytest.raises(ValueError, match='on_duplicate="replace" with unique='):
        report.options(on_duplicate="replace").job()
    with pytest.raises(ValueError, match='on_duplicate="raise" with unique='):
        report.options(on_duplicate="raise", unique=Unique(60, mode="last")).job()


async def test_who_wants_to_be_told_by_an_error_is_told_the_other_jobs_id(orders: Queue) -> None:
    @orders.task(unique=Unique(60))
    async def report() -> None: ...

    async with orders:
        first = await report.after(60).enqueue()
        with pytest.raises(DuplicateJob) as caught:
            await report.options(on_duplicate="raise").enqueue()
        assert caught.value.job_id == first.id
        with pytest.raises(DuplicateJob):
            await orders.enqueue_many([report.options(on_duplicate="raise").job()])


async def test_many_at_once_keep_their_order_and_their_answers(orders: Queue) -> None:
    @orders.task(unique=Unique(60, key="n"))
    async def one(n: int) -> None: ...

    @orders.task
    async def plain(n: int) -> None: ...

    async with orders:
        jobs = [
            one.job(1),
            plain.job(1),
            one.job(1),
            one.job(2),
            plain.options(on_duplicate="replace").job(2),
        ]
        sent = await orders.enqueue_many(jobs)
        assert [job.created for job in sent] == [True, True, False, True, True]
        assert [job.id for job in sent] == [jobs[0].id, jobs[1].id, jobs[0].id, jobs[3].id, jobs[4].id]
        assert (await orders.stats()).scheduled == 4
