"""check and repair: each fault that another hand can leave is found, told and mended; nothing else moves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias, cast

import pytest

from aiodq._api.checking import check_shard
from aiodq._core.consistency import MOST_LISTED, CheckReport, FaultKind
from aiodq._core.due import NOW, Due
from aiodq._core.envelope import Envelope, encode_envelope
from aiodq._core.inspection import GONE_HOLDER_MS, GONE_WAITER_MS, JOB_KEYS, Orphan
from aiodq._core.lease import Token
from aiodq._core.settlement import Acked
from aiodq._core.store import BATCH, Entry
from aiodq._core.tally import read_tally
from tests.shards import HOUR_MS, LEASE_MS, MemoryShard, OpenShard, RedisShard, Seeds, worker_id

BODY = encode_envelope(Envelope(1, "close_order"))


async def check(shard: OpenShard, *, repair: bool = False) -> CheckReport:
    return await check_shard("q", shard.store.inspector(), repair=repair)


async def put(shard: OpenShard, key: str, member: str, value: int | str | bytes) -> None:
    """Writes one member or field, as someone else's hand may."""
    if isinstance(shard, MemoryShard):
        kept = getattr(shard.data, key)
        if isinstance(value, int):
            kept.put(member, value)
        else:
            kept[member] = value
        return
    assert isinstance(shard, RedisShard)
    if isinstance(value, int):
        await shard.put(key, member, value)
    else:
        field = f"t:{member}" if key == "tally" else member
        await shard.client.hset(shard.keys.named(key), field, cast("str", value))


def token(job_id: str, due_ms: int = 1_700_000_000_000) -> str:
    return str(Token(1_700_000_000_000_000, due_ms, LEASE_MS, worker_id("nobody"), "0000000A"))


def kinds(report: CheckReport) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for finding in report.findings:
        found.setdefault(finding.subject, []).append(finding.kind)
    return found


async def test_a_sound_shard_has_nothing_to_find(shard: OpenShard, seeds: Seeds) -> None:
    assert await check(shard) == await check(shard, repair=True)
    report = await check(shard)
    assert report.ok
    assert not report.findings
    # schedule, processing, dead; payloads; leases; two histories and one count of interruptions at least
    assert report.checked >= 2 + 2 + 1 + 5 + 2 + 3
    assert await shard.state() == seeds.state


Break: TypeAlias = Callable[[OpenShard, Seeds], Awaitable[None]]


async def _processing_and_schedule(shard: OpenShard, seeds: Seeds) -> None:
    await put(shard, "schedule", "held", 5)


async def _processing_and_dead(shard: OpenShard, seeds: Seeds) -> None:
    await put(shard, "dead", "held", 5)


async def _schedule_and_dead(shard: OpenShard, seeds: Seeds) -> None:
    await put(shard, "dead", "waiting", 5)


async def _schedule_and_lost_run(shard: OpenShard, seeds: Seeds) -> None:
    await put(shard, "processing", "waiting", 5)


async def _everywhere(shard: OpenShard, seeds: Seeds) -> None:
    await put(shard, "processing", "waiting", 5)
    await put(shard, "dead", "waiting", 5)
    await put(shard, "lease", "waiting", "not a token")


async def _no_payload_scheduled(shard: OpenShard, seeds: Seeds) -> None:
    await shard.lose("payload", "retried")


async def _no_payload_dead(shard: OpenShard, seeds: Seeds) -> None:
    await shard.lose("payload", "buried")


async def _no_payload_lapsed(shard: OpenShard, seeds: Seeds) -> None:
    await shard.lose("payload", "failing")
    await shard.lapse("failing")


async def _no_lease(shard: OpenShard, seeds: Seeds) -> None:
    await shard.lose("lease", "held")


async def _unreadable_lease(shard: OpenShard, seeds: Seeds) -> None:
    await put(shard, "lease", "held", "x" * 71)


async def _lease_of_a_waiting_job(shard: OpenShard, seeds: Seeds) -> None:
    await put(shard, "lease", "waiting", token("waiting"))


async def _lease_of_nobody(shard: OpenShard, seeds: Seeds) -> None:
    await put(shard, "lease", "nobody", token("nobody"))


async def _counters_of_nobody(shard: OpenShard, seeds: Seeds) -> None:
    await put(shard, "tally", "nobody", b"history")


async def _no_place_readable(shard: OpenShard, seeds: Seeds) -> None:
    await put(shard, "payload", "lost", BODY)
    await put(shard, "lease", "lost", "unreadable")


async def _no_place_newer(shard: OpenShard, seeds: Seeds) -> None:
    await put(shard, "payload", "lost", encode_envelope(Envelope(2, "close_order")))


