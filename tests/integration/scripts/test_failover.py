"""resend and finished: what producers and workers tell again after a failover, whatever is there by then."""

from __future__ import annotations

from typing import cast

import pytest

from aiodq._core.due import NOW, Due
from aiodq._core.settlement import Acked, Buried, Deferred
from aiodq._core.store import BATCH, DEDUPE_MS, REPLAY_MS, Entry
from aiodq._memory.failover import Resent, Told
from tests.servers import ServerProcess
from tests.shards import HOUR_MS, MemoryShard, OpenShard, RedisShard, Seeds
from tests.telling import finished, resend, sha


async def note_past(shard: OpenShard, job_id: str, at_us: int) -> None:
    """The job ended at that time, as an ack notes it where failovers can happen."""
    if isinstance(shard, MemoryShard):
        shard.data.past.put(job_id, at_us, await shard.now_ms())
        return
    assert isinstance(shard, RedisShard)
    ring = await shard.now_ms() // REPLAY_MS % 3
    key = shard.keys.named(f"past{ring}")
    await shard.client.hset(key, job_id, str(at_us))
    await shard.client.pexpire(key, 2 * REPLAY_MS)


async def test_a_missing_job_is_made_again(shard: OpenShard, seeds: Seeds) -> None:
    due = Due(4_000_000_000_000, relative=False)
    assert await resend(shard, [Resent(Entry("lost", b"body", due), await shard.now_us())]) == [True]
    state = await shard.state()
    assert state.schedule["lost"] == due.ms
    assert state.payload["lost"] == b"body"
    assert state.without("lost") == seeds.state


async def test_a_missing_job_whose_time_has_come_wakes_a_worker(shard: OpenShard) -> None:
    hand = await shard.listener("waiter")
    await hand.claim(5)
    assert await resend(shard, [Resent(Entry("lost", b"body", Due(5, relative=False)), 1)]) == [True]
    await hand.hears("due")
    (lease,) = await hand.take(5)
    assert await hand.settle(Acked("lost", lease.token)) == [True]


async def test_jobs_in_any_place_are_left_as_they_are(shard: OpenShard, seeds: Seeds) -> None:
    names = ["waiting", "retried", "held", "failing", "buried"]
    again = [Resent(Entry(name, b"other", NOW), await shard.now_us()) for name in names]
    assert await resend(shard, again) == [False] * len(names)
    assert await shard.state() == seeds.state


async def test_a_job_that_ended_since_is_not_made_again(shard: OpenShard) -> None:
    """One that ended before was another one, of the same id: somebody has enqueued it again since."""
    now_us = await shard.now_us()
    await note_past(shard, "a", now_us)
    assert await resend(shard, [Resent(Entry("a", b"body", NOW), now_us - 1)]) == [False]
    assert await resend(shard, [Resent(Entry("a", b"body", NOW), now_us)]) == [True]
    assert await shard.store.cancel(["a"]) == ["scheduled"]


async def test_a_kept_id_is_not_made_again_after_its_job_is_done(shard: OpenShard, seeds: Seeds) -> None:
    """Its enqueue found a done mark (or a job): what it was told must stay true."""
    asked = Entry(seeds.done, b"body", NOW, remember=True)
    assert await resend(shard, [Resent(asked, await shard.now_us())]) == [False]
    assert await shard.state() == seeds.state


async def test_an_ack_told_again_counts_under_its_lease(shard: OpenShard, seeds: Seeds) -> None:
    """Its claim was replicated, the ack was not: without this the job would wait for the lease to run out."""
    told = Told("held", seeds.held.token, sha(b"body of held"), remember=True)
    assert await finished(shard, [told]) == "1"
    state = await shard.state()
    assert state == seeds.state.without("held").but(done={**seeds.state.done, "held": seeds.held.due_ms})
    assert await finished(shard, [told]) == "2"
    assert await shard.state() == state


async def test_an_ack_told_again_ends_a_job_that_waits_with_the_same_payload(
    shard: OpenShard, seeds: Seeds
) -> None:
    """Neither claim nor ack was replicated."""
    token, accepted_us = seeds.held.token, await shard.now_us()
    await shard.wait_ms(1)
    other = Told("waiting", token, sha(b"another body"))
    assert await finished(shard, [other]) == "0"
    assert await shard.state() == seeds.state
    assert await finished(shard, [Told("waiting", token, sha(b"body of waiting"))]) == "1"
    assert await shard.state() == seeds.state.without("waiting")
    again = Resent(Entry("waiting", b"body of waiting", NOW), accepted_us)
    assert await resend(shard, [again]) == [False]


