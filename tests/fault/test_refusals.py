"""A server that refuses: full, newer, busy, loading, demoted, or closed to this user. What is refused changes
nothing, and what must go on goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest
import redis.asyncio
from redis.exceptions import ResponseError

from aiodq._core.due import NOW, Due
from aiodq._core.errors import NewerProtocol, QueueFull
from aiodq._core.lease import WORKER_ID_LENGTH
from aiodq._core.lifecycle import BY_NAME, TRANSITIONS
from aiodq._core.settlement import Acked
from aiodq._core.store import ClaimRequest, Entry, Store, WorkerStore
from aiodq._redis.backend import RedisBackend
from aiodq._redis.scripts import VERSION, Scripting
from tests.conftest import MakeServer
from tests.fault.lab import MOVES, REPEATED, Lab, open_lab
from tests.servers import ServerKind, ServerProcess
from tests.shards import HOUR_MS

pytestmark = pytest.mark.leaves_keys("the seeds stay")

BY_ID = sorted(MOVES)
GROW = {"enqueue", "replace", "unite", "reschedule", "replay", "resend"}


def test_what_may_be_refused_when_memory_is_full_is_what_grows_the_queue() -> None:
    assert {t.name for t in TRANSITIONS if not t.drains} == GROW


@asynccontextmanager
async def full(lab: Lab) -> AsyncGenerator[None]:
    """The server's memory limit is below what it uses."""
    await lab.say("CONFIG", "SET", "maxmemory", 1)
    try:
        yield
    finally:
        await lab.say("CONFIG", "SET", "maxmemory", 0)


@pytest.mark.parametrize("name", BY_ID)
async def test_with_memory_full_draining_moves_finish_and_growing_ones_change_nothing(
    server: ServerProcess, queue_name: str, scripting: Scripting, name: str
) -> None:
    """B103."""
    async with open_lab(server, queue_name, scripting=scripting) as lab:
        seeds = await lab.seed()
        await lab.deploy_scripts()
        if name == "claim":  # its move pokes, which a full server refuses
            await _ready_to_claim(lab)
        before = await lab.state()
        async with full(lab):
            if name in GROW:
                with pytest.raises(QueueFull):
                    await MOVES[name](lab, seeds)
                assert await lab.state() == before
            elif name == "claim":
                leases = await lab.hand("other").take(5)
                assert sorted(lease.job_id for lease in leases) == ["held", "retried", "waiting"]
            elif name == "extend":
                assert await MOVES[name](lab, seeds) == [True, False]
                assert (await lab.state()).processing["held"] >= before.processing["held"]
            else:
                assert await MOVES[name](lab, seeds) == REPEATED[name][1]


async def _ready_to_claim(lab: Lab) -> None:
    await lab.poke_due("waiting", 1)
    await lab.poke_due("retried", 2)
    await lab.lapse("held")


async def test_scripts_are_deployed_with_memory_full(
    server: ServerProcess, queue_name: str, scripting: Scripting
) -> None:
    """Draining must not fail because the server forgot the script. A function library cannot be loaded then:
    growing calls say so, draining ones wait for memory."""
    async with open_lab(server, queue_name, scripting=scripting) as lab:
        seeds = await lab.seed()
        await lab.forget_scripts()
        async with full(lab):
            with pytest.raises(QueueFull):
                await MOVES["enqueue"](lab, seeds)
            acking = asyncio.ensure_future(MOVES["ack"](lab, seeds))
            if scripting == "functions":
                await lab.proxy.passed("function load", 3)
                assert not acking.done()
            else:
                assert await acking == [True, False]
        assert await acking == [True, False]


async def test_jobs_run_to_their_end_while_memory_is_full(lab: Lab) -> None:
    """B103: claimed, retried and finished; nothing waits, nothing is lost."""
    hand = await lab.listener("w")
    await lab.store.enqueue([Entry(f"j{n}", b"x" * 100, NOW) for n in range(50)])
    done: set[str] = set()
    async with full(lab):
        while len(done) < 50:
            leases = await hand.take(20)
            assert await hand.settle(*(Acked(le.job_id, le.token) for le in leases)) == [True] * len(leases)
            done |= {lease.job_id for lease in leases}
        with pytest.raises(QueueFull):
            await lab.store.enqueue([Entry("more", b"", NOW)])
    assert (await lab.state()).payload == {}
    [placed] = await lab.store.enqueue([Entry("more", b"", Due(HOUR_MS))])
    assert placed.created
    await lab.store.cancel(["more"])


OTHERS: dict[str, Callable[[Store, WorkerStore], Awaitable[object]]] = {
    "convict": lambda _, worker: worker.convict("holder".ljust(WORKER_ID_LENGTH, "-")),
    "sweep": lambda _, worker: worker.sweep(),
    "leave": lambda _, worker: worker.leave(holds=True),
    "trim": lambda store, _: store.trim(age_ms=0, count=0),
    "find": lambda store, _: store.find(["held"]),
    "peek": lambda store, _: store.peek("dead", limit=5),
    "stats": lambda store, _: store.stats(),
    "pause": lambda store, _: store.pause("why"),
    "resume": lambda store, _: store.resume(),
}


