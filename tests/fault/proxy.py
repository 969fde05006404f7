"""A relay between clients and a server on loopback, which injures the traffic as networks do.

It reads the protocol both ways, so faults can be aimed: "lose the answer to the next `claim` after it took
effect". Used in the test's own event loop:

    async with Proxy(server.port) as proxy:
        backend = RedisBackend(url=proxy.url)
        loss = proxy.lose_reply("claim")
        ...

Faults of a whole link: `delay_s`, `bytes_per_s`, `cut`, `cut_after`, `hold` (a black hole, one or both ways),
`half_open`, `refuse`, `swallow_pushes`. Aimed ones: `lose_reply`, `answer_instead`, `before`. What passed is
counted in `stats`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Self, TypeAlias, cast

from tests.fault.resp import Splitter, command_name, is_pushed, is_subscription

Way: TypeAlias = Literal["up", "down"]
"""Up: from a client to the server. Down: from the server to a client."""

_CHUNK_BYTES: Final = 65_536
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER for no time: closing sends RST, and unsent bytes vanish


@dataclass
class Stats:
    """What passed. Commands and replies by name (scripts under theirs), bytes by way."""

    connections: int = 0
    commands: Counter[str] = field(default_factory=Counter[str])
    replies: Counter[str] = field(default_factory=Counter[str])
    bytes: Counter[str] = field(default_factory=Counter[str])
    pushes: int = 0
    swallowed: int = 0
    lost: int = 0
    cuts: int = 0


@dataclass
class Loss:
    """One reply to lose. `happened` is set when the server's answer has been swallowed: from then on the
    command is known to have taken effect."""

    name: str
    how: Literal["cut", "silence"]
    hold: bool
    happened: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Cut:
    """A connection to cut after so many bytes one way, counted from now over all connections."""

    way: Way
    left: int
    hold: bool
    happened: asyncio.Event = field(default_factory=asyncio.Event)


class Proxy:
    """The relay. `server`: port on 127.0.0.1, or path of a unix socket. `listen`: a path to listen on
    instead of a free port."""

    def __init__(self, server: int | Path, *, listen: Path | None = None) -> None:
        self.server = server
        self.stats = Stats()
        self.delay_s = 0.0
        """How long bytes travel, each way."""
        self.bytes_per_s: float | None = None
        self.refuse = False
        """New connections are reset at once."""
        self.swallow_pushes = False
        self._path = listen
        self._listener: asyncio.Server | None = None
        self._pairs: set[Pair] = set()
        self._open_ways: dict[Way, asyncio.Event] = {"up": asyncio.Event(), "down": asyncio.Event()}
        for gate in self._open_ways.values():
            gate.set()
        self._losses: list[Loss] = []
        self._cuts: list[Cut] = []
        self._instead: dict[str, deque[bytes]] = {}
        self._actions: dict[str, deque[Callable[[], Awaitable[object]]]] = {}
        self._seen = asyncio.Condition()
        self._numbers = itertools.count(1)

    # ---- life

    async def __aenter__(self) -> Self:
        if self._path is None:
            self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        else:
            self._listener = await asyncio.start_unix_server(self._accept, self._path)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listener is not None
        self._listener.close()
        self.go_on()
        pairs = list(self._pairs)
        for pair in pairs:
            pair.cut()
        await asyncio.gather(*(pair.ended.wait() for pair in pairs))
        await self._listener.wait_closed()

    @property
    def port(self) -> int:
        assert self._listener is not None
        return int(cast("tuple[str, int]", self._listener.sockets[0].getsockname())[1])

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0" if self._path is None else f"unix://{self._path}?db=0"

    def patient_url(self, reply_timeout_s: float) -> str:
        """The URL for a client that takes a reply for lost after so many seconds."""
        return f"{self.url}{'&' if '?' in self.url else '?'}socket_timeout={reply_timeout_s}"

    # ---- faults of a whole link

    def cut(self) -> int:
        """Resets all connections, both ends. Returns how many there were."""
        pairs = list(self._pairs)
        for pair in pairs:
            pair.cut()
        return len(pairs)

    def cut_after(self, way: Way, count: int, *, hold: bool = False) -> Cut:
        """Lets `count` more bytes pass that way, delivers them, then ends the connection that carried the
        last. The far side sees an end of the stream, the near one a reset. `hold`: from then on nothing
        reaches the server, until `go_on`."""
        cut = Cut(way, count, hold)
        self._cuts.append(cut)
        return cut

    def hold(self, *ways: Way) -> None:
        """A black hole: bytes of these ways (both, when none is given) are kept; nothing is closed."""
        for way in ways or ("up", "down"):
            self._open_ways[way].clear()

    def hold_now(self) -> Callable[[], None]:
        """A black hole for the connections that exist now; new ones pass. Returns what lets their bytes go
        on, as late copies."""
        gates = [gate for pair in self._pairs for gate in pair.own_gates.values()]
        for pair in self._pairs:
            pair.outlives_client = True
        for gate in gates:
            gate.clear()

        def release() -> None:
            for gate in gates:
                gate.set()

        return release

    def go_on(self) -> None:
        """Ends `hold`: what was kept arrives now, late."""
        for gate in self._open_ways.values():
            gate.set()

    def half_open(self) -> None:
        """The server's end of all connections goes away, and the clients are never told."""
        for pair in list(self._pairs):
            pair.lose_server()

    # ---- aimed faults

    def lose_reply(self, name: str, *, how: Literal["cut", "silence"] = "cut", hold: bool = False) -> Loss:
        """Swallows the answer to the next command of this name that the server has carried out. Then that
        connection is reset, or (`silence`) nothing more arrives on it. `hold`: from then on nothing reaches
        the server, until `go_on`."""
        loss = Loss(name, how, hold)
        self._losses.append(loss)
        return loss

    def answer_instead(self, name: str, *replies: bytes) -> None:
        """Answers the next commands of this name itself (`-LOADING …`): the server never sees them."""
        self._instead.setdefault(name, deque()).extend(replies)

    def before(self, name: str, action: Callable[[], Awaitable[object]]) -> None:
        """Does something when the next command of this name has arrived and all before it are answered."""
        self._actions.setdefault(name, deque()).append(action)

    async def passed(self, name: str, times: int = 1) -> None:
        """Waits until that many commands of this name have arrived here since the beginning."""
        async with self._seen:
            await self._seen.wait_for(lambda: self.stats.commands[name] >= times)

    async def answered(self, name: str, times: int = 1) -> None:
        """Waits until the server has answered that many commands of this name, since the beginning."""
        async with self._seen:
            await self._seen.wait_for(lambda: self.stats.replies[name] >= times)

    # ---- for the pairs

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuse:
            _reset(writer)
            return
        self.stats.connections += 1
        try:
            if isinstance(self.server, Path):
                server = await asyncio.open_unix_connection(self.server)
            else:
                server = await asyncio.open_connection("127.0.0.1", self.server)
        except OSError:
            _reset(writer)
            return
        pair = Pair(self, (reader, writer), server)
        self._pairs.add(pair)
        try:
            await pair.run()
        finally:
            self._pairs.discard(pair)

    async def note_command(self, name: str) -> Callable[[], Awaitable[object]] | None:
        await self.count(self.stats.commands, name)
        waiting = self._actions.get(name)
        return waiting.popleft() if waiting else None

    async def count(self, what: Counter[str], name: str) -> None:
        what[name] += 1
        async with self._seen:
            self._seen.notify_all()

    def own_answer(self, name: str) -> bytes | None:
        replies = self._instead.get(name)
        return replies.popleft() if replies else None

    def loss_of(self, name: str) -> Loss | None:
        for loss in self._losses:
            if loss.name == name:
                self._losses.remove(loss)
                self.stats.lost += 1
                if loss.hold:
                    self.hold("up")
                loss.happened.set()
                return loss
        return None

    def allowed(self, way: Way, count: int) -> tuple[int, Cut | None]:
        """How many of the bytes may pass, and the cut to make after them."""
        for cut in self._cuts:
            if cut.way == way:
                if cut.left > count:
                    cut.left -= count
                    return count, None
                self._cuts.remove(cut)
                self.stats.cuts += 1
                if cut.hold:
                    self.hold("up")
                cut.happened.set()
                return cut.left, cut
        return count, None

    def gate(self, way: Way) -> asyncio.Event:
        return self._open_ways[way]


