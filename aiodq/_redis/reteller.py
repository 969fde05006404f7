"""A worker's memory of how its last runs ended, told again when the server has lost its last writes.

What a promoted replica has not received is as if it had not happened: the job is still, or again, held or
waiting. A settlement counts again under its lease, if the new master knows that lease. An ack counts also if
it does not: `finished` ends a waiting job whose payload is the one that was run. Retries, burials and
releases whose claim was lost too are let go: the job waits, and is run again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Sequence
from typing import Final, cast

from msgspec import Struct
from msgspec.structs import replace

from aiodq._core.errors import AiodqError
from aiodq._core.lease import Lease
from aiodq._core.settlement import Acked, Buried, Deferred, Released, Settlement
from aiodq._core.store import BATCH, DEDUPE_MS, REPLAY_MS
from aiodq._redis.calls import Caller
from aiodq._redis.keys import ShardKeys
from aiodq._redis.link import Backoff
from aiodq._redis.recent import Recent
from aiodq._redis.store import due_text

HELD_MOST: Final = 20_000
"""Claimed jobs whose payload is remembered; of those beyond, an ack is told again under its lease only."""

CLOSE_S: Final = 2.0
"""How long closing may take when something is still to be told again."""

HASHED_BYTES: Final = 512 * 1024
"""How many bytes of payloads one script may have to hash: about a millisecond."""

log = logging.getLogger("aiodq.redis")


class _Claimed(Struct, frozen=True):
    """`server`: which of the servers of this link the claim was made on, counted from 0."""

    payload: bytes
    server: int


class _Ended(Struct, frozen=True):
    """`ended_us`: when an ack was accepted, by the server's clock of then; 0: it was not."""

    settlement: Settlement
    sha: str
    size: int
    ended_us: int


Arg = str | bytes | int


