"""Somebody takes the connection and then says nothing: opening it does not last for ever."""

from __future__ import annotations

import asyncio

import pytest

from aiodq._core.due import NOW
from aiodq._core.errors import StoreUnavailable
from aiodq._core.store import Entry, Notice
from aiodq._redis import link
from aiodq._redis.backend import RedisBackend, new_sender_id


async def test_opening_ends_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "OPENING_S", 0.2)
    taken: list[asyncio.StreamWriter] = []
    thrice = asyncio.Event()

    async def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(writer)
        if len(taken) == 3:
            thrice.set()

    door = await asyncio.start_server(take, "127.0.0.1", 0)
    port = door.sockets[0].getsockname()[1]
    # A database number makes the first answer part of opening.
    backend = RedisBackend(url=f"redis://127.0.0.1:{port}/1")
    store = backend.store("q")
    notices: list[Notice] = []
    worker = store.worker(new_sender_id(), notices.append)
    ears = asyncio.create_task(worker.listen())
    try:
        async with asyncio.timeout(5):
            with pytest.raises(StoreUnavailable, match=r"not open after 0\.2 s"):
                await store.enqueue([Entry("a", b"", NOW)])
            await thrice.wait()  # one for the producer, then the ears again and again
        assert not notices
    finally:
        ears.cancel()
        await asyncio.wait([ears])
        await worker.aclose()
        await backend.aclose()
        for writer in taken:
            writer.close()
        door.close()
        await door.wait_closed()
