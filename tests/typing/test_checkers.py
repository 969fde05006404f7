"""mypy and pyright on users' modules: what is right passes in strict mode, and each wrong line is refused."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def mypy(file: Path) -> dict[int, str]:
    """Errors by line."""
    options = [
        "--strict",
        "--config-file=",
        "--python-version=3.11",
        "--no-error-summary",
        "--hide-error-context",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(file)],
        capture_output=True,
        text=True,
        cwd=HERE.parents[1],
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = re.finditer(rf"{re.escape(file.name)}:(\d+): error: (.*)", done.stdout)
    return {int(match[1]): match[2] for match in found}


def pyright(file: Path) -> dict[int, str]:
    """Errors by line."""
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "-p", str(HERE), "--pythonpath", sys.executable, "--outputjson"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    errors = [e for e in json.loads(done.stdout)["generalDiagnostics"] if e["severity"] == "error"]
    return {e["range"]["start"]["line"] + 1: e["message"] for e in errors if Path(e["file"]) == file}


CHECKERS = [
    pytest.param(
        check,
        id=check.__name__,
        marks=pytest.mark.skipif(not importlib.util.find_spec(check.__name__), reason="not installed"),
    )
    for check in (mypy, pyright)
]


@pytest.mark.parametrize("check", CHECKERS)
def test_a_users_module_is_clean_in_strict_mode(check: Callable[[Path], dict[int, str]]) -> None:
    assert check(HERE / "right.py") == {}


@pytest.mark.parametrize("check", CHECKERS)
def test_every_wrong_line_is_refused_and_no_other(check: Callable[[Path], dict[int, str]]) -> None:
    file = HERE / "wrong.py"
    lines = file.read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert len(wrong) > 50
    found = check(file)
    assert {n: lines[n - 1] for n in sorted(wrong - set(found))} == {}
    assert {n: found[n] for n in sorted(set(found) - wrong)} == {}
