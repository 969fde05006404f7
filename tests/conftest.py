"""Fixtures for all tests: real servers, fresh names, worker processes, a look for left-over keys.

* `server`: a running `ServerProcess`; a test with it runs once per kind of server (`--server` chooses).
  With `--server cluster` it is a `tests.clusters.Cluster`, with `--server sentinel` a
  `tests.sentinels.SentinelSet`, and tests that speak to one server are skipped.
* `redis_url`: its URL. `server_kind`: "valkey", "redis7", "cluster" or "sentinel". `queue_name`: a name no
  other test has.
* `make_server(*args, kind=None)`: a server of the test's own, with further settings, to be killed or filled.
* `run_script(source, *args, env=None, ready="ready")`: a Python program in its own process.
* `valkey`, `redis7`: one certain kind.

Async tests need no mark: anyio's plugin runs every `async def` test and fixture.
"""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol, cast

import hypothesis
import pytest

from tests.clusters import Cluster, servers_of
from tests.sentinels import SentinelSet
from tests.servers import SERVER_KINDS, ScriptProcess, ServerKind, ServerMissing, ServerProcess, server_binary

_KEY_PREFIX = b"aiodq:"
_names = itertools.count(1)
_USES_A_SERVER = {"server", "valkey", "redis7", "cluster", "sentinel"}

# A real server is behind many properties, so time per example says nothing.
hypothesis.settings.register_profile(
    "aiodq",
    deadline=None,
    print_blob=True,
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.function_scoped_fixture,
    ],
)
hypothesis.settings.load_profile("aiodq")

# A shell that starts pytest in the background makes it ignore Ctrl-C, and with it the programs under test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class MakeServer(Protocol):
    def __call__(self, *args: str, kind: ServerKind | None = None) -> ServerProcess: ...


class RunScript(Protocol):
    def __call__(
        self, source: str | Path, *args: str, env: dict[str, str] | None = None, ready: str | None = "ready"
    ) -> ScriptProcess: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--server",
        choices=[*SERVER_KINDS, "cluster", "sentinel", "all"],
        default="all",
        help="which servers the fixture `server` stands for (default: all single ones; a missing one is "
        "skipped, or a failure with AIODQ_TEST_REQUIRE=all in the environment); cluster: a real one of three "
        "masters and three replicas; sentinel: a master and two replicas behind three Sentinels",
    )
    parser.addoption(
        "--cluster-of", choices=SERVER_KINDS, default="valkey", help="what the cluster is made of"
    )
    parser.addoption(
        "--without",
        metavar="SAFEGUARD",
        help="take a safeguard out of the code under test, by its name in `tests.fault.mutations.safeguards` "
        "(`python -m tests.mutate` shows which tests notice)",
    )


