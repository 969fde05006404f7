"""The snippets of README.md and docs/ run, and docs/reference.md leaves nothing out."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import NamedTuple, cast

import pytest

import aiodq
from aiodq import Bury, Queue, Retry, RunningJob, Snooze, TaskRef, Worker
from aiodq._core.policy import Policy
from aiodq.types import CallOptions, DeadLetters, TaskOptions
from tests.conftest import RunScript
from tests.servers import ROOT, ServerProcess

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
QUICKSTART = ROOT / "docs" / "quickstart.md"


class Snippet(NamedTuple):
    """`file`: the name that the text before the block gives it, or nothing."""

    page: str
    number: int
    file: str
    text: str

    def compiled(self) -> CodeType:
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code: CodeType = compile(
            self.text, f"{self.page}, block {self.number}", "exec", flags=flags, dont_inherit=True
        )
        return code


def snippets(page: Path) -> Iterator[Snippet]:
    before = ""
    parts = re.split(
        r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    for number, part in enumerate(parts):
        if number % 2:
            named = re.search(r"`(\w+\.py)`[^`]*:\s*\Z", before)
            yield Snippet(page.name, number // 2 + 1, named[1] if named else "", part)
        before = part


EVERY = [snippet for page in PAGES for snippet in snippets(page)]


@pytest.mark.parametrize("snippet", EVERY, ids=lambda snippet: f"{snippet.page}-{snippet.number}")
def test_each_snippet_is_python(snippet: Snippet) -> None:
    snippet.compiled()


def files(page: Path) -> dict[str, str]:
    return {snippet.file: snippet.text for snippet in snippets(page) if snippet.file}


def write(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def python(*arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.leaves_keys("a job due in half an hour")
def test_the_program_of_the_readme(run_script: RunScript, valkey: ServerProcess, tmp_path: Path) -> None:
    texts = files(ROOT / "README.md")
    assert set(texts) == {"shop.py"}
    url = "redis://127.0.0.1:6379/0"
    assert url in texts["shop.py"]
    write(tmp_path, {"shop.py": texts["shop.py"].replace(url, valkey.url)})
    worker = run_script(tmp_path / "shop.py", ready=None)
    python("-c", "import asyncio, shop; asyncio.run(shop.place_order('A1001'))", folder=tmp_path)
    now = "import asyncio, shop; asyncio.run(shop.close_order.enqueue('A1002'))"
    python("-c", now, folder=tmp_path)
    worker.wait_for("closing A1002")
    table = python("-m", "aiodq", "stats", "orders", "--url", valkey.url, folder=tmp_path)
    assert re.search(r"orders +0 +1 +0 +0 ", table)
    worker.terminate()
    assert worker.wait() == 0


def test_the_files_of_the_quick_start(run_script: RunScript, tmp_path: Path) -> None:
    texts = files(QUICKSTART)
    assert set(texts) == {"shop.py", "send.py", "test_shop.py"}
    write(tmp_path, texts)
    program = f"import os, anyio\nos.chdir({str(tmp_path)!r})\nimport shop\nanyio.run(shop.worker.run)\n"
    write(tmp_path, {"work.py": program})
    worker = run_script(tmp_path / "work.py", ready=None)
    assert python("send.py", folder=tmp_path).splitlines()[-1] == "taken back"
    worker.wait_for("closing A1001")
    worker.terminate()
    assert worker.wait() == 0


def test_the_test_of_the_quick_start(tmp_path: Path) -> None:
    texts = files(QUICKSTART)
    where = ', url="embedded://./data"'
    assert where in texts["shop.py"]
    write(tmp_path, {**texts, "shop.py": texts["shop.py"].replace(where, "")})
    assert "1 passed" in python(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py", folder=tmp_path
    )


async def test_the_other_snippets_of_the_quick_start(orders: Queue) -> None:
    """One after the other, in one program, as one reads them."""
    names: dict[str, object] = {"orders": orders, "job_id": "close-A1001", "known": {"A1002"}.__contains__}
    declared = files(QUICKSTART)["shop.py"]
    task = declared[declared.index("@orders.task") : declared.index("worker =")]
    exec(task, {"Exponential": aiodq.Exponential, "orders": orders}, names)  # noqa: S102  # the pages are ours
    loose = [snippet for snippet in snippets(QUICKSTART) if not snippet.file]
    assert len(loose) == 3
    for snippet in loose:
        coroutine = eval(snippet.compiled(), names)  # noqa: S307
        if inspect.isawaitable(coroutine):
            await coroutine
    assert await orders.by_id("close-A1001").status() == "scheduled"
    await cast("TaskRef[[str], None]", names["notify"]).enqueue("A1001")
    await Worker(orders).run(burst=True)
    (letter,) = await orders.dead.list()
    assert letter.reason == "no such order"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


# ---- docs/reference.md

REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")


def parameters(function: object) -> set[str]:
    assert callable(function)
    return set(inspect.signature(function).parameters) - {"self", "unknown", "queues"}


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    "names",
    [
        set(aiodq.__all__) - {"__version__", "Stub", "SyncTask", "TaskRef"},
        parameters(Queue.__init__) | public(Queue),
        parameters(Worker.__init__) | public(Worker),
        set(TaskOptions.__optional_keys__) | set(CallOptions.__optional_keys__),
        public(DeadLetters),
        public(RunningJob),
        set(aiodq.Share.__struct_fields__),
        parameters(aiodq.Exponential),
        (parameters(Retry) | parameters(Snooze)) - {"reason"},
        {Bury.__name__},
    ],
    ids=["aiodq", "Queue", "Worker", "options", "dead", "job", "Share", "Exponential", "directives", "Bury"],
)
def test_the_reference_names_all(names: set[str]) -> None:
    assert {name for name in names if not re.search(rf"`[^`]*\b{name}\b[^`]*`", REFERENCE)} == set()


def test_the_reference_tells_the_defaults() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", REFERENCE, flags=re.MULTILINE))
    worker = inspect.signature(Worker.__init__).parameters
    for name in parameters(Worker.__init__) - {"name"}:
        assert rows[name].strip("`") == str(worker[name].default), name
    policy = Policy()
    told = {"max_attempts": policy.max_attempts, "max_crashes": policy.max_crashes}
    assert {name: int(rows[name]) for name in told} == told
    assert policy.timeout_ms == int(rows["timeout"]) * 1000
