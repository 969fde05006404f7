"""The questions, one file each, in the order in which they are asked."""

from __future__ import annotations

from benchmarks.question import Question
from benchmarks.questions import (
    commands,
    enqueue,
    fleet,
    growth,
    herd,
    idle,
    lateness,
    memory,
    recovery,
    scripts,
    soak,
    throughput,
    wake,
)

QUESTIONS: dict[str, Question] = {
    question.name: question
    for question in (
        enqueue.QUESTION,
        throughput.NOOP,
        throughput.IO,
        lateness.SPARSE,
        lateness.LOADED,
        wake.QUESTION,
        herd.HERD,
        herd.GREAT_HERD,
        idle.AHEAD,
        idle.STATES,
        commands.QUESTION,
        fleet.QUESTION,
        memory.QUESTION,
        recovery.QUESTION,
        scripts.QUESTION,
        growth.QUESTION,
        soak.QUESTION,
    )
}
