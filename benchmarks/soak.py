"""Mixes faults at random, for as long as asked, over real workers and a real server; then judges the history.

    python -m benchmarks.soak --minutes 10 --seed 7
    python -m benchmarks.soak --minutes 10 --seed 7 --lanes 3     the seeds 7, 8 and 9 side by side

Exits with 0 when every promise was kept: nothing lost, early, stuck or misplaced, no two live leases, no
stale write accepted, and nothing run again that no fault explains. The seed fixes which faults come in which
order and how long they last; their moments depend on the machine. Everything is on loopback; the histories
stay in the folder that is printed when something was broken. A lane has a server, workers and a seed of its
own; about four of them keep two cores busy.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, cast

import redis.asyncio
from redis.exceptions import RedisError

from aiodq._redis.scripts import Scripting
from tests.fault.events import read
from tests.fault.history import BREAKS_LEASES, Verdict, check, summed
from tests.fault.mutations import MUTATIONS
from tests.fault.processes import Fleet, ProducerProcess, WorkerProcess
from tests.fault.programs.settings import ProducerSettings, WorkerSettings
from tests.fault.proxy import Proxy, Way
from tests.servers import ServerKind, ServerProcess
from tests.shards import RedisShard, State

QUEUE: Final = "soak"
WORKERS: Final = 4
LEASE_S: Final = 2.0
REST_S: Final = 90.0
"""How long the queue may take to come to rest after the last fault."""

CLOSES_SOCKETS: Final = frozenset({"cut", "refuse", "half open", "client kill", "restart", "late reply"})
"""Faults that silence a living worker's channel; with presence its leases may then pass on."""

LOSABLE: Final = ("enqueue", "cancel", "claim", "ack", "retry", "extend")


