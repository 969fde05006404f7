"""The two transitions after a failover on either kind of shard: stores call them by themselves only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import cast

from aiodq._core.store import DEDUPE_MS, REPLAY_MS
from aiodq._memory.failover import Resent, Told
from aiodq._redis.store import RedisStore, due_text
from tests.shards import MemoryShard, OpenShard


def sha(payload: bytes) -> str:
    return hashlib.sha1(payload, usedforsecurity=False).hexdigest()


async def resend(shard: OpenShard, again: Sequence[Resent]) -> list[bool]:
    """Enqueues sent again by the store's own producer."""
    if isinstance(shard, MemoryShard):
        return shard.data.resend(again)
    store = cast(RedisStore, shard.store)
    flags = "".join("1" if one.entry.remember else "0" for one in again)
    args: list[str | bytes | int] = [store._caller.next_call_id(), store._keys.wake, flags]
    for one in again:
        args += (one.entry.job_id, due_text(one.entry.due), one.accepted_us, one.entry.payload)
    return [bit == 0x31 for bit in cast(bytes, await store._caller.call("resend", args).answer())]


async def finished(shard: OpenShard, told: Sequence[Told]) -> str:
    """Acks told again, by nobody in particular."""
    if isinstance(shard, MemoryShard):
        return shard.data.finished(told)
    store = cast(RedisStore, shard.store)
    flags = "".join("1" if one.remember else "0" for one in told)
    args: list[str | bytes | int] = [store._caller.next_call_id(), flags, DEDUPE_MS, REPLAY_MS]
    for one in told:
        args += (one.job_id, one.token, one.sha, one.ended_us)
    return cast(bytes, await store._caller.call("finished", args).answer()).decode()
