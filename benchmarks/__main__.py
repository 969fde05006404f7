"""The command: `python -m benchmarks [QUESTION …]`, from the checkout's root, with the `test` extra.

    python -m benchmarks                          everything; takes an hour or more
    python -m benchmarks noop lateness --quick    two questions, only to see that they work
    python -m benchmarks --contenders aiodq,floor --servers valkey --rounds 5 enqueue
    python -m benchmarks profile                  µs per step between claim and ack
    python -m benchmarks --report --docs          tables and plots again from results.json, into docs/ too

Results go to `--out` (build/benchmarks): results.json, tables.md, PNGs where matplotlib is installed
(extra `bench`), and contenders.log with what they printed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks import profile
from benchmarks.environments import ENTRIES, ROOT, default_home
from benchmarks.harness import Plan, known_servers, run
from benchmarks.plots import draw
from benchmarks.questions import QUESTIONS
from benchmarks.report import put_into_page, tables


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=", ".join([*QUESTIONS, "profile"]))
    parser.add_argument("--contenders", type=_names, default=list(ENTRIES), help=", ".join(ENTRIES))
    parser.add_argument("--servers", type=_names, default=list(known_servers()))
    parser.add_argument("--rounds", type=int, help="instead of each question's own number")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one round: does it work?")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"))
    parser.add_argument("--venvs", type=Path, default=default_home(), help="where environments are kept")
    parser.add_argument("--report", action="store_true", help="only write tables and plots again")
    parser.add_argument("--docs", action="store_true", help="put them into docs/performance.md as well")
    asked = parser.parse_args()
    if asked.questions == ["profile"]:
        print(profile.report(asked.servers[0], quick=asked.quick))
        return 0
    wrong = [
        *(name for name in asked.questions if name not in QUESTIONS),
        *(name for name in asked.contenders if name not in ENTRIES),
        *(name for name in asked.servers if name not in known_servers()),
    ]
    if wrong:
        parser.error(f"unknown: {', '.join(wrong)}")
    if asked.report:
        results = json.loads((asked.out / "results.json").read_text())
    else:
        questions = [QUESTIONS[name] for name in asked.questions or QUESTIONS]
        results = run(
            Plan(
                questions, asked.contenders, asked.servers, asked.rounds, asked.quick, asked.venvs, asked.out
            )
        )
    text = tables(results, QUESTIONS)
    (asked.out / "tables.md").write_text(text)
    print(text)
    if asked.docs:
        put_into_page(ROOT / "docs" / "performance.md", text)
    try:
        draw(results, ROOT / "docs" / "img" if asked.docs else asked.out)
    except ImportError:
        print("no plots: pip install 'aiodq[bench]'", file=sys.stderr)
    failed = [m for m in results["measurements"] if "failed" in m and ENTRIES[m["contender"]].ours]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