def pytest_configure(config: pytest.Config) -> None:
    name = cast("str | None", config.getoption("--without"))
    if name is not None:
        from tests.fault.mutations import safeguards

        lacking = ExitStack()
        lacking.enter_context(safeguards()[name]())
        config.add_cleanup(lacking.close)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server_kind" in metafunc.fixturenames:
        chosen = cast("str", metafunc.config.getoption("--server"))
        kinds = list(SERVER_KINDS) if chosen == "all" else [chosen]
        metafunc.parametrize("server_kind", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def server_kind(request: pytest.FixtureRequest) -> ServerKind:
    """The kind of server this run of the test is for."""
    return cast("ServerKind", request.param)


def require_server(kind: ServerKind) -> None:
    """Skip the test if this machine lacks the server, saying so; with AIODQ_TEST_REQUIRE=all fail it."""
    try:
        server_binary(kind)
    except ServerMissing as missing:
        if os.environ.get("AIODQ_TEST_REQUIRE") == "all":
            pytest.fail(f"AIODQ_TEST_REQUIRE=all, but: {missing}", pytrace=False)
        pytest.skip(str(missing))


def _new_server(kind: ServerKind, directory: Path, *args: str) -> ServerProcess:
    require_server(kind)
    return ServerProcess(kind, directory, *args)


@pytest.fixture(scope="session")
def server_directory() -> Iterator[Path]:
    """Where servers keep their data: a short path, since socket paths may have about 100 bytes only."""
    directory = Path(tempfile.mkdtemp(prefix="aiodq-test-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def _session_server(kind: ServerKind, directory: Path) -> Iterator[ServerProcess]:
    server = _new_server(kind, directory / kind)
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture(scope="session")
def valkey(server_directory: Path) -> Iterator[ServerProcess]:
    """The bundled Valkey, one for the whole run."""
    yield from _session_server("valkey", server_directory)


@pytest.fixture(scope="session")
def redis7(server_directory: Path) -> Iterator[ServerProcess]:
    """Debian's Redis 7.0, one for the whole run."""
    yield from _session_server("redis7", server_directory)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, server_directory: Path) -> Iterator[Cluster]:
    """Three masters and three replicas, for the whole run; of the bundled Valkey (`--cluster-of` chooses)."""
    kind = cast("ServerKind", request.config.getoption("--cluster-of"))
    require_server(kind)
    cluster = Cluster(server_directory / "cluster", kind)
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def sentinel(server_directory: Path) -> Iterator[SentinelSet]:
    """A master and two replicas of the bundled Valkey behind three Sentinels, for the whole run."""
    require_server("valkey")
    group = SentinelSet(server_directory / "sentinel")
    try:
        yield group.start()
    finally:
        group.stop()


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, server_kind: ServerKind) -> ServerProcess:
    """A running server, shared by the run and empty at the start of each test."""
    return cast("ServerProcess", request.getfixturevalue(server_kind))


@pytest.fixture
def redis_url(server: ServerProcess) -> str:
    return server.url


@pytest.fixture
def queue_name() -> str:
    return f"q{next(_names)}-{secrets.token_hex(3)}"


@pytest.fixture
def make_server(server_directory: Path) -> Iterator[MakeServer]:
    """Start servers that are this test's own; they end with it. Their keys are not looked through."""
    started: list[ServerProcess] = []

    def make(*args: str, kind: ServerKind | None = None) -> ServerProcess:
        server = _new_server(kind or "valkey", server_directory / f"own-{next(_names)}", *args)
        started.append(server)
        return server.start()

    yield make
    for server in started:
        server.kill()
        shutil.rmtree(server.directory, ignore_errors=True)


@pytest.fixture
def run_script() -> Iterator[RunScript]:
    """Run a program (source text, or a file) and wait for its line `ready`; it ends with the test."""
    started: list[ScriptProcess] = []

    def run(
        source: str | Path, *args: str, env: dict[str, str] | None = None, ready: str | None = "ready"
    ) -> ScriptProcess:
        script = ScriptProcess(source, *args, env=env)
        started.append(script)
        if ready is not None:
            script.wait_for(ready)
        return script

    yield run
    for script in started:
        script.close()


@pytest.fixture(autouse=True)
def no_keys_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After a test with a shared server: no key without a lifetime but `:meta` (mark: `leaves_keys`)."""
    wanted = _USES_A_SERVER.intersection(request.fixturenames)
    used = {cast("ServerProcess", request.getfixturevalue(name)) for name in sorted(wanted)}
    for server in used:
        server.start()  # a test may have killed it
    yield
    for server in used:
        left = _keys_without_lifetime(server.start())
        server.flush()
        node = cast("pytest.Item", request.node)
        if left and node.get_closest_marker("leaves_keys") is None:
            pytest.fail(f"keys without a lifetime were left on {server.kind}: {left}", pytrace=False)


def _keys_without_lifetime(server: ServerProcess | Cluster | SentinelSet) -> list[str]:
    left: list[bytes] = []
    for process in servers_of(server):
        with process.client() as client:
            keys = cast("Iterator[bytes]", client.scan_iter(match=_KEY_PREFIX + b"*", count=1000))
            ttl_ms = cast(
                "Callable[[bytes], int]", client.pttl
            )  # its stub allows for an async client's answer
            left += [key for key in keys if not key.endswith(b":meta") and ttl_ms(key) == -1]
    return sorted(key.decode(errors="replace") for key in left)
