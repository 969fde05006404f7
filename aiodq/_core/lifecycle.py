"""The life of a job: the one table of places and the moves between them.

Everything that moves jobs is checked against this table: the headers of the Lua scripts, `MemoryStore`, and
the page `docs/lifecycle.md`, which is made from it. The place a job is in *is* its state; there is no state
field beside it.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct

Place: TypeAlias = Literal["absent", "scheduled", "processing", "dead"]
"""Where a job is: nowhere, or in exactly one of the three sorted sets of its shard."""

PLACES: Final[tuple[Place, ...]] = get_args(Place)


class Transition(Struct, frozen=True):
    """One move of a job, done by one script.

    Attributes:
        name: the verb, and the name of the script's file.
        moves: the pairs (from, to) that the script may make; a job in any other place is left as it is.
        fenced: the caller must show the lease's token, compared whole inside the script.
        drains: the script must finish when the server's memory is full (it frees or keeps, it does not grow
            the queue).
        repeats: the answer is kept for a while under the caller's call id, so that a repeat after a lost
            reply has no second effect and gives the same answer. Moves without it give the same result again
            by themselves.
        says: one sentence for the documentation.
    """

    name: str
    moves: tuple[tuple[Place, Place], ...]
    says: str
    fenced: bool = False
    drains: bool = False
    repeats: bool = False


TRANSITIONS: Final[tuple[Transition, ...]] = (
    Transition(
        "enqueue",
        (("absent", "scheduled"),),
        "A new job is written; an existing id is left as it is.",
        repeats=True,
    ),
    Transition(
        "replace",
        (("absent", "scheduled"), ("scheduled", "scheduled"), ("dead", "scheduled")),
        "As enqueue, but a waiting or dead job of that id gets the new arguments and due time.",
        repeats=True,
    ),
    Transition(
        "unite",
        (("absent", "scheduled"), ("scheduled", "scheduled")),
        "As enqueue, for unique jobs: while one of the same name waits or runs, no second one is made.",
        repeats=True,
    ),
    Transition(
        "reschedule", (("scheduled", "scheduled"),), "A waiting job gets another due time.", repeats=True
    ),
    Transition(
        "vacate",
        (("scheduled", "scheduled"),),
        "A permit of a limit is free: a job that waits for it is due at its own due time again.",
        drains=True,
        repeats=True,
    ),
    Transition("cancel", (("scheduled", "absent"),), "A waiting job is removed.", drains=True, repeats=True),
    Transition(
        "claim",
        (("scheduled", "processing"), ("processing", "processing")),
        "Due jobs, and jobs whose lease has expired, are handed out under a new fence.",
        drains=True,
        repeats=True,
    ),
    Transition(
        "extend", (("processing", "processing"),), "The lease's deadline is moved.", fenced=True, drains=True
    ),
    Transition(
        "ack",
        (("processing", "absent"),),
        "The job ended well, or it had expired before it was run, and is removed.",
        fenced=True,
        drains=True,
        repeats=True,
    ),
    Transition(
        "retry",
        (("processing", "scheduled"),),
        "The job is to be run again at a later time: after a failure, a snooze, or a hand-back with a delay.",
        fenced=True,
        drains=True,
        repeats=True,
    ),
    Transition(
        "release",
        (("processing", "scheduled"),),
        "The job is given back uncounted, at its own due time.",
        fenced=True,
        drains=True,
        repeats=True,
    ),
    Transition(
        "bury",
        (("processing", "dead"),),
        "The job is put to the dead letters; it stays there until replayed, purged or trimmed.",
        fenced=True,
        drains=True,
        repeats=True,
    ),
    Transition(
        "convict",
        (("processing", "processing"),),
        "The leases of a worker found dead expire now.",
        drains=True,
    ),
    Transition(
        "replay",
        (("dead", "scheduled"),),
        "A dead letter is scheduled again, its counters reset.",
        repeats=True,
    ),
    Transition(
        "resend",
        (("absent", "scheduled"),),
        "After a failover: a producer sends its last enqueues again; what is there, or has ended, is left.",
        repeats=True,
    ),
    Transition(
        "finished",
        (("processing", "absent"), ("scheduled", "absent")),
        "After a failover: a worker tells its last acks again; a job whose claim was lost too waits again, "
        "and ends if its payload is the same.",
        fenced=True,
        drains=True,
        repeats=True,
    ),
    Transition("purge", (("dead", "absent"),), "Dead letters are removed by id.", drains=True, repeats=True),
    Transition(
        "trim", (("dead", "absent"),), "The oldest dead letters are removed, by age and count.", drains=True
    ),
)

BY_NAME: Final[dict[str, Transition]] = {t.name: t for t in TRANSITIONS}

REPAIRS: Final[tuple[Transition, ...]] = (
    Transition(
        "repair",
        (
            ("scheduled", "absent"),
            ("processing", "absent"),
            ("dead", "absent"),
            ("processing", "scheduled"),
            ("absent", "processing"),
        ),
        "A job that contradicts itself is mended, if it still does: one place, one payload, one lease.",
        drains=True,
    ),
    Transition(
        "restore",
        (("absent", "scheduled"),),
        "A payload that is in no place becomes a job again, due now.",
        drains=True,
    ),
    Transition(
        "condemn",
        (("absent", "dead"),),
        "A payload that is in no place and that nobody can read goes to the dead letters.",
        drains=True,
    ),
)
"""What the consistency check may do, and only to jobs that stand outside of the table: in two places at once,
or without the payload or lease that belongs to their place. They never move a job that is sound.
"""
