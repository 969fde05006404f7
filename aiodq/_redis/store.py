"""One shard of one queue on Redis, for producers and operators."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from msgspec.structs import replace

from aiodq._core.due import Due
from aiodq._core.lease import parse_token
from aiodq._core.lifecycle import Place
from aiodq._core.store import (
    BATCH,
    REPLAY_MS,
    UNBOUNDED,
    Bounds,
    Entry,
    Found,
    KeeperStore,
    Notice,
    Page,
    Placed,
    Revival,
    ShardStats,
    Was,
    WorkerStore,
)
from aiodq._redis.calls import Caller
from aiodq._redis.gather import Gatherer
from aiodq._redis.inspector import RedisInspector
from aiodq._redis.keys import ShardKeys
from aiodq._redis.resender import Resender

if TYPE_CHECKING:
    from aiodq._redis.backend import RedisBackend

T = TypeVar("T")

DUE_WIDTH: Final = 15
ANSWER_WIDTH: Final = 1 + DUE_WIDTH
ACCEPTED_WIDTH: Final = 16

PLACES: Final[dict[str, Was]] = {"s": "scheduled", "p": "processing", "d": "dead", "n": "done", "a": "absent"}


def due_text(due: Due) -> str:
    """A due time as scripts take it: `+ms` from the server's now, or Unix ms."""
    return f"+{due.ms}" if due.relative else str(due.ms)


def placed_from(answer: bytes) -> tuple[list[Placed], int]:
    """Reads the answer of `enqueue` and `replace`; also when they were accepted, µs."""
    end = len(answer) - ACCEPTED_WIDTH
    placed = [
        Placed(answer[at] == 0x31, answer[at] == 0x32, int(answer[at + 1 : at + ANSWER_WIDTH]))
        for at in range(0, end, ANSWER_WIDTH)
    ]
    return placed, int(answer[end:])


def pages(items: Sequence[T], size: int = BATCH) -> list[Sequence[T]]:
    return [items[at : at + size] for at in range(0, len(items), size)]


