"""Bundles from and to the service: files that appear whole, and uploads that the service verifies."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from kcache_grpc._proto.kcache.v1 import bundles_pb2 as pb
from kcache_grpc.bundle import Bundle, EntryKind, open_bundle
from kcache_grpc.client.bundles.reports import ExportReport, Tally, UploadReport
from kcache_grpc.client.bundles.tier import Trust
from kcache_grpc.client.cache.program_history import MOST_USED, Used
from kcache_grpc.client.transport.connection import Connection
from kcache_grpc.client.transport.interface import Deadline, Io, Method, Wire
from kcache_grpc.client.trust.pins import read_identities
from kcache_grpc.errors import ArgumentError, IntegrityError, KcacheError, NotFound, Unavailable
from kcache_grpc.model.target import parse_target
from kcache_grpc.model.wire import target_to_proto

EXPORT_BUNDLE = Method("ExportBundle", pb.ExportBundleRequest, pb.ExportBundleResponse, "Bundles")
IMPORT_BUNDLE = Method("ImportBundle", pb.ImportBundleRequest, pb.ImportBundleResponse, "Bundles")

#: OnBytes of one message of an upload.
_PART_BYTES = 256 << 10

#: Called with the number of bytes that were sent or received so far.
OnBytes = Callable[[int], None]
When = datetime | str | None


@dataclass(frozen=True)
class BundleChoice:
    """What a caller of ``export_bundle`` names: its arguments, which ``selection`` checks."""

    keys: Sequence[int] | None = None
    job: str | None = None
    since: When = None
    until: When = None
    filter: str | None = None
    targets: Sequence[str] | None = None
    programs: Sequence[bytes | str] | None = None
    everything: bool = False
    blobs: bool = False
    on_progress: OnBytes | None = field(default=None, repr=False)

    def selection(self, used: Used) -> pb.BundleSelection:
        """The message: of what was ``used`` if nothing is named. Raises ``ArgumentError``."""
        selection = pb.BundleSelection(
            all=self.everything,
            keys=map(_key, self.keys or ()),
            program_digests=map(_digest, self.programs or ()),
            job=self.job or "",
            filter=self.filter or "",
            blobs=self.blobs,
            targets=[target_to_proto(parse_target(target)) for target in self.targets or ()],
        )
        for moment, time in ((self.since, selection.start_time), (self.until, selection.end_time)):
            if moment is not None:
                time.FromDatetime(_moment(moment))
        if not (self.everything or self.blobs or self._names_something()):
            _take_used(selection, used)
        return selection

    def _names_something(self) -> bool:
        named = (self.keys, self.job, self.since, self.until, self.filter, self.programs)
        return any(value is not None for value in named)


async def export_bundle(
    connection: Connection,
    io: Io,
    path: Path,
    selection: pb.BundleSelection,
    on_progress: OnBytes | None,
    deadline: Deadline,
) -> ExportReport:
    """Receives a bundle into a temporary file next to ``path``, verifies its index and signature, renames it.

    Raises ``NotFound`` for a directory that is not there, or a selection of nothing; ``IntegrityError`` where
    another key signed the file than the service's.
    """
    if not path.name or "\0" in str(path):
        raise ArgumentError(f"{str(path)!r} is not the name of a file")
    request = pb.ExportBundleRequest(header=connection.header(), selection=selection)
    state = await connection.state(deadline)

    async def once(wire: Wire) -> ExportReport:
        temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            with _created(temporary) as file:
                summary = await _received(wire, request, file, io, on_progress, deadline)
                await io.blocking(lambda: _sync(file))
            await io.blocking(lambda: _verified(temporary, summary, state.server_id))
            await io.blocking(lambda: _place(temporary, path))
        except OSError as error:
            if isinstance(error, Unavailable):
                raise
            raise ArgumentError(f"{path} cannot be written: {error.strerror}", path=str(path)) from error
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        counts = {EntryKind(item.kind).label: item.count for item in summary.counts}
        digest, size = summary.digest.hex(), summary.size_bytes
        return ExportReport(str(path), digest, summary.signer, size, counts, summary.skipped_count)

    return await connection.channel.attempt(once, deadline)


async def upload_bundle(
    connection: Connection,
    path: Path,
    trust: Trust,
    targets: Sequence[str] | None,
    on_progress: OnBytes | None,
    deadline: Deadline,
) -> UploadReport:
    """Sends a bundle to the service, which imports it. Raises what the service and ``open_bundle`` raise."""
    first = pb.ImportBundleRequest(
        header=connection.header(),
        targets=[target_to_proto(parse_target(target)) for target in targets or ()],
        trusted_signers=sorted(read_identities(trust)),
    )

    async def once(wire: Wire) -> UploadReport:
        """Send the bundle once, and collect the report.

        Raises ``Unavailable`` for a reply without a summary.
        """
        # Opened to learn early of what is no bundle; its bytes are those that are sent.
        with open_bundle(path) as bundle:
            tally, summary, failures = Tally(), pb.BundleSummary(), list[KcacheError]()
            tally.opened(str(path), bundle.signer)
            sent = _sent(first, bundle, on_progress, failures)
            replies = wire.exchange(IMPORT_BUNDLE, sent, deadline.left())
            try:
                while (reply := await replies.next()) is not None:
                    for entry in reply.entries:
                        _count(tally, entry, str(path))
                    if reply.HasField("summary"):
                        summary = reply.summary
            except KcacheError as error:
                # What gRPC makes of an error of the iterator says nothing about the bundle.
                raise failures[0] if failures else error from error
            finally:
                replies.cancel()
            if summary.digest != bundle.digest:
                raise Unavailable("the import ended without a summary; import the bundle again")
        report = tally.preloaded()
        return UploadReport(
            report.bundles, report.signers, report.new, report.present, report.rejected,
            digest=summary.digest.hex(),
        )  # fmt: skip

    return await connection.channel.attempt(once, deadline)


def _take_used(selection: pb.BundleSelection, used: Used) -> None:
    if not used.kernels:
        raise ArgumentError(
            "this client has used no kernel yet: compile first, or name what to export (keys, programs, job, "
            "since, until, filter, everything, blobs)"
        )
    if max(len(used.kernels), len(used.programs)) > MOST_USED:
        raise ArgumentError(
            f"this client has used more than {MOST_USED} kernels: name what to export, such as its job"
        )
    selection.kernel_digests.extend(used.kernels)
    selection.program_digests.extend(used.programs)


async def _received(
    wire: Wire,
    request: pb.ExportBundleRequest,
    file: BinaryIO,
    io: Io,
    on_progress: OnBytes | None,
    deadline: Deadline,
) -> pb.BundleSummary:
    replies, received = wire.stream(EXPORT_BUNDLE, request, deadline.left()), 0
    summary: pb.BundleSummary | None = None
    try:
        while (reply := await replies.next()) is not None:
            if reply.data:
                await io.blocking(lambda data=reply.data: file.write(data))
                received += len(reply.data)
                if on_progress is not None:
                    on_progress(received)
            if reply.HasField("summary"):
                summary = reply.summary
    finally:
        replies.cancel()
    if summary is None or summary.size_bytes != received:
        raise Unavailable(f"the bundle ended after {received} bytes; export it again")
    return summary


def _sent(
    first: pb.ImportBundleRequest,
    bundle: Bundle,
    on_progress: OnBytes | None,
    failures: list[KcacheError],
) -> Iterator[pb.ImportBundleRequest]:
    """The messages of an upload. An error of the file ends them, and is added to ``failures``."""
    yield first
    sent = 0
    try:
        for data in bundle.file_bytes(_PART_BYTES):
            yield pb.ImportBundleRequest(data=data)
            sent += len(data)
            if on_progress is not None:
                on_progress(sent)
    except KcacheError as error:
        failures.append(error)
        raise


def _count(tally: Tally, entry: pb.ImportedEntry, path: str) -> None:
    kind = EntryKind(entry.kind).label
    if entry.outcome == pb.IMPORT_OUTCOME_REJECTED:
        tally.reject(kind, entry.name, path, entry.reason)
    else:
        tally.added(kind, entry.name, path, new=entry.outcome == pb.IMPORT_OUTCOME_NEW)


def _created(path: Path) -> BinaryIO:
    try:
        return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb")
    except FileNotFoundError as error:
        raise NotFound(f"there is no directory {path.parent}", path=str(path.parent)) from error


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _verified(path: Path, summary: pb.BundleSummary, server_id: str) -> None:
    with open_bundle(path) as bundle:
        if bundle.signer != server_id or bundle.digest != summary.digest:
            raise IntegrityError(
                f"the service sent a bundle that {bundle.signer} signed, and its identity is {server_id}"
            )


def _place(temporary: Path, path: Path) -> None:
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _key(key: int) -> int:
    if type(key) is not int or not 1 <= key < 2**63:
        raise ArgumentError(f"{key!r} is no key: keys are integers from 1")
    return key


def _digest(digest: bytes | str) -> bytes:
    try:
        value = bytes.fromhex(digest) if isinstance(digest, str) else digest
    except ValueError:
        value = b""
    if len(value) != 32:
        raise ArgumentError(f"{digest!r} is no program digest: use 32 bytes, or 64 hex digits")
    return value


def _moment(moment: datetime | str) -> datetime:
    try:
        parsed = datetime.fromisoformat(moment.replace("Z", "+00:00")) if isinstance(moment, str) else moment
    except ValueError:
        raise ArgumentError(f"{moment!r} is no time; use one such as 2026-01-31T12:00:00Z") from None
    if parsed.tzinfo is None:
        raise ArgumentError(f"{moment!r} has no time zone; use one such as 2026-01-31T12:00:00Z")
    return parsed
