"""Thousands of jobs due in one millisecond: when has the last one ended?"""

from __future__ import annotations

import time

from benchmarks.question import Metric, Question, Values
from benchmarks.questions.throughput import fill
from benchmarks.stage import Stage, now_ms, until


def _herd(stage: Stage, count: int, workers: int) -> float:
    stage.server.flush()
    started = stage.workers(workers, settle_s=1.0 + workers / 5)
    producer = stage.start()
    lead_s = 3.0 + count / (15_000 if stage.entry.ours else 700)
    due_ms = now_ms() + int(lead_s * 1000)
    fill(producer, "noop", count, {"at": due_ms})
    time.sleep(max(0.0, due_ms / 1000 - time.time()))
    with stage.window():
        reports = until(started, count, timeout_s=60 + count / 500, every_s=0.1)
    for one in (producer, *started):
        one.close()
    return float(max(one["last_end"] for one in reports)) - due_ms / 1000


def _small(stage: Stage) -> Values:
    return {"one": _herd(stage, stage.size(5_000, 1_000), 1)}


def _great(stage: Stage) -> Values:
    few, many = stage.size(5_000, 1_000), stage.size(100_000, 5_000)
    values = {f"few{n}": _herd(stage, few, n) for n in (1, 4, 20)}
    return values | {f"many{n}": _herd(stage, many, n) for n in (1, 4, 20)}


HERD = Question(
    name="herd",
    title="5,000 jobs due in one millisecond, one worker process: last end",
    measure=_small,
    metrics={"one": Metric("last end", "s", 2)},
    bars={"one": (0.3, "most")},
)

GREAT_HERD = Question(
    name="herds",
    title="Jobs due in one millisecond: last end by number of worker processes",
    measure=_great,
    metrics={
        **{f"few{n}": Metric(f"5,000, {n} processes", "s", 2) for n in (1, 4, 20)},
        **{f"many{n}": Metric(f"100,000, {n} processes", "s", 2) for n in (1, 4, 20)},
    },
    takes=lambda entry: entry.name in {"aiodq-uvloop", "floor-uvloop", "bare-uvloop"},
    rounds=1,
)