class RedisStore:
    """See `aiodq._core.store.Store`."""

    def __init__(
        self,
        backend: RedisBackend,
        keys: ShardKeys,
        caller: Caller,
        again: Resender | None = None,
        bounds: Bounds = UNBOUNDED,
    ) -> None:
        self._bounds = (str(bounds.jobs), str(bounds.bytes))
        self._backend = backend
        self._keys = keys
        self._caller = caller
        self._again = again
        self._one_at_a_time: dict[str, asyncio.Lock] = {}
        self._enqueues = Gatherer(self._send_enqueue)
        self._replacements = Gatherer(self._send_replace)
        self._unions = Gatherer(self._send_unite)

    async def enqueue(self, entries: Sequence[Entry], /) -> list[Placed]:
        return await self._enqueues.put(entries)

    async def replace(self, entries: Sequence[Entry], /) -> list[Placed]:
        return await self._replacements.put(entries)

    async def unite(self, entries: Sequence[Entry], /) -> list[Placed]:
        return await self._unions.put(entries)

    async def _send_unite(self, entries: list[Entry], lane: int) -> list[Placed]:
        args: list[str | bytes | int] = [self._caller.next_call_id(), self._keys.wake, *self._bounds]
        for entry in entries:
            hold = entry.hold
            assert hold is not None  # noqa: S101  # narrows the type; `unite` is for those
            args += (entry.job_id, due_text(entry.due), entry.payload, hold.name, hold.window_ms, hold.mode)
        answer = cast(bytes, await self._caller.call("unite", args, lane=lane).answer())
        head, *ids = answer.split(b"\n")
        placed, accepted_us = placed_from(head)
        there = [replace(entry, job_id=job_id.decode()) for entry, job_id in zip(entries, ids, strict=True)]
        if self._again is not None:
            # Not what was left aside: the job that was kept has arguments of its own.
            made = [at for at, one in enumerate(placed) if one.created or one.replaced]
            self._again.accepted([there[at] for at in made], [placed[at] for at in made], accepted_us)
        return [
            one if now.job_id == entry.job_id else replace(one, job_id=now.job_id)
            for one, now, entry in zip(placed, there, entries, strict=True)
        ]

    async def _send_enqueue(self, entries: list[Entry], lane: int) -> list[Placed]:
        flags = "".join("1" if entry.remember else "0" for entry in entries)
        return await self._write("enqueue", lane, entries, flags if "1" in flags else "")

    async def _send_replace(self, entries: list[Entry], lane: int) -> list[Placed]:
        return await self._write("replace", lane, entries)

    async def _write(self, name: str, lane: int, entries: list[Entry], *fixed: str) -> list[Placed]:
        args: list[str | bytes] = [self._caller.next_call_id(), self._keys.wake, *self._bounds, *fixed]
        for entry in entries:
            args += (entry.job_id, due_text(entry.due), entry.payload)
        answer = cast(bytes, await self._caller.call(name, args, lane=lane).answer())
        placed, accepted_us = placed_from(answer)
        if self._again is not None:
            self._again.accepted(entries, placed, accepted_us)
        return placed

    async def _in_turn(
        self, name: str, fixed: Sequence[str | int], rows: Sequence[Sequence[str | bytes | int]]
    ) -> str:
        """Calls a repeatable script page by page, one unanswered call at a time; joins the answers."""
        answers: list[bytes] = []
        async with self._one_at_a_time.setdefault(name, asyncio.Lock()):
            for page in pages(rows):
                args: list[str | bytes | int] = [self._caller.next_call_id(), *fixed]
                for row in page:
                    args += row
                answers.append(cast(bytes, await self._caller.call(name, args).answer()))
        return b"".join(answers).decode()

    async def cancel(self, job_ids: Sequence[str], /) -> list[Was]:
        replay_ms = 0 if self._again is None else REPLAY_MS
        letters = await self._in_turn("cancel", (replay_ms,), [(job_id,) for job_id in job_ids])
        if self._again is not None:
            self._again.cancelled(job_ids)
        return [PLACES[letter] for letter in letters]

    async def reschedule(self, moves: Sequence[tuple[str, Due]], /) -> list[Was]:
        rows = [(job_id, due_text(due)) for job_id, due in moves]
        return [PLACES[letter] for letter in await self._in_turn("reschedule", (self._keys.wake,), rows)]

    async def replay(self, revivals: Sequence[Revival], /) -> list[bool]:
        rows = [(r.job_id, r.buried_ms, due_text(r.due), r.tally) for r in revivals]
        return [bit == "1" for bit in await self._in_turn("replay", (self._keys.wake,), rows)]

    async def purge(self, job_ids: Sequence[str], /) -> list[bool]:
        return [bit == "1" for bit in await self._in_turn("purge", (), [(job_id,) for job_id in job_ids])]

    async def trim(self, *, age_ms: int, count: int) -> int:
        removed = 0
        while True:
            now = cast(int, await self._caller.call("trim", (age_ms, count, BATCH)).answer())
            removed += now
            if now < BATCH:
                return removed

    async def find(self, job_ids: Sequence[str], /) -> list[Found]:
        found: list[Found] = []
        for page in pages(job_ids):
            letters, *columns = cast(
                tuple[bytes, list[bytes]], await self._caller.call("find", page).answer()
            )
            found += _found(page, [PLACES[letter] for letter in letters.decode()], *columns)
        return found

    async def peek(self, place: Place, /, *, limit: int, offset: int = 0) -> Page:
        now_ms, jobs = 0, list[Found]()
        for at in range(0, limit, BATCH):
            size = min(BATCH, limit - at)
            call = self._caller.call("peek", (offset + at, size), set=self._keys.named(_SETS[place]))
            now_ms, ids, *columns = cast(list[Any], await call.answer())
            names = [job_id.decode() for job_id in ids]
            places: list[Was] = [place] * len(names)
            jobs += _found(names, places, *columns)
            if len(names) < size:
                break
        return Page(now_ms, jobs)

    async def stats(self) -> ShardStats:
        reply = cast(list[int], await self._caller.call("stats", ()).answer())
        now_ms, due, scheduled, processing, expired, dead, overdue, idle, holders = reply[:9]
        reason = cast(bytes | None, reply[9]) if len(reply) > 9 else None
        return ShardStats(
            now_ms=now_ms,
            due=due,
            scheduled=scheduled,
            processing=processing,
            expired=expired,
            dead=dead,
            oldest_overdue_ms=overdue,
            paused=None if reason is None else reason.decode(),
            idle=idle,
            holders=holders,
        )

    async def pause(self, reason: str, /) -> None:
        await self._caller.call("pause", (reason,)).answer()

    async def resume(self) -> None:
        await self._caller.call("resume", (self._keys.wake,)).answer()

    def worker(self, worker_id: str, on_notice: Callable[[Notice], None], /) -> WorkerStore:
        return self._backend.worker(self._keys, worker_id, on_notice)

    def keeper(self, worker_id: str, /) -> KeeperStore:
        return self._backend.keeper(self._keys, worker_id)

    def inspector(self) -> RedisInspector:
        return RedisInspector(self._caller, self._keys)

    async def aclose(self) -> None:
        if self._again is not None:
            await self._again.aclose()
        await self._enqueues.aclose()
        await self._replacements.aclose()
        await self._unions.aclose()


_SETS: Final[dict[Place, str]] = {"scheduled": "schedule", "processing": "processing", "dead": "dead"}


def _found(
    ids: Sequence[str],
    places: Sequence[Was],
    scores: Sequence[bytes],
    payloads: Sequence[bytes | None],
    tokens: Sequence[bytes | None],
    triples: Sequence[bytes | None],
) -> list[Found]:
    return [
        _job(job_id, was, int(float(score)), payload, token, triples[n * 3 : n * 3 + 3])
        for n, (job_id, was, score, payload, token) in enumerate(
            zip(ids, places, scores, payloads, tokens, strict=True)
        )
    ]


def _job(
    job_id: str,
    was: Was,
    at_ms: int,
    payload: bytes | None,
    token: bytes | None,
    triple: Sequence[bytes | None],
) -> Found:
    due_ms = at_ms if was == "scheduled" else None
    holder: str | None = None
    if was == "processing" and token is not None:
        try:
            parts = parse_token(token.decode())
        except ValueError:  # overwritten by someone else's hand: what it said is lost
            pass
        else:
            due_ms, holder = parts.due_ms, parts.worker
    history, crashes, interruptions = triple
    return Found(
        job_id=job_id,
        was=was,
        at_ms=at_ms,
        due_ms=due_ms,
        payload=payload,
        tally=history,
        crashes=int(crashes or 0),
        interruptions=int(interruptions or 0),
        holder=holder,
    )
