"""The command as a whole: help, version, wrong words, a missing extra."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aiodq.cli import exits
from tests.cli.commands import ROOT, aiodq, assert_told, environment

COMMANDS = ("worker", "stats", "check", "server", "demo")


def test_without_words_it_shows_what_there_is(tmp_path: Path) -> None:
    done = aiodq(cwd=tmp_path)
    assert done.returncode == exits.OK
    assert all(command in done.stdout for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_the_exit_codes_and_fits_80_columns(tmp_path: Path, command: str) -> None:
    done = aiodq(command, "--help", cwd=tmp_path, env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    assert done.returncode == exits.OK
    assert f"aiodq {command} " in done.stdout.replace("Usage: ", "")
    assert "Exit codes" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert not _folded(done.stdout), "a line of the help text is too long for 80 columns"
    words = " ".join(done.stdout.split())
    assert words.count(f"aiodq {command}") >= 2  # the usage line, and an example


def _folded(text: str) -> list[str]:
    """Lines in the middle of a paragraph that hold a word or two: what wrapping leaves of a long line."""
    lines = [line.strip() for line in text.partition("╭")[0].splitlines()]
    return [
        line
        for before, line, after in zip(lines, lines[1:], lines[2:], strict=False)
        if before
        and line
        and after
        and len(line) < 25
        and "aiodq" not in line
        and not line.endswith((".", ":"))
    ]


def test_the_manual_names_every_exit_code() -> None:
    manual = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert codes == {code for code, _ in exits.TABLE}
    for code in codes:
        assert f"| {code} |" in manual


def test_version(tmp_path: Path) -> None:
    done = aiodq("--version", cwd=tmp_path)
    assert done.returncode == exits.OK
    assert done.stdout.startswith("aiodq ")


@pytest.mark.parametrize(
    "words",
    [["nonsense"], ["stats"], ["worker"], ["stats", "orders", "--nonsense"], ["server", "d", "--port", "x"]],
)
def test_wrong_words_are_a_usage_error(tmp_path: Path, words: list[str]) -> None:
    assert_told(aiodq(*words, cwd=tmp_path), exits.USAGE, "Usage: aiodq")


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_a_missing_extra_is_named(tmp_path: Path, missing: str) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None; from aiodq.cli import main; main(['stats', 'orders'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert_told(done, exits.USAGE, "pip install 'aiodq[cli]'", missing)
