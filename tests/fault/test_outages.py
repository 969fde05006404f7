"""Links that swallow, break and come back: calls go on by themselves, and closing waits for no server."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from aiodq._core.due import NOW, Due
from aiodq._core.errors import StoreUnavailable
from aiodq._core.settlement import Acked
from aiodq._core.store import ClaimRequest, Entry
from aiodq._redis import calls
from aiodq._redis.backend import RedisBackend
from tests.conftest import MakeServer
from tests.fault.lab import Lab, open_lab, rounds
from tests.fault.proxy import Proxy
from tests.servers import ServerProcess, free_port
from tests.shards import HOUR_MS, LEASE_MS

RESUME_S = 2.0


async def test_work_resumes_after_every_outage(lab: Lab) -> None:
    """10 outages (times AIODQ_FAULT_ROUNDS) of all kinds, 0.05 to 0.6 s long, in the middle of calls."""
    dice = random.Random(7)
    hand = await lab.listener("w")
    proxy = lab.proxy
    slowest_s = 0.0
    for n in range(rounds(10)):
        kind = dice.choice(["cut", "refuse", "hole", "hole up", "hole down", "half open"])
        enqueuing = asyncio.ensure_future(lab.store.enqueue([Entry(f"j{n}", b"", NOW)]))
        claiming = asyncio.ensure_future(hand.take(5))
        await asyncio.sleep(dice.random() * 0.003)
        match kind:
            case "hole":
                proxy.hold()
            case "hole up":
                proxy.hold("up")
            case "hole down":
                proxy.hold("down")
            case "half open":
                proxy.half_open()
            case "refuse":
                proxy.refuse = True
                proxy.cut()
            case _:
                proxy.cut()
        await asyncio.sleep(dice.uniform(0.05, 0.6))
        proxy.refuse = False
        proxy.go_on()
        back = time.monotonic()
        [placed], leases = await enqueuing, await claiming
        assert placed.created
        if not leases:
            leases = await hand.take(5)
        slowest_s = max(slowest_s, time.monotonic() - back)
        assert [lease.job_id for lease in leases] == [f"j{n}"], kind
        assert await hand.settle(Acked(f"j{n}", leases[0].token)) == [True]
    assert slowest_s < RESUME_S
    assert (await lab.state()).payload == {}


async def test_drops_in_a_row_do_not_stop_calls(lab: Lab) -> None:
    """B80: all connections dropped five times within two seconds."""
    hand = await lab.listener("w")
    for n in range(rounds(3)):
        for k in range(5):
            await lab.store.enqueue([Entry(f"j{n}-{k}", b"", NOW)])
            lab.proxy.cut()
            await asyncio.sleep(0.05)
        began = time.monotonic()
        leases = await hand.take(5)
        assert len(leases) == 5
        await hand.settle(*(Acked(lease.job_id, lease.token) for lease in leases))
        assert time.monotonic() - began < RESUME_S


async def test_a_server_that_is_stopped_and_started_is_found_again(make_server: MakeServer) -> None:
    """B82, B89: the same port, the same data, as many connections as before."""
    server = make_server()
    async with open_lab(server, "again") as lab:
        hand = await lab.listener("w")
        await lab.store.enqueue([Entry(f"j{n}", b"", NOW) for n in range(10)])
        held = await hand.take(5)
        server.kill()
        calls = [asyncio.ensure_future(lab.store.enqueue([Entry(f"k{n}", b"", NOW)])) for n in range(50)]
        settling = asyncio.ensure_future(hand.settle(*(Acked(lease.job_id, lease.token) for lease in held)))
        await asyncio.sleep(1)
        await asyncio.to_thread(server.start)
        began = time.monotonic()
        assert all(placed.created for [placed] in await asyncio.gather(*calls))
        assert await settling == [True] * 5
        assert time.monotonic() - began < RESUME_S
        clients = str(await lab.say("CLIENT", "LIST"))
        leases = await hand.take(100)
        assert len(leases) == 55
        await hand.settle(*(Acked(lease.job_id, lease.token) for lease in leases))
        # producers, worker, its subscriber; and the test's own
        assert str(clients).count("id=") <= 4


@pytest.mark.parametrize("fault", ["hole", "refuse", "nobody"])
async def test_closing_does_not_wait_for_a_silent_server(valkey: ServerProcess, fault: str) -> None:
    """B141: with calls of all kinds on their way, cancelled ones among them."""
    async with Proxy(valkey.port if fault != "nobody" else free_port()) as proxy:
        backend = RedisBackend(url=proxy.url)
        store = backend.store("closing")
        worker = store.worker("w" * 20, lambda _: None)
        keeper = store.keeper("w" * 20)
        if fault != "nobody":
            await store.enqueue([Entry("a", b"", Due(HOUR_MS))])
            await worker.turn([], ClaimRequest(1, LEASE_MS))
            await store.cancel(["a"])
        if fault == "hole":
            proxy.hold()
        elif fault == "refuse":
            proxy.refuse = True
            proxy.cut()
        listening = asyncio.ensure_future(worker.listen())
        calls = [
            asyncio.ensure_future(store.enqueue([Entry("b", b"", NOW)])),
            asyncio.ensure_future(store.cancel(["b"])),
            asyncio.ensure_future(worker.turn([], ClaimRequest(1, LEASE_MS))),
            asyncio.ensure_future(keeper.extend([("b", "token")], lease_ms=LEASE_MS)),
        ]
        cancelled = asyncio.ensure_future(worker.turn([], ClaimRequest(1, LEASE_MS)))
        await asyncio.sleep(0.2)
        cancelled.cancel()
        listening.cancel()
        began = time.monotonic()
        await asyncio.gather(worker.aclose(), keeper.aclose(), backend.aclose())
        assert time.monotonic() - began < 1
        done, pending = await asyncio.wait([*calls, cancelled, listening], timeout=1)
        assert not pending
        for call in calls:
            assert call in done
            assert call.cancelled() or isinstance(call.exception(), StoreUnavailable)


async def test_a_connection_that_cannot_even_be_tried_is_told() -> None:
    """The encoding of host names raises neither a connection error nor one of redis-py's."""
    backend = RedisBackend(url=f"redis://{'x' * 70}.example:6379/0")
    async with asyncio.timeout(5):
        with pytest.raises(StoreUnavailable, match=r"not sent|not carried out"):
            await backend.store("q").enqueue([Entry("a", b"", NOW)])
    await backend.aclose()


async def test_the_time_before_anything_could_be_sent_does_not_use_up_the_repeats(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long outage, and one more cut when the server is back: the call goes on under its number."""
    monkeypatch.setattr(calls.WORKER, "seconds", 1.0)
    hand = await lab.listener("w")
    await lab.store.enqueue([Entry("j", b"", NOW)])
    lab.proxy.refuse = True
    lab.proxy.cut()
    claiming = asyncio.ensure_future(hand.take(1))
    await asyncio.sleep(1.5)
    loss = lab.proxy.lose_reply("claim")
    lab.proxy.refuse = False
    leases = await claiming
    assert loss.happened.is_set()
    assert [lease.job_id for lease in leases] == ["j"]
    await hand.settle(Acked("j", leases[0].token))
