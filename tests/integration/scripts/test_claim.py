"""claim: scheduled -> processing, and processing -> processing where a lease has expired."""

from __future__ import annotations

import pytest

from aiodq._core.due import NOW, Due
from aiodq._core.lease import parse_token
from aiodq._core.settlement import Acked, Deferred
from aiodq._core.store import BATCH, CLOCK_STEP_US, ClaimRequest, Entry
from tests.shards import HOUR_MS, LEASE_MS, OpenShard, Seeds


async def test_a_due_job_is_given_whole_and_moves_to_processing(shard: OpenShard, seeds: Seeds) -> None:
    hand = await shard.listener("w")
    [placed] = await shard.store.enqueue([Entry("a", b"body", NOW)])
    before_ms = await shard.now_ms()
    answer = await hand.claim(3, 5000)
    after_ms = await shard.now_ms()
    [lease] = answer.leases
    token = parse_token(lease.token)
    assert (lease.job_id, lease.payload, lease.due_ms) == ("a", b"body", placed.due_ms)
    assert (lease.tally, lease.crashes, lease.interruptions, lease.recovered) == (None, 0, 0, False)
    assert (token.fence, token.due_ms, token.lease_ms) == (lease.fence, placed.due_ms, 5000)
    assert token.worker == hand.id
    assert before_ms <= answer.now_us // 1000 <= after_ms
    then, now = seeds.state, await shard.state()
    assert before_ms + 5000 <= now.processing["a"] <= after_ms + 5000
    assert now == then.but(
        processing={**then.processing, "a": now.processing["a"]},
        payload={**then.payload, "a": b"body"},
        lease={**then.lease, "a": lease.token},
        workers={**then.workers, hand.id: answer.now_us // 1000},
        idle={**then.idle, hand.id: now.idle[hand.id]},
        fence=lease.fence,
    )


async def test_nothing_is_given_before_its_due_time(shard: OpenShard, seeds: Seeds) -> None:
    await shard.store.enqueue([Entry("soon", b"", Due(60))])
    answer = await seeds.holder.claim(10)
    assert answer.leases == []
    assert answer.wait_us is not None
    assert 0 < answer.wait_us <= 60_000
    await shard.wait_ms(answer.wait_us // 1000 + 1)
    [lease] = await seeds.holder.take(10)
    assert lease.job_id == "soon"
    assert lease.due_ms <= await shard.now_ms()


async def test_jobs_come_by_due_time_then_bytewise_by_id_and_no_more_than_asked(shard: OpenShard) -> None:
    hand = await shard.listener("w")
    names = ["b", "a", "Z", "é", "😀", "ab", "\uffff"]
    await shard.store.enqueue([Entry(name, b"", NOW) for name in [*names, "late"]])
    at_ms = await shard.now_ms() - 1000
    for name in names:
        await shard.poke_due(name, at_ms)
    given = [lease.job_id for lease in await hand.take(3) + await hand.take(5)]
    ordered = names if shard.fifo else sorted(names, key=lambda name: name.encode())
    assert given == [*ordered, "late"]


async def test_a_call_gives_at_most_a_batch(shard: OpenShard) -> None:
    hand = await shard.listener("w")
    await shard.store.enqueue([Entry(f"{n:04d}", b"x", NOW) for n in range(BATCH + 30)])
    assert len(await hand.take(BATCH)) == BATCH
    assert len(await hand.take(BATCH)) == 30


async def test_one_fence_a_call_that_grows_and_never_runs_behind_the_clock(shard: OpenShard) -> None:
    hand, other = await shard.listener("w"), await shard.listener("other")
    await shard.store.enqueue([Entry(name, b"", NOW) for name in "abcdef"])
    last = await shard.now_us() - 1
    for taker in (hand, other, hand):
        answer = await taker.claim(2)
        [fence] = {lease.fence for lease in answer.leases}
        assert fence > last
        assert fence >= answer.now_us
        last = fence
    empty = await hand.claim(2)
    assert empty.leases == []
    assert (await shard.state()).fence == last


async def test_payload_bytes_are_limited_but_the_first_job_is_always_given(shard: OpenShard) -> None:
    hand = await shard.listener("w")
    await shard.store.enqueue([Entry(f"{n:02d}", b"x" * 100, NOW) for n in range(60)])
    assert [le.job_id for le in (await hand.claim(60, max_bytes=10)).leases] == ["00"]
    assert len((await hand.claim(60, max_bytes=350)).leases) == 3
    answer = await hand.claim(60, max_bytes=4000)
    assert len(answer.leases) == 40
    # There is more to do and there are slots for it: look again at once.
    assert answer.wait_us == 0
    assert len((await hand.claim(60)).leases) == 16
    assert len((await shard.state()).processing) == 60


async def test_an_expired_lease_passes_to_another_worker(shard: OpenShard, seeds: Seeds) -> None:
    hand, old = await shard.listener("w"), seeds.failing
    await shard.lapse(old.job_id)
    answer = await hand.claim(5, 5000)
    [lease] = answer.leases
    assert (lease.job_id, lease.payload, lease.due_ms) == (old.job_id, b"body of failing", old.due_ms)
    assert (lease.tally, lease.recovered) == (b"history of failing", True)
    assert lease.fence > old.fence
    then, now = seeds.state, await shard.state()
    assert now == then.but(
        processing={**then.processing, old.job_id: now.processing[old.job_id]},
        lease={**then.lease, old.job_id: lease.token},
        tally={**then.tally, old.job_id: (b"history of failing", 0, 1)},
        workers={**then.workers, hand.id: answer.now_us // 1000},
        idle={**then.idle, hand.id: now.idle[hand.id]},
        fence=lease.fence,
    )
    assert await seeds.holder.settle(Acked(old.job_id, old.token)) == [False]


async def test_a_lost_lease_is_a_crash_where_the_holder_is_silent(shard: OpenShard, seeds: Seeds) -> None:
    hand = await shard.listener("w")
    await shard.lapse("held", "failing")
    first = {lease.job_id: lease for lease in await hand.take(2)}
    assert {(le.crashes, le.interruptions) for le in first.values()} == {(0, 1), (0, 2)}
    dying = await shard.listener("dying")
    await shard.lapse("held", "failing")
    await dying.take(2)
    await shard.silence(dying)
    await shard.lapse("held", "failing")
    again = {lease.job_id: lease for lease in await hand.take(2)}
    assert {le.crashes for le in again.values()} == {1}
    state = await shard.state()
    assert state.tally["failing"][0] == b"history of failing"
    assert {state.tally["held"][1], state.tally["failing"][1]} == {1}


async def test_a_caller_whose_own_channel_is_not_heard_cannot_tell_silence(
    shard: OpenShard, seeds: Seeds
) -> None:
    """Where publish and subscribe are not counted (proxies), nobody may be taken for dead."""
    deaf = shard.hand("deaf")
    await shard.silence(seeds.holder)
    await shard.lapse("failing")
    [lease] = (await deaf.claim(5)).leases
    assert (lease.crashes, lease.interruptions) == (0, 1)


async def test_its_own_expired_lease_is_claimable_too_under_a_new_token(
    shard: OpenShard, seeds: Seeds
) -> None:
    """B53: a worker that takes its own lapsed job again cannot end the first run any more."""
    await shard.lapse("held")
    [lease] = await seeds.holder.take()
    assert lease.job_id == "held"
    assert (lease.crashes, lease.interruptions) == (0, seeds.held.interruptions + 1)
    assert await seeds.holder.settle(Acked("held", seeds.held.token)) == [False]
    assert await seeds.holder.settle(Acked("held", lease.token)) == [True]


async def test_expired_leases_come_first_but_get_half_of_the_batch_while_due_jobs_wait(
    shard: OpenShard,
) -> None:
    hand = await shard.listener("w")
    names = [f"old{n}" for n in range(8)]
    await shard.store.enqueue([Entry(name, b"", NOW) for name in names])
    await hand.take(8)
    await shard.lapse(*names)
    await shard.store.enqueue([Entry(f"new{n}", b"", NOW) for n in range(4)])
    leases = await hand.take(5)
    assert [le.recovered for le in leases] == [True, True, True, False, False]
    # Two due jobs are left, which is less than half: the expired ones have the rest.
    leases = await hand.take(6)
    assert [le.recovered for le in leases] == [True] * 4 + [False] * 2
    assert [le.recovered for le in await hand.take(6)] == [True]


async def test_an_unsteady_worker_leaves_expired_leases_alone(shard: OpenShard, seeds: Seeds) -> None:
    await shard.lapse("held", "failing")
    await shard.store.enqueue([Entry("due", b"", NOW)])
    hand = await shard.listener("w")
    now_us = await shard.now_us()
    request = ClaimRequest(5, LEASE_MS, expected_now_us=now_us, steady_in_ms=700)
    answer = await hand.ask(request)
    assert [le.job_id for le in answer.leases] == ["due"]
    assert answer.wait_us is not None
    assert answer.wait_us <= 700_000
    state = await shard.state()
    assert state.lease["held"] == seeds.held.token
    answer = await hand.ask(ClaimRequest(5, LEASE_MS, expected_now_us=answer.now_us))
    assert {le.job_id for le in answer.leases} == {"held", "failing"}


async def test_a_clock_ahead_of_the_expected_holds_expired_leases_back_and_calls_for_renewal(
    shard: OpenShard, seeds: Seeds
) -> None:
    await shard.lapse("held", "failing")
    await shard.store.enqueue([Entry("due", b"", NOW)])
    hand, other = await shard.listener("w"), await shard.listener("other")
    expected = await shard.now_us() - CLOCK_STEP_US - 500_000
    answer = await hand.ask(ClaimRequest(5, LEASE_MS, expected_now_us=expected))
    assert answer.stepped
    assert [le.job_id for le in answer.leases] == ["due"]
    assert (await shard.state()).lease["held"] == seeds.held.token
    for heard in (hand, other, seeds.holder):
        await heard.hears("renew")
    again = await hand.ask(ClaimRequest(5, LEASE_MS, expected_now_us=answer.now_us))
    assert not again.stepped
    assert len(again.leases) == 2


async def test_a_step_is_seen_while_the_queue_is_paused_too(shard: OpenShard, seeds: Seeds) -> None:
    await shard.store.pause("maintenance")
    expected = await shard.now_us() - CLOCK_STEP_US - 500_000
    answer = await seeds.holder.ask(ClaimRequest(5, LEASE_MS, expected_now_us=expected))
    assert answer.paused
    assert answer.stepped
    await seeds.holder.hears("renew")
    await shard.store.resume()


@pytest.mark.parametrize("off_us", [-900_000, 0, 900_000])
async def test_a_small_difference_of_clocks_is_no_step(shard: OpenShard, seeds: Seeds, off_us: int) -> None:
    far_ms = await shard.now_ms() + HOUR_MS
    await shard.poke_deadline("held", far_ms)
    answer = await seeds.holder.ask(ClaimRequest(5, LEASE_MS, expected_now_us=await shard.now_us() + off_us))
    assert not answer.stepped
    assert answer.clamp_next == -1
    assert (await shard.state()).processing["held"] == far_ms


@pytest.mark.parametrize("behind", [True, False])
async def test_leases_beyond_their_own_length_are_pulled_in(
    shard: OpenShard, seeds: Seeds, behind: bool
) -> None:
    """After a backward step, and at a worker's first call."""
    hand = await shard.listener("w")
    await shard.store.enqueue([Entry("short", b"", NOW)])
    [short] = await hand.take(1, 2000)
    for name in ("held", "failing", "short"):
        await shard.poke_deadline(name, await shard.now_ms() + HOUR_MS)
    expected = await shard.now_us() + CLOCK_STEP_US + 500_000 if behind else None
    answer = await hand.ask(ClaimRequest(1, 60_000, expected_now_us=expected))
    assert answer.stepped == behind
    assert answer.clamp_next == -1
    now_ms, state = answer.now_us // 1000, await shard.state()
    assert state.processing == {
        "held": now_ms + LEASE_MS,
        "failing": now_ms + LEASE_MS,
        "short": now_ms + 2000,
    }
    assert state.lease["short"] == short.token


async def test_a_clock_behind_the_expected_holds_expired_leases_back_and_calls_for_renewal(
    shard: OpenShard, seeds: Seeds
) -> None:
    """The caller slept while the clock went back by more, and came again in part."""
    hand = await shard.listener("w")
    await shard.lapse("held")
    request = ClaimRequest(1, LEASE_MS, expected_now_us=await shard.now_us() + HOUR_MS * 1000)
    answer = await hand.ask(request)
    assert (answer.stepped, answer.leases) == (True, [])
    await hand.hears("renew")
    assert (await shard.state()).lease["held"] == seeds.held.token


async def test_leases_that_ended_before_a_time_when_none_had_ended_get_their_length_anew(
    shard: OpenShard, seeds: Seeds
) -> None:
    """They were renewed while the clock was back. The caller slept meanwhile: what it expects is right."""
    hand = await shard.listener("w")
    now_ms = await shard.now_ms()
    await shard.poke_deadline("held", now_ms - HOUR_MS)
    await shard.lapse("failing")
    await shard.store.enqueue([Entry("due", b"", NOW)])
    request = ClaimRequest(10, LEASE_MS, clear_ms=now_ms - 1000)
    answer = await hand.ask(request)
    assert [lease.job_id for lease in answer.leases] == ["due"]
    assert not answer.clear
    assert answer.wait_us is not None
    assert answer.wait_us < 100_000, "it looks again at once, for what has really ended"
    state = await shard.state()
    assert state.processing["held"] == answer.now_us // 1000 + LEASE_MS
    assert state.lease["held"] == seeds.held.token
    answer = await hand.ask(request)
    assert [lease.job_id for lease in answer.leases] == ["failing"]
    assert answer.clear
    # Nobody has renewed it by then: its holder is dead, and it is taken.
    await shard.lapse("held")
    assert [lease.job_id for lease in (await hand.ask(request)).leases] == ["held"]


async def test_a_time_that_lies_ahead_says_nothing_of_leases_that_end_now(
    shard: OpenShard, seeds: Seeds
) -> None:
    """The clock is back since the caller saw that none had ended."""
    hand = await shard.listener("w")
    await shard.lapse("held")
    request = ClaimRequest(1, LEASE_MS, clear_ms=await shard.now_ms() + HOUR_MS)
    assert [lease.job_id for lease in (await hand.ask(request)).leases] == ["held"]


async def test_pulling_in_goes_on_page_by_page(shard: OpenShard) -> None:
    hand = await shard.listener("w")
    names = [f"{n:04d}" for n in range(2 * BATCH + 20)]
    await shard.store.enqueue([Entry(name, b"", NOW) for name in names])
    while await hand.take(BATCH):
        pass
    far_ms = await shard.now_ms() + HOUR_MS
    for n, name in enumerate(names):
        await shard.poke_deadline(name, far_ms + n)
    clamp_from, calls = -1, 0
    expected: int | None = None
    while calls == 0 or clamp_from >= 0:
        before = [ms for ms in (await shard.state()).processing.values() if ms >= far_ms]
        answer = await hand.ask(ClaimRequest(1, LEASE_MS, expected_now_us=expected, clamp_from=clamp_from))
        clamp_from, expected, calls = answer.clamp_next, answer.now_us, calls + 1
        after = [ms for ms in (await shard.state()).processing.values() if ms >= far_ms]
        assert len(before) - len(after) <= BATCH
        assert calls < 10
    assert not [ms for ms in (await shard.state()).processing.values() if ms >= far_ms]


async def test_a_paused_queue_gives_nothing(shard: OpenShard, seeds: Seeds) -> None:
    await shard.lapse("held")
    await shard.store.enqueue([Entry("due", b"", NOW)])
    await shard.store.pause("why")
    before = await shard.state()
    hand = await shard.listener("w")
    answer = await hand.claim(5)
    assert (answer.paused, answer.leases) == (True, [])
    assert answer.wait_us == 10_000_000
    assert (await hand.claim(0)).wait_us is None
    assert await shard.state() == before
    await shard.store.resume()
    assert {le.job_id for le in (await hand.claim(5)).leases} == {"held", "due"}


async def test_a_payload_lost_by_someone_elses_hand_is_told_as_none(shard: OpenShard, seeds: Seeds) -> None:
    await shard.store.enqueue([Entry("a", b"", NOW), Entry("b", b"body", NOW)])
    await shard.lose("payload", "a")
    leases = await seeds.holder.take(5)
    assert [(le.job_id, le.payload) for le in leases] == [("a", None), ("b", b"body")]
    assert await seeds.holder.settle(*(Acked(le.job_id, le.token) for le in leases)) == [True, True]


async def test_an_expired_job_whose_lease_record_was_lost_is_recovered(
    shard: OpenShard, seeds: Seeds
) -> None:
    """B51, B59: it does not keep the others from being recovered either."""
    await shard.lapse("held", "failing")
    await shard.lose("lease", "held")
    leases = {le.job_id: le for le in await seeds.holder.take(5)}
    assert set(leases) == {"held", "failing"}
    assert leases["held"].payload == b"body of held"
    assert leases["failing"].due_ms == seeds.failing.due_ms
    assert await seeds.holder.settle(*(Acked(le.job_id, le.token) for le in leases.values())) == [True, True]


async def test_a_worker_without_a_receiver_is_told_so_and_never_listed(shard: OpenShard) -> None:
    deaf = shard.hand("deaf")
    await shard.store.enqueue([Entry("a", b"", NOW)])
    answer = await deaf.claim(5)
    assert answer.deaf
    assert [le.job_id for le in answer.leases] == ["a"]
    assert answer.wait_us is not None
    assert 0 < answer.wait_us <= 1_000_000
    state = await shard.state()
    assert state.idle == {}
    assert state.workers == {}


async def test_settlements_and_the_next_claim_make_one_turn(shard: OpenShard) -> None:
    hand = await shard.listener("w")
    await shard.store.enqueue([Entry("a", b"", NOW), Entry("b", b"", NOW), Entry("c", b"", NOW)])
    a, b = await hand.take(2)
    answer = await hand.turn(
        Deferred(b.job_id, b.token, NOW, b"h"),
        Acked("c", "no token of c"),
        Acked(a.job_id, a.token),
        claim=ClaimRequest(5, LEASE_MS),
    )
    assert answer.settled == [True, False, True]
    assert answer.claim is not None
    assert {le.job_id for le in answer.claim.leases} == {"b", "c"}


async def test_others_that_hold_leases_are_counted(shard: OpenShard, seeds: Seeds) -> None:
    hand = await shard.listener("w")
    assert (await hand.claim(5)).others == 1
    assert (await seeds.holder.claim(5)).others == 0


async def test_a_full_worker_is_told_of_others_too(shard: OpenShard, seeds: Seeds) -> None:
    hand = await shard.listener("w")
    await shard.store.enqueue([Entry(f"n{n}", b"", NOW) for n in range(3)])
    full = await hand.claim(1)
    assert full.wait_us is None
    assert full.others == 1
    assert (await hand.claim(0)).others == 1
    full = await seeds.holder.claim(1)
    assert full.wait_us is None
    assert full.others == 1
