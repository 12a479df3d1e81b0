"""Verification: is what is stored what was stored, and what the compiler makes today?"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from kcache_grpc.errors import KcacheError, PermissionDenied
from kcache_grpc.model.identity import KernelIdentity
from kcache_grpc.model.manifest import Binding, Manifest
from kcache_grpc.model.signing import BINDING_DOMAIN, MANIFEST_DOMAIN, Signed, Verifier, key_id_of
from kcache_grpc.service import manifests
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.errors import CorruptStore, SignerMismatch
from kcache_grpc.storage.records import AuditEvent, MappingRecord, Namespace, SpecRecord, StoredKernel
from kcache_grpc.worker import codec
from kcache_grpc.worker.frames import Frame

#: Compiles in a worker; raises what the compiler raises. Blocks.
Compile = Callable[[Frame], Frame]

#: Checked where nothing is said.
SAMPLE = 20
#: The share of faulty kernels and mappings above which a repair needs a confirmation: one in a hundred.
IMPLAUSIBLE_SHARE = 0.01
_PAGE = 100
_LAST_ID = 2**62


@dataclass(frozen=True)
class Fault:
    """Something that is wrong. ``subject``: kernel, mapping, spec or artifact.

    ``action``: what was done about it, or what a repair would do.
    """

    subject: str
    digest: bytes
    problem: str
    action: str


@dataclass
class Counts:
    """What was checked.

    ``repaired``: faults that were acted on. ``withheld``: the repair was asked for and not done, because more
    than ``IMPLAUSIBLE_SHARE`` of the kernels and mappings are faulty.
    """

    kernels: int = 0
    compiled: int = 0
    mappings: int = 0
    faults: int = 0
    repaired: int = 0
    withheld: bool = False
    hashed: set[bytes] = field(default_factory=set[bytes], repr=False)

    @property
    def blobs(self) -> int:
        """Blobs whose bytes were hashed."""
        return len(self.hashed)


@dataclass(frozen=True)
class _Finding:
    """A fault, and what a repair does: ``repair`` ``None`` where nothing is to be done."""

    fault: Fault
    repair: Callable[[], object] | None = None
    would: str = ""

    def left(self) -> Fault:
        """The fault, with what a repair would do."""
        return replace(self.fault, action=self.would) if self.would else self.fault


class _WrongError(Exception):
    """What is wrong with a row."""


class Verification:
    """Checks of one store. Blocks.

    ``public_key``: of the server that signed; ``None``: signatures are not checked. ``recompile``: of the
    compiler whose toolchains these are, by digest; ``None``: nothing is compiled. ``former``: keys that may
    have signed too. ``blobs``: whether bytes are hashed.
    """

    def __init__(
        self,
        store: Store,
        public_key: bytes | None,
        toolchains: frozenset[bytes] = frozenset(),
        recompile: Compile | None = None,
        *,
        former: Sequence[bytes] = (),
        blobs: bool = True,
    ) -> None:
        self._store = store
        self._verifier = None if public_key is None else Verifier(public_key)
        self._former = [Verifier(key) for key in former]
        self._blobs = blobs
        self._toolchains = toolchains
        self._recompile = recompile

    def steps(
        self,
        namespace: Namespace,
        sample: int | None = SAMPLE,
        *,
        repair: bool = False,
        confirmed: bool = False,
    ) -> Iterator[Fault | Counts]:
        """Faults, then the counts; ``sample`` ``None``: of all kernels and mappings.

        Without ``repair`` nothing changes. With it, once all is checked, bytes that fail their digest are
        quarantined, and the next compile repairs them; kernels and mappings that are wrong in any other way
        go into quarantine, and are made anew when they are asked for. Specs stay. Where more than
        ``IMPLAUSIBLE_SHARE`` is faulty nothing is done unless it is ``confirmed``: rather the check is wrong
        than this many rows.

        Raises ``SignerMismatch`` for a key that is not the store's signer, ``PermissionDenied`` for a repair
        without the key.
        """
        self._reject_other_key(repair)
        counts, findings = Counts(), list[_Finding]()
        for finding in self._check(namespace, sample, counts):
            counts.faults += 1
            if repair:
                findings.append(finding)
            else:
                yield finding.left()
        repairs = sum(finding.repair is not None for finding in findings)
        checked = counts.kernels + counts.mappings
        counts.withheld = not confirmed and repairs > IMPLAUSIBLE_SHARE * checked
        for finding in findings:
            if counts.withheld or finding.repair is None:
                yield finding.left()
                continue
            finding.repair()
            counts.repaired += 1
            yield finding.fault
        yield counts

    def one(self, namespace: Namespace, kernel: StoredKernel, *, repair: bool) -> tuple[Fault, ...]:
        """The faults of one kernel, which with ``repair`` are acted on at once, as in ``steps``.

        The caller judges whether the faults are plausible. Raises as ``steps`` does, and what ``recompile``
        raises that is no ``KcacheError``.
        """
        self._reject_other_key(repair)
        faults: list[Fault] = []
        for finding in list(self._check_kernel(namespace, kernel, Counts())):
            if repair and finding.repair is not None:
                finding.repair()
                faults.append(finding.fault)
            else:
                faults.append(finding.left())
        return tuple(faults)

    def _reject_other_key(self, repair: bool) -> None:
        stored = self._store.find_signer()
        if self._verifier is None or stored is None:
            if repair:
                raise PermissionDenied(
                    "a repair needs the key that signs what the store holds, and "
                    + ("there is none yet: no server has served it" if stored is None else "none is given")
                )
            return
        key_id = key_id_of(self._verifier.public_key)
        if key_id != stored:
            raise SignerMismatch(
                f"the store was signed by key {stored.hex()}, not by {key_id.hex()}", stored=stored.hex()
            )

    def _check(self, namespace: Namespace, sample: int | None, counts: Counts) -> Iterator[_Finding]:
        for kernel in self._kernels(namespace, sample):
            counts.kernels += 1
            yield from self._check_kernel(namespace, kernel, counts)
        for mapping in self._mappings(namespace, sample):
            counts.mappings += 1
            yield from self._check_mapping(namespace, mapping, counts)

    def _check_kernel(self, namespace: Namespace, kernel: StoredKernel, counts: Counts) -> Iterator[_Finding]:
        name = kernel.kernel.kernel_digest
        try:
            spec = self._spec(namespace, kernel.kernel.key)
        except _WrongError as wrong:
            yield _of_spec(name, wrong)
            return
        try:
            manifest = self._manifest(namespace, kernel, spec)
        except _WrongError as wrong:
            yield _Finding(
                Fault("kernel", name, str(wrong), "quarantined: the next request compiles it anew"),
                partial(self._discard, namespace, str(wrong), kernels=[name]),
                "left; a repair quarantines it, and the next request compiles it anew",
            )
            return
        lost = list(self._check_blobs(namespace, [ref.digest for ref in kernel.artifacts], counts))
        yield from lost
        if not lost and self._recompile is not None and kernel.kernel.toolchain in self._toolchains:
            counts.compiled += 1
            yield from self._compare(namespace, kernel, manifest, spec, self._recompile)

    def _check_blobs(
        self, namespace: Namespace, digests: Iterable[bytes], counts: Counts
    ) -> Iterator[_Finding]:
        for digest in digests if self._blobs else ():
            if digest not in counts.hashed:
                counts.hashed.add(digest)
                if not self._store.verify_artifact(namespace, digest, quarantine=False):
                    problem = "its bytes are lost, or do not hash to its digest"
                    yield _Finding(
                        Fault("artifact", digest, problem, "quarantined: the next compile repairs it"),
                        partial(self._store.verify_artifact, namespace, digest),
                        "left; a repair quarantines it, and the next compile repairs it",
                    )

    def _compare(
        self,
        namespace: Namespace,
        kernel: StoredKernel,
        manifest: Manifest,
        spec: SpecRecord,
        recompile: Compile,
    ) -> Iterator[_Finding]:
        """Compile the spec of a kernel again and compare the artifacts byte by byte; one finding at most."""
        name = kernel.kernel.kernel_digest
        job = codec.compile_job(
            spec.text,
            manifests.compiler_arg_spec(kernel.kernel.arg_spec),
            kernel.kernel.target,
            manifests.compiler_options(manifest.options),
        )
        try:
            artifacts = codec.decode_kernel(recompile(job)).artifacts
        except KcacheError as error:
            yield _Finding(Fault("kernel", name, f"does not compile any more: {error}", "left as it is"))
            return
        differing = [
            ref
            for ref in kernel.artifacts
            if artifacts.get(ref.kind) != self._store.read_artifact(namespace, ref.digest)
        ]
        if not differing:
            return
        kinds = ", ".join(ref.kind for ref in differing)
        problem = f"the same toolchain makes other bytes of {kinds} than are stored"
        digests = [ref.digest for ref in differing]

        def repair() -> None:
            for digest in digests:
                self._store.quarantine_artifact(namespace, digest, f"verify: {problem}")
            self._discard(namespace, problem, kernels=[name], artifacts=digests)

        yield _Finding(
            Fault("kernel", name, problem, "quarantined, with all kernels that have these bytes"),
            repair,
            "left; a repair quarantines these bytes and all kernels that have them",
        )

    def _manifest(self, namespace: Namespace, kernel: StoredKernel, spec: SpecRecord) -> Manifest:
        """The kernel's manifest, once it says what the row says. Raises ``_WrongError``."""
        self._verify(MANIFEST_DOMAIN, Signed(kernel.manifest.payload, kernel.manifest.signature, b""))
        record = kernel.kernel
        try:
            manifest = Manifest.from_bytes(kernel.manifest.payload)
        except KcacheError as error:
            raise _WrongError(f"its manifest cannot be read: {error}") from error
        signed = (manifest.namespace, manifest.epoch, manifest.key, manifest.spec_digest)
        signed += (manifest.arg_spec, manifest.guard, str(manifest.target), str(manifest.options))
        signed += (
            manifest.toolchain_digest,
            {(ref.kind, ref.sha256, ref.size) for ref in manifest.artifacts},
        )
        stored = (namespace.name, kernel.epoch, record.key, spec.spec_digest)
        stored += (record.arg_spec, record.guard, record.target, record.options)
        stored += (record.toolchain, {(ref.kind, ref.digest, ref.size) for ref in kernel.artifacts})
        if signed != stored:
            raise _WrongError("its row and its manifest contradict each other")
        identity = KernelIdentity(
            spec.spec_digest, record.arg_spec, record.guard, record.target, record.options, record.toolchain
        )
        if not identity.digest == record.kernel_digest == manifest.kernel_digest:
            raise _WrongError("its kernel digest is not that of its ingredients")
        return manifest

    def _check_mapping(
        self, namespace: Namespace, mapping: MappingRecord, counts: Counts
    ) -> Iterator[_Finding]:
        name = mapping.program_digest
        try:
            spec = self._spec(namespace, mapping.key)
        except _WrongError as wrong:
            yield _of_spec(name, wrong)
            return
        try:
            binding = self._binding(namespace, mapping, spec)
        except _WrongError as wrong:
            yield _Finding(
                Fault("mapping", name, str(wrong), "quarantined: the next request stores it anew"),
                partial(self._discard, namespace, str(wrong), mappings=[(name, mapping.numerics)]),
                "left; a repair quarantines it, and the next request stores it anew",
            )
            return
        yield from self._check_blobs(namespace, [each.sha256 for each in binding.constants], counts)

    def _binding(self, namespace: Namespace, mapping: MappingRecord, spec: SpecRecord) -> Binding:
        self._verify(BINDING_DOMAIN, Signed(mapping.binding.payload, mapping.binding.signature, b""))
        try:
            binding = Binding.from_bytes(mapping.binding.payload)
        except KcacheError as error:
            raise _WrongError(f"its binding cannot be read: {error}") from error
        stated = (binding.program_digest, binding.numerics, binding.namespace, binding.epoch, binding.key)
        stored = (mapping.program_digest, mapping.numerics, namespace.name, mapping.epoch, mapping.key)
        if (*stated, binding.spec_digest) != (*stored, spec.spec_digest):
            raise _WrongError("its row and its binding contradict each other")
        return binding

    def _verify(self, domain: bytes, signed: Signed) -> None:
        if self._verifier is None:
            return
        try:
            self._verifier.verify(domain, signed)
        except KcacheError as error:
            if not any(_holds(verifier, domain, signed) for verifier in self._former):
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
        event = AuditEvent("verify", outcome="quarantined", detail=json.dumps({"problem": problem}))
        self._store.discard(namespace, kernels or [], mappings or [], event, artifacts or [])

    def _kernels(self, namespace: Namespace, sample: int | None) -> Iterator[StoredKernel]:
        if sample is None:
            after = 0
            while page := self._store.page_kernels(namespace, after, _PAGE):
                yield from page
                after = page[-1].id
            return
        last, seen = last_kernel(self._store, namespace), set[int]()
        for _ in range(sample if last else 0):
            place = random.randrange(last)  # noqa: S311 (a sample, not a secret)
            for kernel in self._store.page_kernels(namespace, place, 1):
                if kernel.id not in seen:
                    seen.add(kernel.id)
                    yield kernel

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


def last_kernel(store: Store, namespace: Namespace) -> int:
    """The largest id, 0 where there is none: by halving, each step a look at an index."""
    low, high = 0, _LAST_ID
    while low < high:
        middle = (low + high) // 2
        page = store.page_kernels(namespace, middle, 1)
        low, high = (page[0].id, high) if page else (low, middle)
    return low


def _holds(verifier: Verifier, domain: bytes, signed: Signed) -> bool:
    try:
        verifier.verify(domain, signed)
    except KcacheError:
        return False
    return True


def _of_spec(digest: bytes, wrong: _WrongError) -> _Finding:
    return _Finding(
        Fault("spec", digest, str(wrong), "specs are never removed: restore the store from a backup")
    )
