"""A producer's memory of its last enqueues, sent again when the server has lost its last writes.

Replication is asynchronous: a replica that is promoted lacks what its master had acknowledged last. Whoever
enqueued it is mostly still alive. `resend` makes a job only if it is in no place and has not ended since its
enqueue was accepted, so sending too much again does no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from typing import Final, cast

from msgspec import Struct

from aiodq._core.errors import AiodqError
from aiodq._core.store import BATCH, Entry, Placed
from aiodq._redis.calls import Caller
from aiodq._redis.gather import BATCH_BYTES
from aiodq._redis.keys import ShardKeys
from aiodq._redis.link import Backoff, pack
from aiodq._redis.recent import Recent

VIGIL_S: Final = 1.0
"""A producer that has just enqueued and falls silent asks this often whether its server is the same."""

WORKERS_FIRST_S: Final = 1.0
"""How long workers have to tell again what has ended, before jobs are made anew that may be among it."""

CLOSE_S: Final = 2.0
"""How long closing may take when something is still to be sent again."""

log = logging.getLogger("aiodq.redis")


class _Sent(Struct, frozen=True):
    """An accepted enqueue. `ask_done`: it was kept for an id that may have ended before."""

    due_ms: int
    accepted_us: int
    payload: bytes
    ask_done: bool


class Resender:
    """The last enqueues of one process to one shard.

    Attributes:
        resent: how many were sent again so far.  missing: how many of them the server did not have any more.
    """

    def __init__(self, caller: Caller, keys: ShardKeys) -> None:
        self._caller = caller
        self._keys = keys
        self._recent: Recent[_Sent] = Recent()
        self._vigil: asyncio.Task[None] | None = None
        self._pending = False
        self._noticed = asyncio.Event()
        self.resent = 0
        self.missing = 0
        if caller.link.identity is not None:
            caller.link.identity.on_other(self._other_server)

    def accepted(self, entries: Sequence[Entry], placed: Sequence[Placed], accepted_us: int) -> None:
        now = time.monotonic()
        for entry, answer in zip(entries, placed, strict=True):
            kept = not (answer.created or answer.replaced)
            sent = _Sent(answer.due_ms, accepted_us, entry.payload, kept and entry.remember)
            self._recent.put(entry.job_id, sent, len(entry.payload), now)
        self._recent.prune(now)
        if self._vigil is None:
            self._vigil = asyncio.create_task(self._watch())

    def cancelled(self, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            self._recent.drop(job_id)

    def _other_server(self) -> None:
        self._pending = True
        self._noticed.set()
        if self._vigil is None and self._recent:
            self._vigil = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        """While something was enqueued lately: sees that the connection leads to the same server."""
        waits = Backoff()
        try:
            while self._recent:
                if self._pending:
                    await asyncio.sleep(WORKERS_FIRST_S)
                    try:
                        await self._send_again()
                    except AiodqError as error:
                        log.warning("the last enqueues could not be sent again yet: %s", error)
                        await asyncio.sleep(waits.next_s())
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(VIGIL_S):
                        await self._noticed.wait()
                self._noticed.clear()
                if not isinstance(await self._caller.link.send(pack("PING")), Exception):
                    waits.reset()
                    self._recent.prune(time.monotonic())
        finally:
            self._vigil = None

    async def _send_again(self) -> None:
        self._pending = False
        items = self._recent.items()
        try:
            missing = await self._send_all(items)
        except BaseException:
            self._pending = True
            raise
        self.missing += missing
        log.warning(
            "another server answers, or a restarted one: %d enqueues were sent again, %d were missing",
            len(items),
            missing,
        )

    async def _send_all(self, items: list[tuple[float, str, _Sent]]) -> int:
        missing = 0
        while items:
            page, size = 0, 0
            while page < min(BATCH, len(items)) and (not page or size < BATCH_BYTES):
                size += len(items[page][2].payload)
                page += 1
            missing += await self._send_page([(job_id, sent) for _, job_id, sent in items[:page]])
            self.resent += page
            items = items[page:]
        return missing

    async def _send_page(self, page: Sequence[tuple[str, _Sent]]) -> int:
        flags = "".join("1" if sent.ask_done else "0" for _, sent in page)
        args: list[str | bytes | int] = [
            self._caller.next_call_id(),
            self._keys.wake,
            flags if "1" in flags else "",
        ]
        for job_id, sent in page:
            args += (job_id, sent.due_ms, sent.accepted_us, sent.payload)
        return cast(bytes, await self._caller.call("resend", args).answer()).count(b"1")

    async def aclose(self) -> None:
        """Sends again what is still to be sent, if that is possible soon."""
        if self._vigil is not None:
            self._vigil.cancel()
            await asyncio.wait([self._vigil])
        if self._pending:
            with contextlib.suppress(AiodqError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._send_again()
