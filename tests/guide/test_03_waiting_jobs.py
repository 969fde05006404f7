"""Jobs that wait: looked at, moved, taken back; and the whole queue held up for a while."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from aiodq import Queue, Worker


async def test_a_job_can_be_taken_back_while_it_waits(orders: Queue) -> None:
    job = await orders.stub("close_order").options(job_id="close-A1001").after(1800).enqueue("A1001")
    if await orders.cancel("close-A1001"):  # the order was paid
        assert await job.status() == "absent"
    change = await orders.cancel("close-A1001")
    assert (change.made, change.was) == (False, "absent")


async def test_a_job_can_get_another_due_time(orders: Queue) -> None:
    job = await orders.stub("close_order").after(60).enqueue("A1001")
    assert await job.reschedule(after=timedelta(days=1))
    (listed,) = await orders.peek("scheduled")
    assert listed.due_at is not None
    assert listed.due_at > datetime.now(UTC) + timedelta(hours=23)


async def test_a_handle_needs_only_the_id(orders: Queue) -> None:
    close_order = orders.stub("close_order")
    await close_order.options(job_id="close-A1001").after(60).enqueue("A1001")
    assert await close_order.by_id("close-A1001").status() == "scheduled"
    assert await orders.by_id("close-A1002").status() == "absent"


async def test_why_has_my_job_not_run(orders: Queue) -> None:
    job = await orders.stub("close_order").after(minutes=30).enqueue("A1001")
    await orders.pause("stock-taking")
    text = (await job.explain()).text
    assert "it is due in 29 min 59 s" in text or "it is due in 30 min 0 s" in text
    assert "the queue is paused: stock-taking" in text


async def test_a_queue_in_numbers(orders: Queue) -> None:
    await orders.send("ship")
    await orders.send("ship", after=60)
    stats = await orders.stats()
    assert (stats.scheduled, stats.due, stats.processing, stats.dead) == (2, 1, 0, 0)


async def test_in_a_fifo_queue_jobs_of_one_moment_run_as_they_were_sent(queue_name: str) -> None:
    async with Queue("letters", url=f"memory://{queue_name}", fifo=True) as letters:
        posted: list[str] = []

        @letters.task
        async def post(name: str) -> None:
            posted.append(name)

        noon = datetime(2026, 1, 1, 12, tzinfo=UTC)  # past: due now
        for name in ("Zoe", "Adam", "Mia"):
            await post.at(noon).enqueue(name)
        await Worker(letters, concurrency=1).run(burst=True)
        assert posted == ["Zoe", "Adam", "Mia"]


async def test_a_divided_queue_is_used_like_any_other(queue_name: str) -> None:
    async with Queue("orders", url=f"memory://{queue_name}", shards=8) as orders:
        close_order = orders.stub("close_order")
        await close_order.options(job_id="close-A1001").after(60).enqueue("A1001")
        await (
            close_order.options(shard_key="tenant-7").after(60).enqueue("A1002")
        )  # beside others of that key
        assert (await orders.stats()).scheduled == 2
        assert await orders.cancel("close-A1001")
