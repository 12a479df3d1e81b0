"""What a bundle offers to a client: mappings and kernels, each checked before it counts.

The index in memory says which kernel answers a request.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.bundle import Bundle, EntryKind, IndexEntry, KernelEntry, MappingEntry
from kcache_grpc.bundle.entries import signed_to_proto
from kcache_grpc.bundle.verify import checked_kernel, checked_mapping, needed_bytes
from kcache_grpc.client.bundles.reports import Tally
from kcache_grpc.client.cache.disk import StoredKernel, needed_blobs
from kcache_grpc.client.trust.server_state import Provenance
from kcache_grpc.client.trust.verification import KernelRequest, require_agreement
from kcache_grpc.errors import ArgumentError, IntegrityError, KcacheError, NotFound
from kcache_grpc.model.evidence import Witness, witness
from kcache_grpc.model.manifest import ArtifactRef, Binding, Manifest
from kcache_grpc.model.signing import server_id
from kcache_grpc.model.sizes.modes import AUTO
from kcache_grpc.model.variants import Shape, spec_sizes, variant
from kcache_grpc.runtime import Kernel
from kcache_grpc.runtime.cpu.library import require_understood

_MAPPING, _KERNEL = EntryKind.MAPPING, EntryKind.KERNEL
#: Entries of other kinds are for servers.
_USED = (_MAPPING, _KERNEL, EntryKind.ARTIFACT)
#: Verified bytes of an artifact; ``None`` where the source does not have them.
ReadBytes = Callable[[ArtifactRef], bytes | None]
#: Signer, namespace and epoch.
_Origin = tuple[str, str, int]
#: Program digest and numerics; spec digest, target and options.
_MappingKey = tuple[bytes, str]
_KernelKey = tuple[bytes, str, str]


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


@dataclass(frozen=True)
class BundledKernel:
    """A kernel with all bytes that it needs, who signed it, and where its other artifacts are."""

    stored: StoredKernel
    signer: str
    read: ReadBytes
    #: Of ``Kernel.origin``.
    origin: str

    @property
    def provenance(self) -> Provenance:
        """Signer, epoch and toolchain."""
        manifest = self.stored.manifest
        return (self.signer, manifest.epoch, manifest.toolchain_digest)

    def kernel(self, require_open: Callable[[], None]) -> Kernel:
        """As the user holds it; ``require_open`` raises once its client is closed."""

        def fetch(ref: ArtifactRef) -> bytes:
            require_open()
            data = self.read(ref)
            if data is None:
                raise NotFound(f"the kernel's artifact {ref.kind!r} is not in its bundle", kind=ref.kind)
            return data

        stored = self.stored
        code = stored.manifest.code
        assert code is not None
        return Kernel(
            stored.manifest,
            stored.binding,
            self.origin,
            {code.kind: stored.blobs[code.sha256]},
            fetch,
            [stored.blobs[constant.sha256] for constant in stored.binding.constants],
            server_id=self.signer,
        )


@dataclass(frozen=True)
class Match:
    """A mapping and a kernel that answer a request."""

    mapping: OfferedMapping
    kernel: OfferedKernel

    @property
    def provenance(self) -> Provenance:
        """See ``BundledKernel.provenance``."""
        manifest = self.kernel.manifest
        return (self.kernel.signer, manifest.epoch, manifest.toolchain_digest)

    def with_bytes(self, read: ReadBytes, origin: str) -> BundledKernel | None:
        """The kernel with what it needs to run; ``None`` where some of it is gone."""
        blobs: dict[bytes, bytes] = {}
        for sha256, size in needed_blobs(self.mapping.binding, self.kernel.manifest):
            data = read(ArtifactRef("", sha256, size))
            if data is None:
                return None
            blobs[sha256] = data
        reply = pb.KernelResult(
            status=pb.KERNEL_STATUS_FOUND,
            binding=signed_to_proto(self.mapping.entry.binding),
            manifest=signed_to_proto(self.kernel.entry.manifest),
        )
        stored = StoredKernel(reply, self.mapping.binding, self.kernel.manifest, blobs)
        return BundledKernel(stored, self.kernel.signer, read, origin)


def matches(
    request: KernelRequest,
    mappings: Iterable[OfferedMapping],
    kernels: Callable[[OfferedMapping], Iterable[OfferedKernel]],
    binding_of: Callable[[bytes], Binding | None],
) -> list[Match]:
    """The pairs that answer ``request``, the most specific kernel first.

    ``kernels``: candidates for a mapping. ``binding_of``: of a program that is evidence, by digest.
    """
    witnessed = _with_witnesses(request, binding_of)
    if witnessed is None:
        return []
    pairs = [
        Match(mapping, kernel)
        for mapping in mappings
        for kernel in kernels(mapping)
        if _agree(mapping, kernel, witnessed)
    ]
    return sorted(pairs, key=_free_sizes)


class KernelIndex:
    """Thread-safe. Of equal kernels and mappings the first one stays."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mappings: dict[_MappingKey, dict[_Origin, OfferedMapping]] = defaultdict(dict)
        self._kernels: dict[_KernelKey, dict[tuple[bytes, _Origin], OfferedKernel]] = defaultdict(dict)

    def __len__(self) -> int:
        """Kernels."""
        return sum(map(len, self._kernels.values()))

    def add_mapping(self, offered: OfferedMapping) -> bool:
        """Whether it is new."""
        binding = offered.binding
        key = (offered.signer, binding.namespace, binding.epoch)
        with self._lock:
            known = self._mappings[binding.program_digest, binding.numerics]
            return known.setdefault(key, offered) is offered

    def add_kernel(self, offered: OfferedKernel) -> bool:
        """Whether it is new."""
        manifest = offered.manifest
        key = (manifest.kernel_digest, (offered.signer, manifest.namespace, manifest.epoch))
        with self._lock:
            known = self._kernels[manifest.spec_digest, str(manifest.target), str(manifest.options)]
            return known.setdefault(key, offered) is offered

    def find(self, request: KernelRequest) -> list[Match]:
        """See ``matches``."""
        if not self._mappings:
            return []
        target, options = str(request.target), str(request.options)

        def kernels(mapping: OfferedMapping) -> Iterable[OfferedKernel]:
            with self._lock:
                return tuple(self._kernels.get((mapping.binding.spec_digest, target, options), {}).values())

        with self._lock:
            mappings = tuple(
                self._mappings.get((request.program.digest, request.options.numerics), {}).values()
            )
        return matches(
            request, mappings, kernels, lambda digest: self._binding(digest, request.options.numerics)
        )

    def _binding(self, program_digest: bytes, numerics: str) -> Binding | None:
        with self._lock:
            known = self._mappings.get((program_digest, numerics))
        return next(iter(known.values())).binding if known else None

    def after_fork(self) -> None:
        """In a child: another thread of the parent may have held the lock."""
        self._lock = threading.Lock()


