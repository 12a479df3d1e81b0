"""Writes what is selected to a bundle: rows are verified before they are written, and held one by one."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import groupby

from kcache_grpc.bundle import (
    ArtifactEntry,
    BlobEntry,
    BundleMetadata,
    BundleWriter,
    EntryKind,
    KernelEntry,
    MappingEntry,
    ScheduleEntry,
    SpecEntry,
    TimingEntry,
    WritableStream,
)
from kcache_grpc.errors import IntegrityError, NotFound, Unavailable
from kcache_grpc.model.identity import Ingredients
from kcache_grpc.model.manifest import Binding, Manifest
from kcache_grpc.model.signing import BINDING_DOMAIN, MANIFEST_DOMAIN, Signed, Signer, Verifier, server_id
from kcache_grpc.service.autotune import Subject, plain_choice
from kcache_grpc.service.bundles.selection import PAGE, Selected, Selection
from kcache_grpc.storage.contract.blob_cache import ValueRecord
from kcache_grpc.storage.contract.store import CHUNK_BYTES, Store
from kcache_grpc.storage.records import MappingRecord, Namespace, SignedBytes, StoredKernel

logger = logging.getLogger("kcache.service")

#: Stands in for a device where only the digest of a subject counts.
_ANY_DEVICE = "any"


@dataclass(frozen=True)
class Exported:
    """What a bundle came to. ``skipped``: kernels and mappings that were selected and could not be read."""

    digest: bytes
    signer: str
    size: int
    counts: dict[EntryKind, int]
    skipped: int


class Export:
    """One bundle of one namespace. Blocks; memory holds the index, and one artifact of up to 1 MiB."""

    def __init__(self, store: Store, signer: Signer, namespace: Namespace, version: str) -> None:
        self._store = store
        self._signer = signer
        self._verifier = Verifier(signer.public_key)
        self._namespace = namespace
        self._version = version
        #: Digests of the specs that were written, by key.
        self._specs: dict[int, bytes] = {}
        self._toolchains: dict[bytes, Ingredients] = {}
        self._targets: set[str] = set()
        self._subjects: set[bytes] = set()
        self._skipped = 0

    def write(self, selection: Selection, stream: WritableStream) -> Exported:
        """Writes the bundle. Raises ``NotFound`` where nothing is selected, before the first entry;
        ``Unavailable`` when bytes are removed while they are written.
        """
        writer = BundleWriter(stream)
        selected = Selected(self._store, self._namespace, selection)
        blobs = self._blobs(writer) if selection.blobs else 0
        for group in selected.groups():
            for kernel in group.kernels:
                self._checked("kernel", kernel.kernel.kernel_digest, lambda k=kernel: self._kernel(writer, k))
            for mapping in group.mappings:
                if selection.targets and mapping.key not in self._specs:
                    continue
                self._checked("mapping", mapping.program_digest, lambda m=mapping: self._mapping(writer, m))
        if not (self._specs or blobs):
            raise NotFound(
                f"namespace {self._namespace.name} has no kernel, mapping or blob for the selection: "
                f"{selection.text}"
            )
        written = writer.finish(self._metadata(selection), self._signer)
        counts = Counter(entry.kind for entry in written.entries)
        signer = server_id(self._signer.public_key)
        return Exported(written.digest, signer, written.size, dict(counts), self._skipped + selected.lost)

    def _metadata(self, selection: Selection) -> BundleMetadata:
        return BundleMetadata(
            namespace=self._namespace.name,
            epoch=self._namespace.epoch,
            created=datetime.now(timezone.utc),
            toolchains=tuple(self._toolchains[digest] for digest in sorted(self._toolchains)),
            targets=tuple(sorted(self._targets)),
            selection=selection.text,
            creator_version=self._version,
        )

    def _checked(self, subject: str, digest: bytes, write: Callable[[], None]) -> None:
        """Leaves out what is damaged: a bundle is made of the rest."""
        try:
            write()
        except (IntegrityError, _LostError) as error:
            self._skipped += 1
            logger.warning("%s %s is left out of a bundle: %s", subject, digest.hex()[:12], error)

    def _kernel(self, writer: BundleWriter, kernel: StoredKernel) -> None:
        signed = self._signed(kernel.manifest)
        manifest = Manifest.from_bytes(self._verifier.verify(MANIFEST_DOMAIN, signed))
        for ref in manifest.artifacts:
            self._bytes(writer, ref.sha256, ref.size, ref.kind)
        self._spec(writer, kernel.kernel.key)
        writer.add(
            KernelEntry(
                manifest.kernel_digest,
                signed,
                manifest.spec_digest,
                manifest.identity.ingredients,
                manifest.artifacts,
                kernel.compile_us,
            )
        )
        self._toolchains[manifest.toolchain_digest] = manifest.toolchain
        self._targets.add(str(manifest.target))
        self._schedules(writer, manifest)

    def _mapping(self, writer: BundleWriter, mapping: MappingRecord) -> None:
        signed = self._signed(mapping.binding)
        binding = Binding.from_bytes(self._verifier.verify(BINDING_DOMAIN, signed))
        for constant in binding.constants:
            self._bytes(writer, constant.sha256, constant.size, "constant")
        self._spec(writer, mapping.key)
        digests = tuple(constant.sha256 for constant in binding.constants)
        writer.add(
            MappingEntry(mapping.program_digest, mapping.numerics, signed, binding.spec_digest, digests)
        )

    def _spec(self, writer: BundleWriter, key: int) -> None:
        if key in self._specs:
            return
        spec = self._store.get_spec(self._namespace, key)
        if spec is None:
            raise _LostError(f"the store has no spec under key {key}")
        writer.add(SpecEntry(spec.spec_digest, spec.text, spec.numerics, spec.canonicalizer, spec.family))
        self._specs[key] = spec.spec_digest

    def _bytes(self, writer: BundleWriter, digest: bytes, size: int, kind: str) -> None:
        name = digest.hex()
        if writer.has(EntryKind.ARTIFACT, name):
            return
        if size <= CHUNK_BYTES:
            content = self._store.read_artifact(self._namespace, digest)
            if content is None:
                raise _LostError(f"the bytes of {kind} {name} are lost")
            parts: Iterator[bytes] = iter((content,) if content else ())
        else:
            if self._store.artifact_size(self._namespace, digest) != size:
                raise _LostError(f"the bytes of {kind} {name} are lost")
            parts = self._parts(digest, size)
        attributes = ArtifactEntry(digest, b"", kind).attributes
        try:
            writer.write(EntryKind.ARTIFACT, name, parts, attributes, sha256=digest)
        except IntegrityError as error:
            raise Unavailable(f"{error.message}; verify the store, then ask again", sha256=name) from error

    def _parts(self, digest: bytes, size: int) -> Iterator[bytes]:
        for offset in range(0, size, CHUNK_BYTES):
            part = self._store.read_artifact(self._namespace, digest, offset, CHUNK_BYTES)
            if not part:
                raise Unavailable(
                    f"artifact {digest.hex()} was removed while it was exported; ask again",
                    sha256=digest.hex(),
                )
            yield part

    def _blobs(self, writer: BundleWriter) -> int:
        """The values of ``BlobCache``, chunk by chunk; how many were written."""
        count = after = 0
        while page := self._store.list_values(self._namespace, after, PAGE):
            after = page[-1].id
            for record in page:
                self._blob(writer, record)
            count += len(page)
        return count

    def _blob(self, writer: BundleWriter, record: ValueRecord) -> None:
        entry = BlobEntry(self._namespace.name, record.key, b"")
        attributes = {**entry.attributes, "label": record.label, "saved_us": str(record.saved_us)}
        try:
            writer.write(EntryKind.BLOB, entry.name, self._value(record), attributes, sha256=record.digest)
        except IntegrityError as error:
            raise Unavailable(f"{error.message}; ask again", key=record.key.hex()) from error

    def _value(self, record: ValueRecord) -> Iterator[bytes]:
        for seq in range(record.chunk_count):
            content = self._store.read_chunk(self._namespace, record, seq)
            if content is None:
                raise Unavailable(
                    f"value {record.key.hex()} was removed while it was exported; ask again",
                    key=record.key.hex(),
                )
            yield content

    def _schedules(self, writer: BundleWriter, manifest: Manifest) -> None:
        options = replace(manifest.options, schedule="")
        subject = Subject(
            manifest.spec_digest, manifest.arg_spec, manifest.target, options, _ANY_DEVICE
        ).digest
        if subject in self._subjects:
            return
        self._subjects.add(subject)
        records = self._store.list_subject(self._namespace, subject)
        for (shape, device), group in groupby(records, lambda r: (r.timing.shape, r.timing.device)):
            timings = tuple(
                TimingEntry(
                    plain_choice(record.timing.config),
                    record.timing.nanoseconds,
                    record.timing.samples,
                    record.created_at,
                )
                for record in group
            )
            writer.add(ScheduleEntry(subject, shape, device, timings))

    def _signed(self, stored: SignedBytes) -> Signed:
        return Signed(stored.payload, stored.signature, self._signer.key_id)


class _LostError(Exception):
    """Something that a row refers to is not there."""
