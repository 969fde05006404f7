"""Writes docs/lifecycle.md from the transition table and the headers of the Lua scripts.

python docs/lifecycle.py            writes the page
python docs/lifecycle.py --check    exits 1 when the page is stale
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from aiodq._core.lifecycle import BY_NAME, PLACES, REPAIRS, TRANSITIONS, Place, Transition
from aiodq._redis.keys import KINDS
from aiodq._redis.scripts import Header, load_scripts

PAGE = Path(__file__).with_suffix(".md")

INTRODUCTION = """\
# The life of a job

This page is made by `python docs/lifecycle.py` from the transition table (`aiodq/_core/lifecycle.py`) and the
headers of the scripts (`aiodq/_redis/lua/`). Change those, not this page.

A job is in exactly one place: scheduled, processing, dead, or nowhere (absent). The place *is* its state. Its
payload exists exactly as long as the job. Every arrow is one atomic script; nothing is taken from one place
before it is safe in the next.
"""

MARKS = """\
*fenced*: the caller shows the lease's token, compared whole inside the script; a lease that has passed to
another claim is refused and nothing is changed. *drains*: finishes when the server's memory is full; the
others are then refused before they change anything. *repeats*: the answer is kept for two minutes under the
caller's call id, so a repeat after a lost reply has no second effect and gives the same answer."""


REPAIRS_SAY = """\
What `queue.check(repair=True)` may do, and only to jobs that contradict themselves: in two places at
once, or without the payload or lease that belongs to their place."""


def _diagram() -> Iterator[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield "    direction LR"
    names: dict[tuple[Place, Place], list[str]] = {}
    for transition in TRANSITIONS:
        for move in transition.moves:
            names.setdefault(move, []).append(transition.name)
    for (source, target), verbs in names.items():
        ends = ["[*]" if place == "absent" else place.upper() for place in (source, target)]
        yield f"    {ends[0]} --> {ends[1]}: {', '.join(verbs)}"
    yield "```"


def _marks(transition: Transition) -> str:
    marks = {"fenced": transition.fenced, "drains": transition.drains, "repeats": transition.repeats}
    return ", ".join(name for name, holds in marks.items() if holds)


def _table() -> Iterator[str]:
    yield "| transition | from → to | what it does | |"
    yield "|---|---|---|---|"
    for transition in TRANSITIONS:
        moves = "<br>".join(f"{source} → {target}" for source, target in transition.moves)
        yield f"| `{transition.name}` | {moves} | {transition.says} | {_marks(transition)} |"
    yield ""
    yield MARKS


def _repairs() -> Iterator[str]:
    yield "## Repairs"
    yield ""
    yield REPAIRS_SAY
    yield ""
    yield "| repair | from → to | what it does |"
    yield "|---|---|---|"
    for repair in REPAIRS:
        moves = "<br>".join(f"{source} → {target}" for source, target in repair.moves)
        yield f"| `{repair.name}` | {moves} | {repair.says} |"


def _script(header: Header) -> Iterator[str]:
    yield f"### `{header.name}`"
    yield ""
    if header.moves:
        yield "*" + ", ".join(f"{source} → {target}" for source, target in header.moves) + "*"
        yield ""
    yield header.says[:1].upper() + header.says[1:]
    yield ""
    yield f"* Keys: {', '.join(f'`{key}`' for key in header.keys)}"
    if header.args:
        yield f"* Arguments: {', '.join(f'`{name}`' for name in header.args)}"
    if header.each:
        yield f"* For each job: {', '.join(f'`{name}`' for name in header.each)}"
    yield f"* Returns {header.returns}"
    yield ""


def page() -> str:
    headers = [script.header for script in load_scripts(fifo=True).values()]
    lines = [
        INTRODUCTION,
        *_diagram(),
        "",
        f"Places: {', '.join(PLACES)}.",
        "",
        *_table(),
        "",
        *_repairs(),
        "",
    ]
    lines += ["## Keys", ""]
    lines += ["`order` and `seq` are known to the scripts of first-in-first-out queues only.", ""]
    lines += ["All keys of a shard begin with `aiodq:{queue}:` (or the queue's own prefix).", ""]
    lines += ["| key | holds |", "|---|---|"]
    lines += [f"| `{name}` | {kind} |" for name, kind in KINDS.items()]
    lines += [
        "| `turn:<sender>:<script>` | STRING, 120 s: the sender's last call id and its answer |",
        "| `wake:<worker>`, `wake:*` | channels: a worker's own, and the one all workers hear |",
        "",
        "## Scripts",
        "",
    ]
    for header in sorted(headers, key=lambda header: (header.name not in BY_NAME, header.name)):
        lines += _script(header)
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and PAGE.read_text() == page():
            return 0
        print(f"{PAGE.name} is stale: run python docs/lifecycle.py", file=sys.stderr)
        return 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
