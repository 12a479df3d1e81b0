"""The driver: compiles a spec, or the text of a module, to a kernel for a target."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from kcache_compiler.bound import lower_bound, lower_bound_dynamic
from kcache_compiler.dynamic import Request, lower_dynamic, static_graph
from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.llvm.target import target_named
from kcache_compiler.lower.gemm.objects import splice_library
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.stage import Unit, run
from kcache_compiler.pause_gc import gc_paused
from kcache_compiler.pipelines import cpu, kernel_of, pipeline_for
from kcache_compiler.spec.dynamic_graph import dynamic_graph, fixed_sizes, has_symbolic_sizes, specialize
from kcache_compiler.spec.rendering.stablehlo import render_graph
from kcache_compiler.spec.text import parse_spec
from kcache_compiler.types import ArgSpec, CompiledKernel, CompileOptions, LibraryCache


def lower_module(
    module_text: str,
    n_inputs: int,
    target: str,
    options: CompileOptions,
    on_stage: Callable[[str], None],
    libraries: LibraryCache | None = None,
) -> CompiledKernel:
    """Return the kernel of a module whose ``main`` takes ``n_inputs`` inputs, then lifted constants."""
    unit = Unit(module_text, n_inputs, target_named(target), options, libraries)
    with ThreadPoolExecutor(1) as unit.threads, mlir.new_context(), mlir.unknown_location():
        seconds = run(pipeline_for(unit.target), unit, on_stage)
    return kernel_of(unit, seconds)


@contextmanager
def lower_until(
    module_text: str, n_inputs: int, target: str, stage: str, options: CompileOptions | None = None
) -> Generator[mlir.Module, None, None]:
    """Yield the module before ``stage``, with the libraries it calls, inside its context; for tests."""
    unit = Unit(module_text, n_inputs, target_named(target), options or CompileOptions())
    names = [step.name for step in cpu()]
    with mlir.new_context(), mlir.unknown_location():
        run(cpu()[: names.index(stage)], unit, lambda _: None)
        for form in unit.gemm_forms:
            splice_library(unit.module, form)
        yield unit.module


@gc_paused()
def compile_spec(
    spec_text: str,
    arg_spec: ArgSpec,
    target: str,
    options: CompileOptions,
    on_stage: Callable[[str], None],
    libraries: LibraryCache | None = None,
) -> CompiledKernel:
    """Return the kernel of a spec for ``target``, for all sizes of the symbols that ``arg_spec`` does not
    fix.

    ``on_stage`` is called with the name of each stage as it begins. Equal arguments give equal bytes under
    one toolchain, whatever ``libraries`` holds. Raises ``UnsupportedOp``, ``LimitExceeded``,
    ``CompileFailed``, or ``InvalidProgram`` if ``arg_spec`` contradicts the spec.
    """
    on_stage("render")
    graph = parse_spec(spec_text)
    graph = specialize(graph, fixed_sizes(graph, arg_spec))
    n_inputs = len(arg_spec.args)
    if not has_symbolic_sizes(graph.body):
        lower = lower_bound if options.bound else lower_module
        try:
            return lower(render_graph(graph), n_inputs, target, options, on_stage, libraries)
        except UnsupportedOp as rejection:
            text = render_graph(static_graph(graph, rejection))
        return lower(text, n_inputs, target, options, on_stage, libraries)
    request = Request(n_inputs, target, options, on_stage, libraries)
    lower_sizes = lower_bound_dynamic if options.bound else lower_dynamic
    return lower_sizes(dynamic_graph(graph), request)
