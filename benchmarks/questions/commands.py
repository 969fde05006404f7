"""How many commands does a job cost: sent by clients, and run inside scripts?"""

from __future__ import annotations

import time

from benchmarks.question import Metric, Question, Values
from benchmarks.questions.throughput import fill
from benchmarks.stage import Stage, until


def measure(stage: Stage) -> Values:
    count, lone = stage.size(2_000, 500), stage.size(40, 10)
    producer = stage.start()
    fill(producer, "noop", 10, {})  # scripts are deployed
    worker = stage.start()
    worker.ask("work")
    until([worker], 10, timeout_s=30)
    time.sleep(1)
    worker.ask("forget")
    with stage.monitor() as filling:
        fill(producer, "noop", count, {"after": 3})
    with stage.monitor() as running:
        until([worker], count, timeout_s=60)
        time.sleep(0.5)
    worker.ask("forget")
    with stage.monitor() as lonely:
        producer.ask("enqueue", how="single", task="noop", count=lone, when={}, pause=0.2)
        until([worker], lone, timeout_s=60)
        time.sleep(0.3)
    return {
        "enqueue": filling.sent.total() / count,
        "run": running.sent.total() / count,
        "inside": (filling.inside.total() + running.inside.total()) / count,
        "lone": lonely.sent.total() / lone - 1,
        "lone_inside": lonely.inside.total() / lone,
    }


QUESTION = Question(
    name="commands",
    title="Commands per job",
    measure=measure,
    metrics={
        "enqueue": Metric("sent, enqueue in bulk", "", 3),
        "run": Metric("sent, run under load", "", 3),
        "inside": Metric("inside scripts, under load", "", 1),
        "lone": Metric("sent, run of a lone job", "", 1),
        "lone_inside": Metric("inside scripts, lone job with its enqueue", "", 1),
    },
    bars={"run": (0.03, "most"), "lone": (2, "most")},
    rounds=1,
)
