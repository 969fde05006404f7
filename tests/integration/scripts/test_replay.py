"""replay: dead -> scheduled, if it is still the dead letter that was read."""

from __future__ import annotations

from aiodq._core.due import NOW, Due
from aiodq._core.settlement import Buried
from aiodq._core.store import BATCH, Entry, Revival
from tests.shards import HOUR_MS, LEASE_MS, OpenShard, Seeds


async def test_a_dead_letter_is_scheduled_with_fresh_counters_and_the_history_given(
    shard: OpenShard, seeds: Seeds
) -> None:
    buried_ms = seeds.state.dead[seeds.buried]
    assert await shard.store.replay([Revival(seeds.buried, buried_ms, Due(HOUR_MS), b"kept")]) == [True]
    now, then = await shard.state(), seeds.state
    assert now == then.but(
        dead={},
        schedule={**then.schedule, seeds.buried: now.schedule[seeds.buried]},
        tally={**then.tally, seeds.buried: (b"kept", 0, 0)},
    )


async def test_crashes_and_interruptions_are_forgotten(shard: OpenShard) -> None:
    """B140."""
    hand, dying = await shard.listener("w"), await shard.listener("dying")
    await shard.store.enqueue([Entry("a", b"", NOW)])
    await dying.take()
    await shard.lapse("a")
    [lease] = await hand.take()
    assert (lease.crashes, lease.interruptions) == (0, 1)
    await shard.silence(dying)
    await hand.settle(Buried("a", lease.token, b"why"))
    buried_ms = (await shard.state()).dead["a"]
    assert await shard.store.replay([Revival("a", buried_ms, NOW, b"why")]) == [True]
    [lease] = await hand.take()
    assert (lease.tally, lease.crashes, lease.interruptions) == (b"why", 0, 0)


async def test_another_burial_of_the_same_id_is_left_alone(shard: OpenShard, seeds: Seeds) -> None:
    buried_ms = seeds.state.dead[seeds.buried]
    revivals = [
        Revival(seeds.buried, buried_ms + 1, NOW, b""),
        Revival(seeds.buried, buried_ms - 1, NOW, b""),
    ]
    assert await shard.store.replay(revivals) == [False, False]
    assert await shard.state() == seeds.state


async def test_a_dead_letter_without_its_payload_is_not_revived(shard: OpenShard, seeds: Seeds) -> None:
    await shard.lose("payload", seeds.buried)
    before = await shard.state()
    assert await shard.store.replay([Revival(seeds.buried, before.dead[seeds.buried], NOW, b"")]) == [False]
    assert await shard.state() == before
    await shard.store.purge([seeds.buried])


async def test_more_than_a_batch(shard: OpenShard) -> None:
    names = [f"{n:04d}" for n in range(BATCH + 7)]
    hand = await shard.listener("w")
    await shard.store.enqueue([Entry(name, name.encode(), NOW) for name in names])
    for want in (BATCH, 7):
        leases = (await hand.claim(want, LEASE_MS)).leases
        assert await hand.settle(*(Buried(le.job_id, le.token, b"h") for le in leases)) == [True] * want
    dead = (await shard.state()).dead
    assert set(dead) == set(names)
    assert await shard.store.replay([Revival(name, dead[name], NOW, b"h") for name in names]) == [True] * len(
        names
    )
    assert set((await shard.state()).schedule) == set(names)
