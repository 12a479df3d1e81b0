"""From the LLVM dialect to object code."""

from __future__ import annotations

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.llvm.bfloat16_bits import as_integers
from kcache_compiler.llvm.compatibility import downgrade
from kcache_compiler.llvm.cpus import tuning_for
from kcache_compiler.llvm.emission import assemble, assembles, emit_assembly, emit_object, optimize
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.stage import Unit
from kcache_compiler.schedule.choices import parse_choices


def set_function_attributes(unit: Unit) -> None:
    """Mark launches ``noinline``, so that each is optimized separately with its ``noalias`` arguments."""
    bits = parse_choices(unit.options.schedule).vector_bits
    for function in mlir.named(unit.module, "llvm.func"):
        function.attributes["no_unwind"] = mlir.unit_attr()
        if mlir.symbol_of(function).removeprefix("launch_").replace("_", "").isdigit():
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


def optimize_ir(unit: Unit) -> None:
    unroll = parse_choices(unit.options.schedule).unrolls
    level = unit.options.opt_level
    text = unit.llvm_ir if level else as_integers(unit.llvm_ir)
    unit.bitcode = optimize(text, unit.target, level, unroll)


def emit_text(unit: Unit) -> None:
    unit.assembly = emit_assembly(unit.bitcode, unit.target, unit.options.opt_level)


def emit_code(unit: Unit) -> None:
    """Emit the object code, from the assembly if the target's can be assembled; the bytes are the same."""
    if assembles(unit.target):
        model = tuning_for(unit.target.name, unit.options.tuning).llvm
        unit.object_code = assemble(unit.assembly, unit.target, model)
    else:
        unit.object_code = emit_object(unit.bitcode, unit.target, unit.options.opt_level)
