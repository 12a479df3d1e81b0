"""One kernel for all values of a spec's symbolic sizes.

``kcache_compiler.shapes`` says why one kernel is correct for all of them. A program that states its sizes, or
whose sizes shape inference can state, is lowered at samples of them; one whose sizes depend on data is
lowered with unknown dimensions (``?``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

from kcache_compiler.errors import CompileFailed, InvalidProgram, UnsupportedOp
from kcache_compiler.frontends.stablehlo.dynamic_custom_calls import REDUCE_WINDOW
from kcache_compiler.llvm.target import target_named
from kcache_compiler.lower.subkernels.dynamic_subkernels import cut_dynamic_subkernels
from kcache_compiler.lower.subkernels.size_samples import lower_together
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.stage import Unit, run
from kcache_compiler.pipelines import kernel_of, pipeline_for
from kcache_compiler.shapes.formula import Formula, UnresolvedSize, formula_of_size
from kcache_compiler.shapes.monomial import factors
from kcache_compiler.shapes.recovery import Ambiguous, Sampling
from kcache_compiler.spec.dynamic_graph import (
    DynamicGraph,
    SizedGraph,
    computes_sizes,
    with_stated_sizes,
    with_unknown_sizes,
)
from kcache_compiler.spec.graph.nodes import DYNAMIC, Graph
from kcache_compiler.spec.rendering.dynamic import extent_sizes, render_linalg, render_sample
from kcache_compiler.spec.rendering.stablehlo import render_graph
from kcache_compiler.spec.shape_inference import infer_sizes
from kcache_compiler.spec.size_limits import linalg_limits
from kcache_compiler.types import CompiledKernel, CompileOptions, GpuLaunch, LibraryCache, Symbol, TensorType

#: Samples of each attempt: polynomials of several symbols need more to be determined.
_SAMPLES = (3, 5, 5, 5)

_SYMBOL = re.compile(r"\bs(\d+)\b")


class Binding(Protocol):
    """The bound arguments of a graph that is lowered at samples of its symbolic sizes."""

    def split(self, units: Sequence[Unit]) -> None:
        """Make the units, of the graph at all samples, those of its run program."""
        ...

    def prepare(self, kernel: Unit) -> dict[str, float]:
        """Lower the prepare program for the unit of the run program, and return seconds by stage."""
        ...


@dataclass(frozen=True)
class Request:
    """What a graph is compiled for: arguments of ``compile_spec`` that its stages take."""

    n_inputs: int
    target: str
    options: CompileOptions
    on_stage: Callable[[str], None]
    libraries: LibraryCache | None = None
    binding: Binding | None = None


def lower_dynamic(graph: DynamicGraph, request: Request) -> CompiledKernel:
    """Compile a graph with symbolic sizes. Raises what ``compile_spec`` raises."""
    symbols = _symbols(graph)
    try:
        return _rename(_lower_without_inference(graph, request), graph, symbols)
    except UnsupportedOp as error:
        rejection = error
    try:
        return _rename(_lower_inferred(graph, request, rejection), graph, symbols)
    except UnsupportedOp:
        if not any(node.op == "select_and_scatter" for node in graph.graph.body.nodes):
            raise
    return _rename(_lower_inferred(graph, request, rejection, unclamped_windows=True), graph, symbols)


def static_graph(graph: Graph, rejection: UnsupportedOp) -> Graph:
    """Return a graph of static arguments that computes sizes, with these sizes stated.

    Raises ``rejection`` if it computes none, or some depend on data.
    """
    if not computes_sizes(graph.body):
        raise rejection
    try:
        return infer_sizes(DynamicGraph(graph, ())).graph.graph
    except UnresolvedSize:
        raise rejection from None


@dataclass(frozen=True)
class _Lowered:
    """A lowered unit, seconds by stage, and the sample that its module shows."""

    unit: Unit
    seconds: dict[str, float]
    sample: Sequence[int] | None = None


def _lower_without_inference(graph: DynamicGraph, request: Request) -> _Lowered:
    """Lower a program with its sizes as they are; raises ``UnsupportedOp`` if inference may help."""
    if computes_sizes(graph.graph.body):
        if request.binding is not None:
            raise UnsupportedOp("bound arguments", "sizes of the kernel depend on data")
        return _lower_unknown(graph, request)
    try:
        return _lower_at_samples(graph, with_stated_sizes(graph), request)
    except _NoSamples as error:
        message = "its tensors have too many dynamic dimensions, or no sizes satisfy its requirements"
        raise UnsupportedOp("func.func", message) from error
    except InvalidProgram as error:
        # A stated size that other sizes of the symbols contradict.
        raise UnsupportedOp(
            "func.func", f"a static size that contradicts dynamic dimensions: {error}"
        ) from error
    except CompileFailed as error:
        if error.stage != "sizes":
            raise
        raise UnsupportedOp("func.func", f"its dynamic dimensions: {error}") from error


def _lower_inferred(
    graph: DynamicGraph, request: Request, rejection: UnsupportedOp, unclamped_windows: bool = False
) -> _Lowered:
    """Lower a program with inferred sizes; raises ``rejection`` where inference does not help."""
    try:
        return _lower_at_samples(graph, infer_sizes(graph, unclamped_windows), request)
    except (UnresolvedSize, _NoSamples, CompileFailed, InvalidProgram):
        raise rejection from None
    except UnsupportedOp as error:
        raise error from rejection


class _NoSamples(Exception):
    """No sizes satisfy the guards of a program, as far as was tried."""


def _lower_at_samples(graph: DynamicGraph, sized: SizedGraph, request: Request) -> _Lowered:
    """Lower ``sized``, which has the arguments of ``graph``, at samples of its sizes."""
    for attempt, count in enumerate(_SAMPLES):
        samples = sized.sizes.samples(count, attempt)
        if samples is None:
            raise _NoSamples
        units = [sample_unit(sized, sample, request) for sample in samples]
        for unit in units:
            unit.given = _argument_sizes(graph)
        units[0].libraries = request.libraries
        try:
            with ThreadPoolExecutor(1) as units[0].threads, mlir.new_context(), mlir.unknown_location():
                if request.binding is not None:
                    request.binding.split(units)
                seconds = _lower_units(units, sized.sizes.sampling(samples), request)
        except Ambiguous:
            continue
        return _Lowered(units[0], seconds, samples[0][: len(graph.names)])
    raise CompileFailed("sizes", "the sizes in the code have no formula, or several, at all samples")


def _lower_units(units: list[Unit], sampling: Sampling, request: Request) -> dict[str, float]:
    """Lower all samples side by side, and the first one to the end; return seconds by stage."""
    pipeline = pipeline_for(units[0].target)
    seconds = lower_together(
        units, sampling, pipeline, request.on_stage, lambda: cut_dynamic_subkernels(units, sampling, pipeline)
    )
    translated = [stage.name for stage in pipeline].index("downgrade")
    if request.binding is None:
        return seconds | run(pipeline[translated:], units[0], request.on_stage)
    seconds |= run(pipeline[translated:-1], units[0], request.on_stage)
    for name, spent in request.binding.prepare(units[0]).items():
        seconds[name] = seconds.get(name, 0.0) + spent
    return seconds | run(pipeline[-1:], units[0], request.on_stage)


def sample_unit(sized: SizedGraph, sample: Sequence[int], request: Request) -> Unit:
    """Return the unit of a graph at a sample of its sizes."""
    graph = sized.graph
    text = render_sample(graph, dict(enumerate(sample)))
    unit = Unit(text, request.n_inputs, target_named(request.target), request.options)
    unit.given = _argument_sizes(graph)
    unit.extents = tuple(map(sized.sizes.formula, extent_sizes(graph)))
    unit.bounds = sized.sizes.checks
    return unit


def _lower_unknown(graph: DynamicGraph, request: Request) -> _Lowered:
    """Lower a program that computes sizes: symbolic ones are ``?`` in its module."""
    body = graph.graph.body
    if any(f'"{REDUCE_WINDOW}"' in node.attributes for node in body.nodes):
        raise UnsupportedOp("stablehlo.custom_call", f"@{REDUCE_WINDOW} with parameters that depend on data")
    unknown = with_unknown_sizes(graph.graph)
    is_linalg = unknown.family == "linalg"
    zeros = tuple(size for size in extent_sizes(graph) if not size) if is_linalg else ()
    text = render_linalg(unknown, bool(zeros)) if is_linalg else render_graph(unknown)
    unit = Unit(text, request.n_inputs, target_named(request.target), request.options, request.libraries)
    unit.given = _argument_sizes(graph)
    unit.extents = tuple(map(formula_of_size, zeros))
    if is_linalg:
        if any(DYNAMIC in pair for pair in linalg_limits(body)):
            raise UnsupportedOp("tensor.extract_slice", "indices into tensors whose sizes depend on data")
        unit.bounds = with_stated_sizes(graph).sizes.checks
    with ThreadPoolExecutor(1) as unit.threads, mlir.new_context(), mlir.unknown_location():
        seconds = run(pipeline_for(unit.target), unit, request.on_stage)
    return _Lowered(unit, seconds)


def _argument_sizes(graph: DynamicGraph) -> tuple[tuple[Formula, ...], ...]:
    body = graph.graph.body
    kinds = (*body.params, *body.captures)
    return tuple(tuple(map(formula_of_size, kind.dims or ())) for kind in kinds)


def _symbols(graph: DynamicGraph) -> tuple[Symbol, ...]:
    """The argument axis that gives each symbol its size."""
    axes: dict[int, Symbol] = {}
    for arg, kind in enumerate(graph.graph.body.params):
        for axis, size in enumerate(kind.dims or ()):
            coefficient, indices = factors(size)
            if coefficient == 1 and len(indices) == 1:
                axes.setdefault(indices[0], Symbol(graph.names[indices[0]], arg, axis))
    for index, name in enumerate(graph.names):
        if index not in axes:
            raise InvalidProgram(f"no argument has an axis of size {name}: give static sizes")
    return tuple(axes[index] for index in range(len(graph.names)))


def _rename(lowered: _Lowered, graph: DynamicGraph, symbols: tuple[Symbol, ...]) -> CompiledKernel:
    """The kernel, with the spec's names of its symbols, and the sample noted in its module."""

    def text(formula: str) -> str:
        return _SYMBOL.sub(lambda match: graph.names[int(match[1])], formula)

    def types(kinds: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return tuple(
            replace(kind, dims=tuple(dim if isinstance(dim, int) else text(dim) for dim in kind.dims))
            for kind in kinds
        )

    unit = lowered.unit
    compiled = kernel_of(unit, lowered.seconds)
    interface = replace(
        compiled.interface,
        inputs=types(unit.inputs),
        constants=types(unit.constants),
        outputs=types(unit.outputs),
        symbols=symbols,
        workspace=text(compiled.interface.workspace),
        launches=tuple(
            replace(launch, extent=text(launch.extent), grain=text(launch.grain)) for launch in unit.launches
        ),
        gpu_launches=tuple(_rename_launch(launch, text) for launch in unit.gpu_launches),
        checks=tuple(map(text, unit.checks)),
    )
    compiled = replace(compiled, interface=interface)
    if lowered.sample is None:
        return compiled
    sizes = ", ".join(f"{name} = {size}" for name, size in zip(graph.names, lowered.sample, strict=True))
    module = f"// One kernel for all sizes, shown at {sizes}.\n".encode() + compiled.artifacts["mlir"]
    return replace(compiled, artifacts=compiled.artifacts | {"mlir": module})


def _rename_launch(launch: GpuLaunch, text: Callable[[str], str]) -> GpuLaunch:
    x, y, z = launch.grid
    return replace(
        launch,
        when=text(launch.when),
        grid=(text(x), text(y), text(z)),
        shared_bytes=text(launch.shared_bytes),
        params=tuple(map(text, launch.params)),
    )
