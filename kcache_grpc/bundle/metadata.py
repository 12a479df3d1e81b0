"""Who made a bundle, when, with which toolchains: the part of the index that is about the bundle itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from kcache_grpc._proto.kcache.v1 import bundle_pb2 as pb
from kcache_grpc._proto.kcache.v1.manifest_pb2 import Ingredient
from kcache_grpc.errors import IntegrityError
from kcache_grpc.model.identity import Ingredients, toolchain_digest
from kcache_grpc.model.signing import server_id

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class BundleMetadata:
    """Fields as in BundleMetadata of protos/kcache/v1/bundle.proto."""

    #: Identity of the signer of the bundle, 64 hex digits; ``finish`` of the writer sets it.
    creator: str = ""
    #: Raw public keys, other than the creator's, with which manifests and bindings are signed.
    signer_public_keys: tuple[bytes, ...] = ()
    namespace: str = "default"
    epoch: int = 0
    #: UTC, with microseconds.
    created: datetime = _EPOCH
    #: Fingerprints of the kernels' compilers, ingredient by ingredient.
    toolchains: tuple[Ingredients, ...] = field(default=(), repr=False)
    #: Targets of the kernels, sorted.
    targets: tuple[str, ...] = ()
    #: What was selected, for people.
    selection: str = ""
    creator_version: str = ""

    @property
    def toolchain_digests(self) -> tuple[bytes, ...]:
        """The digests of ``toolchains``, 32 bytes each."""
        return tuple(toolchain_digest(ingredients) for ingredients in self.toolchains)


def metadata_to_proto(metadata: BundleMetadata) -> pb.BundleMetadata:
    """To the form in the index."""
    message = pb.BundleMetadata(
        creator=metadata.creator,
        signer_public_keys=metadata.signer_public_keys,
        namespace=metadata.namespace,
        epoch=metadata.epoch,
        toolchains=[
            pb.BundledToolchain(
                digest=toolchain_digest(ingredients),
                ingredients=[Ingredient(name=name, value=value) for name, value in ingredients],
            )
            for ingredients in metadata.toolchains
        ],
        targets=metadata.targets,
        selection=metadata.selection,
        creator_version=metadata.creator_version,
    )
    since_epoch = metadata.created - _EPOCH
    message.create_time.seconds = since_epoch.days * 86400 + since_epoch.seconds
    message.create_time.nanos = since_epoch.microseconds * 1000
    return message


def metadata_from_proto(message: pb.BundleMetadata, public_key: bytes) -> BundleMetadata:
    """Metadata of a bundle that ``public_key`` signed. Raises ``IntegrityError`` if they are inconsistent."""
    if message.creator != server_id(public_key):
        raise IntegrityError(
            f"the bundle names {message.creator} as its creator but is signed by {server_id(public_key)}",
            finding="creator",
        )
    if any(len(key) != 32 for key in message.signer_public_keys):
        raise IntegrityError("the bundle names a signer whose public key is not 32 bytes", finding="creator")
    toolchains = tuple(
        tuple((item.name, item.value) for item in toolchain.ingredients) for toolchain in message.toolchains
    )
    for ingredients, toolchain in zip(toolchains, message.toolchains, strict=True):
        if toolchain_digest(ingredients) != toolchain.digest:
            raise IntegrityError(
                "the digest of a toolchain of the bundle does not match it", finding="toolchain"
            )
    try:
        moment = timedelta(
            seconds=message.create_time.seconds, microseconds=message.create_time.nanos // 1000
        )
        created = _EPOCH + moment
    except OverflowError as error:
        raise IntegrityError("the bundle's time of creation is out of range", finding="creator") from error
    return BundleMetadata(
        creator=message.creator,
        signer_public_keys=tuple(message.signer_public_keys),
        namespace=message.namespace,
        epoch=message.epoch,
        created=created,
        toolchains=toolchains,
        targets=tuple(message.targets),
        selection=message.selection,
        creator_version=message.creator_version,
    )
