"""What does waiting cost: commands a second and CPU of workers that have nothing to do?"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.question import Metric, Question, Values, aiodq_only
from benchmarks.questions.throughput import fill
from benchmarks.stage import Participant, Stage, reports

PER_PROCESS = 10
"""Workers in one process, where a hundred of them wait."""


def _start(stage: Stage, workers: int, **settings: Any) -> list[Participant]:
    processes, each = (workers, 1) if workers < 100 else (workers // PER_PROCESS, PER_PROCESS)
    more = {"workers": each} if each > 1 else {}
    return stage.workers(processes, settle_s=stage.size(12, 4), **more, **settings)


def _watch(stage: Stage, started: list[Participant], seconds: float) -> tuple[float, float]:
    """Commands a second of all together, and CPU of one process in percent."""
    before = reports(started)
    with stage.window(), stage.monitor() as monitor:
        begun = time.monotonic()
        time.sleep(seconds)
        passed = time.monotonic() - begun
    after = reports(started)
    used_s = sum(b["cpu_s"] - a["cpu_s"] for a, b in zip(before, after, strict=True))
    asked = sum(n for name, n in monitor.sent.items() if name not in {"INFO", "CONFIG", "ECHO"})
    return asked / passed, used_s / passed / len(started) * 100


def _ahead(stage: Stage) -> Values:
    """1,000 jobs an hour ahead."""
    values: Values = {}
    full_s = 90 if stage.entry.ours else 20
    for workers in (1, 4, 100):
        if workers == 100 and not aiodq_only(stage.entry):
            continue
        stage.server.flush()
        producer = stage.start()
        fill(producer, "noop", 1000, {"after": 3600})
        producer.close()
        started = _start(stage, workers)
        values[f"w{workers}"], cpu = _watch(stage, started, stage.size(full_s, 10))
        if workers == 1:
            values["cpu"] = cpu
        for one in started:
            one.close()
    return values


def _states(stage: Stage) -> Values:
    """Four workers: nothing there; only leases of somebody else; paused."""
    values: Values = {}
    for state in ("empty", "leased", "paused"):
        stage.server.flush()
        holder = stage.workers(1, settle_s=0.5)[0] if state == "leased" else None
        if holder is not None:
            fill(holder, "hold", 50, {})
            time.sleep(1)
        started = _start(stage, 4)
        if state == "paused":
            started[0].ask("pause")
            time.sleep(2)
        values[state], values[f"{state}_cpu"] = _watch(stage, started, stage.size(60, 10))
        if holder is not None:
            holder.kill()
        for one in started:
            one.close()
    return values


AHEAD = Question(
    name="idle",
    title="Commands a second of idle workers, 1,000 jobs an hour ahead",
    measure=_ahead,
    metrics={
        "w1": Metric("1 worker", "/s", 2),
        "w4": Metric("4 workers", "/s", 2),
        "w100": Metric("100 workers", "/s", 2),
        "cpu": Metric("CPU of the one worker", "%", 2),
    },
    bars={"w1": (0.2, "most"), "w4": (0.5, "most"), "w100": (1, "most"), "cpu": (0.3, "most")},
    rounds=1,
)

STATES = Question(
    name="idle-states",
    title="Commands a second of four idle workers, by what is there",
    measure=_states,
    metrics={
        "empty": Metric("empty queue", "/s", 2),
        "leased": Metric("only leases of another worker", "/s", 2),
        "paused": Metric("paused", "/s", 2),
        "empty_cpu": Metric("CPU of one, empty", "%", 2),
        "leased_cpu": Metric("CPU of one, leases", "%", 2),
        "paused_cpu": Metric("CPU of one, paused", "%", 2),
    },
    takes=lambda entry: entry.name == "aiodq",
    rounds=1,
)
