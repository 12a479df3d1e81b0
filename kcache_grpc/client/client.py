"""The synchronous client."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kcache_grpc.client.arguments import Bound, Dynamic, Layouts, Symbols, shape_requirements, with_bound
from kcache_grpc.client.config import Tls, from_environment
from kcache_grpc.client.core import Core
from kcache_grpc.client.transport.blocking import BlockingIo, run
from kcache_grpc.model.options import Options
from kcache_grpc.programs.source import ProgramLike, bound_program, traced_program
from kcache_grpc.runtime import Kernel

if TYPE_CHECKING:
    from kcache_grpc.client.bundles.exchange import When
    from kcache_grpc.client.bundles.reports import ExportReport, ImportReport, PreloadReport, UploadReport
    from kcache_grpc.client.bundles.tier import Trust
    from kcache_grpc.client.requests.assertions import PutAssertionResult, SourceAssertion
    from kcache_grpc.client.requests.audit import AuditEvent, AuditHeads, Question
    from kcache_grpc.client.requests.blob_cache import BlobDraft, BlobOutcome, BlobSink
    from kcache_grpc.client.requests.support import Support
    from kcache_grpc.client.tuning.tuner import Choices, Sizes, TuneProgress, Tuning
    from kcache_grpc.client.values import CanonicalGraph, KernelSummary, Spec, Stats
    from kcache_grpc.model.explanation import Explanation


class Client:
    """Kernels from a kcache service, over tiers in memory and on disk.

    ``address`` is ``"host:port"`` or ``"unix:/path"``; without one ``$KCACHE_ADDR``, else the embedded
    service, a child of this process (needs ``kcache-grpc[server]``). Safe from many threads, usable after
    ``os.fork``, a context manager.

    ``namespace``: key space. ``token``: bearer token. ``tls``: ``True`` for the system's authorities, a
    PEM as bytes or file, or ``False``. ``cache_dir``: directory of the local tiers, only yours (0700).
    ``timeout``: seconds for one call, retries included. ``strict``: raise ``Unavailable`` when the service is
    away, instead of compiling on this machine. ``server_id``: the server's identity, instead of the one that
    is pinned at first contact. ``actor`` and ``job``: who asks and what for, in the service's audit log
    (``$KCACHE_ACTOR``, else the user's name; ``$KCACHE_JOB``). ``compatible_targets``: whether stored kernels
    for lower targets will do where ``Options`` leave it open (``$KCACHE_COMPATIBLE_TARGETS``, else as the
    namespace says).

    A raised epoch or a new toolchain of the service reaches a client with its next question to the service,
    and kernels in memory or on disk at the latest a minute later (one hour in the embedded service).

    Every method raises errors under ``KcacheError``.
    """

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
        self._core = Core(config, BlockingIo())

    @property
    def service(self) -> str:
        """The address of the service that this client was told to use, or "embedded"; see
        ``Kernel.service`` for the one that a kernel came from.
        """
        return self._core.service

    @property
    def cache_dir(self) -> Path:
        """The directory of the local tiers."""
        return self._core.config.cache_dir

    def start_service(self) -> bool:
        """Begins to start the embedded service in a thread, if this client uses it and it does not run.

        Returns whether it does: a request that comes now waits for the service, other work need not. Never
        waits and raises nothing: a service that does not start is told by the next request.
        """
        return self._core.requests.start_service()

    def compile(
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
        """A kernel for ``program``: from memory, disk or the service, which compiles it if nobody did before.

        ``program``: text, bytes, a path, a ``kcache.Graph``, an ``onnx.ModelProto``, a
        ``torch.export.ExportedProgram`` (its weights stay here, bound to the kernel, which takes its inputs),
        a ``jax.export.Exported`` or ``jax.stages.Lowered`` (one device, one platform; the kernel takes the
        module's arguments), or what ``jax.jit`` returns, with example arguments ``args`` and ``kwargs``
        (arrays or ``jax.ShapeDtypeStruct``), for which it is exported at each call.
        A list is one computation, exported at several sizes: the kernel is for the first program, and the
        others are evidence of which sizes may change.
        ``format``: one of docs/guide/formats.md, such as ``"stablehlo"``; ``None``: told by type and content.
        ``target``: ``"host"`` or a name such as ``"x86-64-v3"``.
        ``on_progress(stage, seconds)`` is called when a stage of a compile begins and while it lasts; in the
        thread of the caller who asked first, when several wait for one kernel.

        ``dynamic``: ``False`` for a kernel for exactly the program's sizes (its dynamic axes stay
        dynamic); ``True`` for one for all sizes of the symbols with evidence: sizes that are dynamic in the
        program, or that differ between the programs of a list; ``"auto"`` for the most specific one that the
        service has for the program's sizes, else one that is dynamic in the sizes that differ between the
        programs that the service has seen; ``"assume"`` for all symbols without evidence, with a warning:
        constants that the program computed from its sizes stay those of its own sizes
        (docs/internals/shape-erasure.md).
        ``symbols``: which axes are symbols, as ``(argument, axis)``; a mapping gives each a ``kcache.Dim``,
        whose bounds become the kernel's guard. ``None``: all that may be. Others keep the program's sizes.
        ``layouts``: ``None`` or ``"row-major"``, the only layout of this version.
        ``retry``: compile again although the service remembers that it failed.
        ``bind``: of an ONNX model, inputs by name that become constants with these values: shapes, axes,
        counts. The kernel takes the other inputs.
        ``bound``: inputs, by index or name, whose values ``Kernel.bind`` gives before calls: what is computed
        of them only is computed once (docs/guide/bound-arguments.md). ``"weights"``: all weights that the
        program brings, which are bound at the first call.

        Raises ``ArgumentError``, ``InvalidProgram``, ``UnsupportedOp``, ``CompileFailed``,
        ``CompileTimeout``, ``ResourceExhausted``, ``IntegrityError``, ``PermissionDenied``, ``Unavailable``.
        """
        shapes = shape_requirements(layouts, symbols, dynamic)
        program = bound_program(traced_program(program, args, kwargs), format, bind)
        program, options = with_bound(program, format, options, bound)
        kernel = self._core.recall(program, format, target, options, shapes)
        if kernel is not None:
            return kernel
        return run(self._core.compile(program, format, target, options, on_progress, shapes, retry))

    def compile_many(
        self,
        programs: Sequence[ProgramLike],
        format: str | None = None,
        target: str = "host",
        options: Options | None = None,
        on_progress: Callable[[str, float], None] | None = None,
        symbols: Symbols = None,
        dynamic: Dynamic = False,
    ) -> list[Kernel]:
        """One kernel for each program, in order: one question for all, then compiles side by side, up to
        eight in one stream.
        """
        shapes = shape_requirements(None, symbols, dynamic)
        return run(self._core.compile_many(programs, format, target, options, on_progress, shapes))

    def normalize(
        self, program: ProgramLike, format: str | None = None, *, numerics: str = "default"
    ) -> CanonicalGraph:
        """The canonical form of a program; nothing is stored."""
        return run(self._core.requests.normalize(program, format, numerics))

    def store(self, program: ProgramLike, format: str | None = None, *, numerics: str = "default") -> int:
        """The key of a program's canonical graph, stored unless it is known. Never served by a fallback."""
        return run(self._core.requests.store(program, format, numerics))

    def lookup(
        self, program: ProgramLike, format: str | None = None, *, numerics: str = "default"
    ) -> Spec | None:
        """The stored canonical graph of a program, if there is one; nothing is stored."""
        return run(self._core.requests.lookup(program, format, numerics))

    def retrieve(self, key: int) -> Spec | None:
        """The canonical graph of a key; ``None`` for a key that was never given."""
        return run(self._core.requests.retrieve(key))

    def kernels(self, key: int) -> tuple[KernelSummary, ...]:
        """The stored kernels of a key, youngest first: which sizes and which guard each one has."""
        return run(self._core.requests.kernels(key))

    def count(self) -> int:
        """How many canonical graphs the namespace has."""
        return run(self._core.requests.count())

    def explain(
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
        """Why ``compile`` with these arguments hits or misses at the service; nothing is stored or compiled.

        A miss is compared with the nearest ``neighbors`` stored kernels, at most 20. The tiers of this
        client in memory and on disk are not asked, and no fallback answers.
        """
        shapes = shape_requirements(layouts, symbols, dynamic)
        return run(self._core.explain(program, format, target, options, shapes, neighbors))

    def expected_seconds(
        self,
        program: ProgramLike,
        format: str | None = None,
        target: str = "host",
        layouts: Layouts = None,
        symbols: Symbols = None,
        dynamic: Dynamic = False,
        options: Options | None = None,
    ) -> float | None:
        """Seconds that ``compile`` with these arguments is expected to spend on compiling.

        0.0 for a kernel that is in memory, on disk, or at the service; ``None`` where the namespace has no
        compile time to estimate from. The estimate is that of the service (docs/guide/time-saved.md), which
        stores and compiles nothing for it; no fallback answers.
        """
        shapes = shape_requirements(layouts, symbols, dynamic)
        return run(self._core.expected_seconds(program, format, target, options, shapes))

    def support(
        self,
        program: ProgramLike,
        format: str | None = None,
        target: str = "host",
        *,
        numerics: str = "default",
    ) -> Support:
        """Which operations of ``program`` the service does not compile for ``target``, where, and why.

        Not for the first one only, as the error of ``compile``. Nothing is stored, and no fallback answers.
        """
        return run(self._core.requests.support(program, format, target, numerics))

    def autotune(
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
        """Tries schedule choices on this machine, records their timings at the service, and picks the best.

        Kernels, each choice a variant of its own, are called in turns on ``inputs`` (all arguments of the
        kernel; ``None``: drawn ones), within about ``budget`` seconds. Timings are kept as they are taken,
        also where the search is interrupted. ``dynamic`` and ``symbols`` are those of ``compile``. A kernel
        of dynamic sizes is timed at each of ``sizes``, mappings of symbols or ``(argument, axis)`` to sizes;
        what they leave out, and ``None``, is the program's own. Its schedule is the best over all sizes
        ever timed.
        A variant that gives other results than the default one is out, and named in ``rejected``.
        ``choices``: names of those to try, or a mapping of names to values (docs/guide/tune.md). ``None``
        tries all.
        ``on_progress(what, seconds)`` is called before each compile and race.

        From then on ``Options(schedule="recorded")`` gives everybody on such a machine the winner. Timings
        that are there stay as they are.
        """
        from kcache_grpc.client.tuning.tuner import Plan

        plan = Plan(choices, sizes, inputs, budget, on_progress)
        shapes = shape_requirements(None, symbols, dynamic)
        return run(self._core.autotune(program, format, target, options, plan, shapes))

    def get_blob(self, key: bytes) -> bytes | memoryview | None:
        """Reads the value of one key of the service's ``BlobCache``, or ``None``; as ``get_blobs``.

        A view is part of the received message, and holds it.
        """
        return run(self._core.requests.get_blob(key))

    def get_blobs(self, keys: Sequence[bytes], open_sink: Callable[[int], BlobSink]) -> set[int]:
        """Reads values of the service's ``BlobCache``; ``kcache_grpc.caches.RemoteCache`` is built on it.

        ``keys`` are 32 bytes each, at most 4096. ``open_sink(index)`` is called when the first bytes of the
        value of ``keys[index]`` arrive. Returns the positions of the keys that are stored. Raises
        ``IntegrityError``, ``Unavailable``.
        """
        return run(self._core.requests.get_blobs(keys, open_sink))

    def put_blobs(self, drafts: Sequence[BlobDraft]) -> tuple[BlobOutcome, ...]:
        """Stores values whose keys are not stored; none is overwritten. Returns an outcome for each.

        Raises ``ResourceExhausted``, ``Unavailable``.
        """
        return run(self._core.requests.put_blobs(drafts))

    def get_assertion(self, source_digest: bytes) -> SourceAssertion | None:
        """What the source graph with this digest (32 bytes) lowers to, as a trusted actor asserted it.

        This client's own actor, or else the first one whose role the namespace trusts; ``None`` without one
        (docs/guide/source-assertions.md). The record matches its digest. Whether it is right is not known:
        derive a sample of them again, and call ``dispute_assertion`` where that gives another record.
        """
        return run(self._core.requests.get_assertions((source_digest,))).get(source_digest)

    def get_assertions(self, source_digests: Sequence[bytes]) -> dict[bytes, SourceAssertion]:
        """As ``get_assertion`` for many digests in one call, by digest; those without one are left out."""
        return run(self._core.requests.get_assertions(source_digests))

    def put_assertion(
        self, source_digest: bytes, record: bytes, programs: Sequence[bytes], *, toolchain: str = ""
    ) -> PutAssertionResult:
        """Asserts that a source graph lowers to ``programs`` (digests), as ``record`` says: UTF-8 text.

        The first record of an actor under a digest stays. ``toolchain``: what lowered the graph, as text; it
        is part of the source digest, and stored for people. Raises ``ResourceExhausted`` for a record of more
        than ``limits.max_assertion_bytes``, 1 MiB by default.
        """
        return run(self._core.requests.put_assertion(source_digest, record, programs, toolchain))

    def dispute_assertion(
        self, source_digest: bytes, record_digest: bytes, observed: bytes, reason: str = ""
    ) -> bool:
        """Says that deriving an assertion again gave a record with another SHA-256, ``observed`` (32 bytes).

        The assertion is in quarantine from then on, and returned to nobody; false where it was before. Raises
        ``NotFound`` for one that this client would not be given.
        """
        return run(self._core.requests.dispute_assertion(source_digest, record_digest, observed, reason))

    def preload(
        self, path: str | os.PathLike[str], *, trust: Trust = None, target: str | None = None
    ) -> PreloadReport:
        """Make the kernels of a bundle, or of all ``*.kcb`` files of a directory, available to ``compile``.

        Nothing is written and no service is asked: the bundle stays open, and the bytes of a kernel are read
        and verified when it is compiled. Such kernels have the origin "preloaded", come before those on disk
        and of the service, and replace none in memory. ``$KCACHE_PRELOAD`` does the same for every client,
        and warns where this raises.

        ``trust``: identities of signers, in addition to the pinned ones of this client's services,
        ``$KCACHE_TRUST`` and those that ``import_bundle`` trusted. ``target``: kernels for other targets are
        rejected. The report names each entry that is not used, and why. Raises ``NotFound``,
        ``PermissionDenied`` for a signer that is not trusted, ``IntegrityError``, ``ArgumentError``,
        ``ResourceExhausted``.
        """
        return run(self._core.preload(path, trust, target))

    def import_bundle(
        self, path: str | os.PathLike[str], *, trust: Trust = None, target: str | None = None
    ) -> ImportReport:
        """Copies the kernels of a bundle into the cache directory, for this and later clients.

        All bytes of the bundle are verified before the first one is written. What is there already stays; the
        kernels have the origin "disk" and need no service. The signers of the bundle are trusted in this
        cache directory from then on. Arguments, report and errors as those of ``preload``; also
        ``ArgumentError`` for a ``target`` that the bundle has no kernel for.
        """
        return run(self._core.import_bundle(path, trust, target))

    def export_bundle(
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
        """Writes a bundle of kernels of the service, signed by it, to the file ``path``.

        Without a selection: the kernels that this client has used, with the mappings of their programs.
        ``keys``: all of these specs. ``programs``: digests, with all kernels of their specs. ``job``,
        ``since``, ``until`` (times, as ``datetime`` or ISO text with a zone) and ``filter``
        (docs/operate/audit.md): what those events of the audit log name that pass all of them.
        ``everything``: the whole namespace.
        ``blobs``: the values of its ``BlobCache`` too, or alone.
        Several selections are united. ``targets``: kernels for these only.
        ``on_progress`` is called with the number of bytes received so far.

        The file appears whole, durably, in place of one that was there; after an error nothing has changed.
        Raises ``NotFound`` where nothing is selected, ``ArgumentError``, ``IntegrityError``.
        """
        from kcache_grpc.client.bundles.exchange import BundleChoice

        choice = BundleChoice(
            keys, job, since, until, filter, targets, programs, everything, blobs, on_progress
        )
        return run(self._core.export_bundle(path, choice))

    def upload_bundle(
        self,
        path: str | os.PathLike[str],
        *,
        trust: Trust = None,
        targets: Sequence[str] | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> UploadReport:
        """Imports a bundle into the client's namespace at the service, for all of its clients.

        The service verifies it as a whole before it stores the first entry, signs what it stores with its own
        key, and never overwrites anything. ``trust``: identities of signers, in addition to the service's own
        and those that it is configured to trust. ``targets``: kernels for these only.
        The report says for each entry what became of it. Raises ``PermissionDenied`` for a caller who may not
        administer the service, and for a signer that is not trusted; ``IntegrityError``, ``ArgumentError``,
        ``NotFound``, ``ResourceExhausted``.
        """
        return run(self._core.upload_bundle(path, trust, targets, on_progress))

    def stats(self) -> Stats:
        """Counters of the namespace at the service, and of this client."""
        return run(self._core.stats())

    def audit(
        self, filter: str = "", *, newest_first: bool = False, limit: int | None = None
    ) -> Iterator[AuditEvent]:
        """Events of the service's audit log in the client's namespace, oldest first; read page by page.

        ``filter``: such as ``'job = "train-7" AND kind = serve'``; docs/operate/audit.md has the grammar.
        ``limit``: most events. What comes in while the log is read may or may not be among them.
        """
        from kcache_grpc.client.requests.audit import Question

        question = Question(filter, newest_first, limit)
        return self._audit(question)

    def _audit(self, question: Question) -> Iterator[AuditEvent]:
        received, token = 0, ""
        while True:
            events, token = run(self._core.requests.audit_page(question, received, token))
            received += len(events)
            yield from events
            if not token:
                return

    def audit_heads(self) -> AuditHeads:
        """The heads of the chains that seal the audit log: what ``kcache audit verify`` compares with."""
        return run(self._core.requests.audit_heads())

    def close(self) -> None:
        """Ends connections. Kernels stay usable; other calls raise ``ArgumentError``."""
        run(self._core.close())

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<kcache.Client {self._core.config.address or 'embedded'} {self._core.config.namespace}>"
