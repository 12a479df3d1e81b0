"""LLVM IR text to object code, through LLVM 22's new pass manager."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import functools
import platform
import re
from typing import Any

import llvmlite.binding as llvm

from kcache_compiler.errors import CompileFailed
from kcache_compiler.llvm.target import Target

#: The line that names the module; a module names itself in its object too.
_SOURCE = re.compile(r'^\t\.file\t"([^"\\]*)"\n', re.MULTILINE)


#: Constants of a long loop stay in memory where there are not registers enough for all of them.
EMISSION = "-sink-insts-to-avoid-spills"


@functools.cache
def _initialize() -> None:
    llvm.set_option("", EMISSION)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def llvm_version() -> str:
    return ".".join(map(str, llvm.llvm_version_info))


def _machine(target: Target, opt_level: int) -> Any:
    _initialize()
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

    Without ``unroll`` loops of known length stay loops: LLVM unrolls up to 64 iterations before it looks
    for vectors, and finds none in what it then has. Without ``vectorize`` it looks for none.
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
    """Assembly text of ``text`` after ``SIMPLIFICATIONS`` alone, for code whose loops are as they should be.

    ``emission`` is the level of the back end.
    """
    machine = _machine(target, opt_level)
    module = _parse(text, target, machine)
    passes = llvm.create_new_module_pass_manager()
    for name in SIMPLIFICATIONS:
        getattr(passes, f"add_{name}_pass")()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(opt_level)))
    return _machine(target, emission).emit_assembly(module)


def emit_object(bitcode: bytes, target: Target, opt_level: int) -> bytes:
    """Object code; made from a copy, as emitting changes a module."""
    return _machine(target, opt_level).emit_object(llvm.parse_bitcode(bitcode, llvm.create_context()))


def emit_assembly(bitcode: bytes, target: Target, opt_level: int) -> str:
    """Assembly text of the same code."""
    return _machine(target, opt_level).emit_assembly(llvm.parse_bitcode(bitcode, llvm.create_context()))


@functools.cache
def assembles(target: Target) -> bool:
    """Whether ``assemble`` may be used: LLVM's bindings have the assembler of this machine only."""
    if target.architecture != "x86_64" or platform.machine() != target.architecture:
        return False
    _initialize()
    llvm.initialize_native_asmparser()
    return True


def assemble(assembly: str, target: Target, tuning: str = "") -> bytes:
    """The bytes that ``emit_object`` makes of the bitcode that ``assembly`` was emitted from.

    A tenth of its time: nothing is selected, scheduled or allocated again. ``tuning`` is LLVM's name of the
    model that the code was emitted for; how long a no-operation may be depends on it.
    """
    if not assembles(target):  # without its parser LLVM would end the process
        raise CompileFailed("object", f"no assembler for {target.name} here")
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=tuning or "generic", features=target.feature_string, opt=0, reloc="pic", codemodel="default"
    )
    source = _SOURCE.search(assembly)
    body = _SOURCE.sub("", assembly).replace("\\", "\\5C").replace('"', "\\22").replace("\n", "\\0A")
    named = f'source_filename = "{source[1]}"\n' if source else ""
    text = f'{named}target triple = "{target.triple}"\nmodule asm "{body}"\n'
    return machine.emit_object(llvm.parse_assembly(text, llvm.create_context()))
