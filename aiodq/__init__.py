"""An asyncio-native delay queue on Redis sorted sets: exact due times, leases, retries, dead letters.

This module holds the everyday names. `aiodq.types` has further ones for annotations, `aiodq.events` what
a worker tells its listeners.
"""

from aiodq._api.injection import inject
from aiodq._api.job import Enqueued, Job
from aiodq._api.plan import Plan, TaskRef
from aiodq._api.queue import Queue
from aiodq._api.share import Share
from aiodq._api.task import Stub, SyncTask, Task
from aiodq._api.worker import Worker
from aiodq._core.answers import DeadRetention
from aiodq._core.backlog import Backlog
from aiodq._core.backoff import Exponential, Failure, Fixed
from aiodq._core.directives import Bury, Directive, Retry, Snooze
from aiodq._core.durations import Duration
from aiodq._core.errors import (
    AiodqError,
    ConfigError,
    DuplicateJob,
    JobNotFound,
    LeaseLost,
    NewerProtocol,
    NotInJob,
    PayloadError,
    QueueFull,
    ScriptError,
    StoreUnavailable,
)
from aiodq._core.jobs import NewJob
from aiodq._core.limit import MaxRunning
from aiodq._core.rate import Rate
from aiodq._core.unique import Unique
from aiodq._worker.running import RunningJob, current_job

__version__ = "0.1.0"

__all__ = [
    "AiodqError",
    "Backlog",
    "Bury",
    "ConfigError",
    "DeadRetention",
    "Directive",
    "DuplicateJob",
    "Duration",
    "Enqueued",
    "Exponential",
    "Failure",
    "Fixed",
    "Job",
    "JobNotFound",
    "LeaseLost",
    "MaxRunning",
    "NewJob",
    "NewerProtocol",
    "NotInJob",
    "PayloadError",
    "Plan",
    "Queue",
    "QueueFull",
    "Rate",
    "Retry",
    "RunningJob",
    "ScriptError",
    "Share",
    "Snooze",
    "StoreUnavailable",
    "Stub",
    "SyncTask",
    "Task",
    "TaskRef",
    "Unique",
    "Worker",
    "__version__",
    "current_job",
    "inject",
]
