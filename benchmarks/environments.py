"""Who takes part, in which versions, and each one's environment: made once, kept outside the checkout."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Unavailable(Exception):
    """This contender cannot take part on this machine; the message says why."""


@dataclass(frozen=True)
class Entry:
    """One contender.

    Attributes:
        program: its module in `benchmarks.contenders`, or a file for Node.
        packages: pinned; what they need comes in the newest version that fits.
        loop: "uvloop" where the library offers or documents it.
        ours: aiodq and the floor; peers are compared with them.
    """

    name: str
    program: str
    packages: tuple[str, ...]
    loop: str = "uvloop"
    ours: bool = False
    node: bool = False
    note: str = ""
    settings: dict[str, object] = field(default_factory=dict)


_OURS = ("redis[hiredis]==8.1.0", "anyio==4.16.0", "msgspec==0.23.0", "uvloop==0.23.0")

_REDIS_7 = "redis==7.4.1"
"""For peers whose blocking calls do not fit the newer one's default of 5 s for each reply."""

ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry("aiodq", "aiodq", _OURS, loop="plain", ours=True, note="asyncio's own loop"),
        Entry("aiodq-uvloop", "aiodq", _OURS, ours=True),
        Entry("floor", "floor", _OURS, loop="plain", ours=True, note="our scripts, raw connection"),
        Entry("floor-uvloop", "floor", _OURS, ours=True, note="our scripts, raw connection"),
        Entry("bare-uvloop", "bare", _OURS, ours=True, note="the least, not our protocol"),
        Entry("arq", "arq", ("arq==0.28.0", "hiredis==3.5.0", "uvloop==0.23.0")),
        Entry(
            "saq",
            "saq",
            ("saq[redis]==0.26.4", "typing_extensions==4.16.0", "hiredis==3.5.0", "uvloop==0.23.0"),
        ),
        Entry("taskiq", "taskiq", ("taskiq-redis==1.2.4", "taskiq==0.13.0", "uvloop==0.23.0")),
        Entry("streaq", "streaq", ("streaq==7.2.0", "uvloop==0.23.0")),
        Entry("docket", "docket", ("pydocket==0.27.0", "uvloop==0.23.0")),
        Entry("bullmq-py", "bullmq", ("bullmq==3.4.4", _REDIS_7, "hiredis==3.5.0", "uvloop==0.23.0")),
        Entry("celery", "celery", ("celery[redis]==5.7.0", _REDIS_7, "hiredis==3.5.0"), loop="plain"),
        Entry("ardiq", "ardiq", ("ardiq==1.2.0", "uvloop==0.23.0"), note="Rust core"),
        Entry("mayu", "mayu", ("mayu==0.2.5", "uvloop==0.23.0"), note="Rust core"),
        Entry("bullmq-node", "bullmq_node.mjs", ("bullmq@6.7.0", "ioredis@6.0.0"), node=True, note="Node"),
    )
}


def default_home() -> Path:
    """Where the environments are kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "aiodq-bench")


def command_for(entry: Entry, home: Path) -> tuple[list[str], dict[str, str]]:
    """How to start the contender, and its environment variables; installs it first if need be.

    Raises:
        Unavailable: it cannot be installed here.
    """
    folder = home / _key(entry)
    ready = folder / "ready.json"
    if not ready.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        versions = _install_node(entry, folder) if entry.node else _install_python(entry, folder)
        ready.write_text(json.dumps(versions, indent=1))
    if entry.node:
        program = folder / "program.mjs"
        shutil.copy(ROOT / "benchmarks" / "contenders" / entry.program, program)
        return [_which("node"), str(program)], {}
    python = str(folder / "bin" / "python")
    return [python, "-m", f"benchmarks.contenders.{entry.program}"], {"PYTHONPATH": str(ROOT)}


def versions_of(entry: Entry, home: Path) -> dict[str, str]:
    """What is installed for it."""
    ready = home / _key(entry) / "ready.json"
    return dict(json.loads(ready.read_text())) if ready.exists() else {}


def _key(entry: Entry) -> str:
    wanted = " ".join((*entry.packages, sys.version.split()[0]))
    return f"{entry.program.split('.')[0]}-{hashlib.sha256(wanted.encode()).hexdigest()[:8]}"


def _install_python(entry: Entry, folder: Path) -> dict[str, str]:
    _run([sys.executable, "-m", "venv", str(folder)])
    python = str(folder / "bin" / "python")
    _run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *entry.packages])
    frozen = _run([python, "-m", "pip", "freeze", "--disable-pip-version-check"])
    pairs = (line.split("==") for line in frozen.splitlines() if line.count("==") == 1)
    return dict(pairs)


def _install_node(entry: Entry, folder: Path) -> dict[str, str]:
    _which("node")
    (folder / "package.json").write_text('{"private": true}')
    _run([_which("npm"), "install", "--silent", "--no-audit", "--no-fund", *entry.packages], cwd=folder)
    listed = json.loads(_run([_which("npm"), "ls", "--json", "--depth=0"], cwd=folder))
    return {name: found["version"] for name, found in listed["dependencies"].items()}


def _which(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise Unavailable(f"there is no {program} on this machine")
    return found


def _run(command: list[str], cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no message"]
        raise Unavailable(f"{Path(command[0]).name} failed: {last[0]}")
    return done.stdout
