"""A short seeded soak: all faults mixed over real processes; long ones are `python -m benchmarks.soak`."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.soak import judge, soak, soak_side_by_side
from tests.conftest import require_server
from tests.fault.lab import rounds

pytestmark = pytest.mark.slow


async def test_a_short_soak_keeps_every_promise(server_directory: Path) -> None:
    require_server("valkey")
    folder = server_directory / "soak"
    verdict = judge(folder, await soak(rounds(15) / 60, 1, folder))
    print(verdict)
    assert verdict.broken() == {}, str(verdict)
    assert verdict.acknowledged > 100
    assert sum(verdict.faults.values()) >= 5


async def test_runs_side_by_side_do_not_meet(server_directory: Path) -> None:
    require_server("valkey")
    verdicts = await soak_side_by_side(2, rounds(5) / 60, 40, server_directory / "lanes")
    assert [verdict.broken() for verdict in verdicts] == [{}, {}]
    assert all(verdict.acknowledged > 50 for verdict in verdicts)
