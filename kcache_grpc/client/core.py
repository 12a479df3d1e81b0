"""The client, once: tiers and single flight. The sync and async clients are thin skins over it."""

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
from kcache_grpc.client.bundles.used import Used
from kcache_grpc.client.cache.kernels import AskKey, KernelTable, ask_key
from kcache_grpc.client.cache.memory import Abandoned, Flight, Flights
from kcache_grpc.client.cache.program_history import SeenPrograms, witness_of
from kcache_grpc.client.cache.totals import Totals
from kcache_grpc.client.config import ClientConfig
from kcache_grpc.client.counters import Counters
from kcache_grpc.client.fetch_kernel import Obtained, Obtainer
from kcache_grpc.client.progress import Progress, report_to_all
from kcache_grpc.client.requests.witnesses import with_witnesses
from kcache_grpc.client.service_choice import Services
from kcache_grpc.client.transport.connection import Connection
from kcache_grpc.client.transport.deadline import Deadline, OutOfTime
from kcache_grpc.client.transport.endpoint import EMBEDDED, Place, RemotePlace
from kcache_grpc.client.transport.interface import Io
from kcache_grpc.client.trust.server_state import Generation
from kcache_grpc.client.trust.verification import KernelRequest
from kcache_grpc.client.tuning.recorded_schedules import REFUSALS, RecordedSchedules, plain
from kcache_grpc.errors import ArgumentError, KcacheError
from kcache_grpc.model.bypass import BypassReason, refusal_reason
from kcache_grpc.model.evidence import Witness
from kcache_grpc.model.manifest import ArtifactRef
from kcache_grpc.model.options import Options
from kcache_grpc.model.schedule import RECORDED
from kcache_grpc.model.sizes.modes import AUTO, EXACT, ShapeWish
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
    """Everything that a client does, over a world to wait in. Thread-safe; survives ``os.fork``."""

    def __init__(self, config: ClientConfig, io: Io) -> None:
        self.config = config
        self._io = io
        self._counters = Counters()
        self._services = Services(config, io, self._counters)
        self._totals = Totals(self._services.directory, config.actor, config.job)
        self._table = KernelTable(config.memory_kernels, config.memory_program_bytes)
        self._flights: Flights[AskKey, Kernel] = Flights()
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
        shapes: ShapeWish = EXACT,
    ) -> Kernel | None:
        """The kernel of a text or of bytes that were compiled before; never waits, hashes nothing."""
        kept = None if self._closed else self._table.by_program(program, format, target, options, shapes)
        if kept is None or kept.is_due or not self._holds(kept.generation):
            return None
        kernel = kept.again()
        self._counters.add_kernel("memory", kernel.seconds_saved)
        return kernel

    async def compile(
        self,
        program: ProgramLike,
        format: str | None,
        target: str,
        options: Options | None,
        progress: Progress | None,
        shapes: ShapeWish = EXACT,
        retry: bool = False,
    ) -> Kernel:
        """See ``Client.compile``."""
        [(key, kernel)] = await self._resolve([program], format, target, options, progress, shapes, retry)
        self._name(program, format, target, options, key, shapes, kernel)
        return kernel

    def _name(
        self,
        program: ProgramLike,
        format: str | None,
        target: str,
        options: Options | None,
        key: AskKey,
        shapes: ShapeWish,
        kernel: Kernel,
    ) -> None:
        """Makes the next ``recall`` of the same arguments a hit, where they mean the same for good."""
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
        shapes: ShapeWish = EXACT,
    ) -> list[Kernel]:
        """See ``Client.compile_many``."""
        resolved = await self._resolve(programs, format, target, options, progress, shapes)
        for program, (key, kernel) in zip(programs, resolved, strict=True):
            self._name(program, format, target, options, key, shapes, kernel)
        return [kernel for _, kernel in resolved]

    async def _resolve(
        self,
        programs: Sequence[ProgramLike],
        format: str | None,
        target: str,
        options: Options | None,
        progress: Progress | None,
        shapes: ShapeWish = EXACT,
        retry: bool = False,
    ) -> list[tuple[AskKey, Kernel]]:
        self._require_open()
        deadline = Deadline(self.config.timeout)
        machine, chosen = parse_target(target), self._options(options)

        sources = await self._io.blocking(lambda: self._read_sources(programs, format))
        wished = [_ask(source, machine, chosen, shapes, retry) for source in sources]
        with self._counting_refusals(), located([source.origins for source in sources]):
            asks, kernels = await self._kernels_of(wished, deadline, progress)
        return [
            (ask_key(ask), _as_source(self._evident(kernels[ask_key(ask)], ask, source), source))
            for ask, source in zip(asks, sources, strict=True)
        ]

    def _read_sources(self, programs: Sequence[ProgramLike], format: str | None) -> list[Source]:
        """The bytes of programs. Those that have none are counted, as they bypass the cache."""
        try:
            with self._counting_refusals():
                return [read_source(program, format) for program in programs]
        except ArgumentError:
            self._counters.bypass(BypassReason.UNCACHEABLE_INPUT)
            raise

    @contextlib.contextmanager
    def _counting_refusals(self) -> Generator[None]:
        """Counts why a program gets no kernel."""
        try:
            yield
        except KcacheError as error:
            reason = refusal_reason(error)
            if reason is not None:
                self._counters.bypass(reason)
            raise

    async def _kernels_of(
        self, wished: Sequence[KernelRequest], deadline: Deadline, progress: Progress | None
    ) -> tuple[list[KernelRequest], dict[AskKey, Kernel]]:
        """The asks with recorded schedules where the service takes them, and the kernels of all."""
        asks = [await self._recorded.applied(wish, deadline) for wish in wished]
        try:
            kernels = await self._kernels(asks, deadline, progress)
        except REFUSALS:
            refused = await self._recorded.refused(
                wished, asks, lambda ask: self._kernels([ask], deadline, progress)
            )
            if not refused:
                raise
            asks = [
                plain(ask) if ask_key(wish) in refused else ask
                for wish, ask in zip(wished, asks, strict=True)
            ]
            kernels = await self._kernels(asks, deadline, progress)
            self._recorded.give_up(refused)
        return asks, kernels

    def _evident(self, kernel: Kernel, ask: KernelRequest, source: Source) -> Kernel:
        """The kernel of an ask; in automatic mode the program is evidence, with the arguments it brings."""
        if ask.shapes.mode != AUTO:
            return kernel
        own = witness_of(kernel.binding, source.arguments)
        self._seen.add([own])
        if source.arguments is None:
            return kernel
        # Those of the evidence are the same, or ``read_source`` had refused it.
        plain = self._seen.named(own.spec_digest, ask.shapes.evidence)
        self._seen.add(replace(each, constants=own.constants) for each in plain)
        kernel = kernel.apart()
        self._pin(kernel, own)
        return kernel

    async def _see(self, connection: Connection, ask: KernelRequest, deadline: Deadline) -> None:
        """Remembers what the ask's own evidence shows, unless the service is away."""
        with contextlib.suppress(KcacheError):
            self._seen.add((await with_witnesses(connection, ask, deadline)).witnesses or ())

    def _pin(self, kernel: Kernel, own: Witness) -> None:
        """Lets a kernel of automatic mode take other sizes as far as programs of this client show it."""
        manifest, binding, seen = kernel.manifest, kernel.binding, self._seen
        kernel.pin(lambda: seen.pinned(own, manifest, binding))

    async def _kernels(
        self, asks: Sequence[KernelRequest], deadline: Deadline, progress: Progress | None
    ) -> dict[AskKey, Kernel]:
        """From memory, from who makes them already, else from the service."""
        unique = {ask_key(ask): ask for ask in asks}
        kernels = {key: kernel for key in unique if (kernel := self._kept(key)) is not None}
        kernels.update(await self._from_bundles({key: unique[key] for key in unique if key not in kernels}))
        while missing := {key: ask for key, ask in unique.items() if key not in kernels}:
            kernels.update(await self._fly(missing, deadline, progress))
        return kernels

    def _kept(self, key: AskKey) -> Kernel | None:
        kept = self._table.by_digest(key)
        if kept is None or kept.is_due or not self._holds(kept.generation):
            return None
        kernel = kept.again()
        self._counters.add_kernel("memory", kernel.seconds_saved)
        return kernel

    def _holds(self, generation: Generation) -> bool:
        """Whether a kernel in memory may be used on."""
        return self._services.holds(generation) or self._bundled.holds(generation)

    async def _from_bundles(self, asks: dict[AskKey, KernelRequest]) -> dict[AskKey, Kernel]:
        """The kernels that preloaded or imported bundles have; no service is asked."""
        kernels: dict[AskKey, Kernel] = {}
        for key, ask in asks.items():
            found = await self._io.blocking(lambda ask=ask: self._bundled.find(ask))
            if found is None:
                continue
            kernel = kernels[key] = found.kernel(self._require_open)
            if ask.shapes.mode == AUTO:
                self._pin(kernel, witness_of(kernel.binding, None))
            self._table.keep(key, found.generation, kernel)
            self._used.add(ask, kernel)
            self._counters.add(f"{kernel.origin}_kernels")
        return kernels

    async def _fly(
        self, asks: dict[AskKey, KernelRequest], deadline: Deadline, progress: Progress | None
    ) -> dict[AskKey, Kernel]:
        """Makes the kernels that nobody in this process is making, then waits for those of others.

        What others gave up is not in the result and has to be asked for again.
        """
        entered = {key: self._flights.enter(key) for key in asks}
        mine = {key: ask for key, ask in asks.items() if entered[key][1]}
        others = {key: flight for key, (flight, leads) in entered.items() if not leads}
        if progress is not None:
            for flight in others.values():
                flight.listeners.append(progress)
        report = report_to_all(progress, [entered[key][0].listeners for key in mine])
        kernels = await self._lead(mine, deadline, report) if mine else {}
        for key, flight in others.items():
            kernel = await self._join(flight, deadline)
            if kernel is not None:
                kernels[key] = kernel
        return kernels

    async def _join(self, flight: Flight[Kernel], deadline: Deadline) -> Kernel | None:
        """What another caller makes; ``None`` when it gave up. Raises its error."""
        try:
            return await self._io.wait(flight.future, deadline.left())
        except (Abandoned, TimeoutError):
            deadline.left()
            return None

    async def _lead(
        self, asks: dict[AskKey, KernelRequest], deadline: Deadline, progress: Progress
    ) -> dict[AskKey, Kernel]:
        """Makes kernels and wakes who waits for them, whatever happens."""
        try:
            made = await self._services.serve(
                lambda obtainer: self._made(obtainer, list(asks.values()), deadline, progress),
                programs=len(asks),
            )
        except BaseException as error:
            told = isinstance(error, KcacheError) and not isinstance(error, OutOfTime)
            for key in asks:
                self._flights.land(key, error if told else Abandoned())
            raise
        kernels = dict(zip(asks, made, strict=True))
        for key, kernel in kernels.items():
            self._flights.land(key, kernel)
        return kernels

    async def _made(
        self, obtainer: Obtainer, asks: Sequence[KernelRequest], deadline: Deadline, progress: Progress
    ) -> list[Kernel]:
        place = obtainer.connection.place
        if isinstance(place, RemotePlace):
            place.endpoint.require_safe_code()
        obtained = await obtainer.obtain(asks, deadline, progress)
        state = await obtainer.connection.state(deadline)
        kernels = [self._kernel(place, state.server_id, found) for found in obtained]
        if self._services.has_fallback and not place.embedded:
            for kernel in kernels:
                _require_understood(kernel)
        for ask, kernel in zip(asks, kernels, strict=True):
            if ask.shapes.mode == AUTO:
                await self._see(obtainer.connection, ask, deadline)
                self._pin(kernel, witness_of(kernel.binding, None))
            generation = state.generation_of(kernel.manifest)
            self._table.keep(ask_key(ask), generation, kernel, place.freshness)
            self._used.add(ask, kernel)
            self._counters.add_kernel(kernel.origin, kernel.seconds_saved)
        self._totals.offer(self._counters.snapshot())
        return kernels

    def _kernel(self, place: Place, server_id: str, found: Obtained) -> Kernel:
        stored = found.kernel
        code = stored.manifest.code
        assert code is not None
        constants = [stored.blobs[constant.sha256] for constant in stored.binding.constants]

        def fetch(ref: ArtifactRef) -> bytes:
            self._require_open()
            return self._services.read(place, ref)

        artifacts = {code.kind: stored.blobs[code.sha256]}
        return Kernel(
            stored.manifest,
            stored.binding,
            found.origin,
            artifacts,
            fetch,
            constants,
            service=EMBEDDED if place.embedded else self.service,
            server_id=server_id,
            seconds_saved=found.seconds_saved,
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
        """Those that are about no kernel."""
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
        shapes: ShapeWish = EXACT,
    ) -> tuner.Tuning:
        """See ``Client.autotune``."""
        from kcache_grpc.client.tuning import tuner

        self._require_open()
        machine, plain = (
            parse_target(target),
            replace(_options(options), schedule="", compatible_targets=False),
        )
        source = await self._io.blocking(lambda: read_source(program, format))
        search = tuner.Tuner(self._io, self._services.main, self._alone, self.config.timeout)
        with located([source.origins]):
            found = await search.tune(_ask(source, machine, plain, shapes), plan)
        self._recorded.clear()
        best = replace(plain, schedule=found.schedule)
        [(_, kernel)] = await self._resolve([program], format, target, best, None, shapes)
        return tuner.Tuning(
            found.schedule, found.timings, found.recorded, found.device, kernel, found.rejected, found.trials
        )

    async def _alone(self, ask: KernelRequest) -> Kernel:
        """The kernel of one ask, as the service has it: no arguments bound."""
        key = ask_key(ask)
        kernel = self._kept(key)
        while kernel is None:
            kernel = (await self._fly({key: ask}, self._new_deadline(), None)).get(key)
        return kernel

    async def explain(
        self,
        program: ProgramLike,
        format: str | None,
        target: str,
        options: Options | None,
        shapes: ShapeWish,
        neighbours: int,
    ) -> Explanation:
        """See ``Client.explain``."""
        from kcache_grpc.client.requests.explain import explain

        deadline = self._new_deadline()
        machine, chosen = parse_target(target), self._options(options)
        source = await self._io.blocking(lambda: read_source(program, format))
        ask = await self._recorded.applied(_ask(source, machine, chosen, shapes), deadline)
        with located([source.origins]):
            return await self._services.ask(lambda main: explain(main, ask, neighbours, deadline))

    async def expected_seconds(
        self,
        program: ProgramLike,
        format: str | None,
        target: str,
        options: Options | None,
        shapes: ShapeWish,
    ) -> float | None:
        """See ``Client.expected_seconds``."""
        from kcache_grpc.client.requests.estimates import expected_seconds

        deadline = self._new_deadline()
        machine, chosen = parse_target(target), _options(options)
        source = await self._io.blocking(lambda: read_source(program, format))
        ask = await self._recorded.applied(_ask(source, machine, chosen, shapes), deadline)
        kept = self._table.by_digest(ask_key(ask))
        if kept is not None and self._services.holds(kept.generation):
            return 0.0
        if await self._services.on_disk(ask, deadline):
            return 0.0
        with located([source.origins]):
            return await self._services.ask(lambda main: expected_seconds(main, ask, deadline))

    # Life.

    async def close(self) -> None:
        """Ends connections and forgets kernels; those that callers hold stay usable."""
        self._closed = True
        self._totals.add(self._counters.snapshot())
        self._table.clear()
        self._bundled.close()
        await self._services.close()

    def add_totals(self) -> None:
        """Add the counters to those of the cache directory."""
        self._totals.add(self._counters.snapshot())

    def after_fork(self) -> None:
        """In a child: nothing of the parent's threads, locks and connections is used."""
        self._counters.after_fork()
        self._totals.after_fork(self._counters.snapshot())
        self._table.after_fork()
        self._flights.after_fork()
        self._seen.after_fork()
        self._bundled.after_fork()
        self._recorded = RecordedSchedules(self._services, self.config.memory_kernels)
        self._services.after_fork()

    def _options(self, options: Options | None) -> Options:
        """The options with this client's setting where they leave one open."""
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


def _ask(
    source: Source, target: Target, options: Options, shapes: ShapeWish, retry: bool = False
) -> KernelRequest:
    """What is asked for a program, with its evidence. Raises ``ArgumentError`` where that is for nothing."""
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
