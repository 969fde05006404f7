"""Results as pictures; needs matplotlib, from the extra `bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.harness import summarise

BARS = {
    # file: question, metric, title, logarithmic
    "throughput": ("noop", "rate", "Empty jobs a second, one worker process", False),
    "enqueue-bulk": ("enqueue", "bulk", "Jobs enqueued a second, in bulk", False),
    "enqueue-awaiters": ("enqueue", "awaiters", "Jobs enqueued a second, 100 awaiters", False),
    "herd": ("herd", "one", "5,000 jobs due in one millisecond: last end, s", True),
    "idle": ("idle", "w4", "Commands a second of 4 idle workers", True),
    "memory": ("memory", "bytes", "Bytes per scheduled job", False),
}


def draw(results: dict[str, Any], folder: Path) -> list[Path]:
    """Draws what there is results for. Raises ImportError without matplotlib."""
    import matplotlib as mpl  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415

    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    drawn: list[Path] = []
    for server in results["conditions"]["servers"]:
        for name, (question, metric, title, logarithmic) in BARS.items():
            found = {
                contender: metrics[metric]
                for contender, metrics in summarise(results, question, server).items()
                if metric in metrics
            }
            if found:
                drawn.append(_bars(found, title, logarithmic, folder / f"{name}-{server}.png"))
        late = _latenesses(results, "lateness", server)
        if late:
            drawn.append(_curves(late, folder / f"lateness-{server}.png"))
    return drawn


def _bars(found: dict[str, tuple[float, float, float]], title: str, logarithmic: bool, path: Path) -> Path:
    from matplotlib import pyplot as plt  # noqa: PLC0415

    ordered = sorted(found.items(), key=lambda one: one[1][0])
    figure, axes = plt.subplots(figsize=(7, 0.6 + 0.32 * len(ordered)), layout="constrained")
    names = [name for name, _ in ordered]
    medians = [values[0] for _, values in ordered]
    spread = [[v[0] - v[1] for _, v in ordered], [v[2] - v[0] for _, v in ordered]]
    colours = [
        "#c0392b" if n.startswith("aiodq") else "#7f8c8d" if n.startswith(("floor", "bare")) else "#95b8d1"
        for n in names
    ]
    axes.barh(names, medians, xerr=spread, color=colours, error_kw={"lw": 0.8})
    for at, value in enumerate(medians):
        axes.annotate(
            f" {value:,.0f}" if value >= 100 else f" {value:.3g}", (value, at), va="center", fontsize=8
        )
    if logarithmic:
        axes.set_xscale("log")
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def _latenesses(results: dict[str, Any], question: str, server: str) -> dict[str, list[float]]:
    late: dict[str, list[float]] = {}
    for row in results["measurements"]:
        if row["question"] == question and row["server"] == server and "values" in row:
            late.setdefault(row["contender"], []).extend(row["values"].get("_late", []))
    return {name: sorted(values) for name, values in late.items() if values}


def _curves(late: dict[str, list[float]], path: Path) -> Path:
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, values in sorted(late.items(), key=lambda one: one[1][len(one[1]) // 2]):
        parts = [(n + 1) / len(values) for n in range(len(values))]
        axes.step([max(0.05, v) for v in values], parts, label=name, lw=2 if name.startswith("aiodq") else 1)
    axes.set_xscale("log")
    axes.set_xlabel("lateness, ms")
    axes.set_ylabel("part of the jobs")
    axes.set_title("Lateness in an idle worker", fontsize=10)
    axes.legend(fontsize=7, loc="lower right")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path
