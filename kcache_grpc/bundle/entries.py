"""Typed contents of entries: frozen values, and their deterministic bytes.

``from_bytes`` is used only on bytes of a verified bundle. What is inside of a ``Signed`` is not parsed here:
its signature is another one than that of the bundle, and is verified before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from kcache_grpc._proto.kcache.v1 import bundle_pb2 as pb
from kcache_grpc._proto.kcache.v1 import common_pb2
from kcache_grpc._proto.kcache.v1.manifest_pb2 import Ingredient
from kcache_grpc.bundle.format import EntryKind
from kcache_grpc.errors import ArgumentError, IntegrityError
from kcache_grpc.model.identity import Ingredients
from kcache_grpc.model.manifest import ArtifactRef, artifact_ref_from_proto, artifact_ref_to_proto
from kcache_grpc.model.signing import Signed
from kcache_grpc.model.wire import numerics_from_proto, numerics_to_proto

M = TypeVar("M", bound=Message)


class Entry(Protocol):
    """A value that can be written to a bundle."""

    @property
    def kind(self) -> EntryKind: ...
    @property
    def name(self) -> str: ...
    @property
    def attributes(self) -> Mapping[str, str]: ...
    def content(self) -> bytes: ...


@dataclass(frozen=True)
class SpecEntry:
    """A canonical text. ``family`` is ``"stablehlo"`` or ``"linalg"``."""

    spec_digest: bytes
    text: str = field(repr=False)
    numerics: str
    canonicalizer: int
    family: str = "stablehlo"
    kind = EntryKind.SPEC

    @property
    def name(self) -> str:
        return self.spec_digest.hex()

    @property
    def attributes(self) -> Mapping[str, str]:
        return {"numerics": self.numerics, "canonicalizer": str(self.canonicalizer), "family": self.family}

    def content(self) -> bytes:
        return _bytes(
            pb.BundledSpec(
                spec_digest=self.spec_digest,
                text=self.text,
                numerics=numerics_to_proto(self.numerics),
                canonicalizer=self.canonicalizer,
                family=self.family,
            )
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> SpecEntry:
        """Raises ``IntegrityError``, also for a text that does not match its digest."""
        message = _parsed(pb.BundledSpec, data)
        entry = cls(
            message.spec_digest,
            message.text,
            _numerics(message.numerics),
            message.canonicalizer,
            message.family or "stablehlo",
        )
        if hashlib.sha256(entry.text.encode()).digest() != entry.spec_digest:
            raise IntegrityError(f"the text of spec {entry.name} does not match its digest", finding="spec")
        return entry


@dataclass(frozen=True)
class MappingEntry:
    """A program and the spec that it is, with the binding as its server signed it.

    ``constants`` are the SHA-256 of the lifted constants, in the order of the binding.
    """

    program_digest: bytes
    numerics: str
    binding: Signed
    spec_digest: bytes
    constants: tuple[bytes, ...] = ()
    kind = EntryKind.MAPPING

    @property
    def name(self) -> str:
        return f"{self.program_digest.hex()}.{self.numerics}"

    @property
    def attributes(self) -> Mapping[str, str]:
        return {"spec": self.spec_digest.hex()}

    def content(self) -> bytes:
        return _bytes(
            pb.BundledMapping(
                program_digest=self.program_digest,
                numerics=numerics_to_proto(self.numerics),
                binding=signed_to_proto(self.binding),
                spec_digest=self.spec_digest,
                constants=self.constants,
            )
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> MappingEntry:
        """Raises ``IntegrityError``."""
        message = _parsed(pb.BundledMapping, data)
        return cls(
            message.program_digest,
            _numerics(message.numerics),
            signed_from_proto(message.binding),
            message.spec_digest,
            tuple(message.constants),
        )


@dataclass(frozen=True)
class KernelEntry:
    """A kernel, with the manifest as its server signed it.

    ``target`` and ``options`` are texts, as in the ingredients. ``artifacts`` are those whose bytes the
    bundle has.
    """

    kernel_digest: bytes
    manifest: Signed
    spec_digest: bytes
    ingredients: Ingredients
    artifacts: tuple[ArtifactRef, ...]
    compile_us: int
    kind = EntryKind.KERNEL

    @property
    def name(self) -> str:
        return self.kernel_digest.hex()

    @property
    def target(self) -> str:
        """Text of the target, such as ``"x86-64-v3"``; empty where the ingredients name none."""
        return dict(self.ingredients).get("target", "")

    @property
    def attributes(self) -> Mapping[str, str]:
        ingredients = dict(self.ingredients)
        names = ("target", "options", "toolchain", "arg_spec", "guard")
        chosen = {name: ingredients[name] for name in names if ingredients.get(name)}
        return {"spec": self.spec_digest.hex(), **chosen}

    def content(self) -> bytes:
        message = pb.BundledKernel(
            kernel_digest=self.kernel_digest,
            manifest=signed_to_proto(self.manifest),
            spec_digest=self.spec_digest,
            ingredients=[Ingredient(name=name, value=value) for name, value in self.ingredients],
            artifacts=[artifact_ref_to_proto(ref) for ref in self.artifacts],
        )
        message.compile_duration.FromMicroseconds(self.compile_us)
        return _bytes(message)

    @classmethod
    def from_bytes(cls, data: bytes) -> KernelEntry:
        """Raises ``IntegrityError``."""
        message = _parsed(pb.BundledKernel, data)
        try:
            artifacts = tuple(artifact_ref_from_proto(ref) for ref in message.artifacts)
        except ArgumentError as error:
            raise IntegrityError(f"a kernel of the bundle has {error}", finding="entry") from error
        return cls(
            message.kernel_digest,
            signed_from_proto(message.manifest),
            message.spec_digest,
            tuple((item.name, item.value) for item in message.ingredients),
            artifacts,
            message.compile_duration.ToMicroseconds(),
        )


@dataclass(frozen=True)
class ArtifactEntry:
    """Bytes under their SHA-256: an artifact of a kernel, or a lifted constant.

    For large ones call ``write`` of the writer with chunks, the name and these attributes.
    """

    sha256: bytes
    data: bytes = field(repr=False)
    #: One of ``kcache_grpc.model.wire.ARTIFACT_KINDS``, such as ``"so"``; empty where it is not known.
    artifact_kind: str = ""
    kind = EntryKind.ARTIFACT

    @property
    def name(self) -> str:
        return self.sha256.hex()

    @property
    def attributes(self) -> Mapping[str, str]:
        return {"artifact_kind": self.artifact_kind} if self.artifact_kind else {}

    def content(self) -> bytes:
        return self.data


@dataclass(frozen=True)
class TimingEntry:
    """One measured schedule; ``created_us`` is in microseconds since 1970, UTC."""

    schedule: str
    nanoseconds: int
    samples: int
    created_us: int


@dataclass(frozen=True)
class ScheduleEntry:
    """The timings of one subject, shape and device, sorted by schedule when they are written."""

    subject: bytes
    shape: str
    device: str
    timings: tuple[TimingEntry, ...]
    kind = EntryKind.SCHEDULE

    @property
    def name(self) -> str:
        return schedule_name(self.subject, self.shape, self.device)

    @property
    def attributes(self) -> Mapping[str, str]:
        return {"subject": self.subject.hex(), "device": self.device}

    def content(self) -> bytes:
        message = pb.BundledSchedule(subject_digest=self.subject, shape=self.shape, device=self.device)
        for timing in sorted(self.timings, key=lambda item: item.schedule):
            added = message.timings.add(schedule=timing.schedule, sample_count=timing.samples)
            added.duration.FromNanoseconds(timing.nanoseconds)
            added.create_time.FromMicroseconds(timing.created_us)
        return _bytes(message)

    @classmethod
    def from_bytes(cls, data: bytes) -> ScheduleEntry:
        """Raises ``IntegrityError``."""
        message = _parsed(pb.BundledSchedule, data)
        try:
            timings = tuple(
                TimingEntry(
                    item.schedule,
                    item.duration.ToNanoseconds(),
                    item.sample_count,
                    item.create_time.ToMicroseconds(),
                )
                for item in message.timings
            )
        except ValueError as error:
            raise IntegrityError(
                f"a schedule of the bundle has a time out of range: {error}", finding="entry"
            ) from error
        return cls(message.subject_digest, message.shape, message.device, timings)


@dataclass(frozen=True)
class BlobEntry:
    """An opaque value under a key of a blob namespace. Large ones: as ``ArtifactEntry``."""

    namespace: str
    key: bytes
    value: bytes = field(repr=False)
    kind = EntryKind.BLOB

    @property
    def name(self) -> str:
        return blob_name(self.namespace, self.key)

    @property
    def attributes(self) -> Mapping[str, str]:
        return {"namespace": self.namespace, "key": self.key.hex()}

    def content(self) -> bytes:
        return self.value


def schedule_name(subject: bytes, shape: str, device: str) -> str:
    """Name of the entry with the timings of these."""
    return _digest_name(b"kcache.bundle.schedule.v1", subject, shape.encode(), device.encode())


def blob_name(namespace: str, key: bytes) -> str:
    """Name of the entry with the blob under a key."""
    return _digest_name(b"kcache.bundle.blob.v1", namespace.encode(), key)


def signed_to_proto(signed: Signed) -> common_pb2.SignedBytes:
    """To the wire."""
    return common_pb2.SignedBytes(payload=signed.payload, signature=signed.signature, key_id=signed.key_id)


def signed_from_proto(message: common_pb2.SignedBytes) -> Signed:
    """From the wire, not verified."""
    return Signed(message.payload, message.signature, message.key_id)


def _digest_name(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _bytes(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)


def _parsed(cls: type[M], data: bytes) -> M:
    try:
        return cls.FromString(data)
    except DecodeError as error:
        raise IntegrityError(
            f"an entry of the bundle is no {cls.__name__}: {error}", finding="entry"
        ) from error


def _numerics(value: int) -> str:
    try:
        return numerics_from_proto(value)
    except ArgumentError as error:
        raise IntegrityError(f"an entry of the bundle has {error}", finding="entry") from error
