"""Calls of scripts over a link: packed once, deployed when unknown, repeated after a lost reply under the
same call id."""

from __future__ import annotations

import asyncio
import base64
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from aiodq._core.errors import ConfigError, QueueFull, ScriptError, StoreUnavailable, WrongOrder
from aiodq._redis.faults import Lost, Refused, UnknownScript, Unordered, refusal
from aiodq._redis.keys import ShardKeys
from aiodq._redis.link import Backoff, Line, Reply, pack
from aiodq._redis.scripts import Script, Scripting, function_name, library_source, load_scripts

REPEAT_WORKER_S: Final = 60.0
"""A worker repeats a call for this long after its first sending; the server keeps answers twice as long."""

REPEAT_PRODUCER_S: Final = 10.0
"""A producer gives up after this long, whether sent or not: somebody is waiting for it."""


class Patience:
    """How long one caller goes on. `endless`: until something was sent; then `seconds` from that sending."""

    def __init__(self, seconds: float, *, endless: bool = False, fail_fast: bool = False) -> None:
        self.seconds = seconds
        self.endless = endless
        self.fail_fast = fail_fast

    def is_over(self, link: Line, started: float, first_sent: float | None) -> bool:
        if link.closed or (self.fail_fast and not link.ever_connected):
            return True
        since = first_sent if self.endless else started
        return since is not None and time.monotonic() - since >= self.seconds


WORKER: Final = Patience(REPEAT_WORKER_S, endless=True)
PRODUCER: Final = Patience(REPEAT_PRODUCER_S, fail_fast=True)
ONCE: Final = Patience(0.0)

_CAME_UNORDERED: Final = (
    "fifo=True: the queue holds jobs that came in no order, so nothing was changed: let it run empty, or "
    "give the ordered queue another name"
)


class Call:
    """One call on its way. Made and sent at once, so that calls made together share a write; `answer` waits
    for it."""

    def __init__(
        self,
        link: Line,
        script: Script,
        scripting: Scripting,
        command: bytes,
        patience: Patience,
        order: Callable[[], Awaitable[Reply]] | None = None,
    ) -> None:
        self._link = link
        self._order = order
        self._script = script
        self._scripting: Scripting = scripting
        self._command = command
        self._patience = patience
        self._started = time.monotonic()
        self._reply = link.send(command)

    async def answer(self) -> Reply:
        """The script's answer. Raises what `aiodq._core.store` says of all its methods."""
        if not self._reply.done():
            self._link.flush()  # all that belongs together has been asked for by now
        reply = await self._reply
        if not isinstance(reply, Exception):
            return reply
        return await self._insist(reply)

    async def _insist(self, reply: Exception) -> Reply:
        first_sent: float | None = None
        asked_at = self._started
        waits = Backoff()
        deployed = False
        while True:
            error = self._judge(reply, deployed=deployed)
            if isinstance(error, UnknownScript):
                deployed = True
                again = await self._deploy_and_send()
            elif isinstance(error, Unordered) and self._order is not None:
                if await self._order() != 1:
                    raise WrongOrder(_CAME_UNORDERED) from error
                again = await self._link.send(self._command)
            elif isinstance(error, Lost | Refused):
                if isinstance(error, Lost) and error.sent and first_sent is None:
                    first_sent = asked_at
                if isinstance(error, Refused):
                    await self._link.refused(elsewhere=error.elsewhere)
                if self._patience.is_over(self._link, self._started, first_sent):
                    raise self._gave_up(error, sent=first_sent is not None) from error
                if isinstance(error, Refused):
                    await asyncio.sleep(waits.next_s())
                deployed, asked_at = False, time.monotonic()
                again = await self._link.send(self._command)
            else:
                raise error
            if not isinstance(again, Exception):
                return again
            reply = again

    async def _deploy_and_send(self) -> Reply:
        if self._scripting == "functions":
            fifo = self._order is not None
            source = library_source(sharded=self._link.clustered, fifo=fifo)
            load = pack(b"FUNCTION", b"LOAD", source)
        else:
            load = pack(b"SCRIPT", b"LOAD", self._script.source)
        loading, calling = self._link.send(load), self._link.send(self._command)
        loaded, reply = await loading, await calling
        if not (isinstance(loaded, Exception) and isinstance(reply, Exception)) or isinstance(loaded, Lost):
            return reply
        text = str(loaded)
        if "already exists" in text:
            return reply
        if "unknown command" in text.lower():
            raise ConfigError('scripting="functions" needs Redis 7.0 or newer, or Valkey') from loaded
        name = self._script.header.name
        if isinstance(refusal(loaded, call=name), ScriptError):
            raise ScriptError(f"the server did not take the script {name}: {text}") from loaded
        return loaded

    def _judge(self, reply: Exception, *, deployed: bool) -> Exception:
        """What a failed call means. Two refusals pass by themselves: a script forgotten again since it was
        deployed, and memory without room for the library of a script that itself needs none."""
        if isinstance(reply, Lost):
            return reply
        error = refusal(reply, call=self._script.header.name)
        if (isinstance(error, UnknownScript) and deployed) or (
            isinstance(error, QueueFull) and self._script.drains
        ):
            return Refused(str(reply), elsewhere=False)
        return error

    def _gave_up(self, error: Exception, *, sent: bool) -> StoreUnavailable:
        name, tried_s = self._script.header.name, time.monotonic() - self._started
        if not self._link.ever_connected:
            return StoreUnavailable(f"cannot reach the server: {error}; {name} was not sent")
        fate = "it may have been carried out; repeating it is safe" if sent else "it was not carried out"
        return StoreUnavailable(f"no answer to {name}, tried for {tried_s:.1f} s ({error}): {fate}")


