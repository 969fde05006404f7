"""Sending, looking up, moving and taking back of jobs, on a queue in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from aiodq import ConfigError, DuplicateJob, NewJob, PayloadError, Queue, TaskRef
from aiodq._core.store import Entry, Placed
from aiodq.types import Change, JobInfo, QueueStats

FAR = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)


@pytest.fixture
async def orders(queue_name: str) -> AsyncIterator[Queue]:
    async with Queue(queue_name, url=f"memory://{queue_name}") as queue:
        yield queue


@pytest.fixture
def close(orders: Queue) -> TaskRef[[str], bool]:
    @orders.task
    async def close_order(order_id: str) -> bool:
        return bool(order_id)

    return close_order


async def count(queue: Queue) -> int:
    return (await queue.stats()).scheduled


async def test_enqueue_answers_with_a_handle(orders: Queue, close: TaskRef[[str], bool]) -> None:
    before = datetime.now(UTC)
    job = await close.after(60).enqueue("A1")
    assert (job.created, job.replaced) == (True, False)
    assert timedelta(seconds=59) < job.due_at - before < timedelta(seconds=61)
    assert await job.status() == "scheduled"
    assert repr(job) == f"<Enqueued {job.id!r} of queue {orders.name!r}>"
    assert await orders.peek("scheduled") == [JobInfo(job.id, "close_order", "scheduled", job.due_at)]


@pytest.mark.parametrize("days", [25, 50, 400])
async def test_b03_far_delays_are_listed_with_their_exact_time(
    orders: Queue, close: TaskRef[[str], bool], days: int
) -> None:
    job = await close.after(days=days).enqueue("A1")
    (listed,) = await orders.peek("scheduled")
    assert listed.due_at == job.due_at
    assert abs(job.due_at - datetime.now(UTC) - timedelta(days=days)) < timedelta(seconds=5)


async def test_b09_the_last_instant_survives_a_reschedule(orders: Queue, close: TaskRef[[str], bool]) -> None:
    job = await close.at(FAR).enqueue("A1")
    assert job.due_at == FAR
    assert await job.reschedule(at=FAR - timedelta(milliseconds=1))
    (listed,) = await orders.peek("scheduled")
    assert listed.due_at == FAR - timedelta(milliseconds=1)


@pytest.mark.parametrize("seconds", [-0.001, -1e12, -datetime.now(UTC).timestamp() - 1])
async def test_b01_a_negative_delay_is_due_at_once(
    orders: Queue, close: TaskRef[[str], bool], seconds: float
) -> None:
    job = await close.after(seconds).enqueue("A1")
    assert abs(job.due_at - datetime.now(UTC)) < timedelta(seconds=5)
    assert (await orders.stats()).due == 1


async def test_an_instant_in_the_past_is_due_at_once(orders: Queue, close: TaskRef[[str], bool]) -> None:
    job = await close.at(datetime(1990, 1, 1, tzinfo=UTC)).enqueue("A1")
    assert abs(job.due_at - datetime.now(UTC)) < timedelta(seconds=5)


# ---- ids


async def test_an_id_that_is_taken_keeps_its_job(orders: Queue, close: TaskRef[[str], bool]) -> None:
    plan = close.options(job_id="close-A1")
    first = await plan.after(60).enqueue("A1")
    second = await plan.after(5).enqueue("A2")
    assert (second.created, second.replaced, second.due_at) == (False, False, first.due_at)
    assert await count(orders) == 1


async def test_replace_gives_the_waiting_job_new_arguments_and_time(
    orders: Queue, close: TaskRef[[str], bool]
) -> None:
    plan = close.options(job_id="close-A1", on_duplicate="replace")
    first = await plan.after(60).enqueue("A1")
    second = await plan.after(5).enqueue("A2")
    assert (first.created, first.replaced) == (True, False)
    assert (second.created, second.replaced) == (False, True)
    assert second.due_at < first.due_at
    assert await count(orders) == 1


async def test_raise_tells_by_an_error_and_changes_nothing(
    orders: Queue, close: TaskRef[[str], bool]
) -> None:
    plan = close.options(job_id="close-A1", on_duplicate="raise")
    first = await plan.after(60).enqueue("A1")
    with pytest.raises(DuplicateJob, match="'close-A1' exists already") as caught:
        await plan.after(5).enqueue("A2")
    assert caught.value.job_id == "close-A1"
    assert [job.due_at for job in await orders.peek("scheduled")] == [first.due_at]


@pytest.mark.parametrize("job_id", ["a:b", "a:b:c", ":", "x:lease", "a/b?c=d", "🦄", "{t7}x", "x" * 256])
async def test_b14_b20_odd_ids_go_round_unchanged(
    orders: Queue, close: TaskRef[[str], bool], job_id: str
) -> None:
    job = await close.options(job_id=job_id).after(60).enqueue("A1")
    assert job.id == job_id
    assert [listed.id for listed in await orders.peek("scheduled")] == [job_id]
    assert await orders.by_id(job_id).status() == "scheduled"
    assert await orders.reschedule(job_id, after=5)
    assert job_id in str(await orders.explain(job_id)) or repr(job_id) in str(await orders.explain(job_id))
    assert await orders.cancel(job_id)
    assert await orders.by_id(job_id).status() in ("absent", "done")


@pytest.mark.parametrize("job_id", ["", "a\nb", "\0", "x" * 4096, "a\ud800", "{x"])
async def test_b20_impossible_ids_are_refused_everywhere(
    orders: Queue, close: TaskRef[[str], bool], job_id: str
) -> None:
    for call in (orders.cancel, orders.explain, orders.dead.get, orders.dead.replay):
        with pytest.raises(ValueError, match="job id"):
            await cast("Any", call)(job_id)
    with pytest.raises(ValueError, match="job id"):
        await orders.reschedule(job_id, after=1)
    with pytest.raises(ValueError, match="job id"):
        orders.by_id(job_id)
    with pytest.raises(ValueError, match="job id"):
        close.options(job_id=job_id)


@pytest.mark.parametrize("name", ["a.b", "team/mail", "../x", "a+b", "p:c", "axb", "ab"])
async def test_b17_b19_odd_queue_names_stay_apart(name: str, queue_name: str) -> None:
    one, other = (Queue(n, url=f"memory://{queue_name}") for n in (name, name + "0"))
    await one.send("t", after=60)
    assert (await one.stats()).scheduled == 1
    assert (await other.stats()).scheduled == 0


# ---- NewJob, many


async def test_a_new_job_sent_twice_is_one_job(orders: Queue, close: TaskRef[[str], bool]) -> None:
    job = close.after(60).job("A1")
    assert (await orders.enqueue(job)).created
    assert not (await orders.enqueue(job)).created
    assert await count(orders) == 1
    first, second = await orders.enqueue_many([close.job("A2")] * 2)
    assert (first.created, second.created, first.id) == (True, False, second.id)


async def test_many_jobs_are_answered_in_their_order(orders: Queue, close: TaskRef[[str], bool]) -> None:
    jobs = [close.after(number % 7).job(f"A{number}") for number in range(350)]
    sent = await orders.enqueue_many(iter(jobs))
    assert [job.id for job in sent] == [job.id for job in jobs]
    assert all(job.created for job in sent)
    assert await count(orders) == 350
    assert await orders.enqueue_many([]) == []


async def test_jobs_that_replace_and_jobs_that_keep_go_in_their_order(
    orders: Queue, close: TaskRef[[str], bool]
) -> None:
    keep = close.options(job_id="x").after(60)
    replace = close.options(job_id="x", on_duplicate="replace").after(60)
    sent = await orders.enqueue_many([keep.job("1"), replace.job("2"), keep.job("3"), close.job("4")])
    assert [(job.created, job.replaced) for job in sent] == [
        (True, False),
        (False, True),
        (False, False),
        (True, False),
    ]


async def test_b16_all_jobs_are_checked_before_the_first_is_sent(
    orders: Queue, close: TaskRef[[str], bool], queue_name: str
) -> None:
    def five() -> Iterator[NewJob[bool]]:
        for number in range(5):
            yield close.options(job_id=f"ok-{number}" if number != 2 else "bad\nid").job("A1")

    with pytest.raises(ValueError, match=r"job id 'bad\\nid': control characters"):
        await orders.enqueue_many(five())
    foreign = Queue("other", url=f"memory://{queue_name}").stub("t").job()
    with pytest.raises(ConfigError, match="cannot be sent through queue"):
        await orders.enqueue_many([close.job("A1"), foreign])
    with pytest.raises(ConfigError, match="cannot be sent through queue"):
        await orders.enqueue(foreign)
    with pytest.raises(TypeError, match=r"expected a job made by task.job\(…\)"):
        await orders.enqueue_many(cast("Any", [close.job("A1"), close]))
    assert await count(orders) == 0


async def test_of_many_jobs_a_taken_id_is_told_after_all_others_were_sent(
    orders: Queue, close: TaskRef[[str], bool]
) -> None:
    plan = close.options(job_id="x", on_duplicate="raise").after(60)
    await plan.enqueue("A1")
    with pytest.raises(DuplicateJob):
        await orders.enqueue_many([close.job("A0"), plan.job("A1"), close.job("A2")])
    assert await count(orders) == 3


async def test_b31_b28_nothing_is_written_for_arguments_that_are_refused(
    orders: Queue, close: TaskRef[[str], bool]
) -> None:
    with pytest.raises(PayloadError, match="above the limit"):
        await close.enqueue("x" * (65 * 1024 * 1024))
    with pytest.raises(TypeError, match="'order_id'"):
        await close.enqueue(cast("Any", 7))
    assert await orders.stats() == QueueStats(0, 0, 0, 0, timedelta(), paused=False)


async def test_concurrent_enqueues_are_calls_of_their_own_to_the_store(
    orders: Queue, close: TaskRef[[str], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    store = orders._stores()[0]
    real = store.enqueue

    async def enqueue(entries: list[Entry]) -> list[Placed]:
        calls.append(len(entries))
        return await real(entries)

    monkeypatch.setattr(store, "enqueue", enqueue)
    await asyncio.gather(*(close.enqueue(f"A{number}") for number in range(20)))
    assert calls == [1] * 20


# ---- by name


async def test_send_by_name(orders: Queue) -> None:
    job = await orders.send("ship", ("A1",), {"fast": True}, after=60, job_id="x", headers={"h": "1"})
    assert (job.id, job.created) == ("x", True)
    (listed,) = await orders.peek("scheduled")
    assert (listed.task, listed.due_at) == ("ship", job.due_at)
    assert (await orders.send("ship", at=FAR)).due_at == FAR
    assert (await orders.send("ship", [1])).created


@pytest.mark.parametrize(
    ("kwargs", "error", "says"),
    [
        ({"args": "A1001"}, TypeError, r"args='A1001': expected a tuple or list; one argument is written"),
        ({"args": {"a": 1}}, TypeError, "expected a tuple or list"),
        ({"kwargs": [1]}, TypeError, "kwargs="),
        ({"after": 1, "at": FAR}, TypeError, "expected one of them"),
        ({"after": "1"}, TypeError, "after='1'"),
        ({"at": datetime(2030, 1, 1)}, ValueError, "no time zone"),  # noqa: DTZ001
        ({"delay": 3}, TypeError, "unknown call option 'delay'"),
        ({"durability": "fsynced"}, TypeError, "not in this version"),
        ({"args": ({1},)}, TypeError, "a set would come back as list"),
    ],
)
async def test_wrong_sends_are_refused(
    orders: Queue, kwargs: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        await orders.send("ship", **kwargs)
    assert await count(orders) == 0


# ---- changes


async def test_cancel_is_true_once_and_frees_the_id(orders: Queue, close: TaskRef[[str], bool]) -> None:
    job = await close.options(job_id="x").after(60).enqueue("A1")
    assert await job.cancel() == Change(made=True, was="scheduled")
    assert await orders.cancel("x") == Change(made=False, was="absent")
    assert not await orders.cancel("never")
    assert (await close.options(job_id="x").enqueue("A1")).created


async def test_reschedule_counts_from_now(orders: Queue, close: TaskRef[[str], bool]) -> None:
    job = await close.after(3600).enqueue("A1")
    assert await orders.reschedule(job.id, after=timedelta(seconds=30))
    (listed,) = await orders.peek("scheduled")
    assert listed.due_at is not None
    assert timedelta(seconds=25) < listed.due_at - datetime.now(UTC) < timedelta(seconds=35)
    assert await job.reschedule(at=FAR) == Change(made=True, was="scheduled")
    assert await orders.reschedule("never", after=1) == Change(made=False, was="absent")
    for times in ({}, {"after": 1, "at": FAR}):
        with pytest.raises(TypeError, match="after="):
            await cast("Any", orders.reschedule)(job.id, **times)


async def test_pause_and_resume(orders: Queue, close: TaskRef[[str], bool]) -> None:
    await orders.pause("stock-taking")
    job = await close.enqueue("A1")
    assert (await orders.stats()).paused
    assert "the queue is paused: stock-taking" in (await job.explain()).text
    await orders.resume()
    assert not (await orders.stats()).paused
    assert "paused" not in (await job.explain()).text


async def test_peek_takes_known_places_and_limits(orders: Queue, close: TaskRef[[str], bool]) -> None:
    await orders.enqueue_many(close.after(n).job("A") for n in range(30))
    assert len(await orders.peek("scheduled")) == 20
    assert len(await orders.peek("scheduled", limit=25)) == 25
    assert await orders.peek("processing") == await orders.peek("dead") == []
    with pytest.raises(ValueError, match="state='done': expected one of 'scheduled'"):
        await orders.peek(cast("Any", "done"))
    for limit in (0, 10_001):
        with pytest.raises(ValueError, match="expected 1 to 10000"):
            await orders.peek("dead", limit=limit)


def test_the_names_and_settings_of_a_queue_are_checked_when_it_is_made() -> None:
    for name in ("", "a*", "orders/0", "{}", "}"):
        with pytest.raises(ConfigError, match="queue name"):
            Queue(name)
    with pytest.raises(ConfigError, match="prefix"):
        Queue("orders", prefix="p:{}")
    with pytest.raises(ConfigError, match="defaults: timeout=0"):
        Queue("orders", defaults={"timeout": 0})
    with pytest.raises(TypeError, match="unknown task option 'timeoutt': did you mean 'timeout'"):
        Queue("orders", defaults=cast("Any", {"timeoutt": 1}))
    with pytest.raises(TypeError, match="option of Queue 'codec' is not in this version of aiodq"):
        Queue("orders", **cast("Any", {"codec": 8}))
    with pytest.raises(TypeError, match="unknown option of Queue 'prefxi': did you mean 'prefix'"):
        Queue("orders", **cast("Any", {"prefxi": "a"}))
    with pytest.raises(ConfigError, match="scripting='lua'"):
        Queue("orders", scripting=cast("Any", "lua"))
