"""Compile time that hits saved, by caller: rows of usage whose subject names an actor and a job."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from kcache_grpc.storage.records import UsageDelta

#: What the subjects of callers begin with. The others are single words.
CALLER = "caller "


@dataclass(frozen=True)
class SavingRecord:
    """Kernels that were served to a caller without a compile, and the compile time that this saved.

    ``actor`` and ``job`` are what the caller says of itself. ``saved_us`` is in microseconds,
    ``last_used_at`` in microseconds since 1970.
    """

    actor: str
    job: str
    hits: int
    saved_us: int
    last_used_at: int


def caller_usage(actor: str, job: str, hits: int, saved_us: int, at: int) -> UsageDelta:
    """Uses by a caller, to be added with ``UsageAuditStore.add_usage``."""
    subject = CALLER + json.dumps([actor, job], ensure_ascii=False)
    return UsageDelta(subject, hashlib.sha256(subject.encode()).digest(), hits, saved_us, at)


def caller_of(subject: str) -> tuple[str, str]:
    """Actor and job that a subject of ``caller_usage`` names."""
    actor, job = json.loads(subject.removeprefix(CALLER))
    return actor, job
