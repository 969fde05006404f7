"""ack, retry, release, bury and extend: the writes that need the newest lease's token.

What they refuse is tried in `test_table.py`.
"""

from __future__ import annotations

import pytest

from aiodq._core.due import MAX_DUE_MS, NOW, Due
from aiodq._core.settlement import Acked, Buried, Deferred, Released, Settlement
from aiodq._core.store import BATCH, Entry
from tests.shards import HOUR_MS, LEASE_MS, OpenShard, Seeds


@pytest.mark.parametrize("outcome", ["ack", "expire"])
async def test_ack_removes_the_job_without_a_trace(shard: OpenShard, seeds: Seeds, outcome: str) -> None:
    ends = [
        Acked("held", seeds.held.token, outcome="expire" if outcome == "expire" else "ack"),
        Acked("failing", seeds.failing.token),
    ]
    assert await seeds.holder.settle(*ends) == [True, True]
    assert await shard.state() == seeds.state.without("held", "failing")


async def test_ack_leaves_a_done_mark_with_the_due_time_where_asked(shard: OpenShard, seeds: Seeds) -> None:
    ends = [Acked("held", seeds.held.token), Acked("failing", seeds.failing.token, remember=True)]
    assert await seeds.holder.settle(*ends) == [True, True]
    state = seeds.state
    assert await shard.state() == state.without("held", "failing").but(
        done={**state.done, "failing": seeds.failing.due_ms}
    )
    assert await shard.store.cancel(["failing", "held"]) == ["done", "absent"]


async def test_retry_puts_the_job_to_its_new_due_time_with_the_history_given(
    shard: OpenShard, seeds: Seeds
) -> None:
    before_ms = await shard.now_ms()
    ends = [
        Deferred("held", seeds.held.token, Due(5000), b"first"),
        Deferred("failing", seeds.failing.token, Due(MAX_DUE_MS, relative=False), b"second", "snooze"),
    ]
    assert await seeds.holder.settle(*ends) == [True, True]
    after_ms = await shard.now_ms()
    then, now = seeds.state, await shard.state()
    assert before_ms + 5000 <= now.schedule["held"] <= after_ms + 5000
    assert now.schedule["failing"] == MAX_DUE_MS
    interruptions = then.tally["held"][2]
    assert now == then.but(
        processing={},
        lease={},
        schedule={**then.schedule, "held": now.schedule["held"], "failing": MAX_DUE_MS},
        tally={**then.tally, "held": (b"first", 0, interruptions), "failing": (b"second", 0, 0)},
    )


async def test_release_gives_jobs_back_to_their_own_due_times(shard: OpenShard, seeds: Seeds) -> None:
    ends = [Released("held", seeds.held.token), Released("failing", seeds.failing.token)]
    assert await seeds.holder.settle(*ends) == [True, True]
    then, now = seeds.state, await shard.state()
    assert now == then.but(
        processing={},
        lease={},
        schedule={**then.schedule, "held": seeds.held.due_ms, "failing": seeds.failing.due_ms},
        idle=now.idle,
    )


async def test_bury_puts_the_job_to_the_dead_letters_with_its_reason(shard: OpenShard, seeds: Seeds) -> None:
    before_ms = await shard.now_ms()
    assert await seeds.holder.settle(Buried("failing", seeds.failing.token, b"reason")) == [True]
    after_ms = await shard.now_ms()
    then, now = seeds.state, await shard.state()
    assert before_ms <= now.dead["failing"] <= after_ms
    assert now == then.but(
        processing={"held": then.processing["held"]},
        lease={"held": then.lease["held"]},
        dead={**then.dead, "failing": now.dead["failing"]},
        tally={**then.tally, "failing": (b"reason", 0, 0)},
    )


async def test_an_expired_lease_that_nobody_took_is_still_its_holders(shard: OpenShard, seeds: Seeds) -> None:
    await shard.lapse("held", "failing")
    assert await seeds.holder.keeper.extend([("held", seeds.held.token)], lease_ms=LEASE_MS) == [True]
    assert await seeds.holder.settle(Acked("failing", seeds.failing.token)) == [True]
    hand = await shard.listener("w")
    assert await hand.take(5) == []


