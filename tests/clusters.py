"""A real Redis Cluster for tests: three masters, each with one replica, all from the bundled server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self, cast

import pytest
import redis
import redis.asyncio
from redis.crc import key_slot

from tests.servers import ServerKind, ServerProcess, free_port, wait_until

SLOTS = 16384
NODE_TIMEOUT_MS = 1000
"""After so long without a sign a node counts as dead; its replica is promoted soon after."""

_START_S = 30.0


class ClusterNode(ServerProcess):
    """One node. Its id is stable over restarts."""

    def __init__(self, kind: ServerKind, directory: Path, *args: str) -> None:
        bus = ("--cluster-port", str(free_port()))
        super().__init__(kind, directory, *_CLUSTERED, *bus, *args)
        self.bus_port = bus[1]

    def say(self, *command: object) -> Any:
        """One command to this node, as it is."""
        with self.client() as client:
            return cast(Any, client.execute_command(*command))

    @property
    def node_id(self) -> str:
        return str(self.say("CLUSTER", "MYID").decode())

    def state(self) -> dict[str, str]:
        """What CLUSTER INFO says."""
        info = self.say("CLUSTER", "INFO")
        if isinstance(info, dict):
            return {str(name): str(value) for name, value in cast("dict[object, object]", info).items()}
        return dict(line.split(":", 1) for line in info.decode().splitlines())

    def role(self) -> str:
        """`master` or `slave`."""
        return str(self.say("ROLE")[0].decode())

    def calls(self) -> dict[str, int]:
        """How often each command was carried out so far, by clients and scripts."""
        with self.client() as client:
            stats = cast("dict[str, dict[str, int]]", client.info("commandstats"))
        return {name.removeprefix("cmdstat_"): of["calls"] for name, of in stats.items()}


_CLUSTERED = (
    # Replicas come as a user of their own, so that replication can be cut while clients go on.
    *("--masteruser", "replica", "--masterauth", "secret"),
    *("--user", "replica", "on", ">secret", "+@all", "~*", "&*"),
    *("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"),
    *("--cluster-node-timeout", str(NODE_TIMEOUT_MS), "--cluster-replica-validity-factor", "0"),
    *("--cluster-allow-replica-migration", "no"),
    *("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"),
)


class Cluster:
    """Six processes on free loopback ports. `url` is for `Queue(url=...)`.

    Has what tests ask of a `ServerProcess`, but for its port: a test that needs one speaks to a single
    server, and is skipped.
    """

    kind = "cluster"

    def __init__(self, directory: Path, kind: ServerKind = "valkey", *args: str) -> None:
        self.nodes = [ClusterNode(kind, directory / f"node{n}", *args) for n in range(6)]
        self._formed = False

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[:3])

    @property
    def port(self) -> int:
        pytest.skip("speaks to a single server")

    @property
    def running(self) -> bool:
        return all(node.running for node in self.nodes)

    def start(self) -> Self:
        """Starts what does not run; returns when all slots are served and all replicas follow."""
        if self._formed and self.running:
            return self
        for node in self.nodes:
            node.start()
        if not self._formed:
            self._form()
            self._formed = True
        self.wait_until_whole()
        return self

    def stop(self) -> None:
        for node in self.nodes:
            node.kill()

    kill = stop

    def _form(self) -> None:
        masters, replicas = self.nodes[:3], self.nodes[3:]
        bounds = [n * SLOTS // 3 for n in range(4)]
        for n, node in enumerate(self.nodes):
            node.say("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
        for node, (first, after) in zip(masters, itertools.pairwise(bounds), strict=True):
            node.say("CLUSTER", "ADDSLOTSRANGE", first, after - 1)
        for node in self.nodes[1:]:
            self.nodes[0].say("CLUSTER", "MEET", "127.0.0.1", node.port, node.bus_port)
        wait_until(self._all_met, _START_S, "all nodes know each other")
        for replica, master in zip(replicas, masters, strict=True):
            replica.say("CLUSTER", "REPLICATE", master.node_id)

    def _all_met(self) -> bool:
        return all(node.state()["cluster_known_nodes"] == "6" for node in self.nodes)

    def wait_until_whole(self) -> None:
        """Returns when all slots are served, and each master has a replica that follows it."""
        wait_until(self._whole, _START_S, "the cluster is whole")

    def _whole(self) -> bool:
        return all(node.state()["cluster_state"] == "ok" for node in self.nodes) and self.online() == 3

    def online(self) -> int:
        """How many replicas follow their master."""
        count = 0
        for node in self.masters():
            with node.client() as client:
                info = client.info("replication")
            slaves = [v for k, v in info.items() if k.startswith("slave") and k[5:].isdigit()]
            count += sum(1 for slave in slaves if slave["state"] == "online" and slave["lag"] <= 1)
        return count

    def masters(self) -> list[ClusterNode]:
        return [node for node in self.nodes if node.running and node.role() == "master"]

    def master_of(self, slot: int) -> ClusterNode:
        """The node that says of itself that it serves the slot."""
        for node in self.masters():
            own = next(line for line in self._nodes_as_seen_by(node) if "myself" in line[2])
            for served in own[8:]:
                first, _, last = served.partition("-")
                if not served.startswith("[") and int(first) <= slot <= int(last or first):
                    return node
        raise AssertionError(f"nobody serves slot {slot}")

    def replica_of(self, master: ClusterNode) -> ClusterNode:
        wanted = master.node_id
        for line in self._nodes_as_seen_by(master):
            if line[3] == wanted:
                port = int(line[1].partition("@")[0].rpartition(":")[2])
                return next(node for node in self.nodes if node.port == port)
        raise AssertionError("it has no replica")

    @staticmethod
    def _nodes_as_seen_by(node: ClusterNode) -> list[list[str]]:
        def as_sent(reply: bytes) -> bytes:
            return reply

        with node.client() as client:
            client.set_response_callback("CLUSTER NODES", as_sent)
            text = cast("bytes", client.execute_command("CLUSTER NODES")).decode()
        return [line.split(" ") for line in text.splitlines()]

    def begin_move(self, slot: int) -> tuple[ClusterNode, ClusterNode]:
        """Opens the slot for moving, as a resharding tool does. Gives its old and its new node."""
        source = self.master_of(slot)
        target = next(node for node in self.masters() if node is not source)
        target.say("CLUSTER", "SETSLOT", slot, "IMPORTING", source.node_id)
        source.say("CLUSTER", "SETSLOT", slot, "MIGRATING", target.node_id)
        return source, target

    def move_keys(self, slot: int, source: ClusterNode, target: ClusterNode, most: int = 100) -> int:
        """Moves some of the slot's keys; gives how many."""
        keys = cast("list[bytes]", source.say("CLUSTER", "GETKEYSINSLOT", slot, most))
        if keys:
            source.say("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        return len(keys)

    def end_move(self, slot: int, source: ClusterNode, target: ClusterNode) -> None:
        """Hands the slot over."""
        owner = target.node_id
        for node in (target, source, *(n for n in self.masters() if n not in (source, target))):
            node.say("CLUSTER", "SETSLOT", slot, "NODE", owner)

    def cut_replication(self, master: ServerProcess) -> None:
        """From now on nothing that this master acknowledges reaches its replica: a failover loses it."""
        with master.client() as client:
            client.execute_command("ACL", "SETUSER", "replica", "off")
            client.execute_command("CLIENT", "KILL", "USER", "replica")

    def move(self, slot: int) -> ClusterNode:
        """Moves a slot to another master, key by key. Gives that one."""
        source, target = self.begin_move(slot)
        while self.move_keys(slot, source, target):
            pass
        self.end_move(slot, source, target)
        return target

    def fail_over(self, slot: int) -> tuple[ClusterNode, ClusterNode]:
        """Kills the slot's master; returns when its replica serves the slot. Gives both; `start()` brings
        the killed one back."""
        old = self.master_of(slot)
        heir = self.replica_of(old)
        old.kill()
        wait_until(lambda: heir.role() == "master" and heir.state()["cluster_state"] == "ok", 20, "an heir")
        return old, heir

    def client(self) -> redis.RedisCluster:
        """A client that finds its way, for setting up and looking; use it as a context manager."""
        return redis.RedisCluster(host="127.0.0.1", port=self.nodes[0].port)

    def flush(self) -> None:
        """Remove all keys."""
        for node in self.masters():
            node.flush()


def servers_of(server: ServerProcess | Cluster) -> Sequence[ServerProcess]:
    """The processes that hold data: the server itself, or the masters of a cluster."""
    return server.masters() if isinstance(server, Cluster) else [server]


def queue_slot(queue: str, shard: int | None = None) -> int:
    tag = queue if shard is None else f"{queue}/{shard}"
    return key_slot(f"aiodq:{{{tag}}}:".encode())


def names_in(slots: range) -> Iterator[str]:
    """Names of queues whose slot is in this range."""
    return (name for n in itertools.count() if queue_slot(name := f"queue-{n}") in slots)


def open_client(url: str) -> redis.asyncio.Redis:
    """A client of the test's own, whatever is behind the URL."""
    scheme, _, rest = url.partition("://")
    if scheme == "redis+cluster":
        host, port = rest.partition(",")[0].split(":")
        return cast("redis.asyncio.Redis", redis.asyncio.RedisCluster(host=host, port=int(port)))
    return redis.asyncio.Redis.from_url(url)  # type: ignore[no-any-return,no-untyped-call,unused-ignore]
