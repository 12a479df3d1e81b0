"""The audit log in memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import islice

from kcache_grpc.storage import checks
from kcache_grpc.storage.audit.contract import BEFORE_ALL, SPAN, AuditStore, EventPage
from kcache_grpc.storage.audit.filter import Filter, matches
from kcache_grpc.storage.audit.sealing import Checkpoint, Seal, Writer, event_leaf
from kcache_grpc.storage.errors import Conflict
from kcache_grpc.storage.memory.state import MemoryPart, State
from kcache_grpc.storage.memory.usage_audit import hold_event
from kcache_grpc.storage.records import AuditEvent, AuditRecord, Namespace


class MemoryAudit(MemoryPart, AuditStore):
    """``AuditStore`` in memory."""

    @property
    def audit_writer(self) -> str:
        return self._state.writer

    def begin_sealing(self, public_key: bytes, host: str) -> None:
        checks.text("host", host)
        with self._state as state:
            writer = Writer(state.writer, public_key, host, state.clock.wall())
            state.audit_writers.setdefault(state.writer, writer)
            state.sealing = True

    def unsealed(self, most: int) -> Sequence[tuple[int, bytes]]:
        with self._state as state:
            return [(number, event_leaf(state.audit[number])) for number in sorted(state.unsealed)[:most]]

    def sealed_by_others(self, ids: Sequence[int]) -> None:
        with self._state as state:
            state.unsealed.difference_update(ids)

    def put_seal(self, seal: Seal, marks: bytes) -> bool:
        with self._state as state:
            below = max((checkpoint.sequence for checkpoint in _checkpoints(state, seal.writer)), default=0)
            chain = [stored.sequence for stored, _ in state.seals if stored.writer == seal.writer]
            if seal.sequence != max([below, *chain]) + 1:
                return False
            state.seals.append((seal, marks))
            state.unsealed.difference_update(seal.event_ids)
            return True

    def find_events(
        self,
        namespace: Namespace,
        condition: Filter,
        *,
        cursor: int | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> EventPage:
        """Return a page of the events that match ``condition``, of at most ``SPAN`` events read.

        The page's cursor continues after the last event that was read or returned.
        """
        checks.number("limit or cursor", limit, cursor or 0)
        with self._state as state:
            ids = list(state.audit)
            if newest_first:
                beyond = ids if cursor is None else ids[: bisect_left(ids, cursor)]
                beyond.reverse()
            else:
                beyond = ids[bisect_right(ids, cursor or 0) :]
            records = (state.audit[number] for number in beyond)
            here = (record for record in records if record.namespace_id == namespace.id)
            looked_at = list(islice(here, SPAN))
        passing = [record for record in looked_at if matches(condition, record)][:limit]
        end = looked_at[-1].id if len(looked_at) == SPAN else None
        return EventPage(tuple(passing), passing[-1].id if passing and len(passing) == limit else end)

    def read_events(self, ids: Sequence[int]) -> Mapping[int, AuditRecord]:
        checks.number("id", *ids)
        with self._state as state:
            return {number: state.audit[number] for number in ids if number in state.audit}

    def last_event_id(self) -> int:
        with self._state as state:
            return next(reversed(state.audit), 0)

    def list_event_ids(self, writer: str, after_id: int, limit: int) -> Sequence[int]:
        checks.text("writer", writer)
        checks.number("id", after_id, least=BEFORE_ALL)
        checks.number("limit", limit)
        with self._state as state:
            events = state.audit.values()
            ids = [record.id for record in events if record.writer == writer and record.id > after_id]
        return ids[:limit]

    def list_writers(self) -> Sequence[Writer]:
        with self._state as state:
            names = {record.writer for record in state.audit.values()}
            names |= {seal.writer for seal, _ in state.seals}
            names |= {checkpoint.writer for checkpoint in state.checkpoints} | set(state.audit_writers)
            return [state.audit_writers.get(name, Writer(name, b"", "", 0)) for name in sorted(names)]

    def last_seal(self, writer: str) -> Seal | None:
        checks.text("writer", writer)
        with self._state as state:
            return next((seal for seal, _ in reversed(state.seals) if seal.writer == writer), None)

    def list_seals(self, writer: str, after: int = 0, limit: int = 10) -> Sequence[tuple[Seal, bytes]]:
        checks.text("writer", writer)
        checks.number("limit or sequence", after, limit)
        with self._state as state:
            chain = [each for each in state.seals if each[0].writer == writer and each[0].sequence > after]
        return chain[:limit]

    def find_seal(self, writer: str, event_id: int) -> Seal | None:
        checks.text("writer", writer)
        checks.number("id", event_id)
        with self._state as state:
            chain = (seal for seal, _ in state.seals if seal.writer == writer)
            return next((seal for seal in chain if event_id in seal.event_ids), None)

    def list_checkpoints(self, writer: str) -> Sequence[Checkpoint]:
        checks.text("writer", writer)
        with self._state as state:
            return _checkpoints(state, writer)

    def wrong_summaries(self) -> Sequence[str]:
        return ()

    def rebuild_summaries(self) -> None:
        """There are none."""

    def prune(self, checkpoint: Checkpoint, event_ids: Sequence[int]) -> int:
        """Record a checkpoint; remove the seals up to it, and these events.

        Returns the number of removed events. Raises ``Conflict`` if the chain has a checkpoint at this seal.
        """
        with self._state as state:
            if any(other.sequence == checkpoint.sequence for other in _checkpoints(state, checkpoint.writer)):
                raise Conflict(
                    f"the chain of {checkpoint.writer} has a checkpoint at seal {checkpoint.sequence} already"
                )
            state.checkpoints.append(checkpoint)
            removed = [number for number in event_ids if state.audit.pop(number, None) is not None]
            state.seals = [
                each
                for each in state.seals
                if each[0].writer != checkpoint.writer or each[0].sequence > checkpoint.sequence
            ]
            hold_event(state, Namespace(0, "", 0), AuditEvent("collect", outcome="ok"))
            return len(removed)


def _checkpoints(state: State, writer: str) -> list[Checkpoint]:
    return [checkpoint for checkpoint in state.checkpoints if checkpoint.writer == writer]