class Soak:
    """One run: a server, a proxy before it, workers, a producer, and what is done to them."""

    def __init__(self, server: ServerProcess, proxy: Proxy, fleet: Fleet, dice: random.Random) -> None:
        self.server = server
        self.proxy = proxy
        self.fleet = fleet
        self.dice = dice
        self.client: Any = redis.asyncio.Redis(host="127.0.0.1", port=server.port)
        self._producers: list[ProducerProcess] = []
        self._deeds: Final[dict[str, Callable[[], Awaitable[None]]]] = {
            "kill": self._kill,
            "kill producer": self._kill_producer,
            "stop": self._stop,
            "terminate": self._terminate,
            "cut": self._cut,
            "refuse": self._refuse,
            "black hole": self._hole,
            "half open": self._half_open,
            "slow": self._slow,
            "deaf": self._deaf,
            "lost reply": self._lost_reply,
            "client kill": self._client_kill,
            "script flush": self._script_flush,
            "restart": self._restart,
            "frozen server": self._frozen_server,
            "memory full": self._memory_full,
            "demotion": self._demotion,
            "busy": self._busy,
        }

    # ---- the faults

    async def injure(self, until_s: float) -> None:
        """One fault after the other until that time, with short pauses."""
        kinds = sorted(self._deeds)
        while time.monotonic() < until_s:
            self.dice.shuffle(kinds)  # every kind comes up in every round
            for kind in kinds:
                if time.monotonic() >= until_s:
                    break
                since_ms = self.fleet.recorder.now_ms()
                await self._deeds[kind]()
                if kind not in ("kill", "stop"):
                    self.fleet.note(kind, since_ms=since_ms)
                await asyncio.sleep(self.dice.uniform(0.05, 0.8))

    def _somebody(self) -> WorkerProcess:
        return self.dice.choice([worker for worker in self.fleet.workers if worker.alive])

    async def _replace(self) -> None:
        await asyncio.to_thread(self.fleet.start)

    async def _kill(self) -> None:
        await asyncio.to_thread(self.fleet.kill, self._somebody())
        await self._replace()

    async def start_producer(self) -> None:
        told = ProducerSettings(
            url=self.fleet.settings.url,
            queue=QUEUE,
            folder=self.fleet.settings.folder,
            seed=self.dice.randrange(1 << 30),
            scripting=self.fleet.settings.scripting,
        )
        self._producers.append(await asyncio.to_thread(ProducerProcess, told))

    async def _kill_producer(self) -> None:
        await asyncio.to_thread(self._producers[-1].kill)
        await self.start_producer()

    async def _terminate(self) -> None:
        worker = self._somebody()
        worker.send(signal.SIGTERM)
        await asyncio.to_thread(worker.wait)
        await self._replace()

    async def _stop(self) -> None:
        worker, since_ms = self._somebody(), self.fleet.recorder.now_ms()
        worker.send(signal.SIGSTOP)
        await asyncio.sleep(self.dice.uniform(0.1, 2 * LEASE_S))
        worker.send(signal.SIGCONT)
        self.fleet.note("stop", worker.name, since_ms=since_ms)

    async def _cut(self) -> None:
        self.proxy.cut()

    async def _refuse(self) -> None:
        self.proxy.refuse = True
        self.proxy.cut()
        await asyncio.sleep(self.dice.uniform(0.1, 3))
        self.proxy.refuse = False

    async def _hole(self) -> None:
        ways: list[tuple[Way, ...]] = [("up",), ("down",), ("up", "down")]
        self.proxy.hold(*self.dice.choice(ways))
        await asyncio.sleep(self.dice.uniform(0.1, 4))
        self.proxy.go_on()

    async def _half_open(self) -> None:
        self.proxy.half_open()

    async def _slow(self) -> None:
        self.proxy.delay_s = self.dice.uniform(0.005, 0.1)
        await asyncio.sleep(self.dice.uniform(0.5, 2))
        self.proxy.delay_s = 0.0

    async def _deaf(self) -> None:
        self.proxy.swallow_pushes = True
        await asyncio.sleep(self.dice.uniform(0.5, 2))
        self.proxy.swallow_pushes = False

    async def _lost_reply(self) -> None:
        for name in self.dice.sample(LOSABLE, 3):
            self.proxy.lose_reply(name, how=self.dice.choice(["cut", "silence"]))
        await asyncio.sleep(0.5)

    async def _client_kill(self) -> None:
        await self._say("CLIENT", "KILL", "TYPE", self.dice.choice(["normal", "pubsub"]), "SKIPME", "yes")

    async def _script_flush(self) -> None:
        await self._say("SCRIPT", "FLUSH")
        await self._say("FUNCTION", "FLUSH")

    async def _restart(self) -> None:
        self.server.kill()
        await asyncio.sleep(self.dice.uniform(0, 3))
        await asyncio.to_thread(self.server.start)

    async def _frozen_server(self) -> None:
        self.server.pause()
        await asyncio.sleep(self.dice.uniform(0.1, 3))
        self.server.resume()

    async def _memory_full(self) -> None:
        await self._say("CONFIG", "SET", "maxmemory", 1)
        await asyncio.sleep(self.dice.uniform(0.2, 2))
        await self._say("CONFIG", "SET", "maxmemory", 0)

    async def _demotion(self) -> None:
        await self._say("REPLICAOF", "127.0.0.1", 1)
        await asyncio.sleep(self.dice.uniform(0.1, 1.5))
        await self._say("REPLICAOF", "NO", "ONE")

    async def _busy(self) -> None:
        await self._say("CONFIG", "SET", "busy-reply-threshold", 50)
        spin_us = int(self.dice.uniform(100_000, 900_000))
        source = (
            "local t = redis.call('TIME') local from = t[1] * 1000000 + t[2] repeat t = redis.call('TIME') "
            f"until t[1] * 1000000 + t[2] > from + {spin_us}"
        )
        await self._say("EVAL", source, 0)

    async def _say(self, *command: str | int) -> None:
        """Past the proxy; tried again when the server has just come back."""
        for _ in range(50):
            try:
                await self.client.execute_command(*command)
            except (RedisError, OSError):
                await asyncio.sleep(0.1)
            else:
                return
        raise RuntimeError(f"the server did not take {command[:2]}")

    # ---- the end

    async def come_to_rest(self) -> State:
        """Stops the producer. What the queue holds when nothing waits or runs any more, or when the patience
        is over."""
        await asyncio.to_thread(self._producers[-1].kill)
        shard = RedisShard(cast("Any", None), self.client, QUEUE, self.server.kind)
        until_s = time.monotonic() + REST_S
        while True:
            state = await shard.state()
            if not (state.schedule or state.processing) or time.monotonic() > until_s:
                break
            await asyncio.sleep(0.1)
        await asyncio.to_thread(self.fleet.stop_all)
        return await shard.state()

    async def aclose(self) -> None:
        for producer in self._producers:
            producer.close()
        await self.client.aclose()


