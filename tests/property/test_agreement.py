"""Memory and a real server side by side: equal answers and equal state after each of many random moves."""

from __future__ import annotations

import hypothesis
import pytest
import redis.asyncio
from hypothesis.stateful import run_state_machine_as_test

from aiodq._redis.backend import RedisBackend
from tests.property.machine import QueueMachine
from tests.property.test_model import PHASES
from tests.property.twins import START_US, SharedClockMemory, SharedClockRedis, Twin, scripts_with_a_clock
from tests.servers import ServerProcess


@pytest.mark.slow
def test_memory_and_server_agree(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiodq._redis.calls.load_scripts", scripts_with_a_clock)

    class Twins(QueueMachine):
        odd = True

        async def open(self) -> list[Twin]:
            self.backend = RedisBackend(url=server.url)
            client = redis.asyncio.Redis(host="127.0.0.1", port=server.port)
            await client.flushall()
            on_server = SharedClockRedis(self.backend.store("q"), client, "q", server.kind)
            return [SharedClockMemory("q", START_US), on_server]

        async def close(self) -> None:
            for twin in self.twins:
                if isinstance(twin, SharedClockRedis):
                    await twin.client.flushall()
            await super().close()
            await self.backend.aclose()

    settings = hypothesis.settings(max_examples=25, stateful_step_count=40, phases=PHASES)
    run_state_machine_as_test(Twins, settings=settings)
