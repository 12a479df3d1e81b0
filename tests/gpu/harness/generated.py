"""``python -m tests.gpu.harness.generated [--programs N] [--seed S] [--numerics CLASS]``: random programs
for a GPU.

The universal fallback is what most of them meet: programs of every operation and dtype, compiled together for
this CPU and for a GPU, run by the block emulator. Under ``strict`` both give the same bits. Status 1 when a
result differs, a kernel does what it must not, or a program that this CPU takes is rejected.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import CompilerError, UnsupportedOp
from kcache_compiler.types import CompiledKernel, CompileOptions, TensorType
from kcache_grpc.model.target import host_target
from tests.gpu.harness.emulate import EmulationError
from tests.gpu.harness.exact import exact
from tests.gpu.harness.run import ELEMENTS, run_gpu
from tests.ops.generated.judge import together
from tests.ops.generated.operations.catalog import pairs, program
from tests.ops.harness.compare import difference
from tests.ops.harness.native import run
from tests.ops.harness.programs import OpProgram
from tests.recognition.eager.close import largest_share

#: Programs that are compiled as one.
BATCH = 8
#: What may become of a program.
FINE = frozenset({"right", "rejected by both"})
Name = tuple[str, str, int, int]


@dataclass(frozen=True)
class Case:
    """What became of the program of an operation and a dtype."""

    name: Name
    outcome: str
    reason: str = ""


def cases(
    chosen: Sequence[tuple[str, str]], seed: int, numerics: str = "strict", number: int = 0
) -> Iterator[Case]:
    """One program of each of the pairs of operation and dtype."""
    for first in range(0, len(chosen), BATCH):
        yield from _judged(
            [(op, dtype, seed, number) for op, dtype in chosen[first : first + BATCH]], numerics
        )


def _judged(names: Sequence[Name], numerics: str) -> list[Case]:
    programs = [program(*name) for name in names]
    try:
        reason = difference_of(together(programs) if len(programs) > 1 else programs[0], numerics)
        outcome = "wrong" if reason else "right"
    except UnsupportedOp as error:
        outcome, reason = "rejected", f"{error.op}: {error}"
        if len(names) == 1 and cpu_rejects(programs[0], numerics):
            outcome = "rejected by both"
    except (CompilerError, EmulationError) as error:
        outcome, reason = "error", f"{type(error).__name__}: {error}"
    if outcome in FINE or len(names) == 1:
        return [Case(name, outcome, reason) for name in names]
    half = len(names) // 2
    return [*_judged(names[:half], numerics), *_judged(names[half:], numerics)]


def cpu_rejects(whole: OpProgram, numerics: str) -> bool:
    """This CPU has no kernel for it either."""
    canonical = canonicalize(whole.text.encode(), "stablehlo", numerics)
    options = CompileOptions(numerics=numerics, opt_level=1)
    try:
        compile_spec(canonical.spec_text, canonical.arg_spec, host_target().isa, options, lambda _: None)
    except UnsupportedOp:
        return True
    return False


def difference_of(whole: OpProgram, numerics: str) -> str:
    """How the GPU's results differ from those of this CPU; nothing where they agree."""
    canonical = canonicalize(whole.text.encode(), "stablehlo", numerics)
    options = CompileOptions(numerics=numerics, opt_level=1)

    def compiled(target: str) -> CompiledKernel:
        return compile_spec(canonical.spec_text, canonical.arg_spec, target, options, lambda _: None)

    kernel = compiled("sm_90")
    contents = [constant.content for constant in canonical.constants]
    wanted = run(compiled(host_target().isa), whole.inputs, contents)
    inputs = [_array(*pair) for pair in zip(whole.inputs, kernel.interface.inputs, strict=True)]
    constants = [_array(constant.content, constant.type) for constant in canonical.constants]
    got = run_gpu(kernel, inputs, constants, order="random")
    outputs = zip(whole.result_dtypes, got, wanted, kernel.interface.outputs, strict=True)
    for place, (dtype, result, other, kind) in enumerate(outputs):
        if numerics == "strict":
            message = difference(dtype, result.tobytes(), other, 0.0)
        else:
            with np.errstate(invalid="ignore"):  # NaN that signals
                message = _far(dtype, result, _array(other, kind))
                message = message and _far_from_exact(whole, place, result) if dtype in _NARROW else message
        if message:
            return f"result {place} ({dtype}): {message}\n{whole.text}"
    return ""


#: Error of a dtype that is allowed, as a share of the largest value of a result, or of 1: a few steps of it.
_NARROW = {"f16": 2**-8, "bf16": 2**-5}


def _far(dtype: str, got: np.ndarray, wanted: np.ndarray) -> str:
    if dtype in ("c64", "c128"):
        got, wanted = (np.stack([array.real, array.imag]) for array in (got, wanted))
    if dtype not in _NARROW:
        share = largest_share([got], [wanted.astype(np.float64) if got.dtype.kind == "f" else wanted])
        return "" if share <= 1 else f"{share:g} times the error that is allowed"
    actual, other = got.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(other)
    if not np.array_equal(actual[~finite], other[~finite], equal_nan=True):
        return "what is not finite differs"
    largest = float(np.max(np.abs(other[finite]), initial=1.0))
    error = float(np.max(np.abs(actual[finite] - other[finite]), initial=0.0))
    return "" if error <= _NARROW[dtype] * largest else f"{error:g} off, the largest value is {largest:g}"


def _far_from_exact(whole: OpProgram, place: int, got: np.ndarray) -> str:
    """A CPU may round after each of many steps, when a GPU does not: then f64 says who is right."""
    results = exact(whole)
    if results is None:
        return "far from the CPU's"
    return _far(whole.result_dtypes[place], got, np.frombuffer(results[place], "f8").reshape(got.shape))


def _array(content: bytes, kind: TensorType) -> np.ndarray:
    return np.frombuffer(content, ELEMENTS[kind.dtype]).reshape([int(dim) for dim in kind.dims])


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.harness.generated", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--numerics", default="strict")
    options = parser.parse_args()
    chosen = pairs()
    count, counts = -(-options.programs // len(chosen)), Counter[str]()
    for number in range(count):
        picked = chosen[:: max(1, len(chosen) // options.programs)] if count == 1 else chosen
        for case in cases(picked, options.seed, options.numerics, number):
            counts[case.outcome] += 1
            if case.outcome not in FINE:
                print(f"{case.outcome}: {case.name}\n{case.reason}", flush=True)
    print(", ".join(f"{number} {outcome}" for outcome, number in counts.items()))
    return int(not FINE.issuperset(counts))


if __name__ == "__main__":
    sys.exit(main())