def _with_witnesses(
    request: KernelRequest, binding_of: Callable[[bytes], Binding | None]
) -> KernelRequest | None:
    """The request with the witnesses of its evidence; ``None`` if bindings of the evidence are unknown."""
    if request.shapes.mode == AUTO or not request.shapes.evidence or request.witnesses is not None:
        return request
    shown: list[Witness] = []
    for digest in request.shapes.evidence:
        binding = binding_of(digest)
        if binding is None:
            return None
        shown.append(witness(binding))
    return replace(request, witnesses=tuple(shown))


def _agree(mapping: OfferedMapping, kernel: OfferedKernel, request: KernelRequest) -> bool:
    """Whether both are of one server's namespace and epoch, and are what was asked for."""
    binding, manifest = mapping.binding, kernel.manifest
    if (mapping.signer, binding.namespace, binding.epoch) != (
        kernel.signer,
        manifest.namespace,
        manifest.epoch,
    ):
        return False
    try:
        require_agreement(binding, manifest, request)
    except (IntegrityError, ArgumentError):
        # Another variant of the spec, or requirements without evidence: the service answers, and says why.
        return False
    return True


def _free_sizes(match: Match) -> tuple[int, bytes]:
    """Kernels that take fewer sizes come first; the digest makes the order total."""
    manifest = match.kernel.manifest
    chosen = variant(spec_sizes(match.mapping.binding), Shape(manifest.arg_spec, manifest.guard))
    return (chosen.count if chosen else 0, manifest.kernel_digest)
