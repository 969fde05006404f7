"""The gatherer: who shares a call with whom, what travels side by side, and what everybody is told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from aiodq._core.due import NOW
from aiodq._core.errors import QueueFull, StoreUnavailable
from aiodq._core.store import BATCH, Entry, Placed
from aiodq._redis.gather import BATCH_BYTES, LANES, WORTH_A_CALL, Gatherer


def entries(*ids: str, size: int = 1) -> list[Entry]:
    return [Entry(job_id, b"x" * size, NOW) for job_id in ids]


class Server:
    """Takes calls, and answers them when told; due times in its answers number what was written."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.open: dict[int, tuple[list[Entry], asyncio.Future[list[Placed]]]] = {}
        self.most_open = 0
        self.written: list[Entry] = []

    async def send(self, batch: list[Entry], lane: int) -> list[Placed]:
        assert lane not in self.open, "a lane has one call at a time"
        assert 0 <= lane < LANES
        self.calls.append([entry.job_id for entry in batch])
        answer: asyncio.Future[list[Placed]] = asyncio.get_running_loop().create_future()
        self.open[lane] = (batch, answer)
        self.most_open = max(self.most_open, len(self.open))
        try:
            return await answer
        finally:
            del self.open[lane]

    def answer(self, lane: int) -> None:
        batch, answer = self.open[lane]
        before = len(self.written)
        self.written += batch
        answer.set_result([Placed(True, False, before + n) for n in range(len(batch))])

    def refuse(self, lane: int, error: Exception) -> None:
        self.open[lane][1].set_exception(error)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def placed_at(answers: Sequence[Placed]) -> list[int]:
    return [answer.due_ms for answer in answers]


async def test_what_is_asked_while_a_call_is_on_its_way_shares_the_next() -> None:
    server = Server()
    gatherer = Gatherer(server.send)
    asked = [asyncio.create_task(gatherer.put(entries(job_id))) for job_id in "abcd"]
    await settle()
    later = [asyncio.create_task(gatherer.put(entries(job_id))) for job_id in "efg"]
    await settle()
    assert server.calls == [["a", "b", "c", "d"]]
    server.answer(0)
    await settle()
    assert server.calls == [["a", "b", "c", "d"], ["e", "f", "g"]]
    server.answer(0)
    answers = await asyncio.gather(*asked, *later)
    assert [placed_at(answer) for answer in answers] == [[n] for n in range(7)]


async def test_full_batches_travel_side_by_side_and_answers_come_in_the_callers_order() -> None:
    server = Server()
    gatherer = Gatherer(server.send)
    ids = [f"j{n}" for n in range(7 * BATCH + 3)]
    asked = asyncio.create_task(gatherer.put(entries(*ids)))
    await settle()
    assert len(server.open) == LANES
    dice = random.Random(3)
    while server.open:
        server.answer(dice.choice(list(server.open)))
        await settle()
    assert server.most_open == LANES
    assert [len(call) for call in server.calls] == [BATCH] * 7 + [3]
    effects = {entry.job_id: n for n, entry in enumerate(server.written)}
    assert placed_at(await asked) == [effects[job_id] for job_id in ids]


async def test_one_id_is_never_on_its_way_twice_so_the_order_of_its_entries_stays() -> None:
    server = Server()
    gatherer = Gatherer(server.send)
    ids = ["again", *(f"a{n}" for n in range(150)), "again", *(f"b{n}" for n in range(400)), "again"]
    asked = asyncio.create_task(gatherer.put(entries(*ids)))
    await settle()
    dice = random.Random(5)
    while server.open:
        flying = [entry.job_id for batch, _ in server.open.values() for entry in batch]
        assert flying.count("again") <= 1
        server.answer(dice.choice(list(server.open)))
        await settle()
    answers = placed_at(await asked)
    first, second, third = (answers[n] for n, job_id in enumerate(ids) if job_id == "again")
    assert first < second < third
    assert len(server.written) == len(ids)


async def test_few_entries_do_not_open_a_second_lane() -> None:
    server = Server()
    gatherer = Gatherer(server.send)
    asked = [asyncio.create_task(gatherer.put(entries("first")))]
    await settle()
    asked += [asyncio.create_task(gatherer.put(entries(f"j{n}"))) for n in range(WORTH_A_CALL - 1)]
    await settle()
    assert list(server.open) == [0]
    server.answer(0)
    await settle()
    assert [len(call) for call in server.calls] == [1, WORTH_A_CALL - 1]
    server.answer(0)
    await asyncio.gather(*asked)


