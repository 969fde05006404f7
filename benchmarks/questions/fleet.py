"""A hundred workers sleep and one job is due each second: how many commands does it cost?"""

from __future__ import annotations

from benchmarks.question import Metric, Question, Values
from benchmarks.questions.idle import PER_PROCESS
from benchmarks.questions.lateness import late_ms
from benchmarks.questions.throughput import fill
from benchmarks.stage import Stage, now_ms, until


def measure(stage: Stage) -> Values:
    started = stage.workers(100 // PER_PROCESS, settle_s=stage.size(12, 4), workers=PER_PROCESS)
    producer = stage.start()
    count = stage.size(60, 10)
    with stage.window(), stage.monitor() as monitor:
        fill(producer, "mark", count, {"at": now_ms() + 1000, "every": 1000})
        until(started, count, timeout_s=count + 20, every_s=1.0)
    asked = sum(n for name, n in monitor.sent.items() if name not in {"INFO", "CONFIG", "ECHO"})
    late = [ms for one in started for ms in late_ms(one.ask("starts")["starts"])]
    return {"each": asked / count, "published": monitor.inside["PUBLISH"] / count, "_late": late}


QUESTION = Question(
    name="fleet",
    title="100 sleeping workers, one job due each second",
    measure=measure,
    metrics={
        "each": Metric("commands sent per due job, all included", "", 2),
        "published": Metric("notices per due job", "", 2),
        "p50": Metric("lateness p50", "ms", 2),
        "p99": Metric("lateness p99", "ms", 2),
    },
    takes=lambda entry: entry.name == "aiodq",
    bars={"each": (4, "most")},
    rounds=1,
)
