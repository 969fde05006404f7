"""The table of faults names tests that exist, and has a row for each fault of the kinds that it covers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs/faults.md").read_text()
SOURCES: Final = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))

KINDS: Final = {
    "Time input": "B01 B03 B05 B06 B08 B09 B10 B11",
    "Names and ids": "B14 B16 B17 B19 B20 B21",
    "Serialisation": "B24 B25 B27 B28 B31",
    "Handler behaviour": "B33 B34 B36 B38 B40 B42 B43",
    "Lease and recovery": "B44 B46 B48 B49 B50 B51 B53 B55 B56 B58 B59 B61",
    "Job state race": "B63 B64 B66 B67 B71 B72 B75 B76 B78 B79",
    "Connection and reconnect": "B80 B82 B85 B86 B88 B89",
    "Wake up": "B90 B93 B94 B96 B98",
    "Client pool and cancellation": "B99 B102",
    "Server refusal and script": "B103 B105 B106 B108 B110",
    "Cluster": "B112 B113 B114 B117 B118",
    "Cron and clock": "B120 B122 B123 B125 B127 B129 B131",
    "Retry and backoff": "B132 B135 B136 B139 B140",
    "Scale and fairness": "B151 B152 B155 B157 B159 B160 B161 B162 B163",
    "Shutdown and deploy": "B141 B143 B144 B147 B148 B149",
}


def test_every_test_that_the_page_names_exists_and_every_row_has_one_or_a_reason() -> None:
    there = set(re.findall(r"def (test_\w+)\(", SOURCES))
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 30
    assert named - there == set()
    rows = re.findall(r"^\| (B\d+) \|.*\| (.+) \|$", PAGE, re.MULTILINE)
    assert rows
    assert [row for row, tests in rows if len(tests) < 20] == []


def test_every_fault_of_the_kinds_has_its_row() -> None:
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    found = {
        section.splitlines()[0]: " ".join(re.findall(r"^\| (B\d+) \|", section, re.MULTILINE))
        for section in sections
    }
    assert found == KINDS


def test_a_test_that_is_named_after_a_fault_is_in_its_row() -> None:
    rows: dict[str, str] = dict(re.findall(r"^\| (B\d+) \|(.*)$", PAGE, re.MULTILINE))
    missing: list[str] = []
    for numbers, rest in re.findall(r"def test_((?:b\d+_)+)(\w+)\(", SOURCES):
        for number in re.findall(r"\d+", numbers):
            row = rows.get(f"B{number}")
            if row is not None and f"`test_{numbers}{rest}`" not in row:
                missing.append(f"B{number}: test_{numbers}{rest}")
    assert missing == []
