"""How long does the longest script hold the server, under load in batches of 100?"""

from __future__ import annotations

from benchmarks import slowlog
from benchmarks.question import Metric, Question, Values
from benchmarks.questions.throughput import fill
from benchmarks.stage import Stage, quantiles, until

SCRIPTS = ("enqueue", "claim", "ack")


def measure(stage: Stage) -> Values:
    count = stage.size(100_000, 5_000)
    producer, worker = stage.start(), stage.start()
    slowlog.begin(stage.client)
    with stage.window():
        fill(producer, "pad", count, {"after": 2})
        worker.ask("work")
        until([worker], count, timeout_s=60, every_s=0.2)
    by_name = slowlog.end(stage.client)
    values: Values = {}
    for name in SCRIPTS:
        took = sorted(by_name.get(name, [0]))
        values[f"{name}_p50"] = quantiles(list(map(float, took)))["p50"] / 1000
        values[f"{name}_p999"] = took[min(len(took) - 1, int(len(took) * 0.999))] / 1000
        values[f"{name}_calls"] = len(took)
    values["longest"] = max(values[f"{name}_p999"] for name in SCRIPTS)
    return values


QUESTION = Question(
    name="scripts",
    title="How long scripts hold the server, in batches of 100 jobs with 100 bytes each",
    measure=measure,
    metrics={
        **{f"{name}_p50": Metric(f"{name} p50", "ms", 2) for name in SCRIPTS},
        **{f"{name}_p999": Metric(f"{name} p99.9", "ms", 2) for name in SCRIPTS},
        "longest": Metric("the longest p99.9", "ms", 2),
    },
    takes=lambda entry: entry.name == "aiodq-uvloop",
    bars={"longest": (2, "most")},
)
