"""From the LLVM dialect to object code."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.llvm.bfloat16_bits import as_integers
from kcache_compiler.llvm.compatibility import downgrade
from kcache_compiler.llvm.cpus import tuning_for
from kcache_compiler.llvm.emission import assemble, assembles, emit, emit_object, optimize
from kcache_compiler.llvm.merge_functions import merge_functions
from kcache_compiler.llvm.split_module import LEAST_TEXT, split_module
from kcache_compiler.llvm.target import Target
from kcache_compiler.lower.loops.tiled_transpose import TRANSPOSED
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.stage import Unit
from kcache_compiler.schedule.choices import parse_choices
from kcache_compiler.types import CompileOptions

#: Text of the ``optimize`` stage.
OPTIMIZATION = f"new pass manager at the level of the options, in two modules from {LEAST_TEXT} characters on"


def set_function_attributes(unit: Unit) -> None:
    """Mark launches ``noinline``, so that each is optimized separately with its ``noalias`` arguments.

    So are functions that transpose a tile: LLVM would inline, optimize and emit them once for each use.
    """
    bits = parse_choices(unit.options.schedule).vector_bits
    for function in mlir.operations(unit.module.body):
        if mlir.name_of(function) != "llvm.func":
            continue
        function.attributes["no_unwind"] = mlir.unit_attr()
        name = mlir.symbol_of(function)
        if name.startswith(TRANSPOSED):
            function.attributes["no_inline"] = mlir.unit_attr()
        elif name.removeprefix("launch_").replace("_", "").isdigit():
            function.attributes["no_inline"] = mlir.unit_attr()
            if bits:
                words = f'[["prefer-vector-width", "{bits}"]]'
                function.attributes["passthrough"] = mlir.attribute(words)


def translate(unit: Unit) -> None:
    """Translate to LLVM 24 text; rejects operations of other dialects, on which translation would crash."""
    names = mlir.names(unit.module) - {"builtin.module"}
    unsupported = {name for name in names if not name.startswith("llvm.")}
    for operation in mlir.walk(unit.module) if unsupported else ():
        if mlir.name_of(operation) in unsupported:
            location = mlir.location_of(operation)
            raise UnsupportedOp(mlir.name_of(operation), "no code is generated for it", location)
    unit.llvm_ir = mlir.to_llvm_text(unit.module)


def downgrade_ir(unit: Unit) -> None:
    unit.llvm_ir = downgrade(unit.llvm_ir)


def merge_ir(unit: Unit) -> None:
    """Merge equal functions, which were not equal before constants were folded."""
    unit.llvm_ir = merge_functions(unit.llvm_ir)


def optimize_ir(unit: Unit) -> None:
    """Optimize the module, or its first half: a thread then optimizes and emits the second half."""
    text = unit.llvm_ir if unit.options.opt_level else as_integers(unit.llvm_ir)
    first, *second = split_module(text)
    if second:
        assembles(unit.target)  # sets up LLVM before there are two threads
        with_thread = ThreadPoolExecutor(1)
        unit.second_half = with_thread.submit(_emitted, second[0], unit.target, unit.options)
        with_thread.shutdown(wait=False)
    unit.bitcode = _optimized(first, unit.target, unit.options)


def emit_text(unit: Unit) -> None:
    unit.bitcode, unit.assembly = emit(unit.bitcode, unit.target, unit.options.opt_level)


def emit_code(unit: Unit) -> None:
    """Emit the object code, and wait for the second half of the module."""
    unit.object_code = _assembled(unit.assembly, unit.bitcode, unit.target, unit.options)
    if unit.second_half is not None:
        assembly, code = unit.second_half.result()
        unit.assembly += assembly
        unit.further_objects.append(code)


def _emitted(text: str, target: Target, options: CompileOptions) -> tuple[str, bytes]:
    """The assembly and the object code of LLVM IR."""
    bitcode, assembly = emit(_optimized(text, target, options), target, options.opt_level)
    return assembly, _assembled(assembly, bitcode, target, options)


def _optimized(text: str, target: Target, options: CompileOptions) -> bytes:
    return optimize(text, target, options.opt_level, parse_choices(options.schedule).unrolls)


def _assembled(assembly: str, bitcode: bytes, target: Target, options: CompileOptions) -> bytes:
    """The object code, from the assembly if the target's can be assembled; the bytes are the same."""
    if assembles(target):
        return assemble(assembly, target, tuning_for(target.name, options.tuning).llvm)
    return emit_object(bitcode, target, options.opt_level)
