"""A worker's memory of its last settlements asks one question at a time."""

from __future__ import annotations

import asyncio
from typing import cast

from aiodq._core.settlement import Acked
from aiodq._redis.calls import Caller
from aiodq._redis.keys import ShardKeys
from aiodq._redis.reteller import Reteller, _Ended


class _Link:
    identity = None


class _Caller:
    """Answers each call a round of the loop later, and sees how many wait at once."""

    def __init__(self) -> None:
        self.link = _Link()
        self.unanswered = 0
        self.most = 0
        self.calls = 0

    def next_call_id(self) -> str:
        return "00000001"

    def call(self, name: str, args: list[object]) -> _Caller:
        assert name == "finished"
        self.calls += 1
        self.unanswered += 1
        self.most = max(self.most, self.unanswered)
        return self

    async def answer(self) -> bytes:
        await asyncio.sleep(0)
        self.unanswered -= 1
        return b"1"


async def test_a_repeat_is_never_overtaken_by_another_call_of_the_same_sender() -> None:
    caller = _Caller()
    reteller = Reteller(cast(Caller, caller), ShardKeys("q"))
    ended = [_Ended(Acked("a", "token"), "", 10, 0)]

    answers = await asyncio.gather(*(reteller._finish(ended) for _ in range(3)))

    assert answers == ["1", "1", "1"]
    assert caller.calls == 3
    assert caller.most == 1
