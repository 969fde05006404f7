"""Results as tables in markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.harness import summarise
from benchmarks.question import Metric, Question

BEGIN = "<!-- tables: python -m benchmarks --report --docs -->"
END = "<!-- end of the tables -->"


def tables(results: dict[str, Any], questions: dict[str, Question]) -> str:
    """One table for each question and server: medians, and the spread over the rounds below them."""
    asked = {m["question"] for m in results["measurements"]}
    parts = [_conditions(results), *_against_bars(results, questions), *_ratios(results)]
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


def _against_bars(results: dict[str, Any], questions: dict[str, Question]) -> list[str]:
    """aiodq's own figures beside the limits it has set itself."""
    lines = [
        _row(["limit of our own", "server", "limit", "aiodq", "aiodq-uvloop"]),
        _row(["---", "---", "---:", "---:", "---:"]),
    ]
    for question in questions.values():
        for server in results["conditions"]["servers"]:
            summary = summarise(results, question.name, server)
            for name, (limit, _) in question.bars.items():
                metric = question.metrics[name]
                cells = [_cell(summary.get(one, {}).get(name), metric) for one in ("aiodq", "aiodq-uvloop")]
                if cells != ["–", "–"]:
                    what = f"{question.title}: {metric.title}"
                    lines.append(_row([what, server, f"≤ {limit:g} {metric.unit}".strip(), *cells]))
    return ["### Against our own limits\n\n" + "\n".join(lines)] if len(lines) > 2 else []


def _ratios(results: dict[str, Any]) -> list[str]:
    """aiodq on uvloop, as a multiple of the floors and of the best peer in the same run."""
    head = ["aiodq-uvloop as a multiple of", "server", "floor-uvloop", "bare-uvloop", "the best peer"]
    lines = [_row(head), _row(["---", "---", "---:", "---:", "---:"])]
    for question, metric in (("noop", "rate"), *(("enqueue", how) for how in ("single", "awaiters", "bulk"))):
        for server in results["conditions"]["servers"]:
            found = {
                name: metrics[metric][0]
                for name, metrics in summarise(results, question, server).items()
                if metric in metrics
            }
            ours = found.pop("aiodq-uvloop", None)
            peers = {n: v for n, v in found.items() if not n.startswith(("aiodq", "floor", "bare"))}
            if ours is None:
                continue
            cells = [f"{ours / found[n]:.2f}" if n in found else "–" for n in ("floor-uvloop", "bare-uvloop")]
            best = max(peers, key=lambda n: peers[n]) if peers else None
            cells.append(f"{ours / peers[best]:.1f} ({best})" if best else "–")
            title = {"rate": "empty jobs a second", "single": "enqueue one by one"}.get(
                metric, f"enqueue, {metric}"
            )
            lines.append(_row([title, server, *cells]))
    return ["### Beside the floors and the best peer\n\n" + "\n".join(lines)] if len(lines) > 2 else []


def put_into_page(page: Path, text: str) -> None:
    """Replaces what stands between the page's marks."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")


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
