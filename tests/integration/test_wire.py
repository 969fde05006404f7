"""Connections whose transport is taken over, and those that hide it: the same answers, the same ends."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from aiodq._redis import wire
from aiodq._redis.backend import connection_maker
from aiodq._redis.faults import Lost
from aiodq._redis.link import Link, pack
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
