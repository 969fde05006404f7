"""Results as tables in markdown."""

from __future__ import annotations

from typing import Any

from benchmarks.harness import summarise
from benchmarks.question import Metric, Question


def tables(results: dict[str, Any], questions: dict[str, Question]) -> str:
    """One table for each question and server: medians, and the spread over the rounds below them."""
    asked = {m["question"] for m in results["measurements"]}
    parts = [_conditions(results)]
    for question in questions.values():
        if question.name not in asked:
            continue
        for server in results["conditions"]["servers"]:
            if table := _table(results, question, server):
                version = results["conditions"]["servers"][server]
                title = {"valkey": "Valkey", "redis7": "Redis"}[server]
                parts.append(f"### {question.title} ({title} {version})\n\n{table}")
    return "\n\n".join(parts) + "\n"


def _conditions(results: dict[str, Any]) -> str:
    conditions = results["conditions"]
    shares = sorted(m["foreign"] for m in results["measurements"])
    others = (
        f"{shares[len(shares) // 2]:.0%} in the median, {shares[-1]:.0%} at most" if shares else "unknown"
    )
    lines = [
        (
            f"{conditions['cores']} cores ({conditions['processor']}), Python {conditions['python']}, "
            f"{conditions['date']}. CPU used by others meanwhile: {others}."
        ),
    ]
    for name, reason in results["absent"].items():
        lines.append(f"Left out: {name} ({reason}).")
    if conditions["quick"]:
        lines.append("A quick run: too short to compare anything by it.")
    return "\n".join(lines)


def _table(results: dict[str, Any], question: Question, server: str) -> str:
    summary = summarise(results, question.name, server)
    metrics = {n: m for n, m in question.metrics.items() if any(n in found for found in summary.values())}
    if not metrics:
        return ""
    head = ["", *(f"{m.title}, {m.unit}" if m.unit else m.title for m in metrics.values())]
    lines = [_row(head), _row(["---", *("---:" for _ in metrics)])]
    for name, found in summary.items():
        lines.append(_row([name, *(_cell(found.get(n), m) for n, m in metrics.items())]))
    lines += _without(results, question, server, set(summary))
    return "\n".join(lines)


def _without(results: dict[str, Any], question: Question, server: str, there: set[str]) -> list[str]:
    rows: list[str] = []
    for m in results["measurements"]:
        if m["question"] != question.name or m["server"] != server or m["contender"] in there:
            continue
        there.add(m["contender"])
        rows.append(
            _row([m["contender"], m.get("failed") or m.get("lacks") or "", *("" for _ in question.metrics)])
        )
    return rows


def _cell(found: tuple[float, float, float] | None, metric: Metric) -> str:
    if found is None:
        return "–"
    median, least, most = (_number(value, metric.digits) for value in found)
    return median if least == most else f"{median} ({least}–{most})"


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
