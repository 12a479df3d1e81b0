"""Similar specs and kernels, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.nearby import WEIGHTS, CompileTime, NearbyStore, NearKernel, SpecSize
from kcache_grpc.storage.memory.state import HeldKernel, MemoryPart
from kcache_grpc.storage.records import KernelRecord, MappingRecord, Namespace


class MemoryNearby(MemoryPart, NearbyStore):
    """``NearbyStore`` in memory."""

    def list_mappings(self, namespace: Namespace, key: int, limit: int = 100) -> tuple[MappingRecord, ...]:
        checks.number("key or limit", key, limit)
        here = (namespace.id, namespace.epoch)
        with self._state as state:
            records = [record for name, record in state.mappings.items() if name[:2] == here]
        return tuple(record for record in records if record.key == key)[:limit]

    def list_spec_sizes(self, namespace: Namespace, text_size: int, limit: int) -> tuple[SpecSize, ...]:
        checks.number("size or limit", text_size, limit)
        with self._state as state:
            specs = [
                SpecSize(spec.key, len(spec.text.encode())) for spec in state.specs.get(namespace.id, [])
            ]
        specs.sort(key=lambda spec: (abs(spec.text_size - text_size), -spec.key))
        return tuple(specs[:limit])

    def list_near_kernels(
        self, namespace: Namespace, record: KernelRecord, limit: int
    ) -> tuple[NearKernel, ...]:
        checks.wanted(record, limit)
        with self._state as state:
            rows = [each for name, each in state.kernels.items() if name[0] == namespace.id]
        near = [_near(each, namespace, record) for each in rows if each.kernel.key == record.key]
        near.sort(key=lambda kernel: (kernel.distance, -kernel.id))
        return tuple(near[:limit])

    def list_compile_times(
        self, namespace: Namespace, key: int, target: str | None, limit: int
    ) -> tuple[CompileTime, ...]:
        checks.number("key or limit", key, limit)
        checks.text("target", target or "")
        with self._state as state:
            rows = [each for name, each in state.kernels.items() if name[0] == namespace.id]
        of_key = [each for each in rows if each.kernel.key == key]
        if target is not None:
            of_key = [
                each for each in of_key if each.epoch == namespace.epoch and each.kernel.target == target
            ]
        return tuple(
            CompileTime(each.kernel.target, each.kernel.options, each.kernel.toolchain, each.compile_us)
            for each in of_key[:limit]
        )

    def count_operations(self, namespace: Namespace, keys: Sequence[int]) -> Mapping[int, int]:
        checks.number("key", *keys)
        with self._state as state:
            specs = state.specs.get(namespace.id, [])
            return {key: specs[key - 1].text.count("\n%") for key in keys if 1 <= key <= len(specs)}


def _near(row: HeldKernel, namespace: Namespace, record: KernelRecord) -> NearKernel:
    here = row.kernel
    differs = {
        "guard": here.guard != record.guard,
        "arg_spec": here.arg_spec != record.arg_spec,
        "options": here.options != record.options,
        "target": here.target != record.target,
        "toolchain": here.toolchain != record.toolchain,
        "epoch": row.epoch != namespace.epoch,
    }
    distance = sum(WEIGHTS[name] for name, differing in differs.items() if differing)
    return NearKernel(row.id, here, row.ingredients, row.epoch, row.created_at, distance)
