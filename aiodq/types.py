"""Names for annotations that everyday code does not need: options, answers, aliases, decorators."""

from aiodq._api.connections import RedisClient
from aiodq._api.dead import DeadLetters
from aiodq._api.task import Implement, StubDecorator, TaskDecorator
from aiodq._api.worker import Health
from aiodq._core.answers import (
    Change,
    DeadJob,
    DeadRetention,
    Explanation,
    JobInfo,
    JobState,
    QueueStats,
    Replayed,
)
from aiodq._core.backoff import Backoff
from aiodq._core.consistency import CheckReport, FaultKind, Finding
from aiodq._core.options import CallOptions, JobOptions, OnDuplicate, TaskOptions
from aiodq._core.policy import OnError, OnExpired
from aiodq._core.settlement import Outcome

__all__ = [
    "Backoff",
    "CallOptions",
    "Change",
    "CheckReport",
    "DeadJob",
    "DeadLetters",
    "DeadRetention",
    "Explanation",
    "FaultKind",
    "Finding",
    "Health",
    "Implement",
    "JobInfo",
    "JobOptions",
    "JobState",
    "OnDuplicate",
    "OnError",
    "OnExpired",
    "Outcome",
    "QueueStats",
    "RedisClient",
    "Replayed",
    "StubDecorator",
    "TaskDecorator",
    "TaskOptions",
]
