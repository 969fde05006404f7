"""How many jobs a second does one worker process run: empty coroutines, and handlers that wait 5 ms?"""

from __future__ import annotations

from typing import Any

from benchmarks.question import Metric, Question, Values
from benchmarks.stage import Lacks, Participant, Stage, until


def fill(producer: Participant, task: str, count: int, when: dict[str, object], size: int = 100) -> None:
    """Enqueues in the quickest way that the contender has."""
    request: dict[str, Any] = {"task": task, "count": count, "when": when, "bytes": size}
    for how in ("bulk", "awaiters"):
        try:
            producer.ask("enqueue", how=how, **request)
        except Lacks:
            continue
        return


def _measure(stage: Stage, task: str, concurrency: int) -> Values:
    count = stage.size(40_000 if stage.entry.ours else 5_000, 2_000 if stage.entry.ours else 400)
    if task == "io":
        count = stage.size(20_000 if stage.entry.ours else 5_000, 500)
    producer = stage.start()
    fill(producer, task, count, {})
    worker = stage.start(concurrency=concurrency, threads=task == "io")
    before = worker.ask("report")
    with stage.window() as window:
        worker.ask("work")
        (after,) = until([worker], count, timeout_s=90, every_s=0.05)
    return {
        "rate": count / (after["last_end"] - after["first_start"]),
        "client": (after["cpu_s"] - before["cpu_s"]) / count * 1e6,
        "server": window.server_cpu_s / count * 1e6,
    }


_METRICS = {
    "rate": Metric("jobs a second", "/s", 0, less=False),
    "client": Metric("worker CPU per job", "µs", 1),
    "server": Metric("server CPU per job", "µs", 1),
}

NOOP = Question(
    name="noop",
    title="Empty coroutines, jobs a second in one worker process (100 slots)",
    measure=lambda stage: _measure(stage, "noop", 100),
    metrics=_METRICS,
)

IO = Question(
    name="io",
    title="Handlers that wait 5 ms, jobs a second in one worker process (100 slots)",
    measure=lambda stage: _measure(stage, "io", 100),
    metrics=_METRICS,
    rounds=2,
)
