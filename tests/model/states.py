"""What the model remembers: its state as values, and the form in which two equal states are the same value.

Fences and the clock are kept as ranks, call ids as "the current one" or "an old one", so that the state space
is finite.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

Safeguard: TypeAlias = Literal[
    "fence", "record", "stale", "second seat", "expired claims", "growing fence", "marks"
]
SAFEGUARDS: Final[tuple[Safeguard, ...]] = (
    "fence",
    "record",
    "stale",
    "second seat",
    "expired claims",
    "growing fence",
    "marks",
)

T = TypeVar("T")

Answer: TypeAlias = tuple[int, int] | bool | None
"""Of a claim: the job and fence given, or None. Of an ack: whether it was accepted."""

Plan: TypeAlias = Literal["head", "second", "far"]
Fault: TypeAlias = Literal["lose reply", "late copy", "forget", "fail over", "clock back", "lose notice"]


FAULTS: Final[tuple[Fault, ...]] = (
    "lose reply",
    "late copy",
    "forget",
    "fail over",
    "clock back",
    "lose notice",
)


class Job(NamedTuple):
    """One job on the server. `done` counts accepted completions (a server that is rewound forgets them)."""

    scheduled: bool = False
    processing: bool = False
    payload: bool = False
    due: bool = False
    runs: bool = False
    token: tuple[int, int] | None = None  # fence, worker
    done: int = 0
    done_by: int | None = None


class Record(NamedTuple):
    """A sender's last call and its answer. `current`: it is the call the sender is at."""

    current: bool
    answer: Answer


class Server(NamedTuple):
    jobs: tuple[Job, Job]
    last_fence: int = 0
    claims: tuple[Record | None, Record | None] = (None, None)
    acks: tuple[Record | None, Record | None] = (None, None)
    written: bool = False  # the producer's record
    idle: tuple[Plan | None, Plan | None] = (None, None)


class Worker(NamedTuple):
    """`reply`: the server has carried the call out, and its answer is on the way. `copy`: a packet of that
    call (or an older one) that the network may still deliver."""

    at: Literal["waits", "claims", "holds", "acks"] = "claims"
    reply: tuple[Answer] | None = None
    timer: Plan = "head"
    notice: Plan | None = None
    holds: tuple[int, int] | None = None  # job, fence
    copy: tuple[str, tuple[int, int] | None, bool] | None = None  # kind, what it acks, current


class Model(NamedTuple):
    """Everything.

    Attributes:
        snapshot: what a replica that fell behind has.  given: the highest fence given for each job.
        told: jobs whose enqueue was acknowledged.  taken: those that a rewind took.
        again: those that their producer will send again, since the server failed over.
    """

    server: Server
    snapshot: Server | None = None
    workers: tuple[Worker, Worker] = (Worker(), Worker())
    producer: Literal["sends", "waits", "told"] = "sends"
    clock: int = 1
    given: tuple[int, int] = (0, 0)
    told: tuple[bool, bool] = (True, False)
    taken: tuple[bool, bool] = (False, False)
    again: tuple[bool, bool] = (False, False)
    expiries: int = 0
    faults: tuple[Fault, ...] = ()
    violation: str = ""


Step: TypeAlias = tuple[str, Model]

_FIRST: Final = Server(jobs=(Job(scheduled=True, payload=True), Job()))
START: Final = Model(_FIRST)


def put(pair: tuple[T, T], at: int, value: T) -> tuple[T, T]:
    """A pair with one side exchanged."""
    return (value, pair[1]) if at == 0 else (pair[0], value)


def is_held(m: Model, j: int) -> bool:
    """Whether the lease's worker knows of it, or will when its answer arrives or is asked for again."""
    token = m.server.jobs[j].token
    if token is None:
        return False
    fence, w = token
    worker, record = m.workers[w], m.server.claims[w]
    promised = record is not None and record.current and record.answer == (j, fence)
    return worker.holds == (j, fence) or (worker.at == "claims" and promised)


def is_waiting(server: Server) -> bool:
    return any(job.scheduled or (job.processing and not job.runs) for job in server.jobs)


