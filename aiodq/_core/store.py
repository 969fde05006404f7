"""What a store does: the seam between the worker and the server, one object for each shard of a queue.

Two stores exist, `aiodq._redis` and `aiodq._memory`; the property tests hold them to the same answers. All
times are the *store's*: Unix milliseconds (`_ms`) or microseconds (`_us`) of the server's clock; every wait
is a difference on that clock, for the caller to count on its own monotonic clock from the middle of the round
trip.

Four faces, by who uses them:

* `QueueStore`, `Store`: producers and operators, of a queue or of one shard. Calls repeat themselves after a
  lost reply, under one call id.
* `WorkerStore`: one worker's own connection to the shard, with the notices it receives. One turn at a time.
* `KeeperStore`: renews leases, from the keeper's own thread and event loop over a connection of its own.
* `Inspector` (`_core.inspection`): finds what contradicts itself, and mends it.

Every method raises `StoreUnavailable` when the server did not answer in time, `QueueFull` when it is out of
memory (only moves that grow the queue) or an enqueue would go beyond the store's bounds, `NewerProtocol` when
the queue was upgraded beyond this version, `WrongOrder` when it is first in, first out for others and not for
this caller, or the other way round, and `ScriptError` for a refusal that no repeat can mend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from aiodq._core.due import Due
from aiodq._core.inspection import Inspector
from aiodq._core.lease import Lease
from aiodq._core.lifecycle import Place
from aiodq._core.limit import Granted, Permit
from aiodq._core.rate import Booked, Booking
from aiodq._core.settlement import Settlement
from aiodq._core.unique import Hold

BATCH = 100
"""The most jobs that one script call touches: a script then stays near one millisecond."""

DEDUPE_MS = 300_000
"""How long at least the id of a finished job is refused again, when it was given by the caller (at most twice
this)."""

REPLAY_MS = 60_000
"""Where a failover can happen: how long at least it is noted when a job has ended (at most twice this). An
enqueue that its producer sends again after a failover does not make such a job anew."""

FIRST_SEAT_CAP_MS = 10_000
"""The longest sleep of a worker that holds a seat, for each shard that it serves: all its shards together see
one look in this time, however many they are."""

SECOND_SEAT_MS = 100
"""How long after the first seat the second one looks."""

WATCH_CROWD = 300
"""Among how many waiting workers somebody to wake is looked for, when some of the first are dead or late."""

CLOCK_STEP_US = 1_000_000
"""A difference between expected and seen server time above this counts as a step of a clock."""

STEADY_MS = 3_000
"""How long a worker's calls must have succeeded on one connection, without a clock step, before it takes
expired leases or accuses others; with a shorter lease, that long."""

DEAF_POLL_MS = 1_000
"""How often a worker looks whose channel has no receiver: nobody can wake it."""

SILENT_MS = 400
"""How long a lease holder's channel must be silent until the holder may be convicted."""

Was: TypeAlias = Literal["absent", "scheduled", "processing", "dead", "done"]


