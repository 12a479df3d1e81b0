"""Every op in every dtype: a kernel agrees with the reference interpreter, or the op is rejected by name."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.types import CompileOptions
from kcache_grpc.model.target import CPU_TARGETS, CpuTarget, host_target
from tests.ops.harness.compare import difference
from tests.ops.harness.native import run
from tests.ops.harness.programs import OpProgram, all_programs
from tests.ops.harness.reference import ReferenceInterpreter
from tests.ops.harness.rejected import REJECTED


@pytest.fixture(scope="module")
def reference() -> Iterator[ReferenceInterpreter]:
    interpreter = ReferenceInterpreter()
    yield interpreter
    interpreter.close()


#: This machine's level on every change; the levels below it in the long run.
LEVELS = [
    isa if isa == host_target().isa else pytest.param(isa, marks=pytest.mark.long)
    for isa in CPU_TARGETS
    if CpuTarget(isa).triple == host_target().triple and isa <= host_target().isa
]


#: Half of the programs on every change.
PROGRAMS = [
    program if zlib.crc32(program.id.encode()) % 2 else pytest.param(program, marks=pytest.mark.long)
    for program in all_programs()
]


@pytest.mark.sampled(24)
@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.id)
def test_a_kernel_agrees_with_the_reference_interpreter(
    program: OpProgram, isa: str, reference: ReferenceInterpreter
) -> None:
    canonical = canonicalize(program.text.encode(), "stablehlo", "strict")
    options = CompileOptions(numerics="strict")
    if program.id in REJECTED:
        with pytest.raises(UnsupportedOp) as rejection:
            compile_spec(canonical.spec_text, canonical.arg_spec, isa, options, lambda _: None)
        assert rejection.value.op.startswith(("stablehlo.", "chlo."))
        return
    kernel = compile_spec(canonical.spec_text, canonical.arg_spec, isa, options, lambda _: None)
    got = run(kernel, program.inputs, [constant.content for constant in canonical.constants])
    expected = program.expected or reference.evaluate(program.text, program.inputs)
    for index, (dtype, left, right) in enumerate(zip(program.result_dtypes, got, expected, strict=True)):
        wrong = difference(dtype, left, right, program.ulps, program.absolute)
        assert not wrong, f"result {index} ({dtype}): {wrong}\n{program.text}"
