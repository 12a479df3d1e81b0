"""Requests of clients that are about no kernel: graphs, what compiles, the audit log, blobs, assertions.

The service that the client was told to use answers; ``normalize`` may be answered by the embedded one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kcache_grpc.client.requests import assertions, audit, blob_cache, graphs
from kcache_grpc.client.requests.assertions import PutAssertionResult, SourceAssertion
from kcache_grpc.client.requests.audit import AuditEvent, AuditHeads, Question
from kcache_grpc.client.requests.blob_cache import BlobDraft, BlobOutcome, BlobSink
from kcache_grpc.client.requests.support import Support, check_program
from kcache_grpc.client.service_choice import Services
from kcache_grpc.client.transport.interface import Deadline, Io
from kcache_grpc.client.values import CanonicalGraph, KernelSummary, Spec
from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.options import NUMERICS
from kcache_grpc.model.target import parse_target
from kcache_grpc.programs.origins import located
from kcache_grpc.programs.source import ProgramLike, Source, read_one


class ServiceRequests:
    """The requests of one client. Thread-safe."""

    def __init__(self, services: Services, io: Io, new_deadline: Callable[[], Deadline]) -> None:
        """``new_deadline``: of a request that begins now. Raises ``ArgumentError`` for a closed client."""
        self._services = services
        self._io = io
        self._new_deadline = new_deadline

    def start_service(self) -> bool:
        """See ``Client.start_service``."""
        return self._services.start_in_background()

    async def normalize(self, program: ProgramLike, format: str | None, numerics: str) -> CanonicalGraph:
        """See ``Client.normalize``."""
        deadline, source = await self._graph(program, format, numerics)
        graph = source.program
        with located([source.origins]):
            return await self._services.serve(
                lambda fetcher: graphs.normalize(fetcher.connection, graph, numerics, deadline)
            )

    async def store(self, program: ProgramLike, format: str | None, numerics: str) -> int:
        """See ``Client.store``."""
        deadline, source = await self._graph(program, format, numerics)
        graph = source.program
        with located([source.origins]):
            return await self._services.ask(lambda main: graphs.store(main, graph, numerics, deadline))

    async def lookup(self, program: ProgramLike, format: str | None, numerics: str) -> Spec | None:
        """See ``Client.lookup``."""
        deadline, source = await self._graph(program, format, numerics)
        graph = source.program
        with located([source.origins]):
            return await self._services.ask(lambda main: graphs.lookup(main, graph, numerics, deadline))

    async def retrieve(self, key: int) -> Spec | None:
        """See ``Client.retrieve``."""
        return await self._services.ask(lambda main: graphs.retrieve(main, key, self._new_deadline()))

    async def kernels(self, key: int) -> tuple[KernelSummary, ...]:
        """See ``Client.kernels``."""
        return await self._services.ask(lambda main: graphs.kernels(main, key, self._new_deadline()))

    async def count(self) -> int:
        """See ``Client.count``."""
        return await self._services.ask(lambda main: graphs.count(main, self._new_deadline()))

    async def support(self, program: ProgramLike, format: str | None, target: str, numerics: str) -> Support:
        """See ``Client.support``."""
        machine = parse_target(target)
        deadline, source = await self._graph(program, format, numerics)
        with located([source.origins]):
            report = await self._services.ask(
                lambda main: check_program(main, source.program, machine, numerics, deadline)
            )
        return report if source.origins is None else report.located(source.origins.locations)

    async def _graph(
        self, program: ProgramLike, format: str | None, numerics: str
    ) -> tuple[Deadline, Source]:
        deadline = self._new_deadline()
        if numerics not in NUMERICS:
            raise ArgumentError(f"numerics is {numerics!r}; use one of {', '.join(NUMERICS)}")
        return deadline, await self._io.blocking(lambda: read_one(program, format))

    async def audit_page(
        self, question: Question, received: int, token: str
    ) -> tuple[Sequence[AuditEvent], str]:
        """A page of events of ``Client.audit`` after ``received`` events, and the token of the next page."""
        size = question.page_size(received)
        if size < 1:
            return (), ""
        return await self._services.ask(
            lambda main: audit.page(main, question, size, token, self._new_deadline())
        )

    async def audit_heads(self) -> AuditHeads:
        """See ``Client.audit_heads``."""
        return await self._services.ask(lambda main: audit.heads(main, self._new_deadline()))

    async def get_blob(self, key: bytes) -> bytes | memoryview | None:
        """The value of one key of ``BlobCache``."""
        deadline = self._new_deadline()
        return await self._services.ask(lambda main: blob_cache.get_one(main, key, deadline))

    async def get_blobs(self, keys: Sequence[bytes], open_sink: Callable[[int], BlobSink]) -> set[int]:
        """Values of ``BlobCache`` into sinks; the positions of the keys that are stored."""
        deadline = self._new_deadline()
        return await self._services.ask(lambda main: blob_cache.get(main, keys, deadline, open_sink))

    async def put_blobs(self, drafts: Sequence[BlobDraft]) -> tuple[BlobOutcome, ...]:
        """Stores values of ``BlobCache`` whose keys are not stored."""
        deadline = self._new_deadline()
        return await self._services.ask(lambda main: blob_cache.put(main, drafts, deadline))

    async def get_assertions(self, source_digests: Sequence[bytes]) -> dict[bytes, SourceAssertion]:
        """See ``Client.get_assertions``."""
        deadline = self._new_deadline()
        return await self._services.ask(lambda main: assertions.get(main, source_digests, deadline))

    async def put_assertion(
        self, source_digest: bytes, record: bytes, programs: Sequence[bytes], toolchain: str
    ) -> PutAssertionResult:
        """See ``Client.put_assertion``."""
        deadline = self._new_deadline()
        return await self._services.ask(
            lambda main: assertions.put(main, source_digest, record, programs, toolchain, deadline)
        )

    async def dispute_assertion(
        self, source_digest: bytes, record_digest: bytes, observed: bytes, reason: str
    ) -> bool:
        """See ``Client.dispute_assertion``."""
        deadline = self._new_deadline()
        return await self._services.ask(
            lambda main: assertions.dispute(main, source_digest, record_digest, observed, reason, deadline)
        )
