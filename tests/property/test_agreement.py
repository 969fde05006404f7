"""Memory and a real server side by side: equal answers and equal state after each of many random moves."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis.stateful import run_state_machine_as_test

from aiodq._redis.backend import RedisBackend
from tests.clusters import Cluster, open_client
from tests.property.machine import QueueMachine
from tests.property.test_model import PHASES
from tests.property.twins import (
    START_US,
    SharedClockCluster,
    SharedClockMemory,
    SharedClockRedis,
    Twin,
    scripts_with_a_clock,
)
from tests.servers import ServerProcess


@pytest.mark.slow
@pytest.mark.parametrize("fifo", [False, True], ids=["plain", "fifo"])
def test_memory_and_server_agree(
    server: ServerProcess | Cluster, monkeypatch: pytest.MonkeyPatch, *, fifo: bool
) -> None:
    monkeypatch.setattr("aiodq._redis.calls.load_scripts", scripts_with_a_clock)

    class Twins(QueueMachine):
        odd = True

        async def open(self) -> list[Twin]:
            self.backend = RedisBackend(url=server.url)
            server.flush()
            kind = SharedClockCluster if isinstance(server, Cluster) else SharedClockRedis
            store = self.backend.store("q", fifo=fifo)
            on_server = kind(store, open_client(server.url), "q", server.kind, fifo=fifo)
            return [SharedClockMemory("q", START_US, fifo=fifo), on_server]

        async def close(self) -> None:
            server.flush()
            await super().close()
            await self.backend.aclose()

    settings = hypothesis.settings(max_examples=25, stateful_step_count=40, phases=PHASES)
    run_state_machine_as_test(Twins, settings=settings)