SOUND_AGAIN: dict[str, tuple[Break, str, tuple[FaultKind, ...]]] = {
    "in processing and in the schedule": (_processing_and_schedule, "held", ("two-places",)),
    "in processing and dead": (_processing_and_dead, "held", ("two-places",)),
    "in the schedule and dead": (_schedule_and_dead, "waiting", ("two-places",)),
    "in the schedule, and in processing without a lease": (
        _schedule_and_lost_run,
        "waiting",
        ("two-places",),
    ),
    "in all three places": (_everywhere, "waiting", ("two-places",)),
    "a lease of a waiting job": (_lease_of_a_waiting_job, "waiting", ("stray-lease",)),
    "a lease of nobody": (_lease_of_nobody, "nobody", ("stray-lease",)),
    "counters of nobody": (_counters_of_nobody, "nobody", ("stray-counters",)),
}


@pytest.mark.parametrize("fault", SOUND_AGAIN)
async def test_what_is_too_much_is_told_and_removed(shard: OpenShard, seeds: Seeds, fault: str) -> None:
    """The state is then the one from before the fault."""
    damage, subject, told = SOUND_AGAIN[fault]
    await damage(shard, seeds)
    broken = await shard.state()
    report = await check(shard)
    assert kinds(report) == {subject: list(told)}
    assert report.left == len(told)
    assert not any(finding.done for finding in report.findings)
    assert await shard.state() == broken, "a check without repair changes nothing"
    report = await check(shard, repair=True)
    assert kinds(report) == {subject: list(told)}
    assert report.ok
    assert all(finding.done and finding.repaired for finding in report.findings)
    assert await shard.state() == seeds.state
    assert not (await check(shard)).findings


GONE: dict[str, tuple[Break, str]] = {
    "scheduled": (_no_payload_scheduled, "retried"),
    "dead": (_no_payload_dead, "buried"),
    "lease run out": (_no_payload_lapsed, "failing"),
}


@pytest.mark.parametrize("where", GONE)
async def test_a_place_without_a_payload_is_told_and_removed(
    shard: OpenShard, seeds: Seeds, where: str
) -> None:
    damage, subject = GONE[where]
    await damage(shard, seeds)
    report = await check(shard, repair=True)
    assert kinds(report) == {subject: ["no-payload"]}
    assert report.ok
    assert await shard.state() == seeds.state.without(subject)


async def test_a_run_that_lost_its_payload_is_left_to_its_worker(shard: OpenShard, seeds: Seeds) -> None:
    """The worker has the payload in memory, and may end the job well."""
    await shard.lose("payload", "held")
    broken = await shard.state()
    report = await check(shard, repair=True)
    assert kinds(report) == {"held": ["no-payload"]}
    assert report.left == 1
    assert "left to that worker" in str(report.findings[0])
    assert await shard.state() == broken
    assert await seeds.holder.settle(Acked("held", seeds.held.token)) == [True]
    assert not (await check(shard)).findings


@pytest.mark.parametrize("damage", [_no_lease, _unreadable_lease])
async def test_a_run_without_a_lease_waits_again_due_now(
    shard: OpenShard, seeds: Seeds, damage: Break
) -> None:
    await damage(shard, seeds)
    before = await shard.now_ms()
    report = await check(shard, repair=True)
    assert kinds(report) == {"held": ["no-lease"]}
    assert report.ok
    state, was = await shard.state(), seeds.state
    due_ms = state.schedule["held"]
    assert before <= due_ms <= await shard.now_ms()
    assert state == was.but(
        schedule={**was.schedule, "held": due_ms},
        processing={i: at for i, at in was.processing.items() if i != "held"},
        lease={i: t for i, t in was.lease.items() if i != "held"},
        idle=state.idle,
    )
    assert await seeds.holder.settle(Acked("held", seeds.held.token)) == [False]
    assert [lease.job_id for lease in await seeds.holder.take()] == ["held"]


async def test_a_lease_whose_run_is_missing_gets_it_back(shard: OpenShard, seeds: Seeds) -> None:
    """Its worker may be alive: nothing is run twice. If not, the lease runs out."""
    await shard.lose("processing", "held")
    report = await check(shard, repair=True)
    assert kinds(report) == {"held": ["stray-lease"]}
    state = await shard.state()
    deadline_ms = state.processing["held"]
    assert 0 <= await shard.now_ms() + LEASE_MS - deadline_ms < 5000
    assert state == seeds.state.but(processing={**seeds.state.processing, "held": deadline_ms})
    assert await seeds.holder.settle(Acked("held", seeds.held.token)) == [True]
    assert await shard.state() == seeds.state.without("held")


