"""First in, first out, from the call that enqueues to the handler."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from aiodq import ConfigError, Queue, Retry, Worker, current_job
from aiodq._core.errors import WrongOrder
from tests.servers import ServerProcess
from tests.shards import until

pytestmark = pytest.mark.usefixtures("server")


def moment() -> datetime:
    """A moment that is due soon, the same for all jobs of a test."""
    return datetime.now(UTC) + timedelta(seconds=0.3)


async def test_one_slot_runs_jobs_of_one_moment_as_they_were_sent(redis_url: str, queue_name: str) -> None:
    queue = Queue(queue_name, url=redis_url, fifo=True)
    ran: list[int] = []

    @queue.task
    async def note(number: int) -> None:
        ran.append(number)

    due = moment()
    async with queue:
        await queue.enqueue_many([note.at(due).job(number) for number in range(250)])
        for number in range(250, 270):
            await note.at(due).enqueue(number)
        async with Worker(queue, concurrency=1):
            await until(lambda: len(ran) == 270, 20)
    assert ran == list(range(270))


async def test_a_failure_comes_back_before_jobs_that_were_sent_after_it(
    redis_url: str, queue_name: str
) -> None:
    queue = Queue(queue_name, url=redis_url, fifo=True)
    ran: list[tuple[str, int]] = []
    later = moment() + timedelta(seconds=0.3)

    @queue.task(backoff=lambda _: 0)
    async def note(name: str) -> None:
        attempt = current_job().attempt
        ran.append((name, attempt))
        if name == "first" and attempt == 1:
            raise Retry(at=later)

    async with queue:
        await note.enqueue("first")
        await note.at(later).enqueue("second")
        async with Worker(queue, concurrency=1):
            await until(lambda: len(ran) == 3, 20)
    assert ran == [("first", 1), ("first", 2), ("second", 1)]


@pytest.mark.leaves_keys
async def test_a_process_that_does_not_know_of_the_order_is_refused(redis_url: str, queue_name: str) -> None:
    ordered, plain = (Queue(queue_name, url=redis_url, fifo=fifo) for fifo in (True, False))
    async with ordered, plain:
        await ordered.stub("note").after(60).enqueue(1)
        with pytest.raises(WrongOrder, match="pass fifo=True") as caught:
            await plain.stub("note").after(60).enqueue(2)
        assert isinstance(caught.value, ConfigError)
        assert (await ordered.stats()).scheduled == 1


async def test_the_check_finds_nothing_wrong_with_a_queue_in_order(redis_url: str, queue_name: str) -> None:
    async with Queue(queue_name, url=redis_url, fifo=True) as queue:
        note = queue.stub("note").after(60)
        jobs = await queue.enqueue_many([note.job(number) for number in range(150)])
        report = await queue.check()
        assert not report.findings
        for job in jobs:
            assert await job.cancel()
        assert not (await queue.check()).findings


def test_fifo_is_true_or_false() -> None:
    with pytest.raises(ConfigError, match="fifo='yes'"):
        Queue("orders", url="memory://", fifo="yes")  # type: ignore[arg-type]


async def test_functions_keep_the_order_too(server: ServerProcess, queue_name: str) -> None:
    queue = Queue(queue_name, url=server.url, fifo=True, scripting="functions")
    ran: list[int] = []

    @queue.task
    async def note(number: int) -> None:
        ran.append(number)

    due = moment()
    async with queue:
        await queue.enqueue_many([note.at(due).job(number) for number in range(50)])
        await asyncio.sleep(0.4)
        await Worker(queue, concurrency=1).run(burst=True)
    assert ran == list(range(50))
