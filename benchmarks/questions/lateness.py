"""How late do jobs start: now and then in one idle worker, and a thousand due each second?"""

from __future__ import annotations

from benchmarks.question import Metric, Question, Values
from benchmarks.questions.throughput import fill
from benchmarks.stage import Participant, Stage, now_ms, until

SPARSE_EVERY_MS = 137
"""Not a divisor of any peer's polling interval."""


def late_ms(starts: list[tuple[int, float]]) -> list[float]:
    """How late each job started; negative: early. Values are due times in Unix ms, or µs."""
    return [round((at - (due / 1e6 if due > 1e14 else due / 1e3)) * 1e3, 3) for due, at in starts]


def gather(worker: Participant, count: int) -> Values:
    starts = [(due, at) for due, at in worker.ask("starts")["starts"]]
    late = late_ms(starts)
    return {"_late": late, "early": sum(1 for ms in late if ms < 0), "missing": count - len(late)}


def _measure(stage: Stage, count: int, every_ms: float) -> Values:
    (worker,) = stage.workers(1, settle_s=2.0)
    producer = stage.start()
    # Time to enqueue them all before the first is due.
    lead_ms = 1500 + int(count * (0.1 if stage.entry.ours else 1.5))
    fill(producer, "mark", count, {"at": now_ms() + lead_ms, "every": every_ms})
    with stage.window():
        until([worker], count, timeout_s=lead_ms / 1000 + count * every_ms / 1000 + 20, every_s=0.5)
    return gather(worker, count)


METRICS = {
    "p50": Metric("p50", "ms", 2),
    "p90": Metric("p90", "ms", 2),
    "p99": Metric("p99", "ms", 2),
    "max": Metric("max", "ms", 1),
    "early": Metric("early starts", "", 0),
}

SPARSE = Question(
    name="lateness",
    title="Lateness in an idle worker, one job due each 137 ms",
    measure=lambda stage: _measure(stage, stage.size(100, 20), SPARSE_EVERY_MS),
    metrics=METRICS,
    bars={"p50": (1.5, "most"), "p99": (4, "most"), "early": (0, "most")},
)

LOADED = Question(
    name="lateness-1000",
    title="Lateness with 1,000 jobs due each second in one worker",
    measure=lambda stage: _measure(stage, stage.size(5_000, 1_000), 1.0),
    metrics=METRICS,
    bars={"p50": (3, "most"), "p99": (12, "most"), "early": (0, "most")},
    rounds=2,
)
