"""Compatibility of the two LLVMs, over the op suite: the toolchain's own engine gives the same bits."""

from __future__ import annotations

import ctypes
import zlib
from typing import Any

import pytest
from torch_mlir.execution_engine import ExecutionEngine

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.compile import lower_until
from kcache_compiler.spec.rendering.stablehlo import render
from kcache_compiler.types import CompileOptions
from kcache_grpc.model.target import host_target
from tests.ops.harness.compare import difference
from tests.ops.harness.native import Entry, call, run
from tests.ops.harness.programs import OpProgram, all_programs
from tests.ops.harness.rejected import REJECTED

PROGRAMS = [program for program in all_programs() if program.id not in REJECTED]
#: A sixth of them on every change, chosen by name; the others in the long run.
SAMPLE = [
    program if zlib.crc32(program.id.encode()) % 6 == 0 else pytest.param(program, marks=pytest.mark.long)
    for program in PROGRAMS
]


def _engine_entry(engine: ExecutionEngine) -> Entry:
    packed = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.raw_lookup("kcache_run"))

    def entry(pointers: Any, dims: Any, workspace: Any, host: None) -> int:
        words = (ctypes.c_void_p * 4)(ctypes.cast(pointers, ctypes.c_void_p), dims, workspace, host)
        code = ctypes.c_int32(-1)
        slots = (ctypes.c_void_p * 5)(
            *[ctypes.addressof(words) + 8 * i for i in range(4)], ctypes.addressof(code)
        )
        packed(slots)
        return code.value

    return entry


@pytest.mark.sampled(36)
@pytest.mark.parametrize("program", SAMPLE, ids=lambda program: program.id)
def test_both_llvms_give_the_same_bits(program: OpProgram) -> None:
    canonical = canonicalize(program.text.encode(), "stablehlo", "strict")
    constants = [constant.content for constant in canonical.constants]
    isa, options = host_target().isa, CompileOptions(numerics="strict")
    kernel = compile_spec(canonical.spec_text, canonical.arg_spec, isa, options, lambda _: None)
    ours = run(kernel, program.inputs, constants)
    text = render(canonical.spec_text, canonical.arg_spec)
    with lower_until(text, len(program.inputs), isa, "translate", options) as module:
        engine = ExecutionEngine(module, opt_level=0)
    theirs = call(_engine_entry(engine), kernel.interface, program.inputs + constants)
    for dtype, left, right in zip(program.result_dtypes, ours, theirs, strict=True):
        assert not difference(dtype, left, right, ulps=0)