@pytest.mark.parametrize("damage", [_no_place_readable, _no_place_newer])
async def test_a_payload_without_a_place_is_brought_back(
    shard: OpenShard, seeds: Seeds, damage: Break
) -> None:
    await damage(shard, seeds)
    told = (await check(shard)).findings[0]
    assert (told.kind, told.subject) == ("no-place", "lost")
    report = await check(shard, repair=True)
    assert report.ok
    assert "scheduled again" in report.findings[0].done
    state = await shard.state()
    assert {**seeds.state.schedule, "lost": state.schedule["lost"]} == state.schedule
    assert state.without("lost") == seeds.state.but(idle=state.idle)
    assert [lease.job_id for lease in await seeds.holder.take()] == ["lost"]


async def test_a_payload_without_a_place_that_nobody_can_read_is_buried(
    shard: OpenShard, seeds: Seeds
) -> None:
    await put(shard, "payload", "lost", b"\xff\xfe")
    report = await check(shard, repair=True)
    assert kinds(report) == {"lost": ["no-place"]}
    assert report.ok
    state = await shard.state()
    assert state.payload["lost"] == b"\xff\xfe"
    assert set(state.dead) == {"buried", "lost"}
    assert "cannot be read" in read_tally(state.tally["lost"][0]).reason
    assert state.without("lost") == seeds.state


async def test_a_job_can_be_wrong_in_two_ways(shard: OpenShard, seeds: Seeds) -> None:
    await put(shard, "dead", "waiting", 5)
    await shard.lose("payload", "waiting")
    report = await check(shard, repair=True)
    assert kinds(report) == {"waiting": ["two-places", "no-payload"]}
    assert report.ok
    assert await shard.state() == seeds.state.without("waiting")


async def test_a_broken_row_does_not_keep_others_from_recovery(shard: OpenShard) -> None:
    """B59: of 100 expired leases, two have broken fields."""
    hand, other = await shard.listener("dead"), await shard.listener("alive")
    names = [f"{n:03d}" for n in range(BATCH)]
    await shard.store.enqueue([Entry(name, BODY, NOW) for name in names])
    assert len(await hand.take(BATCH)) == BATCH
    await put(shard, "lease", "007", "broken")
    await shard.lose("lease", "008")
    await shard.lapse(*names)
    assert kinds(await check(shard)) == {"007": ["no-lease"], "008": ["no-lease"]}
    taken = [*await other.take(BATCH), *await other.take(BATCH)]
    assert sorted(lease.job_id for lease in taken) == names
    assert await other.settle(*(Acked(lease.job_id, lease.token) for lease in taken)) == [True] * BATCH
    assert not (await check(shard)).findings


async def test_an_evicted_lease_of_a_dead_worker_is_found_and_run_again(shard: OpenShard) -> None:
    """B51: neither its holder nor a recovery that goes by leases would ever have looked at it."""
    hand = await shard.listener("killed")
    await shard.store.enqueue([Entry("a", BODY, Due(0))])
    await hand.take()
    await shard.silence(hand)
    await shard.lose("lease", "a")
    assert (await check(shard, repair=True)).found == {"no-lease": 1}
    other = await shard.listener("alive")
    assert [lease.job_id for lease in await other.take()] == ["a"]
    await shard.store.replace([Entry("a", BODY, NOW)])
    await shard.lapse("a")
    (lease,) = await other.take()
    assert await other.settle(Acked("a", lease.token)) == [True]


async def test_orphans_of_both_kinds_do_not_block_their_id(shard: OpenShard) -> None:
    """B76: only the member is gone, then only the payload."""
    for place in ("schedule", "payload"):
        await shard.store.enqueue([Entry("a", BODY, Due(HOUR_MS))])
        await shard.lose(place, "a")
        assert sum((await check(shard)).found.values()) == 1
        (placed,) = await shard.store.enqueue([Entry("a", BODY, Due(HOUR_MS))])
        state = await shard.state()
        assert set(state.payload) == {"a"}
        assert set(state.schedule) == {"a"}
        assert not (await check(shard)).findings
        assert placed.created
        assert await shard.store.cancel(["a"]) == ["scheduled"]


async def test_workers_long_gone_are_taken_off_the_lists(shard: OpenShard, seeds: Seeds) -> None:
    now_ms = await shard.now_ms()
    gone, late, alive = worker_id("gone"), worker_id("late"), await shard.listener("alive")
    for worker, overdue_ms in ((gone, GONE_WAITER_MS + 1000), (late, 500), (alive.id, GONE_WAITER_MS + 1000)):
        await shard.poke_plan(worker, now_ms - overdue_ms)
    await shard.poke_sign(gone, -(now_ms - GONE_HOLDER_MS - 1000))
    await shard.poke_sign(late, -(now_ms - 500))
    await shard.poke_sign(alive.id, now_ms - GONE_HOLDER_MS - 1000)
    before = await shard.state()
    assert kinds(await check(shard)) == {gone: ["stale-waiter", "stale-holder"]}
    assert await shard.state() == before
    report = await check(shard, repair=True)
    assert report.ok
    assert kinds(report) == {gone: ["stale-waiter", "stale-holder"]}
    assert await shard.state() == before.but(
        idle={worker: at for worker, at in before.idle.items() if worker != gone},
        workers={worker: at for worker, at in before.workers.items() if worker != gone},
    )


