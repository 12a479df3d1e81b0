"""Timings of schedule choices in memory."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.autotune import AutotuneStore, Timing, TimingRecord
from kcache_grpc.storage.memory.state import MemoryPart
from kcache_grpc.storage.records import Namespace


class MemoryAutotune(MemoryPart, AutotuneStore):
    """``AutotuneStore`` in memory."""

    def add_timings(self, namespace: Namespace, batch: Sequence[Timing]) -> int:
        checks.timings(batch)
        with self._state as state:
            before = len(state.timings)
            for each in batch:
                name = (namespace.id, each.subject, each.shape, each.config, each.device)
                state.timings.setdefault(name, TimingRecord(each, state.clock.wall()))
            added = len(state.timings) - before
            if added:
                mine = [name for name in state.timings if name[0] == namespace.id]
                for name in mine[: self._too_many(len(mine))]:
                    del state.timings[name]
            return added

    def list_timings(
        self, namespace: Namespace, subject: bytes, shape: str, device: str
    ) -> tuple[TimingRecord, ...]:
        checks.digest("subject", subject)
        checks.indexed("shape or device", shape, device)
        records = [record for record in self._of(namespace, subject, device) if record.timing.shape == shape]
        return tuple(sorted(records, key=lambda record: record.timing.nanoseconds))

    def list_shapes(self, namespace: Namespace, subject: bytes, device: str) -> tuple[TimingRecord, ...]:
        checks.digest("subject", subject)
        checks.indexed("device", device)
        records = self._of(namespace, subject, device)
        return tuple(sorted(records, key=lambda record: (record.timing.shape, record.timing.nanoseconds)))

    def list_subject(self, namespace: Namespace, subject: bytes) -> tuple[TimingRecord, ...]:
        checks.digest("subject", subject)
        with self._state as state:
            mine = [record for name, record in state.timings.items() if name[:2] == (namespace.id, subject)]
        return tuple(sorted(mine, key=lambda r: (r.timing.shape, r.timing.device, r.timing.config)))

    def _of(self, namespace: Namespace, subject: bytes, device: str) -> list[TimingRecord]:
        with self._state as state:
            mine = [record for name, record in state.timings.items() if name[0] == namespace.id]
        key = (subject, device)
        return [record for record in mine if (record.timing.subject, record.timing.device) == key]
