"""A shard behind a proxy, and the repeatable moves as they are tried under faults."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias, cast

import redis.asyncio

from aiodq._core.due import NOW, Due
from aiodq._core.settlement import Acked, Buried, Deferred, Released
from aiodq._core.store import Entry, Revival
from aiodq._core.unique import Hold
from aiodq._memory.failover import Resent, Told
from aiodq._redis.backend import RedisBackend
from aiodq._redis.scripts import Scripting, library_source, load_scripts
from tests.fault.proxy import Proxy
from tests.servers import ServerProcess
from tests.shards import HOUR_MS, LEASE_MS, RedisShard, Seeds, State, let_go
from tests.telling import finished, resend, sha

REPLY_TIMEOUT_S: Final = 0.3


def rounds(default: int) -> int:
    """How often a test repeats its random part: its own number, times AIODQ_FAULT_ROUNDS."""
    return default * int(os.environ.get("AIODQ_FAULT_ROUNDS", "1"))


class Lab(RedisShard):
    """A shard reached through `proxy`, while `client` and all that looks at its state go past it."""

    def __init__(self, backend: RedisBackend, proxy: Proxy, server: ServerProcess, queue: str) -> None:
        client = redis.asyncio.Redis(host="127.0.0.1", port=server.port)
        super().__init__(backend.store(queue), client, queue, server.kind)
        self.backend = backend
        self.proxy = proxy
        self.server = server

    async def forget_scripts(self) -> None:
        """The server forgets what was deployed, as after a restart without data."""
        await self.say("SCRIPT", "FLUSH")
        await self.say("FUNCTION", "FLUSH")

    async def deploy_scripts(self) -> None:
        """The server knows all scripts, in both forms."""
        for script in load_scripts().values():
            await self.say("SCRIPT", "LOAD", script.source)
        await self.say("FUNCTION", "LOAD", "REPLACE", library_source())

    async def say(self, *command: str | int) -> object:
        """Any command, past the proxy."""
        return await cast("Callable[..., Awaitable[object]]", self.client.execute_command)(*command)


@asynccontextmanager
async def open_lab(
    server: ServerProcess,
    queue: str,
    *,
    scripting: Scripting = "eval",
    reply_timeout_s: float = REPLY_TIMEOUT_S,
    check: bool = True,
) -> AsyncGenerator[Lab]:
    """`check`: afterwards each job has one place and its payload."""
    async with Proxy(server.port) as proxy:
        backend = RedisBackend(url=proxy.patient_url(reply_timeout_s), scripting=scripting)
        lab = Lab(backend, proxy, server, queue)
        try:
            yield lab
            faults = (await lab.state()).faults() if check else []
        finally:
            proxy.go_on()
            await lab.aclose()
            await backend.aclose()
    assert not faults, faults


Move: TypeAlias = Callable[[Lab, Seeds], Awaitable[object]]


async def _enqueue(lab: Lab, seeds: Seeds) -> object:
    entries = [
        Entry("new", b"n", Due(HOUR_MS)),
        Entry("waiting", b"n", NOW),
        Entry("done", b"n", NOW, remember=True),
    ]
    return [placed.created for placed in await lab.store.enqueue(entries)]


async def _replace(lab: Lab, seeds: Seeds) -> object:
    entries = [Entry(name, b"other", Due(HOUR_MS)) for name in ("new", "waiting", "held", "buried")]
    return [(placed.created, placed.replaced) for placed in await lab.store.replace(entries)]


async def _unite(lab: Lab, seeds: Seeds) -> object:
    hold = Hold("close:7", HOUR_MS)
    entries = [Entry(name, b"n", Due(HOUR_MS), hold=hold) for name in ("new", "second", "waiting")]
    return [(placed.created, placed.job_id) for placed in await lab.store.unite(entries)]


async def _reschedule(lab: Lab, seeds: Seeds) -> object:
    return await lab.store.reschedule([(name, Due(5 * HOUR_MS)) for name in _EVERYWHERE])


async def _vacate(lab: Lab, seeds: Seeds) -> object:
    return await let_go(seeds.holder, seeds.state.schedule["waiting"])


async def _cancel(lab: Lab, seeds: Seeds) -> object:
    return await lab.store.cancel(_EVERYWHERE)


async def _claim(lab: Lab, seeds: Seeds) -> object:
    await lab.poke_due("waiting", 1)
    await lab.poke_due("retried", 2)
    await lab.lapse("held")
    leases = await lab.hand("other").take(5)
    state = await lab.state()
    assert {lease.job_id: lease.token for lease in leases} == {
        job_id: token for job_id, token in state.lease.items() if job_id != "failing"
    }
    return sorted(
        (lease.job_id, lease.payload, lease.tally, lease.crashes, lease.interruptions) for lease in leases
    )


async def _ack(lab: Lab, seeds: Seeds) -> object:
    return await seeds.holder.settle(
        Acked("held", seeds.held.token, remember=True), Acked("failing", seeds.stale)
    )


async def _retry(lab: Lab, seeds: Seeds) -> object:
    return await seeds.holder.settle(
        Deferred("held", seeds.held.token, Due(HOUR_MS), b"h"), Deferred("failing", seeds.stale, NOW, b"h")
    )


async def _release(lab: Lab, seeds: Seeds) -> object:
    return await seeds.holder.settle(Released("held", seeds.held.token), Released("failing", seeds.stale))


async def _bury(lab: Lab, seeds: Seeds) -> object:
    return await seeds.holder.settle(
        Buried("held", seeds.held.token, b"why"), Buried("failing", seeds.stale, b"why")
    )


async def _replay(lab: Lab, seeds: Seeds) -> object:
    buried_ms = seeds.state.dead["buried"]
    revivals = [Revival("buried", buried_ms, Due(HOUR_MS), b"h"), Revival("waiting", buried_ms, NOW, b"h")]
    return await lab.store.replay(revivals)


async def _purge(lab: Lab, seeds: Seeds) -> object:
    return await lab.store.purge(_EVERYWHERE)


async def _resend(lab: Lab, seeds: Seeds) -> object:
    now_us = await lab.now_us()
    entries = [Entry("lost", b"n", Due(HOUR_MS)), Entry("waiting", b"n", NOW)]
    return await resend(lab, [Resent(entry, now_us) for entry in entries])


async def _finished(lab: Lab, seeds: Seeds) -> object:
    told = [
        Told("held", seeds.held.token, sha(b"body of held")),
        Told("failing", seeds.stale, sha(b"other")),
    ]
    return await finished(lab, told)


async def _extend(lab: Lab, seeds: Seeds) -> object:
    pairs = [("held", seeds.held.token), ("failing", seeds.stale)]
    return await seeds.holder.keeper.extend(pairs, lease_ms=LEASE_MS)


_EVERYWHERE: Final = ["waiting", "held", "buried", "done", "nobody"]

REPEATED: Final[dict[str, tuple[Move, object]]] = {
    "enqueue": (_enqueue, [True, False, False]),
    "replace": (_replace, [(True, False), (False, True), (False, False), (False, True)]),
    "unite": (_unite, [(True, None), (False, "new"), (False, None)]),
    "reschedule": (_reschedule, ["scheduled", "processing", "dead", "done", "absent"]),
    "vacate": (_vacate, 1),
    "cancel": (_cancel, ["scheduled", "processing", "dead", "done", "absent"]),
    "claim": (
        _claim,
        [
            ("held", b"body of held", None, 0, 2),
            ("retried", b"body of retried", b"history of retried", 0, 0),
            ("waiting", b"body of waiting", None, 0, 0),
        ],
    ),
    "ack": (_ack, [True, False]),
    "retry": (_retry, [True, False]),
    "release": (_release, [True, False]),
    "bury": (_bury, [True, False]),
    "replay": (_replay, [True, False]),
    "purge": (_purge, [False, False, True, False, False]),
    "resend": (_resend, [True, False]),
    "finished": (_finished, "10"),
}
"""Every repeatable script: a call that has an effect on a seeded shard, and its answer."""

MOVES: Final[dict[str, Move]] = {**{name: move for name, (move, _) in REPEATED.items()}, "extend": _extend}


def settled(state: State) -> State:
    """What must not differ after a repeat: all but what a worker's waiting and its renewals touch."""
    return state.but(processing=dict.fromkeys(state.processing, 0), idle={}, workers={})