async def test_a_hundred_callers_share_two_calls_that_take_turns() -> None:
    server = Server()
    gatherer = Gatherer(server.send)
    stop = asyncio.Event()

    async def caller(name: str) -> None:
        count = 0
        while not stop.is_set():
            count += 1
            await gatherer.put(entries(f"{name}-{count}"))

    callers = [asyncio.create_task(caller(f"c{n}")) for n in range(100)]
    for _ in range(10):
        await settle()
        assert [len(batch) for batch, _ in server.open.values()] == [50, 50]
        server.answer(next(iter(server.open)))
    stop.set()
    await settle()
    while server.open:
        server.answer(next(iter(server.open)))
        await settle()
    await asyncio.gather(*callers)


async def test_a_large_entry_travels_alone_and_a_batch_ends_at_its_bytes() -> None:
    server = Server()
    gatherer = Gatherer(server.send)
    jobs = [
        *entries("a"),
        *entries("large", size=BATCH_BYTES + 1),
        *entries("b", "c", size=BATCH_BYTES // 2),
        *entries("d"),
    ]
    asked = asyncio.create_task(gatherer.put(jobs))
    await settle()
    while server.open:
        server.answer(next(iter(server.open)))
        await settle()
    assert server.calls == [["a"], ["large"], ["b", "c"], ["d"]]
    assert len(await asked) == 5


async def test_a_refusal_is_told_to_those_of_its_call_and_the_others_go_on() -> None:
    server = Server()
    gatherer = Gatherer(server.send)
    one = asyncio.create_task(gatherer.put(entries("a")))
    await settle()
    other = asyncio.create_task(gatherer.put(entries("b")))
    await settle()
    server.refuse(0, QueueFull("no room"))
    await settle()
    server.answer(0)
    with pytest.raises(QueueFull):
        await one
    assert placed_at(await other) == [0]


async def test_with_the_server_gone_everybody_who_waits_is_told_at_once() -> None:
    server = Server()
    gatherer = Gatherer(server.send)
    asked = [asyncio.create_task(gatherer.put(entries(*(f"{k}-{n}" for n in range(450))))) for k in "ab"]
    await settle()
    server.refuse(2, StoreUnavailable("gone"))
    await settle()
    for task in asked:
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(task, 1)
    assert len(server.calls) == LANES, "nothing of what failed is sent later"
    for lane in list(server.open):
        server.answer(lane)
    await settle()
    assert server.open == {}


async def test_what_was_given_up_is_overtaken_in_its_lane_before_anything_else_is_sent() -> None:
    server = Server()
    gatherer = Gatherer(server.send)
    asked = asyncio.create_task(gatherer.put(entries(*(f"j{n}" for n in range(LANES * BATCH)))))
    await settle()
    for lane in range(1, LANES):
        server.refuse(lane, StoreUnavailable("gone"))
    server.answer(0)
    await settle()
    with pytest.raises(StoreUnavailable):
        await asked
    del server.calls[:]

    failing = asyncio.create_task(gatherer.put(entries("a")))
    await settle()
    assert {lane: batch for lane, (batch, _) in server.open.items()} == {1: [], 2: [], 3: []}
    server.answer(1)
    server.refuse(2, StoreUnavailable("still gone"))
    server.answer(3)
    await settle()
    with pytest.raises(StoreUnavailable):
        await failing

    again = asyncio.create_task(gatherer.put(entries("a")))
    await settle()
    assert {lane: batch for lane, (batch, _) in server.open.items()} == {2: []}
    server.answer(2)
    await settle()
    assert server.calls == [[], [], [], [], ["a"]]
    server.answer(2)
    assert len(await again) == 1


async def test_what_a_cancelled_caller_has_not_sent_is_not_sent() -> None:
    server = Server()
    gatherer = Gatherer(server.send)
    asked = asyncio.create_task(gatherer.put(entries(*(f"j{n}" for n in range(LANES * BATCH + 300)))))
    await settle()
    asked.cancel()
    await settle()
    other = asyncio.create_task(gatherer.put(entries("other")))
    await settle()
    while server.open:
        server.answer(next(iter(server.open)))
        await settle()
    assert server.calls[LANES:] == [["other"]]
    assert len(await other) == 1


async def test_closing_tells_those_on_their_way_and_those_who_wait() -> None:
    server = Server()
    gatherer = Gatherer(server.send)
    asked = [asyncio.create_task(gatherer.put(entries(f"j{n}"))) for n in range(2)]
    await settle()
    asked.append(asyncio.create_task(gatherer.put(entries("behind"))))
    await settle()
    await gatherer.aclose()
    for task in asked:
        with pytest.raises(StoreUnavailable):
            await task
