"""Back-pressure on producers: what a backlog may be, what it says, and that nothing is sent beyond it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from aiodq import Backlog, ConfigError, Queue, QueueFull
from aiodq._core.backlog import BacklogFull
from aiodq._core.store import UNBOUNDED, Bounds


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: Backlog(max_jobs=0), "Backlog.max_jobs=0"),
        (lambda: Backlog(max_jobs=True), "Backlog.max_jobs=True"),
        (lambda: Backlog(max_bytes=-1), "Backlog.max_bytes=-1"),
        (lambda: Backlog(max_bytes=1.5), "Backlog.max_bytes=1.5"),  # type: ignore[arg-type]
        (lambda: Backlog(horizon=0), "Backlog.horizon=0"),
        (lambda: Backlog(horizon=float("inf")), "Backlog.horizon=inf"),
        (lambda: Queue("q", backlog=100), "backlog=100: expected a Backlog"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_backlog_is_refused_by_name_and_value(wrong: Callable[[], object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        wrong()


def test_a_bound_is_divided_among_shards_and_rounded_up() -> None:
    assert Backlog().bounds() == UNBOUNDED
    assert Backlog(max_jobs=100, max_bytes=1000).bounds(8) == Bounds(13, 125)
    assert Backlog(max_jobs=1).bounds(8) == Bounds(1, 0)


def test_the_error_names_the_limit_and_how_much_there_is() -> None:
    error = BacklogFull("jobs", 1000, 998)
    assert isinstance(error, QueueFull)
    assert "998 jobs that wait or run" in str(error)
    assert "Backlog(max_jobs=1,000)" in str(error)
    assert error.room == 2
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (str(again), again.room) == (str(error), 2)
    assert "max_bytes=5" in str(BacklogFull("bytes", 5, 9))
    assert BacklogFull("bytes", 5, 9).room == 0


async def test_nothing_is_sent_that_is_due_beyond_the_horizon(queue_name: str) -> None:
    async with Queue("q", url=f"memory://{queue_name}", backlog=Backlog(horizon=3600)) as queue:

        @queue.task
        async def close(n: int) -> None: ...

        beyond = r"due in 1:00:01, which is beyond the queue's Backlog\(horizon=3600\), 1:00:00 ahead"
        with pytest.raises(ValueError, match=beyond):
            await close.after(3601).enqueue(1)
        with pytest.raises(ValueError, match="due at 2100"):
            await close.at(datetime(2100, 1, 1, tzinfo=UTC)).enqueue(1)
        with pytest.raises(ValueError, match="beyond"):
            await queue.enqueue_many([close.job(1), close.after(3601).job(2)])
        with pytest.raises(ValueError, match="beyond"):
            await queue.send("close", (1,), after=3601)
        assert (await queue.stats()).scheduled == 0

        job = await close.after(3600).enqueue(1)
        await close.at(datetime.now(UTC) + timedelta(minutes=59)).enqueue(2)
        with pytest.raises(ValueError, match=f"job '{job.id}' would be due in 1:00:01"):
            await queue.reschedule(job.id, after=3601)
        assert (await queue.stats()).scheduled == 2


async def test_a_smeared_job_is_measured_as_it_is_due(queue_name: str) -> None:
    async with Queue("q", url=f"memory://{queue_name}", backlog=Backlog(horizon=10)) as queue:

        @queue.task(spread=1000)
        async def close(n: int) -> None: ...

        with pytest.raises(ValueError, match="beyond"):
            await queue.enqueue_many([close.job(n) for n in range(20)])
