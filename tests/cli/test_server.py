"""`aiodq server`: the bundled server in the foreground."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from aiodq.cli import exits
from tests.cli.commands import aiodq, assert_told, environment
from tests.servers import free_port


@contextmanager
def _serving(folder: Path, *arguments: str) -> Generator[str]:
    """The first line that it prints, while it serves; told to stop, it must end well."""
    command = [sys.executable, "-m", "aiodq", "server", *arguments]
    with subprocess.Popen(
        command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=15)
        finally:
            process.kill()
    assert process.returncode == exits.OK, said
    assert "export AIODQ_URL=" in said


def test_it_prints_the_url_to_use(tmp_path: Path) -> None:
    with _serving(tmp_path, "data") as url:
        assert url == f"embedded://{tmp_path}/data"
        done = aiodq("stats", "orders", "--url", url, cwd=tmp_path)
        assert done.returncode == exits.OK, done.stderr


def test_with_a_port_it_is_for_any_client(tmp_path: Path) -> None:
    port = free_port()
    with _serving(tmp_path, "data", "--port", str(port)) as url:
        assert url == f"redis://127.0.0.1:{port}"
        done = aiodq("stats", "orders", cwd=tmp_path, env={"AIODQ_URL": url})
        assert done.returncode == exits.OK, done.stderr


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "novel.txt").write_text("Once")
    assert_told(aiodq("server", ".", cwd=tmp_path), exits.USAGE, "novel.txt")