@pytest.mark.parametrize("name", [*BY_ID, *OTHERS])
async def test_a_queue_of_a_newer_version_is_left_alone(lab: Lab, name: str) -> None:
    seeds = await lab.seed()
    if name == "claim":
        await _ready_to_claim(lab)
    await lab.say("HSET", lab.keys.named("meta").decode(), "v", VERSION + 1)
    before, keys = await lab.state(), sorted(await _keys(lab))
    trying: Awaitable[object]
    if name in OTHERS:
        trying = OTHERS[name](lab.store, seeds.holder.store)
    else:
        trying = lab.hand("other").take(5) if name == "claim" else MOVES[name](lab, seeds)
    with pytest.raises(NewerProtocol):
        await trying
    assert await lab.state() == before
    assert sorted(await _keys(lab)) == keys


async def _keys(lab: Lab) -> list[bytes]:
    return cast("list[bytes]", await lab.say("KEYS", "*"))


REFUSALS = {
    "LOADING": b"-LOADING Redis is loading the dataset in memory\r\n",
    "BUSY": b"-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n",
    "READONLY": b"-READONLY You can't write against a read only replica.\r\n",
    "MASTERDOWN": b"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
    "CLUSTERDOWN": b"-CLUSTERDOWN The cluster is down\r\n",
    "TRYAGAIN": b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
    "MISCONF": b"-MISCONF Errors writing to the AOF file: No space left on device\r\n",
    "NOREPLICAS": b"-NOREPLICAS Not enough good replicas to write.\r\n",
}


@pytest.mark.parametrize("code", sorted(REFUSALS))
async def test_a_passing_refusal_is_waited_for(valkey: ServerProcess, queue_name: str, code: str) -> None:
    async with open_lab(valkey, queue_name) as lab:
        seeds = await lab.seed()
        for name in ("enqueue", "ack"):
            lab.proxy.answer_instead(name, REFUSALS[code], REFUSALS[code])
            connections = lab.proxy.stats.connections
            move, expected = REPEATED[name]
            assert await move(lab, seeds) == expected
            if code in ("READONLY", "MASTERDOWN"):  # somebody else is the primary by now: ask again who
                assert lab.proxy.stats.connections > connections


@pytest.mark.parametrize("code", sorted(REFUSALS))
async def test_a_refusal_to_take_the_script_is_waited_for(
    valkey: ServerProcess, queue_name: str, scripting: Scripting, code: str
) -> None:
    """Between the answer that the script is not known and its deployment, the server may turn away."""
    async with open_lab(valkey, queue_name, scripting=scripting, reply_timeout_s=2) as lab:
        seeds = await lab.seed()
        await lab.forget_scripts()
        load = "script load" if scripting == "eval" else "function load"
        lab.proxy.answer_instead(load, REFUSALS[code])
        move, expected = REPEATED["ack"]
        assert await move(lab, seeds) == expected


async def test_scripts_forgotten_again_while_they_are_deployed(
    valkey: ServerProcess, queue_name: str, scripting: Scripting
) -> None:
    async with open_lab(valkey, queue_name, scripting=scripting) as lab:
        seeds = await lab.seed()
        await lab.forget_scripts()
        unknown = (
            b"-NOSCRIPT No matching script.\r\n" if scripting == "eval" else b"-ERR Function not found\r\n"
        )
        lab.proxy.answer_instead("ack", unknown, unknown, unknown)
        move, expected = REPEATED["ack"]
        assert await move(lab, seeds) == expected


async def test_a_busy_script_of_somebody_else_is_waited_for(lab: Lab) -> None:
    """B106: a real one, with the busy limit lowered."""
    await lab.say("CONFIG", "SET", "busy-reply-threshold", 50)
    seeds = await lab.seed()
    spin = asyncio.ensure_future(_spin(lab.server, 600_000))
    await asyncio.sleep(0)
    with pytest.raises(ResponseError, match=r"(?i)busy"):
        await _ask_until(lab, spin)
    move, expected = REPEATED["bury"]
    assert await move(lab, seeds) == expected
    await spin
    assert [placed.created for placed in await lab.store.enqueue([Entry("late", b"", Due(HOUR_MS))])] == [
        True
    ]


async def _ask_until(lab: Lab, end: asyncio.Future[None]) -> None:
    while not end.done():
        await lab.say("PING")


async def _spin(server: ServerProcess, microseconds: int) -> None:
    source = (
        "local t = redis.call('TIME') local from = t[1] * 1000000 + t[2] repeat t = redis.call('TIME') "
        f"until t[1] * 1000000 + t[2] > from + {microseconds}"
    )
    client = redis.asyncio.Redis(host="127.0.0.1", port=server.port, socket_timeout=20)
    await cast("Callable[..., Awaitable[object]]", client.eval)(source, 0)
    await client.aclose()


