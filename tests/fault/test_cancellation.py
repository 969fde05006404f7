"""Callers that are cancelled at random moments: never another call's reply (B99)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine

import pytest

from aiodq._core.due import NOW, Due
from aiodq._core.lease import Lease
from aiodq._core.settlement import Acked
from aiodq._core.store import ClaimRequest, Entry
from tests.fault.lab import open_lab, rounds
from tests.servers import ServerProcess
from tests.shards import HOUR_MS, LEASE_MS

DELAY_S = 0.005


@pytest.mark.parametrize("seed", [1, 2])
async def test_cancelled_callers_never_shift_replies(
    server: ServerProcess, queue_name: str, seed: int
) -> None:
    """400 cancelled calls (times AIODQ_FAULT_ROUNDS) of producers through a slow link; known ids are asked
    for all the while, and each answer must be about the id that was asked for."""
    dice = random.Random(seed)
    async with open_lab(server, queue_name, reply_timeout_s=5) as lab:
        lab.proxy.delay_s = DELAY_S
        await lab.store.enqueue([Entry(f"known{n}", f"body{n}".encode(), Due(HOUR_MS)) for n in range(20)])

        async def cancelled(n: int) -> None:
            calls: list[Callable[[], Coroutine[object, object, object]]] = [
                lambda: lab.store.enqueue([Entry(f"x{n}", b"", Due(HOUR_MS))]),
                lambda: lab.store.reschedule([(f"x{n - 1}", Due(2 * HOUR_MS))]),
                lambda: lab.store.cancel([f"x{n - 2}"]),
                lambda: lab.store.find([f"known{n % 20}"]),
                lab.store.stats,
            ]
            call = asyncio.create_task(dice.choice(calls)())
            await asyncio.sleep(dice.random() * 4 * DELAY_S)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

        async def asked(n: int) -> None:
            [job] = await lab.store.find([f"known{n % 20}"])
            assert (job.job_id, job.payload) == (f"known{n % 20}", f"body{n % 20}".encode())
            assert (await lab.store.cancel([f"never{n}"])) == ["absent"]

        for n in range(rounds(20)):
            await asyncio.gather(*(cancelled(n * 20 + k) for k in range(20)), asked(n))
        assert lab.proxy.stats.connections == 1
        await lab.store.cancel([*(await lab.state()).payload])


async def test_a_cancelled_turn_is_carried_out_and_what_it_gave_comes_with_the_next(
    server: ServerProcess, queue_name: str
) -> None:
    """Cancelling a worker's turn cancels the waiting only; no reply is mixed up."""
    dice = random.Random(3)
    async with open_lab(server, queue_name, reply_timeout_s=5) as lab:
        hand = await lab.listener("w")
        total = rounds(40)
        await lab.store.enqueue([Entry(f"j{n}", f"body{n}".encode(), NOW) for n in range(total)])
        lab.proxy.delay_s = DELAY_S
        held: list[Lease] = [*await hand.take(5)]
        for _ in range(total):
            if not held:
                break
            lease = held.pop()
            assert lease.payload == f"body{lease.job_id[1:]}".encode()
            turn = asyncio.ensure_future(hand.store.turn([Acked(lease.job_id, lease.token)], None))
            await asyncio.sleep(dice.random() * 3 * DELAY_S)
            turn.cancel()
            await asyncio.gather(turn, return_exceptions=True)
            answer = (await hand.store.turn([], ClaimRequest(1, LEASE_MS))).claim
            assert answer is not None
            held += answer.leases
        state = await lab.state()
        assert set(state.processing) == {lease.job_id for lease in held}
        assert len(state.payload) == max(0, total - total)
