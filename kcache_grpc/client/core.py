"""The client, once: tiers and single flight. The sync and async clients are thin skins over it."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Sequence
from dataclasses import replace

from kcache_grpc.client import audit, graphs, tuning
from kcache_grpc.client.clock import Deadline, OutOfTime
from kcache_grpc.client.config import ClientConfig
from kcache_grpc.client.counters import Counters
from kcache_grpc.client.explain import explain
from kcache_grpc.client.kept import AskKey, KernelTable, ask_key
from kcache_grpc.client.memory import Abandoned, Flight, Flights, Progress
from kcache_grpc.client.obtain import Obtained, Obtainer
from kcache_grpc.client.place import Place, RemotePlace
from kcache_grpc.client.recorded import REFUSALS, RecordedSchedules, plain
from kcache_grpc.client.services import Services
from kcache_grpc.client.source import ProgramLike, read_program, read_source
from kcache_grpc.client.trust import Ask
from kcache_grpc.client.values import CanonicalGraph, KernelSummary, Spec, Stats
from kcache_grpc.client.wire import Io
from kcache_grpc.errors import ArgumentError, KcacheError
from kcache_grpc.model.explanation import Explanation
from kcache_grpc.model.manifest import ArtifactRef
from kcache_grpc.model.options import NUMERICS, Options
from kcache_grpc.model.program import Program
from kcache_grpc.model.schedule import RECORDED
from kcache_grpc.model.shapes import EXACT, ShapeWish
from kcache_grpc.model.target import parse_target
from kcache_grpc.runtime import Kernel
from kcache_grpc.runtime.bound import BoundKernel


class Core:
    """Everything that a client does, over a world to wait in. Thread-safe; survives ``os.fork``."""

    def __init__(self, config: ClientConfig, io: Io) -> None:
        self.config = config
        self._io = io
        self._counters = Counters()
        self._services = Services(config, io, self._counters)
        self._table = KernelTable(config.memory_kernels, config.memory_program_bytes)
        self._flights: Flights[AskKey, Kernel] = Flights()
        self._recorded = RecordedSchedules(self._services, config.memory_kernels)
        self._closed = False
        _LIVE.add(self)

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
        if kept is None or not self._services.holds(kept.generation):
            return None
        self._counters.add("memory_kernels")
        return kept.again()

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
        self._name(program, format, target, options, key, shapes)
        return kernel

    def _name(
        self,
        program: ProgramLike,
        format: str | None,
        target: str,
        options: Options | None,
        key: AskKey,
        shapes: ShapeWish,
    ) -> None:
        """Makes the next ``recall`` of the same arguments a hit, where they mean the same for good."""
        if options is None or options.schedule != RECORDED:
            self._table.name_program(program, format, target, options, key, shapes)

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
        for program, (key, _) in zip(programs, resolved, strict=True):
            self._name(program, format, target, options, key, shapes)
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
        machine, chosen = parse_target(target), _options(options)

        sources = await self._io.blocking(lambda: [read_source(program, format) for program in programs])
        wished = [Ask(source.program, machine, chosen, shapes, retry) for source in sources]
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
        bound = [source.arguments for source in sources]
        return [
            (key, kernels[key] if arguments is None else BoundKernel(kernels[key], arguments))
            for key, arguments in zip(map(ask_key, asks), bound, strict=True)
        ]

    async def _kernels(
        self, asks: Sequence[Ask], deadline: Deadline, progress: Progress | None
    ) -> dict[AskKey, Kernel]:
        """From memory, from who makes them already, else from the service."""
        unique = {ask_key(ask): ask for ask in asks}
        kernels = {key: kernel for key in unique if (kernel := self._kept(key)) is not None}
        while missing := {key: ask for key, ask in unique.items() if key not in kernels}:
            kernels.update(await self._fly(missing, deadline, progress))
        return kernels

    def _kept(self, key: AskKey) -> Kernel | None:
        kept = self._table.by_digest(key)
        if kept is None or not self._services.holds(kept.generation):
            return None
        self._counters.add("memory_kernels")
        return kept.again()

    async def _fly(
        self, asks: dict[AskKey, Ask], deadline: Deadline, progress: Progress | None
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
        report = _fan(progress, [entered[key][0].listeners for key in mine])
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
        self, asks: dict[AskKey, Ask], deadline: Deadline, progress: Progress
    ) -> dict[AskKey, Kernel]:
        """Makes kernels and wakes who waits for them, whatever happens."""
        try:
            made = await self._services.serve(
                lambda obtainer: self._made(obtainer, list(asks.values()), deadline, progress)
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
        self, obtainer: Obtainer, asks: Sequence[Ask], deadline: Deadline, progress: Progress
    ) -> list[Kernel]:
        place = obtainer.connection.place
        if isinstance(place, RemotePlace):
            place.endpoint.require_safe_code()
        obtained = await obtainer.obtain(asks, deadline, progress)
        state = await obtainer.connection.state(deadline)
        kernels = [self._kernel(place, found) for found in obtained]
        for ask, kernel in zip(asks, kernels, strict=True):
            self._table.keep(ask_key(ask), state.generation_of(kernel.manifest), kernel)
            self._counters.add(f"{kernel.origin}_kernels")
        return kernels

    def _kernel(self, place: Place, found: Obtained) -> Kernel:
        stored = found.kernel
        code = stored.manifest.code
        assert code is not None
        constants = [stored.blobs[constant.sha256] for constant in stored.binding.constants]

        def fetch(ref: ArtifactRef) -> bytes:
            self._require_open()
            return self._services.read(place, ref)

        artifacts = {code.kind: stored.blobs[code.sha256]}
        return Kernel(stored.manifest, stored.binding, found.origin, artifacts, fetch, constants)

    # Graphs.

    async def normalize(self, program: ProgramLike, format: str | None, numerics: str) -> CanonicalGraph:
        """See ``Client.normalize``."""
        deadline, graph = await self._graph(program, format, numerics)
        return await self._services.serve(
            lambda obtainer: graphs.normalize(obtainer.connection, graph, numerics, deadline)
        )

    async def store(self, program: ProgramLike, format: str | None, numerics: str) -> int:
        """See ``Client.store``."""
        deadline, graph = await self._graph(program, format, numerics)
        return await graphs.store(self._services.main, graph, numerics, deadline)

    async def lookup(self, program: ProgramLike, format: str | None, numerics: str) -> Spec | None:
        """See ``Client.lookup``."""
        deadline, graph = await self._graph(program, format, numerics)
        return await graphs.lookup(self._services.main, graph, numerics, deadline)

    async def retrieve(self, key: int) -> Spec | None:
        """See ``Client.retrieve``."""
        return await graphs.retrieve(self._services.main, key, self._new_deadline())

    async def kernels(self, key: int) -> tuple[KernelSummary, ...]:
        """See ``Client.kernels``."""
        return await graphs.kernels(self._services.main, key, self._new_deadline())

    async def count(self) -> int:
        """See ``Client.count``."""
        return await graphs.count(self._services.main, self._new_deadline())

    async def stats(self) -> Stats:
        """See ``Client.stats``."""
        return await graphs.stats(self._services.main, self._new_deadline(), self._counters.snapshot())

    async def audit_page(
        self, question: audit.Question, given: int, token: str
    ) -> tuple[Sequence[audit.AuditEvent], str]:
        """Some events of ``Client.audit``, after those ``given``, and the token of the next ones."""
        size = question.page_size(given)
        if size < 1:
            return (), ""
        return await audit.page(self._services.main, question, size, token, self._new_deadline())

    async def audit_heads(self) -> audit.AuditHeads:
        """See ``Client.audit_heads``."""
        return await audit.heads(self._services.main, self._new_deadline())

    async def autotune(
        self,
        program: ProgramLike,
        format: str | None,
        target: str,
        options: Options | None,
        plan: tuning.Plan,
        shapes: ShapeWish = EXACT,
    ) -> tuning.Tuning:
        """See ``Client.autotune``."""
        self._require_open()
        machine, plain = parse_target(target), replace(_options(options), schedule="")
        source = await self._io.blocking(lambda: read_source(program, format))
        tuner = tuning.Tuner(self._io, self._services.main, self._alone, self.config.timeout)
        found = await tuner.tune(Ask(source.program, machine, plain, shapes), plan)
        self._recorded.clear()
        best = replace(plain, schedule=found.schedule)
        [(_, kernel)] = await self._resolve([program], format, target, best, None, shapes)
        return tuning.Tuning(
            found.schedule, found.timings, found.recorded, found.device, kernel, found.rejected, found.trials
        )

    async def _alone(self, ask: Ask) -> Kernel:
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
        deadline = self._new_deadline()
        machine, chosen = parse_target(target), _options(options)
        graph = await self._io.blocking(lambda: read_program(program, format))
        ask = await self._recorded.applied(Ask(graph, machine, chosen, shapes), deadline)
        return await explain(self._services.main, ask, neighbours, deadline)

    async def _graph(
        self, program: ProgramLike, format: str | None, numerics: str
    ) -> tuple[Deadline, Program]:
        deadline = self._new_deadline()
        if numerics not in NUMERICS:
            raise ArgumentError(f"numerics is {numerics!r}; use one of {', '.join(NUMERICS)}")
        return deadline, await self._io.blocking(lambda: read_program(program, format))

    # Life.

    async def close(self) -> None:
        """Ends connections and forgets kernels; those that callers hold stay usable."""
        self._closed = True
        self._table.clear()
        await self._services.close()

    def after_fork(self) -> None:
        """In a child: nothing of the parent's threads, locks and connections is used."""
        self._counters.after_fork()
        self._table.after_fork()
        self._flights.after_fork()
        self._recorded = RecordedSchedules(self._services, self.config.memory_kernels)
        self._services.after_fork()

    def _new_deadline(self) -> Deadline:
        self._require_open()
        return Deadline(self.config.timeout)

    def _require_open(self) -> None:
        if self._closed:
            raise ArgumentError("the client is closed")


def _options(options: Options | None) -> Options:
    if options is None:
        return Options()
    if not isinstance(options, Options):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"options are a kcache.Options, not {options!r}")
    return options


def _fan(progress: Progress | None, listeners: Sequence[Sequence[Progress]]) -> Progress:
    """Tells the one who asked, then those who joined; only the first one's errors count."""

    def report(stage: str, seconds: float) -> None:
        if progress is not None:
            progress(stage, seconds)
        for group in listeners:
            for listener in tuple(group):
                with contextlib.suppress(Exception):
                    listener(stage, seconds)

    return report


#: Clients of this process, for the fork handler, which cannot be taken back.
_LIVE: weakref.WeakSet[Core] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for core in list(_LIVE):
        core.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
