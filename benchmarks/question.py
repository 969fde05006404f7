"""What a question is: one measurement of one contender, repeated in rounds by the harness."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.environments import Entry
from benchmarks.stage import Stage

Values = dict[str, Any]


def everybody(_: Entry) -> bool:
    return True


def ours(entry: Entry) -> bool:
    return entry.ours


def aiodq_only(entry: Entry) -> bool:
    return entry.program == "aiodq"


@dataclass(frozen=True)
class Metric:
    """One column: how it is named and shown. `less`: smaller is better."""

    title: str
    unit: str = ""
    digits: int = 1
    less: bool = True


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        measure: one measurement; gives values by the metrics' names. A list under `_late` holds latenesses in
            ms, which are pooled over the rounds into `p50`, `p99` and `max`.
        bars: limits of our own: metric -> (limit, "most" or "least").
    """

    name: str
    title: str
    measure: Callable[[Stage], Values]
    metrics: Mapping[str, Metric]
    takes: Callable[[Entry], bool] = everybody
    rounds: int = 3
    bars: Mapping[str, tuple[float, Literal["most", "least"]]] = field(default_factory=dict)
