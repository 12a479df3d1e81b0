"""What the synchronous and the asynchronous client share: cache tiers and single flight."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import weakref
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kcache_grpc.client.bundles.tier import BundledKernels, Trust
from kcache_grpc.client.cache.memory import (
    Abandoned,
    InFlightCall,
    KernelTable,
    RequestKey,
    SingleFlight,
    request_key,
)
from kcache_grpc.client.cache.program_history import SeenPrograms, Used, witness_of
from kcache_grpc.client.cache.totals import Counters, Totals
from kcache_grpc.client.config import ClientConfig
from kcache_grpc.client.fetch_kernel import FetchedKernel, KernelFetcher
from kcache_grpc.client.progress import Progress, report_to_all
from kcache_grpc.client.service_choice import Services
from kcache_grpc.client.transport.connection import Connection
from kcache_grpc.client.transport.endpoint import EMBEDDED, RemoteLocation, ServiceLocation
from kcache_grpc.client.transport.interface import Deadline, Io, OutOfTime
from kcache_grpc.client.transport.transfer import with_witnesses
from kcache_grpc.client.trust.server_state import Provenance
from kcache_grpc.client.trust.verification import KernelRequest
from kcache_grpc.client.tuning.recorded_schedules import REJECTION_ERRORS, RecordedSchedules, plain
from kcache_grpc.errors import ArgumentError, KcacheError
from kcache_grpc.model.bypass import BypassReason, rejection_reason
from kcache_grpc.model.evidence import Witness
from kcache_grpc.model.manifest import ArtifactRef
from kcache_grpc.model.options import Options
from kcache_grpc.model.schedule import RECORDED
from kcache_grpc.model.sizes.modes import AUTO, EXACT, ShapeRequirements
from kcache_grpc.model.target import Target, parse_target
from kcache_grpc.programs.origins import located
from kcache_grpc.programs.source import ProgramLike, Source, read_source
from kcache_grpc.runtime import Kernel
from kcache_grpc.runtime.bound_kernel import BoundKernel
from kcache_grpc.runtime.cpu.library import require_understood

if TYPE_CHECKING:
    from kcache_grpc.client.bundles.exchange import BundleChoice
    from kcache_grpc.client.bundles.reports import ExportReport, ImportReport, PreloadReport, UploadReport
    from kcache_grpc.client.service_requests import ServiceRequests
    from kcache_grpc.client.tuning import tuner
    from kcache_grpc.client.values import Stats
    from kcache_grpc.model.explanation import Explanation


class Core:
    """A client; ``io`` blocks or awaits. Thread-safe; survives ``os.fork``."""

    def __init__(self, config: ClientConfig, io: Io) -> None:
        self.config = config
        self._io = io
        self._counters = Counters()
        self._services = Services(config, io, self._counters)
        self._totals = Totals(self._services.directory, config.actor, config.job)
        self._table = KernelTable(config.memory_kernels, config.memory_program_bytes)
        self._running_calls: SingleFlight[RequestKey, Kernel] = SingleFlight()
        self._recorded = RecordedSchedules(self._services, config.memory_kernels)
        self._seen = SeenPrograms()
        self._bundled = BundledKernels(config, self._services, self._counters)
        self._used = Used()
        self._closed = False
        _LIVE.add(self)

    @property
    def service(self) -> str:
        """The address of the service that was asked for, or "embedded"."""
        return self.config.address or EMBEDDED

    # Kernels.

    def recall(
        self,
        program: ProgramLike,
        format: str | None,
        target: str,
        options: Options | None,
        shapes: ShapeRequirements = EXACT,
    ) -> Kernel | None:
        """The kernel in memory of a text or bytes; ``None`` for a miss. Never waits, hashes nothing."""
        entry = None if self._closed else self._table.by_program(program, format, target, options, shapes)
        if entry is None or entry.is_due or not self._is_valid(entry.provenance):
            return None
        kernel = entry.again()
        self._counters.add_kernel("memory", kernel.seconds_saved)
        return kernel

    async def compile(
        self,
        program: ProgramLike,
        format: str | None,
        target: str,
        options: Options | None,
        progress: Progress | None,
        shapes: ShapeRequirements = EXACT,
        retry: bool = False,
    ) -> Kernel:
        """See ``Client.compile``."""
        [(key, kernel)] = await self._resolve([program], format, target, options, progress, shapes, retry)
        self._index_by_program(program, format, target, options, key, shapes, kernel)
        return kernel

    def _index_by_program(
        self,
        program: ProgramLike,
        format: str | None,
        target: str,
        options: Options | None,
        key: RequestKey,
        shapes: ShapeRequirements,
        kernel: Kernel,
    ) -> None:
        """Make the next ``recall`` with equal arguments a hit, unless their meaning may change."""
        arguments = kernel.arguments if isinstance(kernel, BoundKernel) else None
        # What is bound is part of the evidence of automatic mode, and is compared each time.
        compared = arguments is not None and shapes.mode == AUTO
        if (options is None or options.schedule != RECORDED) and not compared:
            self._table.name_program(program, format, target, options, key, shapes, arguments)

    async def compile_many(
        self,
        programs: Sequence[ProgramLike],
        format: str | None,
        target: str,
        options: Options | None,
        progress: Progress | None,
        shapes: ShapeRequirements = EXACT,
    ) -> list[Kernel]:
        """See ``Client.compile_many``."""
        resolved = await self._resolve(programs, format, target, options, progress, shapes)
        for program, (key, kernel) in zip(programs, resolved, strict=True):
            self._index_by_program(program, format, target, options, key, shapes, kernel)
        return [kernel for _, kernel in resolved]

    async def _resolve(
        self,
        programs: Sequence[ProgramLike],
        format: str | None,
        target: str,
        options: Options | None,
        progress: Progress | None,
        shapes: ShapeRequirements = EXACT,
        retry: bool = False,
    ) -> list[tuple[RequestKey, Kernel]]:
        self._require_open()
        deadline = Deadline(self.config.timeout)
        machine, chosen = parse_target(target), self._options(options)

        sources = await self._io.blocking(lambda: self._read_sources(programs, format))
        requested = [_request(source, machine, chosen, shapes, retry) for source in sources]
        with self._counting_rejections(), located([source.origins for source in sources]):
            requests, kernels = await self._kernels_of(requested, deadline, progress)
        return [
            (
                request_key(request),
                _as_source(self._with_evidence(kernels[request_key(request)], request, source), source),
            )
            for request, source in zip(requests, sources, strict=True)
        ]

    def _read_sources(self, programs: Sequence[ProgramLike], format: str | None) -> list[Source]:
        """The bytes of programs. Those that have none are counted, as they bypass the cache."""
        try:
            with self._counting_rejections():
                return [read_source(program, format) for program in programs]
        except ArgumentError:
            self._counters.bypass(BypassReason.UNCACHEABLE_INPUT)
            raise

    @contextlib.contextmanager
    def _counting_rejections(self) -> Generator[None]:
        """Counts why a program gets no kernel."""
        try:
            yield
        except KcacheError as error:
            reason = rejection_reason(error)
            if reason is not None:
                self._counters.bypass(reason)
            raise

    async def _kernels_of(
        self, requested: Sequence[KernelRequest], deadline: Deadline, progress: Progress | None
    ) -> tuple[list[KernelRequest], dict[RequestKey, Kernel]]:
        """The requests with recorded schedules where the service takes them, and the kernels of all."""
        requests = [await self._recorded.applied(request, deadline) for request in requested]
        try:
            kernels = await self._kernels(requests, deadline, progress)
        except REJECTION_ERRORS:
            rejected = await self._recorded.rejected(
                requested, requests, lambda request: self._kernels([request], deadline, progress)
            )
            if not rejected:
                raise
            requests = [
                plain(request) if request_key(original) in rejected else request
                for original, request in zip(requested, requests, strict=True)
            ]
            kernels = await self._kernels(requests, deadline, progress)
            self._recorded.give_up(rejected)
        return requests, kernels

    def _with_evidence(self, kernel: Kernel, request: KernelRequest, source: Source) -> Kernel:
        """The kernel of a request; in automatic mode the program is evidence, with its bound arguments."""
        if request.shapes.mode != AUTO:
            return kernel
        own = witness_of(kernel.binding, source.arguments)
        self._seen.add([own])
        if source.arguments is None:
            return kernel
        # Those of the evidence are the same, or ``read_source`` had rejected it.
        plain = self._seen.named(own.spec_digest, request.shapes.evidence)
        self._seen.add(replace(each, constants=own.constants) for each in plain)
        kernel = kernel.apart()
        self._pin(kernel, own)
        return kernel

    async def _record_witnesses(
        self, connection: Connection, request: KernelRequest, deadline: Deadline
    ) -> None:
        """Record the witnesses of the request's evidence, unless the service is unavailable."""
        with contextlib.suppress(KcacheError):
            self._seen.add((await with_witnesses(connection, request, deadline)).witnesses or ())

    def _pin(self, kernel: Kernel, own: Witness) -> None:
        """Let a kernel of automatic mode take other sizes as far as programs of this client show them."""
        manifest, binding, seen = kernel.manifest, kernel.binding, self._seen
        kernel.restrict_sizes(lambda: seen.pinned(own, manifest, binding))

    async def _kernels(
        self, requests: Sequence[KernelRequest], deadline: Deadline, progress: Progress | None
    ) -> dict[RequestKey, Kernel]:
        """The kernels from memory, from bundles, from requests in flight, else from the service."""
        unique = {request_key(request): request for request in requests}
        kernels = {key: kernel for key in unique if (kernel := self._from_memory(key)) is not None}
        kernels.update(await self._from_bundles({key: unique[key] for key in unique if key not in kernels}))
        while missing := {key: request for key, request in unique.items() if key not in kernels}:
            kernels.update(await self._single_flight(missing, deadline, progress))
        return kernels

    def _from_memory(self, key: RequestKey) -> Kernel | None:
        entry = self._table.by_digest(key)
        if entry is None or entry.is_due or not self._is_valid(entry.provenance):
            return None
        kernel = entry.again()
        self._counters.add_kernel("memory", kernel.seconds_saved)
        return kernel

    def _is_valid(self, provenance: Provenance) -> bool:
        """Whether a kernel in memory of this provenance may still be used."""
        return self._services.holds(provenance) or self._bundled.holds(provenance)

    async def _from_bundles(self, requests: dict[RequestKey, KernelRequest]) -> dict[RequestKey, Kernel]:
        """The kernels that preloaded or imported bundles have; no service is asked."""
        kernels: dict[RequestKey, Kernel] = {}
        for key, request in requests.items():
            bundled = await self._io.blocking(lambda request=request: self._bundled.find(request))
            if bundled is None:
                continue
            kernel = kernels[key] = bundled.kernel(self._require_open)
            if request.shapes.mode == AUTO:
                self._pin(kernel, witness_of(kernel.binding, None))
            self._table.keep(key, bundled.provenance, kernel)
            self._used.add(request, kernel)
            self._counters.add(f"{kernel.origin}_kernels")
        return kernels

    async def _single_flight(
        self, requests: dict[RequestKey, KernelRequest], deadline: Deadline, progress: Progress | None
    ) -> dict[RequestKey, Kernel]:
        """Serve the requests for which no call runs as their leader, then wait for the other calls.

        Requests whose leader gave up are not in the result: the caller repeats them.
        """
        entered = {key: self._running_calls.enter(key) for key in requests}
        mine = {key: request for key, request in requests.items() if entered[key][1]}
        others = {key: call for key, (call, leads) in entered.items() if not leads}
        if progress is not None:
            for call in others.values():
                call.listeners.append(progress)
        report = report_to_all(progress, [entered[key][0].listeners for key in mine])
        kernels = await self._serve_as_leader(mine, deadline, report) if mine else {}
        for key, call in others.items():
            kernel = await self._wait_for_leader(call, deadline)
            if kernel is not None:
                kernels[key] = kernel
        return kernels

    async def _wait_for_leader(self, call: InFlightCall[Kernel], deadline: Deadline) -> Kernel | None:
        """The kernel that the leader of ``call`` gets; ``None`` if it gave up. Raises its error."""
        try:
            return await self._io.wait(call.future, deadline.left())
        except (Abandoned, TimeoutError):
            deadline.left()
            return None

    async def _serve_as_leader(
        self, requests: dict[RequestKey, KernelRequest], deadline: Deadline, progress: Progress
    ) -> dict[RequestKey, Kernel]:
        """Obtain kernels; end the calls of all requests, with kernels or with the error."""
        try:
            served = await self._services.serve(
                lambda fetcher: self._fetch(fetcher, list(requests.values()), deadline, progress),
                programs=len(requests),
            )
        except BaseException as error:
            reported = isinstance(error, KcacheError) and not isinstance(error, OutOfTime)
            for key in requests:
                self._running_calls.finish(key, error if reported else Abandoned())
            raise
        kernels = dict(zip(requests, served, strict=True))
        for key, kernel in kernels.items():
            self._running_calls.finish(key, kernel)
        return kernels

    async def _fetch(
        self, source: KernelFetcher, requests: Sequence[KernelRequest], deadline: Deadline, progress: Progress
    ) -> list[Kernel]:
        location = source.connection.location
        if isinstance(location, RemoteLocation):
            location.endpoint.require_safe_code()
        fetched = await source.fetch(requests, deadline, progress)
        state = await source.connection.state(deadline)
        kernels = [self._kernel(location, state.server_id, answer) for answer in fetched]
        if self._services.has_fallback and not location.embedded:
            for kernel in kernels:
                _require_understood(kernel)
        for request, kernel in zip(requests, kernels, strict=True):
            if request.shapes.mode == AUTO:
                await self._record_witnesses(source.connection, request, deadline)
                self._pin(kernel, witness_of(kernel.binding, None))
            provenance = state.provenance_of(kernel.manifest)
            self._table.keep(request_key(request), provenance, kernel, location.freshness)
            self._used.add(request, kernel)
            self._counters.add_kernel(kernel.origin, kernel.seconds_saved)
        self._totals.offer(self._counters.snapshot())
        return kernels

    def _kernel(self, location: ServiceLocation, server_id: str, fetched: FetchedKernel) -> Kernel:
        stored = fetched.kernel
        code = stored.manifest.code
        assert code is not None
        constants = [stored.blobs[constant.sha256] for constant in stored.binding.constants]

        def fetch(ref: ArtifactRef) -> bytes:
            self._require_open()
            return self._services.read(location, ref)

        artifacts = {code.kind: stored.blobs[code.sha256]}
        return Kernel(
            stored.manifest,
            stored.binding,
            fetched.origin,
            artifacts,
            fetch,
            constants,
            service=EMBEDDED if location.embedded else self.service,
            server_id=server_id,
            seconds_saved=fetched.seconds_saved,
        )

    # Bundles.

    async def preload(self, path: str | os.PathLike[str], trust: Trust, target: str | None) -> PreloadReport:
        """See ``Client.preload``."""
        self._require_open()
        return await self._io.blocking(lambda: self._bundled.preload(path, trust, target))

    async def import_bundle(
        self, path: str | os.PathLike[str], trust: Trust, target: str | None
    ) -> ImportReport:
        """See ``Client.import_bundle``."""
        self._require_open()
        return await self._io.blocking(lambda: self._bundled.import_bundle(path, trust, target))

    async def export_bundle(self, path: str | os.PathLike[str], choice: BundleChoice) -> ExportReport:
        """See ``Client.export_bundle``."""
        from kcache_grpc.client.bundles.exchange import export_bundle

        deadline = self._new_deadline()
        selection = choice.selection(self._used)
        return await self._services.ask(
            lambda main: export_bundle(main, self._io, Path(path), selection, choice.on_progress, deadline)
        )

    async def upload_bundle(
        self,
        path: str | os.PathLike[str],
        trust: Trust,
        targets: Sequence[str] | None,
        on_progress: Callable[[int], None] | None,
    ) -> UploadReport:
        """See ``Client.upload_bundle``."""
        from kcache_grpc.client.bundles.exchange import upload_bundle

        deadline = self._new_deadline()
        return await self._services.ask(
            lambda main: upload_bundle(main, Path(path), trust, targets, on_progress, deadline)
        )

    # Requests that the service answers itself.

    @functools.cached_property
    def requests(self) -> ServiceRequests:
        """Requests that are not for kernels."""
        from kcache_grpc.client.service_requests import ServiceRequests

        return ServiceRequests(self._services, self._io, self._new_deadline)

    async def stats(self) -> Stats:
        """See ``Client.stats``."""
        from kcache_grpc.client.requests import graphs

        counts = self._counters.snapshot()
        self._totals.add(counts)
        return await self._services.ask(
            lambda main: graphs.stats(main, self._new_deadline(), counts, self._totals.read())
        )

    async def autotune(
        self,
        program: ProgramLike,
        format: str | None,
        target: str,
        options: Options | None,
        plan: tuner.Plan,
        shapes: ShapeRequirements = EXACT,
    ) -> tuner.Tuning:
        """See ``Client.autotune``."""
        from kcache_grpc.client.tuning import tuner

        self._require_open()
        machine, plain = (
            parse_target(target),
            replace(_options(options), schedule="", compatible_targets=False),
        )
        source = await self._io.blocking(lambda: read_source(program, format))
        search = tuner.Tuner(self._io, self._services.main, self._unbound_kernel, self.config.timeout)
        with located([source.origins]):
            tuned = await search.tune(_request(source, machine, plain, shapes), plan)
        self._recorded.clear()
        best = replace(plain, schedule=tuned.schedule)
        [(_, kernel)] = await self._resolve([program], format, target, best, None, shapes)
        return tuner.Tuning(
            tuned.schedule, tuned.timings, tuned.recorded, tuned.device, kernel, tuned.rejected, tuned.trials
        )

    async def _unbound_kernel(self, request: KernelRequest) -> Kernel:
        """The kernel of one request, without bound arguments."""
        key = request_key(request)
        kernel = self._from_memory(key)
        while kernel is None:
            kernel = (await self._single_flight({key: request}, self._new_deadline(), None)).get(key)
        return kernel

    async def explain(
        self,
        program: ProgramLike,
        format: str | None,
        target: str,
        options: Options | None,
        shapes: ShapeRequirements,
        neighbors: int,
    ) -> Explanation:
        """See ``Client.explain``."""
        from kcache_grpc.client.requests.explain import explain

        deadline = self._new_deadline()
        machine, chosen = parse_target(target), self._options(options)
        source = await self._io.blocking(lambda: read_source(program, format))
        request = await self._recorded.applied(_request(source, machine, chosen, shapes), deadline)
        with located([source.origins]):
            return await self._services.ask(lambda main: explain(main, request, neighbors, deadline))

    async def expected_seconds(
        self,
        program: ProgramLike,
        format: str | None,
        target: str,
        options: Options | None,
        shapes: ShapeRequirements,
    ) -> float | None:
        """See ``Client.expected_seconds``."""
        from kcache_grpc.client.requests.explain import expected_seconds

        deadline = self._new_deadline()
        machine, chosen = parse_target(target), _options(options)
        source = await self._io.blocking(lambda: read_source(program, format))
        request = await self._recorded.applied(_request(source, machine, chosen, shapes), deadline)
        entry = self._table.by_digest(request_key(request))
        if entry is not None and self._services.holds(entry.provenance):
            return 0.0
        if await self._services.on_disk(request, deadline):
            return 0.0
        with located([source.origins]):
            return await self._services.ask(lambda main: expected_seconds(main, request, deadline))

    # Lifecycle.

    async def close(self) -> None:
        """Close connections and drop cached kernels; those that callers hold stay usable."""
        self._closed = True
        self._totals.add(self._counters.snapshot())
        self._table.clear()
        self._bundled.close()
        await self._services.close()

    def add_totals(self) -> None:
        """Add the counters to those of the cache directory."""
        self._totals.add(self._counters.snapshot())

    def after_fork(self) -> None:
        """In the child of a fork: replace the parent's threads, locks and connections."""
        self._counters.after_fork()
        self._totals.after_fork(self._counters.snapshot())
        self._table.after_fork()
        self._running_calls.after_fork()
        self._seen.after_fork()
        self._bundled.after_fork()
        self._recorded = RecordedSchedules(self._services, self.config.memory_kernels)
        self._services.after_fork()

    def _options(self, options: Options | None) -> Options:
        """The options, with this client's settings for those that are unset."""
        chosen = _options(options)
        allowed = self.config.compatible_targets
        if chosen.compatible_targets is None and allowed is not None:
            return replace(chosen, compatible_targets=allowed)
        return chosen

    def _new_deadline(self) -> Deadline:
        self._require_open()
        return Deadline(self.config.timeout)

    def _require_open(self) -> None:
        if self._closed:
            raise ArgumentError("the client is closed")


