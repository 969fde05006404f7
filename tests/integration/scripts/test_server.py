"""What only a server can do to scripts: be upgraded, be full, forbid channels, forget them, hold a lot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import cast

import pytest

from aiodq._core.due import NOW, Due
from aiodq._core.errors import NewerProtocol, QueueFull
from aiodq._core.lease import Token
from aiodq._core.lifecycle import BY_NAME
from aiodq._core.rate import Booking
from aiodq._core.settlement import Acked, Buried, Deferred, Released
from aiodq._core.store import BATCH, SILENT_MS, ClaimRequest, Entry, Revival
from aiodq._core.unique import Hold
from aiodq._memory.failover import Resent, Told
from aiodq._redis.backend import RedisBackend
from tests.clusters import servers_of
from tests.servers import ServerProcess
from tests.shards import HOUR_MS, LEASE_MS, OpenShard, RedisShard, Seeds, let_go, worker_id
from tests.telling import finished, resend

KINDS = ("scripts", "functions")

Calls = dict[str, Callable[[], Awaitable[object]]]


@pytest.fixture
def on_server(shard: OpenShard) -> RedisShard:
    assert isinstance(shard, RedisShard)
    return shard


def transitions(shard: OpenShard, seeds: Seeds) -> Calls:
    """One call of each transition, by name."""
    store, holder, held = shard.store, seeds.holder, seeds.held
    revival = Revival(seeds.buried, seeds.state.dead[seeds.buried], NOW, b"h")
    return {
        "enqueue": lambda: store.enqueue([Entry("x", b"x" * 1000, NOW)]),
        "replace": lambda: store.replace([Entry("x", b"x" * 1000, NOW)]),
        "unite": lambda: store.unite([Entry("x", b"x" * 1000, NOW, hold=Hold("close:7", HOUR_MS))]),
        "reschedule": lambda: store.reschedule([(seeds.waiting, NOW)]),
        "vacate": lambda: let_go(holder, seeds.state.schedule[seeds.waiting]),
        "cancel": lambda: store.cancel([seeds.waiting]),
        "replay": lambda: store.replay([revival]),
        "purge": lambda: store.purge([seeds.buried]),
        "trim": lambda: store.trim(age_ms=0, count=0),
        "claim": lambda: holder.take(5),
        "ack": lambda: holder.settle(Acked("held", held.token, remember=True)),
        "retry": lambda: holder.settle(Deferred("held", held.token, NOW, b"h" * 1000)),
        "release": lambda: holder.settle(Released("held", held.token)),
        "bury": lambda: holder.settle(Buried("held", held.token, b"h" * 1000)),
        "extend": lambda: holder.keeper.extend([("held", held.token)], lease_ms=HOUR_MS),
        "convict": lambda: holder.store.convict(worker_id("dead")),
        "resend": lambda: resend(shard, [Resent(Entry("x", b"x" * 1000, NOW), 1)]),
        "finished": lambda: finished(shard, [Told("held", held.token, "", remember=True)]),
    }


def questions(shard: OpenShard, seeds: Seeds) -> Calls:
    store = shard.store
    return {
        "find": lambda: store.find([seeds.waiting]),
        "peek": lambda: store.peek("scheduled", limit=5),
        "stats": store.stats,
        "pause": lambda: store.pause("why"),
        "resume": store.resume,
        "sweep": seeds.holder.store.sweep,
        "admit": lambda: seeds.holder.store.admit([Booking("close", 1)]),
    }


async def prepare(shard: RedisShard, name: str) -> None:
    """Brings about what the transition needs beside the seeds."""
    if name == "claim":
        await shard.lapse("failing")
    if name == "convict":
        await shard.poke_sign(worker_id("dead"), -(await shard.now_ms() - SILENT_MS))
        token = str(Token(1, 1, LEASE_MS, worker_id("dead"), "00000000"))
        await shard.client.hset(shard.keys.named("lease"), "theirs", token)
        await shard.client.hset(shard.keys.named("payload"), "theirs", "body")
        await shard.poke_deadline("theirs", await shard.now_ms() + HOUR_MS)


QUESTIONS = ("find", "peek", "stats", "pause", "resume", "sweep", "admit")


@pytest.mark.parametrize("name", [*sorted(BY_NAME), *QUESTIONS])
async def test_a_queue_of_a_newer_layout_is_left_alone(
    on_server: RedisShard, seeds: Seeds, name: str
) -> None:
    shard = on_server
    await prepare(shard, name)
    meta = shard.keys.named("meta")
    await shard.client.hset(meta, "v", "2")
    before = await shard.state()
    with pytest.raises(NewerProtocol, match="2"):
        await {**transitions(shard, seeds), **questions(shard, seeds)}[name]()
    assert await shard.state() == before
    await shard.client.hset(meta, "v", "1")
    await {**transitions(shard, seeds), **questions(shard, seeds)}[name]()


@pytest.fixture
def full_server(server_of_shard: ServerProcess) -> Iterator[Callable[[bool], None]]:
    """Switches the server's memory limit to almost nothing, and back."""
    server = server_of_shard

    def fill(full: bool) -> None:
        for process in servers_of(server):
            with process.client() as client:
                client.config_set("maxmemory", 1 if full else 0)

    yield fill
    fill(False)


@pytest.mark.parametrize("name", sorted(BY_NAME))
async def test_with_memory_full_the_queue_can_be_drained_and_growth_is_refused_whole(
    on_server: RedisShard, seeds: Seeds, name: str, full_server: Callable[[bool], None]
) -> None:
    """B103."""
    shard = on_server
    await prepare(shard, name)
    before = await shard.state()
    full_server(True)
    call = transitions(shard, seeds)[name]
    if BY_NAME[name].drains:
        await call()
        full_server(False)
        assert await shard.state() != before
    else:
        with pytest.raises(QueueFull):
            await call()
        full_server(False)
        assert await shard.state() == before
        await call()
        assert await shard.state() != before


