"""The mappings and kernels of a bundle that a client may use, each checked before it counts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kcache_grpc.bundle import Bundle, EntryKind, IndexEntry, KernelEntry, MappingEntry
from kcache_grpc.bundle.signed import checked_kernel, checked_mapping, needed_bytes
from kcache_grpc.client.bundles.reports import Tally
from kcache_grpc.errors import IntegrityError, KcacheError
from kcache_grpc.model.manifest import ArtifactRef, Binding, Manifest
from kcache_grpc.model.signing import server_id
from kcache_grpc.runtime.cpu.library import require_understood

_MAPPING, _KERNEL = EntryKind.MAPPING, EntryKind.KERNEL
#: Entries of other kinds are for servers.
_USED = (_MAPPING, _KERNEL, EntryKind.ARTIFACT)


@dataclass(frozen=True)
class OfferedMapping:
    """A verified mapping, and the identity that signed its binding."""

    entry: MappingEntry
    binding: Binding
    signer: str


@dataclass(frozen=True)
class OfferedKernel:
    """A verified kernel, and the identity that signed its manifest."""

    entry: KernelEntry
    manifest: Manifest
    signer: str


@dataclass(frozen=True)
class Contents:
    """What a bundle offers to a client."""

    mappings: tuple[OfferedMapping, ...]
    kernels: tuple[OfferedKernel, ...]

    @property
    def needed(self) -> tuple[ArtifactRef, ...]:
        """All bytes that running the kernels takes, each once."""
        refs = [ref for kernel in self.kernels for ref in needed_bytes(kernel.manifest)]
        refs += [
            ArtifactRef("constant", constant.sha256, constant.size)
            for mapping in self.mappings
            for constant in mapping.binding.constants
        ]
        return tuple({ref.sha256: ref for ref in refs}.values())


def read_contents(bundle: Bundle, trusted: Collection[str], target: str | None, tally: Tally) -> Contents:
    """Mappings and kernels whose signers are ``trusted``, for ``target`` or for all; ``tally`` has the
    others.
    """
    mappings = tuple(
        filter(None, (_mapping(bundle, entry, trusted, tally) for entry in bundle.of_kind(_MAPPING)))
    )
    kernels = tuple(
        filter(None, (_kernel(bundle, entry, trusted, target, tally) for entry in bundle.of_kind(_KERNEL)))
    )
    for entry in bundle.entries:
        if entry.kind not in _USED:
            tally.unused(entry.kind.label)
    return Contents(tuple(filter(None, mappings)), tuple(filter(None, kernels)))


def _mapping(
    bundle: Bundle, entry: IndexEntry, trusted: Collection[str], tally: Tally
) -> OfferedMapping | None:
    try:
        mapping, binding = checked_mapping(bundle, entry, trusted)
        for constant in binding.constants:
            _require_bytes(bundle, entry, ArtifactRef("constant", constant.sha256, constant.size))
    except KcacheError as error:
        tally.reject("mapping", entry.name, bundle.source, error.message)
        return None
    return OfferedMapping(mapping, binding, _signer(bundle, mapping.binding.key_id))


def _kernel(
    bundle: Bundle, entry: IndexEntry, trusted: Collection[str], target: str | None, tally: Tally
) -> OfferedKernel | None:
    try:
        kernel, manifest = checked_kernel(bundle, entry, trusted)
        require_understood(manifest)
        for ref in needed_bytes(manifest):
            _require_bytes(bundle, entry, ref)
    except KcacheError as error:
        tally.reject("kernel", entry.name, bundle.source, error.message)
        return None
    if target is not None and str(manifest.target) != target:
        tally.reject("kernel", entry.name, bundle.source, f"it is for {manifest.target}, not {target}")
        return None
    return OfferedKernel(kernel, manifest, _signer(bundle, kernel.manifest.key_id))


def _require_bytes(bundle: Bundle, entry: IndexEntry, ref: ArtifactRef) -> None:
    """The bundle has these bytes, as far as its index says."""
    artifact = bundle.find(EntryKind.ARTIFACT, ref.sha256.hex())
    if artifact is None:
        raise IntegrityError(f"the bundle does not have the {ref.kind} {ref.sha256.hex()} of {entry}")
    if artifact.sha256 != ref.sha256 or artifact.size != ref.size:
        raise IntegrityError(f"the {ref.kind} {ref.sha256.hex()} of {entry} has other bytes in the bundle")


def _signer(bundle: Bundle, key_id: bytes) -> str:
    return server_id(bundle.public_keys[key_id])
