"""Worker processes that die, freeze or go deaf: nothing is lost, and only what a dead one held runs again."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from tests.fault.events import Claimed
from tests.fault.lab import rounds
from tests.fault.processes import held_by
from tests.fault.site import SLOW_MACHINE_MS, open_site
from tests.servers import ServerProcess

pytestmark = pytest.mark.slow

STEADY_S = 3.0
"""After so long without a fault a worker may accuse others, and take expired leases."""


async def test_a_killed_worker_of_three_loses_none_of_1000_jobs(
    server: ServerProcess, queue_name: str, tmp_path: Path
) -> None:
    """Its jobs restart within a second, since the others have free slots; only they run again."""
    dice = random.Random(queue_name)
    for turn in range(rounds(1)):
        async with open_site(server, f"{queue_name}-{turn}", tmp_path / str(turn)) as site:
            workers = await site.start(3)
            await asyncio.sleep(STEADY_S)
            await site.write(1000, 0.1, over_s=5.0)
            await asyncio.sleep(dice.uniform(0.5, 3.0))
            # One that holds something: the first in the row may take nearly everything.
            now_ms, told = site.fleet.recorder.now_ms(), site.fleet.history()
            victim = max(workers, key=lambda worker: len(held_by(told, worker.name, now_ms)))
            after = await site.after_kill(victim)
            assert after.verdict.broken() == {}, str(after.verdict)
            assert after.verdict.acknowledged == len(after.verdict.ok) == 1000
            assert after.held
            assert set(after.verdict.duplicated) <= after.held
            assert len(after.again_ms) >= len(after.held) - 1
            assert after.again_ms[-1] <= 1000 + SLOW_MACHINE_MS


async def test_behind_a_backlog_a_killed_workers_jobs_come_first_as_soon_as_slots_are_free(
    valkey: ServerProcess, queue_name: str, tmp_path: Path
) -> None:
    """All slots are taken all the time, so nobody waits who would look after the others; leases are long."""
    run_s, slots = 0.5, 5
    async with open_site(valkey, queue_name, tmp_path, concurrency=slots, lease_s=30.0) as site:
        victim, _ = await site.start(2)
        await site.write(80, run_s)
        await asyncio.sleep(STEADY_S + 0.2)
        after = await site.after_kill(victim)
        assert after.verdict.broken() == {}, str(after.verdict)
        assert len(after.held) == slots
        assert set(after.verdict.duplicated) <= after.held
        # found out within a second; half of the free slots may go to due jobs
        assert after.again_ms[-1] <= (1.0 + 2 * run_s) * 1000 + SLOW_MACHINE_MS


async def test_without_presence_held_jobs_restart_when_their_leases_run_out(
    valkey: ServerProcess, queue_name: str, tmp_path: Path
) -> None:
    lease_s = 1.5
    async with open_site(valkey, queue_name, tmp_path, presence=False, lease_s=lease_s) as site:
        victim, _ = await site.start(2)
        await asyncio.sleep(lease_s)
        await site.write(400, 0.2)
        await asyncio.sleep(0.5)
        after = await site.after_kill(victim)
        assert after.verdict.broken() == {}, str(after.verdict)
        assert after.held
        assert set(after.verdict.duplicated) <= after.held
        assert after.again_ms[-1] <= (lease_s + 1) * 1000 + SLOW_MACHINE_MS


async def test_a_frozen_process_and_lost_subscriptions_are_no_death(
    valkey: ServerProcess, queue_name: str, tmp_path: Path
) -> None:
    """SIGSTOP for 3 s keeps the sockets; all subscriber sockets killed, and subscribed again."""
    async with open_site(valkey, queue_name, tmp_path, concurrency=5) as site:
        frozen, deaf = await site.start(2)
        await asyncio.sleep(STEADY_S)
        await site.write(8, 6.0)
        await site.until(lambda state: len(state.processing) == 8)
        frozen.send(signal.SIGSTOP)
        began_ms = site.fleet.recorder.now_ms()
        await asyncio.sleep(3)
        frozen.send(signal.SIGCONT)
        site.fleet.note("stop", frozen.name, since_ms=began_ms)
        say = cast("Callable[..., Awaitable[object]]", site.client.execute_command)
        for _ in range(4):
            await say("CLIENT", "KILL", "TYPE", "pubsub")
            site.fleet.note("deaf")
            await asyncio.sleep(0.5)
        events, verdict = await site.come_to_rest()
        claims = [event for event in events if isinstance(event, Claimed)]
        assert {claim.worker for claim in claims} == {frozen.name, deaf.name}
        assert len(claims) == 8
        assert verdict.duplicated == []
        assert verdict.broken() == {}
