"""One worker's access to one shard on Redis: turns, notices, presence; and the keeper's renewals."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar, cast

from aiodq._core.lease import Lease
from aiodq._core.limit import Granted, Permit
from aiodq._core.rate import Booked, Booking
from aiodq._core.settlement import Acked, Buried, Deferred, Released, Settlement
from aiodq._core.store import (
    BATCH,
    DEDUPE_MS,
    REPLAY_MS,
    SILENT_MS,
    ClaimAnswer,
    ClaimRequest,
    Notice,
    SweepAnswer,
    TurnAnswer,
)
from aiodq._redis.calls import Call, Caller
from aiodq._redis.ears import Hearing
from aiodq._redis.keys import ShardKeys
from aiodq._redis.link import pack
from aiodq._redis.reteller import Reteller
from aiodq._redis.store import due_text, pages

T = TypeVar("T")

Arg = str | bytes | int
Close = Callable[[], Awaitable[None]]

_SCRIPTS: Final[dict[type[Settlement], str]] = {
    Acked: "ack",
    Deferred: "retry",
    Released: "release",
    Buried: "bury",
}

PAUSED, DEAF, STEPPED, CLEAR = 1, 2, 4, 8

_POLICY: Final = "maxmemory_policy:"

NOT_GUILTY: Final = -2
"""What `convict` answers of a worker that is heard, has given a sign of life, or whose grace is not over."""


class RedisWorkerStore:
    """See `aiodq._core.store.WorkerStore`."""

    def __init__(
        self,
        caller: Caller,
        keys: ShardKeys,
        worker_id: str,
        ears: Hearing,
        on_notice: Callable[[Notice], None],
        close: Close,
        again: Reteller | None = None,
    ) -> None:
        self._caller = caller
        self._again = again
        self._keys = keys
        self._worker_id = worker_id
        self._ears = ears
        self._on_notice = on_notice
        self._close = close
        self._shielded: set[asyncio.Task[object]] = set()
        self._admitting = asyncio.Lock()
        self._asking = asyncio.Lock()
        self._vacating = asyncio.Lock()
        self._pages: dict[str, tuple[int, int]] = {}
        self._listed = False
        """May be on the list of holders. Who lost its last lease has nothing to settle: its claim tells."""

    @property
    def unbroken_since(self) -> float | None:
        return self._caller.link.unbroken_since

    @property
    def trouble(self) -> str:
        return self._caller.link.trouble

    async def listen(self) -> None:
        await self._ears.listen(self._keys, self._on_notice)

    async def turn(
        self, settlements: Sequence[Settlement], claim: ClaimRequest | None, /, *, last: bool = False
    ) -> TurnAnswer:
        return await self._shield(self._turn(settlements, claim, last))

    async def _shield(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs to its end whatever becomes of the caller: what was sent is carried out, so its answer must be
        read."""
        task = asyncio.create_task(work)
        self._shielded.add(task)
        task.add_done_callback(self._shielded.discard)
        return await asyncio.shield(task)

    async def _turn(
        self, settlements: Sequence[Settlement], claim: ClaimRequest | None, last: bool
    ) -> TurnAnswer:
        groups: dict[str, list[int]] = {}
        for at, settlement in enumerate(settlements):
            groups.setdefault(_SCRIPTS[type(settlement)], []).append(at)
        calls = [
            self._settle(name, [settlements[at] for at in group], last and n == len(groups) - 1)
            for n, (name, group) in enumerate(groups.items())
        ]
        claiming = None if claim is None else self._claim(claim, last=last and not groups and self._listed)
        settled, acked_us = [False] * len(settlements), 0
        for call, group in zip(calls, groups.values(), strict=True):
            bits = cast(bytes, await call.answer())
            for at, bit in zip(group, bits[: len(group)], strict=True):
                settled[at] = bit == 0x31
            acked_us = int(bits[len(group) :] or acked_us)
        if self._again is not None and settlements:
            settled = await self._again.settled(settlements, settled, acked_us)
        if claiming is None or claim is None:
            return TurnAnswer(settled, None)
        call_id, call = claiming
        answer = self._read_claim(cast(list[Any], await call.answer()), call_id, claim)
        if self._again is not None:
            self._again.claimed(answer.leases)
        self._listed = bool(answer.leases) or (self._listed and not last)
        if answer.seat or self._listed:
            self._ears.tried.add(self._keys.wake)
        else:
            self._ears.tried.discard(self._keys.wake)
        if answer.deaf:
            await self._ears.doubt(self._keys)
        return TurnAnswer(settled, answer)

    def _settle(self, name: str, settlements: Sequence[Settlement], last: bool) -> Call:
        if len(settlements) > BATCH:
            raise ValueError(f"{len(settlements)} settlements of one kind; a turn takes at most {BATCH}")
        args: list[Arg] = [self._caller.next_call_id(), self._worker_id, int(last)]
        if name == "ack":
            flags = "".join("1" if cast(Acked, s).remember else "0" for s in settlements)
            args += (flags if "1" in flags else "", DEDUPE_MS, 0 if self._again is None else REPLAY_MS)
        elif name != "bury":
            args.append(self._keys.wake)
        for settlement in settlements:
            match settlement:
                case Deferred(job_id, token, due, tally):
                    args += (job_id, token, due_text(due), tally)
                case Buried(job_id, token, tally):
                    args += (job_id, token, tally)
                case _:
                    args += (settlement.job_id, settlement.token)
        return self._caller.call(name, args)

    def _claim(self, claim: ClaimRequest, *, last: bool) -> tuple[str, Call]:
        call_id = self._caller.next_call_id()
        args = (
            call_id,
            self._worker_id,
            int(last),
            self._keys.wake,
            claim.want,
            claim.lease_ms,
            claim.max_bytes,
            -1 if claim.expected_now_us is None else claim.expected_now_us,
            claim.steady_in_ms,
            int(claim.far * 1000),
            claim.clamp_from,
            claim.clear_ms,
            claim.cap_ms,
        )
        return call_id, self._caller.call("claim", args)

    def _read_claim(self, reply: list[Any], call_id: str, claim: ClaimRequest) -> ClaimAnswer:
        now_us, wait_us, seat, others, flags, clamp_next, fence, ids, bodies, dues, extras, lapsed = reply
        kept: dict[int, tuple[bytes | None, int, int]] = {
            extras[at]: (extras[at + 1], int(extras[at + 2] or 0), int(extras[at + 3] or 0))
            for at in range(0, len(extras), 4)
        }
        nothing = (None, 0, 0)
        # The token is spelt here as the script spelt it: sending it back with each job would double the
        # answer.
        front, back = f"{fence:016d}:", f":{claim.lease_ms:08d}:{self._worker_id}:{call_id}"
        leases: list[Lease] = []
        for n, job_id in enumerate(ids, 1):
            due_ms = int(dues[n - 1])
            tally, crashes, interruptions = kept.get(n, nothing)
            leases.append(
                Lease(
                    job_id.decode(),
                    f"{front}{due_ms:015d}{back}",
                    fence,
                    due_ms,
                    bodies[n - 1],
                    tally,
                    crashes,
                    interruptions,
                    n <= lapsed,
                )
            )
        return ClaimAnswer(
            now_us=now_us,
            leases=leases,
            wait_us=None if wait_us < 0 else wait_us,
            seat=seat,
            others=others,
            paused=bool(flags & PAUSED),
            deaf=bool(flags & DEAF),
            stepped=bool(flags & STEPPED),
            clamp_next=clamp_next,
            clear=bool(flags & CLEAR),
        )

    async def admit(self, bookings: Sequence[Booking], /) -> Booked:
        return await self._shield(self._admit(bookings))

    async def _admit(self, bookings: Sequence[Booking]) -> Booked:
        async with self._admitting:  # one at a time: the server remembers the answer of the last
            args: list[Arg] = [self._caller.next_call_id()]
            for booking in bookings:
                args += (booking.bucket, booking.width_us)
            answer = cast(bytes, await self._caller.call("admit", args).answer())
        now_us, *begins_us = (int(answer[at : at + 16]) for at in range(0, len(answer), 16))
        return Booked(now_us, begins_us)

    async def occupy(self, permits: Sequence[Permit], /) -> list[Granted]:
        return await self._shield(self._occupy(permits))

    async def _occupy(self, permits: Sequence[Permit]) -> list[Granted]:
        async with self._asking:
            args: list[Arg] = [self._caller.next_call_id()]
            for p in permits:
                args += (p.job_id, p.name, p.limit, p.due_ms, p.since_ms, p.again_ms)
            answer = cast(bytes, await self._caller.call("occupy", args).answer())
        return [Granted(answer[at] == 0x31, int(answer[at + 1 : at + 9])) for at in range(0, len(answer), 9)]

    async def vacate(self, permits: Sequence[Permit], /) -> int:
        return await self._shield(self._vacate(permits))

    async def _vacate(self, permits: Sequence[Permit]) -> int:
        async with self._vacating:
            args: list[Arg] = [self._caller.next_call_id(), self._keys.wake]
            for p in permits:
                args += (p.job_id, p.name, p.limit)
            return int(cast(bytes, await self._caller.call("vacate", args).answer()))

    async def leave(self, *, holds: bool) -> None:
        self._ears.tried.discard(self._keys.wake)
        await self._caller.call("leave", (self._worker_id, self._keys.wake, int(holds))).answer()

    async def sweep(self) -> SweepAnswer:
        call = self._caller.call("sweep", (self._worker_id, self._keys.wake, SILENT_MS))
        again, others, *silent = cast(list[Any], await call.answer())
        return SweepAnswer([worker.decode() for worker in silent], None if again < 0 else again, others)

    async def evicts(self) -> str | None:
        reply = await self._caller.link.send(pack("INFO", "memory"))
        lines = reply.decode().splitlines() if isinstance(reply, bytes) else []
        found = next((line for line in lines if line.startswith(_POLICY)), _POLICY + "noeviction")
        policy = found.removeprefix(_POLICY).strip()
        return None if policy == "noeviction" else policy

    async def convict(self, worker: str, /) -> bool:
        # Leases of others move while the pages are turned, so passes are repeated until one finds nothing.
        start, pulled = self._pages.get(worker, (0, 0))
        call = self._caller.call("convict", (worker, self._keys.wake, SILENT_MS, start))
        start, now = cast(list[int], await call.answer())
        pulled += now
        if start >= 0:
            self._pages[worker] = (start, pulled)
            return True
        if start == NOT_GUILTY:
            self._pages.pop(worker, None)
            return False
        if pulled:
            self._pages[worker] = (0, 0)
            return True
        self._pages.pop(worker, None)
        await self._caller.call("acquit", (worker,)).answer()
        return False

    async def aclose(self) -> None:
        for task in list(self._shielded):
            task.cancel()
        if self._shielded:
            await asyncio.wait(self._shielded)
        if self._again is not None:
            await self._again.aclose()
        await self._close()


class RedisKeeperStore:
    """See `aiodq._core.store.KeeperStore`."""

    def __init__(self, caller: Caller, keys: ShardKeys, worker_id: str, close: Close) -> None:
        self._caller = caller
        self._keys = keys
        self._worker_id = worker_id
        self._close = close

    async def extend(self, leases: Sequence[tuple[str, str]], /, *, lease_ms: int) -> list[bool]:
        calls: list[Call] = []
        for page in pages(leases):
            args: list[Arg] = [self._worker_id, self._keys.wake, lease_ms]
            for pair in page:
                args += pair
            calls.append(self._caller.call("extend", args))
        answers = [cast(bytes, await call.answer()) for call in calls]
        return [bit == 0x31 for bit in b"".join(answers)]

    async def aclose(self) -> None:
        await self._close()
