"""replace: absent, scheduled, dead -> scheduled, with new arguments, due time, and counters."""

from __future__ import annotations

from aiodq._core.due import Due
from aiodq._core.store import Entry, Placed
from tests.shards import HOUR_MS, OpenShard, Seeds


async def test_waiting_and_dead_jobs_get_the_new_arguments_and_start_anew(
    shard: OpenShard, seeds: Seeds
) -> None:
    names = [seeds.waiting, seeds.retried, seeds.buried]
    placed = await shard.store.replace([Entry(name, b"other", Due(HOUR_MS)) for name in names])
    assert [(p.created, p.replaced) for p in placed] == [(False, True)] * 3
    state = seeds.state
    assert await shard.state() == state.but(
        schedule={name: p.due_ms for name, p in zip(names, placed, strict=True)},
        dead={},
        payload={**state.payload, **dict.fromkeys(names, b"other")},
        tally={seeds.failing.job_id: state.tally[seeds.failing.job_id], "held": state.tally["held"]},
    )


async def test_a_new_id_is_created(shard: OpenShard, seeds: Seeds) -> None:
    [placed] = await shard.store.replace([Entry("new", b"body", Due(HOUR_MS))])
    assert (placed.created, placed.replaced) == (True, False)
    state = seeds.state
    assert await shard.state() == state.but(
        schedule={**state.schedule, "new": placed.due_ms}, payload={**state.payload, "new": b"body"}
    )


async def test_a_job_that_is_being_run_is_kept(shard: OpenShard, seeds: Seeds) -> None:
    placed = await shard.store.replace([Entry(seeds.held.job_id, b"other", Due(1))])
    assert placed == [Placed(False, False, seeds.held.due_ms)]
    assert await shard.state() == seeds.state


async def test_a_finished_job_is_run_again_with_the_new_arguments(shard: OpenShard, seeds: Seeds) -> None:
    """Whoever replaces says that these arguments must be run, so a done mark keeps nobody out."""
    [placed] = await shard.store.replace([Entry(seeds.done, b"other", Due(HOUR_MS), remember=True)])
    assert (placed.created, placed.replaced) == (True, False)
    state = seeds.state
    assert await shard.state() == state.but(
        schedule={**state.schedule, seeds.done: placed.due_ms},
        payload={**state.payload, seeds.done: b"other"},
    )


async def test_an_id_twice_in_one_batch_is_one_job_with_the_later_arguments(shard: OpenShard) -> None:
    first, second = await shard.store.replace([Entry("a", b"one", Due(900)), Entry("a", b"two", Due(100))])
    assert (first.created, second.replaced) == (True, True)
    state = await shard.state()
    assert state.schedule == {"a": second.due_ms}
    assert state.payload == {"a": b"two"}