def with_worker(m: Model, w: int, worker: Worker) -> Model:
    return m._replace(workers=put(m.workers, w, worker))


def with_job(m: Model, j: int, job: Job) -> Model:
    return m._replace(server=m.server._replace(jobs=put(m.server.jobs, j, job)))


def old_calls(m: Model, w: int) -> Model:
    """The worker's next call has a new id: records and packets of the one before are old now."""

    def aged(server: Server) -> Server:
        def old(record: Record | None) -> Record | None:
            return None if record is None or m.workers[w].copy is None else Record(False, None)

        return server._replace(
            claims=put(server.claims, w, old(server.claims[w])), acks=put(server.acks, w, old(server.acks[w]))
        )

    worker = m.workers[w]
    if worker.copy is not None:
        m = with_worker(m, w, worker._replace(copy=(worker.copy[0], worker.copy[1], False)))
    return m._replace(server=aged(m.server), snapshot=m.snapshot and aged(m.snapshot))


def _known(m: Model, server: Server) -> Server:
    """Without the records of calls that are over and of which no packet is left."""
    for w in (0, 1):
        worker = m.workers[w]
        if worker.copy is None and worker.at != "claims":
            server = server._replace(claims=put(server.claims, w, None))
        if worker.copy is None and worker.at != "acks":
            server = server._replace(acks=put(server.acks, w, None))
    return server


def canonical(m: Model) -> Model:
    """The same state without what can have no effect any more, and with fences and the clock by rank: only
    their order matters."""
    for w in (0, 1):
        if m.workers[w].at != "waits":  # its timer is set anew when it waits again
            m = with_worker(m, w, m.workers[w]._replace(timer="head"))
    m = m._replace(server=_known(m, m.server), snapshot=m.snapshot and _known(m, m.snapshot))
    if m.snapshot is None:
        given = tuple(0 if job.done else fence for job, fence in zip(m.server.jobs, m.given, strict=True))
        m = m._replace(given=given)  # type: ignore[arg-type]
        if m.clock >= m.server.last_fence:
            m = m._replace(server=m.server._replace(last_fence=0))
    values = {0, m.clock, m.server.last_fence, *m.given}
    for server in (m.server, m.snapshot) if m.snapshot is not None else (m.server,):
        values |= {server.last_fence}
        values |= {job.token[0] for job in server.jobs if job.token}
        values |= {r.answer[1] for r in server.claims if r is not None and isinstance(r.answer, tuple)}
    for worker in m.workers:
        values |= {worker.holds[1]} if worker.holds else set()
        values |= {worker.copy[1][1]} if worker.copy and worker.copy[1] else set()
        values |= {r[1] for r in worker.reply or () if isinstance(r, tuple)}
    rank = {value: n for n, value in enumerate(sorted(values))}

    def ranked_pair(pair: Answer) -> tuple[int, int] | None:
        return (pair[0], rank[pair[1]]) if isinstance(pair, tuple) else None

    def ranked_server(server: Server) -> Server:
        jobs = tuple(j._replace(token=j.token and (rank[j.token[0]], j.token[1])) for j in server.jobs)
        claims = tuple(r and r._replace(answer=ranked_pair(r.answer)) for r in server.claims)
        return server._replace(jobs=jobs, last_fence=rank[server.last_fence], claims=claims)  # type: ignore[arg-type]

    workers = tuple(
        w._replace(
            holds=ranked_pair(w.holds),
            copy=w.copy and (w.copy[0], ranked_pair(w.copy[1]), w.copy[2]),
            reply=(ranked_pair(w.reply[0]),) if w.reply and isinstance(w.reply[0], tuple) else w.reply,
        )
        for w in m.workers
    )
    return m._replace(
        server=ranked_server(m.server),
        snapshot=m.snapshot and ranked_server(m.snapshot),
        workers=workers,  # type: ignore[arg-type]
        clock=rank[m.clock],
        given=(rank[m.given[0]], rank[m.given[1]]),
    )
