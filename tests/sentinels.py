"""A Sentinel set for tests: one master, two replicas, three Sentinels, all from the bundled server."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Self, cast

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel

from tests.servers import ServerProcess, wait_until

SERVICE = "mymaster"
DOWN_AFTER_MS = 500


class SentinelSet:
    """Six processes on free loopback ports. `url` is for `Queue(url=...)`.

    Has what tests ask of a `ServerProcess`, but for its port: a test that needs one speaks to a single
    server, and is skipped.
    """

    kind = "sentinel"

    def __init__(self, directory: Path) -> None:
        self.nodes = [ServerProcess("valkey", directory / f"node{n}", *_REPLICATION) for n in range(3)]
        self.sentinels = [_Sentinel("valkey", directory / f"sentinel{n}") for n in range(3)]
        self.elected_at = 0.0
        self._started = False

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    @property
    def port(self) -> int:
        pytest.skip("speaks to a single server")

    @property
    def running(self) -> bool:
        return all(process.running for process in (*self.sentinels, *self.nodes))

    def client(self) -> redis.Redis:
        """A client of the master, for setting up and looking; use it as a context manager."""
        return self.master().client()

    def flush(self) -> None:
        """Remove all keys."""
        self.master().flush()

    def start(self) -> Self:
        """Returns when both replicas are in step and all Sentinels know each other."""
        if self._started:
            for process in (*self.nodes, *self.sentinels):
                process.start()
            return self
        self._started = True
        first = self.nodes[0].start()
        for node in self.nodes[1:]:
            node.args = (*_REPLICATION, "--replicaof", f"127.0.0.1 {first.port}")
            node.start()
        for sentinel in self.sentinels:
            sentinel.watch(first.port)
            sentinel.start()
        wait_until(lambda: self.in_step() == 2, 20, "two replicas in step")
        wait_until(lambda: all(s.knows_all() for s in self.sentinels), 20, "Sentinels know each other")
        return self

    def stop(self) -> None:
        for process in (*self.sentinels, *self.nodes):
            process.kill()

    kill = stop

    def master(self) -> ServerProcess:
        """The node that the first Sentinel names now."""
        return self._named_by(self.sentinels[0])

    def _named_by(self, sentinel: ServerProcess) -> ServerProcess:
        with sentinel.client() as client:
            question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
            _, port = cast(tuple[object, int], client.execute_command(*question))
        return next(node for node in self.nodes if node.port == int(port))

    def online(self) -> int:
        """How many replicas follow the master."""
        with self.master().client() as client:
            info = client.info("replication")
        slaves = [value for name, value in info.items() if name.startswith("slave") and name[5:].isdigit()]
        return sum(1 for slave in slaves if slave["state"] == "online" and slave["lag"] <= 1)

    def in_step(self) -> int:
        """How many replicas have all that the master has."""
        with self.master().client() as client:
            info = client.info("replication")
        offset = info["master_repl_offset"]
        slaves = [value for name, value in info.items() if name.startswith("slave") and name[5:].isdigit()]
        return sum(1 for slave in slaves if slave["state"] == "online" and slave["offset"] >= offset)

    def cut_replication(self) -> None:
        """From now on nothing that the master acknowledges reaches a replica: a failover loses it."""
        with self.master().client() as client:
            client.execute_command("ACL", "SETUSER", "replica", "off")
            client.execute_command("CLIENT", "KILL", "USER", "replica")

    def fail_over(self) -> None:
        """Kills the master; returns when the first Sentinel names another one. The killed node comes back at
        once, and is made a replica. `elected_at` is when that was, by the monotonic clock."""
        old = self.master()
        old.kill()
        wait_until(lambda: any(self._named_by(s) is not old for s in self.sentinels), 20, "a new master")
        self.elected_at = time.monotonic()
        old.start()


_REPLICATION = (
    *("--repl-diskless-sync-delay", "0", "--repl-timeout", "10"),
    # Replicas come as a user of their own, so that replication can be cut while clients go on.
    *("--masteruser", "replica", "--masterauth", "secret"),
    *("--user", "replica", "on", ">secret", "+psync", "+replconf", "+ping"),
)


class _Sentinel(ServerProcess):
    """One Sentinel: the same binary with a file of its own, which it rewrites."""

    def watch(self, port: int) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        file = self.directory / "sentinel.conf"
        file.write_text(
            f"sentinel monitor {SERVICE} 127.0.0.1 {port} 2\n"
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {SERVICE} 2000\n"
        )

    def _settings(self) -> list[str]:
        where = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory)]
        return [str(self.directory / "sentinel.conf"), "--sentinel", *where, "--logfile", "server.log"]

    def knows_all(self) -> bool:
        """Whether it has found the replicas and the other Sentinels."""
        with self.client() as client:
            (master,) = cast(list[dict[bytes, bytes]], client.execute_command("SENTINEL", "MASTERS"))
        return master[b"num-slaves"] == b"2" and master[b"num-other-sentinels"] == b"2"


def sentinel_client(sentinels: SentinelSet) -> redis.asyncio.Redis:
    """A user's own client, made as redis-py's documentation shows."""
    addresses = [("127.0.0.1", sentinel.port) for sentinel in sentinels.sentinels]
    sentinel = redis.asyncio.sentinel.Sentinel(addresses)  # type: ignore[no-untyped-call]
    return sentinel.master_for(SERVICE)  # type: ignore[no-any-return]


def client_of_master(sentinel_port: int) -> redis.asyncio.Redis:
    """A client of whoever is the master now."""
    with redis.Redis(host="127.0.0.1", port=sentinel_port) as sentinel:
        question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        _, port = cast(tuple[object, bytes], sentinel.execute_command(*question))
    return redis.asyncio.Redis(host="127.0.0.1", port=int(port))
