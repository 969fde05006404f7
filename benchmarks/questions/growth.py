"""What does a job cost with a thousand, ten thousand, a million others scheduled behind it?"""

from __future__ import annotations

import os
import statistics

from benchmarks import slowlog
from benchmarks.question import Metric, Question, Values
from benchmarks.questions.lateness import SPARSE_EVERY_MS, late_ms
from benchmarks.questions.throughput import fill
from benchmarks.stage import Participant, Stage, now_ms, quantiles, until

SIZES = {"1k": 1_000, "10k": 10_000, "1m": 1_000_000, "10m": 10_000_000}
PAGE = 50_000
TRIES = 5
"""The median of so many measurements of the claim counts."""

TEN_MILLION = "AIODQ_BENCH_10M"
"""Set in the environment, the ten million are asked for as well; they need some 4 GB."""


def _backlog(producer: Participant, count: int) -> None:
    for at in range(0, count, PAGE):
        fill(producer, "pad", min(PAGE, count - at), {"after": 3600 + at / PAGE}, 20)


def measure(stage: Stage) -> Values:
    values: Values = {}
    producer = stage.start()
    there = 0
    for name, size in SIZES.items():
        if (stage.quick and size > 10_000) or (size > 1_000_000 and TEN_MILLION not in os.environ):
            continue
        _backlog(producer, size - there)
        there = size
        values[f"claim_{name}"] = statistics.median(_claim_us(stage, producer) for _ in range(TRIES))
        worker = stage.start()
        worker.ask("work")
        jobs = stage.size(300, 10)
        fill(producer, "mark", jobs, {"at": now_ms() + 500, "every": SPARSE_EVERY_MS})
        until([worker], jobs, timeout_s=60, every_s=0.5)
        values[f"p99_{name}"] = quantiles(late_ms(worker.ask("starts")["starts"]))["p99"]
        worker.close()
    if "claim_1m" in values:
        values["claim_growth"] = values["claim_1m"] / values["claim_10k"]
        values["p99_growth"] = values["p99_1m"] / values["p99_1k"]
    return values


def _claim_us(stage: Stage, producer: Participant) -> float:
    """Of the server's time for a job that is due before all others."""
    jobs = stage.size(10_000, 1_000)
    fill(producer, "noop", jobs, {})
    worker = stage.start()
    slowlog.begin(stage.client)
    worker.ask("work")
    until([worker], jobs, timeout_s=60)
    took = slowlog.end(stage.client)
    worker.close()
    return sum(took.get("claim", [0])) / jobs


QUESTION = Question(
    name="growth",
    title="Cost by backlog",
    measure=measure,
    metrics={
        **{f"claim_{name}": Metric(f"claim, µs per job at {name}", "µs", 2) for name in SIZES},
        **{f"p99_{name}": Metric(f"lateness p99 at {name}", "ms", 2) for name in SIZES},
        "claim_growth": Metric("claim, 1m against 10k", "×", 2),
        "p99_growth": Metric("lateness p99, 1m against 1k", "×", 2),
    },
    bars={"claim_growth": (1.5, "most"), "p99_growth": (1.3, "most")},
    takes=lambda entry: entry.name == "aiodq-uvloop",
    rounds=1,
)
