"""enqueue: absent -> scheduled; an existing id is left as it is and its due time told."""

from __future__ import annotations

import pytest

from aiodq._core.due import MAX_DUE_MS, NOW, Due
from aiodq._core.settlement import Acked
from aiodq._core.store import BATCH, Entry, Placed
from tests.shards import HOUR_MS, LEASE_MS, OpenShard, Seeds


async def test_a_new_job_gets_its_place_and_payload_and_nothing_else(shard: OpenShard, seeds: Seeds) -> None:
    before_ms = await shard.now_ms()
    [placed] = await shard.store.enqueue([Entry("new", b"\x00\xff body", Due(5000))])
    after_ms = await shard.now_ms()
    assert placed.created
    assert not placed.replaced
    assert before_ms + 5000 <= placed.due_ms <= after_ms + 5000
    state = seeds.state
    assert await shard.state() == state.but(
        schedule={**state.schedule, "new": placed.due_ms}, payload={**state.payload, "new": b"\x00\xff body"}
    )


async def test_an_instant_is_kept_to_the_millisecond_and_the_past_means_now(shard: OpenShard) -> None:
    before_ms = await shard.now_ms()
    placed = await shard.store.enqueue(
        [
            Entry("last", b"", Due(MAX_DUE_MS, relative=False)),
            Entry("past", b"", Due(1, relative=False)),
            Entry("epoch", b"", Due(-5, relative=False)),
            Entry("soon", b"", Due(before_ms + HOUR_MS + 7, relative=False)),
        ]
    )
    after_ms = await shard.now_ms()
    assert [p.created for p in placed] == [True] * 4
    assert placed[0].due_ms == MAX_DUE_MS
    assert before_ms <= placed[1].due_ms <= after_ms
    assert before_ms <= placed[2].due_ms <= after_ms
    assert placed[3].due_ms == before_ms + HOUR_MS + 7
    assert list((await shard.state()).schedule.values()).count(MAX_DUE_MS) == 1


@pytest.mark.parametrize("remember", [False, True])
async def test_a_kept_job_is_told_by_its_own_due_time(shard: OpenShard, seeds: Seeds, remember: bool) -> None:
    state = seeds.state
    names = [seeds.waiting, seeds.held.job_id, seeds.buried]
    placed = await shard.store.enqueue([Entry(name, b"other", Due(1), remember) for name in names])
    assert placed == [
        Placed(False, False, state.schedule[seeds.waiting]),
        Placed(False, False, seeds.held.due_ms),
        Placed(False, False, state.dead[seeds.buried]),
    ]
    assert await shard.state() == state


async def test_a_done_mark_keeps_out_only_who_asks_for_it(shard: OpenShard, seeds: Seeds) -> None:
    state = seeds.state
    assert await shard.store.enqueue([Entry(seeds.done, b"again", Due(HOUR_MS), remember=True)]) == [
        Placed(False, False, state.done[seeds.done])
    ]
    assert await shard.state() == state
    [placed] = await shard.store.enqueue([Entry(seeds.done, b"again", Due(HOUR_MS))])
    assert placed.created
    # Now the id has a place: its own due time counts, not that of the finished job.
    assert await shard.store.enqueue([Entry(seeds.done, b"third", Due(1), remember=True)]) == [
        Placed(False, False, placed.due_ms)
    ]
    assert (await shard.state()).payload[seeds.done] == b"again"


async def test_an_id_twice_in_one_batch_is_one_job(shard: OpenShard) -> None:
    first, second = await shard.store.enqueue([Entry("a", b"one", Due(900)), Entry("a", b"two", Due(100))])
    assert first.created
    assert second == Placed(False, False, first.due_ms)
    state = await shard.state()
    assert state.schedule == {"a": first.due_ms}
    assert state.payload == {"a": b"one"}


async def test_more_than_a_batch_is_answered_in_order(shard: OpenShard) -> None:
    count = 2 * BATCH + 3
    entries = [Entry(f"{n:04d}", str(n).encode(), Due(HOUR_MS + n)) for n in range(count)]
    assert [p.created for p in await shard.store.enqueue(entries)] == [True] * count
    again = await shard.store.enqueue([*entries, Entry("more", b"", NOW)])
    assert [p.created for p in again] == [False] * count + [True]
    state = await shard.state()
    assert [p.due_ms for p in again] == [state.schedule[e.job_id] for e in entries] + [state.schedule["more"]]
    assert await shard.store.enqueue([]) == []


async def test_ids_are_taken_as_they_are(shard: OpenShard) -> None:
    names = ["a:b", ":", "x:lease", "{t7}x", "%d", "ключ", "😀", "wake:*", "a b", "+1", "-1", "1e5"]
    await shard.store.enqueue([Entry(name, name.encode(), NOW) for name in names])
    assert set((await shard.state()).schedule) == set(names)
    hand = await shard.listener("w")
    leases = await hand.take(len(names))
    assert {lease.job_id: lease.payload for lease in leases} == {name: name.encode() for name in names}
    assert await hand.settle(*(Acked(lease.job_id, lease.token) for lease in leases)) == [True] * len(names)


async def test_a_payload_without_a_place_does_not_block_its_id(shard: OpenShard, seeds: Seeds) -> None:
    """B76: only the member was lost, by someone else's hand."""
    await shard.lose("schedule", seeds.waiting)
    [placed] = await shard.store.enqueue([Entry(seeds.waiting, b"new body", Due(HOUR_MS))])
    assert placed.created
    state = seeds.state
    assert await shard.state() == state.but(
        schedule={**state.schedule, seeds.waiting: placed.due_ms},
        payload={**state.payload, seeds.waiting: b"new body"},
    )


async def test_a_waiting_job_whose_payload_was_lost_can_be_enqueued_again(
    shard: OpenShard, seeds: Seeds
) -> None:
    """B76, the reverse: only the payload was lost."""
    await shard.lose("payload", seeds.waiting)
    [placed] = await shard.store.enqueue([Entry(seeds.waiting, b"new body", Due(1000))])
    assert placed.created
    state = seeds.state
    assert await shard.state() == state.but(
        schedule={**state.schedule, seeds.waiting: placed.due_ms},
        payload={**state.payload, seeds.waiting: b"new body"},
    )


async def test_it_works_while_the_queue_is_paused(shard: OpenShard) -> None:
    await shard.store.pause("maintenance")
    assert (await shard.store.enqueue([Entry("a", b"", NOW)]))[0].created
    await shard.store.resume()


async def test_a_lease_of_an_ended_run_says_nothing_about_the_next_job_of_that_id(shard: OpenShard) -> None:
    hand = await shard.listener("w")
    await shard.store.enqueue([Entry("a", b"1", NOW)])
    [first] = await hand.take()
    assert await hand.settle(Acked("a", first.token)) == [True]
    await shard.store.enqueue([Entry("a", b"2", NOW)])
    before = await shard.state()
    assert await hand.settle(Acked("a", first.token)) == [False]
    assert await hand.keeper.extend([("a", first.token)], lease_ms=LEASE_MS) == [False]
    assert await shard.state() == before
