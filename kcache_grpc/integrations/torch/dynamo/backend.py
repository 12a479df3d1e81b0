"""``torch.compile(model, backend="kcache")``."""

from __future__ import annotations

import functools
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kcache_grpc.errors import IntegrityError
from kcache_grpc.integrations.torch.dynamo.collector import (
    collector_paused,
    pause_collector_in_compiles,
)
from kcache_grpc.integrations.torch.dynamo.digest.source_digest import NotDigestible, source_digest
from kcache_grpc.integrations.torch.dynamo.kernels import FAILURES, KernelSource
from kcache_grpc.integrations.torch.dynamo.lowering import decisions
from kcache_grpc.integrations.torch.dynamo.lowering.decisions import Decision, LeftOut, log
from kcache_grpc.integrations.torch.dynamo.lowering.plan import KernelStep, executable
from kcache_grpc.integrations.torch.dynamo.record import Record, RecordStore, StoredRecord, decode_record
from kcache_grpc.integrations.torch.dynamo.recurrent_modules import (
    has_packed_sequences,
    trace_recurrent_modules,
)
from kcache_grpc.integrations.torch.dynamo.settings import Settings, settings_from

if TYPE_CHECKING:
    from kcache_grpc.integrations.torch.dynamo.trace import Trace

torch: Any = import_module("torch")

#: Functions and methods of quantized tensors begin so.
_QUANTIZED = ("quantize_per_", "quantize_dynamic", "dequantize", "int_repr")
#: The error of autograd for an operator without a derivative, which eager mode raises in the backward pass.
_NO_DERIVATIVE = re.compile(r"derivative for (?:aten::)?(\w+) is not implemented")


