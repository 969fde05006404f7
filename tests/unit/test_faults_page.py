"""The table of faults names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_page_names_exists_and_every_row_has_one_or_a_reason() -> None:
    page = (ROOT / "docs/faults.md").read_text()
    sources = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"def (test_\w+)\(", sources))
    named = set(re.findall(r"`(test_\w+)`", page))
    assert len(named) > 30
    assert named - there == set()
    rows = re.findall(r"^\| (B\d+) \|.*\| (.+) \|$", page, re.MULTILINE)
    assert rows
    assert [row for row, tests in rows if len(tests) < 20] == []
