"""The consistency check's face of a shard in memory, where only tests can leave contradictions."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from aiodq._core.inspection import Diagnosis, Kept, KeyState, Orphan, Scanned
from aiodq._memory.shard import Shard


class MemoryInspector:
    """See `aiodq._core.inspection.Inspector`. A page holds all of a key."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    async def key_states(self) -> list[KeyState]:
        return []

    async def discard(self, key: str, /) -> bool:
        del key
        return False

    async def scan(self, kept: Kept, cursor: int, /) -> Scanned:
        del cursor
        await asyncio.sleep(0)
        shard = self._shard
        with shard.lock:
            places = {"schedule": shard.schedule, "processing": shard.processing, "dead": shard.dead}
            lists = {"idle": shard.idle, "workers": shard.workers}
            members: Iterable[str]
            if kept in places or kept in lists:
                members = [member for member, _ in {**places, **lists}[kept]]
            elif kept == "tally":
                members = {*shard.tally, *shard.crashes, *shard.interruptions}
            else:
                hashes: dict[str, Collection[str]] = {
                    "payload": shard.payload,
                    "lease": shard.lease,
                    "order": shard.order,
                }
                members = list(hashes[kept])
            tokens = [shard.token_of(member) for member in members] if kept == "lease" else []
        return Scanned(sorted(members), 0, [token.worker for token in tokens if token is not None])

    async def diagnose(self, job_ids: Sequence[str], /) -> list[Diagnosis]:
        await asyncio.sleep(0)
        return self._shard.diagnose(job_ids)

    async def read(self, job_ids: Sequence[str], /) -> list[tuple[bytes | None, bytes | None]]:
        await asyncio.sleep(0)
        shard = self._shard
        with shard.lock:
            return [(shard.payload.get(job_id), shard.tally.get(job_id)) for job_id in job_ids]

    async def repair(self, job_ids: Sequence[str], /) -> list[str]:
        await asyncio.sleep(0)
        return self._shard.repair(job_ids)

    async def restore(self, orphans: Sequence[Orphan], /) -> list[bool]:
        await asyncio.sleep(0)
        return self._shard.restore(orphans)

    async def condemn(self, orphans: Sequence[Orphan], /) -> list[bool]:
        await asyncio.sleep(0)
        return self._shard.condemn(orphans)

    async def absent(self, listed: Literal["idle", "workers"], names: Sequence[str], /) -> list[bool]:
        await asyncio.sleep(0)
        return self._shard.absent(listed, names)

    async def dismiss(self, listed: Literal["idle", "workers"], names: Sequence[str], /) -> list[bool]:
        await asyncio.sleep(0)
        return self._shard.dismiss(listed, names)
