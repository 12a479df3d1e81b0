"""What becomes of programs with open sizes: one kernel each, run at every tuple."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import CompilerError, InvalidProgram, UnsupportedOp
from kcache_compiler.types import Canonical, CompiledKernel, CompileOptions
from kcache_grpc.model.target import host_target
from tests.ops.generated.dynamic.programs import OpenProgram
from tests.ops.generated.judge import Verdict, expected_of
from tests.ops.harness.compare import difference
from tests.ops.harness.native import run
from tests.ops.harness.programs import OpProgram
from tests.ops.harness.reference import ReferenceError, ReferenceInterpreter, argument_types


@dataclass(frozen=True)
class Manner:
    """How a program is compiled, and on how many threads it runs."""

    level: int = 1
    numerics: str = "strict"
    workers: int = 1


def judge(program: OpenProgram, reference: ReferenceInterpreter, manner: Manner | None = None) -> Verdict:
    """The verdict of a program."""
    manner = manner or Manner()
    try:
        canonical = canonicalize(program.text.encode(), "stablehlo", manner.numerics)
        options = CompileOptions(numerics=manner.numerics, opt_level=manner.level)
        kernel = compile_spec(
            canonical.spec_text, canonical.arg_spec, host_target().isa, options, lambda _: None
        )
    except UnsupportedOp as error:
        return Verdict("rejected", f"{error.op}: {error}\n{program.text}")
    except InvalidProgram as error:
        return Verdict("error", f"InvalidProgram: {error}\n{program.text}")
    except CompilerError as error:
        return Verdict("error", f"{type(error).__name__}: {error}\n{program.text}")
    return _compared(program, canonical, kernel, reference, manner.workers)


def _compared(
    program: OpenProgram,
    canonical: Canonical,
    kernel: CompiledKernel,
    reference: ReferenceInterpreter,
    workers: int,
) -> Verdict:
    try:
        whole = _expected(program.instances, reference)
    except ReferenceError as error:
        return Verdict("no-oracle", str(error).split("\n")[0])
    for instance, expected in zip(program.instances, whole, strict=True):
        try:
            got = called(canonical, kernel, instance, workers)
        except RuntimeError as error:
            outcome = "partly" if "returned 1" in str(error) else "wrong"
            return Verdict(outcome, f"{error}\n{program.text}\n{instance.text}")
        for place, (dtype, left, right) in enumerate(zip(instance.result_dtypes, got, expected, strict=True)):
            wrong = difference(dtype, left, right, instance.ulps, instance.absolute)
            if wrong:
                return Verdict("wrong", f"result {place} ({dtype}): {wrong}\n{program.text}\n{instance.text}")
    for instance in program.broken:
        try:
            called(canonical, kernel, instance, workers)
        except (RuntimeError, ValueError) as error:
            if "outside its buffers" in str(error):
                return Verdict("wrong", f"{error}\n{program.text}\n{instance.text}")
            continue
        return Verdict("unguarded", f"{program.text}\n{instance.text}")
    return Verdict("right")


def _expected(instances: Sequence[OpProgram], reference: ReferenceInterpreter) -> list[list[bytes]]:
    """By instance, in one evaluation where the interpreter knows them all."""
    flat = expected_of(instances, reference)
    groups: list[list[bytes]] = []
    for instance in instances:
        count = len(instance.result_dtypes)
        groups, flat = [*groups, flat[:count]], flat[count:]
    return groups


def called(
    canonical: Canonical, kernel: CompiledKernel, instance: OpProgram, workers: int = 1
) -> list[bytes]:
    """Results of the kernel of open sizes on the inputs of one instance."""
    shapes = [_sizes(kind) for kind in argument_types(instance.text)]
    for place in canonical.size_arguments:
        kind = np.int64 if canonical.arg_spec.args[place].dtype == "i64" else np.int32
        shapes[place] = [int(size) for size in np.frombuffer(instance.inputs[place], kind)]
    dims = tuple(shapes[symbol.arg][symbol.axis] for symbol in kernel.interface.symbols)
    return run(kernel, instance.inputs, [constant.content for constant in canonical.constants], dims, workers)


def _sizes(kind: str) -> list[int]:
    return [int(size) for size in kind.removeprefix("tensor<").split("x") if size.isdigit()]
