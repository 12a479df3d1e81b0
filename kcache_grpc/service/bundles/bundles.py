"""The use cases: export and import of bundles by a running service.

Bytes pass between the thread that writes or reads a bundle and the event loop that sends or receives it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import IO

from kcache_grpc.bundle import Bundle
from kcache_grpc.errors import ResourceExhausted, Unavailable
from kcache_grpc.model.signing import Signer
from kcache_grpc.service.audit.recorder import AuditRecorder
from kcache_grpc.service.bundles.export import Export, Exported
from kcache_grpc.service.bundles.importing import Import, Imported, ImportedEntry
from kcache_grpc.service.bundles.selection import Selection
from kcache_grpc.service.graphs.canonicalizer_upgrade import CanonicalizerUpgrade
from kcache_grpc.service.lifecycle.garbage_collection import QuotaEviction
from kcache_grpc.service.namespaces import Namespaces
from kcache_grpc.service.values import Caller
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.records import AuditEvent, Namespace

#: Bytes of one message.
PART_BYTES = 256 << 10
#: Messages that wait to be sent.
_WAITING = 4
logger = logging.getLogger("kcache.service")


class Outgoing:
    """A stream that a thread writes to, and the event loop reads from. The writer waits for the reader."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue(_WAITING)
        self._buffer = bytearray()
        self._stopped = False

    def write(self, data: memoryview, /) -> int:
        """In the thread. Raises ``Unavailable`` when nobody reads any more."""
        self._buffer += data
        while len(self._buffer) >= PART_BYTES:
            self._put(bytes(self._buffer[:PART_BYTES]))
            del self._buffer[:PART_BYTES]
        return len(data)

    def end(self) -> None:
        """In the thread, whatever became of the bundle."""
        if not self._stopped:
            self._put(bytes(self._buffer))
            self._put(None)

    async def parts(self) -> AsyncIterator[bytes]:
        """The bytes, up to the end."""
        while (part := await self._parts.get()) is not None:
            if part:
                yield part

    def stop(self) -> None:
        """Nobody reads any more: a writer that waits goes on, and its next part raises."""
        self._stopped = True
        while not self._parts.empty():
            self._parts.get_nowait()

    def _put(self, part: bytes | None) -> None:
        if self._stopped:
            raise Unavailable("the reader of the bundle is gone")
        asyncio.run_coroutine_threadsafe(self._parts.put(part), self._loop).result()


