"""Stored jobs in words: for lists, dead letters, and the question why a job has not run."""

from __future__ import annotations

from typing import Final, cast

import msgspec

from aiodq._core.answers import DeadJob, Explanation, JobInfo
from aiodq._core.durations import to_instant
from aiodq._core.envelope import Envelope, decode_envelope
from aiodq._core.errors import PayloadError
from aiodq._core.rate import applies
from aiodq._core.store import Found, ShardStats
from aiodq._core.tally import Tally, read_tally

UNREADABLE: Final = "?"
"""Shown as the task of a job whose payload is lost or cannot be read."""


def show_job(job: Found) -> JobInfo:
    return JobInfo(
        job.job_id, _task(_envelope(job)), job.was, None if job.due_ms is None else to_instant(job.due_ms)
    )


def show_dead(job: Found) -> DeadJob:
    envelope, tally = _envelope(job), read_tally(job.tally)
    args, kwargs = _arguments(envelope)
    return DeadJob(
        job.job_id,
        _task(envelope),
        tally.reason,
        to_instant(job.at_ms),
        tally.failures,
        args,
        kwargs,
        tally.errors[-1].traceback if tally.errors else "",
    )


def matches(job: Found, task: str | None, error: str | None) -> bool:
    """Whether a dead letter is of that task, and its last error of that type (with or without its
    module)."""
    if task is not None and _task(_envelope(job)) != task:
        return False
    if error is None:
        return True
    errors = read_tally(job.tally).errors
    return bool(errors) and error in (errors[-1].type, errors[-1].type.rpartition(".")[2])


def explain_job(job: Found, queue: str, stats: ShardStats) -> Explanation:
    """Why a job does (not) run, at the time of `stats`."""
    sentences = {
        "scheduled": _scheduled,
        "processing": _processing,
        "dead": _dead,
        "done": _done,
        "absent": _absent,
    }[job.was](job, stats)
    text = f"job {job.job_id!r} of queue {queue!r}"
    if job.was not in ("done", "absent"):
        text += f" for task {_task(_envelope(job))!r}"
    return Explanation(job.job_id, job.was, "\n".join([f"{text}: {sentences[0]}", *sentences[1:]]))


def _scheduled(job: Found, stats: ShardStats) -> list[str]:
    wait = job.at_ms - stats.now_ms
    says = [f"scheduled for {_time(job.at_ms)}"]
    if wait > 0:
        says.append(f"it is due in {_length(wait)}")
    else:
        says.append(f"it is due, and waits for a free worker since {_length(-wait)}")
        if stats.idle == 0 and stats.holders == 0:
            says.append("no worker is known to serve this queue right now")
    if stats.paused is not None:
        says.append("the queue is paused" + (f": {stats.paused}" if stats.paused else ""))
    tally = read_tally(job.tally)
    waits = tally.reservation
    if waits is not None and applies(waits, job.at_ms):
        says.append(f"its task's rate has put it off; its own due time was {_time(waits.due_ms)}")
    return says + _history(job, tally)


def _processing(job: Found, stats: ShardStats) -> list[str]:
    left = job.at_ms - stats.now_ms
    says = [f"held by worker {job.holder}"]
    if left > 0:
        says.append(f"its lease lasts {_length(left)} more unless it is renewed")
    else:
        says.append(f"its lease has expired {_length(-left)} ago: the next steady worker takes it over")
    return says + _history(job, read_tally(job.tally))


def _dead(job: Found, stats: ShardStats) -> list[str]:
    tally = read_tally(job.tally)
    ago = _length(max(0, stats.now_ms - job.at_ms))
    return [f"buried {ago} ago, {tally.reason or 'without a reason'}", *_history(job, tally)]


def _done(job: Found, stats: ShardStats) -> list[str]:
    del job, stats
    return ["it has ended; its id is still remembered, so that it is not made again by mistake"]


def _absent(job: Found, stats: ShardStats) -> list[str]:
    del job, stats
    return ["it has ended, was cancelled, or never was in this queue"]


def _history(job: Found, tally: Tally) -> list[str]:
    counts = {
        "failures": tally.failures,
        "crashes of its worker": job.crashes,
        "interruptions": job.interruptions,
        "snoozes": tally.snoozes,
        "hand-backs in a row by workers without its task": tally.handbacks,
    }
    says = [f"{what} so far: {count}" for what, count in counts.items() if count]
    says += [f"error at {_time(error.at_ms)}: {error}" for error in tally.errors]
    if job.payload is None:
        says.append("its payload is lost: it cannot be run")
    return says


def _envelope(job: Found) -> Envelope | None:
    if job.payload is None:
        return None
    try:
        return decode_envelope(job.payload)
    except PayloadError:
        return None


def _task(envelope: Envelope | None) -> str:
    return UNREADABLE if envelope is None else envelope.task


def _arguments(envelope: Envelope | None) -> tuple[tuple[object, ...], dict[str, object]]:
    if envelope is None:
        return (), {}
    try:
        args: object = msgspec.msgpack.decode(envelope.args)
        kwargs: object = msgspec.msgpack.decode(envelope.kwargs)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return (), {}
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        return (), {}
    return tuple(cast("list[object]", args)), cast("dict[str, object]", kwargs)


def _time(ms: int) -> str:
    return to_instant(ms).isoformat(sep=" ", timespec="milliseconds")


def _length(ms: int) -> str:
    """A length for people: the two largest units."""
    if ms < 1000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes = ms // 60_000
    if minutes < 60:
        return f"{minutes} min {ms // 1000 % 60} s"
    if minutes < 1440:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} d {minutes // 60 % 24} h"
