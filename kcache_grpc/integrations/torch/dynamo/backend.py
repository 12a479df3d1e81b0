"""``torch.compile(model, backend="kcache")``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from kcache_grpc.errors import KcacheError
from kcache_grpc.integrations.torch.dynamo import decisions
from kcache_grpc.integrations.torch.dynamo.capture import compile_with_aot
from kcache_grpc.integrations.torch.dynamo.composites import expand_composites
from kcache_grpc.integrations.torch.dynamo.decisions import Decision, log
from kcache_grpc.integrations.torch.dynamo.factors import keep_factors
from kcache_grpc.integrations.torch.dynamo.json_codec import InvalidRecord, NotRecordable
from kcache_grpc.integrations.torch.dynamo.kernels import FAILURES, KernelSource
from kcache_grpc.integrations.torch.dynamo.lower import Lowering
from kcache_grpc.integrations.torch.dynamo.plan import KernelStep, Plan, executable
from kcache_grpc.integrations.torch.dynamo.record import decode_record, encode_record
from kcache_grpc.integrations.torch.dynamo.record_store import Found, RecordStore
from kcache_grpc.integrations.torch.dynamo.settings import Settings, settings_from
from kcache_grpc.integrations.torch.dynamo.source_digest import NotDigestible, source_digest
from kcache_grpc.integrations.torch.dynamo.strides import keep_strides, whole_where_it_fails
from kcache_grpc.programs.torch.decompositions.table import decompositions

torch: Any = import_module("torch")

#: Composite operators that random numbers are drawn in: PyTorch's own kernels draw those that eager mode draws.
_RANDOM = ("native_dropout", "bernoulli", "rand", "randn", "rand_like", "randn_like", "randint", "dropout")
#: Definitions that leave out what a backward graph reads.
_INFERENCE_ONLY = ("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")

#: Definitions whose results do not have the memory format of their operands.
_OTHER_FORMATS = ("max_unpool2d", "max_unpool3d")


def kcache(
    graph_module: Any,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend: a function that computes what ``graph_module`` does.

    Whatever fails here leaves the graph to PyTorch, with a warning once for each reason; with
    ``options={"strict": True}`` it raises.
    """
    settings = settings_from(mode, options)
    eager = graph_module.forward
    try:
        return _Compilation(graph_module, example_inputs, settings).function()
    except _restarts():
        raise
    except Exception as error:
        if settings.strict:
            raise
        FAILURES.add(f"compile: {type(error).__name__}", error, "a graph was left to PyTorch")
        decisions.record(Decision("graph", [], [], origin="eager"))
        return _fallback(graph_module, example_inputs, settings, eager)


def _restarts() -> tuple[type[BaseException], ...]:
    """Exceptions by which PyTorch asks Dynamo to trace again."""
    exceptions: Any = import_module("torch._dynamo.exc")
    return (exceptions.RestartAnalysis,)


def _fallback(
    graph_module: Any, example_inputs: Sequence[Any], settings: Settings, eager: Callable[..., Any]
) -> Callable[..., Any]:
    if settings.fallback == "inductor":
        inductor: Any = import_module("torch._inductor.compile_fx")
        return inductor.compile_fx(graph_module, example_inputs)
    return eager


class _Compilation:
    """The compilation of one graph of Dynamo."""

    def __init__(self, graph_module: Any, example_inputs: Sequence[Any], settings: Settings) -> None:
        self._graph_module = graph_module
        self._inputs = example_inputs
        self._settings = settings
        self._source = KernelSource(settings)
        self._plans: dict[str, Plan] = {}

    def function(self) -> Callable[..., Any]:
        """From the record of the source graph, else by tracing it."""
        digest = self._digest() if self._settings.warm_start else None
        if digest is None:
            return self._traced()[0]
        store = RecordStore(self._source.client)
        found = store.find(digest)
        compiled = None if found is None else self._warm(found)
        if compiled is not None:
            return compiled
        compiled, entry = self._traced()
        if entry is not None:
            self._record(store, digest, entry)
        return compiled

    def _digest(self) -> bytes | None:
        try:
            return source_digest(self._graph_module, self._inputs, self._settings.ingredients)
        except NotDigestible as error:
            log.info("no warm start: %s", error)
            return None

    def _warm(self, found: Found) -> Callable[..., Any] | None:
        begin = time.perf_counter()
        try:
            record = decode_record(found.body)
            if not record.result.matches(self._inputs):
                return None
            runners = {
                kind: executable(plan, self._source.compile(plan.programs))
                for kind, plan in record.plans.items()
            }
            forward = runners.get("inference") or runners["forward"]
            compiled = record.result.wrap(forward, runners.get("backward"), self._inputs, self._graph_module)
        except (InvalidRecord, KcacheError) as error:
            log.info("a record of the source graph is not used: %s", error)
            return None
        seconds = {found.origin: time.perf_counter() - begin}
        for kind, plan in record.plans.items():
            kernels = [len(step.fallback) for step in plan.steps if isinstance(step, KernelStep)]
            decisions.record(Decision(kind, kernels, [], seconds=seconds, origin="warm"))
        return compiled

    def _record(self, store: RecordStore, digest: bytes, entry: Any) -> None:
        try:
            body = encode_record(entry, self._plans)
            store.add(digest, body, decode_record(body).program_digests)
        except (NotRecordable, InvalidRecord) as error:
            log.info("no record of the source graph: %s", error)

    def _traced(self) -> tuple[Callable[..., Any], Any]:
        expand_composites(self._graph_module)
        partitioners: Any = import_module("torch._functorch.partitioners")
        return compile_with_aot(
            self._graph_module,
            self._inputs,
            fw_compiler=self._compiler("forward"),
            bw_compiler=self._compiler("backward"),
            inference_compiler=self._compiler("inference"),
            partition_fn=partitioners.min_cut_rematerialization_partition,
            decompositions=_decompositions(),
            keep_inference_input_mutations=True,
        )

    def _compiler(self, kind: str) -> Callable[[Any, Sequence[Any]], Callable[..., Any]]:
        def compile(graph_module: Any, _: Sequence[Any]) -> Callable[..., Any]:
            source, least_operators = self._source, self._settings.least_operators
            lowering = Lowering(graph_module, kind, source.compile, source.rejected, least_operators)
            lowered = lowering.lower()
            self._plans[kind] = lowered.plan
            decisions.record(lowered.decision)
            run = executable(lowered.plan, lowered.kernels)
            run._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
            return run

        return compile


def _decompositions() -> dict[Any, Any]:
    """Those of exported programs that keep random numbers and gradients, with the strides of eager mode."""
    left_out = (*_RANDOM, *_INFERENCE_ONLY, *_OTHER_FORMATS)
    return {
        operator: whole_where_it_fails(keep_strides(operator, keep_factors(operator, decomposition)))
        for operator, decomposition in decompositions().items()
        if operator._schema.name.partition("::")[2] not in left_out
    }
