"""Namespaces, specs, keys and mappings in memory, and similar specs with their kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.nearby import WEIGHTS, CompileTime, NearbyStore, NearKernel, SpecSize
from kcache_grpc.storage.contract.store import GraphStore, NamespaceStore
from kcache_grpc.storage.errors import (
    Conflict,
    InvalidValue,
    MissingReference,
    SignerMismatch,
    TooManyNamespaces,
)
from kcache_grpc.storage.memory.blobs import hold_constant, whole_blob
from kcache_grpc.storage.memory.quotas import require_room, touch
from kcache_grpc.storage.memory.state import HeldKernel, MemoryPart, State
from kcache_grpc.storage.memory.usage_audit import hold_conflict, hold_events
from kcache_grpc.storage.records import (
    AuditEvent,
    GraphDraft,
    KernelRecord,
    MappingDraft,
    MappingRecord,
    Namespace,
    SpecDraft,
    SpecRecord,
    StoredGraph,
)


class MemoryNamespaces(MemoryPart, NamespaceStore):
    """``NamespaceStore`` in memory."""

    def get_or_create_namespace(self, name: str, most: int | None = None) -> Namespace:
        checks.namespace_name(name)
        with self._state as state:
            if name not in state.namespaces:
                if most is not None and len(state.namespaces) >= most:
                    raise TooManyNamespaces(name, most)
                state.namespaces[name] = Namespace(len(state.namespaces) + 1, name, 1)
                state.specs[state.namespaces[name].id] = []
            return state.namespaces[name]

    def find_namespace(self, name: str) -> Namespace | None:
        checks.namespace_name(name)
        with self._state as state:
            return state.namespaces.get(name)

    def list_namespaces(self) -> tuple[Namespace, ...]:
        with self._state as state:
            return tuple(state.namespaces.values())

    def raise_epoch(self, namespace: Namespace) -> Namespace:
        with self._state as state:
            present = state.namespaces.get(namespace.name)
            if present is None:
                raise MissingReference(f"namespace {namespace.name!r} is not stored")
            if present == namespace:
                present = replace(present, epoch=present.epoch + 1)
                state.namespaces[present.name] = present
            return present

    def allows_compatible_targets(self, namespace: Namespace) -> bool:
        with self._state as state:
            return namespace.name in state.compatible_targets

    def set_compatible_targets(self, namespace: Namespace, allowed: bool) -> bool:
        with self._state as state:
            if namespace.name not in state.namespaces:
                raise MissingReference(f"namespace {namespace.name!r} is not stored")
            if (namespace.name in state.compatible_targets) is allowed:
                return False
            state.compatible_targets ^= {namespace.name}
            return True

    def find_signer(self) -> bytes | None:
        with self._state as state:
            return state.signer or None

    def claim_signer(self, key_id: bytes, *, disown: bool = False) -> None:
        checks.signer(key_id)
        with self._state as state:
            if state.signer in (b"", key_id):
                state.signer = key_id
                return
            if not disown:
                stored = state.signer.hex()
                raise SignerMismatch(
                    f"the store was signed by key {stored}, not by {key_id.hex()}", stored=stored
                )
            state.signer = key_id
            for name, namespace in state.namespaces.items():
                state.namespaces[name] = replace(namespace, epoch=namespace.epoch + 1)


class MemoryGraphs(MemoryPart, GraphStore):
    """``GraphStore`` in memory."""

    def put_spec(self, namespace: Namespace, spec: SpecDraft) -> SpecRecord:
        checks.spec(spec)
        with self._state as state:
            return _hold_spec(state, namespace, spec)[0]

    def get_spec(self, namespace: Namespace, key: int) -> SpecRecord | None:
        with self._state as state:
            specs = state.specs.get(namespace.id, [])
            return specs[key - 1] if 1 <= key <= len(specs) else None

    def find_spec(self, namespace: Namespace, spec_digest: bytes) -> SpecRecord | None:
        checks.digest("spec digest", spec_digest)
        with self._state as state:
            key = state.keys.get((namespace.id, spec_digest))
            return None if key is None else state.specs[namespace.id][key - 1]

    def count_specs(self, namespace: Namespace) -> int:
        with self._state as state:
            return len(state.specs.get(namespace.id, []))

    def put_mapping(self, namespace: Namespace, mapping: MappingDraft) -> MappingRecord:
        checks.mapping(mapping)
        with self._state as state:
            return _hold_mapping(state, namespace, mapping)[0]

    def find_mapping(
        self, namespace: Namespace, program_digest: bytes, numerics: str
    ) -> MappingRecord | None:
        return self.find_mappings(namespace, [program_digest], numerics).get(program_digest)

    def find_mappings(
        self, namespace: Namespace, program_digests: Sequence[bytes], numerics: str
    ) -> Mapping[bytes, MappingRecord]:
        checks.digests("program digest", program_digests)
        checks.text("numerics", numerics)
        with self._state as state:
            names = {digest: (namespace.id, namespace.epoch, digest, numerics) for digest in program_digests}
            return {
                digest: state.mappings[name]
                for digest, name in names.items()
                if name in state.mappings and _is_usable(state, namespace, state.mapping_constants[name])
            }

    def put_graph(
        self, namespace: Namespace, graph: GraphDraft, event: AuditEvent | None = None
    ) -> StoredGraph:
        """Store constants, spec, key and mapping of a program, and the event if any of them is new."""
        checks.graph(graph)
        checks.events([] if event is None else [event])
        with self._state as state:
            known = state.keys.get((namespace.id, graph.spec.spec_digest))
            # What may raise comes first: a call that raises has changed nothing.
            key = known or len(_specs(state, namespace)) + 1
            name = (namespace.id, namespace.epoch, graph.program_digest, graph.spec.numerics)
            binding = None if name in state.mappings else graph.bind(key)
            added = {"specs": int(known is None), "mappings": int(binding is not None)}
            sizes = {constant.digest: len(constant.content) for constant in graph.constants}
            require_room(state, namespace, added, sizes)
            for constant in graph.constants:
                hold_constant(state, namespace, constant)
            spec, new_spec = _hold_spec(state, namespace, graph.spec)
            mapping = state.mappings.get(name)
            if binding is not None:
                digests = tuple(constant.digest for constant in graph.constants)
                draft = MappingDraft(graph.program_digest, graph.spec.numerics, spec.key, binding, digests)
                mapping, _ = _hold_mapping(state, namespace, draft)
            else:
                touch(state, namespace, "mapping", graph.program_digest)
            assert mapping is not None
            if event is not None and (new_spec or binding):
                hold_events(state, namespace, [replace(event, key=spec.key)])
            return StoredGraph(spec, mapping, new_spec, binding is not None)

    def add_alias(self, namespace: Namespace, alias: int, key: int) -> int:
        checks.number("key", key, alias, least=1)
        if key >= alias:
            raise InvalidValue(f"an alias stands for a lower key: {alias} cannot stand for {key}")
        with self._state as state:
            for each in (key, alias):
                require_key(state, namespace, each)
            stored = state.aliases.setdefault((namespace.id, alias), key)
            if stored != key:
                numbers = (number.to_bytes(8, "big") for number in (alias, stored, key))
                hold_conflict(state, namespace, "alias", *numbers)
                raise Conflict(f"key {alias} stands for {stored}, not for {key}")
            return self.resolve_key(namespace, key)

    def list_aliases(self, namespace: Namespace, key: int) -> tuple[int, ...]:
        with self._state as state:
            aliases, latest = set[int](), {key}
            while latest:
                latest = {
                    alias
                    for (space, alias), of in state.aliases.items()
                    if space == namespace.id and of in latest
                }
                aliases |= latest
            return tuple(sorted(aliases))

    def resolve_key(self, namespace: Namespace, key: int) -> int:
        with self._state as state:
            while (namespace.id, key) in state.aliases:
                key = state.aliases[namespace.id, key]
            return key


def _is_usable(state: State, namespace: Namespace, constants: Sequence[bytes]) -> bool:
    return all(whole_blob(state, namespace, digest) is not None for digest in constants)


def require_key(state: State, namespace: Namespace, key: int) -> None:
    """Raises ``MissingReference`` unless a spec has that key."""
    if not 1 <= key <= len(state.specs.get(namespace.id, [])):
        raise MissingReference(f"namespace {namespace.name!r} has no spec {key}")


def _specs(state: State, namespace: Namespace) -> list[SpecRecord]:
    if namespace.id not in state.specs:
        raise MissingReference(f"namespace {namespace.name!r} is not stored")
    return state.specs[namespace.id]


def _hold_spec(state: State, namespace: Namespace, spec: SpecDraft) -> tuple[SpecRecord, bool]:
    specs = _specs(state, namespace)
    known = state.keys.get((namespace.id, spec.spec_digest))
    if known is not None:
        return specs[known - 1], False
    require_room(state, namespace, {"specs": 1}, {})
    key = len(specs) + 1
    now = state.clock.wall()
    specs.append(
        SpecRecord(key, spec.spec_digest, spec.text, spec.numerics, spec.canonicalizer, spec.family, now)
    )
    state.keys[namespace.id, spec.spec_digest] = key
    return specs[-1], True


def _hold_mapping(state: State, namespace: Namespace, mapping: MappingDraft) -> tuple[MappingRecord, bool]:
    name = (namespace.id, namespace.epoch, mapping.program_digest, mapping.numerics)
    if name in state.mappings:
        return state.mappings[name], False
    require_key(state, namespace, mapping.key)
    for digest in mapping.constants:
        if (namespace.id, digest) not in state.constants:
            raise MissingReference(f"constant {digest.hex()} is not stored")
    require_room(state, namespace, {"mappings": 1}, {})
    state.mapping_constants[name] = mapping.constants
    touch(state, namespace, "mapping", mapping.program_digest)
    state.mappings[name] = MappingRecord(
        mapping.program_digest,
        mapping.numerics,
        mapping.key,
        mapping.binding,
        namespace.epoch,
        state.clock.wall(),
    )
    return state.mappings[name], True


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
        """Return compile times of kernels of a key, of one target in this epoch or of all.

        See ``NearbyStore``.
        """
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