async def soak(
    minutes: float,
    seed: int,
    folder: Path,
    *,
    kind: ServerKind = "valkey",
    scripting: Scripting = "eval",
    mutation: str | None = None,
) -> State:
    """One whole run; histories are written below `folder`. Gives what the queue held at its end. `mutation`:
    what the workers' scripts lack."""
    server = ServerProcess(kind, folder / "server").start()
    try:
        async with Proxy(server.port) as proxy:
            settings = WorkerSettings(
                url=proxy.patient_url(1.0),
                queue=QUEUE,
                folder=str(folder / "history"),
                lease_s=LEASE_S,
                scripting=scripting,
                mutation=mutation,
            )
            with Fleet(settings) as fleet:
                run = Soak(server, proxy, fleet, random.Random(seed))
                await asyncio.to_thread(fleet.start, WORKERS)
                until_s = time.monotonic() + minutes * 60
                try:
                    await run.start_producer()
                    await run.injure(until_s)
                    return await run.come_to_rest()
                finally:
                    await run.aclose()
    finally:
        server.kill()


def judge(folder: Path, final: State) -> Verdict:
    """What the histories below `folder` say."""
    events = read(folder / "history")
    return check(events, final, late_ms=30_000, breaks_leases=BREAKS_LEASES | CLOSES_SOCKETS)


async def soak_side_by_side(lanes: int, minutes: float, seed: int, folder: Path, **how: Any) -> list[Verdict]:
    """Runs with consecutive seeds at the same time, each below a folder named by its seed; judged when all
    have ended, since the proxies of all share this event loop."""
    folders = {number: folder / str(number) for number in range(seed, seed + lanes)}
    async with asyncio.TaskGroup() as group:
        runs = {
            number: group.create_task(soak(minutes, number, below, **how))
            for number, below in folders.items()
        }
    return [judge(folders[number], run.result()) for number, run in runs.items()]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1.0, help="how long faults are made (default 1)")
    parser.add_argument("--seed", type=int, default=1, help="which faults, and in which order (default 1)")
    parser.add_argument("--lanes", type=int, default=1, help="so many runs at once, with consecutive seeds")
    parser.add_argument("--server", choices=["valkey", "redis7"], default="valkey")
    parser.add_argument("--functions", action="store_true", help="deploy scripts as a function library")
    parser.add_argument(
        "--without", choices=sorted(MUTATIONS), help="break the workers' scripts: must be found"
    )
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="aiodq-soak-"))
    began = time.monotonic()
    verdicts = asyncio.run(
        soak_side_by_side(
            asked.lanes,
            asked.minutes,
            asked.seed,
            folder,
            kind=asked.server,
            scripting="functions" if asked.functions else "eval",
            mutation=asked.without,
        )
    )
    took_s = time.monotonic() - began
    broken = False
    for seed, verdict in enumerate(verdicts, asked.seed):
        print(f"seed {seed}, {asked.server}, {took_s:.0f} s")
        print(verdict)
        for name, found in verdict.broken().items():
            broken = True
            print(f"{name}: {', '.join(found[:10])}")
    if len(verdicts) > 1:
        print("all of them")
        print(summed(verdicts))
    if broken:
        print(f"BROKEN; the history is in {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    print("every promise was kept")
    return 0


if __name__ == "__main__":
    sys.exit(main())
