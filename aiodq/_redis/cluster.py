"""A Redis Cluster: the calls of each shard go to the node that serves its slot now.

All keys of a shard are in one slot, so a shard has one master, as it has behind Sentinels; only that each
shard may have another one. Shards whose slots are on one node share a link to it, and ears on it. What is
known of the slots is asked for when a shard is first used, and again after any sign that it is not true any
more: a connection that broke, or a call that was refused with MOVED, READONLY or CLUSTERDOWN. Nothing is
asked in between, and no other node is spoken to.

Nothing is sent twice in here, as in `Link`: what was not answered is repeated by its caller, under the same
call id.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final, TypeAlias, cast
from urllib.parse import urlsplit

from redis import exceptions as foreign
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, parse_url
from redis.crc import key_slot

from aiodq._core.errors import AiodqError, ConfigError
from aiodq._redis.ears import PING_S, Ears, OnNotice
from aiodq._redis.faults import CONNECTION_ERRORS, Lost
from aiodq._redis.identity import Identity
from aiodq._redis.keys import ShardKeys
from aiodq._redis.link import CLOSED, Backoff, Link, Reply, close_quietly, pack, said
from aiodq._redis.link import Connection as PlainConnection

SCHEMES: Final = {"redis+cluster": "redis", "rediss+cluster": "rediss"}

ASK_TIMEOUT_S: Final = 1.0
"""How long one node may take to say who serves the slots, before the next is asked."""

Address: TypeAlias = tuple[str, int]
Make: TypeAlias = Callable[[Address], PlainConnection]
Remap: TypeAlias = Callable[[Address], Address]

log = logging.getLogger("aiodq.redis")


def slot_of(keys: ShardKeys) -> int:
    return key_slot(keys.base.encode())


class Topology:
    """Which node serves which slot, as one of the nodes says.

    Args:
        seeds: nodes to ask first.
        make: makes an unconnected connection to a node.
        remap: where a node is reached from here, by the address it announces.
    """

    def __init__(self, seeds: Sequence[Address], make: Make, remap: Remap | None = None) -> None:
        self._nodes = list(dict.fromkeys(seeds))
        self._make = make
        self._remap = remap
        self._masters: list[tuple[int, int, Address]] = []
        self._asked_at: float | None = None
        self._asking = asyncio.Lock()

    @property
    def ever_answered(self) -> bool:
        return self._asked_at is not None

    async def master_of(self, slot: int, *, since: float) -> Address:
        """The node that serves the slot, according to a question asked at `since` (monotonic) or later.

        Raises:
            ConnectionError: no node answers, or none serves the slot at the moment.
            ConfigError: these are no nodes of a cluster, or of one that is too old.
        """
        async with self._asking:  # who waited is content with what the one before was told
            if self._asked_at is None or self._asked_at < since:
                await self._ask_around()
        for first, last, address in self._masters:
            if first <= slot <= last:
                return address
        raise ConnectionError(f"no node of the cluster serves slot {slot} at the moment")

    async def _ask_around(self) -> None:
        """Asks one node after another. The one that answered comes last next time: it may be cut off from
        the others, and wrong."""
        trouble: Exception | None = None
        for address in list(self._nodes):
            asked_at = time.monotonic()
            try:
                ranges = await self._ask(address)
            except (*CONNECTION_ERRORS, foreign.RedisError) as error:
                log.debug("cluster node %s:%d: %s", *address, error)
                trouble = error
                continue
            finally:
                self._nodes.remove(address)
                self._nodes.append(address)
            self._read(ranges, address)
            self._asked_at = asked_at
            return
        asked = ", ".join(f"{host}:{port}" for host, port in self._nodes)
        raise ConnectionError(
            f"none of the cluster's nodes {asked} says who serves the slots: {said(trouble or OSError())}"
        ) from trouble

    async def _ask(self, address: Address) -> list[Any]:
        connection = self._make(address)
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                await connection.connect()
                if self._asked_at is None:
                    await _check_version(connection)
                return cast(list[Any], await _say(connection, "CLUSTER", "SLOTS"))
        except foreign.ResponseError as error:
            if "cluster support disabled" in str(error):
                raise ConfigError(
                    f"{address[0]}:{address[1]} is no node of a cluster: use redis:// for a single server"
                ) from error
            raise
        finally:
            await close_quietly(connection)

    def _read(self, ranges: list[Any], asked: Address) -> None:
        masters: list[tuple[int, int, Address]] = []
        nodes: list[Address] = []
        for first, last, *serving in ranges:
            found = [self._address(node, asked) for node in serving]
            masters.append((first, last, found[0]))
            nodes += found
        self._masters = masters
        known = dict.fromkeys(nodes)
        kept = [address for address in self._nodes if address in known]
        # Seeds that are not named stay last: behind a name there may be another node tomorrow.
        others = [address for address in self._nodes if address not in known]
        self._nodes = [*(a for a in known if a not in kept), *kept, *others]

    def _address(self, node: list[Any], asked: Address) -> Address:
        """A node that does not know its own address names none: then it is the one that was asked."""
        host, port = cast(tuple[bytes | None, int], tuple(node[:2]))
        address = (host.decode() if host and host != b"?" else asked[0]), port
        return address if self._remap is None else self._remap(address)


async def _say(connection: PlainConnection, *command: str) -> object:
    await connection.send_packed_command([pack(*command)], check_health=False)
    return await connection.read_response(disable_decoding=True)


async def _check_version(connection: PlainConnection) -> None:
    """Who may not ask is believed."""
    try:
        known = await _say(connection, "COMMAND", "INFO", "SPUBLISH")
    except foreign.NoPermissionError:
        return
    if known in ([None], []):
        raise ConfigError("a cluster needs Redis 7.0 or newer, or Valkey: this one has no sharded channels")


class SlotLink:
    """One shard's way to the node that serves its slot, over the link that other shards there share. See
    `aiodq._redis.link.Line`."""

    clustered: ClassVar[bool] = True

    def __init__(self, nodes: Nodes, slot: int, identity: Identity | None) -> None:
        self.identity = identity
        self._nodes = nodes
        self._slot = slot
        self._node: Link | None = None
        self._waiting: list[tuple[bytes, asyncio.Future[Reply]]] = []
        self._finding: asyncio.Task[None] | None = None
        self._doubted_at = 0.0
        self._served_since = 0.0
        self._backoff = Backoff()
        self._not_before = 0.0
        self._trouble = ""
        self.closed = False

    @property
    def ever_connected(self) -> bool:
        return self._nodes.topology.ever_answered

    @property
    def unbroken_since(self) -> float | None:
        since = None if self._node is None else self._node.unbroken_since
        return None if since is None else max(since, self._served_since)

    @property
    def trouble(self) -> str:
        return self._trouble if self._node is None else self._node.trouble

    def send(self, command: bytes) -> asyncio.Future[Reply]:
        node = self._node
        if node is not None and not node.closed:
            return node.send(command)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        if self.closed:
            future.set_result(Lost(CLOSED, sent=False))
            return future
        self._leave()
        self._waiting.append((command, future))
        if self._finding is None:
            self._finding = asyncio.create_task(self._find())
        return future

    def flush(self) -> None:
        if self._node is not None:
            self._node.flush()

    async def refused(self, *, elsewhere: bool) -> None:
        if elsewhere:
            self._leave()
        else:
            self._served_since = time.monotonic()

    async def aclose(self) -> None:
        self.closed = True
        if self._finding is not None:
            self._finding.cancel()
            await asyncio.wait([self._finding])
        self._answer_waiting(Lost(CLOSED, sent=False))
        self._node = None

    def _leave(self) -> None:
        """What is known of the slot is in doubt. The connection serves others, and stays."""
        node, self._node = self._node, None
        if node is None:
            return
        self._doubted_at = time.monotonic()
        if node.ever_connected:
            self._backoff.reset()
        else:
            self._trouble = node.trouble
        if node.closed:
            self._put_off()

    def _put_off(self) -> None:
        self._not_before = time.monotonic() + self._backoff.next_s()

    async def _find(self) -> None:
        """Finds the node, and sends it what waits; tells those who wait when that failed."""
        try:
            wait_s = self._not_before - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            self._bind(await self._nodes.link_to(self._slot, since=self._doubted_at))
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody may be left waiting
            self._trouble = said(error)
            self._doubted_at = time.monotonic()
            self._put_off()
            if isinstance(error, AiodqError | foreign.RedisError):
                self._answer_waiting(error)
            else:
                lost = Lost(said(error), sent=False)
                lost.__cause__ = error
                self._answer_waiting(lost)
        finally:
            self._finding = None

    def _bind(self, node: Link) -> None:
        self._node = node
        self._trouble = ""
        self._served_since = time.monotonic()
        questions = [] if self.identity is None else self.identity.questions()
        waiting, self._waiting = self._waiting, []
        for command, future in (*questions, *waiting):
            node.send(command).add_done_callback(partial(_pass_on, future))
        node.flush()

    def _answer_waiting(self, reply: Reply) -> None:
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_result(reply)


def _pass_on(future: asyncio.Future[Reply], answered: asyncio.Future[Reply]) -> None:
    if not future.done():
        future.set_result(answered.result())


class NodeEars:
    """The ears of one worker on the nodes that serve its shards. See `aiodq._redis.ears.Hearing`."""

    def __init__(self, nodes: Nodes, worker_id: str) -> None:
        self.tried: set[str] = set()
        self._nodes = nodes
        self._worker_id = worker_id
        self._ears: dict[Address, Ears] = {}
        self._told: set[str] = set()
        self._doubt_from: dict[str, float] = {}

    async def listen(self, keys: ShardKeys, on_notice: OnNotice) -> None:
        """Reports the shard's notices until cancelled, from whichever node serves it."""
        slot, doubted_at, waits = slot_of(keys), 0.0, Backoff()
        while True:
            try:
                address = await self._nodes.topology.master_of(slot, since=doubted_at)
            except (*CONNECTION_ERRORS, foreign.RedisError, AiodqError) as error:
                log.debug("no notices yet: %s", error)
            else:
                ears = self._ears_on(address)
                await ears.listen(keys, on_notice)
                if ears.subscribed:
                    waits.reset()
            doubted_at = time.monotonic()
            await asyncio.sleep(waits.next_s())

    def _ears_on(self, address: Address) -> Ears:
        ears = self._ears.get(address)
        if ears is None or ears.ended.is_set():
            make = partial(self._nodes.make, address)
            ears = self._ears[address] = Ears(make, self._worker_id, node=True, told=self._told)
            ears.tried = self.tried
        return ears

    async def doubt(self, keys: ShardKeys) -> None:
        now = time.monotonic()
        for ears in list(self._ears.values()):
            if ears.hears(keys) and now >= self._doubt_from.get(keys.wake, 0.0) and await ears.doubt(keys):
                self._doubt_from[keys.wake] = now + PING_S


