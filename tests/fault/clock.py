"""A clock that can be stepped while a process runs: libfaketime, told by a file. Only the wall clock is
moved; monotonic time goes on, as in reality."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

import pytest

from tests.servers import ServerProcess

_LIBRARY = "libfaketimeMT.so.1"
_PLACES = ("/usr/lib", "/usr/local/lib", "/usr/lib64")


def faketime_library() -> Path:
    """The library to preload; without one the test is skipped, or fails with AIODQ_TEST_REQUIRE=all."""
    for place in _PLACES:
        for pattern in (f"faketime/{_LIBRARY}", f"*/faketime/{_LIBRARY}"):
            for found in sorted(Path(place).glob(pattern)):
                return found
    missing = "no libfaketime on this machine (Debian: apt-get install libfaketime)"
    if os.environ.get("AIODQ_TEST_REQUIRE") == "all":
        pytest.fail(f"AIODQ_TEST_REQUIRE=all, but: {missing}", pytrace=False)
    pytest.skip(missing)


class SteppedClock:
    """The wall clock of the processes that are started with `environment`."""

    def __init__(self, file: Path) -> None:
        self._library = faketime_library()
        self._file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        self.offset_s = 0
        self.step_to(0)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def step_to(self, offset_s: int) -> None:
        """From now on the clock is that far from the real one."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{offset_s:+d}\n")
        new.replace(self._file)  # in one step: half a file would be another time
        self.offset_s = offset_s


class SteppedServer(ServerProcess):
    """The bundled Valkey under such a clock. Debian's Redis 7.0 hangs under libfaketime."""

    def __init__(self, directory: Path, *args: str) -> None:
        super().__init__("valkey", directory, *args)
        self.clock = SteppedClock(directory / "clock")
        self._real_binary = self._binary
        self._binary = Path("/usr/bin/env")

    def _settings(self) -> list[str]:
        moved = [f"{name}={value}" for name, value in self.clock.environment.items()]
        return [*moved, str(self._real_binary), *super()._settings()]

    def start(self) -> Self:
        self.clock.step_to(0)
        return super().start()
