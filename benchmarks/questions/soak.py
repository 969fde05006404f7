"""A million jobs through one worker: does its memory grow, and what is left on the server?"""

from __future__ import annotations

from benchmarks.question import Metric, Question, Values
from benchmarks.questions.throughput import fill
from benchmarks.stage import Stage, until

PAGE = 20_000


def measure(stage: Stage) -> Values:
    pages = stage.size(50, 3)
    before = stage.memory()
    producer, (worker,) = stage.start(), stage.workers(1)
    resident: list[int] = []
    for page in range(1, pages + 1):
        fill(producer, "noop", PAGE, {})
        (report,) = until([worker], page * PAGE, timeout_s=60)
        resident.append(report["rss_kb"])
    producer.close()
    worker.close()
    settled = resident[max(0, pages // 10 - 1)]
    left = [key for key in stage.client.scan_iter(count=1000) if stage.client.pttl(key) == -1]
    return {
        "jobs": pages * PAGE,
        "growth": (resident[-1] - settled) / 1024,
        "rss": resident[-1] / 1024,
        "left": len(left),
        "server": (stage.memory() - before) / 1024 / 1024,
        "_rss": resident,
    }


QUESTION = Question(
    name="soak",
    title="A soak of a million jobs",
    measure=measure,
    metrics={
        "jobs": Metric("jobs", "", 0),
        "rss": Metric("worker memory at the end", "MB", 1),
        "growth": Metric("worker growth after the first tenth", "MB", 1),
        "server": Metric("server growth", "MB", 2),
        "left": Metric("keys left without lifetime", "", 0),
    },
    takes=lambda entry: entry.name == "aiodq-uvloop",
    bars={"growth": (5, "most"), "left": (0, "most")},
    rounds=1,
)
