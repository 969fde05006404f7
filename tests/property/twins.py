"""Stores under one virtual clock, so that what they answer and store can be compared to the microsecond.

On a real server the scripts read the test's clock instead of `TIME`; nothing else in them differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache

from msgspec.structs import replace

from aiodq._core.lease import CLAIM_ID_LENGTH, Lease
from aiodq._core.store import ClaimAnswer, Notice
from aiodq._redis.scripts import Script, load_scripts
from tests.shards import ClusterShard, Hand, MemoryShard, RedisShard, State

START_US = 4_102_444_800_000_000 + 123_456
"""New Year 2100: no lifetime that a script sets from the test's clock ends during the test."""

CAPACITY = 3
CLOCK_KEY = "clock-of-the-test:{q}"
"""In the slot of the queue `q`."""


class Clock:
    def __init__(self) -> None:
        self.now_us = START_US

    @property
    def now_ms(self) -> int:
        return self.now_us // 1000


class SharedClockMemory(MemoryShard):
    async def set_time(self, now_us: int) -> None:
        self.time_us = now_us


class SharedClockRedis(RedisShard):
    """A real server whose scripts read the test's clock (see `scripts_with_a_clock`)."""

    now = START_US

    async def now_us(self) -> int:
        return self.now

    async def set_time(self, now_us: int) -> None:
        self.now = now_us
        await self.client.hset(CLOCK_KEY, mapping={"s": now_us // 1_000_000, "us": now_us % 1_000_000})
        for name in ("done0", "done1", "done2"):  # what the server's own clock would do
            left_ms = await self.client.pttl(self.keys.named(name))
            ends_ms = (await super().now_us()) // 1000 + left_ms
            if left_ms >= 0 and ends_ms - 5 <= now_us // 1000:
                await self.client.delete(self.keys.named(name))


class SharedClockCluster(SharedClockRedis, ClusterShard):
    """The same in a cluster."""


Twin = SharedClockMemory | SharedClockRedis


@cache
def scripts_with_a_clock(*, sharded: bool = False, fifo: bool = False) -> Mapping[str, Script]:
    """The scripts, but for where they take the time from."""
    found: dict[str, Script] = {}
    for name, script in load_scripts(sharded=sharded, fifo=fifo).items():
        source = script.source.replace("redis.call('TIME')", f"redis.call('HMGET', '{CLOCK_KEY}', 's', 'us')")
        sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        found[name] = replace(script, source=source, sha=sha)
    return found


def shape(value: object) -> object:
    """The value without what may differ between stores: the claim ids at the end of tokens."""
    match value:
        case Lease():
            return replace(value, token=value.token[:-CLAIM_ID_LENGTH])
        case ClaimAnswer():
            return replace(value, leases=[shape(lease) for lease in value.leases])
        case Notice():
            # thousands of years: Lua's numbers end to be exact; and within a process notices need no time
            return replace(value, wait_us=min(value.wait_us, 2**53), at_us=0)
        case State():
            return replace(value, lease={i: t[:-CLAIM_ID_LENGTH] for i, t in value.lease.items()})
        case _:
            return value


class Held:
    """What a worker believes to hold: one run of a job, by the token of each store."""

    def __init__(self, leases: Sequence[Lease]) -> None:
        self.job_id = leases[0].job_id
        self.tokens = [lease.token for lease in leases]
        self.fence = leases[0].fence
        self.due_ms = leases[0].due_ms


class Actor:
    """One worker on all stores."""

    def __init__(self, name: str, hands: list[Hand]) -> None:
        self.name = name
        self.hands = hands
        self.id = hands[0].id
        self.held: list[Held] = []
        self.listening = False
        self.punctual = True
        self.look_at_us: int | None = None
        """When it looks next; None: it is full, or not there."""

    @property
    def free(self) -> int:
        return max(0, CAPACITY - len(self.held))
