"""The consistency check's access to one shard on Redis: pages by SCAN, judgement and repair by scripts.

A page is about a hundred members; a script looks at no more at a time, so none takes long, however large the
queue. Bodies of jobs are not sent for it where the server can leave them out (Redis 7.4, Valkey 8).
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Sequence
from typing import Any, Final, Literal, cast

from redis import exceptions as foreign

from aiodq._core.errors import StoreUnavailable
from aiodq._core.inspection import (
    GONE_HOLDER_MS,
    GONE_WAITER_MS,
    Diagnosis,
    Kept,
    KeyState,
    Orphan,
    Scanned,
)
from aiodq._core.lease import parse_token
from aiodq._core.store import BATCH
from aiodq._redis.calls import REPEAT_PRODUCER_S, Caller
from aiodq._redis.faults import Lost, Refused, refusal
from aiodq._redis.keys import KINDS, NUMBER_WIDTH, SPARE, ShardKeys
from aiodq._redis.link import Backoff, Reply, pack

BODIES: Final = 25
"""So many bodies are asked for at a time where they come along: as in a claim."""

SHA_BYTES: Final = 512 * 1024
"""How many bytes of bodies one script may hash: about a millisecond."""

_AGES: Final = {"idle": GONE_WAITER_MS, "workers": GONE_HOLDER_MS}

Arg = str | bytes | int


def _encoded(member: str) -> bytes:
    """Members that are not UTF-8 were written by someone else; they are found and named all the same."""
    return member.encode(errors="surrogateescape")


class RedisInspector:
    """See `aiodq._core.inspection.Inspector`."""

    def __init__(self, caller: Caller, keys: ShardKeys) -> None:
        self._caller = caller
        self._keys = keys
        self._without_bodies = True

    async def key_states(self) -> list[KeyState]:
        replies = await asyncio.gather(*(self._ask("TYPE", self._keys.named(name)) for name in KINDS))
        return [
            KeyState(
                self._keys.named(name).decode(),
                cast(bytes, reply).decode(),
                kind.partition(":")[0].partition(",")[0].lower(),
                name in SPARE,
            )
            for (name, kind), reply in zip(KINDS.items(), replies, strict=True)
        ]

    async def discard(self, key: str, /) -> bool:
        name = next(name for name in KINDS if self._keys.named(name).decode() == key)
        must_be = KINDS[name].partition(":")[0].partition(",")[0].lower()
        call = self._caller.call("discard", (must_be,), set=self._keys.named(name))
        return cast(int, await call.answer()) == 1

    async def scan(self, kept: Kept, cursor: int, /) -> Scanned:
        command: list[Arg] = [cursor, "COUNT", BATCH]
        key = self._keys.named(kept)
        if kept in ("payload", "tally", "lease", "order"):
            after, flat, step = await self._hscan(kept, key, command)
        else:
            after, flat = cast(tuple[bytes, list[bytes]], await self._ask("ZSCAN", key, *command))
            step = 2
        members = [member.decode(errors="surrogateescape") for member in flat[::step]]
        if kept == "tally":
            members = [member[2:] for member in members]
        elif kept == "schedule" and self._keys.fifo:
            members = [member[NUMBER_WIDTH:] for member in members]
        holders = _holders(flat[1::2]) if kept == "lease" else []
        return Scanned(list(dict.fromkeys(members)), int(after), holders)

    async def _hscan(self, kept: Kept, key: bytes, command: list[Arg]) -> tuple[bytes, list[bytes], int]:
        if kept not in ("lease", "order") and self._without_bodies:
            try:
                after, fields = cast(
                    tuple[bytes, list[bytes]], await self._ask("HSCAN", key, *command, "NOVALUES")
                )
            except foreign.ResponseError:
                self._without_bodies = False
            else:
                return after, fields, 1
        if kept == "payload":
            command = [command[0], "COUNT", BODIES]
        after, pairs = cast(tuple[bytes, list[bytes]], await self._ask("HSCAN", key, *command))
        return after, pairs, 2

    async def _ask(self, *command: Arg) -> Reply:
        """A plain command that only reads: repeated until answered. Raises its error replies as they are."""
        started, waits = time.monotonic(), Backoff()
        while True:
            reply = await self._caller.link.send(pack(*command))
            if not isinstance(reply, Exception):
                return reply
            error = reply if isinstance(reply, Lost) else refusal(reply, call=str(command[0]))
            if not isinstance(error, Lost | Refused):
                raise reply
            if time.monotonic() - started >= REPEAT_PRODUCER_S or not self._caller.link.ever_connected:
                raise StoreUnavailable(f"no answer to {command[0]!s} ({error})") from error
            if isinstance(error, Refused):
                await self._caller.link.refused(elsewhere=error.elsewhere)
                await asyncio.sleep(waits.next_s())

    async def diagnose(self, job_ids: Sequence[str], /) -> list[Diagnosis]:
        letters = await self._text("check", (), [(_encoded(job_id),) for job_id in job_ids])
        return [Diagnosis(letters[at], int(letters[at + 1])) for at in range(0, len(letters), 2)]

    async def read(self, job_ids: Sequence[str], /) -> list[tuple[bytes | None, bytes | None]]:
        found: list[tuple[bytes | None, bytes | None]] = []
        for at in range(0, len(job_ids), BODIES):
            asked = [_encoded(job_id) for job_id in job_ids[at : at + BODIES]]
            reply = cast(list[Any], await self._caller.call("find", asked).answer())
            found += zip(reply[2], reply[4][::3], strict=True)
        return found

    async def repair(self, job_ids: Sequence[str], /) -> list[str]:
        rows = [(_encoded(job_id),) for job_id in job_ids]
        return list(await self._text("repair", (self._keys.wake,), rows))

    async def restore(self, orphans: Sequence[Orphan], /) -> list[bool]:
        bits = ""
        for page in _by_bytes(orphans):
            rows = [(_encoded(orphan.job_id), _sha(orphan.payload)) for orphan in page]
            bits += await self._text("restore", (self._keys.wake,), rows)
        return [bit == "1" for bit in bits]

    async def condemn(self, orphans: Sequence[Orphan], /) -> list[bool]:
        bits = ""
        for page in _by_bytes(orphans):
            rows = [(_encoded(orphan.job_id), _sha(orphan.payload), orphan.tally) for orphan in page]
            bits += await self._text("condemn", (), rows)
        return [bit == "1" for bit in bits]

    async def absent(self, listed: Literal["idle", "workers"], names: Sequence[str], /) -> list[bool]:
        return await self._about_workers("absent", listed, names)

    async def dismiss(self, listed: Literal["idle", "workers"], names: Sequence[str], /) -> list[bool]:
        return await self._about_workers("dismiss", listed, names)

    async def _about_workers(
        self, script: str, listed: Literal["idle", "workers"], names: Sequence[str]
    ) -> list[bool]:
        args: list[Arg] = [self._keys.wake, _AGES[listed], *map(_encoded, names)]
        answer = await self._caller.call(script, args, set=self._keys.named(listed)).answer()
        return [bit == 0x31 for bit in cast(bytes, answer)]

    async def _text(self, script: str, fixed: Sequence[Arg], rows: Sequence[Sequence[Arg]]) -> str:
        args = [*fixed, *(value for row in rows for value in row)]
        return cast(bytes, await self._caller.call(script, args).answer()).decode()


def _sha(payload: bytes) -> str:
    return hashlib.sha1(payload, usedforsecurity=False).hexdigest()


def _by_bytes(orphans: Sequence[Orphan]) -> list[list[Orphan]]:
    """Groups that one script may hash; a larger body goes alone."""
    groups: list[list[Orphan]] = []
    room = 0
    for orphan in orphans:
        if not groups or len(orphan.payload) > room:
            groups.append([])
            room = SHA_BYTES
        groups[-1].append(orphan)
        room -= len(orphan.payload)
    return groups


def _holders(tokens: Sequence[bytes]) -> list[str]:
    holders: list[str] = []
    for token in tokens:
        try:
            holders.append(parse_token(token.decode()).worker)
        except ValueError:  # nobody's claim wrote it
            continue
    return holders
