"""How many bytes of the server's memory does a scheduled job take?"""

from __future__ import annotations

import time

from benchmarks.question import Metric, Question, Values
from benchmarks.questions.throughput import fill
from benchmarks.stage import Stage


def measure(stage: Stage) -> Values:
    count = stage.size(10_000, 1_000)
    producer = stage.start()
    fill(producer, "pad", 10, {"after": 3600}, 10)
    time.sleep(0.5)
    before = stage.memory()
    fill(producer, "pad", count, {"after": 3600}, 100)
    producer.close()
    time.sleep(0.5)
    return {"bytes": (stage.memory() - before) / count}


QUESTION = Question(
    name="memory",
    title="Bytes per scheduled job with one argument of 100 bytes (10,000 jobs)",
    measure=measure,
    metrics={"bytes": Metric("bytes", "", 0)},
    rounds=1,
)
