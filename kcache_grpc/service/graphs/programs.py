"""The program of a request: inline, or uploaded before, to this or to another server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

from kcache_grpc.errors import InvalidProgram, ResourceExhausted
from kcache_grpc.model.program import Program, ProgramFormat
from kcache_grpc.service.audit.recorder import AuditRecorder
from kcache_grpc.service.graphs.uploads import Progress, UploadPlan, Uploads, too_large
from kcache_grpc.service.namespaces import Namespaces
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.service.values import Caller, GraphSource, ProgramRequired, check_digest
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.records import AuditEvent, Namespace

#: Formats that the frontends of this version read.
FORMATS = ("stablehlo", "linalg", "torch", "onnx", "graph")

logger = logging.getLogger("kcache.service")


class Programs:
    """Uploads, and the bytes that a source of a graph names. ``most``: bytes of a program."""

    def __init__(
        self,
        store: Store,
        threads: StoreThreads,
        namespaces: Namespaces,
        audit_recorder: AuditRecorder,
        uploads: Uploads,
        most: int,
    ) -> None:
        self._store = store
        self._threads = threads
        self._namespaces = namespaces
        self._audit_recorder = audit_recorder
        self._uploads = uploads
        self._most = most

    async def upload(self, caller: Caller, plan: UploadPlan, parts: AsyncIterator[bytes]) -> Progress:
        """Takes a program in parts. What came before a break is kept, for an hour.

        Raises ``ResourceExhausted``, ``ArgumentError``, ``IntegrityError``, ``Unavailable``.
        """
        check_digest(plan.digest, "program_digest")
        namespace = await self._namespaces.get(caller.namespace)
        progress = await self._uploads.receive(namespace.name, plan, parts)
        if progress.complete:
            await self._share(namespace, plan.digest)
            namespace = await self._namespaces.again(namespace)
            event = AuditEvent("upload", "ok", program_digest=plan.digest, byte_count=plan.size)
            self._audit_recorder.note(namespace, caller, event)
        return progress

    async def progress(self, caller: Caller, digest: bytes) -> Progress:
        """How much of an upload is here."""
        check_digest(digest, "program_digest")
        namespace = await self._namespaces.get(caller.namespace)
        return await asyncio.to_thread(self._uploads.progress, namespace.name, digest)

    async def of(self, namespace: Namespace, source: GraphSource) -> Program:
        """The program itself. Raises ``ProgramRequired``, ``InvalidProgram``, ``ResourceExhausted``."""
        program = source if isinstance(source, Program) else await self._uploaded(namespace, source)
        if program.format.value not in FORMATS:
            raise InvalidProgram(
                f"format {program.format.value!r} is not read by this version; use {' or '.join(FORMATS)}"
            )
        if len(program.body) > self._most:
            raise too_large(len(program.body), self._most)
        return program

    async def _share(self, namespace: Namespace, digest: bytes) -> None:
        """Keep an upload where other servers find it: the call that needs it may go to any of them."""
        if not self._store.shared:
            return
        program = await asyncio.to_thread(self._uploads.find, namespace.name, digest)
        if program is None:
            return
        namespace = await self._namespaces.create(namespace)
        try:
            await self._threads(
                self._store.put_program, namespace, digest, program.format.value, program.body
            )
        except ResourceExhausted as error:
            logger.warning("an upload stays on the server that has it: %s", error.message)

    async def _uploaded(self, namespace: Namespace, digest: bytes) -> Program:
        program = await asyncio.to_thread(self._uploads.find, namespace.name, digest)
        if program is None and self._store.shared:
            stored = await self._threads(self._store.get_program, namespace, digest)
            program = None if stored is None else Program(ProgramFormat(stored[0]), stored[1])
        if program is None or program.digest != digest:
            raise ProgramRequired(
                f"program {digest.hex()} is not known here; send its bytes", program_digest=digest.hex()
            )
        return program
