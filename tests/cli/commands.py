"""How the tests call the command line: as a user does, in a process and a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def aiodq(
    *arguments: str, cwd: Path, env: dict[str, str] | None = None, timeout_s: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; the checkout's own package, whatever else is installed."""
    return subprocess.run(
        [sys.executable, "-m", "aiodq", *arguments],
        cwd=cwd,
        env=environment(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """This process's, without what would change the commands' answers."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in {"AIODQ_URL", "REDIS_URL", "COLUMNS", "NO_COLOR", "FORCE_COLOR", "PYTHONPATH"}
    }
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **(extra or {})}


def assert_told(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """It ended with this code, said all of these on stderr, and showed no traceback."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