def _request(
    source: Source, target: Target, options: Options, shapes: ShapeRequirements, retry: bool = False
) -> KernelRequest:
    """The request of a program, with its evidence."""
    if source.evidence:
        shapes = replace(shapes, evidence=tuple(program.digest for program in source.evidence))
    return KernelRequest(source.program, target, options, shapes, retry, source.evidence)


def _options(options: Options | None) -> Options:
    if options is None:
        return Options()
    if not isinstance(options, Options):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"options are a kcache.Options, not {options!r}")
    return options


def _require_understood(kernel: Kernel) -> None:
    """Raises ``ArgumentError`` for a kernel of a later version than this client's, which it could not run."""
    try:
        require_understood(kernel.manifest)
    except ArgumentError as error:
        raise ArgumentError(error.message, **{"skew": "kernel", **error.metadata}) from error


def _as_source(kernel: Kernel, source: Source) -> Kernel:
    """The kernel with the arguments and the names of inputs that its source brings."""
    if source.names:
        kernel = kernel.named(source.names)
    return kernel if source.arguments is None else BoundKernel(kernel, source.arguments)


#: Clients of this process, for the fork handler, which cannot be taken back.
_LIVE: weakref.WeakSet[Core] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for core in list(_LIVE):
        core.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)


@atexit.register
def _add_totals() -> None:
    """Of clients that were not closed."""
    for core in list(_LIVE):
        core.add_totals()
