"""From a module text to a kernel: the whole pipeline, stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from kcache_compiler.codegen import mlir
from kcache_compiler.codegen.cpython import caller_object, caller_text_digest
from kcache_compiler.codegen.entry import SIZES_DISAGREE
from kcache_compiler.codegen.fma import emulate_fma
from kcache_compiler.codegen.formula import text
from kcache_compiler.codegen.gemm.objects import compiled_library, splice_library
from kcache_compiler.codegen.legalize.complexes import call_complex_functions, call_for_numbers
from kcache_compiler.codegen.legalize.control import carry_in_place, to_scf
from kcache_compiler.codegen.legalize.dynamic import lower_dynamic
from kcache_compiler.codegen.legalize.expansions.expand import expand_definitions
from kcache_compiler.codegen.legalize.expansions.picked import expand_picks
from kcache_compiler.codegen.legalize.math import call_math_library
from kcache_compiler.codegen.legalize.meaning import keep_meaning
from kcache_compiler.codegen.legalize.scans import raise_scans
from kcache_compiler.codegen.legalize.shuffles import carry_regions, mark_shuffles
from kcache_compiler.codegen.legalize.signless import erase_signs
from kcache_compiler.codegen.legalize.spread import keep_places
from kcache_compiler.codegen.legalize.tuples import take_apart
from kcache_compiler.codegen.math import VERSION as MATH_VERSION
from kcache_compiler.codegen.math import expand
from kcache_compiler.codegen.math.compose import compose
from kcache_compiler.codegen.narrow import (
    EMULATE,
    convert_half_in_software,
    keep_roundings,
    math_on_f32,
    round_once,
    select_as_integers,
)
from kcache_compiler.codegen.ordered import mark_ordered
from kcache_compiler.codegen.parts import MANY, MORE, cut_parts
from kcache_compiler.codegen.pipeline import BUFFERIZE, EMIT, LAUNCHES, LOWER
from kcache_compiler.codegen.signature import read_signature
from kcache_compiler.codegen.small.rewrite import hold_small_elements
from kcache_compiler.codegen.stage import Passes, Rewrite, Stage, Unit, run
from kcache_compiler.codegen.threads import may_use_threads, pool_object, pool_text_digest
from kcache_compiler.codegen.tune import TUNE
from kcache_compiler.collector import collector_paused
from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.package import elf
from kcache_compiler.package.isa import required_features
from kcache_compiler.package.link import link
from kcache_compiler.package.target import Device, Target, target_named
from kcache_compiler.schedule.attention.mark import has_marks, mark
from kcache_compiler.schedule.choices import FuseLimits, require_choices
from kcache_compiler.schedule.fuse import fuse, unshare
from kcache_compiler.types import ArgSpec, CompiledKernel, CompileOptions, KernelInterface, LibraryCache

#: Operations of math functions from which on their calls stay calls until it is known which launches are one.
LATE_MATH = 16384
ERROR_CODES = {SIZES_DISAGREE: "sizes of the arguments do not fit each other or the program"}


def _parse(unit: Unit) -> None:
    require_choices(unit.options.schedule, isinstance(unit.target, Device))
    try:
        unit.module = mlir.parse(unit.source)
    except mlir.MLIRError as error:
        raise InvalidProgram(str(error)) from None


def _cut_parts(unit: Unit) -> None:
    cut_parts(unit, PIPELINE)


def _refuse(unit: Unit) -> None:
    """Refuse the first operation that the legalization left."""
    left = [name for name in mlir.names(unit.module) if name.startswith(("stablehlo.", "chlo."))]
    for operation in mlir.walk(unit.module) if left else ():
        name = mlir.name_of(operation)
        if name.startswith(("stablehlo.", "chlo.")) and name != "stablehlo.return":
            reason = "it has no lowering"
            if name == "stablehlo.custom_call":
                reason = f"no definition of @{mlir.string_of(operation.attributes['call_target_name'])}"
            raise UnsupportedOp(name, reason, mlir.location_of(operation))


def _expand_math(unit: Unit) -> None:
    compose(unit.module, strict=unit.options.numerics == "strict")
    late = not isinstance(unit.target, Device) and not has_marks(unit.module)
    unit.calls_math = _expand(unit, LATE_MATH if late else 0)


def _expand_late(unit: Unit) -> None:
    """What repeats is one function by now."""
    if unit.calls_math:
        _expand(unit)
        emulate_fma(unit)


def _expand(unit: Unit, least: int = 0) -> bool:
    scales, fast = "avx512vl" in unit.target.features, unit.options.numerics == "fast"
    return expand(unit.module, scales, fast, least)


def _link(unit: Unit) -> None:
    objects = [unit.object_code, caller_object(unit.target)]
    exports = elf.EXPORTED | elf.CALLER_EXPORTED
    parts = list(unit.parts.values())
    forms = dict.fromkeys([*unit.gemm_forms, *(form for part in parts for form in part.forms)])
    linked = [*(compiled_library(form, unit.target, unit.libraries) for form in forms), *parts]
    objects += [one.object_code for one in linked]
    unit.assembly = "\n".join([unit.assembly, *(one.assembly for one in linked)])
    if may_use_threads(unit.launches):
        objects.append(pool_object(unit.target))
        exports |= elf.POOL_EXPORTED
    unit.shared_object = link(objects, unit.target, exports)
    elf.check(unit.shared_object, unit.target)


PIPELINE: tuple[Stage, ...] = (
    Rewrite("parse", _parse),
    Rewrite("small-elements", hold_small_elements),
    Rewrite("parts", _cut_parts, f"of {MANY} that are equal, {MORE} where they fuse"),
    Rewrite("definitions", expand_definitions),
    Passes("inline", "inline,symbol-dce"),
    Rewrite("static-shapes", take_apart),
    Rewrite("picks", expand_picks),
    Rewrite("signature", read_signature),
    Rewrite("dynamic-shapes", lower_dynamic),
    Rewrite("complex-functions", call_complex_functions),
    Rewrite("math-library", call_math_library),
    Rewrite("meaning", keep_meaning),
    Passes("chlo", "func.func(chlo-legalize-to-stablehlo)", refuses=True),
    Rewrite("control-flow", to_scf),
    Rewrite("regions", carry_regions),
    Passes("linalg", "stablehlo-legalize-to-linalg", refuses=True),
    Rewrite("shuffles", mark_shuffles),
    Rewrite("refuse", _refuse),
    Rewrite("signless", erase_signs),
    Rewrite("spread", keep_places),
    Passes("canonicalize", "canonicalize"),
    Rewrite("scans", raise_scans),
    Rewrite("loops", carry_in_place),
    Rewrite("unshare", unshare),
    Passes("generalize", "func.func(linalg-generalize-named-ops)"),
    Rewrite("ordered", mark_ordered),
    Rewrite("fuse", fuse, f"to {FuseLimits()}"),
    Rewrite("attention", mark),
    Rewrite("complex-numbers", call_for_numbers),
    Passes("complex", "func.func(convert-complex-to-standard)"),
    Rewrite("math-on-f32", math_on_f32),
    Rewrite("math", _expand_math, f"library {MATH_VERSION}"),
    Rewrite("fma", emulate_fma),
    Rewrite("round-once", round_once),
    Passes("narrow-floats", EMULATE),
    Rewrite("narrow-roundings", keep_roundings),
    Rewrite("narrow-selects", select_as_integers),
    Rewrite("half-conversions", convert_half_in_software),
    *BUFFERIZE,
    *LAUNCHES,
    Rewrite("late-math", _expand_late, f"of programs that call more than {LATE_MATH} operations"),
    *LOWER,
    TUNE,
    *EMIT,
    Rewrite("link", _link, f"caller {caller_text_digest()}, thread pool {pool_text_digest()}", verify=False),
)


def lower_module(
    module_text: str,
    n_inputs: int,
    target: str,
    options: CompileOptions,
    on_stage: Callable[[str], None],
    libraries: LibraryCache | None = None,
) -> CompiledKernel:
    """Compile a module whose ``main`` takes ``n_inputs`` inputs, then lifted constants."""
    unit = Unit(module_text, n_inputs, target_named(target), options, libraries)
    with mlir.new_context(), mlir.unknown_location():
        seconds = run(pipeline_for(unit.target), unit, on_stage)
    return kernel_of(unit, seconds)


def pipeline_for(target: Target) -> tuple[Stage, ...]:
    """The stages of a target."""
    if isinstance(target, Device):
        from kcache_compiler.codegen import gpu

        return gpu.pipeline_for(target)
    return PIPELINE


def kernel_of(unit: Unit, seconds: dict[str, float]) -> CompiledKernel:
    """What a unit that went through the pipeline became."""
    if isinstance(unit.target, Device):
        from kcache_compiler.codegen import gpu

        return gpu.kernel_of(unit, seconds)
    interface = KernelInterface(
        inputs=unit.inputs,
        constants=unit.constants,
        outputs=unit.outputs,
        symbols=unit.symbols,
        workspace=text(unit.workspace),
        launches=tuple(unit.launches),
        triple=unit.target.triple,
        required_isa=required_features(unit.assembly, unit.target),
        error_codes=dict(ERROR_CODES),
    )
    artifacts = {
        "so": unit.shared_object,
        "mlir": unit.source.encode(),
        "llvm": unit.llvm_ir.encode(),
        "asm": unit.assembly.encode(),
    }
    return CompiledKernel(artifacts, interface, seconds)


@contextmanager
def lower_until(
    module_text: str, n_inputs: int, target: str, stage: str, options: CompileOptions | None = None
) -> Generator[mlir.Module, None, None]:
    """The module as ``stage`` would get it, with what it calls, inside its context: what tests look at."""
    unit = Unit(module_text, n_inputs, target_named(target), options or CompileOptions())
    names = [one.name for one in PIPELINE]
    with mlir.new_context(), mlir.unknown_location():
        run(PIPELINE[: names.index(stage)], unit, lambda _: None)
        for form in unit.gemm_forms:
            splice_library(unit.module, form)
        yield unit.module


@collector_paused()
def compile_spec(
    spec_text: str,
    arg_spec: ArgSpec,
    target: str,
    options: CompileOptions,
    on_stage: Callable[[str], None],
    libraries: LibraryCache | None = None,
) -> CompiledKernel:
    """The kernel of a spec for ``target``: sizes that are numbers in ``arg_spec`` are fixed, all others stay
    open, and the kernel takes every size of their symbols.

    ``on_stage`` is told the name of each stage as it begins. Raises ``UnsupportedOp``,
    ``LimitExceeded``, ``CompileFailed``, or ``InvalidProgram`` where ``arg_spec`` contradicts the spec.
    Equal arguments give equal bytes under one toolchain, whatever ``libraries`` has.
    """
    from kcache_compiler.canonical.open_sizes import has_open_sizes, open_graph
    from kcache_compiler.canonical.render import render_graph
    from kcache_compiler.canonical.spec_text import parse_spec
    from kcache_compiler.canonical.specialize import fixed_sizes, specialized
    from kcache_compiler.dynamic import lower_open, stated

    on_stage("render")
    graph = parse_spec(spec_text)
    graph = specialized(graph, fixed_sizes(graph, arg_spec))
    n_inputs = len(arg_spec.args)
    if not has_open_sizes(graph.body):
        try:
            return lower_module(render_graph(graph), n_inputs, target, options, on_stage, libraries)
        except UnsupportedOp as refusal:
            text = render_graph(stated(graph, refusal))
        return lower_module(text, n_inputs, target, options, on_stage, libraries)
    return lower_open(open_graph(graph), n_inputs, target, options, on_stage, libraries)