async def test_the_last_settlement_takes_the_worker_off_the_list_of_holders(
    shard: OpenShard, seeds: Seeds
) -> None:
    holder = seeds.holder
    await holder.settle(Acked("held", seeds.held.token))
    assert holder.id in (await shard.state()).workers
    await holder.settle(Released("failing", seeds.failing.token), last=True)
    assert holder.id not in (await shard.state()).workers


@pytest.mark.parametrize("kind", ["ack", "retry", "release", "bury"])
async def test_each_kind_of_settlement_may_be_the_last(shard: OpenShard, seeds: Seeds, kind: str) -> None:
    token = seeds.held.token
    ends: dict[str, Settlement] = {
        "ack": Acked("held", token),
        "retry": Deferred("held", token, Due(HOUR_MS), b""),
        "release": Released("held", token),
        "bury": Buried("held", token, b""),
    }
    assert await seeds.holder.settle(ends[kind], last=True) == [True]
    assert (await shard.state()).workers == {}


async def test_a_whole_batch_of_each_kind_in_one_turn(shard: OpenShard) -> None:
    hand = await shard.listener("w")
    await shard.store.enqueue([Entry(f"{n:04d}", b"", NOW) for n in range(4 * BATCH)])
    leases = [lease for _ in range(4) for lease in await hand.take(BATCH)]
    ends: list[Settlement] = []
    for n, lease in enumerate(leases):
        ends.append(
            (
                Acked(lease.job_id, lease.token, remember=n % 8 == 0),
                Deferred(lease.job_id, lease.token, Due(HOUR_MS), b"h"),
                Released(lease.job_id, lease.token),
                Buried(lease.job_id, lease.token, b"h"),
            )[n % 4]
        )
    ends[5] = Deferred(leases[5].job_id, "stale", Due(HOUR_MS), b"h")
    assert await hand.settle(*ends) == [n != 5 for n in range(len(ends))]
    state = await shard.state()
    assert len(state.done) == BATCH / 2
    assert len(state.dead) == BATCH
    assert len(state.schedule) == 2 * BATCH - 1
    assert list(state.processing) == [leases[5].job_id]


async def test_extend_sets_the_deadline_later_or_earlier_and_nothing_else(
    shard: OpenShard, seeds: Seeds
) -> None:
    """B61: set, never added to."""
    pairs = [("held", seeds.held.token), ("failing", seeds.stale), ("nobody", seeds.held.token)]
    for lease_ms in (60_000, 60_000, 1000, 90_000):
        before_ms = await shard.now_ms()
        assert await seeds.holder.keeper.extend(pairs, lease_ms=lease_ms) == [True, False, False]
        after_ms = await shard.now_ms()
        then, now = seeds.state, await shard.state()
        assert before_ms + lease_ms <= now.processing["held"] <= after_ms + lease_ms
        assert before_ms <= now.workers[seeds.holder.id] <= after_ms
        assert now == then.but(
            processing={**then.processing, "held": now.processing["held"]}, workers=now.workers
        )


async def test_extend_brings_a_convicted_worker_that_lives_back(shard: OpenShard, seeds: Seeds) -> None:
    await shard.poke_sign(seeds.holder.id, -1)
    assert await seeds.holder.keeper.extend([("held", seeds.held.token)], lease_ms=LEASE_MS) == [True]
    assert (await shard.state()).workers[seeds.holder.id] > 0


async def test_extend_lists_no_worker_whose_channel_is_silent(shard: OpenShard) -> None:
    hand = shard.hand("deaf")
    await shard.store.enqueue([Entry("a", b"", NOW)])
    [lease] = (await hand.claim(1)).leases
    assert await hand.keeper.extend([("a", lease.token)], lease_ms=LEASE_MS) == [True]
    assert (await shard.state()).workers == {}


async def test_extend_takes_more_than_a_batch(shard: OpenShard) -> None:
    hand = await shard.listener("w")
    await shard.store.enqueue([Entry(f"{n:04d}", b"", NOW) for n in range(BATCH + 10)])
    leases = [*await hand.take(BATCH), *await hand.take(10)]
    pairs = [(lease.job_id, lease.token) for lease in leases]
    pairs[3] = (pairs[3][0], "stale")
    answers = await hand.keeper.extend(pairs, lease_ms=HOUR_MS)
    assert answers == [n != 3 for n in range(BATCH + 10)]
    assert await hand.keeper.extend([], lease_ms=HOUR_MS) == []