async def test_with_memory_full_rates_go_on_so_that_their_jobs_can_be_drained(
    on_server: RedisShard, seeds: Seeds, full_server: Callable[[bool], None]
) -> None:
    full_server(True)
    first = await seeds.holder.store.admit([Booking("close", 60_000_000)])
    second = await seeds.holder.store.admit([Booking("close", 60_000_000)])
    assert second.begins_us == [first.begins_us[0] + 60_000_000]


async def test_a_user_without_rights_for_channels_can_enqueue(
    on_server: RedisShard, seeds: Seeds, queue_name: str, server_of_shard: ServerProcess
) -> None:
    """An error of PUBLISH must not look like a failed write; the worker looks a little later."""
    shard, server = on_server, server_of_shard
    with server.client() as client:
        client.acl_setuser(
            "mute", enabled=True, passwords=["+secret"], keys=["*"], categories=["+@all"], reset_channels=True
        )
    await shard.poke_plan(seeds.holder.id, await shard.now_ms() + HOUR_MS)
    backend = RedisBackend(url=f"redis://mute:secret@127.0.0.1:{server.port}/0")
    try:
        store = backend.store(queue_name)
        [placed] = await store.enqueue([Entry("x", b"", Due(1000))])
        assert placed.created
        assert await store.reschedule([("x", Due(500))]) == ["scheduled"]
        await store.pause("why")
        await store.resume()
        worker = store.worker(worker_id("mute"), lambda _: None)
        assert (await worker.turn([], ClaimRequest(0, LEASE_MS))).claim is not None
        await worker.aclose()
    finally:
        await backend.aclose()
        with server.client() as client:
            client.acl_deluser("mute")
    state = await shard.state()
    assert "x" in state.schedule
    assert state.idle == {seeds.holder.id: state.idle[seeds.holder.id]}
    assert seeds.holder.heard("due") == []


async def test_scripts_that_the_server_forgot_are_loaded_again(on_server: RedisShard, seeds: Seeds) -> None:
    for name in sorted(BY_NAME):
        await on_server.client.script_flush()
        await on_server.client.function_flush()
        await transitions(on_server, seeds)[name]()


@pytest.mark.slow
async def test_no_script_breaks_or_grows_with_the_backlog(
    on_server: RedisShard, server_of_shard: ServerProcess
) -> None:
    """B108: 20,000 of each kind at once."""
    shard, count = on_server, 20_000
    hand, dead = await shard.listener("w"), worker_id("dead")
    now_ms = await shard.now_ms()
    keys = shard.keys
    token = str(Token(1, now_ms, LEASE_MS, dead, "00000000"))
    async with shard.client.pipeline(transaction=False) as pipe:
        for kind, key in (("due", "schedule"), ("lapsed", "processing"), ("gone", "dead")):
            for at in range(0, count, 1000):
                names = [f"{kind}{n:05d}" for n in range(at, at + 1000)]
                pipe.zadd(keys.named(key), dict.fromkeys(names, now_ms - 10_000))
                pipe.hset(keys.named("payload"), mapping=dict.fromkeys(names, "body"))
                if kind == "lapsed":
                    pipe.hset(keys.named("lease"), mapping=dict.fromkeys(names, token))
        pipe.zadd(keys.named("workers"), {dead: -1, **{f"worker{n}": -1 for n in range(1000)}})
        pipe.zadd(keys.named("idle"), {f"idle{n}": now_ms + n for n in range(1000)})
        await pipe.execute()
    store = shard.store
    await shard.client.config_resetstat()
    leases = await hand.take(BATCH)
    assert len(leases) == BATCH
    assert sum(lease.recovered for lease in leases) == BATCH // 2
    await hand.settle(*(Released(lease.job_id, lease.token) for lease in leases))
    first = await hand.ask(ClaimRequest(1, LEASE_MS, expected_now_us=None))
    assert first.clamp_next >= 0
    assert len((await hand.store.sweep()).silent) <= 128
    assert await hand.store.convict(dead)
    names = [f"due{n:05d}" for n in range(count)]
    assert set(await store.cancel(names[:1000])) <= {"scheduled", "absent", "processing"}
    assert await store.reschedule([(name, Due(HOUR_MS)) for name in names[1000:2000]]) == ["scheduled"] * 1000
    assert len(await store.find(names[:1000])) == 1000
    assert len((await store.peek("processing", limit=500)).jobs) == 500
    assert (await store.stats()).dead == count
    revivals = [Revival(f"gone{n:05d}", now_ms - 10_000, NOW, b"") for n in range(1000)]
    assert await store.replay(revivals) == [True] * 1000
    assert await store.purge([f"gone{n:05d}" for n in range(1000, 2000)]) == [True] * 1000
    assert await store.trim(age_ms=HOUR_MS, count=10_000) == count - 2000 - 10_000
    assert len(await store.enqueue([Entry(f"new{n}", b"", NOW) for n in range(1000)])) == 1000
    calls: list[float] = []
    for process in servers_of(server_of_shard):
        with process.client() as client:
            stats = cast("dict[str, dict[str, float]]", client.info("commandstats"))
        scripts = ("cmdstat_evalsha", "cmdstat_fcall")
        calls += [stats[name]["usec_per_call"] for name in scripts if name in stats]
    assert max(calls) < 20_000