class Spool:
    """Temporary files of uploads: all together at most ``most`` bytes. One event loop."""

    def __init__(self, directory: Path, most: int) -> None:
        self._directory = directory
        self._most = most
        self._used = 0

    async def receive(self, parts: AsyncIterator[bytes]) -> tuple[IO[bytes], int]:
        """A file without a name that has all bytes, and how many: ``release`` them once it is closed.

        Raises ``ResourceExhausted``, and what ``parts`` raises.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        file, size = tempfile.TemporaryFile(prefix="bundle-", dir=self._directory), 0  # noqa: SIM115
        try:
            async for part in parts:
                self._reserve(len(part))
                size += len(part)
                await _written(file.write, part)
            await _written(file.flush)
        except BaseException:
            # On a full device closing it fails as well: the bytes in its buffer are written again.
            with suppress(OSError):
                file.close()
            self.release(size)
            raise
        return file, size

    def release(self, size: int) -> None:
        """Subtract bytes that were removed."""
        self._used -= size

    def _reserve(self, size: int) -> None:
        if self._used + size > self._most:
            raise ResourceExhausted(
                f"bundles that are being uploaded have more than {self._most} bytes together",
                limit="spool_bytes",
            )
        self._used += size


async def _written(work: Callable[..., object], *arguments: bytes) -> None:
    """Runs a write in a thread. Raises ``ResourceExhausted`` where the device does not take the bytes."""
    try:
        await asyncio.to_thread(work, *arguments)
    except OSError as error:
        raise ResourceExhausted(
            f"the uploaded bundle cannot be kept on this server: {error.strerror or error}",
            limit="spool_bytes",
        ) from error


class Bundles:
    """One event loop. ``trusted``: signers besides the store's own. ``imported`` is called after
    an import, with its namespace: what was remembered of it may be less than there is now.
    """

    def __init__(
        self,
        store: Store,
        namespaces: Namespaces,
        audit_recorder: AuditRecorder,
        signer: Signer,
        quotas: QuotaEviction,
        canonicalizer_upgrade: CanonicalizerUpgrade,
        canonicalizer: int,
        version: str,
        spool: Spool,
        trusted: Collection[str],
        imported: Callable[[Namespace], object],
    ) -> None:
        self._store = store
        self._namespaces = namespaces
        self._audit_recorder = audit_recorder
        self._signer = signer
        self._version = version
        self._spool = spool
        self._trusted = frozenset(trusted)
        self._import = Import(store, signer, quotas, canonicalizer_upgrade, canonicalizer)
        self._imported = imported

    async def export(self, caller: Caller, selection: Selection) -> AsyncGenerator[bytes | Exported]:
        """The bytes of a bundle in parts, then what it came to. Raises ``NotFound``."""
        namespace = await self._namespaces.get(caller.namespace)
        await self._audit_recorder.flush()
        stream = Outgoing()

        def work() -> Exported:
            try:
                export = Export(self._store, self._signer, namespace, self._version)
                return export.write(selection, stream)
            finally:
                stream.end()

        writing = asyncio.get_running_loop().create_task(asyncio.to_thread(work))
        try:
            async for part in stream.parts():
                yield part
            exported = await writing
        finally:
            stream.stop()
            await _ended(writing)
        self._note_export(namespace, caller, selection, exported)
        yield exported

    async def receive(
        self, caller: Caller, parts: AsyncIterator[bytes], targets: Collection[str], trusted: Collection[str]
    ) -> AsyncGenerator[list[ImportedEntry] | Imported]:
        """Imports an upload: entries as they are done, then the counts. See ``Import``."""
        file, size = await self._spool.receive(parts)
        try:
            with file:
                bundle = await asyncio.to_thread(Bundle, os.dup(file.fileno()), "the uploaded bundle")
            with bundle:
                async for done in self.add(caller, bundle, targets, trusted):
                    yield done
        finally:
            self._spool.release(size)

    async def add(
        self, caller: Caller, bundle: Bundle, targets: Collection[str] = (), trusted: Collection[str] = ()
    ) -> AsyncGenerator[list[ImportedEntry] | Imported]:
        """Imports an open bundle into the caller's namespace, which is made if need be."""
        namespace = await self._namespaces.get(caller.namespace)
        known = self._trusted | frozenset(trusted)
        rejected = await asyncio.to_thread(self._import.check, bundle, known, targets)
        namespace = await self._namespaces.create(namespace)
        steps = self._import.store(bundle, namespace, caller, rejected, targets)
        try:
            while (done := await asyncio.to_thread(next, steps, None)) is not None:
                yield done
        finally:
            await asyncio.to_thread(steps.close)
            self._imported(namespace)

    def _note_export(
        self, namespace: Namespace, caller: Caller, selection: Selection, exported: Exported
    ) -> None:
        detail = {
            "bundle": exported.digest.hex(),
            "selection": selection.text[:1000],
            "entries": {kind.label: count for kind, count in exported.counts.items()},
            "skipped": exported.skipped,
        }
        event = AuditEvent("export", "ok", byte_count=exported.size, detail=json.dumps(detail))
        self._audit_recorder.note(namespace, caller, event)


async def _ended(task: Awaitable[object]) -> None:
    """Waits for a thread that was told to stop; what it raises was raised before, or does not matter."""
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - the caller is gone, or has heard of it
        logger.debug("an export ended: %s", error)
