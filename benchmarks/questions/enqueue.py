"""How many jobs a second does one process enqueue: one by one, from 100 awaiters, in bulk?"""

from __future__ import annotations

from typing import Any

from benchmarks.question import Metric, Question, Values
from benchmarks.stage import Failed, Lacks, Participant, Stage

WARM_UP = 200
LEAST_S = 1.0
MOST_CHUNKS = 40


def measure(stage: Stage) -> Values:
    values: Values = {}
    for how, chunk in (("single", 500), ("awaiters", 2000), ("bulk", 5000)):
        stage.server.flush()
        producer = stage.start()
        try:
            values |= _one_way(stage, producer, how, stage.size(chunk, chunk // 5))
        except Lacks:
            continue
        except Failed:
            if how == "single":
                raise
        finally:
            producer.close()
    return values


def _one_way(stage: Stage, producer: Participant, how: str, chunk: int) -> Values:
    request: dict[str, Any] = {"how": how, "task": "noop", "when": {"after": 3600}}
    producer.ask("enqueue", count=WARM_UP, **request)
    seconds = cpu_s = 0.0
    count = 0
    with stage.window() as window:
        for _ in range(MOST_CHUNKS):
            answer = producer.ask("enqueue", count=chunk, **request)
            seconds, cpu_s, count = seconds + answer["seconds"], cpu_s + answer["cpu_s"], count + chunk
            if seconds >= LEAST_S / (5 if stage.quick else 1):
                break
    return {
        how: count / seconds,
        f"{how}_cpu": cpu_s / count * 1e6,
        f"{how}_server": window.server_cpu_s / count * 1e6,
    }


QUESTION = Question(
    name="enqueue",
    title="Enqueue, jobs a second from one process (an hour ahead)",
    measure=measure,
    metrics={
        "single": Metric("one by one", "/s", 0, less=False),
        "awaiters": Metric("100 awaiters", "/s", 0, less=False),
        "bulk": Metric("bulk", "/s", 0, less=False),
        "single_cpu": Metric("client CPU, one by one", "µs", 0),
        "awaiters_cpu": Metric("client CPU, awaiters", "µs", 1),
        "bulk_cpu": Metric("client CPU, bulk", "µs", 1),
        "single_server": Metric("server CPU, one by one", "µs", 0),
        "bulk_server": Metric("server CPU, bulk", "µs", 1),
    },
)
