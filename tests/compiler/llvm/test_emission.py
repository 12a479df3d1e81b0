"""LLVM compiles modules of several threads at a time, to the bytes that each gives alone."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import llvmlite.binding as llvm

from kcache_compiler.llvm.emission import emit_assembly, emit_object, initialize, optimize
from kcache_compiler.llvm.target import baseline, target_named
from kcache_compiler.lower.cpu.thread_pool import pool_ir

TARGET = baseline(target_named("x86-64-v3"))
PROGRAMS = [pool_ir(TARGET), *(f"define i64 @f(i64 %x) {{\n  ret i64 {n}\n}}" for n in range(3))]


def compiled(text: str) -> tuple[str, bytes]:
    bitcode = optimize(text, TARGET, 3)
    return emit_assembly(bitcode, TARGET, 3), emit_object(bitcode, TARGET, 3)


def test_threads_change_no_byte() -> None:
    alone = list(map(compiled, PROGRAMS))
    with ThreadPoolExecutor(len(PROGRAMS)) as threads:
        assert list(threads.map(compiled, PROGRAMS * 3)) == alone * 3


def test_a_thread_optimizes_and_emits_while_another_is_in_llvm() -> None:
    """llvmlite's lock, which is held here, is that of all other functions."""
    initialize()
    library: Any = llvm.ffi.lib
    machine = llvm.Target.from_triple(TARGET.triple).create_target_machine()
    module = llvm.parse_assembly(PROGRAMS[1], llvm.create_context())
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    passes = builder.getModulePassManager()
    with ThreadPoolExecutor(1) as threads, llvm.ffi.OutputString() as message, library._lock:
        threads.submit(library.LLVMPY_RunNewModulePassManager, passes, module, builder).result(60)
        buffer = threads.submit(library.LLVMPY_TargetMachineEmitToMemory, machine, module, 0, message).result(
            60
        )
    assert library.LLVMPY_GetBufferSize(buffer)
    library.LLVMPY_DisposeMemoryBuffer(buffer)