class Reteller:
    """The last settlements of one worker in one shard.

    Args:
        caller: with a sender id of its own: its calls may overtake, and be overtaken by, those of the turns.

    Attributes:
        counted: how many settlements that were told again counted once more so far.
    """

    def __init__(self, caller: Caller, keys: ShardKeys) -> None:
        self._caller = caller
        self._keys = keys
        self._held: dict[str, _Claimed] = {}
        self._recent: Recent[_Ended] = Recent()
        self._telling: asyncio.Task[None] | None = None
        self._server = 0
        self._finishing = asyncio.Lock()
        """One unanswered call at a time: the repeat of an earlier one would be refused as late."""
        self.counted = 0
        self._identity = caller.link.identity
        if self._identity is not None:
            self._identity.on_other(self._other_server)

    def claimed(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            self._held.pop(lease.job_id, None)
            if lease.payload is not None:
                self._held[lease.job_id] = _Claimed(lease.payload, self._server)
        while len(self._held) > HELD_MOST:
            del self._held[next(iter(self._held))]

    async def settled(
        self, settlements: Sequence[Settlement], accepted: list[bool], acked_us: int
    ) -> list[bool]:
        """Remembers what was settled. An ack that was refused because its claim was lost with the old server
        counts, if the job has ended by it all the same."""
        now, answers, lost = time.monotonic(), list(accepted), list[int]()
        for at, (settlement, ok) in enumerate(zip(settlements, accepted, strict=True)):
            claimed = self._held.pop(settlement.job_id, None)
            if not ok and (claimed is None or claimed.server == self._server):
                continue
            payload = b"" if claimed is None else claimed.payload
            ended = _Ended(settlement, _sha(payload, settlement), len(payload), acked_us if ok else 0)
            self._recent.put(settlement.job_id, ended, _size(settlement), now)
            if not ok and isinstance(settlement, Acked):
                lost.append(at)
        self._recent.prune(now)
        if lost:
            found = {end.settlement.job_id: end for _, _, end in self._recent.items()}
            try:
                bits = await self._finish([found[settlements[at].job_id] for at in lost])
            except AiodqError as error:  # the turn's other answers count all the same
                log.warning("acks of the server that is gone could not be told to this one: %s", error)
                return answers
            for at, bit in zip(lost, bits, strict=True):
                answers[at] = bit != "0"
        return answers

    def _other_server(self) -> None:
        self._server += 1
        if self._telling is None and self._recent:
            self._telling = asyncio.create_task(self._tell_again())

    async def _tell_again(self) -> None:
        waits = Backoff()
        try:
            while True:
                server, ended = self._server, [(at, end) for at, _, end in self._recent.items()]
                try:
                    counted = await self._tell(ended)
                except AiodqError as error:
                    log.warning("the last settlements could not be told again yet: %s", error)
                    await asyncio.sleep(waits.next_s())
                    continue
                self.counted += counted
                log.warning(
                    "another server answers, or a restarted one: %d settlements were told again, "
                    "%d of them counted once more",
                    len(ended),
                    counted,
                )
                if server == self._server:
                    return
        finally:
            self._telling = None

    async def _tell(self, ended: Sequence[tuple[float, _Ended]]) -> int:
        now = time.monotonic()
        acked = [end for _, end in ended if isinstance(end.settlement, Acked)]
        counted = (await self._finish(acked)).count("1")
        for kind, script in ((Deferred, "retry"), (Released, "release"), (Buried, "bury")):
            rows = [_row(end.settlement, now - at) for at, end in ended if isinstance(end.settlement, kind)]
            for start in range(0, len(rows), BATCH):
                args: list[Arg] = [self._caller.next_call_id(), "", 0]
                if script != "bury":
                    args.append(self._keys.wake)
                for row in rows[start : start + BATCH]:
                    args += row
                answer = cast(bytes, await self._caller.call(script, args).answer())
                counted += answer.count(b"1")
        return counted

    async def _finish(self, acked: Sequence[_Ended]) -> str:
        bits = ""
        for page in _pages(acked):
            bits += await self._finish_page(page)
        return bits

    async def _finish_page(self, page: Sequence[_Ended]) -> str:
        async with self._finishing:
            flags = "".join("1" if cast(Acked, end.settlement).remember else "0" for end in page)
            args: list[Arg] = [
                self._caller.next_call_id(),
                flags if "1" in flags else "",
                DEDUPE_MS,
                REPLAY_MS,
            ]
            for end in page:
                args += (end.settlement.job_id, end.settlement.token, end.sha, end.ended_us)
            return cast(bytes, await self._caller.call("finished", args).answer()).decode()

    async def aclose(self) -> None:
        if self._identity is not None:
            self._identity.forget(self._other_server)
        telling = self._telling
        if telling is not None:
            await asyncio.wait([telling], timeout=CLOSE_S)
            telling.cancel()
            await asyncio.wait([telling])


def _sha(payload: bytes, settlement: Settlement) -> str:
    if not isinstance(settlement, Acked) or not payload:
        return ""
    return hashlib.sha1(payload, usedforsecurity=False).hexdigest()


def _size(settlement: Settlement) -> int:
    match settlement:
        case Deferred() | Buried():
            return 300 + len(settlement.tally)
        case _:
            return 300


def _row(settlement: Settlement, ago_s: float) -> tuple[Arg, ...]:
    match settlement:
        case Deferred():
            due = settlement.due
            if due.relative:  # it counts from the first time it was told
                due = replace(due, ms=max(0, due.ms - int(ago_s * 1000)))
            return settlement.job_id, settlement.token, due_text(due), settlement.tally
        case Buried():
            return settlement.job_id, settlement.token, settlement.tally
        case _:
            return settlement.job_id, settlement.token


def _pages(acked: Sequence[_Ended]) -> list[list[_Ended]]:
    pages: list[list[_Ended]] = []
    room = 0
    for end in acked:
        if not pages or len(pages[-1]) == BATCH or end.size > room:
            pages.append([])
            room = HASHED_BYTES
        pages[-1].append(end)
        room -= end.size
    return pages
