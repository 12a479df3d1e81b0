"""Lowers an ATen graph to a plan: islands to kernels, the rest to steps that PyTorch runs."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, TypeVar, cast

from kcache_grpc.errors import (
    ArgumentError,
    CompileFailed,
    CompileTimeout,
    InvalidProgram,
    ResourceExhausted,
    UnsupportedOp,
)
from kcache_grpc.integrations.torch.dynamo.lowering.decisions import Cost, Decision, LeftOut, cost_of
from kcache_grpc.integrations.torch.dynamo.lowering.index_checks import check_indices
from kcache_grpc.integrations.torch.dynamo.lowering.layout import layout_of
from kcache_grpc.integrations.torch.dynamo.lowering.partition import (
    LEAST_OPERATORS,
    Island,
    Node,
    Partition,
    Partitioner,
    is_tensor,
    is_view,
    overload_name,
    packet_name,
)
from kcache_grpc.integrations.torch.dynamo.lowering.plan import (
    KernelStep,
    LayoutLike,
    OperatorStep,
    Plan,
    Program,
    Register,
    is_slice,
)
from kcache_grpc.integrations.torch.dynamo.lowering.rejections import (
    IslandRejected,
    PartitionRejected,
    Rejection,
    for_each,
    rejected_nodes,
)
from kcache_grpc.integrations.torch.dynamo.lowering.rewrites import (
    bound_slices,
    diagonals_as_slices,
    drop_empty_operands,
    sizes_as_tensors,
    sizes_of_inputs,
    views_of_aten,
)
from kcache_grpc.integrations.torch.dynamo.lowering.sizes import (
    Sample,
    choose_samples,
    free_symbols,
    size_formulas,
    size_symbols,
)
from kcache_grpc.integrations.torch.dynamo.lowering.updates import (
    select_single_elements,
    write_elements_in_place,
)
from kcache_grpc.programs.torch.graph_text.program import Island as TextIsland
from kcache_grpc.programs.torch.graph_text.program import (
    device_of,
    line_owners,
    prepare_graph,
    unsupported_reason,
    write_program,
)

torch: Any = import_module("torch")

_T = TypeVar("_T")
#: Why a node that makes a tensor of a symbolic size stays with PyTorch.
_GAPPED = "its result is neither row-major nor a permutation of that"
_SIZE_OPERAND = "it makes a size an operand of a kernel"
#: Rejected partitions after which only rejected uses of operators are left out. A service may name one use at
#: a time: after later ones all uses in an island are left out.
_LOCATED_ATTEMPTS = 4
#: Rejected partitions after which rejected operators are left out; after later ones whole islands are.
_ATTEMPTS = 16
#: Errors after which an island is partitioned again.
_REJECTIONS = (UnsupportedOp, InvalidProgram, CompileFailed, CompileTimeout, ResourceExhausted, ArgumentError)

#: Compiles programs; raises a ``KcacheError``.
Compile = Callable[[Sequence[Program]], Sequence[Callable[[list[Any]], Sequence[Any]]]]
#: What of a program the service rejects.
Rejected = Callable[[Program], Sequence[Rejection]]


@dataclass
class Lowered:
    """A plan and its kernels."""

    plan: Plan
    kernels: Sequence[Callable[[list[Any]], Sequence[Any]]]
    decision: Decision


@dataclass
class _Attempt:
    """A partition, the program of each island, and when each was there, in seconds of ``perf_counter``."""

    partition: Partition
    programs: list[Program]
    partitioned: float
    written: float
    #: The plan for these programs, and the decision without its times, once they are there.
    outcome: tuple[Plan, Decision] | None = None


@dataclass
class Lowering:
    """Lowers one graph. ``kind`` is "inference", "forward" or "backward"."""

    graph_module: Any
    kind: str
    compile: Compile
    rejected: Rejected
    least_operators: int = LEAST_OPERATORS
    #: Placeholders that kernels may have bound.
    bound: frozenset[Node] = frozenset()
    #: Node -> why it stays with PyTorch: what this lowering learned from failed attempts.
    left_out: dict[Node, str] = field(default_factory=dict[Node, str])
    #: Errors because of which operators are left out, and which another time there may not be.
    temporary: list[Exception] = field(default_factory=list[Exception])
    #: Rejected partitions.
    _attempts: int = field(default=0, init=False)
    #: Whether there are programs to compile, and another thread may have them compiled: sizes of a dynamic
    #: graph may get guards, which belong to the trace of this thread.
    is_movable: bool = field(default=False, init=False)
    _first: _Attempt | None = field(default=None, init=False)
    samples: tuple[Sample, Sample] | None = None
    symbols: set[str] = field(default_factory=set[str])

    def lower(self) -> Lowered:
        """The plan with the fewest operators left out for which all kernels compile."""
        return self.start()()

    def start(self) -> Callable[[], Lowered]:
        """Partition the graph, and return what compiles the kernels, and returns what ``lower`` does.

        Another thread may call it if ``is_movable`` is true: it reads the graph, which nothing else may
        change meanwhile.
        """
        begin = time.perf_counter()
        graph = self.graph_module.graph
        self._give_values(graph)
        drop_empty_operands(graph)
        bound_slices(graph)
        views_of_aten(graph)
        diagonals_as_slices(graph)
        sizes_of_inputs(graph)
        write_elements_in_place(graph)
        if self.kind != "backward":  # whose indices the forward has checked
            self.left_out.update(dict.fromkeys(check_indices(graph), "it checks indices"))
        select_single_elements(graph)
        prepare_graph(graph)
        self._choose_samples(graph)
        self._first = self._attempt()
        self.is_movable = bool(self._first.programs) and not self.symbols and self._is_on_cpu(graph)
        return functools.partial(self._finish, self._first, begin)

    def write_plan(self) -> None:
        """Do now what follows the compile of the programs of ``start``, for which another thread waits."""
        if self._first is not None:
            self._first.outcome = self._outcome(self._first.partition, self._first.programs)

    def _is_on_cpu(self, graph: Any) -> bool:
        """Whether all tensors are on the CPU: each thread has its own current GPU."""
        values = (tensor for node in graph.nodes for tensor in _tensors(node.meta.get("val")))
        return all(device_of(value).type == "cpu" for value in values)

    def _attempt(self) -> _Attempt:
        """A partition of the graph, and the programs of its islands."""
        graph = self.graph_module.graph
        while True:  # each attempt leaves out more nodes, so the last one has no island
            partition = Partitioner(graph, self._unsupported, self.least_operators).partition()
            if self._demote_sizeless(partition) or self._demote_gapped(partition):
                continue
            partitioned = time.perf_counter()
            try:
                programs = for_each(self._program, partition.islands)
            except PartitionRejected as rejection:
                self._learn_from(rejection)
                continue
            return _Attempt(partition, programs, partitioned, time.perf_counter())

    def _finish(self, attempt: _Attempt, begin: float) -> Lowered:
        while True:
            try:
                return self._lowered(attempt, begin)
            except PartitionRejected as rejection:
                self._learn_from(rejection)
            attempt = self._attempt()

    def _learn_from(self, rejection: PartitionRejected) -> None:
        self._attempts += 1
        for island in rejection.islands:
            self._learn(island)

    def _give_values(self, graph: Any) -> None:
        """Constants of the graph have no fake value: their own has the same dtype and sizes."""
        for node in graph.nodes:
            if node.op == "get_attr" and "val" not in node.meta:
                value = _attribute(self.graph_module, node.target)
                if isinstance(value, torch.Tensor):
                    node.meta["val"] = value

    def _choose_samples(self, graph: Any) -> None:
        for node in graph.nodes:
            self.symbols |= free_symbols(node.meta.get("val"))
        backed = sorted(name for name in self.symbols if not name.startswith(("u", "zu", "zf")))
        self.samples = choose_samples(graph, backed) if backed else None

    def _unsupported(self, node: Node) -> str | None:
        reason = self.left_out.get(node)
        if reason is None:
            reason = unsupported_reason(node)
        if reason is None and self.symbols:
            reason = self._unsupported_sizes(node)
        return reason

    def _unsupported_sizes(self, node: Node) -> str | None:
        names = free_symbols(node.meta.get("val"))
        for argument in node.all_input_nodes:
            names |= free_symbols(argument.meta.get("val"))
        if not names:
            return None
        if self.samples is None:
            return "no sample of its dynamic sizes satisfies the guards"
        unknown = sorted(names - set(self.samples[0]))
        return f"its size {unknown[0]} depends on data" if unknown else partial_reason(node)

    def _layouts(self, node: Node) -> list[LayoutLike]:
        """Layouts of the results of a node that computes; none for a view or for several results."""
        if packet_name(node) == "" or not is_tensor(node) or is_view(node):
            return []
        value = node.meta["val"]
        return [layout_of(value, self._samples())] if value.layout is torch.strided else []

    def _samples(self) -> Sequence[Sample]:
        return self.samples or ()

    def _demote_sizeless(self, partition: Partition) -> bool:
        """Leave out nodes without tensor operands in islands that have a size which no input shows."""
        demoted = False
        for island in partition.islands:
            inputs = [node.meta["val"] for node in island.inputs]
            shown = {formula for value in inputs for formula in size_formulas(value)}
            hidden = [node for node in island.nodes if not self._is_shown(node, shown)]
            tensors = sizes_as_tensors(self.graph_module.graph, hidden)
            if tensors:
                self.left_out.update(dict.fromkeys(tensors, _SIZE_OPERAND))
                return True
            creating = [node for node in hidden if not any(map(is_tensor, node.all_input_nodes))]
            for node in creating or hidden:
                demoted = demoted or node not in self.left_out
                self.left_out[node] = "a size of it is that of no tensor among the island's inputs"
        return demoted

    def _demote_gapped(self, partition: Partition) -> bool:
        """Leave out outputs of islands whose strides no kernel gives its results.

        Inside of an island no reader sees the strides: ``x[:, 1:] = y`` is traced as a copy to a slice.
        """
        gapped = [
            node
            for island in partition.islands
            for node in island.outputs
            if any(layout == "copy" for layout in self._layouts(node))
        ]
        self.left_out.update(dict.fromkeys(gapped, _GAPPED))
        return bool(gapped)

    def _is_shown(self, node: Node, shown: set[Any]) -> bool:
        """Whether the sizes of a node are those of tensors, or, where it has operands, computed from such."""
        formulas = self._varying(node.meta.get("val"))
        if not any(map(is_tensor, node.all_input_nodes)):
            return shown.issuperset(formulas)
        for argument in node.all_input_nodes:
            if not is_tensor(argument):
                formulas += self._varying(argument.meta.get("val"))
        return all(formula in shown or formula.free_symbols <= shown for formula in formulas)

    def _varying(self, value: Any) -> list[Any]:
        """The formulas of sizes that differ between the samples."""
        return [
            formula
            for formula in size_formulas(value)
            if self._vary({str(symbol) for symbol in formula.free_symbols})
        ]

    def _vary(self, names: set[str]) -> set[str]:
        """The symbols among ``names`` to which guards leave more than one size."""
        if self.samples is None:
            return names
        first, second = self.samples
        return {name for name in names if first.get(name) != second.get(name)}

    def _names(self, node: Node) -> set[str]:
        """Symbols that a program with the node depends on; it has no strides."""
        names = size_symbols(node.meta.get("val"))
        for argument in node.all_input_nodes:
            if not is_tensor(argument):
                names |= free_symbols(argument.meta.get("val"))
        return self._vary(names)

    def _learn(self, rejection: IslandRejected) -> None:
        """Leave out nodes of a rejected island: at least one that was not left out before."""
        if isinstance(rejection.error, (CompileTimeout, ResourceExhausted)):
            self.temporary.append(rejection.error)
        if getattr(rejection.error, "op", "") == "torch.sym_size":
            tensors = sizes_as_tensors(self.graph_module.graph, rejection.island.nodes)
            self.left_out.update(dict.fromkeys(tensors, _SIZE_OPERAND))
            if tensors:
                return
        self.left_out.update(rejection.whole if self._attempts > _ATTEMPTS else rejection.left_out)

    # Plans.

    def _lowered(self, attempt: _Attempt, begin: float) -> Lowered:
        partition = attempt.partition
        compiled = for_each(self._compiled, partition.islands, attempt.programs)
        programs, kernels = [program for program, _ in compiled], [kernel for _, kernel in compiled]
        end = time.perf_counter()
        outcome = attempt.outcome if programs == attempt.programs else None
        plan, decision = outcome or self._outcome(partition, programs)
        decision.seconds = {
            "partition": attempt.partitioned - begin,
            "write": attempt.written - attempt.partitioned,
            "compile": end - attempt.written,
        }
        return Lowered(plan, kernels, decision)

    def _outcome(self, partition: Partition, programs: Sequence[Program]) -> tuple[Plan, Decision]:
        plan, decision = _PlanWriter(self, partition, programs).plan(), self._decision(partition)
        decision.bound = plan.bound
        return plan, decision

    def _program(self, island: Island) -> Program:
        names = size_symbols([node.meta["val"] for node in island.inputs])
        names = names.union(*(self._names(node) for node in island.nodes))
        try:
            text = self._with_text(write_program, island, dynamic=bool(names))
        except (UnsupportedOp, ArgumentError) as error:
            reason = f"{type(error).__name__}: {error}"
            nodes = {node: reason for node in island.nodes if node.name == error.metadata.get("node")}
            raise IslandRejected(island, error, nodes) from error
        device = device_of(island.outputs[0].meta["val"]).type
        bound = [
            position
            for position, node in enumerate(island.inputs)
            if node in self.bound and device == "cpu" and not size_symbols(node.meta["val"])
        ]
        return Program(text, bool(names), device, tuple(bound))

    def _with_text(self, write: Callable[..., _T], island: Island, *, dynamic: bool) -> _T:
        """What ``write_program`` or ``line_owners`` returns of an island."""
        return write(
            TextIsland(island.nodes, island.inputs, island.outputs),
            self._samples() if dynamic else (),
            input_orders=[_order(layout) for layout in self.input_layouts(island)],
            output_orders=[_order(layout) for layout in self.output_layouts(island)],
        )

    def input_layouts(self, island: Island) -> list[LayoutLike]:
        return [layout_of(node.meta["val"], self._samples()) for node in island.inputs]

    def output_layouts(self, island: Island) -> list[LayoutLike]:
        return [layout_of(node.meta["val"], self._samples()) for node in island.outputs]

    def _compiled(
        self, island: Island, program: Program
    ) -> tuple[Program, Callable[[list[Any]], Sequence[Any]]]:
        """The kernel, and its program: without bound inputs if no kernel has them bound."""
        try:
            [kernel] = self.compile([program])
        except _REJECTIONS as error:
            if program.bound and getattr(error, "op", "") == "bound arguments":
                return self._compiled(island, replace(program, bound=()))
            raise IslandRejected(island, error, self._rejected_nodes(error, island, program)) from error
        return program, kernel

    def _rejected_nodes(self, error: Exception, island: Island, program: Program) -> dict[Node, str]:
        if not isinstance(error, UnsupportedOp):
            return {}
        first = Rejection(error.op.removeprefix("torch."), str(error))
        try:
            rejections = self.rejected(program) or [first]
        except Exception:  # noqa: BLE001 - the error names an operator
            rejections = [first]
        owners = self._with_text(line_owners, island, dynamic=program.dynamic)
        every_use = self._attempts >= _LOCATED_ATTEMPTS
        return rejected_nodes(rejections, island, owners, every_use=every_use)

    def _decision(self, partition: Partition) -> Decision:
        inside, outside = Cost(), Cost()
        left: list[LeftOut] = []
        for step in partition.steps:
            if isinstance(step, Island):
                for node in step.nodes:
                    inside += cost_of(node, computed=not is_view(node))
            elif step.op == "call_function" and step in partition.reasons:
                outside += cost_of(step, computed=True)
                left.append(LeftOut(overload_name(step), partition.reasons[step], step.name))
        sizes = [len(island.nodes) for island in partition.islands]
        return Decision(self.kind, sizes, left, inside, outside)


class _PlanWriter:
    """Writes the plan of a partition."""

    def __init__(self, lowering: Lowering, partition: Partition, programs: Sequence[Program]) -> None:
        self._lowering = lowering
        self._partition = partition
        self._programs = programs
        self._registers: dict[Node, int] = {}
        self._next = 0
        self._computed = {node for island in partition.islands for node in island.outputs}

    def plan(self) -> Plan:
        graph = self._lowering.graph_module.graph
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        attributes = [node for node in graph.nodes if node.op == "get_attr"]
        for node in (*placeholders, *attributes):
            self._register(node)
        constants = tuple(_attribute(self._lowering.graph_module, node.target) for node in attributes)
        steps: list[OperatorStep | KernelStep] = []
        kernel = 0
        for step in self._partition.steps:
            if isinstance(step, Island):
                steps.append(self._kernel_step(step, kernel))
                kernel += 1
            elif step.op != "get_attr":
                steps.append(self._operator_step(step))
        output = next(node for node in reversed(graph.nodes) if node.op == "output")
        outputs = tuple(self._argument(value) for value in output.args[0])
        return Plan(len(placeholders), constants, tuple(steps), outputs, tuple(self._programs))

    def _register(self, node: Node) -> int:
        if node not in self._registers:
            self._registers[node] = self._next
            self._next += 1
        return self._registers[node]

    def _argument(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return Register(self._registers[value])
        if isinstance(value, (list, tuple)):
            elements = [self._argument(element) for element in cast("Sequence[Any]", value)]
            return elements if isinstance(value, list) else tuple(elements)
        if is_slice(value):
            return slice(*map(self._argument, (value.start, value.stop, value.step)))
        return value

    def _operator_step(self, node: Node) -> OperatorStep:
        args = tuple(self._argument(value) for value in node.args)
        kwargs = {name: self._argument(value) for name, value in node.kwargs.items()}
        if node.op != "call_function":
            raise ArgumentError(f"the graph has a node of kind {node.op}")
        return OperatorStep(node.target, args, kwargs, self._register(node))

    def _kernel_step(self, island: Island, kernel: int) -> KernelStep:
        outside = dict(self._registers)
        fallback: list[OperatorStep] = []
        scalars: dict[Node, None] = {}
        for node in island.nodes:
            fallback.append(self._operator_step(node))
            for argument in node.all_input_nodes:
                if argument in outside and argument not in island.inputs:
                    scalars[argument] = None
        results = tuple(self._registers[node] for node in island.outputs)
        # Views inside are computed again where others need them.
        inner = {node: self._registers[node] for node in island.nodes}
        self._registers = {**outside, **{node: inner[node] for node in island.outputs}}
        return KernelStep(
            kernel,
            tuple(self._registers[node] for node in island.inputs),
            tuple(self._input_layouts(island)),
            results,
            tuple(self._lowering.output_layouts(island)),
            tuple(fallback),
            tuple(self._registers[node] for node in scalars),
            tuple(self._registers[node] for node in island.inputs if self._may_be_lazy(node)),
        )

    def _may_be_lazy(self, node: Node) -> bool:
        """Whether a value may be a lazy conjugate or negative although its fake tensor is none.

        Dynamo guards arguments of the forward, not gradients that arrive nor results of operators.
        """
        if node in self._computed or (node.op == "placeholder" and self._lowering.kind != "backward"):
            return False
        dtype = node.meta["val"].dtype
        return dtype.is_complex or (dtype.is_floating_point and self._has_complex)

    @functools.cached_property
    def _has_complex(self) -> bool:
        """Whether the graph has complex numbers: only of them are lazy negatives made."""
        return any(
            tensor.dtype.is_complex
            for node in self._lowering.graph_module.graph.nodes
            for tensor in _tensors(node.meta.get("val"))
        )

    def _input_layouts(self, island: Island) -> Iterator[LayoutLike]:
        """Results of operators may be laid out otherwise than their fake tensors were."""
        for node, layout in zip(island.inputs, self._lowering.input_layouts(island), strict=True):
            guarded = node.op == "placeholder" or node in self._computed
            yield layout if guarded or layout is not None else "copy"


def _order(layout: LayoutLike) -> tuple[int, ...] | None:
    return layout.order if layout is not None and not isinstance(layout, str) else None


def partial_reason(node: Node) -> str | None:
    """Why a kernel for many sizes cannot compute a node that takes or makes a part of a dynamic dimension."""
    name = packet_name(node)
    if name == "cat":
        operand, position = node, node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    elif name in ("slice", "select"):
        operand, position = node.args[0], node.args[1] if len(node.args) > 1 else 0
    else:
        return None
    whole, part = operand.meta["val"], node.meta["val"]
    if isinstance(whole.shape[position], int):
        return None
    if name == "slice" and size_formulas(whole.shape[position]) == size_formulas(part.shape[position]):
        return None
    return "it concatenates along a dynamic dimension" if name == "cat" else "a part of a dynamic dimension"


def _tensors(value: Any) -> list[Any]:
    values = cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else [value]
    return [each for each in values if isinstance(each, torch.Tensor)]


def _attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module
