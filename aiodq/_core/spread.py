"""Smears jobs that would all be due at one moment over a stretch of time."""

from __future__ import annotations

import hashlib

from msgspec.structs import replace

from aiodq._core.due import MAX_DELAY_MS, MAX_DUE_MS, Due


def smeared(due: Due, job_id: str, spread_ms: int) -> Due:
    """The due time, or one up to `spread_ms` later: evenly drawn by the job's id, so the same each time the
    job is sent."""
    if not spread_ms:
        return due
    digest = hashlib.blake2b(job_id.encode(), digest_size=8, person=b"aiodq spread").digest()
    later_ms = int.from_bytes(digest, "big") * (spread_ms + 1) >> 64
    return replace(due, ms=min(due.ms + later_ms, MAX_DELAY_MS if due.relative else MAX_DUE_MS))
