"""Verification: is what is stored what was stored, and what the compiler makes today?"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from kcache_grpc.errors import KcacheError
from kcache_grpc.model.identity import KernelIdentity
from kcache_grpc.model.manifest import Binding, Manifest
from kcache_grpc.model.signing import BINDING_DOMAIN, MANIFEST_DOMAIN, Signed, Verifier
from kcache_grpc.service import describe
from kcache_grpc.storage.contract import Store
from kcache_grpc.storage.errors import CorruptStore
from kcache_grpc.storage.records import AuditEvent, MappingRecord, Namespace, SpecRecord, StoredKernel
from kcache_grpc.worker import codec
from kcache_grpc.worker.frames import Frame

#: Compiles in a worker; raises what the compiler raises. Blocks.
Compile = Callable[[Frame], Frame]

#: Checked where nothing is said.
SAMPLE = 20
_PAGE = 100
_LAST_ID = 2**62


@dataclass(frozen=True)
class Fault:
    """Something that is wrong. ``subject``: kernel, mapping, spec or artifact."""

    subject: str
    digest: bytes
    problem: str
    action: str


@dataclass
class Counts:
    """What was checked."""

    kernels: int = 0
    compiled: int = 0
    mappings: int = 0
    faults: int = 0
    hashed: set[bytes] = field(default_factory=set[bytes], repr=False)

    @property
    def blobs(self) -> int:
        """Blobs whose bytes were hashed."""
        return len(self.hashed)


class _WrongError(Exception):
    """What is wrong with a row."""


class Verification:
    """Checks of one store. Blocks.

    ``public_key``: of the server that signed; ``None``: signatures are not checked. ``recompile``: of the
    compiler whose toolchains these are, by digest; ``None``: nothing is compiled.
    """

    def __init__(
        self,
        store: Store,
        public_key: bytes | None,
        toolchains: frozenset[bytes] = frozenset(),
        recompile: Compile | None = None,
    ) -> None:
        self._store = store
        self._verifier = None if public_key is None else Verifier(public_key)
        self._toolchains = toolchains
        self._recompile = recompile

    def steps(self, namespace: Namespace, sample: int | None = SAMPLE) -> Iterator[Fault | Counts]:
        """Faults as they are found, then the counts; ``sample`` ``None``: of all kernels and mappings.

        Bytes that fail their digest are quarantined, and the next compile repairs them. Kernels and mappings
        that are wrong in any other way are removed, and made anew when they are asked for. Specs stay.
        """
        counts = Counts()
        for kernel in self._kernels(namespace, sample):
            counts.kernels += 1
            for fault in self._check_kernel(namespace, kernel, counts):
                counts.faults += 1
                yield fault
        for mapping in self._mappings(namespace, sample):
            counts.mappings += 1
            for fault in self._check_mapping(namespace, mapping, counts):
                counts.faults += 1
                yield fault
        yield counts

    def _check_kernel(self, namespace: Namespace, kernel: StoredKernel, counts: Counts) -> Iterator[Fault]:
        name = kernel.kernel.kernel_digest
        try:
            spec = self._spec(namespace, kernel.kernel.key)
        except _WrongError as wrong:
            yield _of_spec(name, wrong)
            return
        try:
            manifest = self._manifest(namespace, kernel, spec)
        except _WrongError as wrong:
            self._discard(namespace, str(wrong), kernels=[name])
            yield Fault("kernel", name, str(wrong), "removed: the next request compiles it anew")
            return
        lost = list(self._check_blobs(namespace, [ref.digest for ref in kernel.artifacts], counts))
        yield from lost
        if not lost and self._recompile is not None and kernel.kernel.toolchain in self._toolchains:
            counts.compiled += 1
            yield from self._compare(namespace, kernel, manifest, spec, self._recompile)

    def _check_blobs(self, namespace: Namespace, digests: Iterable[bytes], counts: Counts) -> Iterator[Fault]:
        for digest in digests:
            if digest not in counts.hashed:
                counts.hashed.add(digest)
                if not self._store.verify_artifact(namespace, digest):
                    problem = "its bytes are lost, or do not hash to its digest"
                    yield Fault("artifact", digest, problem, "quarantined: the next compile repairs it")

    def _compare(
        self,
        namespace: Namespace,
        kernel: StoredKernel,
        manifest: Manifest,
        spec: SpecRecord,
        recompile: Compile,
    ) -> Iterator[Fault]:
        name = kernel.kernel.kernel_digest
        job = codec.compile_job(
            spec.text,
            describe.compiler_arg_spec(kernel.kernel.arg_spec),
            kernel.kernel.target,
            describe.compiler_options(manifest.options),
        )
        try:
            made = codec.decode_kernel(recompile(job)).artifacts
        except KcacheError as error:
            yield Fault("kernel", name, f"does not compile any more: {error}", "left as it is")
            return
        differing = [
            ref
            for ref in kernel.artifacts
            if made.get(ref.kind) != self._store.read_artifact(namespace, ref.digest)
        ]
        if not differing:
            return
        kinds = ", ".join(ref.kind for ref in differing)
        problem = f"the same toolchain makes other bytes of {kinds} than are stored"
        for ref in differing:
            self._store.quarantine_artifact(namespace, ref.digest, f"verify: {problem}")
        self._discard(namespace, problem, kernels=[name], artifacts=[ref.digest for ref in differing])
        yield Fault(
            "kernel", name, problem, "quarantined and removed, with all kernels that have these bytes"
        )

    def _manifest(self, namespace: Namespace, kernel: StoredKernel, spec: SpecRecord) -> Manifest:
        """The kernel's manifest, once it says what the row says. Raises ``_WrongError``."""
        self._verify(MANIFEST_DOMAIN, Signed(kernel.manifest.payload, kernel.manifest.signature, b""))
        record = kernel.kernel
        try:
            manifest = Manifest.from_bytes(kernel.manifest.payload)
        except KcacheError as error:
            raise _WrongError(f"its manifest cannot be read: {error}") from error
        said = (manifest.namespace, manifest.epoch, manifest.key, manifest.spec_digest)
        said += (manifest.arg_spec, manifest.guard, str(manifest.target), str(manifest.options))
        said += (manifest.toolchain_digest, {(ref.kind, ref.sha256, ref.size) for ref in manifest.artifacts})
        stored = (namespace.name, kernel.epoch, record.key, spec.spec_digest)
        stored += (record.arg_spec, record.guard, record.target, record.options)
        stored += (record.toolchain, {(ref.kind, ref.digest, ref.size) for ref in kernel.artifacts})
        if said != stored:
            raise _WrongError("its row and its manifest contradict each other")
        identity = KernelIdentity(
            spec.spec_digest, record.arg_spec, record.guard, record.target, record.options, record.toolchain
        )
        if not identity.digest == record.kernel_digest == manifest.kernel_digest:
            raise _WrongError("its kernel digest is not that of its ingredients")
        return manifest

    def _check_mapping(self, namespace: Namespace, mapping: MappingRecord, counts: Counts) -> Iterator[Fault]:
        name = mapping.program_digest
        try:
            spec = self._spec(namespace, mapping.key)
        except _WrongError as wrong:
            yield _of_spec(name, wrong)
            return
        try:
            binding = self._binding(namespace, mapping, spec)
        except _WrongError as wrong:
            self._discard(namespace, str(wrong), mappings=[(name, mapping.numerics)])
            yield Fault("mapping", name, str(wrong), "removed: the next request stores it anew")
            return
        yield from self._check_blobs(namespace, [each.sha256 for each in binding.constants], counts)

    def _binding(self, namespace: Namespace, mapping: MappingRecord, spec: SpecRecord) -> Binding:
        self._verify(BINDING_DOMAIN, Signed(mapping.binding.payload, mapping.binding.signature, b""))
        try:
            binding = Binding.from_bytes(mapping.binding.payload)
        except KcacheError as error:
            raise _WrongError(f"its binding cannot be read: {error}") from error
        said = (binding.program_digest, binding.numerics, binding.namespace, binding.epoch, binding.key)
        stored = (mapping.program_digest, mapping.numerics, namespace.name, mapping.epoch, mapping.key)
        if (*said, binding.spec_digest) != (*stored, spec.spec_digest):
            raise _WrongError("its row and its binding contradict each other")
        return binding

    def _verify(self, domain: bytes, signed: Signed) -> None:
        if self._verifier is None:
            return
        try:
            self._verifier.verify(domain, signed)
        except KcacheError as error:
            raise _WrongError(str(error)) from error

    def _spec(self, namespace: Namespace, key: int) -> SpecRecord:
        try:
            spec = self._store.get_spec(namespace, key)
        except CorruptStore as error:
            raise _WrongError(str(error)) from error
        if spec is None:
            raise _WrongError(f"there is no spec {key}")
        return spec

    def _discard(
        self,
        namespace: Namespace,
        problem: str,
        *,
        kernels: list[bytes] | None = None,
        mappings: list[tuple[bytes, str]] | None = None,
        artifacts: list[bytes] | None = None,
    ) -> None:
        event = AuditEvent("verify", outcome="removed", detail=json.dumps({"problem": problem}))
        self._store.discard(namespace, kernels or [], mappings or [], event, artifacts or [])

    def _kernels(self, namespace: Namespace, sample: int | None) -> Iterator[StoredKernel]:
        if sample is None:
            after = 0
            while page := self._store.page_kernels(namespace, after, _PAGE):
                yield from page
                after = page[-1].id
            return
        last, seen = self._last_kernel(namespace), set[int]()
        for _ in range(sample if last else 0):
            place = random.randrange(last)  # noqa: S311 (a sample, not a secret)
            for kernel in self._store.page_kernels(namespace, place, 1):
                if kernel.id not in seen:
                    seen.add(kernel.id)
                    yield kernel

    def _last_kernel(self, namespace: Namespace) -> int:
        """The largest id, 0 where there is none: by halving, each step a look at an index."""
        low, high = 0, _LAST_ID
        while low < high:
            middle = (low + high) // 2
            found = self._store.page_kernels(namespace, middle, 1)
            low, high = (found[0].id, high) if found else (low, middle)
        return low

    def _mappings(self, namespace: Namespace, sample: int | None) -> Iterator[MappingRecord]:
        if sample is None:
            after: tuple[bytes, str] | None = None
            while page := self._store.page_mappings(namespace, after, _PAGE):
                yield from page
                after = (page[-1].program_digest, page[-1].numerics)
            return
        seen = set[tuple[bytes, str]]()
        for _ in range(sample):
            place = (random.randbytes(32), "")  # noqa: S311
            page = self._store.page_mappings(namespace, place, 1)
            for mapping in page or self._store.page_mappings(namespace, None, 1):
                if (name := (mapping.program_digest, mapping.numerics)) not in seen:
                    seen.add(name)
                    yield mapping


def _of_spec(digest: bytes, wrong: _WrongError) -> Fault:
    return Fault("spec", digest, str(wrong), "specs are never removed: restore the store from a backup")