class Bounds(Struct, frozen=True):
    """How much an enqueue may add up to: jobs that wait or run, and bytes that payloads take; 0: no bound."""

    jobs: int = 0
    bytes: int = 0

    def of_one(self, shards: int) -> Bounds:
        """The part of one shard of so many, rounded up."""
        return self if shards == 1 else Bounds(-(-self.jobs // shards), -(-self.bytes // shards))


UNBOUNDED = Bounds()


class Entry(Struct, frozen=True, gc=False):
    """One job to write. `remember`: its id was given by the caller, so done marks are consulted. `hold`: what
    it is unique by, for `unite`."""

    job_id: str
    payload: bytes
    due: Due
    remember: bool = False
    hold: Hold | None = None


class Placed(Struct, frozen=True, gc=False):
    """What became of an entry. Both false: an existing job was kept. `due_ms` is that of the job that has the
    id now. `job_id`: another job is there in its place, which it is unique with."""

    created: bool
    replaced: bool
    due_ms: int
    job_id: str | None = None


class Found(Struct, frozen=True):
    """One job as it is stored.

    Attributes:
        at_ms: scheduled: its due time; processing: its lease's deadline; dead: when it was buried; done: 0.
        due_ms: its due time; None where it is not known (dead, done, absent).
        holder: the worker that holds its lease.
    """

    job_id: str
    was: Was
    at_ms: int = 0
    due_ms: int | None = None
    payload: bytes | None = None
    tally: bytes | None = None
    crashes: int = 0
    interruptions: int = 0
    holder: str | None = None


class Page(Struct, frozen=True):
    """Some jobs of one place in the order of their scores, and the server's time when they were read."""

    now_ms: int
    jobs: list[Found]


class ShardStats(Struct, frozen=True):
    """Counts of one shard. `due` are scheduled jobs whose time has come; `expired` leases past their
    deadline.

    Attributes:
        oldest_overdue_ms: how long the first due job has waited; 0 when none is due.
        paused: the reason given to `pause`; None when the queue runs.
        idle: workers that wait in this shard.  holders: workers that hold leases.
    """

    now_ms: int
    due: int
    scheduled: int
    processing: int
    expired: int
    dead: int
    oldest_overdue_ms: int
    paused: str | None
    idle: int
    holders: int


class Revival(Struct, frozen=True):
    """A dead letter to schedule again: only if it is still the one buried at `buried_ms`."""

    job_id: str
    buried_ms: int
    due: Due
    tally: bytes


class QueueStore(Protocol):
    """The jobs of a queue, for producers and operators. Batches of at most `BATCH` are the store's own
    concern: callers may pass any number; answers come in the order of the questions. Each batch is atomic,
    the whole is not."""

    async def enqueue(self, entries: Sequence[Entry], /) -> list[Placed]: ...

    async def replace(self, entries: Sequence[Entry], /) -> list[Placed]: ...

    async def unite(self, entries: Sequence[Entry], /) -> list[Placed]:
        """As `enqueue`, for entries with a `hold`: of those that mean the same one is enough."""
        ...

    async def cancel(self, job_ids: Sequence[str], /) -> list[Was]:
        """Where each job was; those that were scheduled are gone now."""
        ...

    async def reschedule(self, moves: Sequence[tuple[str, Due]], /) -> list[Was]:
        """Where each job was; those that were scheduled have the new due time."""
        ...

    async def replay(self, revivals: Sequence[Revival], /) -> list[bool]: ...

    async def purge(self, job_ids: Sequence[str], /) -> list[bool]:
        """Removes dead letters by id."""
        ...

    async def trim(self, *, age_ms: int, count: int) -> int:
        """Removes dead letters buried more than `age_ms` ago, then the oldest above `count`. Returns how
        many."""
        ...

    async def find(self, job_ids: Sequence[str], /) -> list[Found]: ...

    async def peek(self, place: Place, /, *, limit: int, offset: int = 0) -> Page: ...

    async def stats(self) -> ShardStats: ...

    async def pause(self, reason: str, /) -> None: ...

    async def resume(self) -> None: ...


class Store(QueueStore, Protocol):
    """One shard of one queue; of a queue that is not divided, all of it."""

    def worker(self, worker_id: str, on_notice: Callable[[Notice], None], /) -> WorkerStore:
        """A worker's own access. `on_notice` is called in the event loop of the one who called this."""
        ...

    def keeper(self, worker_id: str, /) -> KeeperStore:
        """Lease renewal for that worker. May be called, and is then used, in another thread with its own
        event loop."""
        ...

    def inspector(self) -> Inspector:
        """The shard as a consistency check sees it."""
        ...


NoticeKind: TypeAlias = Literal["due", "resume", "renew", "connected"]


class Notice(Struct, frozen=True):
    """A hint from the server; a notice only ever makes a worker look sooner.

    Attributes:
        kind: `due`: something is due in `wait_us`; `resume`: the queue runs again; `renew`: renew leases now
            (a clock step was seen); `connected`: the subscription stands (again), so look once now.
        wait_us: how long from the moment when it was published.
        at_us: that moment, by the server's clock, Unix µs; 0: just now. A notice may have been held up on its
            way.
    """

    kind: NoticeKind
    wait_us: int = 0
    at_us: int = 0


class ClaimRequest(Struct, frozen=True):
    """What a worker asks for.

    Attributes:
        want: free slots; 0: none, but give up my seat and wake somebody else in my place.
        lease_ms: length of the leases.
        max_bytes: stop after this many payload bytes; the first job is always given.
        expected_now_us: the server time this worker expects, from the last it saw and its own monotonic
            clock; None at the first call. Off by more than `CLOCK_STEP_US`: no expired lease is taken in this
            call; too late, or None: leases that reach too far ahead are pulled in (see `clamp_from`).
        steady_in_ms: 0: this worker may take expired leases. Else the time until it may: it then looks again
            at that time.
        far: from [1, 2): spreads the looks of workers without a seat.
        clamp_from: where to go on with pulling leases in, as the last answer said; -1: nothing to do.
        clear_ms: when this worker last saw that no lease had expired, server time; -1: not known. Leases that
            ended before that were renewed while the clock was back: they get their length anew.
        cap_ms: the longest sleep in a seat.
    """

    want: int
    lease_ms: int
    max_bytes: int = 4 * 1024 * 1024
    expected_now_us: int | None = None
    steady_in_ms: int = 0
    far: float = 1.5
    clamp_from: int = -1
    clear_ms: int = -1
    cap_ms: int = FIRST_SEAT_CAP_MS


class ClaimAnswer(Struct, frozen=True):
    """What a claim found.

    Attributes:
        now_us: the server's time.
        leases: the jobs given, expired leases first.
        wait_us: how long to sleep until the next look; None when as many jobs were given as wanted, or `want`
            was 0.
        seat: 1 or 2: this worker answers for the head of the schedule; 0: others do.
        others: how many other workers hold leases here.
        paused: the queue is paused: nothing was given.
        deaf: the worker's channel has no receiver: it must subscribe again, and poll each second until then.
        stepped: the server's clock is not where it was expected: the caller is not steady for a while, and
            all keepers were told to renew.
        clamp_next: pass it as the next `clamp_from`; -1: done.
        clear: no lease is expired, after this claim.
    """

    now_us: int
    leases: list[Lease]
    wait_us: int | None
    seat: int = 0
    others: int = 0
    paused: bool = False
    deaf: bool = False
    stepped: bool = False
    clamp_next: int = -1
    clear: bool = False


class TurnAnswer(Struct, frozen=True):
    """Of each settlement: True: accepted; False: the lease had passed to another claim, nothing was
    changed."""

    settled: list[bool]
    claim: ClaimAnswer | None


class SweepAnswer(Struct, frozen=True):
    """Workers silent for at least `SILENT_MS`; when to come back for those silent for less (None: nobody
    is); and how many others hold leases."""

    silent: list[str]
    again_in_ms: int | None
    others: int


class WorkerStore(Protocol):
    """One worker's access to one shard, over connections of its own."""

    @property
    def unbroken_since(self) -> float | None:
        """`time.monotonic()` since when every call succeeded on one unbroken connection; None: not
        connected."""
        ...

    @property
    def trouble(self) -> str:
        """Why the last try to connect failed, for people; empty: it did not."""
        ...

    async def listen(self) -> None:
        """Receives notices until cancelled; reconnects for ever, waiting at most a second between tries.
        Reports `connected` after each (re)subscription."""
        ...

    async def turn(
        self, settlements: Sequence[Settlement], claim: ClaimRequest | None, /, *, last: bool = False
    ) -> TurnAnswer:
        """Writes settlements (at most `BATCH` of each kind), then claims: one round trip. `last`: the worker
        holds no lease after these settlements, so it leaves the list of holders.

        Repeats itself after a lost reply, for at most 60 s from the first sending, then raises
        `StoreUnavailable`: whether the settlements counted is unknown; a claim that nobody heard of runs out
        with its leases.
        Cancelling it cancels the waiting, not the turn: what was sent is carried out.
        """
        ...

    async def admit(self, bookings: Sequence[Booking], /) -> Booked:
        """Books time of rates' buckets, at most `BATCH` of them; repeats itself as `turn` does. What is
        booked and not used is lost."""
        ...

    async def occupy(self, permits: Sequence[Permit], /) -> list[Granted]:
        """Asks for permits of jobs this worker holds, at most `BATCH`; repeats itself as `turn` does."""
        ...

    async def vacate(self, permits: Sequence[Permit], /) -> int:
        """These jobs have left processing: their permits are free, and the first that wait for them are due
        again. Gives how many. At most `BATCH`; repeats itself as `turn` does."""
        ...

    async def leave(self, *, holds: bool) -> None:
        """Gives up the seat, waking somebody else; unless it `holds` leases, also leaves the list of
        holders."""
        ...

    async def sweep(self) -> SweepAnswer:
        """Looks for lease holders whose channel is silent, and notes since when."""
        ...

    async def evicts(self) -> str | None:
        """The name of the server's policy if it drops keys when its memory is full. None: it drops none, or
        may not be asked."""
        ...

    async def convict(self, worker: str, /) -> bool:
        """Makes the leases of a worker found silent expire now, a page at a time. True: call again, there are
        more."""
        ...

    async def aclose(self) -> None: ...


class KeeperStore(Protocol):
    """Lease renewal, over a connection of its own."""

    async def extend(self, leases: Sequence[tuple[str, str]], /, *, lease_ms: int) -> list[bool]:
        """Sets the deadline of (job id, token) pairs to now + `lease_ms`. False: that lease has passed to
        another.

        Tries once; raises `StoreUnavailable` when that failed: the keeper repeats at its own pace.
        """
        ...

    async def aclose(self) -> None: ...


class Backend(Protocol):
    """One server (or one memory) as seen from one event loop: makes the stores, owns their connections."""

    def store(
        self,
        queue: str,
        /,
        *,
        prefix: str = "aiodq",
        shard: int | None = None,
        fifo: bool = False,
        bounds: Bounds = UNBOUNDED,
    ) -> Store:
        """One shard of a queue; `shard` is None for a queue that is not divided. `fifo`: of jobs due in one
        millisecond the one that came first is given first. `bounds`: for what is enqueued through this store.
        Asked again, gives the same object."""
        ...

    async def layout(self, queue: str, /, *, prefix: str = "aiodq", shards: int) -> int:
        """Divides a queue that is empty and not divided yet. Returns how many shards it has; 0: it holds
        jobs that are in none. Raises as stores do."""
        ...

    async def aclose(self) -> None: ...
