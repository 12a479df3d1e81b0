"""Bundles for tests: of drawn entries, and of the kernels that a client has on disk."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from pathlib import Path

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.bundle import (
    ArtifactEntry,
    BlobEntry,
    Bundle,
    BundleMetadata,
    BundleWriter,
    Entry,
    KernelEntry,
    MappingEntry,
    ScheduleEntry,
    SpecEntry,
    TimingEntry,
    read_stream,
)
from kcache_grpc.bundle.entries import signed_from_proto
from kcache_grpc.model.manifest import Binding, Manifest
from kcache_grpc.model.signing import Signer

SIGNER = Signer.generate()


def spec(text: str = "spec") -> SpecEntry:
    return SpecEntry(hashlib.sha256(text.encode()).digest(), text, "default", 3)


def artifact(data: bytes) -> ArtifactEntry:
    return ArtifactEntry(hashlib.sha256(data).digest(), data, "so")


def schedule() -> ScheduleEntry:
    timings = (TimingEntry("grain:4", 1500, 9, 1_700_000_000_000_000), TimingEntry("", 2000, 9, 5))
    return ScheduleEntry(b"\1" * 32, "f32[4,8]", "some CPU/2", timings)


def some_entries() -> list[Entry]:
    """One entry of each kind whose content no server signs; small."""
    return [
        spec("a spec of some length " * 4),
        artifact(bytes(range(256)) * 2),
        schedule(),
        BlobEntry("inductor", b"key\0", b"value"),
    ]


def written(
    entries: Iterable[Entry], signer: Signer = SIGNER, metadata: BundleMetadata | None = None
) -> bytes:
    """The bytes of a bundle."""
    stream = io.BytesIO()
    writer = BundleWriter(stream)
    for entry in entries:
        writer.add(entry)
    writer.finish(metadata or BundleMetadata(), signer)
    return stream.getvalue()


def stored_entries(cache_dir: Path, *, artifacts: bool = True) -> list[Entry]:
    """Mappings, kernels and their bytes, as servers signed them, from the disk tier of a client."""
    entries: list[Entry] = []
    for path in sorted((cache_dir / "kernels").glob("*/*")):
        result = pb.KernelResult.FromString(path.read_bytes())
        binding = Binding.from_bytes(result.binding.payload)
        manifest = Manifest.from_bytes(result.manifest.payload)
        refs = () if manifest.code is None else (manifest.code,)
        entries.append(
            MappingEntry(
                binding.program_digest,
                binding.numerics,
                signed_from_proto(result.binding),
                binding.spec_digest,
                tuple(constant.sha256 for constant in binding.constants),
            )
        )
        entries.append(
            KernelEntry(
                manifest.kernel_digest,
                signed_from_proto(result.manifest),
                manifest.spec_digest,
                manifest.identity.ingredients,
                refs,
                round(manifest.compile_seconds * 1e6),
            )
        )
        digests = [ref.sha256 for ref in refs] + [constant.sha256 for constant in binding.constants]
        for digest in digests if artifacts else ():
            name = digest.hex()
            data = (cache_dir / "blobs" / name[:2] / name[2:]).read_bytes()
            entries.append(ArtifactEntry(digest, data))
    return entries


def metadata_of(entries: Iterable[Entry], *signers: Signer) -> BundleMetadata:
    """With the targets of the kernels, and the public keys of who signed them."""
    targets = sorted({entry.target for entry in entries if isinstance(entry, KernelEntry)})
    return BundleMetadata(
        signer_public_keys=tuple(signer.public_key for signer in signers), targets=tuple(targets)
    )


def read_all(data: bytes) -> dict[str, bytes]:
    """Every entry of a bundle, by kind and name, through a stream."""
    with read_stream(io.BytesIO(data)) as bundle:
        return contents(bundle)


def contents(bundle: Bundle) -> dict[str, bytes]:
    return {str(entry): bundle.read(entry) for entry in bundle.entries}