_Waiting: TypeAlias = asyncio.Queue[tuple[float, bytes]]  # when it may go on, and what
_Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Pair:
    """One client's connection and the one to the server behind it."""

    def __init__(self, proxy: Proxy, client: _Streams, server: _Streams) -> None:
        self._proxy = proxy
        self._reader, self._writer = client
        self._server_reader, self._server_writer = server
        self._unanswered: deque[str] = deque()
        self._all_answered = asyncio.Event()
        self._all_answered.set()
        self._subscriber = False
        self._silent = False
        self._headless = False  # the server's end is gone, and the client must not notice
        self._tasks: list[asyncio.Task[None]] = []
        self.own_gates: dict[Way, asyncio.Event] = {"up": asyncio.Event(), "down": asyncio.Event()}
        for gate in self.own_gates.values():
            gate.set()
        self.outlives_client = False
        """What the client had sent is still delivered after it has closed, as packets on their way are."""
        self.ended = asyncio.Event()

    async def run(self) -> None:
        up: _Waiting = asyncio.Queue()
        down: _Waiting = asyncio.Queue()
        self._tasks = [
            asyncio.create_task(work)
            for work in (
                self._read_client(up, down),
                self._read_server(down),
                self._write("up", up, self._server_writer),
                self._write("down", down, self._writer),
            )
        ]
        try:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._close()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self.ended.set()

    def cut(self) -> None:
        """Resets both ends."""
        _reset(self._writer)
        _reset(self._server_writer)
        self._close()

    def lose_server(self) -> None:
        self._headless = True
        self._server_writer.close()

    def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for writer in (self._writer, self._server_writer):
            with contextlib.suppress(Exception):
                writer.close()

    def _put(self, queue: _Waiting, data: bytes) -> None:
        queue.put_nowait((asyncio.get_running_loop().time() + self._proxy.delay_s, data))

    async def _read_client(self, up: _Waiting, down: _Waiting) -> None:
        splitter = Splitter()
        while data := await _read(self._reader):
            for frame in splitter.feed(data):
                name = command_name(frame)
                action = await self._proxy.note_command(name)
                if action is not None:
                    await self._all_answered.wait()
                    await action()
                if (reply := self._proxy.own_answer(name)) is not None:
                    await self._all_answered.wait()
                    self._put(down, reply)
                    continue
                if is_subscription(name):
                    self._subscriber = True
                if not self._subscriber:
                    self._unanswered.append(name)
                    self._all_answered.clear()
                self._put(up, frame)
        # What the client sent before it closed still arrives.
        await up.join()
        if self.outlives_client:
            await self._all_answered.wait()

    async def _read_server(self, down: _Waiting) -> None:
        splitter = Splitter()
        while data := await _read(self._server_reader):
            for frame in splitter.feed(data):
                if await self._answered(frame) and not self._silent:
                    self._put(down, frame)
        if self._headless:
            await asyncio.Event().wait()
        # What the server said before it closed still arrives.
        await down.join()

    async def _answered(self, frame: bytes) -> bool:
        """Notes what the server said. False: it must not go on to the client."""
        stats = self._proxy.stats
        if self._subscriber:
            if is_pushed(frame):
                stats.pushes += 1
                if self._proxy.swallow_pushes:
                    stats.swallowed += 1
                    return False
            return True
        name = self._unanswered.popleft() if self._unanswered else "?"
        if not self._unanswered:
            self._all_answered.set()
        await self._proxy.count(stats.replies, name)
        loss = None if frame[:1] == b"-" else self._proxy.loss_of(name)  # a refusal took no effect
        if loss is None:
            return True
        if loss.how == "cut":
            self.cut()
        else:
            self._silent = True
        return False

    async def _write(self, way: Way, queue: _Waiting, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while True:
            ready_at, data = await queue.get()
            if (wait_s := ready_at - loop.time()) > 0:
                await asyncio.sleep(wait_s)
            await self._proxy.gate(way).wait()
            await self.own_gates[way].wait()
            for at in range(0, len(data), _CHUNK_BYTES):
                chunk = data[at : at + _CHUNK_BYTES]
                if self._proxy.bytes_per_s:
                    await asyncio.sleep(len(chunk) / self._proxy.bytes_per_s)
                passing, cut = self._proxy.allowed(way, len(chunk))
                self._proxy.stats.bytes[way] += passing
                with contextlib.suppress(OSError):
                    writer.write(chunk[:passing])
                    await writer.drain()
                if cut is not None:
                    # The far side gets what passed and an end; the near side a reset.
                    writer.close()
                    _reset(self._writer if way == "up" else self._server_writer)
                    return
            queue.task_done()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(_CHUNK_BYTES)
    except OSError:
        return b""


def _reset(writer: asyncio.StreamWriter) -> None:
    """Closes with RST: what was not sent yet vanishes."""
    sock = cast("socket.socket | None", writer.get_extra_info("socket"))
    if sock is not None and sock.family != socket.AF_UNIX:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