class Nodes:
    """The connections of one duty (producing, working, keeping) in one event loop: one for each node that
    serves a shard of it.

    Args:
        identities: whether each shard is to notice that another server serves it than before.
    """

    def __init__(self, cluster: Cluster, *, reply_timeout_s: float, identities: bool) -> None:
        self.make: Final = cluster.make
        self.topology: Final = Topology(cluster.seeds, cluster.make, cluster.remap)
        self._reply_timeout_s = reply_timeout_s
        self._identities = identities
        self._links: dict[Address, Link] = {}
        self._lines: list[SlotLink] = []

    def to(self, keys: ShardKeys, /) -> SlotLink:
        line = SlotLink(self, slot_of(keys), Identity() if self._identities else None)
        self._lines.append(line)
        return line

    def ears(self, worker_id: str) -> NodeEars:
        return NodeEars(self, worker_id)

    async def link_to(self, slot: int, *, since: float) -> Link:
        """Raises what `Topology.master_of` raises."""
        address = await self.topology.master_of(slot, since=since)
        link = self._links.get(address)
        if link is None or link.closed:
            make = partial(self.make, address)
            link = self._links[address] = Link(make, reply_timeout_s=self._reply_timeout_s, once=True)
        return link

    async def aclose(self) -> None:
        for line in self._lines:
            await line.aclose()
        for link in self._links.values():
            await link.aclose()


