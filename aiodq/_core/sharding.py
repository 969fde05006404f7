"""Which shard of a queue a job is in: by its id alone, so that whoever knows the id finds the job."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Final

MAX_SHARDS: Final = 1024
"""Each shard costs every worker a claim now and then, and a seat; thousands of them help nobody."""


def shard_of(job_id: str, count: int) -> int:
    """The shard, from 0, of a job in a queue of `count` shards: CRC-32 of the id, modulo the count. Of an id
    `{t7}x` only `t7` counts, so that all jobs of one shard key are together."""
    if job_id.startswith("{"):
        job_id = job_id[1:].partition("}")[0]
    return zlib.crc32(job_id.encode()) % count


def by_shard(job_ids: Iterable[str], count: int) -> dict[int, list[int]]:
    """The positions of the ids, by shard."""
    found: dict[int, list[int]] = {}
    for at, job_id in enumerate(job_ids):
        found.setdefault(shard_of(job_id, count), []).append(at)
    return found
