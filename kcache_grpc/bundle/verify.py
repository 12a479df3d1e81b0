"""Checks a bundle: its mappings and kernels, parsed once their own signatures held and their parts agree;
whether it is whole, is signed by a trusted key, and serves a target. Loads and runs nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from kcache_grpc.bundle.entries import KernelEntry, MappingEntry, ScheduleEntry, SpecEntry
from kcache_grpc.bundle.format import EntryKind, IndexEntry
from kcache_grpc.bundle.reader import Bundle
from kcache_grpc.errors import ArgumentError, IntegrityError, KcacheError
from kcache_grpc.model.identity import toolchain_digest
from kcache_grpc.model.manifest import ArtifactRef, Binding, Manifest
from kcache_grpc.model.signing import BINDING_DOMAIN, MANIFEST_DOMAIN


def checked_mapping(
    bundle: Bundle, entry: IndexEntry, trusted: Collection[str] | None = None
) -> tuple[MappingEntry, Binding]:
    """A mapping and its binding, whose signature holds under a key of the bundle.

    ``trusted``: identities that may have signed it; ``None``: all that the bundle names. Raises
    ``IntegrityError`` for one that contradicts itself, ``PermissionDenied`` for another signer.
    """
    mapping = MappingEntry.from_bytes(bundle.read(entry))
    payload = bundle.signed_payload(BINDING_DOMAIN, mapping.binding, trusted)
    _same(str(entry), "name", entry.name, mapping.name)
    _same(str(entry), "attributes", dict(entry.attributes), dict(mapping.attributes))
    return mapping, read_binding(mapping, payload)


def checked_kernel(
    bundle: Bundle, entry: IndexEntry, trusted: Collection[str] | None = None
) -> tuple[KernelEntry, Manifest]:
    """A kernel and its manifest. Arguments and errors as those of ``checked_mapping``."""
    kernel = KernelEntry.from_bytes(bundle.read(entry))
    payload = bundle.signed_payload(MANIFEST_DOMAIN, kernel.manifest, trusted)
    _same(str(entry), "name", entry.name, kernel.name)
    _same(str(entry), "attributes", dict(entry.attributes), dict(kernel.attributes))
    return kernel, read_manifest(kernel, payload)


def read_binding(mapping: MappingEntry, payload: bytes) -> Binding:
    """The binding in a payload whose signature held. Raises ``IntegrityError`` where ``mapping`` differs."""
    name = f"mapping {mapping.name}"
    try:
        binding = Binding.from_bytes(payload)
    except ArgumentError as error:
        raise _not_understood(name, error) from error
    _same(name, "program digest", mapping.program_digest.hex(), binding.program_digest.hex())
    _same(name, "numerics", mapping.numerics, binding.numerics)
    _same(name, "spec digest", mapping.spec_digest.hex(), binding.spec_digest.hex())
    _same(name, "constants", mapping.constants, tuple(constant.sha256 for constant in binding.constants))
    return binding


def read_manifest(kernel: KernelEntry, payload: bytes) -> Manifest:
    """The manifest in a payload whose signature held. Raises ``IntegrityError`` where ``kernel`` differs."""
    name = f"kernel {kernel.name}"
    try:
        manifest = Manifest.from_bytes(payload)
    except ArgumentError as error:
        raise _not_understood(name, error) from error
    _same(name, "kernel digest", kernel.kernel_digest.hex(), manifest.kernel_digest.hex())
    _same(name, "kernel digest", kernel.kernel_digest.hex(), manifest.identity.digest.hex())
    _same(name, "ingredients", kernel.ingredients, manifest.identity.ingredients)
    _same(name, "spec digest", kernel.spec_digest.hex(), manifest.spec_digest.hex())
    toolchain = toolchain_digest(manifest.toolchain).hex()
    _same(name, "toolchain digest", manifest.toolchain_digest.hex(), toolchain)
    unknown = [ref for ref in kernel.artifacts if ref not in manifest.artifacts]
    if unknown:
        raise IntegrityError(
            f"{name} names an artifact that its manifest does not have: {unknown[0].sha256.hex()}",
            finding="kernel",
        )
    return manifest


def needed_bytes(manifest: Manifest, binding: Binding | None = None) -> tuple[ArtifactRef, ...]:
    """What must be at hand to run a kernel: its code, and the lifted constants of a binding.

    Raises ``IntegrityError`` for a manifest without code.
    """
    if manifest.code is None:
        raise IntegrityError(f"the manifest of kernel {manifest.kernel_digest.hex()} names no code")
    constants = () if binding is None else binding.constants
    return (
        manifest.code,
        *(ArtifactRef("constant", constant.sha256, constant.size) for constant in constants),
    )


def _same(name: str, part: str, value: object, signed: object) -> None:
    if value != signed:
        raise IntegrityError(
            f"the {part} of {name} is {value!r}, and {signed!r} in what its server signed",
            finding=name.partition(" ")[0],
        )


def _not_understood(name: str, error: ArgumentError) -> IntegrityError:
    return IntegrityError(
        f"{name} holds a value that this version does not know: {error}; install a newer kcache-grpc",
        finding=name.partition(" ")[0],
        skew="bundle",
    )


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a bundle.

    ``name`` is one of docs/guide/bundles.md, such as ``"untrusted"`` or ``"missing"``; ``entry`` is empty
    where it is about the bundle as a whole.
    """

    name: str
    entry: str
    message: str


