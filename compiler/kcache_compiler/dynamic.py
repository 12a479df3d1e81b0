"""One kernel for all sizes of the open symbols of a spec: the pipeline at samples of them.

See ``kcache_compiler.shapes.samples`` for why that is the same for all sizes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from kcache_compiler.errors import CompileFailed, InvalidProgram, UnsupportedOp
from kcache_compiler.frontends.stablehlo.dynamic_custom_calls import WINDOW
from kcache_compiler.llvm.target import target_named
from kcache_compiler.lower.subkernels.dynamic import cut_open_parts
from kcache_compiler.lower.subkernels.sampled_lowering import Sampling, lower_together
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.stage import Unit, run
from kcache_compiler.pipelines import kernel_of, pipeline_for
from kcache_compiler.schedule.loop_nest import Check
from kcache_compiler.shapes.formula import Formula
from kcache_compiler.shapes.monomial import factors
from kcache_compiler.shapes.polynomial import formula_of
from kcache_compiler.shapes.samples import Ambiguous
from kcache_compiler.spec.dynamic_samples import OpenGraph, assignments, computes_sizes, forget
from kcache_compiler.spec.graph.nodes import DYNAMIC, Graph
from kcache_compiler.spec.linalg_guards import linalg_limits
from kcache_compiler.spec.rendering.dynamic import extent_sizes, render_places, render_sample
from kcache_compiler.spec.rendering.render import render_graph
from kcache_compiler.spec.size_inference import Unresolved, resolve
from kcache_compiler.spec.size_inference.samples import roots, samples
from kcache_compiler.spec.size_inference.samples import stated as stated_sizes
from kcache_compiler.types import CompiledKernel, CompileOptions, GpuLaunch, LibraryCache, Symbol, TensorType

#: How many samples each attempt takes: sums of several sizes need more to be told apart.
ATTEMPTS = (3, 5, 5, 5)

_SYMBOL = re.compile(r"\bs(\d+)\b")


def lower_open(
    graph: OpenGraph,
    n_inputs: int,
    target: str,
    options: CompileOptions,
    on_stage: Callable[[str], None],
    libraries: LibraryCache | None = None,
) -> CompiledKernel:
    """Compile a graph some of whose sizes are open. Raises what ``compile_spec`` raises."""
    symbols = _symbols(graph)
    if computes_sizes(graph.graph.body):
        try:
            return _lower_unknown(graph, symbols, n_inputs, target, options, on_stage, libraries)
        except UnsupportedOp as error:
            return _lower_computed(graph, symbols, n_inputs, target, options, on_stage, libraries, error)
    try:
        return _lower_stated(graph, symbols, n_inputs, target, options, on_stage, libraries)
    except InvalidProgram as error:
        # Sizes that the program fixes and leaves open: at other sizes it means nothing.
        refusal = UnsupportedOp("func.func", f"sizes that it fixes and leaves open: {error}")
    except UnsupportedOp as error:
        refusal = error
    except CompileFailed as error:
        if error.stage != "sizes":
            raise
        refusal = UnsupportedOp("func.func", f"its open sizes: {error}")
    return _lower_computed(graph, symbols, n_inputs, target, options, on_stage, libraries, refusal)


def stated(graph: Graph, refusal: UnsupportedOp) -> Graph:
    """A graph of given sizes that computes others, with these stated.

    Raises ``refusal`` where there are none, or some depend on data.
    """
    if not computes_sizes(graph.body):
        raise refusal
    try:
        return resolve(OpenGraph(graph, ())).graph
    except Unresolved:
        raise refusal from None


def _lower_stated(
    graph: OpenGraph,
    symbols: tuple[Symbol, ...],
    n_inputs: int,
    target: str,
    options: CompileOptions,
    on_stage: Callable[[str], None],
    libraries: LibraryCache | None,
) -> CompiledKernel:
    """Compile a program that states all sizes, at samples of them."""
    for attempt, count in enumerate(ATTEMPTS):
        chosen = assignments(graph, count, attempt)
        if chosen is None:
            raise UnsupportedOp("func.func", "its tensors have too many open sizes, or no sizes fit")
        units = [sample_unit(graph, sample, n_inputs, target, options) for sample in chosen]
        try:
            with mlir.new_context(), mlir.unknown_location():
                units[0].libraries = libraries
                unit, seconds = _run(units, Sampling(chosen), on_stage)
        except Ambiguous:
            continue
        return _with_sample(_named(unit, seconds, graph, symbols), graph, chosen[0])
    raise CompileFailed("sizes", "code for some sizes tells nothing of code for others")


def _lower_computed(
    graph: OpenGraph,
    symbols: tuple[Symbol, ...],
    n_inputs: int,
    target: str,
    options: CompileOptions,
    on_stage: Callable[[str], None],
    libraries: LibraryCache | None,
    refusal: UnsupportedOp,
) -> CompiledKernel:
    """Compile a program that computes sizes, or has sizes that are computed of others."""
    args = (graph, symbols, n_inputs, target, options, on_stage, libraries, refusal)
    try:
        return _lower_resolved(*args)
    except UnsupportedOp:
        if not any(node.op == "select_and_scatter" for node in graph.graph.body.nodes):
            raise
    return _lower_resolved(*args, plainly=True)


def _lower_resolved(
    graph: OpenGraph,
    symbols: tuple[Symbol, ...],
    n_inputs: int,
    target: str,
    options: CompileOptions,
    on_stage: Callable[[str], None],
    libraries: LibraryCache | None,
    refusal: UnsupportedOp,
    plainly: bool = False,
) -> CompiledKernel:
    """Compile a program that computes sizes at samples of them, where all can be stated; else the refusal."""
    try:
        resolved = resolve(graph, plainly)
    except Unresolved:
        raise refusal from None
    stated, table = OpenGraph(resolved.graph, graph.names), resolved.symbols

    def formula(size: int) -> Formula:
        return table.expanded(table.formula(size))

    shown = roots(resolved)
    meaning = {f"s{place}": table.expanded(f"s{index}") for place, index in enumerate(shown)}
    for attempt, count in enumerate(ATTEMPTS):
        chosen = samples(resolved, count, attempt)
        if chosen is None:
            raise refusal
        units = [sample_unit(stated, sample, n_inputs, target, options, formula) for sample in chosen]
        for unit in units:
            limits = unit.bounds if graph.graph.family == "linalg" else ()
            unit.bounds = (*resolved.checks, *resolved.pinned, *limits)
            unit.given = _given(graph)
        columns = [[sample[index] for index in shown] for sample in chosen]
        sampling = Sampling(columns, meaning, stated_sizes(resolved, shown, chosen))
        try:
            with mlir.new_context(), mlir.unknown_location():
                units[0].libraries = libraries
                unit, seconds = _run(units, sampling, on_stage)
        except Ambiguous:
            continue
        except (CompileFailed, InvalidProgram):
            break
        except UnsupportedOp as error:
            raise error from refusal
        return _with_sample(_named(unit, seconds, graph, symbols), graph, chosen[0][: len(graph.names)])
    raise refusal


def _with_sample(compiled: CompiledKernel, graph: OpenGraph, sample: Sequence[int]) -> CompiledKernel:
    """The kernel with a word on the sizes that its module shows."""
    shown = ", ".join(f"{name} = {size}" for name, size in zip(graph.names, sample, strict=True))
    module = f"// One kernel for all sizes, shown at {shown}.\n".encode() + compiled.artifacts["mlir"]
    return replace(compiled, artifacts=compiled.artifacts | {"mlir": module})


def _symbols(graph: OpenGraph) -> tuple[Symbol, ...]:
    """Where the caller reads each open size."""
    found: dict[int, Symbol] = {}
    for arg, kind in enumerate(graph.graph.body.params):
        for axis, size in enumerate(kind.dims or ()):
            coefficient, indices = factors(size)
            if coefficient == 1 and len(indices) == 1:
                found.setdefault(indices[0], Symbol(graph.names[indices[0]], arg, axis))
    for position, name in enumerate(graph.names):
        if position not in found:
            raise InvalidProgram(f"no argument has an axis of size {name}: give all sizes")
    return tuple(found[position] for position in range(len(graph.names)))


def sample_unit(
    graph: OpenGraph,
    sample: Sequence[int],
    n_inputs: int,
    target: str,
    options: CompileOptions,
    formula: Callable[[int], Formula] | None = None,
) -> Unit:
    """The unit at a sample; ``formula`` says what a size is of those of the arguments."""
    formula = formula or _formula
    text = render_sample(graph, dict(enumerate(sample)))
    unit = Unit(text, n_inputs, target_named(target), options, given=_given(graph))
    unit.extents = tuple(map(formula, extent_sizes(graph)))
    unit.bounds = tuple(Check(formula(a), formula(b), equal=False) for a, b in graph.limits)
    return unit


def _given(graph: OpenGraph) -> tuple[tuple[Formula, ...], ...]:
    body = graph.graph.body
    return tuple(tuple(map(_formula, kind.dims or ())) for kind in (*body.params, *body.captures))


def _lower_unknown(
    graph: OpenGraph,
    symbols: tuple[Symbol, ...],
    n_inputs: int,
    target: str,
    options: CompileOptions,
    on_stage: Callable[[str], None],
    libraries: LibraryCache | None,
) -> CompiledKernel:
    """Compile a program that computes sizes itself: open ones are ``?`` in its module."""
    if any(f'"{WINDOW}"' in node.attributes for node in graph.graph.body.nodes):
        raise UnsupportedOp("stablehlo.custom_call", f"@{WINDOW} with numbers that are not made of sizes")
    unknown = forget(graph.graph)
    zeros = tuple(size for size in extent_sizes(graph) if not size) if unknown.family == "linalg" else ()
    text = render_places(unknown, bool(zeros)) if unknown.family == "linalg" else render_graph(unknown)
    unit = Unit(text, n_inputs, target_named(target), options, libraries, given=_given(graph))
    unit.extents = tuple(map(_formula, zeros))
    if graph.graph.family == "linalg":
        if any(DYNAMIC in pair for pair in linalg_limits(graph.graph.body)):
            raise UnsupportedOp("tensor.extract_slice", "places in tensors whose sizes are computed")
        unit.bounds = tuple(Check(_formula(a), _formula(b), equal=False) for a, b in graph.limits)
    with mlir.new_context(), mlir.unknown_location():
        seconds = run(pipeline_for(unit.target), unit, on_stage)
    return _named(unit, seconds, graph, symbols)


def _formula(size: int) -> Formula:
    coefficient, indices = factors(size)
    return formula_of({tuple(f"s{index}" for index in indices): coefficient} if coefficient else {})


def _run(
    units: list[Unit], sampling: Sampling, on_stage: Callable[[str], None]
) -> tuple[Unit, dict[str, float]]:
    """Lower all samples together, and the first to the end."""
    pipeline = pipeline_for(units[0].target)
    seconds = lower_together(
        units, sampling, pipeline, on_stage, lambda: cut_open_parts(units, sampling, pipeline)
    )
    translated = [stage.name for stage in pipeline].index("seam")
    return units[0], seconds | run(pipeline[translated:], units[0], on_stage)


def _named(
    unit: Unit, seconds: dict[str, float], graph: OpenGraph, symbols: tuple[Symbol, ...]
) -> CompiledKernel:
    """The kernel with the spec's own names for the open sizes."""

    def named(text: str) -> str:
        return _SYMBOL.sub(lambda match: graph.names[int(match[1])], text)

    def types(kinds: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return tuple(
            replace(kind, dims=tuple(dim if isinstance(dim, int) else named(dim) for dim in kind.dims))
            for kind in kinds
        )

    compiled = kernel_of(unit, seconds)
    interface = replace(
        compiled.interface,
        inputs=types(unit.inputs),
        constants=types(unit.constants),
        outputs=types(unit.outputs),
        symbols=symbols,
        workspace=named(compiled.interface.workspace),
        launches=tuple(
            replace(one, extent=named(one.extent), grain=named(one.grain)) for one in unit.launches
        ),
        gpu_launches=tuple(_renamed(one, named) for one in unit.gpu_launches),
        checks=tuple(map(named, unit.checks)),
    )
    return replace(compiled, interface=interface)


def _renamed(launch: GpuLaunch, named: Callable[[str], str]) -> GpuLaunch:
    x, y, z = launch.grid
    return replace(
        launch,
        when=named(launch.when),
        grid=(named(x), named(y), named(z)),
        shared_bytes=named(launch.shared_bytes),
        params=tuple(map(named, launch.params)),
    )
