"""Adds what a bundle holds to a namespace: verified, signed anew, and never over what is there.

Keys are of a namespace: a spec takes or joins the namespace's own key, so bindings and manifests are built
again with that key, the namespace and its epoch, and are signed by this store's key. Digests of programs,
specs, kernels and bytes stay. Kernels of any toolchain are taken, under their own toolchain: requests of
another one never find them. Specs of another canonicalizer are rejected, as no lookup here would find them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from kcache_grpc.bundle import Bundle, EntryKind, IndexEntry, ScheduleEntry, SpecEntry, blob_name
from kcache_grpc.bundle.verify import checked_kernel, checked_mapping, verify_bundle
from kcache_grpc.errors import ArgumentError, IntegrityError, KcacheError
from kcache_grpc.model.manifest import Binding, Manifest
from kcache_grpc.model.signing import BINDING_DOMAIN, MANIFEST_DOMAIN, Signer, server_id
from kcache_grpc.service.autotune import stored_choice
from kcache_grpc.service.compile.object_inspection import inspect_shared_object
from kcache_grpc.service.graphs.canonicalizer_upgrade import CanonicalizerUpgrade
from kcache_grpc.service.lifecycle.garbage_collection import QuotaEviction
from kcache_grpc.service.values import Caller
from kcache_grpc.storage.contract.autotune import Timing
from kcache_grpc.storage.contract.blob_cache import ValueDraft
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.records import (
    ArtifactDraft,
    AuditEvent,
    Blob,
    GraphDraft,
    KernelDraft,
    KernelRecord,
    Namespace,
    SignedBytes,
    SpecDraft,
)

NEW, PRESENT, REJECTED = "new", "present", "rejected"
#: Findings of a verification that are about a file whose bytes are not those that were signed.
_DAMAGE = frozenset({"header", "index", "stored", "block", "content", "bomb", "truncated", "signature"})
#: Entries that are stored side by side: transactions of programs share commits.
_SIDE_BY_SIDE = 16
#: Entries between two reports.
_PART = 100


@dataclass(frozen=True)
class ImportedEntry:
    """An entry and what became of it: ``NEW``, ``PRESENT``, or ``REJECTED`` for a reason."""

    kind: EntryKind
    name: str
    outcome: str
    reason: str = ""


@dataclass(frozen=True)
class Imported:
    """The end of an import, with its counts."""

    digest: bytes
    signer: str
    size: int
    new: int
    present: int
    rejected: int


class Import:
    """Imports into one store. Blocks; thread-safe. ``canonicalizer``: version of the one that runs here."""

    def __init__(
        self,
        store: Store,
        signer: Signer,
        quotas: QuotaEviction,
        canonicalizer_upgrade: CanonicalizerUpgrade,
        canonicalizer: int,
    ) -> None:
        self._store = store
        self._signer = signer
        self._quotas = quotas
        self._canonicalizer_upgrade = canonicalizer_upgrade
        self._canonicalizer = canonicalizer

    def check(
        self, bundle: Bundle, trusted: Collection[str], targets: Collection[str] = ()
    ) -> dict[tuple[EntryKind, str], str]:
        """Reads every byte of a bundle, stores nothing. Entries that are not to be stored, and why.

        ``trusted``: identities in addition to that of this store. ``targets``: of kernels; none: all. Raises
        ``PermissionDenied`` for another signer of the bundle, ``IntegrityError`` for damage,
        ``ArgumentError`` where there is no kernel for ``targets``.
        """
        known = frozenset(trusted) | {server_id(self._signer.public_key)}
        bundle.require_trusted(known)
        report = verify_bundle(bundle, trusted=known)
        by_name = {str(entry): (entry.kind, entry.name) for entry in bundle.entries}
        rejected: dict[tuple[EntryKind, str], str] = {}
        for finding in report.findings:
            if finding.name in _DAMAGE or finding.entry not in by_name:
                raise IntegrityError(
                    f"{bundle.source}: {finding.message}; nothing was imported", finding=finding.name
                )
            rejected.setdefault(by_name[finding.entry], finding.message)
        if targets and not set(targets) & set(report.targets):
            raise ArgumentError(
                f"the bundle has no kernel for {', '.join(sorted(targets))}; it has kernels for "
                f"{', '.join(report.targets) or 'none'}",
                field="targets",
                finding="target",
            )
        return rejected

    def store(
        self,
        bundle: Bundle,
        namespace: Namespace,
        caller: Caller,
        rejected: dict[tuple[EntryKind, str], str],
        targets: Collection[str] = (),
    ) -> Generator[list[ImportedEntry] | Imported]:
        """Stores what ``check`` found no fault with: entries as they are done, then the counts.

        Each mapping and each kernel is one transaction. Ended early it stops between two of them.
        """
        work = _Work(self, bundle, namespace, caller, rejected, targets)
        counts: Counter[str] = Counter()
        with ThreadPoolExecutor(_SIDE_BY_SIDE, "kcache-import") as pool:
            for entries in work.parts(pool):
                counts.update(entry.outcome for entry in entries)
                yield entries
        done = Imported(
            bundle.digest, bundle.signer, bundle.size, counts[NEW], counts[PRESENT], counts[REJECTED]
        )
        self._store.append_audit(namespace, [_summary(caller, done)])
        yield done

    def mapping(
        self, bundle: Bundle, entry: IndexEntry, namespace: Namespace, caller: Caller
    ) -> ImportedEntry:
        """One transaction: constants, spec, key and mapping."""
        mapping, binding = checked_mapping(bundle, entry)
        spec = self._spec(bundle, binding.spec_digest)
        graph = GraphDraft(
            spec,
            mapping.program_digest,
            lambda key: self._bound(binding, namespace, key),
            tuple(Blob(each.sha256, _content(bundle, each.sha256)) for each in binding.constants),
        )
        event = _event(caller, NEW, program=mapping.program_digest, spec=spec.spec_digest)
        stored = self._quotas.insert_evicting(self._store.put_graph, namespace, graph, event)
        if stored.mapping.key != stored.spec.key:
            return _rejected(entry, f"the program maps to the spec of key {stored.mapping.key} here")
        if stored.new_mapping and namespace.epoch > 1:
            self._canonicalizer_upgrade.join(namespace, mapping.program_digest, mapping.numerics, stored.spec)
        return ImportedEntry(entry.kind, entry.name, NEW if stored.new_mapping else PRESENT)

    def kernel(
        self, bundle: Bundle, entry: IndexEntry, namespace: Namespace, caller: Caller
    ) -> ImportedEntry:
        """One transaction, as that of a publish; the spec before it, where no mapping brought it."""
        kernel, manifest = checked_kernel(bundle, entry)
        known = self._store.find_kernel(namespace, kernel.kernel_digest)
        if known is not None and {(ref.kind, ref.digest) for ref in known.artifacts} >= {
            (ref.kind, ref.sha256) for ref in kernel.artifacts
        }:
            return ImportedEntry(entry.kind, entry.name, PRESENT)
        artifacts = tuple(
            ArtifactDraft(ref.kind, ref.sha256, _content(bundle, ref.sha256)) for ref in kernel.artifacts
        )
        self._inspect(manifest, artifacts)
        spec = self._store.find_spec(namespace, manifest.spec_digest)
        if spec is None:
            draft = self._spec(bundle, manifest.spec_digest)
            spec = self._quotas.insert_evicting(self._store.put_spec, namespace, draft)
        manifest = replace(
            manifest,
            key=spec.key,
            namespace=namespace.name,
            epoch=namespace.epoch,
            artifacts=kernel.artifacts,
            bundle_digest=bundle.digest,
        )
        size = sum(len(artifact.content) for artifact in artifacts)
        event = _event(caller, NEW, spec=spec.spec_digest, manifest=manifest, size=size)
        draft = self._draft(manifest, spec.key, artifacts, kernel.compile_us)
        published = self._quotas.insert_evicting(self._store.publish_kernel, namespace, draft, None, event)
        if published.differs:
            return _rejected(entry, "it is stored with other artifacts, which stay; the conflict is recorded")
        return ImportedEntry(entry.kind, entry.name, NEW if published.inserted else PRESENT)

    def schedule(
        self, bundle: Bundle, entry: IndexEntry, namespace: Namespace, caller: Caller
    ) -> ImportedEntry:
        """One transaction."""
        del caller
        schedule = ScheduleEntry.from_bytes(bundle.read(entry))
        timings = [
            Timing(
                schedule.subject,
                schedule.shape,
                stored_choice(timing.schedule),
                schedule.device,
                timing.nanoseconds,
                timing.samples,
            )
            for timing in schedule.timings
        ]
        added = self._store.add_timings(namespace, timings)
        return ImportedEntry(entry.kind, entry.name, NEW if added else PRESENT)

    def spec(self, bundle: Bundle, entry: IndexEntry, namespace: Namespace, caller: Caller) -> ImportedEntry:
        """For a spec that no mapping or kernel of the bundle brought."""
        del caller
        draft = self._spec(bundle, bytes.fromhex(entry.name))
        known = self._store.find_spec(namespace, draft.spec_digest)
        if known is None:
            self._quotas.insert_evicting(self._store.put_spec, namespace, draft)
        return ImportedEntry(entry.kind, entry.name, PRESENT if known else NEW)

    def blob(self, bundle: Bundle, entry: IndexEntry, namespace: Namespace, caller: Caller) -> ImportedEntry:
        """One transaction: a value of ``BlobCache``, unless its key has one."""
        saved = entry.attributes.get("saved_us", "0")
        draft = ValueDraft(
            _key(entry),
            entry.sha256,
            entry.size,
            lambda: bundle.chunks(entry),
            entry.attributes.get("label", ""),
            int(saved) if saved.isascii() and saved.isdigit() and len(saved) < 16 else 0,
        )
        outcome = self._quotas.insert_evicting(self._store.put_values, namespace, [draft], caller.actor)[0]
        if outcome.record.digest != entry.sha256:
            return _rejected(entry, "its key has another value, which stays; the conflict is recorded")
        return ImportedEntry(entry.kind, entry.name, NEW if outcome.inserted else PRESENT)

    def require_ours(self, bundle: Bundle, digest: bytes) -> None:
        """Raises ``ArgumentError`` for a spec that another canonicalizer wrote."""
        entry = bundle.find(EntryKind.SPEC, digest.hex())
        if entry is None:
            raise IntegrityError(f"the bundle does not have its spec {digest.hex()}")
        if entry.attributes.get("canonicalizer") != str(self._canonicalizer):
            raise ArgumentError(
                f"canonicalizer {entry.attributes.get('canonicalizer')} wrote its spec, and this server has "
                f"canonicalizer {self._canonicalizer}: no lookup here would find it"
            )

    def _spec(self, bundle: Bundle, digest: bytes) -> SpecDraft:
        self.require_ours(bundle, digest)
        entry = bundle.find(EntryKind.SPEC, digest.hex())
        assert entry is not None
        spec = SpecEntry.from_bytes(bundle.read(entry))
        if spec.canonicalizer != self._canonicalizer or spec.spec_digest != digest:
            raise IntegrityError(f"{entry} contradicts its own attributes")
        return SpecDraft(spec.spec_digest, spec.text, spec.numerics, spec.canonicalizer, spec.family)

    def _bound(self, binding: Binding, namespace: Namespace, key: int) -> SignedBytes:
        payload = replace(binding, namespace=namespace.name, epoch=namespace.epoch, key=key).to_bytes()
        return SignedBytes(payload, self._signer.sign(BINDING_DOMAIN, payload).signature)

    def _draft(
        self, manifest: Manifest, key: int, artifacts: tuple[ArtifactDraft, ...], compile_us: int
    ) -> KernelDraft:
        payload, identity = manifest.to_bytes(), manifest.identity
        return KernelDraft(
            kernel=KernelRecord(
                kernel_digest=identity.digest,
                key=key,
                arg_spec=identity.arg_spec,
                guard=identity.guard,
                target=identity.target,
                options=identity.options,
                toolchain=identity.toolchain_digest,
            ),
            manifest=SignedBytes(payload, self._signer.sign(MANIFEST_DOMAIN, payload).signature),
            artifacts=artifacts,
            ingredients=identity.ingredients
            + tuple((f"toolchain.{name}", value) for name, value in manifest.toolchain),
            compile_us=compile_us,
        )

    def _inspect(self, manifest: Manifest, artifacts: tuple[ArtifactDraft, ...]) -> None:
        code = manifest.code
        if code is None or code.sha256 not in {artifact.digest for artifact in artifacts}:
            raise IntegrityError("the bundle does not have its code")
        for artifact in artifacts:
            if artifact.kind == "so":
                inspect_shared_object(
                    artifact.content, manifest.target, "its shared object is not one that compilers make"
                )


class _Work:
    """One import: mappings, then kernels, then the rest."""

    def __init__(
        self,
        imports: Import,
        bundle: Bundle,
        namespace: Namespace,
        caller: Caller,
        rejected: dict[tuple[EntryKind, str], str],
        targets: Collection[str],
    ) -> None:
        self._imports = imports
        self._bundle = bundle
        self._namespace = namespace
        self._caller = caller
        self._rejected = rejected
        self._targets = targets

    def parts(self, pool: ThreadPoolExecutor) -> Iterator[list[ImportedEntry]]:
        """Entries as they are done, in file order within their kind."""
        kinds = (EntryKind.MAPPING, EntryKind.KERNEL, EntryKind.SPEC, EntryKind.SCHEDULE, EntryKind.BLOB)
        for kind in kinds:
            entries = self._bundle.of_kind(kind)
            for start in range(0, len(entries), _PART):
                futures: list[Future[ImportedEntry]] = [
                    pool.submit(self._one, entry) for entry in entries[start : start + _PART]
                ]
                try:
                    yield [future.result() for future in futures]
                finally:
                    for future in futures:
                        future.cancel()

    def _one(self, entry: IndexEntry) -> ImportedEntry:
        """Never raises an error of kcache: it is the reason of a rejection."""
        reason = self._rejected.get((entry.kind, entry.name)) or self._left_out(entry)
        if reason:
            return _rejected(entry, reason)
        imports = self._imports
        steps = {
            EntryKind.MAPPING: imports.mapping,
            EntryKind.KERNEL: imports.kernel,
            EntryKind.SPEC: imports.spec,
            EntryKind.SCHEDULE: imports.schedule,
            EntryKind.BLOB: imports.blob,
        }
        try:
            return steps[entry.kind](self._bundle, entry, self._namespace, self._caller)
        except KcacheError as error:
            return _rejected(entry, error.message)

    def _left_out(self, entry: IndexEntry) -> str:
        target = entry.attributes.get("target", "")
        if entry.kind is EntryKind.KERNEL and self._targets and target not in self._targets:
            return f"it is for {target}"
        return ""


def _content(bundle: Bundle, digest: bytes) -> bytes:
    entry = bundle.find(EntryKind.ARTIFACT, digest.hex())
    if entry is None:
        raise IntegrityError(f"the bundle does not have the bytes {digest.hex()}")
    if entry.sha256 != digest:
        raise IntegrityError(f"{entry} has other bytes than its name says")
    return bundle.read(entry)


def _key(entry: IndexEntry) -> bytes:
    """The key of a value. Raises ``IntegrityError`` for an entry that does not state one."""
    try:
        key = bytes.fromhex(entry.attributes.get("key", ""))
    except ValueError:
        key = b""
    if len(key) != 32 or entry.name != blob_name(entry.attributes.get("namespace", ""), key):
        raise IntegrityError(f"{entry} does not state its key")
    return key


def _rejected(entry: IndexEntry, reason: str) -> ImportedEntry:
    return ImportedEntry(entry.kind, entry.name, REJECTED, reason)


def _event(
    caller: Caller,
    outcome: str,
    *,
    program: bytes | None = None,
    spec: bytes | None = None,
    manifest: Manifest | None = None,
    size: int = 0,
) -> AuditEvent:
    """Return the audit event of an imported or rejected entry."""
    return AuditEvent(
        kind="import",
        outcome=outcome,
        origin="preloaded",
        actor=caller.actor,
        job=caller.job,
        peer=caller.peer,
        request_id=caller.request_id,
        program_digest=program,
        spec_digest=spec,
        kernel_digest=None if manifest is None else manifest.kernel_digest,
        target="" if manifest is None else str(manifest.target),
        toolchain=None if manifest is None else manifest.toolchain_digest,
        byte_count=size,
        detail="" if manifest is None else json.dumps({"bundle": manifest.bundle_digest.hex()}),
    )


def _summary(caller: Caller, done: Imported) -> AuditEvent:
    return AuditEvent(
        kind="import",
        outcome="ok",
        actor=caller.actor,
        job=caller.job,
        peer=caller.peer,
        request_id=caller.request_id,
        byte_count=done.size,
        detail=json.dumps(
            {
                "bundle": done.digest.hex(),
                "signer": done.signer,
                "new": done.new,
                "present": done.present,
                "rejected": done.rejected,
            }
        ),
    )
