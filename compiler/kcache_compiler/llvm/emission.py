"""LLVM IR text to object code, through LLVM 22's new pass manager."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import functools
import platform
import re
from typing import Any

import llvmlite.binding as llvm

from kcache_compiler.errors import CompileFailed
from kcache_compiler.llvm.bfloat16_bits import MISSING, without_conversions
from kcache_compiler.llvm.masked_logic import may_be_incorrect, without_avx512, without_merged_selects
from kcache_compiler.llvm.target import Target

#: The directive with the module's name, which is also in the object.
_SOURCE = re.compile(r'^\t\.file\t"([^"\\]*)"\n', re.MULTILINE)


#: Keeps constants of a long loop in memory if there are too few registers for all of them.
EMISSION = "-sink-insts-to-avoid-spills"

#: The functions that take long, of modules that have a context each: LLVM supports calls of them at the same
#: time. llvmlite has one lock for all functions.
_THREAD_SAFE = ("LLVMPY_RunNewModulePassManager", "LLVMPY_TargetMachineEmitToMemory")


@functools.cache
def initialize() -> None:
    """Set up LLVM, once; before threads that may do so at the same time."""
    llvm.set_option("", EMISSION)
    for name in _THREAD_SAFE:
        getattr(llvm.ffi.lib, name)._lock = contextlib.nullcontext()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def llvm_version() -> str:
    return ".".join(map(str, llvm.llvm_version_info))


def _machine(target: Target, opt_level: int) -> Any:
    initialize()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.feature_string, opt=opt_level, reloc="pic", codemodel="default"
    )


def _parse(text: str, target: Target, machine: Any) -> Any:
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
        module.triple = target.triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise CompileFailed("llvm", str(error)) from None
    return module


def optimize(text: str, target: Target, opt_level: int, unroll: bool = True, vectorize: bool = True) -> bytes:
    """The bitcode of ``text`` after the optimization pipeline of ``opt_level`` (0 to 3).

    Without ``unroll``, loops with a constant trip count are kept: LLVM would unroll up to 64 iterations
    before vectorization, and then not vectorize the result. Without ``vectorize``, it does not vectorize.
    """
    machine = _machine(target, opt_level)
    module = _parse(text, target, machine)
    options = llvm.create_pipeline_tuning_options(speed_level=opt_level)
    options.loop_unrolling = unroll and opt_level > 1
    if not vectorize:
        options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module.as_bitcode()


#: Passes of ``simplified_assembly``, in order.
SIMPLIFICATIONS = (
    "sroa",
    "simplify_cfg",
    "instruction_combine",
    "loop_rotate",
    "new_gvn",
    "simplify_cfg",
    "instruction_combine",
    "dead_code_elimination",
)


def simplified_assembly(text: str, target: Target, opt_level: int, emission: int) -> str:
    """Assembly text of ``text`` after ``SIMPLIFICATIONS`` only, for code whose loops are already optimized.

    ``emission`` is the optimization level of the back end.
    """
    return _machine(target, emission).emit_assembly(simplified(text, target, opt_level))


def simplified(text: str, target: Target, opt_level: int) -> Any:
    """The module of ``text`` after ``SIMPLIFICATIONS``."""
    machine = _machine(target, opt_level)
    module = _parse(text, target, machine)
    passes = llvm.create_new_module_pass_manager()
    for name in SIMPLIFICATIONS:
        getattr(passes, f"add_{name}_pass")()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(opt_level)))
    return module


def emit_object(bitcode: bytes, target: Target, opt_level: int) -> bytes:
    """The object code of ``bitcode``, which is parsed again, since emission changes a module."""
    return _machine(target, opt_level).emit_object(llvm.parse_bitcode(bitcode, llvm.create_context()))


def emit_assembly(bitcode: bytes, target: Target, opt_level: int) -> str:
    """The assembly text of ``bitcode``."""
    return _machine(target, opt_level).emit_assembly(llvm.parse_bitcode(bitcode, llvm.create_context()))


def emit(bitcode: bytes, target: Target, opt_level: int) -> tuple[bytes, str]:
    """The assembly text of ``bitcode``, and the bitcode that it is of.

    Where LLVM might merge a select incorrectly (``masked_logic``), that is bitcode with opaque values for
    selects. A few operations other than selects are merged too, such as a shuffle of two vectors: if that
    remains, the bitcode does without AVX-512. Raises ``CompileFailed`` where it calls intrinsics of AVX-512.

    Where LLVM would call a function that no library has for conversions of integers to bf16, the bitcode
    converts to f32 and rounds instead (``bfloat16_bits``).
    """
    assembly = emit_assembly(bitcode, target, opt_level)
    if MISSING in assembly:
        text = without_conversions(str(llvm.parse_bitcode(bitcode, llvm.create_context())))
        bitcode = _parse(text, target, _machine(target, opt_level)).as_bitcode()
        assembly = emit_assembly(bitcode, target, opt_level)
    if not may_be_incorrect(assembly):
        return bitcode, assembly
    text = str(llvm.parse_bitcode(bitcode, llvm.create_context()))
    for changed in (without_merged_selects(text), without_avx512(text, target)):
        if changed is not None:
            bitcode = _parse(changed, target, _machine(target, opt_level)).as_bitcode()
            assembly = emit_assembly(bitcode, target, opt_level)
            if not may_be_incorrect(assembly):
                return bitcode, assembly
    raise CompileFailed("llvm", "LLVM merges a select into a logical instruction incorrectly")


@functools.cache
def assembles(target: Target) -> bool:
    """Whether ``assemble`` supports ``target``: LLVM's bindings have only the assembler of this machine."""
    if target.architecture != "x86_64" or platform.machine() != target.architecture:
        return False
    initialize()
    llvm.initialize_native_asmparser()
    return True


def assemble(assembly: str, target: Target, tuning: str = "") -> bytes:
    """The object code of ``assembly``: the bytes of ``emit_object`` for the same bitcode.

    Takes a tenth of the time, since instructions are not selected, scheduled and allocated again. ``tuning``
    is LLVM's name of the scheduling model, which determines the maximum length of a nop.
    """
    if not assembles(target):  # LLVM would abort the process without a parser
        raise CompileFailed("object", f"no assembler for {target.name} here")
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=tuning or "generic", features=target.feature_string, opt=0, reloc="pic", codemodel="default"
    )
    source = _SOURCE.search(assembly)
    body = _SOURCE.sub("", assembly).replace("\\", "\\5C").replace('"', "\\22").replace("\n", "\\0A")
    named = f'source_filename = "{source[1]}"\n' if source else ""
    text = f'{named}target triple = "{target.triple}"\nmodule asm "{body}"\n'
    return machine.emit_object(llvm.parse_assembly(text, llvm.create_context()))
