"""The asynchronous client: the same methods as ``kcache_grpc.Client``, awaited.

Kernel calls are synchronous here too: a kernel computes, it does not wait. So is ``Kernel.artifact`` for an
artifact that did not come with the kernel.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kcache_grpc.client.arguments import Bound, Dynamic, Layouts, Symbols, shape_requirements, with_bound
from kcache_grpc.client.config import Tls, from_environment
from kcache_grpc.client.core import Core
from kcache_grpc.client.transport.asynchronous import AsyncIo
from kcache_grpc.model.options import Options
from kcache_grpc.programs.source import ProgramLike, bound_program, traced_program
from kcache_grpc.runtime import Kernel

__all__ = ["Client"]

if TYPE_CHECKING:
    from kcache_grpc.client.bundles.exchange import When
    from kcache_grpc.client.bundles.reports import ExportReport, ImportReport, PreloadReport, UploadReport
    from kcache_grpc.client.bundles.tier import Trust
    from kcache_grpc.client.requests.assertions import PutAssertionResult, SourceAssertion
    from kcache_grpc.client.requests.audit import AuditEvent, AuditHeads, Question
    from kcache_grpc.client.requests.support import Support
    from kcache_grpc.client.tuning.tuner import Choices, Sizes, TuneProgress, Tuning
    from kcache_grpc.client.values import CanonicalGraph, KernelSummary, Spec, Stats
    from kcache_grpc.model.explanation import Explanation


class Client:
    """See ``kcache_grpc.Client``. Usable from one event loop after another, and from many tasks."""

    def __init__(
        self,
        address: str | None = None,
        *,
        namespace: str | None = None,
        token: str | None = None,
        tls: Tls = None,
        cache_dir: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
        strict: bool = False,
        server_id: str | None = None,
        actor: str | None = None,
        job: str | None = None,
        compatible_targets: bool | None = None,
    ) -> None:
        config = from_environment(
            address,
            namespace=namespace,
            token=token,
            tls=tls,
            cache_dir=cache_dir,
            timeout=timeout,
            strict=strict,
            server_id=server_id,
            actor=actor,
            job=job,
            compatible_targets=compatible_targets,
        )
        self._core = Core(config, AsyncIo())

    @property
    def service(self) -> str:
        """See ``kcache_grpc.Client.service``."""
        return self._core.service

    async def compile(
        self,
        program: ProgramLike,
        format: str | None = None,
        target: str = "host",
        layouts: Layouts = None,
        symbols: Symbols = None,
        dynamic: Dynamic = False,
        options: Options | None = None,
        on_progress: Callable[[str, float], None] | None = None,
        retry: bool = False,
        bind: Mapping[str, Any] | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        bound: Bound = None,
    ) -> Kernel:
        """See ``kcache_grpc.Client.compile``. A hit in memory returns without yielding to the loop."""
        shapes = shape_requirements(layouts, symbols, dynamic)
        program = bound_program(traced_program(program, args, kwargs), format, bind)
        program, options = with_bound(program, format, options, bound)
        kernel = self._core.recall(program, format, target, options, shapes)
        if kernel is not None:
            return kernel
        return await self._core.compile(program, format, target, options, on_progress, shapes, retry)

    async def compile_many(
        self,
        programs: Sequence[ProgramLike],
        format: str | None = None,
        target: str = "host",
        options: Options | None = None,
        on_progress: Callable[[str, float], None] | None = None,
        symbols: Symbols = None,
        dynamic: Dynamic = False,
    ) -> list[Kernel]:
        """See ``kcache_grpc.Client.compile_many``."""
        shapes = shape_requirements(None, symbols, dynamic)
        return await self._core.compile_many(programs, format, target, options, on_progress, shapes)

    async def normalize(
        self, program: ProgramLike, format: str | None = None, *, numerics: str = "default"
    ) -> CanonicalGraph:
        """See ``kcache_grpc.Client.normalize``."""
        return await self._core.requests.normalize(program, format, numerics)

    async def store(
        self, program: ProgramLike, format: str | None = None, *, numerics: str = "default"
    ) -> int:
        """See ``kcache_grpc.Client.store``."""
        return await self._core.requests.store(program, format, numerics)

    async def lookup(
        self, program: ProgramLike, format: str | None = None, *, numerics: str = "default"
    ) -> Spec | None:
        """See ``kcache_grpc.Client.lookup``."""
        return await self._core.requests.lookup(program, format, numerics)

    async def retrieve(self, key: int) -> Spec | None:
        """See ``kcache_grpc.Client.retrieve``."""
        return await self._core.requests.retrieve(key)

    async def kernels(self, key: int) -> tuple[KernelSummary, ...]:
        """See ``kcache_grpc.Client.kernels``."""
        return await self._core.requests.kernels(key)

    async def count(self) -> int:
        """See ``kcache_grpc.Client.count``."""
        return await self._core.requests.count()

    async def explain(
        self,
        program: ProgramLike,
        format: str | None = None,
        target: str = "host",
        layouts: Layouts = None,
        symbols: Symbols = None,
        dynamic: Dynamic = False,
        options: Options | None = None,
        neighbors: int = 3,
    ) -> Explanation:
        """See ``kcache_grpc.Client.explain``."""
        shapes = shape_requirements(layouts, symbols, dynamic)
        return await self._core.explain(program, format, target, options, shapes, neighbors)

    async def expected_seconds(
        self,
        program: ProgramLike,
        format: str | None = None,
        target: str = "host",
        layouts: Layouts = None,
        symbols: Symbols = None,
        dynamic: Dynamic = False,
        options: Options | None = None,
    ) -> float | None:
        """See ``kcache_grpc.Client.expected_seconds``."""
        shapes = shape_requirements(layouts, symbols, dynamic)
        return await self._core.expected_seconds(program, format, target, options, shapes)

    async def support(
        self,
        program: ProgramLike,
        format: str | None = None,
        target: str = "host",
        *,
        numerics: str = "default",
    ) -> Support:
        """See ``kcache_grpc.Client.support``."""
        return await self._core.requests.support(program, format, target, numerics)

    async def autotune(
        self,
        program: ProgramLike,
        format: str | None = None,
        target: str = "host",
        options: Options | None = None,
        choices: Choices = None,
        inputs: Sequence[Any] | None = None,
        budget: float = 30.0,
        on_progress: TuneProgress | None = None,
        sizes: Sizes = None,
        symbols: Symbols = None,
        dynamic: Dynamic = False,
    ) -> Tuning:
        """See ``kcache_grpc.Client.autotune``. Kernels are timed in a thread, not in the event loop."""
        from kcache_grpc.client.tuning.tuner import Plan

        plan = Plan(choices, sizes, inputs, budget, on_progress)
        shapes = shape_requirements(None, symbols, dynamic)
        return await self._core.autotune(program, format, target, options, plan, shapes)

    def start_service(self) -> bool:
        """See ``kcache_grpc.Client.start_service``."""
        return self._core.requests.start_service()

    async def get_assertion(self, source_digest: bytes) -> SourceAssertion | None:
        """See ``kcache_grpc.Client.get_assertion``."""
        return (await self._core.requests.get_assertions((source_digest,))).get(source_digest)

    async def get_assertions(self, source_digests: Sequence[bytes]) -> dict[bytes, SourceAssertion]:
        """See ``kcache_grpc.Client.get_assertions``."""
        return await self._core.requests.get_assertions(source_digests)

    async def put_assertion(
        self, source_digest: bytes, record: bytes, programs: Sequence[bytes], *, toolchain: str = ""
    ) -> PutAssertionResult:
        """See ``kcache_grpc.Client.put_assertion``."""
        return await self._core.requests.put_assertion(source_digest, record, programs, toolchain)

    async def dispute_assertion(
        self, source_digest: bytes, record_digest: bytes, observed: bytes, reason: str = ""
    ) -> bool:
        """See ``kcache_grpc.Client.dispute_assertion``."""
        return await self._core.requests.dispute_assertion(source_digest, record_digest, observed, reason)

    async def preload(
        self, path: str | os.PathLike[str], *, trust: Trust = None, target: str | None = None
    ) -> PreloadReport:
        """See ``kcache_grpc.Client.preload``."""
        return await self._core.preload(path, trust, target)

    async def import_bundle(
        self, path: str | os.PathLike[str], *, trust: Trust = None, target: str | None = None
    ) -> ImportReport:
        """See ``kcache_grpc.Client.import_bundle``."""
        return await self._core.import_bundle(path, trust, target)

    async def export_bundle(
        self,
        path: str | os.PathLike[str],
        *,
        keys: Sequence[int] | None = None,
        job: str | None = None,
        since: When = None,
        until: When = None,
        filter: str | None = None,
        targets: Sequence[str] | None = None,
        programs: Sequence[bytes | str] | None = None,
        everything: bool = False,
        blobs: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> ExportReport:
        """See ``kcache_grpc.Client.export_bundle``."""
        from kcache_grpc.client.bundles.exchange import BundleChoice

        choice = BundleChoice(
            keys, job, since, until, filter, targets, programs, everything, blobs, on_progress
        )
        return await self._core.export_bundle(path, choice)

    async def upload_bundle(
        self,
        path: str | os.PathLike[str],
        *,
        trust: Trust = None,
        targets: Sequence[str] | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> UploadReport:
        """See ``kcache_grpc.Client.upload_bundle``."""
        return await self._core.upload_bundle(path, trust, targets, on_progress)

    async def stats(self) -> Stats:
        """See ``kcache_grpc.Client.stats``."""
        return await self._core.stats()

    def audit(
        self, filter: str = "", *, newest_first: bool = False, limit: int | None = None
    ) -> AsyncIterator[AuditEvent]:
        """See ``kcache_grpc.Client.audit``; an asynchronous iterator."""
        from kcache_grpc.client.requests.audit import Question

        return self._audit(Question(filter, newest_first, limit))

    async def _audit(self, question: Question) -> AsyncIterator[AuditEvent]:
        received, token = 0, ""
        while True:
            events, token = await self._core.requests.audit_page(question, received, token)
            received += len(events)
            for event in events:
                yield event
            if not token:
                return

    async def audit_heads(self) -> AuditHeads:
        """See ``kcache_grpc.Client.audit_heads``."""
        return await self._core.requests.audit_heads()

    async def close(self) -> None:
        """See ``kcache_grpc.Client.close``."""
        await self._core.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<kcache.aio.Client {self._core.config.address or 'embedded'} {self._core.config.namespace}>"
