"""sweep, convict and leave: who holds leases, and what becomes of those of the dead."""

from __future__ import annotations

from aiodq._core.due import NOW
from aiodq._core.store import SILENT_MS, ClaimRequest, Entry, SweepAnswer
from tests.shards import LEASE_MS, Hand, OpenShard, Seeds


async def convict(hand: Hand, worker: str) -> None:
    """Page by page to the end."""
    for _ in range(20):
        if not await hand.store.convict(worker):
            return
    raise AssertionError("convict does not end")


async def test_nobody_is_suspected_while_all_are_heard(shard: OpenShard, seeds: Seeds) -> None:
    hand = await shard.listener("w")
    assert await hand.store.sweep() == SweepAnswer([], None, others=1)
    assert await shard.state() == seeds.state


async def test_a_silent_holder_is_named_after_the_grace(shard: OpenShard, seeds: Seeds) -> None:
    hand = await shard.listener("w")
    await shard.silence(seeds.holder)
    before_ms = await shard.now_ms()
    first = await hand.store.sweep()
    assert first == SweepAnswer([], SILENT_MS, others=1)
    state = await shard.state()
    assert before_ms <= -state.workers[seeds.holder.id] <= await shard.now_ms()
    assert state == seeds.state.but(workers=state.workers)
    await shard.wait_ms(100)
    second = await hand.store.sweep()
    assert second.silent == []
    assert second.again_in_ms is not None
    assert 0 < second.again_in_ms <= SILENT_MS - 100
    assert (await shard.state()).workers == state.workers
    await shard.poke_sign(seeds.holder.id, -(await shard.now_ms() - SILENT_MS))
    assert await hand.store.sweep() == SweepAnswer([seeds.holder.id], None, others=1)


async def test_who_is_heard_again_is_cleared(shard: OpenShard, seeds: Seeds) -> None:
    hand = await shard.listener("w")
    await shard.silence(seeds.holder)
    await hand.store.sweep()
    await seeds.holder.listen()
    assert await hand.store.sweep() == SweepAnswer([], None, others=1)
    sign_ms = (await shard.state()).workers[seeds.holder.id]
    assert 0 <= await shard.now_ms() - sign_ms < 5000


async def test_who_shows_life_without_being_heard_is_not_judged_by_its_silence(
    shard: OpenShard, seeds: Seeds
) -> None:
    """Its subscriber connection is broken, its other ones are not."""
    hand = await shard.listener("w")
    await shard.silence(seeds.holder)
    await hand.store.sweep()
    assert (await shard.state()).workers[seeds.holder.id] < 0
    pair = (seeds.held.job_id, seeds.held.token)
    assert await seeds.holder.keeper.extend([pair], lease_ms=LEASE_MS) == [True]
    assert seeds.holder.id not in (await shard.state()).workers

    await shard.store.enqueue([Entry("more", b"", NOW)])
    assert [lease.job_id for lease in await seeds.holder.take(1)] == ["more"]
    assert await hand.store.sweep() == SweepAnswer([], None, others=0)
    await convict(hand, seeds.holder.id)
    deadlines = (await shard.state()).processing
    now_ms = await shard.now_ms()
    assert all(deadlines[job_id] > now_ms for job_id in ("held", "more"))


async def test_the_caller_is_never_accused_by_itself(shard: OpenShard, seeds: Seeds) -> None:
    await shard.silence(seeds.holder)
    assert await seeds.holder.store.sweep() == SweepAnswer([], None, others=0)
    assert await shard.state() == seeds.state


async def test_convict_makes_the_leases_of_the_dead_expire_now_and_no_others(
    shard: OpenShard, seeds: Seeds
) -> None:
    hand = await shard.listener("w")
    await shard.store.enqueue([Entry("mine", b"", NOW)])
    await hand.take()
    await shard.silence(seeds.holder)
    await shard.poke_sign(seeds.holder.id, -(await shard.now_ms() - SILENT_MS))
    before = await shard.state()
    await convict(hand, seeds.holder.id)
    now_ms, after = await shard.now_ms(), await shard.state()
    assert after.processing["held"] <= now_ms
    assert after.processing["failing"] <= now_ms
    workers = {who: sign for who, sign in before.workers.items() if who != seeds.holder.id}
    assert after == before.but(
        processing={**after.processing, "mine": before.processing["mine"]}, workers=workers
    )
    leases = {lease.job_id: lease for lease in await hand.take(5)}
    assert {name: lease.crashes for name, lease in leases.items()} == {"held": 1, "failing": 1}


async def test_convict_lets_go_of_who_is_heard_or_not_silent_for_long_enough(
    shard: OpenShard, seeds: Seeds
) -> None:
    hand = await shard.listener("w")
    holder, now_ms = seeds.holder, await shard.now_ms()
    await shard.poke_sign(holder.id, -(now_ms - SILENT_MS))
    before = await shard.state()
    assert await hand.store.convict(holder.id) is False  # it is heard
    assert await shard.state() == before
    await shard.silence(holder)
    for sign_ms in (now_ms, now_ms - 60_000, -(now_ms - SILENT_MS // 4)):
        await shard.poke_sign(holder.id, sign_ms)
        before = await shard.state()
        assert await hand.store.convict(holder.id) is False
        assert await shard.state() == before


async def test_convict_of_who_holds_nothing_only_takes_it_off_the_list(shard: OpenShard) -> None:
    hand = await shard.listener("w")
    await shard.poke_sign("gone", -1)
    await convict(hand, "gone")
    assert (await shard.state()).workers == {}
    await convict(hand, "never seen")


async def test_convict_turns_pages(shard: OpenShard) -> None:
    hand, dying = await shard.listener("w"), await shard.listener("dying")
    names = [f"{n:04d}" for n in range(450)]
    await shard.store.enqueue([Entry(name, b"", NOW) for name in names])
    for n in range(9):
        await (dying if n % 2 else hand).take(50, LEASE_MS + n)
    await shard.silence(dying)
    await shard.poke_sign(dying.id, -1)
    before = await shard.state()
    await convict(hand, dying.id)
    now_ms, state = await shard.now_ms(), await shard.state()
    expired = {job_id for job_id, deadline in state.processing.items() if deadline <= now_ms}
    assert expired == {job_id for job_id, token in state.lease.items() if dying.id in token}
    assert len(expired) == 200
    assert state.lease == before.lease
    assert dying.id not in state.workers


async def test_who_lost_its_last_lease_leaves_the_list_with_its_next_look(shard: OpenShard) -> None:
    """It has nothing to settle, and while it was listed others would sweep for nothing."""
    hand, other = await shard.listener("w"), await shard.listener("other")
    await shard.store.enqueue([Entry("a", b"", NOW)])
    await hand.take()
    await shard.lapse("a")
    await other.take()
    assert hand.id in (await shard.state()).workers
    answer = await hand.turn(claim=ClaimRequest(1, LEASE_MS), last=True)
    assert answer.claim is not None
    assert (answer.claim.seat, answer.claim.leases) == (1, [])
    assert set((await shard.state()).workers) == {other.id}
    assert (await other.claim(5)).others == 0


async def test_leaving_gives_up_the_seat_and_the_listing(shard: OpenShard, seeds: Seeds) -> None:
    holder = seeds.holder
    await holder.claim(1)
    assert holder.id in (await shard.state()).idle
    await holder.store.leave(holds=True)
    state = await shard.state()
    assert state == seeds.state.but(idle={})
    await holder.store.leave(holds=False)
    assert await shard.state() == state.but(workers={})
