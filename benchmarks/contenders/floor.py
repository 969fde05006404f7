"""The floor: aiodq's own scripts for enqueue, claim and ack, called over a raw connection, without its safety
on the client's side."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable
from typing import Any

from aiodq._redis.keys import ShardKeys
from aiodq._redis.scripts import Script, load_scripts
from benchmarks.contenders.protocol import serve
from benchmarks.contenders.raw import Future, Raw


class Floor(Raw):
    async def deploy(self) -> None:
        self.keys = ShardKeys(self.setup.name)
        self.sender = "1" + os.urandom(12).hex()[:19]
        self.numbers = itertools.count(1)
        self.prefixes = {name: self._prefix(load_scripts()[name]) for name in ("enqueue", "claim", "ack")}
        for name in self.prefixes:
            await self.wire.call("SCRIPT", "LOAD", load_scripts()[name].source)

    def _prefix(self, script: Script) -> tuple[object, ...]:
        name = script.header.name
        keys = [
            self.keys.turn(self.sender, name) if key == "turn" else self.keys.named(key)
            for key in script.header.keys
        ]
        return ("EVALSHA", script.sha, len(keys), *keys)

    def _number(self) -> str:
        return f"{next(self.numbers):08d}"

    def _call(self, name: str, **values: object) -> tuple[object, ...]:
        """Prefix and arguments in the order of the script's header; what is not given is nothing."""
        always = {"call": self._number(), "worker": self.sender, "wake": self.keys.wake}
        values = {"flags": "", **always, **values}
        return (*self.prefixes[name], *(values.get(arg, 0) for arg in load_scripts()[name].header.args))

    def send_jobs(self, fields: list[str | bytes]) -> Future:
        return self.wire.call(*self._call("enqueue"), *fields)

    def send_claim(self, want: int) -> Future:
        limits = {
            "lease_ms": 30_000,
            "max_bytes": 4_000_000,
            "far_permille": 1500,
            "clamp_from": -1,
            "cap_ms": 10_000,
        }
        now_us = int(time.time() * 1e6)
        call = self._call("claim", want=want, expected_us=now_us, **limits)
        self.claim_id = call[len(self.prefixes["claim"])]  # the call's id comes first
        return self.wire_of_worker.call(*call)

    def read_claim(self, reply: Any) -> tuple[float, Iterable[tuple[bytes, bytes, Any]]]:
        wait_us = reply[1]
        fence, ids, payloads, dues = reply[6:10]
        front, back = f"{fence:016d}:", f":00030000:{self.sender}:{self.claim_id}"
        proofs = [f"{front}{int(due):015d}{back}" for due in dues]
        return max(0, wait_us) / 1e6, zip(ids, payloads, proofs, strict=True)

    def send_acks(self, ended: list[Any]) -> None:
        fields = [field for one in ended for field in one]
        self.wire_of_worker.call(*self._call("ack", window_ms=300_000), *fields)

    def channels(self) -> tuple[str, ...]:
        return (self.keys.wake + self.sender,)

    def wait_s(self, notice: bytes) -> float:
        return int(notice.split()[0]) / 1e6


if __name__ == "__main__":
    serve(Floor)