class Caller:
    """Makes calls of one shard's scripts for one sender.

    Args:
        sender: the id under which the server remembers this caller's last answers; used by one process and
            event loop.
    """

    def __init__(
        self, link: Line, keys: ShardKeys, sender: str, scripting: Scripting, patience: Patience
    ) -> None:
        self.link = link
        self._keys = keys
        self._sender = sender
        self._scripting: Scripting = scripting
        self._patience = patience
        self._prefixes: dict[tuple[str, int], tuple[Script, tuple[str | bytes | int, ...]]] = {}
        self._numbers = itertools.count(1)

    def next_call_id(self) -> str:
        """Eight characters that grow with every call, compared as strings: scripts refuse what comes too
        late."""
        return base64.b32hexencode(next(self._numbers).to_bytes(5, "big")).decode()

    def call(
        self, name: str, args: Sequence[str | bytes | int], *, lane: int = 0, **stand_ins: bytes
    ) -> Call:
        """Sends one script. A repeatable one has no other call on its way in the same lane: of each lane the
        server remembers the last answer. `stand_ins` name keys that the header leaves open (`set` of peek).
        """
        known = self._prefixes.get((name, lane))
        if known is None or stand_ins:
            known = self._prefix(name, lane, stand_ins)
        script, prefix = known
        order = self._put_in_order if self._keys.fifo else None
        return Call(self.link, script, self._scripting, pack(*prefix, *args), self._patience, order)

    async def _put_in_order(self) -> Reply:
        return await self.call("ordered", ()).answer()

    def _prefix(
        self, name: str, lane: int, stand_ins: dict[str, bytes]
    ) -> tuple[Script, tuple[str | bytes | int, ...]]:
        sharded, fifo = self.link.clustered, self._keys.fifo
        script = load_scripts(sharded=sharded, fifo=fifo)[name]
        keys = [self._key(name, lane, key, stand_ins) for key in script.header.keys]
        verb: tuple[bytes, str] = (
            (b"FCALL", function_name(name, sharded=sharded, fifo=fifo))
            if self._scripting == "functions"
            else (b"EVALSHA", script.sha)
        )
        found: tuple[Script, tuple[str | bytes | int, ...]] = (script, (*verb, len(keys), *keys))
        if not stand_ins:
            self._prefixes[name, lane] = found
        return found

    def _key(self, script: str, lane: int, key: str, stand_ins: dict[str, bytes]) -> bytes:
        if key == "turn":
            return self._keys.turn(self._sender, script, lane)
        return stand_ins.get(key) or self._keys.named(key)
