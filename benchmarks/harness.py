"""Asks the questions: contenders in alternation, round after round, one fresh server state each."""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.environments import ENTRIES, Entry, Unavailable, command_for, versions_of
from benchmarks.machine import describe
from benchmarks.question import Question
from benchmarks.stage import Failed, Lacks, Stage, progress, quantiles
from tests.servers import SERVER_KINDS, ServerKind, ServerMissing, ServerProcess

# Nothing is kept on disk: the disk of the machine is not what is compared.
SERVER_SETTINGS = ("--appendonly", "no", "--enable-debug-command", "no")


@dataclass
class Plan:
    """What is asked of whom."""

    questions: Sequence[Question]
    contenders: Sequence[str]
    servers: Sequence[ServerKind]
    rounds: int | None
    quick: bool
    home: Path
    out: Path


def run(plan: Plan) -> dict[str, Any]:
    """All of it; the results are written after each measurement, so that a run may be cut short."""
    plan.out.mkdir(parents=True, exist_ok=True)
    log = plan.out / "contenders.log"
    log.unlink(missing_ok=True)
    entries, absent = _present(plan)
    results: dict[str, Any] = {
        "conditions": {**describe(), "quick": plan.quick, "servers": {}},
        "versions": {entry.name: versions_of(entry, plan.home) for entry in entries},
        "absent": absent,
        "measurements": [],
    }
    for kind in plan.servers:
        folder = Path(tempfile.mkdtemp(prefix="aiodq-bench-"))
        try:
            server = ServerProcess(kind, folder, *SERVER_SETTINGS).start()
        except ServerMissing as missing:
            results["absent"][kind] = str(missing)
            continue
        try:
            with server.client() as client:
                info: Any = client.info("server")
            version = info.get("valkey_version") or info["redis_version"]
            results["conditions"]["servers"][kind] = version
            for question in plan.questions:
                _ask(question, entries, server, plan, log, results)
        finally:
            server.kill()
            shutil.rmtree(folder, ignore_errors=True)
    return results


def _present(plan: Plan) -> tuple[list[Entry], dict[str, str]]:
    entries: list[Entry] = []
    absent: dict[str, str] = {}
    for name in plan.contenders:
        entry = ENTRIES[name]
        if not any(question.takes(entry) for question in plan.questions):
            continue
        progress(f"environment of {name}")
        try:
            command_for(entry, plan.home)
        except Unavailable as reason:
            absent[name] = str(reason)
            progress(f"  left out: {reason}")
        else:
            entries.append(entry)
    return entries, absent


def _ask(
    question: Question,
    entries: list[Entry],
    server: ServerProcess,
    plan: Plan,
    log: Path,
    results: dict[str, Any],
) -> None:
    rounds = plan.rounds or (1 if plan.quick else question.rounds)
    failures: dict[str, int] = {}
    for number in range(1, rounds + 1):
        for entry in entries:
            if not question.takes(entry) or failures.get(entry.name, 0) >= 2:
                continue
            begun = time.monotonic()
            row = _measure(question, entry, server, plan, log)
            if "failed" in row:
                failures[entry.name] = failures.get(entry.name, 0) + 1
            row |= {"question": question.name, "server": server.kind, "round": number}
            results["measurements"].append(row)
            shown = row.get("failed") or row.get("lacks") or _shown(row["values"])
            progress(
                f"{question.name} {server.kind} {number}/{rounds} {entry.name}: {shown} "
                f"[{time.monotonic() - begun:.0f} s, others used {row['foreign']:.0%}]"
            )
            (plan.out / "results.json").write_text(json.dumps(results, indent=1))


def _measure(
    question: Question, entry: Entry, server: ServerProcess, plan: Plan, log: Path
) -> dict[str, Any]:
    server.start().flush()
    row: dict[str, Any] = {"contender": entry.name}
    stage = Stage(entry, server, plan.home, log, quick=plan.quick)
    try:
        row["values"] = question.measure(stage)
    except Lacks as reason:
        row["lacks"] = str(reason)
    except Failed as reason:
        row["failed"] = str(reason)
    finally:
        row["foreign"] = round(stage.foreign, 3)
        stage.close()
    return row


def _shown(values: dict[str, Any]) -> str:
    if values.get("_late"):
        values = values | quantiles(values["_late"])
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items() if not name.startswith("_"))


def summarise(
    results: dict[str, Any], question: str, server: str
) -> dict[str, dict[str, tuple[float, float, float]]]:
    """By contender and metric: median, smallest, greatest over the rounds. Latenesses are pooled."""
    rows = [m for m in results["measurements"] if m["question"] == question and m["server"] == server]
    summary: dict[str, dict[str, tuple[float, float, float]]] = {}
    for name in dict.fromkeys(row["contender"] for row in rows):
        found = [row["values"] for row in rows if row["contender"] == name and "values" in row]
        metrics: dict[str, tuple[float, float, float]] = {}
        for metric in dict.fromkeys(key for values in found for key in values if not key.startswith("_")):
            numbers = [values[metric] for values in found if metric in values]
            metrics[metric] = statistics.median(numbers), min(numbers), max(numbers)
        late = [ms for values in found for ms in values.get("_late", [])]
        if late:
            each = [quantiles(values["_late"]) for values in found if values.get("_late")]
            for part, value in quantiles(late).items():
                spread = [one[part] for one in each]
                metrics[part] = value, min(spread), max(spread)
        if metrics:
            summary[name] = metrics
    return summary


def known_servers() -> tuple[ServerKind, ...]:
    return SERVER_KINDS
