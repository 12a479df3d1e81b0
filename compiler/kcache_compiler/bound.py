"""Kernels with bound arguments: a prepare program and a run program, linked as one shared object.

The run program is lowered first, since it decides which prepared values it reads as packed panels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from kcache_compiler.dynamic import Request, lower_dynamic
from kcache_compiler.errors import CompileFailed, InvalidProgram, UnsupportedOp
from kcache_compiler.llvm.target import Device, target_named
from kcache_compiler.lower.bound.split import Prepared, Split, split
from kcache_compiler.lower.cpu.linking import cpu_kernel
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound.rewrite import rewrite_bound
from kcache_compiler.passes.stage import Unit, run
from kcache_compiler.pipelines import cpu
from kcache_compiler.schedule.prepared import ALIGNMENT, Pack, PreparedBuffer, PrepareTargets
from kcache_compiler.shapes.formula import text
from kcache_compiler.shapes.monomial import is_symbolic
from kcache_compiler.spec.dynamic_graph import DynamicGraph
from kcache_compiler.types import BoundInterface, CompiledKernel, CompileOptions, LibraryCache, TensorType


def lower_bound(
    source: str,
    n_inputs: int,
    target: str,
    options: CompileOptions,
    on_stage: Callable[[str], None],
    libraries: LibraryCache | None = None,
) -> CompiledKernel:
    """Return the kernel of a module of static sizes whose inputs ``options.bound``, and all lifted constants,
    are bound.

    Raises ``InvalidProgram`` if it has no such inputs, ``UnsupportedOp`` for GPU targets.
    """
    _require_bindable(target, options, n_inputs)
    machine = target_named(target)
    pipeline = cpu()
    compiled = pipeline[:-1]
    with ThreadPoolExecutor(1) as threads, mlir.new_context(), mlir.unknown_location():
        arguments = (*options.bound, *range(n_inputs, _arguments(source)))
        parts = split(rewrite_bound(source, arguments, options), arguments)
        unbound = n_inputs - len(options.bound)
        kernel = Unit(parts.run_text(), unbound, machine, options, libraries, threads)
        kernel.prepared = PreparedBuffer()
        seconds = run(compiled, kernel, on_stage)
        computed, targets = _targets(parts, kernel)
        preparing = Unit(parts.prepare_text(computed), len(parts.bound), machine, options, libraries, threads)
        preparing.targets = targets
        spent = run(compiled, preparing, on_stage)
        kernel.linked.append(preparing)
        linked = run(pipeline[-1:], kernel, on_stage)
    total = {name: seconds.get(name, 0) + spent.get(name, 0) for name in (*seconds, *spent)} | linked
    described = _described(cpu_kernel(kernel, total), n_inputs, parts, preparing, kernel)
    return replace(described, artifacts=described.artifacts | {"mlir": source.encode()})


def lower_bound_dynamic(graph: DynamicGraph, request: Request) -> CompiledKernel:
    """Return the kernel of a graph with symbolic sizes whose inputs ``request.options.bound``, and all lifted
    constants, are bound.

    Raises ``InvalidProgram`` if it has no such inputs, ``UnsupportedOp`` for GPU targets, for bound arguments
    with dynamic dimensions, and where sizes depend on data.
    """
    _require_bindable(request.target, request.options, request.n_inputs)
    try:
        return _lower_binding(graph, request, request.options.numerics != "strict")
    except (CompileFailed, UnsupportedOp):
        if request.options.numerics == "strict":
            raise
    return _lower_binding(graph, request, rewrites=False)


def _lower_binding(graph: DynamicGraph, request: Request, rewrites: bool) -> CompiledKernel:
    """The kernel of a graph with symbolic sizes; ``rewrites``: after those for its bound arguments."""
    binding = _Binding(graph, request, rewrites)
    compiled = lower_dynamic(graph, replace(request, binding=binding))
    return _described(compiled, request.n_inputs, binding.parts, binding.preparing, binding.kernel)


class _Binding:
    """Lowers a graph with bound arguments at samples of its symbolic sizes; see ``dynamic.Binding``."""

    parts: Split
    kernel: Unit
    preparing: Unit

    def __init__(self, graph: DynamicGraph, request: Request, rewrites: bool) -> None:
        """Raises ``UnsupportedOp`` for programs that are not of StableHLO, and for bound arguments with
        dynamic dimensions.
        """
        body = graph.graph.body
        kinds = (*body.params, *body.captures)
        if graph.graph.family != "stablehlo":
            reason = "the kernel has dynamic sizes, and is no program of StableHLO"
            raise UnsupportedOp("bound arguments", reason)
        self._bound = (*request.options.bound, *range(len(body.params), len(kinds)))
        for argument in self._bound:
            if any(map(is_symbolic, kinds[argument].dims or ())):
                raise UnsupportedOp("bound arguments", f"argument {argument} has dynamic sizes, and is bound")
        self._request = request
        self._rewrites = rewrites

    def split(self, units: Sequence[Unit]) -> None:
        first, *others = [self._rewritten(unit.source) for unit in units]
        self.parts = split(first, self._bound, others, len(units[0].extents))
        for unit, source in zip(units, (first, *others), strict=True):
            unit.source = replace(self.parts, source=source).run_text()
            unit.n_inputs -= len(self._request.options.bound)
            shapes = [sizes for number, sizes in enumerate(unit.given) if number not in self._bound]
            unit.given = (*shapes, *self.parts.shapes)
            unit.prepared = PreparedBuffer()

    def _rewritten(self, source: str) -> str:
        return rewrite_bound(source, self._bound, self._request.options) if self._rewrites else source

    def prepare(self, kernel: Unit) -> dict[str, float]:
        computed, targets = _targets(self.parts, kernel)
        text = self.parts.prepare_text(computed)
        self.kernel = kernel
        self.preparing = Unit(
            text, len(self.parts.bound), kernel.target, kernel.options, kernel.libraries, kernel.threads
        )
        self.preparing.targets = targets
        seconds = run(cpu()[:-1], self.preparing, self._request.on_stage)
        kernel.linked.append(self.preparing)
        return seconds


def _require_bindable(target: str, options: CompileOptions, n_inputs: int) -> None:
    if isinstance(target_named(target), Device):
        raise UnsupportedOp("bound arguments", "kernels for GPUs have none")
    if options.bound[-1] >= n_inputs:
        raise InvalidProgram(f"bound argument {options.bound[-1]} of a program with {n_inputs} inputs")


def _arguments(source: str) -> int:
    module = mlir.parse(source)
    return len(mlir.block_of(mlir.main_function(module)).arguments)


def _targets(parts: Split, kernel: Unit) -> tuple[list[Prepared], PrepareTargets]:
    """The values that the prepare program returns, and where they and packed arguments go."""
    assert kernel.prepared is not None
    offsets, _ = kernel.prepared.layout(kernel.constants)
    computed: list[Prepared] = []
    places: list[int | None] = []
    packs: list[Pack] = []
    for number, (value, offset) in enumerate(zip(parts.values, offsets, strict=True)):
        packed = kernel.prepared.packed.get(number)
        if packed is not None and value.argument is not None:
            packs.append(Pack(True, parts.bound.index(value.argument), packed, offset))
            continue
        if packed is not None:
            packs.append(Pack(False, len(computed), packed, offset))
        places.append(offset if packed is None else None)
        computed.append(value)
    return computed, PrepareTargets(tuple(places), tuple(packs))


def _described(
    kernel: CompiledKernel, n_inputs: int, parts: Split, preparing: Unit, unit: Unit
) -> CompiledKernel:
    """``kernel`` with all arguments of the program in its interface."""
    assert unit.prepared is not None
    bound = dict(zip(parts.bound, preparing.inputs, strict=True))
    others = iter(kernel.interface.inputs)
    arguments = [bound[index] if index in bound else next(others) for index in range(_count(n_inputs, bound))]
    size = unit.prepared.layout(unit.constants)[1]
    described = BoundInterface(parts.bound, size, ALIGNMENT, text(preparing.workspace))
    interface = replace(
        kernel.interface,
        inputs=tuple(arguments[:n_inputs]),
        constants=tuple(arguments[n_inputs:]),
        abi=2,
        bound=described,
    )
    return replace(kernel, interface=interface)


def _count(n_inputs: int, bound: dict[int, TensorType]) -> int:
    return max(n_inputs, max(bound) + 1)