def kcache(
    graph_module: Any,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend: a function that computes what ``graph_module`` does.

    If something fails here, PyTorch runs the graph. The failure is counted (``kcache_grpc.torch.failures()``)
    and reported once for each reason: as a ``KcacheWarning``, or in the log if filters turn warnings into
    errors. With ``options={"strict": True}`` it is raised.

    If a service refuses connections, the backend stops trying after 8 seconds, or at once if the service has
    never answered. The embedded service, if it is installed, compiles instead, and the backend tries the
    service again within 30 seconds. Compiled kernels need no service. PyTorch runs a graph that was left to
    it until Dynamo compiles the graph again.

    The backend returns when the service has begun to compile, and the first call of the function waits for
    the kernels, if sizes are static, tensors are on the CPU, ``fallback`` is "eager", and PyTorch does not
    save the compiled graph (``caching_precompile``). With ``strict``, an error of a compile that has begun is
    raised by that call and by later ones.
    """
    settings = settings_from(mode, options)
    if _is_ahead_of_time():
        from kcache_grpc.integrations.torch.dynamo.artifact import compile_ahead_of_time

        return compile_ahead_of_time(graph_module, example_inputs, settings)
    eager = graph_module.forward

    def left_to_pytorch(error: Exception) -> Callable[..., Any]:
        _count("compile", error, "a graph was left to PyTorch")
        decisions.record(Decision("graph", [], [], origin="eager"))
        return eager

    try:
        with collector_paused():
            return _Compilation(graph_module, example_inputs, settings, left_to_pytorch).function()
    except _restarts():
        raise
    except Exception as error:
        if settings.strict:
            raise
        return _fallback(graph_module, example_inputs, settings, left_to_pytorch(error))


trace_recurrent_modules(kcache)
pause_collector_in_compiles(kcache)


def _is_ahead_of_time() -> bool:
    """Whether ``aot_compile`` called the backend, which must then return a callable that can be saved."""
    config: Any = import_module("torch._functorch.config")
    return bool(config.bundled_autograd_cache and config.force_autograd_cache)


def _caches_precompiled() -> bool:
    """Whether PyTorch saves Dynamo's output, so that later processes need not trace."""
    return bool(getattr(torch._dynamo.config, "caching_precompile", False))


def _count(stage: str, error: Exception, consequence: str) -> None:
    FAILURES.add(f"{stage}: {type(error).__name__}", error, consequence)


def _restarts() -> tuple[type[BaseException], ...]:
    """Exceptions by which PyTorch asks Dynamo to trace again."""
    exceptions: Any = import_module("torch._dynamo.exc")
    return (exceptions.RestartAnalysis,)


def _fallback(
    graph_module: Any, example_inputs: Sequence[Any], settings: Settings, eager: Callable[..., Any]
) -> Callable[..., Any]:
    if settings.fallback == "inductor":
        try:
            inductor: Any = import_module("torch._inductor.compile_fx")
            return inductor.compile_fx(graph_module, example_inputs)
        except _restarts():
            raise
        except Exception as error:  # noqa: BLE001 - such as a machine without a compiler of C++
            _count("fallback", error, "a graph was left to eager mode")
    return eager


def _has_quantized(graph: Any) -> bool:
    """Whether a graph creates or reads quantized tensors, which AOTAutograd traces as plain tensors."""
    for node in graph.nodes:
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        if node.op in ("call_function", "call_method") and name.startswith(_QUANTIZED):
            return True
    return False


def _is_sampled(share: float) -> bool:
    """``True`` for a random ``share``, 0 to 1, of the calls."""
    return random.random() < share  # noqa: S311 - a sample, no secret


class _Compilation:
    """The compilation of one graph of Dynamo."""

    def __init__(
        self,
        graph_module: Any,
        example_inputs: Sequence[Any],
        settings: Settings,
        left_to_pytorch: Callable[[Exception], Callable[..., Any]],
    ) -> None:
        """``left_to_pytorch``: what runs after an error in the first call."""
        self._graph_module = graph_module
        self._inputs = example_inputs
        self._settings = settings
        self._left_to_pytorch = left_to_pytorch
        self._source = KernelSource(settings)

    def function(self) -> Callable[..., Any]:
        """From the record of the source graph, else by tracing it."""
        if _has_quantized(self._graph_module.graph):
            reason = "fake tensors do not distinguish quantized tensors from others"
            self._source.decided(Decision("graph", [], [LeftOut("quantize", reason)], origin="eager"))
            return self._graph_module.forward
        if has_packed_sequences(self._graph_module.graph):
            reason = "the lengths of packed sequences are values of a tensor"
            self._source.decided(Decision("graph", [], [LeftOut("recurrent", reason)], origin="eager"))
            return self._graph_module.forward
        digest = self._digest() if self._settings.warm_start else None
        if digest is None:
            return self._cold()
        store = RecordStore(self._source.client)
        stored = store.find(digest)
        record = None if stored is None else self._decoded(stored)
        derive_again = _is_sampled(self._settings.rederive)
        if stored is not None and record is not None and not derive_again:
            compiled = self._warm(stored, record)
            if compiled is not None:
                self._precompiled(stored.body)
                return compiled
        compared = stored if record is not None and derive_again else None
        return self._cold(lambda body: self._keep(store, digest, body, compared))

    def _cold(self, keep: Callable[[bytes], None] | None = None) -> Callable[..., Any]:
        """By tracing the graph; ``keep`` takes its record."""
        trace = self._trace()
        try:
            compiled = trace.function()
        except RuntimeError as error:
            named = _NO_DERIVATIVE.match(str(error))
            if named is None:
                raise
            reason = "PyTorch has no derivative of it"
            self._source.decided(Decision("graph", [], [LeftOut(f"aten.{named[1]}", reason)], origin="eager"))
            return self._graph_module.forward
        trace.when_compiled(lambda: self._record(trace, keep))
        return compiled

    def _record(self, trace: Trace, keep: Callable[[bytes], None] | None) -> Callable[[], None] | None:
        """Make the record of a trace; returns what stores it, if something takes it. Neither raises."""
        if keep is None and not _caches_precompiled():
            return None
        try:
            body = trace.record()
        except Exception as error:  # noqa: BLE001 - a record only saves time: the graph is compiled
            _count("record", error, "a graph has no record")
            return None
        return None if body is None else functools.partial(self._store, body, keep)

    def _store(self, body: bytes, keep: Callable[[bytes], None] | None) -> None:
        try:
            if keep is not None:
                keep(body)
        except Exception as error:  # noqa: BLE001 - as in ``_record``
            _count("record", error, "a graph has no record")
        else:
            self._precompiled(body)

    def _precompiled(self, body: bytes) -> None:
        """Give a record to PyTorch, if PyTorch saves Dynamo's output for later processes."""
        if not _caches_precompiled():
            return
        try:
            from kcache_grpc.integrations.torch.dynamo.artifact import keep_precompiled

            keep_precompiled(self._graph_module, body, self._settings)
        except Exception as error:  # noqa: BLE001 - as in ``_record``
            _count("precompile", error, "a graph will be traced by later processes")

    def _trace(self) -> Trace:
        # Imports what a warm start does not need.
        from kcache_grpc.integrations.torch.dynamo.trace import Trace

        waits = self._settings.fallback != "eager" or _caches_precompiled()
        on_failure = None if waits else self._left_to_pytorch
        return Trace(self._graph_module, self._inputs, self._settings, on_failure)

    def _keep(self, store: RecordStore, digest: bytes, body: bytes, compared: StoredRecord | None) -> None:
        """Store a record; dispute ``compared`` if it differs. Does nothing if that is of other toolchains."""
        if compared is not None and decode_record(compared.body).toolchains != decode_record(body).toolchains:
            return
        if compared is not None and body != compared.body:
            store.dispute(digest, compared, body)
            error = IntegrityError(f"the {compared.origin} record {digest.hex()} of a source graph is wrong")
            FAILURES.add("record: another one was derived", error, "a graph was traced again")
        if compared is None or body != compared.body:
            store.add(digest, body, decode_record(body).program_digests)

    def _digest(self) -> bytes | None:
        try:
            return source_digest(self._graph_module, self._inputs, self._settings.ingredients)
        except NotDigestible as error:
            log.info("no warm start: %s", error)
            return None

    def _decoded(self, stored: StoredRecord) -> Record | None:
        """The decoded record; None if it is damaged, or its guards on sizes do not hold for the inputs."""
        try:
            record = decode_record(stored.body)
            return record if record.result.matches(self._inputs) else None
        except Exception as error:  # noqa: BLE001 - as in ``_warm``
            _count("record", error, "a record was not used, and its graph was traced")
            return None

    def _warm(self, stored: StoredRecord, record: Record) -> Callable[..., Any] | None:
        begin = time.perf_counter()
        try:
            runners = {
                kind: executable(plan, self._source.compile(plan.programs))
                for kind, plan in record.plans.items()
            }
            forward = runners.get("inference") or runners["forward"]
            compiled = record.result.wrap(forward, runners.get("backward"), self._inputs, self._graph_module)
        except Exception as error:  # noqa: BLE001 - a record only saves time: the graph is traced
            _count("record", error, "a record was not used, and its graph was traced")
            return None
        seconds = {stored.origin: time.perf_counter() - begin}
        for kind, plan in record.plans.items():
            kernels = [len(step.fallback) for step in plan.steps if isinstance(step, KernelStep)]
            decision = Decision(kind, kernels, [], seconds=seconds, origin="warm", bound=plan.bound)
            self._source.decided(decision)
        return compiled
