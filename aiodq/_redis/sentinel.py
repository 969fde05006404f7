"""Connections to whoever is master now, as Sentinels say; asked anew at each connect, so a failover needs no
more.

The Sentinels are asked over connections of their own, opened for the question and closed after it: a
connection belongs to one event loop, and keepers have their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, Protocol, cast
from urllib.parse import parse_qs, unquote, urlsplit

from redis import exceptions as foreign
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection
from redis.asyncio.sentinel import SentinelConnectionPool

from aiodq._core.errors import ConfigError
from aiodq._redis.faults import CONNECTION_ERRORS
from aiodq._redis.link import Connection as PlainConnection
from aiodq._redis.link import close_quietly, pack

SENTINEL_PORT: Final = 26379
ASK_TIMEOUT_S: Final = 0.5
"""How long one Sentinel may take to answer before the next is asked."""

SCHEMES: Final = {"redis+sentinel": "redis", "rediss+sentinel": "rediss"}

_NOT_THEIRS: Final = ("host", "port", "ssl", "retry", "decode_responses", "protocol", "max_connections")

Address = tuple[str, int]

log = logging.getLogger("aiodq.redis")


class Master:
    """Who is the master of `service`, by these Sentinels.

    Args:
        addresses: of the Sentinels.
        settings: of the connections to them (user name, password, TLS), as redis-py names them.
    """

    def __init__(self, addresses: Sequence[Address], service: str, settings: Mapping[str, Any]) -> None:
        self.service = service
        self._addresses = list(addresses)
        self._kind = SSLConnection if settings.get("ssl") else Connection
        self._settings = {name: value for name, value in settings.items() if name not in _NOT_THEIRS}
        self._settings |= {
            "socket_timeout": ASK_TIMEOUT_S,
            "socket_connect_timeout": ASK_TIMEOUT_S,
            "protocol": 2,
        }

    async def find(self) -> Address:
        """Asks all Sentinels at once, until more than half have named a master, and believes the one that
        knows of the latest election: just after it, others still name the old master. Raises ConnectionError
        when none names one."""
        asking = {asyncio.ensure_future(self._ask(address)) for address in self._addresses}
        waiting, named = asking, list[tuple[int, Address]]()
        try:
            while waiting and len(named) <= len(self._addresses) // 2:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                named += [answer for task in done if (answer := task.result()) is not None]
        finally:
            for task in waiting:
                task.cancel()
            if waiting:
                await asyncio.wait(waiting)
        if not named:
            asked = ", ".join(f"{host}:{port}" for host, port in self._addresses)
            raise ConnectionError(f"none of the Sentinels {asked} names a master of {self.service!r}")
        return max(named, key=itemgetter(0))[1]

    async def _ask(self, address: Address) -> tuple[int, Address] | None:
        """The number of the latest election that this Sentinel knows of (0: it may not say), and whom it
        names."""
        connection = cast(PlainConnection, self._kind(host=address[0], port=address[1], **self._settings))
        try:
            await connection.connect()
            questions = [
                pack("SENTINEL", what, self.service) for what in ("GET-MASTER-ADDR-BY-NAME", "MASTER")
            ]
            await connection.send_packed_command(questions, check_health=False)
            answer = await connection.read_response(disable_decoding=True)
            if answer is None:
                return None
            election = await _election(connection)
        except (*CONNECTION_ERRORS, foreign.ResponseError) as error:
            log.debug("Sentinel %s:%d: %s", *address, error)
            return None
        finally:
            await close_quietly(connection)
        host, port = cast(list[bytes], answer)
        return election, (host.decode(), int(port))


async def _election(connection: PlainConnection) -> int:
    """Reads the answer to `SENTINEL MASTER`, which a user of few rights may be refused."""
    try:
        told = cast(list[bytes], await connection.read_response(disable_decoding=True))
    except foreign.ResponseError as error:
        log.debug("a Sentinel does not tell of elections: %s", error)
        return 0
    return int(dict(zip(told[::2], told[1::2], strict=True))[b"config-epoch"])


class _ToMaster(Connection):
    """A connection that asks for its address when it connects."""

    def __init__(self, *, master: Master, **settings: Any) -> None:
        self._master = master
        super().__init__(**settings)  # pyright: ignore[reportUnknownMemberType]

    async def connect(self) -> None:
        self.host, self.port = await self._master.find()
        await super().connect()  # type: ignore[no-untyped-call]


class _ToMasterOverTls(_ToMaster, SSLConnection):
    pass


def of_url(url: str) -> tuple[type[AbstractConnection], dict[str, Any]]:
    """Reads `redis+sentinel://[user:password@]host[:port][,host[:port]…]/service[/db][?…]` (`rediss+…`: TLS).

    Query: `sentinel_username`, `sentinel_password`; all else goes to the connections to the master.
    Raises ConfigError for a URL without hosts or service, or with a database that is no number.
    """
    parts = urlsplit(url)
    who, _, hosts = parts.netloc.rpartition("@")
    service, _, database = parts.path.strip("/").partition("/")
    if not hosts or not service:
        raise ConfigError(
            f"{parts.scheme}:// needs hosts and a service, as in {parts.scheme}://host:26379/mymaster/0"
        )
    settings: dict[str, Any] = {name: values[0] for name, values in parse_qs(parts.query).items()}
    sentinels = {
        name.removeprefix("sentinel_"): settings.pop(name)
        for name in ("sentinel_username", "sentinel_password")
        if name in settings
    }
    for name in ("socket_timeout", "socket_connect_timeout"):
        if name in settings:
            settings[name] = float(settings[name])
    if who:
        user, _, password = who.partition(":")
        settings |= {"username": unquote(user) or None, "password": unquote(password) or None}
    if database:
        if not database.isdigit():
            raise ConfigError(f"the database in {parts.scheme}://…/{service}/{database} is not a number")
        settings["db"] = int(database)
    settings["master"] = Master([_address(host) for host in hosts.split(",")], service, sentinels)
    return _kind(tls=parts.scheme == "rediss+sentinel"), settings


def _address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        return text.strip("[]"), SENTINEL_PORT
    if not port.isdigit():
        raise ConfigError(f"{text!r} is no host:port of a Sentinel")
    return host.strip("[]"), int(port)


# The parts of redis-py's Sentinel clients that are used here, which it does not type.


class _Pool(Protocol):
    connection_kwargs: Mapping[str, Any]


class _Asked(Protocol):
    connection_pool: _Pool


class _Manager(Protocol):
    sentinels: Sequence[_Asked]
    sentinel_kwargs: Mapping[str, Any]


class _ManagedPool(_Pool, Protocol):
    connection_class: type[AbstractConnection]
    is_master: bool
    service_name: str
    sentinel_manager: _Manager


def of_pool(pool: SentinelConnectionPool) -> tuple[type[AbstractConnection], dict[str, Any]]:
    """The same from a user's `Sentinel(…).master_for(…)` client.

    Raises ConfigError for a `slave_for` client: a queue is written.
    """
    known = cast(_ManagedPool, pool)
    if not known.is_master:
        raise ConfigError("the client goes to replicas (slave_for), and a queue is written: use master_for")
    settings = dict(known.connection_kwargs)
    settings.pop("connection_pool", None)
    asked = [sentinel.connection_pool.connection_kwargs for sentinel in known.sentinel_manager.sentinels]
    addresses = [(str(of["host"]), int(of["port"])) for of in asked]
    settings["master"] = Master(addresses, known.service_name, known.sentinel_manager.sentinel_kwargs)
    return _kind(tls=issubclass(known.connection_class, SSLConnection)), settings


def _kind(*, tls: bool) -> type[AbstractConnection]:
    return _ToMasterOverTls if tls else _ToMaster
