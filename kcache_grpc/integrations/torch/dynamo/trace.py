"""Cold starts: graphs of Dynamo are traced by AOTAutograd, and what it gives is lowered to plans."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, cast

from kcache_grpc.errors import ResourceExhausted
from kcache_grpc.integrations.torch.dynamo.aot.aot_record import constants_of
from kcache_grpc.integrations.torch.dynamo.aot.capture import FirstCall, compile_with_aot
from kcache_grpc.integrations.torch.dynamo.aot.json_codec import NotRecordable
from kcache_grpc.integrations.torch.dynamo.collector import collect_if_due
from kcache_grpc.integrations.torch.dynamo.composites import expand_composites
from kcache_grpc.integrations.torch.dynamo.kernels import FAILURES, IslandKernel, KernelSource
from kcache_grpc.integrations.torch.dynamo.lowering.background import Background
from kcache_grpc.integrations.torch.dynamo.lowering.bound_inputs import is_bindable
from kcache_grpc.integrations.torch.dynamo.lowering.decisions import Decision, log
from kcache_grpc.integrations.torch.dynamo.lowering.lower import Lowered, Lowering
from kcache_grpc.integrations.torch.dynamo.lowering.plan import Plan, executable
from kcache_grpc.integrations.torch.dynamo.record import encode_record
from kcache_grpc.integrations.torch.dynamo.settings import Settings
from kcache_grpc.integrations.torch.dynamo.strides import WHOLE, like_eager
from kcache_grpc.programs.torch import grouped_products
from kcache_grpc.programs.torch.decompositions.table import checked, decompositions_of_autograd

torch: Any = import_module("torch")

#: Composite operators that draw random numbers: PyTorch's own kernels draw those that eager mode draws.
_RANDOM = ("native_dropout", "bernoulli", "rand", "randn", "rand_like", "randn_like", "randint", "dropout")
#: Definitions that leave out what a backward graph reads.
_INFERENCE_ONLY = ("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
_LIVE: weakref.WeakSet[Trace] = weakref.WeakSet()
aten: Any = import_module("torch").ops.aten


class _Graph:
    """A graph of AOTAutograd, and what computes it: from when its kernels are there."""

    def __init__(self, kind: str, module: Any) -> None:
        self.kind = kind
        #: The graph, and what returns its plan and its kernels: until these are there.
        self.module: Any = module
        self.lowering: Lowering | None = None
        self.result: Callable[[], Lowered] | None = None
        self.work: Background[Lowered] | None = None
        self.run: Callable[[list[Any]], Any] | None = None

    def release(self) -> None:
        """Drop all but what computes the graph."""
        self.module = self.lowering = self.result = self.work = None

    def function(self) -> Callable[[list[Any]], Any]:
        """The outputs, for a list of arguments, which it empties: a function as AOTAutograd takes it."""

        def run(args: list[Any]) -> Any:
            return self.run(args)  # pyright: ignore[reportOptionalCall]

        run._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
        return run


class Trace:
    """The trace of one graph of Dynamo, and the kernels of it.

    With ``on_failure`` compiles go on while PyTorch does the rest: ``function`` returns when the service has
    taken the programs, and the first call of what it returns waits for the kernels. If there are none, that
    call and later ones raise with ``strict``, and without it run what ``on_failure`` returns of the error.
    """

    def __init__(
        self,
        graph_module: Any,
        example_inputs: Sequence[Any],
        settings: Settings,
        on_failure: Callable[[Exception], Callable[..., Any]] | None = None,
    ) -> None:
        self._graph_module = graph_module
        self._inputs = example_inputs
        self._settings = settings
        self._source = KernelSource(settings)
        self._plans: dict[str, Plan] = {}
        #: Whether a graph was left to PyTorch because of a failure that may not last.
        self._incomplete = False
        self._entry: Any = None
        self._toolchains: set[str] = set()
        self._on_failure = on_failure
        #: Whether a call of the graph will wait for kernels that are compiled from now on.
        self._may_go_on = on_failure is not None
        #: Graphs whose compiles go on.
        self._pending: list[_Graph] = []
        self._on_compiled: Callable[[], Callable[[], None] | None] | None = None
        self._storing: Background[None] | None = None
        self._replacement: Callable[..., Any] | None = None
        self._lock = threading.Lock()
        _LIVE.add(self)

    def function(self) -> Callable[..., Any]:
        """What computes the graph. Raises whatever AOTAutograd and the service raise."""
        expand_composites(self._graph_module)
        partitioners: Any = import_module("torch._functorch.partitioners")
        try:
            compiled, self._entry = compile_with_aot(
                self._graph_module,
                self._inputs,
                fw_compiler=self._compiler("forward"),
                bw_compiler=self._compiler("backward"),
                inference_compiler=self._compiler("inference"),
                partition_fn=partitioners.min_cut_rematerialization_partition,
                decompositions=decompositions(),
                keep_inference_input_mutations=True,
                first_call=FirstCall(self._wait, self._end_first_call) if self._may_go_on else None,
            )
        finally:
            self._may_go_on = False  # AOTAutograd may compile a backward when it runs
        return compiled

    def when_compiled(self, action: Callable[[], Callable[[], None] | None]) -> None:
        """Call ``action`` when all kernels are there, now or in the first call, and then what it returns.

        That runs in another thread while the graph is called, as it waits for files and the service. Neither
        may raise.
        """
        if self._pending:
            self._on_compiled = action
            return
        store = action()
        self._release()
        if store is not None:
            store()

    def _wait(self) -> Callable[..., Any] | None:
        """Wait for the kernels; returns what runs in place of the graph if there are none."""
        with self._lock:
            if self._pending:
                try:
                    self._finish_pending()
                except Exception as error:
                    if self._settings.strict or self._on_failure is None:
                        raise
                    self._replacement = self._on_failure(error)
                self._release()
            return self._replacement

    def _finish_pending(self) -> None:
        if not all(graph.work is None or graph.work.has_ended for graph in self._pending):
            collect_if_due()
        for graph in tuple(self._pending):
            self._finish(graph)
            self._pending.remove(graph)
        # Before the call, which changes what the record is made of.
        store = None if self._on_compiled is None else self._on_compiled()
        if store is not None:
            self._storing = Background(store, threading.Event())

    def _end_first_call(self) -> None:
        """Wait for what ``when_compiled`` runs during the first call."""
        with self._lock:
            if self._storing is not None:
                self._storing.result()
                self._storing = None

    def _release(self) -> None:
        """Drop what only a compile needs: the first call, and so the graph, refers to this object."""
        self._graph_module = self._entry = self._on_failure = self._on_compiled = None
        self._inputs, self._pending, self._plans = (), [], {}

    def after_fork(self) -> None:
        """In a child: another thread of the parent may have held the lock."""
        self._lock = threading.Lock()

    def record(self) -> bytes | None:
        """What a later process needs to do the same; ``None`` where there is no such record."""
        if self._entry is None or self._incomplete:
            return None
        try:
            return encode_record(self._entry, self._plans, self._toolchains)
        except NotRecordable as error:
            log.info("no record of the source graph: %s", error)
            return None

    def _report(self, errors: Sequence[Exception]) -> None:
        """Count limits that were passed, or raise with ``strict``: operators ran that could be kernels."""
        for error in errors:
            if isinstance(error, ResourceExhausted):
                if self._settings.strict:
                    raise error
                FAILURES.add("compile: ResourceExhausted", error, "operators were left to PyTorch")

    def _compiler(self, kind: str) -> Callable[[Any, Sequence[Any]], Callable[..., Any]]:
        def compile(graph_module: Any, _: Sequence[Any]) -> Callable[..., Any]:
            graph = _Graph(kind, graph_module)
            try:
                goes_on = self._start(graph)
            except Exception as error:  # noqa: BLE001 - raised again unless the graph is a backward
                self._fail(graph, error)
                return graph.function()
            assert graph.lowering is not None
            # After graphs whose compiles go on, so that decisions are in the order of the graphs.
            if goes_on or (self._pending and not graph.lowering.symbols):
                self._pending.append(graph)
            else:
                self._finish(graph)
            return graph.function()

        return compile

    def _start(self, graph: _Graph) -> bool:
        """Lower a graph, and have its kernels compiled in another thread; whether that goes on.

        It does not where a compile in this thread is left to ``result``, and where it has ended, as after an
        error of the connection.
        """
        begun, settings = threading.Event(), self._settings

        def began(stage: str, seconds: float) -> None:
            del stage, seconds
            begun.set()

        source = KernelSource(settings, on_progress=began)
        bound = self._bound(graph.module.graph, graph.kind)
        graph.lowering = Lowering(
            graph.module, graph.kind, source.compile, source.rejected, settings.least_operators, bound
        )
        graph.result = graph.lowering.start()
        if not self._may_go_on or not graph.lowering.is_movable:
            return False
        graph.work = Background(graph.result, begun)
        graph.result = graph.work.result
        if not graph.work.has_begun():
            return False
        graph.lowering.write_plan()
        return True

    def _finish(self, graph: _Graph) -> None:
        """Take the plan and the kernels of a graph. Raises what ``_fail`` does."""
        assert graph.result is not None
        assert graph.lowering is not None
        try:
            lowered = graph.result()
            self._report(graph.lowering.temporary)
            graph.run = executable(lowered.plan, lowered.kernels)
        except Exception as error:  # noqa: BLE001 - as in ``_compiler``
            self._fail(graph, error)
            return
        self._plans[graph.kind] = lowered.plan
        self._toolchains.update(kernel.toolchain for kernel in cast("list[IslandKernel]", lowered.kernels))
        self._incomplete = self._incomplete or bool(graph.lowering.temporary)
        self._source.decided(lowered.decision)
        graph.release()

    def _fail(self, graph: _Graph, error: Exception) -> None:
        """Leave a backward graph to PyTorch. Raises the error of others, and with ``strict``."""
        # AOTAutograd may compile a backward when it runs, where nobody else catches the error.
        if self._settings.strict or graph.kind != "backward":
            raise error
        FAILURES.add(f"compile: {type(error).__name__}", error, "a backward graph was left to PyTorch")
        self._source.decided(Decision(graph.kind, [], [], origin="eager"))
        self._incomplete = True
        utils: Any = import_module("torch._functorch._aot_autograd.utils")
        graph.run = utils.make_boxed_func(graph.module)
        graph.release()

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


def _after_fork() -> None:
    for trace in list(_LIVE):
        trace.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def decompositions() -> dict[Any, Any]:
    """Those of exported programs that keep random numbers and gradients, with the strides of eager mode."""
    left_out = frozenset((*_RANDOM, *_INFERENCE_ONLY, *WHOLE))
    table: dict[Any, Any] = {}
    rows = checked(decompositions_of_autograd()) | grouped_products.rows()
    for operator, decomposition in rows.items():
        if operator._schema.name.partition("::")[2] not in left_out:
            table[operator] = like_eager(operator, keep_factors(operator, decomposition))
    return table


def keep_factors(operator: Any, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition that factors what ``operator`` factors.

    PyTorch factors the transpose of a real, row-major matrix, and its gradient relies on that.
    """
    if operator not in (aten._linalg_det.default, aten._linalg_slogdet.default):
        return decomposition

    def of_the_transpose(matrix: Any) -> Any:
        transposed = matrix.is_contiguous() and not matrix.is_complex()
        return decomposition(matrix.mT if transposed else matrix)

    return of_the_transpose
