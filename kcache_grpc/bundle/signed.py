"""Mappings and kernels of a bundle, parsed once their own signatures held and their parts agree."""

from __future__ import annotations

from collections.abc import Collection

from kcache_grpc.bundle.entries import KernelEntry, MappingEntry
from kcache_grpc.bundle.format import IndexEntry
from kcache_grpc.bundle.reader import Bundle
from kcache_grpc.errors import ArgumentError, IntegrityError
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
