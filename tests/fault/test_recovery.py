"""How soon work goes on, with real processes: after a network that swallows all, and a stopped server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.conftest import MakeServer
from tests.fault.events import Started
from tests.fault.processes import WorkerProcess, held_by, restarts_ms
from tests.fault.proxy import Proxy
from tests.fault.site import SLOW_MACHINE_MS, open_site
from tests.servers import ServerProcess

pytestmark = pytest.mark.slow

STOPPED_S = 10.0
RESUME_MS = 2000


async def test_jobs_of_a_worker_whose_network_is_cut_restart_within_its_lease_and_a_second(
    server: ServerProcess, queue_name: str, tmp_path: Path
) -> None:
    """No socket is closed by it, so presence cannot tell; the worker lives on, and comes back in the end."""
    lease_s = 3.0
    async with Proxy(server.port) as proxy, open_site(server, queue_name, tmp_path, lease_s=lease_s) as site:
        behind = msgspec.structs.replace(site.fleet.settings, url=proxy.url)
        cut_off = await asyncio.to_thread(lambda: WorkerProcess(behind).ready())
        site.fleet.workers.append(cut_off)
        await site.write(15, 6.0)
        await site.until(lambda state: len(state.processing) == 15)
        await site.start(1)
        await asyncio.sleep(lease_s)
        proxy.hold()
        cut_ms = site.fleet.recorder.now_ms()
        await asyncio.sleep(lease_s + 2)
        proxy.go_on()
        site.fleet.note("black hole", since_ms=cut_ms)
        events, verdict = await site.come_to_rest()
    held = held_by(events, cut_off.name, cut_ms)
    again_ms = restarts_ms(events, held, cut_ms)
    print(f"{server.kind}: held {len(held)}, restarted after {again_ms[:1]}..{again_ms[-1:]} ms")
    assert verdict.broken() == {}, str(verdict)
    assert len(held) == len(again_ms) == 15
    assert set(verdict.duplicated) == set(held)
    assert again_ms[-1] <= (lease_s + 1) * 1000 + SLOW_MACHINE_MS


async def test_due_jobs_flow_within_two_seconds_of_the_return_of_a_server_that_was_down_for_ten(
    make_server: MakeServer, queue_name: str, tmp_path: Path
) -> None:
    """Jobs became due meanwhile; it comes back with all its data, from its append-only file."""
    server = make_server()
    async with open_site(server, queue_name, tmp_path) as site:
        await site.start(2)
        await site.write(200, 0.01, over_s=STOPPED_S)
        down_ms = site.fleet.recorder.now_ms()
        await asyncio.to_thread(server.stop)
        await asyncio.sleep(STOPPED_S)
        await asyncio.to_thread(server.start)
        back_ms = site.fleet.recorder.now_ms()
        site.fleet.note("restart", since_ms=down_ms)
        events, verdict = await site.come_to_rest()
    starts = [
        event.at_ms - back_ms for event in events if isinstance(event, Started) and event.at_ms > back_ms
    ]
    print(f"{server.kind}: {len(starts)} jobs started {min(starts):.0f} to {max(starts):.0f} ms after it")
    assert verdict.broken() == {}, str(verdict)
    assert len(starts) >= 150
    assert max(starts) <= RESUME_MS
