"""One shard of either store, laid open: one test runs on memory and on real servers, and sees every place.

`OpenShard` is what tests hold: the `Store` itself, workers with the notices they heard, the whole state as a
value (`State`), the store's clock, and the few pokes that bring a shard into states that take long to reach.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, cast

import redis.asyncio
from msgspec import Struct
from msgspec.structs import replace

from aiodq._core.due import Due
from aiodq._core.lease import WORKER_ID_LENGTH, Lease
from aiodq._core.limit import Permit
from aiodq._core.settlement import Acked, Buried, Deferred, Settlement
from aiodq._core.store import (
    ClaimAnswer,
    ClaimRequest,
    Entry,
    KeeperStore,
    Notice,
    NoticeKind,
    Store,
    TurnAnswer,
    WorkerStore,
)
from aiodq._memory import MemoryBackend
from aiodq._redis.keys import NUMBER_WIDTH, ShardKeys
from aiodq._redis.store import RedisStore

HOUR_MS = 3_600_000
LEASE_MS = 30_000


class State(Struct, frozen=True):
    """All that a shard stores, but sender records. Sets and hashes by their member; times in ms.

    Attributes:
        tally: job id -> (history, crashes, interruptions).
        done: job id -> due time, over all done marks.
        order: of a first-in-first-out queue, the jobs that have a number, by it.
    """

    schedule: dict[str, int] = {}
    processing: dict[str, int] = {}
    dead: dict[str, int] = {}
    payload: dict[str, bytes] = {}
    lease: dict[str, str] = {}
    tally: dict[str, tuple[bytes | None, int, int]] = {}
    done: dict[str, int] = {}
    order: list[str] = []
    idle: dict[str, int] = {}
    workers: dict[str, int] = {}
    fence: int = 0
    paused: str | None = None

    def but(self, **changes: object) -> State:
        """The same with some places exchanged. In a first-in-first-out queue a job with another payload has
        another number: by its turn in the schedule."""
        payload = cast("dict[str, bytes] | None", changes.get("payload"))
        if self.order and payload is not None and "order" not in changes:
            kept = [i for i in self.order if i in payload and payload[i] == self.payload.get(i)]
            turns = [*cast("dict[str, int]", changes.get("schedule", {})), *payload]
            changes["order"] = [*kept, *dict.fromkeys(i for i in turns if i in payload and i not in kept)]
        return replace(self, **changes)

    def faults(self) -> list[str]:
        """What contradicts itself: a job in two places, or whose payload or lease does not live as long."""
        places = Counter([*self.schedule, *self.processing, *self.dead])
        found = [f"{i} is in {count} places" for i, count in places.items() if count > 1]
        found += [f"{i} has a place but no payload" for i in set(places) - set(self.payload)]
        found += [f"{i} has a payload but no place" for i in set(self.payload) - set(places)]
        found += [f"{i}: lease without processing" for i in set(self.lease) - set(self.processing)]
        found += [f"{i}: processing without lease" for i in set(self.processing) - set(self.lease)]
        found += [f"{i} has counters but no place" for i in set(self.tally) - set(places)]
        found += [f"{i} has a number but no place" for i in set(self.order) - set(places)]
        found += [f"{i} has no number" for i in set(self.schedule) - set(self.order) if self.order]
        return sorted(found)

    def without(self, *job_ids: str) -> State:
        """The same without a trace of these jobs, done marks aside."""
        names = ("schedule", "processing", "dead", "payload", "lease", "tally")
        places = {name: cast("dict[str, object]", getattr(self, name)) for name in names}
        return replace(
            self,
            order=[job_id for job_id in self.order if job_id not in job_ids],
            **{n: {k: v for k, v in place.items() if k not in job_ids} for n, place in places.items()},
        )


def worker_id(name: str) -> str:
    """A worker id of the right width, recognisable in a failing comparison."""
    return name.ljust(WORKER_ID_LENGTH, "-")


class Hand:
    """One worker: its access to the shard, and the notices it heard so far."""

    def __init__(self, store: Store, name: str) -> None:
        self.id = worker_id(name)
        self.notices: list[Notice] = []
        self.store: WorkerStore = store.worker(self.id, self.notices.append)
        self.keeper: KeeperStore = store.keeper(self.id)
        self._listening: asyncio.Task[None] | None = None

    async def listen(self) -> None:
        """Returns once its channel has a receiver."""
        heard = len(self.notices)
        self._listening = asyncio.create_task(self.store.listen())
        await until(lambda: len(self.notices) > heard)

    async def fall_silent(self) -> None:
        """As a killed process: its channel has no receiver any more (see `OpenShard.silence`)."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._listening = None

    async def turn(
        self, *settlements: Settlement, claim: ClaimRequest | None = None, last: bool = False
    ) -> TurnAnswer:
        return await self.store.turn(settlements, claim, last=last)

    async def settle(self, *settlements: Settlement, last: bool = False) -> list[bool]:
        return (await self.store.turn(settlements, None, last=last)).settled

    async def claim(self, want: int, lease_ms: int = LEASE_MS, *, max_bytes: int = 1 << 22) -> ClaimAnswer:
        """A steady claim whose expectation of the server's time is right."""
        request = ClaimRequest(want, lease_ms, max_bytes=max_bytes)
        return await self.ask(request)

    async def ask(self, request: ClaimRequest) -> ClaimAnswer:
        answer = (await self.store.turn([], request)).claim
        assert answer is not None
        return answer

    async def take(self, want: int = 1, lease_ms: int = LEASE_MS) -> list[Lease]:
        return (await self.claim(want, lease_ms)).leases

    def heard(self, kind: NoticeKind) -> list[Notice]:
        return [notice for notice in self.notices if notice.kind == kind]

    async def hears(self, kind: NoticeKind) -> Notice:
        """The first notice of this kind, now or soon."""
        await until(lambda: bool(self.heard(kind)))
        return self.heard(kind)[0]

    async def hears_in_all(self, count: int) -> None:
        """Returns once at least so many notices were heard."""
        await until(lambda: len(self.notices) >= count)

    async def aclose(self) -> None:
        await self.fall_silent()
        await self.store.aclose()
        await self.keeper.aclose()


