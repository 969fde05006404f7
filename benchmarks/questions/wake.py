"""How long from the call that enqueues a due job to its start in an idle worker of another process?"""

from __future__ import annotations

from benchmarks.question import Question, Values
from benchmarks.questions.lateness import METRICS, gather
from benchmarks.stage import Stage, until


def measure(stage: Stage) -> Values:
    (worker,) = stage.workers(1, settle_s=2.0)
    producer = stage.start()
    count = stage.size(200, 20)
    producer.ask("enqueue", how="single", task="mark", count=5, pause=0.05)
    until([worker], 5, timeout_s=20)
    worker.ask("forget")
    with stage.window():
        producer.ask("enqueue", how="single", task="mark", count=count, pause=0.053)
        until([worker], count, timeout_s=30, every_s=0.5)
    return gather(worker, count)


QUESTION = Question(
    name="wake",
    title="From the call that enqueues a due job to its start in an idle worker",
    measure=measure,
    metrics={name: metric for name, metric in METRICS.items() if name != "early"},
    bars={"p50": (1.5, "most"), "p99": (5, "most")},
    rounds=2,
)
