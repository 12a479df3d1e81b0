"""Fetches kernels of one server: from disk, by digest, or by a compile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kcache_grpc._proto.kcache.v1 import common_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.client.cache.disk import DiskTier, StoredKernel, entry_name, needed_blobs
from kcache_grpc.client.cache.totals import Counters
from kcache_grpc.client.progress import Progress
from kcache_grpc.client.transport.compile_stream import (
    INLINE_BUDGET,
    Compile,
    compile_request,
    compile_together,
)
from kcache_grpc.client.transport.connection import Connection
from kcache_grpc.client.transport.interface import COMPILE_KERNEL, GET_KERNELS, Deadline, Io, Wire
from kcache_grpc.client.transport.transfer import download, with_program, with_witnesses
from kcache_grpc.client.trust.verification import KernelRequest, KernelVerifier, check_bytes
from kcache_grpc.errors import IntegrityError, NotFound, Unavailable
from kcache_grpc.model.bypass import BypassReason
from kcache_grpc.model.options import Options
from kcache_grpc.model.sizes.modes import ShapeRequirements
from kcache_grpc.model.target import code_kind
from kcache_grpc.model.wire import (
    artifact_kind_to_proto,
    options_to_proto,
    shapes_to_proto,
    target_match_to_proto,
    target_to_proto,
)

#: Seconds before a kernel whose bytes are lost is requested again: replicas learn of the loss within one.
_PAUSES = (0.1, 0.5, 1.0)
#: Age of a kernel for a lower target that will do while the service is away.
_EVER = float("inf")
_ORIGINS = {
    pb.ORIGIN_STORED: "remote",
    pb.ORIGIN_COMPILED: "compiled",
    pb.ORIGIN_JOINED: "compiled",
    pb.ORIGIN_PRELOADED: "preloaded",
}


@dataclass(frozen=True)
class FetchedKernel:
    """A verified kernel, where it came from, and the seconds of compiling that this saved."""

    kernel: StoredKernel
    origin: str
    seconds_saved: float


@dataclass(frozen=True)
class _Answer:
    """A kernel as the service sent it, and the bytes that came along."""

    kernel: pb.KernelResult
    origin: str
    #: This request compiled it.
    ours: bool
    parts: dict[bytes, bytes]


class KernelFetcher:
    """Fetches kernels of one server, or those of it that are on disk."""

    def __init__(self, connection: Connection, disk: DiskTier | None, io: Io, counters: Counters) -> None:
        self.connection = connection
        self._disk = disk
        self._io = io
        self._counters = counters

    async def fetch(
        self, requests: Sequence[KernelRequest], deadline: Deadline, progress: Progress
    ) -> list[FetchedKernel]:
        """One kernel for each, in order. All have the same target, and equal options but for the schedule."""
        return await self.connection.renewed(lambda: self._fetch(requests, deadline, progress), deadline)

    async def _fetch(
        self, requests: Sequence[KernelRequest], deadline: Deadline, progress: Progress
    ) -> list[FetchedKernel]:
        """One kernel for each request, in order: from disk, else looked up by digest, else compiled.

        Each reply is verified and kept on disk. If the service is unavailable, kernels for lower targets on
        disk answer where every request has one; otherwise raises ``Unavailable``.
        """
        verifier = await self.connection.verifier(deadline)
        from_disk = await self._io.blocking(
            lambda: [self._from_disk(request, verifier) for request in requests]
        )
        missing = [index for index, entry in enumerate(from_disk) if entry is None]
        remaining = [await with_witnesses(self.connection, requests[index], deadline) for index in missing]
        try:
            answers = await self._look_up(remaining, deadline)
        except Unavailable:
            late = await self._io.blocking(
                lambda: [self._lower_from_disk(request, verifier, _EVER) for request in remaining]
            )
            if not remaining or None in late:
                raise
            replaced = dict(zip(missing, late, strict=True))
            return [entry or _not_none(replaced[index]) for index, entry in enumerate(from_disk)]
        for request, answer in zip(remaining, answers, strict=True):
            if request.retry and answer.status == pb.KERNEL_STATUS_FAILED:
                self._counters.bypass(BypassReason.RETRY)
        compiled = await compile_together(self.connection, self._io, remaining, answers, deadline, progress)

        async def complete(
            request: KernelRequest, answer: pb.KernelResult, done: Compile | None
        ) -> FetchedKernel:
            fetched = await self._answered(request, answer, done, deadline, progress)
            await self._keep(request, fetched.kernel, deadline)
            return fetched

        works = [
            (lambda request=request, answer=answer, done=done: complete(request, answer, done))
            for request, answer, done in zip(remaining, answers, compiled, strict=True)
        ]
        by_index = dict(zip(missing, await self._io.gather(works), strict=True))
        return [entry or by_index[index] for index, entry in enumerate(from_disk)]

    def _from_disk(self, request: KernelRequest, verifier: KernelVerifier) -> FetchedKernel | None:
        if self._disk is None:
            return None
        stored = self._disk.load(
            entry_name(verifier.state, self.connection.namespace, request), verifier, request
        )
        if stored is not None:
            return FetchedKernel(stored, "disk", stored.manifest.compile_seconds)
        return self._lower_from_disk(request, verifier, self.connection.location.freshness)

    async def holds(self, request: KernelRequest, deadline: Deadline) -> bool:
        """Whether the kernel is on disk. Requests only the state of the server."""
        verifier = await self.connection.verifier(deadline)
        return await self._io.blocking(lambda: self._from_disk(request, verifier)) is not None

    def _lower_from_disk(
        self, request: KernelRequest, verifier: KernelVerifier, max_age: float
    ) -> FetchedKernel | None:
        """A kernel for a lower target, where that will do, saved less than ``max_age`` seconds ago."""
        if self._disk is None or not verifier.allows_lower(request):
            return None
        name = entry_name(verifier.state, self.connection.namespace, request, lower=True)
        stored = self._disk.load(name, verifier, request, max_age)
        return None if stored is None else FetchedKernel(stored, "disk", stored.manifest.compile_seconds)

    async def _look_up(self, requests: Sequence[KernelRequest], deadline: Deadline) -> list[pb.KernelResult]:
        """The server's answer for each, without uploads. A query has one schedule and one mode of sizes."""
        state = await self.connection.state(deadline)
        alike: dict[tuple[Options, ShapeRequirements], list[int]] = {}
        for index, request in enumerate(requests):
            alike.setdefault((request.options, request.shapes), []).append(index)
        answers: dict[int, pb.KernelResult] = {}
        for indices in alike.values():
            for start in range(0, len(indices), state.max_queries):
                some = indices[start : start + state.max_queries]
                looked_up = await self._look_up_some([requests[index] for index in some], deadline)
                answers.update(zip(some, looked_up, strict=True))
        return [answers[index] for index in range(len(requests))]

    async def _look_up_some(
        self, requests: Sequence[KernelRequest], deadline: Deadline
    ) -> list[pb.KernelResult]:
        request = pb.GetKernelsRequest(
            header=self.connection.header(),
            queries=[pb.KernelQuery(program_digest=request.program.digest) for request in requests],
            target=target_to_proto(requests[0].target),
            options=options_to_proto(requests[0].options),
            artifact_kinds=[artifact_kind_to_proto(code_kind(requests[0].target))],
            inline_budget_bytes=INLINE_BUDGET,
            shapes=shapes_to_proto(requests[0].shapes),
            target_match=target_match_to_proto(requests[0].options.compatible_targets),
        )
        answers: dict[int, pb.KernelResult] = {}
        for reply in await self.connection.channel.collect(GET_KERNELS, request, deadline):
            answers.update((result.index, result) for result in reply.results)
        first = {answer.first_index for answer in answers.values()}
        if sorted(answers) != list(range(len(requests))) or not first <= answers.keys():
            raise IntegrityError(f"the server gave {len(answers)} answers to {len(requests)} questions")
        return [
            answers[answer.first_index if answer.status == pb.KERNEL_STATUS_DUPLICATE else index]
            for index, answer in sorted(answers.items())
        ]

    async def _answered(
        self,
        request: KernelRequest,
        answer: pb.KernelResult,
        done: Compile | None,
        deadline: Deadline,
        progress: Progress,
    ) -> FetchedKernel:
        """Turn an answer of ``GetKernels`` into a kernel; compiles it if the service has none."""
        match answer.status:
            case pb.KERNEL_STATUS_FOUND:
                sent = {artifact.ref.sha256: artifact.data for artifact in answer.artifacts}
                try:
                    kernel = await self._complete(request, answer, sent, deadline)
                    origin = "preloaded" if kernel.manifest.bundle_digest else "remote"
                    return FetchedKernel(kernel, origin, kernel.manifest.compile_seconds)
                except NotFound:
                    # The bytes were evicted: a miss, which the service repairs.
                    return await self._compiled(request, True, deadline, progress)
            case pb.KERNEL_STATUS_NEED_PROGRAM:
                return await self._compiled(request, False, deadline, progress, done)
            case pb.KERNEL_STATUS_NEED_COMPILE | pb.KERNEL_STATUS_FAILED:
                # The compile raises a remembered failure, with all details of the first one.
                return await self._compiled(request, True, deadline, progress, done)
            case other:
                raise IntegrityError(
                    f"the server answered with the unknown status {other}; install a kcache-grpc as new as "
                    "the server",
                    skew="server",
                )

    async def _compiled(
        self,
        request: KernelRequest,
        known: bool,
        deadline: Deadline,
        progress: Progress,
        done: Compile | None = None,
    ) -> FetchedKernel:
        """A compiled kernel with all of its bytes. What the service finds lost as it sends it, it makes anew:
        first the kernel, then the constants, for which it wants the program again.
        ``done`` is the first attempt, where it was made with others.
        """
        pauses = list(_PAUSES)
        origins = set[str]()
        ours = False
        while True:
            answer = _answer(done or await self._compile(request, known, deadline, progress))
            done = None
            origins.add(answer.origin)
            ours = ours or answer.ours
            try:
                kernel = await self._complete(request, answer.kernel, answer.parts, deadline)
                saved = 0.0 if ours else kernel.manifest.compile_seconds
                return FetchedKernel(kernel, "compiled" if "compiled" in origins else answer.origin, saved)
            except NotFound:
                if not pauses:
                    raise
                await self._io.sleep(deadline.left(pauses.pop(0)))

    async def _compile(
        self, request: KernelRequest, known: bool, deadline: Deadline, progress: Progress
    ) -> Compile:
        """One compile, followed to its result."""
        done = Compile(progress)
        header = self.connection.header()

        async def call(source: common_pb2.GraphSource) -> None:
            message = compile_request(request, source, header)

            async def once(wire: Wire) -> None:
                """Attaches to the compile, again after a broken stream: the service goes on meanwhile."""
                try:
                    replies = wire.stream(COMPILE_KERNEL, message, deadline.left())
                    await self.connection.channel.follow(replies, done.take)
                except Unavailable:
                    if done.result is None:
                        raise
                if done.result is None:
                    raise Unavailable("the compile's stream ended without a result")

            await self.connection.channel.attempt(once, deadline)

        await with_program(self.connection, request.program, deadline, call, known=known)
        return done

    async def _complete(
        self, request: KernelRequest, answer: pb.KernelResult, sent: dict[bytes, bytes], deadline: Deadline
    ) -> StoredKernel:
        """Verifies an answer, then brings the bytes that did not come along."""
        binding, manifest = (await self.connection.verifier(deadline)).kernel(answer, request)
        blobs: dict[bytes, bytes] = {}
        for sha256, size in needed_blobs(binding, manifest):
            blobs[sha256] = await self.bytes_of(sha256, size, deadline, sent.get(sha256, b""))
        return StoredKernel(answer, binding, manifest, blobs)

    async def bytes_of(self, sha256: bytes, size: int, deadline: Deadline, begun: bytes = b"") -> bytes:
        """Verified bytes: those that came, those on disk, else those of the server from where they end."""
        if begun and len(begun) >= size:
            return check_bytes(begun, sha256, size, f"artifact {sha256.hex()}")
        disk = self._disk
        if disk is not None:
            stored = await self._io.blocking(lambda: disk.blob(sha256, size))
            if stored is not None:
                return stored
        return await download(self.connection, sha256, size, deadline, begun)

    async def _keep(self, request: KernelRequest, kernel: StoredKernel, deadline: Deadline) -> None:
        """Keeps a kernel on disk, under the toolchain that made it."""
        state = await self.connection.state(deadline)
        if kernel.manifest.toolchain_digest != state.toolchain_of(request.target):
            # The server was upgraded since it was asked. Replicas that differ end up here each time.
            state = await self.connection.refresh(deadline)
        disk = self._disk
        if disk is None:
            self._counters.bypass(BypassReason.DISK_UNUSABLE)
        if disk is None or kernel.manifest.toolchain_digest != state.toolchain_of(request.target):
            return
        lower = kernel.manifest.target != request.target
        name = entry_name(state, self.connection.namespace, request, lower=lower)
        await self._io.blocking(lambda: disk.save(name, kernel))
        if not disk.writable:
            self._counters.bypass(BypassReason.DISK_UNUSABLE)


def _not_none(fetched: FetchedKernel | None) -> FetchedKernel:
    assert fetched is not None
    return fetched


def _answer(done: Compile) -> _Answer:
    result = done.result
    assert result is not None
    kernel = pb.KernelResult(key=result.key, binding=result.binding, manifest=result.manifest)
    parts = {sha256: bytes(content) for sha256, content in done.parts.items()}
    ours = result.origin == pb.ORIGIN_COMPILED
    return _Answer(kernel, _ORIGINS.get(result.origin, "remote"), ours, parts)
