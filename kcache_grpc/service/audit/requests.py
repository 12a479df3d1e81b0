"""One request to the audit log: what came of it, or the error that it ended with."""

from __future__ import annotations

import json
from dataclasses import replace
from types import TracebackType

from kcache_grpc.errors import KcacheError
from kcache_grpc.service.audit.recorder import AuditRecorder
from kcache_grpc.service.values import Caller, KnownGraph, ProgramRequired
from kcache_grpc.storage.records import AuditEvent, Namespace

#: Characters of a message in the log.
_MOST_MESSAGE = 500


class Noting:
    """A context around a request: at its end ``event`` is noted, or an ``error``.

    An event without a kind is noted elsewhere. A program that has to be sent along is no error: the same
    request comes again with it.
    """

    def __init__(
        self, audit_recorder: AuditRecorder, namespace: Namespace, caller: Caller, event: AuditEvent
    ) -> None:
        self._audit_recorder = audit_recorder
        self._namespace = namespace
        self._caller = caller
        self._event = event

    def graph(self, graph: KnownGraph, outcome: str = "ok") -> None:
        """It is about a known graph."""
        self.spec(graph.spec_digest, graph.key, outcome)

    def spec(self, digest: bytes, key: int | None, outcome: str = "ok") -> None:
        """It is about a spec."""
        self._event = replace(self._event, spec_digest=digest, key=key, outcome=outcome)

    def elsewhere(self) -> None:
        """The transaction that did it wrote it down."""
        self._event = replace(self._event, kind="")

    def __enter__(self) -> Noting:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            if self._event.kind:
                self._audit_recorder.note(self._namespace, self._caller, self._event)
        elif isinstance(error, KcacheError):
            self.failed(error)

    def failed(self, error: KcacheError) -> None:
        """It ended with an error."""
        if isinstance(error, ProgramRequired):
            return
        message = error.message[:_MOST_MESSAGE].encode("utf-8", "replace").decode().replace("\0", "")
        detail = json.dumps({"request": self._event.kind or "compile", "message": message})
        failed = replace(self._event, kind="error", outcome=error.reason.lower(), detail=detail)
        self._audit_recorder.note(self._namespace, self._caller, failed)
