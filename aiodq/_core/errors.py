"""Every error that aiodq raises on purpose, split by who can do something about it.

========================  ==================  ==============================================================
at fault                  errors              what to do
========================  ==================  ==============================================================
the program               `ConfigError`,      correct the code or the settings; repeating the call is useless
                          `NotInJob`,
                          `PayloadError`
the state of a job        `DuplicateJob`,     an answer more than a fault: decide what the application means
                          `JobNotFound`,
                          `JobFailed`,
                          `JobCancelled`,
                          `ResultNotKept`
time and other workers    `LeaseLost`         stop working on the job: somebody else has it
the server or the way     `StoreUnavailable`, repeat later; the job handles keep their ids, so a repeat of an
to it                     `QueueFull`,        enqueue never makes a second job
                          `NotDurable`
aiodq, or its version     `ScriptError`,      report it, or bring all processes to one version
                          `NewerProtocol`
========================  ==================  ==============================================================

Wrong arguments of a single call (a naive datetime, a missing argument) are `TypeError` or `ValueError`, as
for any Python function. What handlers raise to steer their job (`Retry`, `Snooze`, `Bury`) is no error and
not in here.

Not raised in this version, which has neither results nor durability levels: `JobNotFound`, `JobFailed`,
`JobCancelled`, `ResultNotKept`, `NotDurable`.

All of them can be pickled and copied: their `args` are the arguments of their constructors.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal, Protocol


class AiodqError(Exception):
    """Base of all errors that aiodq raises, for callers who want to catch them together."""


class ConfigError(AiodqError, ValueError):
    """A queue, task, worker or environment is set up wrongly.

    Raised where the wrong setting is made or first used, before anything is sent. The program or its
    deployment is at fault. The message names the value and what is expected instead.
    """


class WrongOrder(ConfigError):
    """A queue is first in, first out for one process and not for another.

    Raised by every call on such a queue; nothing was changed. The deployment is at fault: pass the same
    `fifo=` to `Queue` everywhere.
    """


class WrongShards(ConfigError):
    """A queue is divided into another number of shards than this process says.

    Raised by every call on such a queue; nothing was changed. The deployment is at fault: pass the same
    `shards=` to `Queue` everywhere. `shards`: the number that the queue has; 0: it holds jobs and is not
    divided.
    """

    def __init__(self, message: str, shards: int) -> None:
        super().__init__(message, shards)
        self.shards = shards

    def __str__(self) -> str:
        return str(self.args[0])


class NotInJob(AiodqError, LookupError):
    """Something that needs a running job was called outside of a handler.

    Raised by `current_job()`. The program is at fault; in tests, let a worker run the handler, on a
    `memory://` queue with `worker.run(burst=True)`.
    """


class DuplicateJob(AiodqError):
    """A job with this id exists already, and the caller asked to be told by an error.

    Raised by enqueue with `on_duplicate="raise"` only. Nothing was changed. Nobody is at fault: the id is
    taken.
    """

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def __str__(self) -> str:
        return f'a job with id {self.job_id!r} exists already; on_duplicate="keep" or "replace" accepts that'


class JobNotFound(AiodqError, LookupError):
    """There is neither a job nor a kept result with this id.

    Raised when a job is asked for that has ended and left nothing, or never existed. Ask again with the
    right id and queue; a job that should be waited for after its end needs `keep_result`.
    """

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def __str__(self) -> str:
        return f"no job and no kept result with id {self.job_id!r}: it has ended, or never was in this queue"


class JobFailed(AiodqError):
    """The awaited job ended in the dead letters.

    Raised by `Job.result()`. The handler is at fault; `error_type`, `error_message` and `traceback` are the
    text of its last error. Mend the cause, then replay the job from the dead letters.
    """

    def __init__(self, job_id: str, error_type: str, error_message: str, traceback: str = "") -> None:
        super().__init__(job_id, error_type, error_message, traceback)
        self.job_id = job_id
        self.error_type = error_type
        self.error_message = error_message
        self.traceback = traceback

    def __str__(self) -> str:
        return f"job {self.job_id!r} failed with {self.error_type}: {self.error_message}"


class JobCancelled(AiodqError):
    """The awaited job was taken back before it could end well.

    Raised by `Job.result()`. `reason` is "cancelled" (while scheduled), "aborted" (maybe while running) or
    "expired" (not started within its `expires`). Nobody is at fault.
    """

    def __init__(self, job_id: str, reason: Literal["cancelled", "aborted", "expired"]) -> None:
        super().__init__(job_id, reason)
        self.job_id = job_id
        self.reason: Literal["cancelled", "aborted", "expired"] = reason

    def __str__(self) -> str:
        return f"job {self.job_id!r} was {self.reason}"


class ResultNotKept(AiodqError):
    """The awaited job has ended, or will end, without keeping its result.

    Raised by `Job.result()`, at once where it is known. The program is at fault: give the task
    `keep_result=` (seconds or timedelta).
    """

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def __str__(self) -> str:
        return f"job {self.job_id!r} keeps no result; give its task keep_result=<seconds>"


class PayloadError(AiodqError, ValueError):
    """Arguments, headers or a result cannot be stored, or stored bytes cannot be read back.

    Raised by enqueue before anything is sent: the program is at fault, and the message names the job's task
    and the value (its type, or its size in bytes and the limit). Raised on reading: writer and reader
    disagree about the format or the signature, usually two versions of a program.
    """


class QueueFull(AiodqError):
    """The job was refused because there is no room for it.

    Raised by enqueue, reschedule and replay when the server is out of memory, and by enqueue when the queue's
    `backlog` is full; the message names the limit. Nothing was changed. Repeat later, or make room; draining
    the queue stays possible.
    """


class EnqueuedJob(Protocol):
    """What `NotDurable` tells about the job: the part of `aiodq.Enqueued` that needs no connection."""

    @property
    def id(self) -> str: ...
    @property
    def created(self) -> bool: ...
    @property
    def replaced(self) -> bool: ...
    @property
    def due_at(self) -> datetime: ...


class NotDurable(AiodqError):
    """The job is enqueued, but not as safely as was asked.

    Raised by enqueue with `durability=` when replicas or disks did not confirm within `durability_timeout`.
    `job` is the enqueued job: it will run unless the server is lost soon. Sending it again is safe and asks
    for the confirmation again.
    """

    def __init__(self, job: EnqueuedJob, wanted: str = "") -> None:
        super().__init__(job, wanted)
        self.job = job
        self.wanted = wanted

    def __str__(self) -> str:
        wanted = f" ({self.wanted})" if self.wanted else ""
        return f"job {self.job.id!r} is enqueued, but its durability{wanted} was not confirmed in time"


class LeaseLost(AiodqError):
    """This worker no longer holds the job: another claim has it, or it has ended.

    Raised by `RunningJob.extend()`. Stop, and leave undone what cannot be undone: the job runs elsewhere or
    has run. Whoever held the event loop or the connection for longer than the lease is at fault.
    """


class StoreUnavailable(AiodqError):
    """The server did not answer, or not in time.

    Raised by every call that needs the server, after its own repeats. What was asked may or may not have
    happened; the same call again (same `NewJob`, same id) is safe. The cause is the error of the
    connection.
    """


class ScriptError(AiodqError):
    """The server refused or broke off one of aiodq's scripts.

    Raised when the server's user may not run it, or when the data in the server and this version of aiodq
    do not fit together, as after another program changed keys. The message names the script and has the
    server's words. Otherwise it is a fault of aiodq.
    """


class NewerProtocol(AiodqError):
    """The queue was upgraded to a layout that this version does not speak.

    Raised by every call on such a queue; nothing was changed. The deployment is at fault: upgrade this
    process.
    """
