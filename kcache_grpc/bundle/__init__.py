"""Bundles: kernels and everything that they need in one signed file, for machines without a service."""

from kcache_grpc.bundle.entries import (
    ArtifactEntry,
    BlobEntry,
    Entry,
    KernelEntry,
    MappingEntry,
    ScheduleEntry,
    SpecEntry,
    TimingEntry,
    blob_name,
    schedule_name,
)
from kcache_grpc.bundle.format import DEFAULT_LIMITS, SUFFIX, EntryKind, IndexEntry, Limits
from kcache_grpc.bundle.metadata import BundleMetadata
from kcache_grpc.bundle.reader import Bundle, open_bundle, read_stream
from kcache_grpc.bundle.stream import ReadableStream
from kcache_grpc.bundle.writer import BundleWriter, WritableStream, WrittenBundle

__all__ = [
    "DEFAULT_LIMITS",
    "SUFFIX",
    "ArtifactEntry",
    "BlobEntry",
    "Bundle",
    "BundleMetadata",
    "BundleWriter",
    "Entry",
    "EntryKind",
    "IndexEntry",
    "KernelEntry",
    "Limits",
    "MappingEntry",
    "ReadableStream",
    "ScheduleEntry",
    "SpecEntry",
    "TimingEntry",
    "WritableStream",
    "WrittenBundle",
    "blob_name",
    "open_bundle",
    "read_stream",
    "schedule_name",
]
