"""Cold starts: graphs of Dynamo are traced by AOTAutograd, and what it gives is lowered to plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from kcache_grpc.errors import ResourceExhausted
from kcache_grpc.integrations.torch.dynamo.aot.aot_record import constants_of
from kcache_grpc.integrations.torch.dynamo.aot.capture import compile_with_aot
from kcache_grpc.integrations.torch.dynamo.aot.json_codec import NotRecordable
from kcache_grpc.integrations.torch.dynamo.composites import expand_composites
from kcache_grpc.integrations.torch.dynamo.factors import keep_factors
from kcache_grpc.integrations.torch.dynamo.kernels import FAILURES, IslandKernel, KernelSource
from kcache_grpc.integrations.torch.dynamo.lowering.bound_inputs import is_bindable
from kcache_grpc.integrations.torch.dynamo.lowering.decisions import Decision, log
from kcache_grpc.integrations.torch.dynamo.lowering.lower import Lowering
from kcache_grpc.integrations.torch.dynamo.lowering.plan import Plan, Program, executable
from kcache_grpc.integrations.torch.dynamo.record import encode_record
from kcache_grpc.integrations.torch.dynamo.settings import Settings
from kcache_grpc.integrations.torch.dynamo.strides import WHOLE, like_eager
from kcache_grpc.programs.torch import grouped_products
from kcache_grpc.programs.torch.decompositions.table import checked_decompositions

torch: Any = import_module("torch")

#: Composite operators that draw random numbers: PyTorch's own kernels draw those that eager mode draws.
_RANDOM = ("native_dropout", "bernoulli", "rand", "randn", "rand_like", "randn_like", "randint", "dropout")
#: Definitions that leave out what a backward graph reads.
_INFERENCE_ONLY = ("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")


class Trace:
    """The trace of one graph of Dynamo, and the kernels of it."""

    def __init__(self, graph_module: Any, example_inputs: Sequence[Any], settings: Settings) -> None:
        self._graph_module = graph_module
        self._inputs = example_inputs
        self._settings = settings
        self._source = KernelSource(settings)
        self._plans: dict[str, Plan] = {}
        #: Whether a graph was left to PyTorch because of a failure that may not last.
        self._incomplete = False
        self._entry: Any = None
        self._toolchains: set[str] = set()

    def function(self) -> Callable[..., Any]:
        """What computes the graph. Raises whatever AOTAutograd and the service raise."""
        expand_composites(self._graph_module)
        partitioners: Any = import_module("torch._functorch.partitioners")
        compiled, self._entry = compile_with_aot(
            self._graph_module,
            self._inputs,
            fw_compiler=self._compiler("forward"),
            bw_compiler=self._compiler("backward"),
            inference_compiler=self._compiler("inference"),
            partition_fn=partitioners.min_cut_rematerialization_partition,
            decompositions=decompositions(),
            keep_inference_input_mutations=True,
        )
        return compiled

    def record(self) -> bytes | None:
        """What a later process needs to do the same; ``None`` where there is no such record."""
        if self._entry is None or self._incomplete:
            return None
        try:
            return encode_record(self._entry, self._plans, self._toolchains)
        except NotRecordable as error:
            log.info("no record of the source graph: %s", error)
            return None

    def _kernels(self, programs: Sequence[Program]) -> list[IslandKernel]:
        kernels = self._source.compile(programs)
        self._toolchains.update(kernel.toolchain for kernel in kernels)
        return kernels

    def _report(self, errors: Sequence[Exception]) -> None:
        """Count limits that were passed, or raise with ``strict``: operators ran that could be kernels."""
        for error in errors:
            if isinstance(error, ResourceExhausted):
                if self._settings.strict:
                    raise error
                FAILURES.add("compile: ResourceExhausted", error, "operators were left to PyTorch")

    def _compiler(self, kind: str) -> Callable[[Any, Sequence[Any]], Callable[..., Any]]:
        def compile(graph_module: Any, _: Sequence[Any]) -> Callable[..., Any]:
            source, least_operators = self._source, self._settings.least_operators
            bound = self._bound(graph_module.graph, kind)
            lowering = Lowering(graph_module, kind, self._kernels, source.rejected, least_operators, bound)
            try:
                lowered = lowering.lower()
                self._report(lowering.temporary)
                run = executable(lowered.plan, lowered.kernels)
            except Exception as error:
                # AOTAutograd may compile a backward when it runs, where nobody else catches the error.
                if self._settings.strict or kind != "backward":
                    raise
                FAILURES.add(
                    f"compile: {type(error).__name__}", error, "a backward graph was left to PyTorch"
                )
                source.decided(Decision(kind, [], [], origin="eager"))
                self._incomplete = True
                utils: Any = import_module("torch._functorch._aot_autograd.utils")
                return utils.make_boxed_func(graph_module)
            self._plans[kind] = lowered.plan
            self._incomplete = self._incomplete or bool(lowering.temporary)
            source.decided(lowered.decision)
            run._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
            return run

        return compile

    def _bound(self, graph: Any, kind: str) -> frozenset[Any]:
        """The parameters and buffers among the inputs of an inference graph, if they are to be bound.

        Only those that the graph does not write, and whose updates PyTorch counts.
        """
        metadata: Any = getattr(torch._guards.TracingContext.try_get(), "fw_metadata", None)
        if self._settings.bound is None or kind != "inference" or metadata is None:
            return frozenset()
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        values = [*constants_of(self._graph_module), *self._inputs]
        if not len(placeholders) == len(values) == len(metadata.input_info):
            return frozenset()  # AOTAutograd merged inputs that share memory, or added its own
        return frozenset(
            placeholders[index]
            for index in metadata.static_input_indices
            if is_bindable(values[index]) and not metadata.input_info[index].mutates_data
        )


def decompositions() -> dict[Any, Any]:
    """Those of exported programs that keep random numbers and gradients, with the strides of eager mode."""
    left_out = (*_RANDOM, *_INFERENCE_ONLY, *WHOLE)
    table: dict[Any, Any] = {}
    for operator, decomposition in (*checked_decompositions().items(), *grouped_products.rows().items()):
        if operator._schema.name.partition("::")[2] not in left_out:
            table[operator] = like_eager(operator, keep_factors(operator, decomposition))
    return table
