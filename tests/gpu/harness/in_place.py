"""``python -m tests.gpu.harness.in_place [--programs N] [--seed S] [--open]``: what is overwritten, on a GPU.

Random programs whose operations could work in place (``overwrites.py``), compiled for this CPU and for a GPU,
at their sizes or (``--open``) at all. The CPU's kernel, the GPU's in the block emulator and the StableHLO
interpreter give the same bits. Status 1 where they do not, where a kernel does what it must not, or where
only the GPU rejects.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass

import numpy as np

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import CompilerError, UnsupportedOp
from kcache_compiler.types import ArgSpec, Canonical, CompiledKernel, CompileOptions
from kcache_grpc.model.target import host_target
from tests.gpu.harness.emulate import ORDERS, EmulationError
from tests.gpu.harness.overwrites import DTYPES, program
from tests.gpu.harness.run import ELEMENTS, run_gpu
from tests.ops.harness.compare import difference
from tests.ops.harness.native import run
from tests.ops.harness.programs import OpProgram
from tests.ops.harness.reference import ReferenceInterpreter

TARGET = "sm_90"
#: What may become of a program.
FINE = frozenset({"right", "rejected by both"})


@dataclass(frozen=True)
class Case:
    """What became of a program; ``launches`` that it has on a GPU, at its sizes."""

    outcome: str
    reason: str = ""
    launches: int = 0


def judged(
    number: int, seed: int, reference: ReferenceInterpreter, numerics: str = "strict", opened: bool = False
) -> Case:
    """The program of a number, at its sizes or at all."""
    drawn = program(DTYPES[number % len(DTYPES)], seed, number)
    order = ORDERS[number // len(DTYPES) % len(ORDERS)]
    try:
        return _compared(drawn, reference, numerics, order, opened)
    except (CompilerError, EmulationError, AssertionError) as error:
        return Case("error", f"{type(error).__name__}: {error}\n{drawn.text}")


def _compared(
    case: OpProgram, reference: ReferenceInterpreter, numerics: str, order: str, opened: bool
) -> Case:
    canonical = canonicalize(case.text.encode(), "stablehlo", numerics)
    contents = [constant.content for constant in canonical.constants]
    try:
        cpu = _kernel(canonical, host_target().isa, numerics, opened)
    except UnsupportedOp:
        cpu = None
    try:
        gpu = _kernel(canonical, TARGET, numerics, opened)
    except UnsupportedOp as error:
        return Case("rejected" if cpu else "rejected by both", f"{error.op}: {error}\n{case.text}")
    assert cpu is not None, "only the CPU rejects"
    arrays = [
        np.frombuffer(content, ELEMENTS[kind.dtype]).reshape([int(dim) for dim in kind.dims])
        for content, kind in zip(case.inputs, canonical.arg_spec.args, strict=True)
    ]
    constants = [
        np.frombuffer(content, ELEMENTS[kind.dtype]).reshape([int(dim) for dim in kind.dims])
        for content, kind in zip(contents, gpu.interface.constants, strict=True)
    ]
    dims = tuple(arrays[symbol.arg].shape[symbol.axis] for symbol in cpu.interface.symbols)
    results = {
        "the CPU's": run(cpu, case.inputs, contents, dims),
        "the GPU's": [array.tobytes() for array in run_gpu(gpu, arrays, constants, order)],
    }
    random = "rng_bit_generator" in case.text  # which the interpreter does not have
    wanted = results["the CPU's"] if random else reference.evaluate(case.text, case.inputs)
    for whose, got in results.items():
        for place, (dtype, mine, right) in enumerate(zip(case.result_dtypes, got, wanted, strict=True)):
            if message := difference(dtype, mine, right, 0.0):
                return Case("wrong", f"{whose} result {place} ({dtype}, {order}): {message}\n{case.text}")
    return Case("right", "", len(gpu.interface.gpu_launches))


def _kernel(canonical: Canonical, target: str, numerics: str, opened: bool) -> CompiledKernel:
    options = CompileOptions(numerics=numerics, opt_level=1)
    args = ArgSpec(canonical.symbolic_args) if opened else canonical.arg_spec
    return compile_spec(canonical.spec_text, args, target, options, lambda _: None)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.harness.in_place", description=__doc__)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--numerics", default="strict")
    parser.add_argument("--open", action="store_true")
    options = parser.parse_args()
    reference, counts, launches = ReferenceInterpreter(), Counter[str](), 0
    for number in range(options.first, options.first + options.programs):
        case = judged(number, options.seed, reference, options.numerics, options.open)
        counts[case.outcome] += 1
        launches += case.launches
        if case.outcome not in FINE:
            print(f"{case.outcome}: program {number} of seed {options.seed}\n{case.reason}", flush=True)
    reference.close()
    print(", ".join(f"{number} {outcome}" for outcome, number in counts.items()), f"in {launches} launches")
    return int(not FINE.issuperset(counts))


if __name__ == "__main__":
    sys.exit(main())
