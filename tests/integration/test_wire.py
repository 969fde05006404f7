"""Connections whose transport is taken over, and those that hide it: the same answers, the same ends."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from aiodq._redis import wire
from aiodq._redis.backend import connection_maker
from aiodq._redis.faults import Lost
from aiodq._redis.link import FULL_WRITE_BYTES, MOST_AHEAD, Link, pack
from tests.conftest import MakeServer
from tests.servers import ServerProcess


def hidden(connection: wire.Connection) -> None:
    """For a connection that does not show its transport."""


@pytest.fixture(params=["taken over", "through streams"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    way = cast("str", request.param)
    if way == "through streams":
        monkeypatch.setattr(wire, "_transport_of", hidden)
    return way


def open_link(server: ServerProcess, *, reply_timeout_s: float = 2.0) -> Link:
    make, _ = connection_maker(url=server.url)
    return Link(make, reply_timeout_s=reply_timeout_s)


async def test_replies_come_in_order_and_errors_are_values(valkey: ServerProcess) -> None:
    opened = open_link(valkey)
    asked = [opened.send(pack(b"ECHO", f"{n}" * 1000)) for n in range(100)]
    wrong = opened.send(pack(b"NO-SUCH-COMMAND"))
    assert [await reply for reply in asked] == [f"{n}".encode() * 1000 for n in range(100)]
    assert "NO-SUCH-COMMAND" in str(await wrong)
    assert await opened.send(pack(b"ECHO", b"after")) == b"after"
    await opened.aclose()


async def test_a_call_that_the_server_never_answers_is_lost_and_the_next_is_answered(
    valkey: ServerProcess,
) -> None:
    opened = open_link(valkey, reply_timeout_s=0.2)
    assert await opened.send(pack(b"ECHO", b"before")) == b"before"
    blocked, behind = opened.send(pack(b"BLPOP", b"nothing", 5)), opened.send(pack(b"ECHO", b"behind"))
    for call in (blocked, behind):
        reply = await call
        assert isinstance(reply, Lost)
        assert reply.sent
    assert opened.unbroken_since is None
    assert await opened.send(pack(b"ECHO", b"after")) == b"after"
    await opened.aclose()


async def test_a_server_that_dies_ends_calls_and_one_that_returns_answers(make_server: MakeServer) -> None:
    server = make_server()
    opened = open_link(server)
    waiting = opened.send(pack(b"BLPOP", b"nothing", 5))
    await asyncio.sleep(0.05)
    server.kill()
    reply = await waiting
    assert isinstance(reply, Lost)
    assert reply.sent
    unsent = await opened.send(pack(b"PING"))
    assert isinstance(unsent, Lost)
    assert not unsent.sent
    server.start()
    assert await opened.send(pack(b"ECHO", b"after")) == b"after"
    await opened.aclose()
    closed = await opened.send(pack(b"PING"))
    assert isinstance(closed, Lost)


async def test_closing_ends_calls_on_their_way(valkey: ServerProcess) -> None:
    opened = open_link(valkey)
    waiting = opened.send(pack(b"BLPOP", b"nothing", 5))
    await asyncio.sleep(0.05)
    behind = opened.send(pack(b"PING"))
    await opened.aclose()
    reply, unsent = await waiting, await behind
    assert isinstance(reply, Lost)
    assert isinstance(unsent, Lost)
    assert (reply.sent, unsent.sent) == (True, False)


async def test_only_a_full_write_goes_out_while_an_answer_is_awaited(make_server: MakeServer) -> None:
    server = make_server()
    opened = open_link(server, reply_timeout_s=10)
    waiting = opened.send(pack(b"BLPOP", b"nothing", 0))
    await asyncio.sleep(0.05)
    small = opened.send(pack(b"ECHO", b"small"))
    full = [opened.send(pack(b"ECHO", b"x" * FULL_WRITE_BYTES)) for _ in range(3)]
    await asyncio.sleep(0.05)
    later = opened.send(pack(b"ECHO", b"later"))
    await asyncio.sleep(0.05)
    server.kill()
    replies = await asyncio.gather(waiting, small, *full, later)
    assert [isinstance(reply, Lost) and reply.sent for reply in replies] == [True] * 5 + [False]
    await opened.aclose()


async def test_calls_ahead_of_the_server_are_answered_in_their_order(valkey: ServerProcess) -> None:
    opened = open_link(valkey)
    bodies = [f"{n}".encode() * (FULL_WRITE_BYTES if n % 3 else 1) for n in range(5 * MOST_AHEAD)]

    async def ask(n: int) -> object:
        await asyncio.sleep(0.001 * n)
        call = opened.send(pack(b"ECHO", bodies[n]))
        opened.flush()
        return await call

    assert await asyncio.gather(*map(ask, range(len(bodies)))) == bodies
    await opened.aclose()


async def test_what_is_written_meanwhile_does_not_put_off_that_a_silent_server_is_noticed(
    valkey: ServerProcess,
) -> None:
    opened = open_link(valkey, reply_timeout_s=0.4)
    assert await opened.send(pack(b"ECHO", b"before")) == b"before"
    loop = asyncio.get_running_loop()
    begun = loop.time()
    calls = [opened.send(pack(b"BLPOP", b"nothing", 5))]
    while not calls[0].done() and loop.time() - begun < 3:
        calls.append(opened.send(pack(b"ECHO", b"x" * FULL_WRITE_BYTES)))
        await asyncio.sleep(0.1)
    assert loop.time() - begun < 1
    assert isinstance(await calls[0], Lost)
    await opened.aclose()


async def test_an_idle_connection_that_ends_is_noticed_where_the_transport_is_ours(
    make_server: MakeServer, way: str
) -> None:
    server = make_server()
    opened = open_link(server)
    await opened.send(pack(b"PING"))
    server.kill()
    await asyncio.sleep(0.1)
    assert (opened.unbroken_since is None) == (way == "taken over")
    await opened.aclose()
