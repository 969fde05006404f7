"""Calls of a real server: repeats, late duplicates, deployment, newer layouts, callers who share or leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from aiodq._core.due import Due
from aiodq._core.errors import NewerProtocol, ScriptError, StoreUnavailable
from aiodq._core.settlement import Acked
from aiodq._core.store import ClaimRequest, Entry
from aiodq._redis.backend import RedisBackend, new_sender_id
from aiodq._redis.calls import PRODUCER, Caller
from aiodq._redis.keys import ShardKeys
from aiodq._redis.link import Link
from aiodq._redis.scripts import Scripting, load_scripts
from aiodq._redis.store import RedisStore
from tests.clusters import open_client, servers_of
from tests.servers import ServerProcess


@pytest.fixture
async def backend(redis_url: str) -> AsyncIterator[RedisBackend]:
    backend = RedisBackend(url=redis_url)
    yield backend
    await backend.aclose()


@pytest.fixture
def store(backend: RedisBackend, queue_name: str) -> RedisStore:
    return backend.store(queue_name)


def caller(backend: RedisBackend, queue: str) -> Caller:
    """A producer whose call ids the test chooses."""
    link = backend._lines.to(ShardKeys(queue))
    return Caller(link, ShardKeys(queue), new_sender_id(), "eval", PRODUCER)


async def finish_all(store: RedisStore) -> list[str]:
    """Claims what is due and acks it; tells the ids."""
    worker = store.worker(new_sender_id(), lambda _: None)
    try:
        turn = await worker.turn([], ClaimRequest(want=100, lease_ms=30_000))
        assert turn.claim is not None
        await worker.turn([Acked(lease.job_id, lease.token) for lease in turn.claim.leases], None, last=True)
        await worker.leave(holds=False)
        return [lease.job_id for lease in turn.claim.leases]
    finally:
        await worker.aclose()


async def test_a_repeated_enqueue_gives_the_same_answer_even_after_the_job_has_run(
    backend: RedisBackend, store: RedisStore, queue_name: str
) -> None:
    producer = caller(backend, queue_name)
    wake = ShardKeys(queue_name).wake
    first = await producer.call("enqueue", ("00000001", wake, "0", "0", "", "a", "+0", b"body")).answer()
    assert await finish_all(store) == ["a"]

    again = await producer.call("enqueue", ("00000001", wake, "0", "0", "", "a", "+0", b"body")).answer()

    assert again == first
    assert (await store.stats()).scheduled == 0


async def test_a_call_that_arrives_after_later_ones_has_no_effect(
    backend: RedisBackend, store: RedisStore, queue_name: str
) -> None:
    """A connection that was given up may still deliver what was sent on it, after its call was repeated."""
    producer = caller(backend, queue_name)
    wake = ShardKeys(queue_name).wake
    await producer.call("enqueue", ("00000001", wake, "0", "0", "", "a", "+0", b"body")).answer()
    await producer.call("enqueue", ("00000002", wake, "0", "0", "", "b", "+60000", b"body")).answer()
    assert await finish_all(store) == ["a"]

    with pytest.raises(ScriptError, match="STALE 00000001"):
        await producer.call("enqueue", ("00000001", wake, "0", "0", "", "a", "+0", b"body")).answer()

    assert [found.was for found in await store.find(["a", "b"])] == ["absent", "scheduled"]
    await store.cancel(["b"])


@pytest.mark.parametrize("script", ["enqueue", "replace"])
async def test_a_call_without_jobs_overtakes_what_was_given_up_in_its_lane_only(
    backend: RedisBackend, store: RedisStore, queue_name: str, script: str
) -> None:
    producer = caller(backend, queue_name)
    fixed = (ShardKeys(queue_name).wake, "0", "0", *([""] if script == "enqueue" else []))
    await producer.call(script, ("00000003", *fixed), lane=2).answer()

    with pytest.raises(ScriptError, match="STALE 00000001"):
        await producer.call(script, ("00000001", *fixed, "a", "+60000", b""), lane=2).answer()
    assert [found.was for found in await store.find(["a"])] == ["absent"]

    await producer.call(script, ("00000002", *fixed, "a", "+60000", b""), lane=1).answer()
    assert [found.was for found in await store.find(["a"])] == ["scheduled"]
    await store.cancel(["a"])


async def test_call_ids_grow_as_strings(backend: RedisBackend) -> None:
    numbered = caller(backend, "q")
    ids = [numbered.next_call_id() for _ in range(2000)]
    assert ids == sorted(ids)
    assert {len(call_id) for call_id in ids} == {8}


@pytest.mark.parametrize("scripting", ["eval", "functions"])
async def test_scripts_are_deployed_when_the_server_has_lost_them(
    redis_url: str, queue_name: str, scripting: Scripting
) -> None:
    backend = RedisBackend(url=redis_url, scripting=scripting)
    store = backend.store(queue_name)
    client = open_client(redis_url)
    await store.enqueue([Entry("a", b"", Due(0))])
    await client.script_flush()
    await client.function_flush()

    placed = await asyncio.gather(
        store.enqueue([Entry("b", b"", Due(0))]), store.replace([Entry("a", b"x", Due(0))]), store.stats()
    )

    assert placed[0][0].created
    assert placed[1][0].replaced
    assert sorted(await finish_all(store)) == ["a", "b"]
    await client.function_flush()
    await client.aclose()
    await backend.aclose()


async def test_every_script_refuses_a_newer_layout_and_changes_nothing(
    backend: RedisBackend, redis_url: str, queue_name: str
) -> None:
    keys = ShardKeys(queue_name)
    client = open_client(redis_url)
    await client.hset(f"{keys.base}meta", "v", "2")
    before = sorted(await client.keys(f"{keys.base}*"))
    stranger = caller(backend, queue_name)
    for name, script in load_scripts().items():
        header = script.header
        args = ["1" * 8 if arg == "call" else "1" for arg in header.args] + ["1" for _ in header.each]
        stand_ins: Any = {"set": keys.named("schedule")} if "set" in header.keys else {}
        with pytest.raises(NewerProtocol, match="layout version 2"):
            await stranger.call(name, args, **stand_ins).answer()
    assert sorted(await client.keys(f"{keys.base}*")) == before
    await client.delete(f"{keys.base}meta")
    await client.aclose()


def script_calls(server: ServerProcess) -> int:
    """How many scripts were called by their hash so far."""
    count = 0
    for process in servers_of(server):
        with process.client() as client:
            stats = cast("dict[str, dict[str, int]]", client.info("commandstats"))
        count += stats.get("cmdstat_evalsha", {"calls": 0})["calls"]
    return count


async def test_concurrent_callers_share_script_calls(store: RedisStore, server: ServerProcess) -> None:
    await store.enqueue([Entry("first", b"", Due(0))])
    before = script_calls(server)

    placed = await asyncio.gather(*(store.enqueue([Entry(f"j{n}", b"", Due(0))]) for n in range(250)))

    calls = script_calls(server) - before
    assert all(answer[0].created for answer in placed)
    assert calls == 3
    await finish_all(store)
    await finish_all(store)
    await finish_all(store)


async def test_one_callers_many_entries_are_answered_in_order(store: RedisStore) -> None:
    entries = [Entry(f"j{n % 230}", b"", Due(n * 1000 + 60_000)) for n in range(350)]

    placed = await store.enqueue(entries)

    assert [answer.created for answer in placed] == [True] * 230 + [False] * 120
    assert [answer.due_ms for answer in placed[230:]] == [answer.due_ms for answer in placed[:120]]
    assert await store.cancel([f"j{n}" for n in range(230)]) == ["scheduled"] * 230


async def test_a_cancelled_callers_reply_never_reaches_another(store: RedisStore) -> None:
    for n in range(200):
        leaving = asyncio.create_task(store.enqueue([Entry(f"gone{n}", b"", Due(60_000))]))
        await asyncio.sleep(0)
        staying = asyncio.create_task(store.find([f"gone{n}"]))
        if n % 3:
            await asyncio.sleep(0)
        leaving.cancel()
        assert [found.job_id for found in await staying] == [f"gone{n}"]
    # What was sent was carried out, what was not sent was not: either way each id is in one place.
    states = await store.find([f"gone{n}" for n in range(200)])
    assert {found.was for found in states} <= {"scheduled", "absent"}
    await store.cancel([f"gone{n}" for n in range(200)])


async def test_an_unreachable_server_is_told_at_once() -> None:
    backend = RedisBackend(url="unix:///nowhere/redis.sock")
    with pytest.raises(StoreUnavailable, match=r"cannot reach.*nowhere/redis\.sock.*not sent"):
        await asyncio.wait_for(backend.store("q").enqueue([Entry("a", b"", Due(0))]), 2)
    await backend.aclose()


async def test_closing_tells_those_who_wait() -> None:
    backend = RedisBackend(url="unix:///nowhere/redis.sock")
    store = backend.store("q")
    link = backend._lines.to(ShardKeys("q"))
    assert isinstance(link, Link)
    link.ever_connected = True  # so that callers wait for the server's return
    waiting = [asyncio.create_task(store.enqueue([Entry(f"j{n}", b"", Due(0))])) for n in range(3)]
    await asyncio.sleep(0.05)

    await asyncio.wait_for(backend.aclose(), 1)

    for task in waiting:
        with pytest.raises(StoreUnavailable, match="closed"):
            await task
