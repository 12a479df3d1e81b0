"""``kcache.v1.Bundles``: requests to values, values to responses, and nothing else."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from datetime import timezone
from typing import cast

from google.protobuf.timestamp_pb2 import Timestamp

from kcache_grpc._proto.kcache.v1 import bundle_pb2, bundles_pb2_grpc
from kcache_grpc._proto.kcache.v1 import bundles_pb2 as pb
from kcache_grpc._proto.kcache.v1.common_pb2 import Target
from kcache_grpc.bundle import EntryKind
from kcache_grpc.errors import ArgumentError, ResourceExhausted
from kcache_grpc.model.wire import target_from_proto
from kcache_grpc.server.rpc_handlers import Call
from kcache_grpc.server.servicers.admin import administrator
from kcache_grpc.server.servicers.translate import CHUNK_BYTES
from kcache_grpc.service.bundles.bundles import Bundles
from kcache_grpc.service.bundles.export import Exported
from kcache_grpc.service.bundles.importing import NEW, PRESENT, REJECTED, Imported, ImportedEntry
from kcache_grpc.service.bundles.selection import Selection

_OUTCOMES = {
    NEW: pb.IMPORT_OUTCOME_NEW,
    PRESENT: pb.IMPORT_OUTCOME_PRESENT,
    REJECTED: pb.IMPORT_OUTCOME_REJECTED,
}
_IDENTITY = re.compile(r"[0-9a-f]{64}\Z")
_MOST_SIGNERS = 100
_MOST_REASON = 1000


class BundlesServicer(bundles_pb2_grpc.BundlesServicer):
    """``authenticated``: the server has a token, which every call has shown. Else only callers on the Unix
    socket may import.
    """

    def __init__(self, bundles: Bundles, *, authenticated: bool) -> None:
        self._bundles = bundles
        self._authenticated = authenticated

    async def ExportBundle(  # noqa: N802 - gRPC's names
        self, request: pb.ExportBundleRequest, context: Call
    ) -> AsyncIterator[pb.ExportBundleResponse]:
        """A bundle of what is selected."""
        caller = context.caller(request.header)
        parts = self._bundles.export(caller, _selection(request.selection))
        async with aclosing(parts):
            async for part in parts:
                if isinstance(part, Exported):
                    yield pb.ExportBundleResponse(summary=_exported(part))
                    continue
                await context.acquire(len(part))
                try:
                    yield pb.ExportBundleResponse(data=part)
                finally:
                    context.release()

    async def ImportBundle(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.ImportBundleRequest], context: Call
    ) -> AsyncIterator[pb.ImportBundleResponse]:
        """Adds what a bundle holds."""
        first = await anext(aiter(request_iterator), None)
        if first is None:
            raise ArgumentError("the import has no message")
        caller = administrator(first.header, context, authenticated=self._authenticated, what="ImportBundle")
        signers = _signers(first.trusted_signers)
        received = self._bundles.receive(
            caller, _parts(first, request_iterator), _targets(first.targets), signers
        )
        async with aclosing(received):
            async for done in received:
                yield _imported(done)


async def _parts(
    first: pb.ImportBundleRequest, rest: AsyncIterator[pb.ImportBundleRequest]
) -> AsyncIterator[bytes]:
    yield _part(first)
    async for message in rest:
        yield _part(message)


def _part(message: pb.ImportBundleRequest) -> bytes:
    if len(message.data) > CHUNK_BYTES:
        raise ResourceExhausted(
            f"{len(message.data)} bytes of data in one message, above the limit of {CHUNK_BYTES}",
            limit="upload_chunk_bytes",
        )
    return message.data


def _selection(message: pb.BundleSelection) -> Selection:
    conditions = [f'job = "{_quoted(message.job)}"'] if message.job else []
    if message.HasField("start_time"):
        conditions.append(f'time >= "{_time(message.start_time, "start_time")}"')
    if message.HasField("end_time"):
        conditions.append(f'time < "{_time(message.end_time, "end_time")}"')
    if message.filter:
        conditions.append(f"({message.filter})" if conditions else message.filter)
    return Selection(
        message.all,
        tuple(message.keys),
        tuple(message.kernel_digests),
        tuple(message.program_digests),
        " AND ".join(conditions),
        _targets(message.targets),
        message.blobs,
    )


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _time(message: Timestamp, field: str) -> str:
    try:
        return message.ToDatetime(timezone.utc).isoformat()
    except (ValueError, OverflowError) as error:
        raise ArgumentError(f"{field} is out of range: {error}", field=field) from error


def _targets(targets: Iterable[Target]) -> frozenset[str]:
    return frozenset(str(target_from_proto(target)) for target in targets)


def _signers(identities: Iterable[str]) -> frozenset[str]:
    signers = frozenset(identities)
    if len(signers) > _MOST_SIGNERS:
        raise ArgumentError(f"more than {_MOST_SIGNERS} trusted signers", field="trusted_signers")
    for identity in signers:
        if not _IDENTITY.match(identity):
            raise ArgumentError(
                f"trusted signer {identity[:70]!r} is no identity of 64 hex digits", field="trusted_signers"
            )
    return signers


def _kind(kind: EntryKind) -> bundle_pb2.BundleEntryKind:
    """The same number on the wire."""
    return cast("bundle_pb2.BundleEntryKind", kind.value)


def _exported(exported: Exported) -> pb.BundleSummary:
    return pb.BundleSummary(
        digest=exported.digest,
        signer=exported.signer,
        size_bytes=exported.size,
        counts=[
            pb.BundleEntryCount(kind=_kind(kind), count=count)
            for kind, count in sorted(exported.counts.items(), key=lambda item: item[0].value)
        ],
        skipped_count=exported.skipped,
    )


def _imported(done: list[ImportedEntry] | Imported) -> pb.ImportBundleResponse:
    if isinstance(done, Imported):
        summary = pb.BundleSummary(
            digest=done.digest,
            signer=done.signer,
            size_bytes=done.size,
            new_count=done.new,
            present_count=done.present,
            rejected_count=done.rejected,
        )
        return pb.ImportBundleResponse(summary=summary)
    return pb.ImportBundleResponse(
        entries=[
            pb.ImportedEntry(
                kind=_kind(entry.kind),
                name=entry.name,
                outcome=_OUTCOMES[entry.outcome],
                reason=entry.reason[:_MOST_REASON],
            )
            for entry in done
        ]
    )