async def test_a_paused_server_repeats_nothing(lab: Lab) -> None:
    """B86: silence longer than the reply timeout; what was sent twice counts once."""
    hand = await lab.listener("w")
    for n in range(2):
        await lab.say("CLIENT", "PAUSE", 400, "ALL")
        [placed] = await lab.store.enqueue([Entry(f"j{n}", b"", NOW)])
        assert placed.created
        await lab.say("CLIENT", "PAUSE", 400, "ALL")
        [lease] = await hand.take(2)
        await lab.say("CLIENT", "PAUSE", 400, "ALL")
        assert await hand.settle(Acked(lease.job_id, lease.token)) == [True]
        assert lease.crashes + lease.interruptions == 0
    assert max(lab.proxy.stats.commands[name] for name in ("enqueue", "claim", "ack")) > 2
    state = await lab.state()
    assert (state.payload, state.processing, state.lease) == ({}, {}, {})


async def test_a_frozen_server_that_gets_both_copies_carries_out_one(
    make_server: MakeServer, server_kind: ServerKind
) -> None:
    """Both copies wait in the server's sockets while it is stopped; it reads them in one go."""
    async with open_lab(make_server(kind=server_kind), "frozen") as lab:
        hand = await lab.listener("w")
        await lab.store.enqueue([Entry("first", b"", NOW)])
        lab.server.pause()
        claiming = asyncio.ensure_future(hand.take(2))
        enqueuing = asyncio.ensure_future(lab.store.enqueue([Entry("second", b"", Due(HOUR_MS))]))
        await asyncio.sleep(0.8)  # longer than two reply timeouts: that is the fault
        lab.server.resume()
        assert [lease.job_id for lease in await claiming] == ["first"]
        assert [placed.created for placed in await enqueuing] == [True]


async def test_a_demoted_server_is_waited_for(
    make_server: MakeServer, server_kind: ServerKind, scripting: Scripting
) -> None:
    """B110: READONLY until it is promoted again; no tight loop meanwhile."""
    async with open_lab(make_server(kind=server_kind), "demoted", scripting=scripting) as lab:
        seeds = await lab.seed()
        await lab.say("REPLICAOF", "127.0.0.1", 1)
        acking = asyncio.ensure_future(REPEATED["ack"][0](lab, seeds))
        enqueuing = asyncio.ensure_future(REPEATED["enqueue"][0](lab, seeds))
        await lab.proxy.passed("ack", 3)
        await lab.proxy.passed("enqueue", 6)
        assert not acking.done()
        assert not enqueuing.done()
        tries = lab.proxy.stats.commands["ack"]
        await asyncio.sleep(1)
        assert lab.proxy.stats.commands["ack"] - tries <= 5
        await lab.say("REPLICAOF", "NO", "ONE")
        assert await acking == REPEATED["ack"][1]
        assert await enqueuing == REPEATED["enqueue"][1]


async def test_a_loading_server_is_waited_for(make_server: MakeServer, server_kind: ServerKind) -> None:
    """Restart with a data set that takes a while to read."""
    server = make_server(kind=server_kind)
    async with open_lab(server, "loading") as lab:
        hand = await lab.listener("w")
        await lab.store.enqueue([Entry("a", b"", NOW)])
        await lab.store.enqueue([Entry(f"later{n}", b"", Due(HOUR_MS)) for n in range(300)])
        [lease] = await hand.take()
        server.kill()
        server.args = (
            *server.args,
            "--key-load-delay",
            "2000",
            "--loading-process-events-interval-bytes",
            "1024",
        )
        starting = asyncio.ensure_future(asyncio.to_thread(server.start))
        assert await hand.settle(Acked("a", lease.token)) == [True]
        [placed] = await lab.store.enqueue([Entry("b", b"", Due(HOUR_MS))])
        assert placed.created
        await starting
        assert len((await lab.state()).schedule) == 301


async def test_a_user_who_may_not_publish_or_ask_for_receivers_writes_all_the_same(
    make_server: MakeServer, server_kind: ServerKind
) -> None:
    """B96: notices are hints. Each refusal inside a script comes after the job is safe."""
    server = make_server(kind=server_kind)
    async with open_lab(server, "mute") as lab:
        rights = ("on", ">secret", "~*", "resetchannels", "+@all", "-publish", "-pubsub")
        await lab.say("ACL", "SETUSER", "mute", *rights)
        listener = await lab.listener("idle")
        await listener.claim(5)
        backend = RedisBackend(url=f"redis://mute:secret@127.0.0.1:{server.port}/0")
        store = backend.store("mute")
        [placed] = await store.enqueue([Entry("a", b"", NOW)])
        assert placed.created
        worker = store.worker("mute".ljust(20, "-"), lambda _: None)
        answer = (await worker.turn([], ClaimRequest(5, 1000))).claim
        assert answer is not None
        assert answer.deaf
        [lease] = answer.leases
        assert (await worker.turn([Acked("a", lease.token)], None)).settled == [True]
        await store.resume()
        await worker.leave(holds=False)
        assert await worker.sweep() is not None
        await worker.aclose()
        await backend.aclose()
        assert (await lab.state()).payload == {}


def test_all_transitions_are_tried() -> None:
    assert set(BY_NAME) == set(MOVES) | {"convict", "trim"}