async def until(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    """Returns as soon as the condition holds; AssertionError after `timeout_s`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not condition():
        assert loop.time() < deadline, f"not within {timeout_s} s"
        await asyncio.sleep(0.002)


class OpenShard(ABC):
    """A shard for one test."""

    kind: str

    def __init__(self, store: Store, *, fifo: bool = False) -> None:
        self.store = store
        self.fifo = fifo
        self._hands: list[Hand] = []

    @abstractmethod
    async def now_us(self) -> int: ...

    @abstractmethod
    async def state(self) -> State: ...

    @abstractmethod
    async def wait_ms(self, ms: int) -> None:
        """Lets time pass on the store's clock."""

    @abstractmethod
    async def poke_deadline(self, job_id: str, deadline_ms: int) -> None:
        """Moves a lease's deadline, as a step of the clock would."""

    @abstractmethod
    async def poke_due(self, job_id: str, due_ms: int) -> None: ...

    @abstractmethod
    async def poke_plan(self, worker: str, plan_ms: int | None) -> None:
        """Sets when a waiting worker plans to look; None: it is not waiting."""

    @abstractmethod
    async def poke_sign(self, worker: str, sign_ms: int) -> None:
        """Sets a holder's last sign of life; negative: silent since."""

    @abstractmethod
    async def lose(self, place: str, job_id: str) -> None:
        """Removes one field or member, as someone else's hand may."""

    @abstractmethod
    async def is_heard(self, worker: str) -> bool:
        """Whether the worker's channel has a receiver."""

    async def silence(self, hand: Hand) -> None:
        """The worker dies; returns when the store can know."""
        await hand.fall_silent()
        for _ in range(1000):
            if not await self.is_heard(hand.id):
                return
            await asyncio.sleep(0.002)
        raise AssertionError(f"{hand.id} is still heard")

    async def now_ms(self) -> int:
        return await self.now_us() // 1000

    def hand(self, name: str) -> Hand:
        """A worker that does not listen (yet): its channel is silent."""
        hand = Hand(self.store, name)
        self._hands.append(hand)
        return hand

    async def listener(self, name: str) -> Hand:
        hand = self.hand(name)
        await hand.listen()
        return hand

    async def lapse(self, *job_ids: str) -> None:
        """The leases of these jobs have just expired."""
        for job_id in job_ids:
            await self.poke_deadline(job_id, await self.now_ms() - 1)

    async def seed(self) -> Seeds:
        """A job in each place, with everything that may belong to one."""
        return await _seed(self)

    async def aclose(self) -> None:
        for hand in self._hands:
            await hand.aclose()


async def let_go(hand: Hand, due_ms: int) -> int:
    """The job `waiting`, due at that time, waits for a permit that `held` has; then there is another one."""
    name = "report:7"
    await hand.store.occupy([Permit("held", name, 1), Permit("waiting", name, 1, 1, due_ms, due_ms)])
    return await hand.store.vacate([Permit("nobody", name, 2)])


class Seeds(Struct, frozen=True):
    """What `OpenShard.seed` has put where.

    Attributes:
        waiting: scheduled in an hour, never failed.  retried: scheduled in two hours, with a history.
        held, failing: in processing, held by `holder` for `LEASE_MS`, without and with a history.
        buried: a dead letter with a history.  done: acked with a done mark.
        stale: a token of `held` from an earlier claim.
    """

    holder: Hand
    held: Lease
    failing: Lease
    stale: str
    state: State
    waiting: str = "waiting"
    retried: str = "retried"
    buried: str = "buried"
    done: str = "done"

    @property
    def places(self) -> dict[str, str]:
        return {
            "scheduled": self.waiting,
            "processing": self.held.job_id,
            "dead": self.buried,
            "done": self.done,
            "absent": "nobody",
        }


async def _seed(shard: OpenShard) -> Seeds:
    store, holder = shard.store, await shard.listener("holder")
    await store.enqueue(
        [Entry(name, f"body of {name}".encode(), Due(0)) for name in ("buried", "done", "retried")]
    )
    one, two, three = await holder.take(3)
    await holder.settle(
        Buried(one.job_id, one.token, b"history of buried"),
        Acked(two.job_id, two.token, remember=True),
        Deferred(three.job_id, three.token, Due(2 * HOUR_MS), b"history of retried"),
    )
    await store.enqueue(
        [Entry("failing", b"body of failing", Due(0)), Entry("held", b"body of held", Due(0))]
    )
    first, stale = await holder.take(2)
    await holder.settle(Deferred(first.job_id, first.token, Due(0), b"history of failing"))
    await shard.lapse("held")
    leases = {lease.job_id: lease for lease in (await holder.claim(2)).leases}
    await store.enqueue([Entry("waiting", b"body of waiting", Due(HOUR_MS))])
    state = await shard.state()
    assert set(state.schedule) == {"waiting", "retried"}
    assert set(state.processing) == {"held", "failing"}
    assert set(state.dead) == {"buried"}
    assert set(state.done) == {"done"}
    return Seeds(holder, leases["held"], leases["failing"], stale.token, state)


class MemoryShard(OpenShard):
    """In memory, under a clock that stands still but when waited for."""

    kind = "memory"

    def __init__(self, queue: str, start_us: int = 1_750_000_000_123_456, *, fifo: bool = False) -> None:
        store = MemoryBackend(lambda: self.time_us).store(queue, fifo=fifo)
        super().__init__(store, fifo=fifo)
        self.time_us = start_us
        self.data = store.shard

    async def now_us(self) -> int:
        return self.time_us

    async def wait_ms(self, ms: int) -> None:
        self.time_us += ms * 1000

    async def state(self) -> State:
        data = self.data
        counted = {*data.tally, *data.crashes, *data.interruptions}
        return State(
            schedule=dict(data.schedule),
            processing=dict(data.processing),
            dead=dict(data.dead),
            payload=dict(data.payload),
            lease=dict(data.lease),
            tally={
                i: (data.tally.get(i), data.crashes.get(i, 0), data.interruptions.get(i, 0)) for i in counted
            },
            done=data.done.all(self.time_us // 1000),
            order=sorted(data.order, key=data.order.__getitem__),
            idle=dict(data.idle),
            workers=dict(data.workers),
            fence=data.last_fence,
            paused=data.paused,
        )

    async def poke_deadline(self, job_id: str, deadline_ms: int) -> None:
        self.data.processing.put(job_id, deadline_ms)

    async def poke_due(self, job_id: str, due_ms: int) -> None:
        self.data.schedule.put(job_id, due_ms)

    async def poke_plan(self, worker: str, plan_ms: int | None) -> None:
        self.data.idle.remove(worker)
        if plan_ms is not None:
            self.data.idle.put(worker, plan_ms)

    async def poke_sign(self, worker: str, sign_ms: int) -> None:
        self.data.workers.put(worker, sign_ms)

    async def is_heard(self, worker: str) -> bool:
        return self.data.heard(worker)

    async def lose(self, place: str, job_id: str) -> None:
        sets = {"schedule": self.data.schedule, "processing": self.data.processing, "dead": self.data.dead}
        if place in sets:
            sets[place].remove(job_id)
        elif place == "payload":
            del self.data.payload[job_id]
        else:
            assert place == "lease", place
            del self.data.lease[job_id]


class RedisShard(OpenShard):
    """On a real server, seen through a plain client beside the store's own connections."""

    def __init__(
        self, store: Store, client: redis.asyncio.Redis, queue: str, kind: str, *, fifo: bool = False
    ) -> None:
        super().__init__(store, fifo=fifo)
        self.client = client
        self.keys = ShardKeys(queue, fifo=fifo)
        self.kind = kind

    def plain(self) -> Store:
        """The same keys for a caller who does not know that they are in order."""
        return cast("RedisStore", self.store)._backend.store(self.keys.queue)

    async def now_us(self) -> int:
        seconds, micros = await self.client.time()
        return seconds * 1_000_000 + micros

    async def wait_ms(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)

    async def _scores(self, name: str) -> dict[str, int]:
        pairs = await cast(
            "Awaitable[list[tuple[bytes, float]]]",
            self.client.zrange(self.keys.named(name), 0, -1, withscores=True),
        )
        bare = NUMBER_WIDTH if name == "schedule" and self.keys.fifo else 0
        return {member.decode()[bare:]: int(score) for member, score in pairs}

    async def _hash(self, name: str) -> dict[str, bytes]:
        fields = await cast("Awaitable[dict[bytes, bytes]]", self.client.hgetall(self.keys.named(name)))
        return {field.decode(): value for field, value in fields.items()}

    async def state(self) -> State:
        tally = await self._hash("tally")
        counted = {field[2:] for field in tally}
        done: dict[str, int] = {}
        for bucket in ("done0", "done1", "done2"):
            done |= {job_id: int(due) for job_id, due in (await self._hash(bucket)).items()}
        order = await self._hash("order")
        fence = await cast("Awaitable[bytes | None]", self.client.get(self.keys.named("fence")))
        paused = (await self._hash("meta")).get("paused")
        return State(
            schedule=await self._scores("schedule"),
            processing=await self._scores("processing"),
            dead=await self._scores("dead"),
            payload=await self._hash("payload"),
            lease={job_id: token.decode() for job_id, token in (await self._hash("lease")).items()},
            tally={
                i: (tally.get(f"t:{i}"), int(tally.get(f"c:{i}", 0)), int(tally.get(f"i:{i}", 0)))
                for i in counted
            },
            done=done,
            order=sorted(order, key=order.__getitem__),
            idle=await self._scores("idle"),
            workers=await self._scores("workers"),
            fence=int(fence or 0),
            paused=None if paused is None else paused.decode(),
        )

    async def put(self, name: str, member: str, score: int) -> None:
        """Puts a job or worker into a sorted set."""
        await self.client.zadd(self.keys.named(name), {await self._member(name, member): score})

    async def _member(self, name: str, job_id: str) -> str:
        """As it stands in that set."""
        if name != "schedule" or not self.keys.fifo:
            return job_id
        number = await cast("Awaitable[bytes | None]", self.client.hget(self.keys.named("order"), job_id))
        return (number or b"").decode() + job_id

    async def poke_deadline(self, job_id: str, deadline_ms: int) -> None:
        await self.put("processing", job_id, deadline_ms)

    async def poke_due(self, job_id: str, due_ms: int) -> None:
        await self.put("schedule", job_id, due_ms)

    async def poke_plan(self, worker: str, plan_ms: int | None) -> None:
        if plan_ms is None:
            await self.client.zrem(self.keys.named("idle"), worker)
        else:
            await self.put("idle", worker, plan_ms)

    async def poke_sign(self, worker: str, sign_ms: int) -> None:
        await self.put("workers", worker, sign_ms)

    async def is_heard(self, worker: str) -> bool:
        channel = f"{self.keys.wake}{worker}"
        counts = await cast("Awaitable[list[tuple[bytes, int]]]", self.client.pubsub_numsub(channel))
        return counts[0][1] > 0

    async def lose(self, place: str, job_id: str) -> None:
        if place in ("payload", "lease"):
            await self.client.hdel(self.keys.named(place), job_id)
        else:
            await self.client.zrem(self.keys.named(place), await self._member(place, job_id))

    async def _port(self) -> int:
        return cast("int", self.client.connection_pool.connection_kwargs["port"])

    async def send_raw(self, command: bytes) -> None:
        """Sends a packed command over a connection of its own; returns when it was carried out or refused."""
        reader, writer = await asyncio.open_connection("127.0.0.1", await self._port())
        writer.write(command + b"PING\r\n")
        await reader.readuntil(b"+PONG\r\n")
        writer.close()
        await writer.wait_closed()

    async def aclose(self) -> None:
        await super().aclose()
        await self.client.aclose()


class ClusterShard(RedisShard):
    """In a cluster: what is no command of a key is asked of the node that serves the shard."""

    async def _ask(self, *command: str) -> Any:
        client = cast("redis.asyncio.RedisCluster", self.client)
        await client.initialize()
        node = client.get_node_from_key(self.keys.base)
        assert node is not None
        return await client.execute_command(*command, target_nodes=node)

    async def now_us(self) -> int:
        seconds, micros = await self._ask("TIME")
        return int(seconds) * 1_000_000 + int(micros)

    async def is_heard(self, worker: str) -> bool:
        _, count = await self._ask("PUBSUB", "SHARDNUMSUB", f"{self.keys.wake}{worker}")
        return int(count) > 0

    async def _port(self) -> int:
        client = cast("redis.asyncio.RedisCluster", self.client)
        await client.initialize()
        node = client.get_node_from_key(self.keys.base)
        assert node is not None
        return int(node.port)