async def test_a_silent_holder_of_leases_is_left_to_presence(shard: OpenShard, seeds: Seeds) -> None:
    await shard.silence(seeds.holder)
    await shard.poke_sign(seeds.holder.id, -(await shard.now_ms() - GONE_HOLDER_MS - 1000))
    assert not (await check(shard, repair=True)).findings


async def test_more_than_a_page_of_everything(shard: OpenShard) -> None:
    lost = [f"lost-{n:04d}" for n in range(MOST_LISTED + 50)]
    await shard.store.enqueue([Entry(name, BODY, Due(HOUR_MS)) for name in lost])
    for name in lost:
        await shard.lose("schedule", name)
    await shard.store.enqueue([Entry(f"sound-{n}", BODY, Due(HOUR_MS)) for n in range(3 * BATCH)])
    report = await check(shard, repair=True)
    assert report.found == {"no-place": len(lost)}
    assert report.repaired == len(lost)
    assert len(report.findings) == MOST_LISTED
    state = await shard.state()
    assert set(state.schedule) == set(state.payload)
    assert len(state.schedule) == len(lost) + 3 * BATCH
    assert not (await check(shard)).findings


@pytest.mark.parametrize("verb", ["repair", "restore", "condemn"])
async def test_a_repair_looks_again_and_leaves_what_is_sound_by_then(
    shard: OpenShard, seeds: Seeds, verb: str
) -> None:
    """Asked to mend jobs that are not broken (any more), or whose payload is another one."""
    inspector = shard.store.inspector()
    names = ["waiting", "retried", "held", "failing", "buried", "done", "nobody"]
    bodies = [Orphan(name, f"body of {name}".encode(), b"why") for name in names]
    if verb == "repair":
        assert await inspector.repair(names) == ["-"] * len(names)
    else:
        assert await getattr(inspector, verb)(bodies) == [False] * len(names)
    assert await shard.state() == seeds.state
    await put(shard, "payload", "lost", BODY)
    broken = await shard.state()
    assert await inspector.repair(["lost"]) == ["-"]
    assert await inspector.restore([Orphan("lost", b"as it was before")]) == [False]
    assert await inspector.condemn([Orphan("lost", b"as it was before", b"why")]) == [False]
    assert await shard.state() == broken
    assert await inspector.restore([Orphan("lost", BODY)]) == [True]
    assert await inspector.restore([Orphan("lost", BODY)]) == [False]


async def test_large_bodies_are_hashed_a_few_at_a_time(shard: OpenShard) -> None:
    body = encode_envelope(Envelope(1, "t", headers={"x": "y" * 300_000}))
    names = [f"big-{n}" for n in range(5)]
    for name in names:
        await put(shard, "payload", name, body)
    assert (await check(shard, repair=True)).repaired == 5
    assert set((await shard.state()).schedule) == set(names)


async def test_keys_of_another_type(shard: OpenShard) -> None:
    if not isinstance(shard, RedisShard):
        pytest.skip("memory has no keys")
    await shard.store.enqueue([Entry("a", BODY, Due(HOUR_MS))])
    idle, tally = shard.keys.named("idle"), shard.keys.named("tally")
    await shard.client.set(idle, "x")
    await shard.client.set(tally, "x")
    report = await check(shard)
    assert kinds(report) == {idle.decode(): ["wrong-type"], tally.decode(): ["wrong-type"]}
    report = await check(shard, repair=True)
    assert (report.repaired, report.left) == (1, 1), "counters are no spare key: somebody must decide"
    assert "by hand" in next(str(f) for f in report.findings if not f.repaired)
    assert await shard.client.exists(idle) == 0
    assert await shard.client.get(tally) == b"x"
    await shard.client.delete(tally)
    assert not (await check(shard)).findings


async def test_members_that_are_no_text(shard: OpenShard) -> None:
    """Written by someone else's hand; named as well as can be, and removed."""
    if not isinstance(shard, RedisShard):
        pytest.skip("in memory, ids are text")
    if shard.fifo:
        pytest.skip("a member without a number in order is met, and let go of, by the claim")
    await shard.client.zadd(shard.keys.named("schedule"), {b"\xff\x00": 1})
    report = await check(shard, repair=True)
    assert report.found == {"no-payload": 1}
    assert report.ok
    assert not (await shard.state()).schedule


def test_every_key_of_jobs_is_gone_through() -> None:
    assert set(JOB_KEYS) == {"schedule", "processing", "dead", "payload", "lease", "tally", "order"}