@dataclass(frozen=True)
class VerifyReport:
    """What a verification found. Without findings the bundle may be imported."""

    signer: str
    digest: bytes
    #: Entries by kind, whole or not.
    entries: dict[str, int]
    #: Targets of the kernels, sorted.
    targets: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether there are no findings."""
        return not self.findings


def verify_bundle(
    bundle: Bundle, *, trusted: Collection[str] | None = None, target: str | None = None
) -> VerifyReport:
    """Reads every byte of a bundle and checks it.

    ``trusted``: identities that may have signed bundle, manifests and bindings; ``None``: any that the bundle
    names. ``target``: such as ``"x86-64-v3"``; kernels for it, with their bytes, must be there.
    """
    return _Verification(bundle, trusted, target).run()


class _Verification:
    """One run: findings, and what kernels and mappings refer to."""

    def __init__(self, bundle: Bundle, trusted: Collection[str] | None, target: str | None) -> None:
        self._bundle, self._trusted, self._target = bundle, trusted, target
        self._findings: list[Finding] = []
        self._manifests: list[Manifest] = []

    def run(self) -> VerifyReport:
        """All checks."""
        bundle, trusted = self._bundle, self._trusted
        if trusted is not None:
            self._checked("", lambda: bundle.require_trusted(trusted))
        for entry in bundle.entries:
            self._checked(str(entry), lambda entry=entry: self._entry(entry))
        targets = tuple(sorted({str(manifest.target) for manifest in self._manifests}))
        if self._target is not None and self._target not in targets:
            known = ", ".join(targets) or "none"
            self._find(
                "target", "", f"the bundle has no kernel for {self._target}; it has kernels for {known}"
            )
        kinds = {kind.label: len(bundle.of_kind(kind)) for kind in EntryKind}
        return VerifyReport(bundle.signer, bundle.digest, kinds, targets, tuple(self._findings))

    def _entry(self, entry: IndexEntry) -> None:
        bundle = self._bundle
        match entry.kind:
            case EntryKind.KERNEL:
                _, manifest = checked_kernel(bundle, entry, self._trusted)
                self._kernel(entry, manifest)
            case EntryKind.MAPPING:
                mapping, binding = checked_mapping(bundle, entry, self._trusted)
                self._mapping(entry, mapping, binding)
            case EntryKind.SPEC:
                _require_name(entry, SpecEntry.from_bytes(bundle.read(entry)).name)
            case EntryKind.SCHEDULE:
                _require_name(entry, ScheduleEntry.from_bytes(bundle.read(entry)).name)
            case EntryKind.ARTIFACT:
                _require_name(entry, entry.sha256.hex())
                self._all_bytes(entry)
            case EntryKind.BLOB:
                self._all_bytes(entry)

    def _kernel(self, entry: IndexEntry, manifest: Manifest) -> None:
        self._manifests.append(manifest)
        self._require_spec(entry, manifest.spec_digest)
        for ref in needed_bytes(manifest):
            self._require_bytes(entry, ref)

    def _mapping(self, entry: IndexEntry, mapping: MappingEntry, binding: Binding) -> None:
        self._require_spec(entry, mapping.spec_digest)
        for constant in binding.constants:
            self._require_bytes(entry, ArtifactRef("constant", constant.sha256, constant.size))

    def _require_spec(self, entry: IndexEntry, digest: bytes) -> None:
        if self._bundle.find(EntryKind.SPEC, digest.hex()) is None:
            self._find("missing", str(entry), f"the bundle does not have its spec {digest.hex()}")

    def _require_bytes(self, entry: IndexEntry, ref: ArtifactRef) -> None:
        artifact = self._bundle.find(EntryKind.ARTIFACT, ref.sha256.hex())
        if artifact is None:
            self._find("missing", str(entry), f"the bundle does not have its {ref.kind} {ref.sha256.hex()}")
        elif artifact.size != ref.size:
            message = (
                f"its {ref.kind} has {artifact.size} bytes in the bundle, and {ref.size} as it was signed"
            )
            self._find("content", str(entry), message)

    def _all_bytes(self, entry: IndexEntry) -> None:
        """Reads an entry without keeping it."""
        for _ in self._bundle.chunks(entry):
            pass

    def _checked(self, entry: str, check: Callable[[], None]) -> None:
        """Turns the error of a check into a finding, so that all are named at once."""
        try:
            check()
        except KcacheError as error:
            self._find(error.metadata.get("finding", "entry"), entry, error.message)

    def _find(self, name: str, entry: str, message: str) -> None:
        self._findings.append(Finding(name, entry, message))


def _require_name(entry: IndexEntry, name: str) -> None:
    if entry.name != name:
        raise IntegrityError(f"{entry} has the content of {name}", finding="name")
