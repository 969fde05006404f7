"""The consistency check of a queue: page by page, what contradicts itself is told, and mended if wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from aiodq._core.consistency import (
    CONDEMNED,
    RESTORED,
    CheckReport,
    Finding,
    Sum,
    done_about,
    found,
    found_key,
    found_worker,
)
from aiodq._core.envelope import UnknownVersion, decode_envelope
from aiodq._core.errors import PayloadError
from aiodq._core.inspection import JOB_KEYS, SOUND, Diagnosis, Inspector, Kept, Orphan
from aiodq._core.store import BATCH
from aiodq._core.tally import encode_tally, read_tally

ROUNDS: Final = 4
"""A job can be wrong in several ways; each round of repairs mends one."""


async def check_shard(queue: str, inspector: Inspector, *, repair: bool) -> CheckReport:
    """Goes through the keys of one shard, with a short look at the server for each page."""
    sum_ = Sum(queue)
    usable = await _check_keys(inspector, sum_, repair=repair)
    if usable:
        holders = await _check_jobs(inspector, sum_, repair=repair)
        await _check_workers(inspector, sum_, holders, repair=repair)
    return sum_.report()


async def _check_keys(inspector: Inspector, sum_: Sum, *, repair: bool) -> bool:
    """False: a key that all scripts need is of another type, so no look at the jobs is possible."""
    usable = True
    for key in await inspector.key_states():
        if not key.is_wrong:
            continue
        mended = repair and key.spare and await inspector.discard(key.name)
        sum_.add(found_key(key.name, key.type, key.must_be, repaired=mended))
        usable = usable and mended
    return usable


async def _check_jobs(inspector: Inspector, sum_: Sum, *, repair: bool) -> set[str]:
    """Gives the workers that leases name. A job found at one of its keys is not told again at the next."""
    told: set[str] = set()
    holders: set[str] = set()
    for kept in JOB_KEYS:
        cursor = 0
        while True:
            page = await inspector.scan(kept, cursor)
            sum_.checked += len(page.members)
            holders.update(page.holders)
            fresh = [job_id for job_id in page.members if job_id not in told] if told else page.members
            for at in range(0, len(fresh), BATCH):
                told.update(await _look_at(inspector, sum_, fresh[at : at + BATCH], repair=repair))
            cursor = page.cursor
            if not cursor:
                break
    return holders


async def _look_at(inspector: Inspector, sum_: Sum, job_ids: Sequence[str], *, repair: bool) -> Sequence[str]:
    """Tells what is wrong with these jobs, and mends it. Gives the ids of those that are (or were) wrong."""
    diagnoses = await inspector.diagnose(job_ids)
    wrong = {
        job_id: diagnosis
        for job_id, diagnosis in zip(job_ids, diagnoses, strict=True)
        if diagnosis.fault != SOUND
    }
    broken = list(wrong)
    for _ in range(ROUNDS if repair else 1):
        if not wrong:
            break
        names = list(wrong)
        stored = dict(zip(names, await inspector.read(names), strict=True))
        done = await _mend(inspector, wrong, stored) if repair else {}
        for job_id, diagnosis in wrong.items():
            tally = read_tally(stored[job_id][1])
            sum_.add(found(job_id, diagnosis, tally, done=done.get(job_id, "")))
        # What was mended may be wrong in a second way; what was not is told once.
        again = list(done)
        wrong = {
            job_id: diagnosis
            for job_id, diagnosis in zip(again, await inspector.diagnose(again) if again else [], strict=True)
            if diagnosis.fault != SOUND
        }
    return broken


Stored = dict[str, tuple[bytes | None, bytes | None]]


async def _mend(inspector: Inspector, wrong: dict[str, Diagnosis], stored: Stored) -> dict[str, str]:
    """What was done about each job, in words; jobs that are not in it were left as they are."""
    done: dict[str, str] = {}
    plain = [job_id for job_id, diagnosis in wrong.items() if done_about(diagnosis.fault)]
    if plain:
        for job_id, fault in zip(plain, await inspector.repair(plain), strict=True):
            # Somebody else may have been quicker, by a worker's or another operator's hand: gone is gone.
            done[job_id] = done_about(fault) or "gone by itself meanwhile"
    readable: list[Orphan] = []
    unreadable: list[Orphan] = []
    for job_id, diagnosis in wrong.items():
        payload, history = stored[job_id]
        if diagnosis.fault != "o" or payload is None:
            continue
        try:
            decode_envelope(payload)
        except UnknownVersion:  # of a newer release: its workers can read it
            readable.append(Orphan(job_id, payload))
        except PayloadError as error:
            tally = encode_tally(read_tally(history).buried(str(error)))
            unreadable.append(Orphan(job_id, payload, tally))
        else:
            readable.append(Orphan(job_id, payload))
    for orphans, put, what in (
        (readable, inspector.restore, RESTORED),
        (unreadable, inspector.condemn, CONDEMNED),
    ):
        if orphans:
            bits = await put(orphans)
            done |= {orphan.job_id: what for orphan, bit in zip(orphans, bits, strict=True) if bit}
    return done


async def _check_workers(inspector: Inspector, sum_: Sum, holders: set[str], *, repair: bool) -> None:
    lists: tuple[tuple[Literal["idle", "workers"], set[str]], ...] = (("idle", set()), ("workers", holders))
    for listed, needed in lists:
        kept: Kept = listed
        cursor = 0
        while True:
            page = await inspector.scan(kept, cursor)
            sum_.checked += len(page.members)
            names = [name for name in page.members if name not in needed]
            for at in range(0, len(names), BATCH):
                for finding in await _absent(inspector, listed, names[at : at + BATCH], repair=repair):
                    sum_.add(finding)
            cursor = page.cursor
            if not cursor:
                break


async def _absent(
    inspector: Inspector, listed: Literal["idle", "workers"], names: Sequence[str], *, repair: bool
) -> list[Finding]:
    bits = await inspector.absent(listed, names)
    gone = [name for name, bit in zip(names, bits, strict=True) if bit]
    mended = await inspector.dismiss(listed, gone) if repair and gone else [False] * len(gone)
    return [found_worker(name, listed, repaired=bit) for name, bit in zip(gone, mended, strict=True)]