async def test_an_ack_told_before_its_job_is_made_again_is_remembered(shard: OpenShard, seeds: Seeds) -> None:
    """Nothing of the job was replicated, and its worker is quicker than its producer."""
    accepted_us = await shard.now_us()
    await shard.wait_ms(1)
    assert await finished(shard, [Told("lost", seeds.held.token, sha(b"body"))]) == "2"
    assert await resend(shard, [Resent(Entry("lost", b"body", NOW), accepted_us)]) == [False]
    assert await shard.state() == seeds.state


async def test_a_job_that_waits_anew_is_not_ended_by_an_old_ack(shard: OpenShard, seeds: Seeds) -> None:
    """The ack is there, and the same job was enqueued again since."""
    await note_past(shard, "waiting", seeds.held.fence + 1)
    assert await finished(shard, [Told("waiting", seeds.held.token, sha(b"body of waiting"))]) == "2"
    assert await shard.state() == seeds.state


async def test_a_job_enqueued_again_after_a_lost_ack_is_not_taken_for_the_old_one(
    shard: OpenShard, seeds: Seeds
) -> None:
    """Lost with the old server, in this order: the ack of `held`, and a new job under its id."""
    acked_us = await shard.now_us()
    accepted_us = acked_us + 1
    await shard.wait_ms(1)
    told = Told("held", seeds.held.token, sha(b"body of held"), ended_us=acked_us)
    assert await finished(shard, [told]) == "1"
    assert await resend(shard, [Resent(Entry("held", b"body of held", NOW), acked_us - 1)]) == [False]
    assert await resend(shard, [Resent(Entry("held", b"body of held", NOW), accepted_us)]) == [True]


async def test_what_others_hold_or_is_dead_is_left(shard: OpenShard, seeds: Seeds) -> None:
    told = [
        Told("held", seeds.stale, sha(b"body of held"), remember=True),
        Told("buried", seeds.held.token, sha(b"body of buried"), remember=True),
    ]
    assert await finished(shard, told) == "00"
    assert await shard.state() == seeds.state


async def test_a_full_batch(shard: OpenShard) -> None:
    names = [f"{n:03d}" for n in range(BATCH)]
    again = [Resent(Entry(name, name.encode(), Due(HOUR_MS)), 1) for name in names]
    assert await resend(shard, again) == [True] * BATCH
    token = "0" * 15 + "1:" + "0" * 15 + ":" + "0" * 8 + ":" + "w" * 20 + ":" + "0" * 8
    assert await finished(shard, [Told(name, token, sha(name.encode())) for name in names]) == "1" * BATCH
    assert not (await shard.state()).payload


@pytest.mark.parametrize("replays", [False, True])
async def test_acks_and_cancels_note_the_end_only_where_failovers_can_happen(
    shard: OpenShard, replays: bool, request: pytest.FixtureRequest
) -> None:
    if not isinstance(shard, RedisShard):
        pytest.skip("a memory has no failover")
    from aiodq._redis.backend import RedisBackend

    server = cast("ServerProcess", request.getfixturevalue("server_of_shard"))
    backend = RedisBackend(url=server.url, replays=replays)
    queue = shard.keys.base.partition("{")[2].partition("}")[0]
    store = backend.store(queue, fifo=shard.fifo)
    other = type(shard)(store, shard.client, queue, shard.kind, fifo=shard.fifo)
    hand = await other.listener("w")
    names = ["acked", "expired", "retried", "buried", "cancelled"]
    await other.store.enqueue([Entry(name, b"body", NOW) for name in names[:4]])
    leases = {lease.job_id: lease.token for lease in await hand.take(5)}
    await hand.settle(
        Acked("acked", leases["acked"]),
        Acked("expired", leases["expired"], outcome="expire"),
        Deferred("retried", leases["retried"], Due(HOUR_MS), b""),
        Buried("buried", leases["buried"], b""),
    )
    await other.store.enqueue([Entry("cancelled", b"body", Due(HOUR_MS))])
    await other.store.cancel(["cancelled", "nobody"])
    noted: set[str] = set()
    for name in ("past0", "past1", "past2"):
        key = shard.keys.named(name)
        noted |= set((await shard._hash(name)).keys())
        if await shard.client.exists(key):
            assert 0 < await shard.client.pttl(key) <= 2 * REPLAY_MS
    assert noted == ({"acked", "expired", "cancelled"} if replays else set())
    assert not (await shard.state()).done, f"the ring of {DEDUPE_MS} ms is for ids of the caller's own"
    await hand.aclose()
    await other.store.cancel(["retried"])
    await other.store.purge(["buried"])
    await backend.aclose()
