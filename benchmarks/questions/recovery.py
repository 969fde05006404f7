"""A worker is killed with 50 jobs in flight: when has the last of them started again in another one?"""

from __future__ import annotations

import time

from benchmarks.question import Metric, Question, Values
from benchmarks.questions.throughput import fill
from benchmarks.stage import Failed, Stage

JOBS = 50
SHORT_LEASE_S = 3.0


def _recover(stage: Stage, lease_s: float, patience_s: float) -> float:
    stage.server.flush()
    heir = stage.start(lease_s=lease_s, threads=True)
    (victim,) = stage.workers(1, lease_s=lease_s, concurrency=JOBS, threads=True)
    producer = stage.start(lease_s=lease_s)
    fill(producer, "hold", JOBS, {})
    time.sleep(1.5)
    heir.ask("work")
    # Ours may take leases over after three steady seconds; some peers end a job after one lease.
    time.sleep(4.0 if stage.entry.ours else 1.0)
    held = {value for value, _ in victim.ask("starts")["starts"]}
    if len(held) < JOBS:
        raise Failed(f"the worker to be killed held {len(held)} jobs of {JOBS}")
    died = time.time()
    victim.kill()
    last = died
    deadline = time.monotonic() + patience_s
    while held and time.monotonic() < deadline:
        for value, at in heir.ask("starts")["starts"]:
            if value in held:
                held.discard(value)
                last = max(last, at)
        time.sleep(0.1)
    for one in (heir, producer):
        one.close()
    if held:
        raise Failed(f"{len(held)} jobs had not started again after {patience_s:g} s")
    return last - died


def measure(stage: Stage) -> Values:
    values: Values = {"short": _recover(stage, SHORT_LEASE_S, stage.size(45, 10))}
    if stage.entry.program == "aiodq":
        values["default"] = _recover(stage, 30.0, stage.size(45, 10))
    return values


QUESTION = Question(
    name="recovery",
    title="kill -9 with jobs in flight: last of them started again",
    measure=measure,
    metrics={
        "short": Metric("leases of 3 s", "s", 2),
        "default": Metric("default leases of 30 s", "s", 2),
    },
    takes=lambda entry: entry.program not in {"floor", "bare"},
    bars={"default": (1, "most")},
    rounds=3,
)
