"""The bytes of an opened connection: written at once, replies read where they arrive.

redis-py opens connections (addresses, TLS, passwords, Sentinel); after that its streams would cost more than
the rest of a call: each reply passes a reader, a timer and a task. Here the transport is taken over, and
replies go from the event loop's callback straight to the futures that wait for them. A connection that does
not show its transport is used through redis-py's own methods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

import hiredis
from redis import exceptions as foreign

OnReply = Callable[[object], None]
OnHeard = Callable[[], None]
OnLost = Callable[[Exception], None]


class Connection(Protocol):
    """The part of a redis-py connection that is used here."""

    async def connect(self) -> None: ...
    async def send_packed_command(self, command: list[bytes], check_health: bool = ...) -> None: ...
    async def read_response(self, disable_decoding: bool = ..., timeout: float | None = ...) -> object: ...
    async def disconnect(self, nowait: bool = ...) -> None: ...


class Wire(Protocol):
    """An open connection. Tells of each reply in the order of the commands, errors as values; then, once, of
    its end: after that replies can no longer be matched to calls."""

    def write(self, commands: Sequence[bytes]) -> None:
        """Sends commands, behind those that are not answered yet."""
        ...

    def abandon(self) -> None:
        """Reports nothing more."""
        ...


def open_wire(connection: Connection, on_reply: OnReply, on_lost: OnLost, on_heard: OnHeard) -> Wire:
    """The wire of a connection that is open and has nothing unread. `on_heard`: a part of a reply arrived, so
    that a large one over a slow line is not taken for silence."""
    transport = _transport_of(connection)
    if transport is None:
        return _Streams(connection, on_reply, on_lost)
    parser = getattr(connection, "_parser", None)
    parse_error = getattr(parser, "parse_error", foreign.ResponseError)
    wire = _Taken(transport, parse_error, on_reply, on_lost, on_heard)
    transport.set_protocol(wire)
    return wire


def _transport_of(connection: Connection) -> asyncio.WriteTransport | None:
    """The transport, if it shows itself and everything that came by it has been read."""
    transport = getattr(getattr(connection, "_writer", None), "transport", None)
    unread = getattr(getattr(connection, "_reader", None), "_buffer", b"")
    return None if unread or not hasattr(transport, "set_protocol") else transport


class _Taken(asyncio.Protocol):
    """A transport that is ours."""

    def __init__(
        self,
        transport: asyncio.WriteTransport,
        parse_error: Callable[[str], Exception],
        on_reply: OnReply,
        on_lost: OnLost,
        on_heard: OnHeard,
    ) -> None:
        self._on_heard = on_heard
        self._transport = transport
        self._replies = hiredis.Reader(replyError=parse_error)
        self._on_reply = on_reply
        self._on_lost: OnLost | None = on_lost

    def write(self, commands: Sequence[bytes]) -> None:
        if self._transport.is_closing():
            # Its end is on its way, and would otherwise come without a call to report it to.
            asyncio.get_running_loop().call_soon(self._lose, ConnectionError("the connection was closed"))
        else:
            self._transport.write(commands[0] if len(commands) == 1 else b"".join(commands))

    def abandon(self) -> None:
        self._on_lost = None

    def data_received(self, data: bytes) -> None:
        if self._on_lost is None:
            return
        replies, on_reply = self._replies, self._on_reply
        self._on_heard()
        try:
            replies.feed(data)
            while (reply := cast("object", replies.gets())) is not False:
                on_reply(reply)
        except hiredis.HiredisError as error:
            self._lose(error)

    def eof_received(self) -> None:
        """The transport closes itself."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(exc or ConnectionError("the server closed the connection"))

    def _lose(self, error: Exception) -> None:
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:
            on_lost(error)


class _Streams:
    """A connection through redis-py's methods."""

    def __init__(self, connection: Connection, on_reply: OnReply, on_lost: OnLost) -> None:
        self._connection = connection
        self._on_reply = on_reply
        self._on_lost: Final = on_lost
        self._unsent: list[bytes] = []
        self._work: asyncio.Task[None] | None = None

    def write(self, commands: Sequence[bytes]) -> None:
        self._unsent += commands
        if self._work is None:
            self._work = asyncio.get_running_loop().create_task(self._exchange())

    def abandon(self) -> None:
        if self._work is not None:
            self._work.cancel()

    async def _exchange(self) -> None:
        connection = self._connection
        try:
            while self._unsent:
                commands, self._unsent = self._unsent, []
                await connection.send_packed_command(commands, check_health=False)
                for _ in commands:
                    try:
                        reply = await connection.read_response(disable_decoding=True)
                    except foreign.ResponseError as error:
                        reply = error
                    self._on_reply(reply)
            self._work = None
        except Exception as error:  # noqa: BLE001
            # Beside its own errors redis-py lets AttributeError, RuntimeError and the like through when the
            # peer closes at the wrong moment.
            self._on_lost(error)
