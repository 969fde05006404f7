"""reschedule: scheduled -> scheduled, at another due time."""

from __future__ import annotations

from aiodq._core.due import MAX_DUE_MS, Due
from aiodq._core.store import BATCH, Entry
from tests.shards import HOUR_MS, OpenShard, Seeds


async def test_a_waiting_job_moves_and_keeps_all_else(shard: OpenShard, seeds: Seeds) -> None:
    before_ms = await shard.now_ms()
    moves = [(seeds.waiting, Due(MAX_DUE_MS, relative=False)), (seeds.retried, Due(1000))]
    assert await shard.store.reschedule(moves) == ["scheduled", "scheduled"]
    after_ms = await shard.now_ms()
    state = await shard.state()
    assert state.schedule[seeds.waiting] == MAX_DUE_MS
    assert before_ms + 1000 <= state.schedule[seeds.retried] <= after_ms + 1000
    assert state == seeds.state.but(schedule=state.schedule)


async def test_it_says_where_each_job_was(shard: OpenShard, seeds: Seeds) -> None:
    names = ["nobody", seeds.held.job_id, seeds.buried, seeds.done]
    assert await shard.store.reschedule([(name, Due(0)) for name in names]) == [
        "absent",
        "processing",
        "dead",
        "done",
    ]
    assert await shard.state() == seeds.state


async def test_more_than_a_batch_is_answered_in_order(shard: OpenShard) -> None:
    names = [f"{n:04d}" for n in range(BATCH + 7)]
    await shard.store.enqueue([Entry(name, b"", Due(HOUR_MS)) for name in names])
    at_ms = await shard.now_ms() + 2 * HOUR_MS
    moves = [(name, Due(at_ms + n, relative=False)) for n, name in enumerate(names)]
    assert await shard.store.reschedule([("nobody", Due(0)), *moves]) == ["absent"] + ["scheduled"] * len(
        names
    )
    assert (await shard.state()).schedule == {name: at_ms + n for n, name in enumerate(names)}