class Cluster:
    """How the nodes of a cluster are reached.

    Args:
        kind, settings: of the connections, as redis-py names them.
    """

    def __init__(
        self,
        seeds: Sequence[Address],
        kind: Callable[..., AbstractConnection],
        settings: dict[str, Any],
        remap: Remap | None = None,
    ) -> None:
        self.seeds: Final = list(seeds)
        self.kind: Final = kind
        self.settings: Final = settings
        self.remap: Final = remap

    def make(self, address: Address) -> PlainConnection:
        host, port = address
        return cast(PlainConnection, self.kind(host=host, port=port, **self.settings))


def of_url(url: str) -> Cluster:
    """Reads `redis+cluster://[user:password@]host[:port][,host[:port]…][/0][?…]` (`rediss+…`: TLS); the query
    is that of redis-py's URLs. Raises ConfigError for a URL without hosts, or with another database than 0.
    """
    parts = urlsplit(url)
    who, at, hosts = parts.netloc.rpartition("@")
    if not all(hosts.split(",")):
        raise ConfigError(f"{parts.scheme}:// needs hosts, as in {parts.scheme}://host:6379,host2:6379")
    if parts.path not in ("", "/", "/0"):
        raise ConfigError(f"{parts.scheme}://…{parts.path}: a cluster has database 0 only")
    query = f"?{parts.query}" if parts.query else ""
    seeds: list[Address] = []
    settings: dict[str, Any] = {}
    for host in hosts.split(","):
        try:
            settings = dict(parse_url(f"{SCHEMES[parts.scheme]}://{who}{at}{host}/0{query}"))
        except ValueError as error:
            raise ConfigError(f"{parts.scheme}://…{host}{query} is not understood: {error}") from error
        seeds.append((settings.pop("host"), settings.pop("port", 6379)))
    for pool_only in ("db", "max_connections", "timeout", "connection_class"):
        settings.pop(pool_only, None)
    tls = parts.scheme == "rediss+cluster"
    return Cluster(seeds, SSLConnection if tls else Connection, settings)


def of_client(client: RedisCluster) -> Cluster:
    """The same from a user's client; of it only the settings are taken."""
    manager = client.nodes_manager
    nodes = list(manager.startup_nodes.values())
    settings = dict(client.connection_kwargs)
    kind = cast("type[AbstractConnection]", settings.pop("connection_class"))
    for theirs in _CLIENTS_OWN:
        settings.pop(theirs, None)
    return Cluster(
        [(str(node.host), int(node.port)) for node in nodes], kind, settings, manager.address_remap
    )


_CLIENTS_OWN: Final = (
    *("host", "port", "db", "max_connections", "response_callbacks", "event_dispatcher", "himport_registry"),
    "redis_connect_func",  # makes connections to replicas read-only; there are none here
)
