"""What becomes of programs: compiled together, apart where anything is wrong; compared with the oracle."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import CompilerError, UnsupportedOp
from kcache_compiler.types import Canonical, CompiledKernel, CompileOptions
from kcache_grpc.model.target import host_target
from tests.ops.harness.compare import difference
from tests.ops.harness.native import run
from tests.ops.harness.programs import OpProgram
from tests.ops.harness.reference import ReferenceError, ReferenceInterpreter

OUTCOMES = ("right", "rejected", "wrong", "crash", "error", "no-oracle")
_HEAD = re.compile(r"func\.func @main\((.*?)\) -> \((.*?)\) \{\n", re.DOTALL)
_PLAIN_HEAD = re.compile(r"func\.func @main\((.*?)\) -> (tensor<(?:[^<>]|<[^<>]*>)*>) \{\n", re.DOTALL)


@dataclass(frozen=True)
class Verdict:
    """``outcome`` is one of ``OUTCOMES``; why, where it is not right."""

    outcome: str
    reason: str = ""


def together(programs: Sequence[OpProgram]) -> OpProgram:
    """One program that does what all of them do: functions of one ``main``."""
    calls: list[str] = []
    arguments: list[str] = []
    results: list[tuple[str, str]] = []
    functions: list[str] = []
    for number, program in enumerate(programs):
        match = _HEAD.search(program.text) or _PLAIN_HEAD.search(program.text)
        assert match is not None, program.text
        types = [
            part.strip() for part in re.findall(r"%\w+:\s*(tensor<(?:[^<>]|<[^<>]*>)*>)", match.group(1))
        ]
        names = [f"%in{len(arguments) + place}" for place in range(len(types))]
        arguments += [f"{name}: {type}" for name, type in zip(names, types, strict=True)]
        count = len(program.result_dtypes)
        outputs = [f"%out{number}"] if count == 1 else [f"%out{number}#{place}" for place in range(count)]
        results += list(zip(outputs, re.findall(r"tensor<(?:[^<>]|<[^<>]*>)*>", match.group(2)), strict=True))
        many = f":{count}" if count != 1 else ""
        calls.append(
            f"%out{number}{many} = func.call @part{number}({', '.join(names)}) : "
            f"({', '.join(types)}) -> ({match.group(2)})"
        )
        text = program.text.replace("func.func @main", f"func.func private @part{number}")
        functions.append(text.replace("@inner", f"@inner{number}"))
    names = ", ".join(name for name, _ in results)
    kinds = ", ".join(kind for _, kind in results)
    body = "\n  ".join([*calls, f"return {names} : {kinds}"])
    text = f"func.func @main({', '.join(arguments)}) -> ({kinds}) {{\n  {body}\n}}\n" + "".join(functions)
    inputs = [data for program in programs for data in program.inputs]
    dtypes = [dtype for program in programs for dtype in program.result_dtypes]
    return OpProgram(programs[0].op, programs[0].dtype, text, inputs, dtypes)


def judge(
    programs: Sequence[OpProgram], reference: ReferenceInterpreter, level: int = 1, numerics: str = "strict"
) -> list[Verdict]:
    """A verdict of each program, compiled at an optimization level under a class of numerics."""
    if len(programs) > 1:
        try:
            got = execute(together(programs), level, numerics)
        except CompilerError:
            return _halves(programs, reference, level, numerics)
    else:
        try:
            got = execute(programs[0], level, numerics)
        except CompilerError as error:
            return [_rejection(error)]
    try:
        whole = expected_of(programs, reference)
    except ReferenceError as error:
        if len(programs) > 1:
            return _halves(programs, reference, level, numerics)
        return [Verdict("no-oracle", str(error).split("\n")[0])]
    verdicts: list[Verdict] = []
    for program in programs:
        count = len(program.result_dtypes)
        verdicts.append(_compare(program, got[:count], whole[:count]))
        got, whole = got[count:], whole[count:]
    return verdicts


def compiled(programs: Sequence[OpProgram], target: str, level: int = 1) -> list[Verdict]:
    """A verdict of each program, compiled for a target and not run: the right ones compile."""
    try:
        _kernel(together(programs) if len(programs) > 1 else programs[0], target, level)
    except CompilerError as error:
        if len(programs) == 1:
            return [_rejection(error)]
        half = len(programs) // 2
        return [*compiled(programs[:half], target, level), *compiled(programs[half:], target, level)]
    return [Verdict("right")] * len(programs)


def _rejection(error: CompilerError) -> Verdict:
    if isinstance(error, UnsupportedOp):
        return Verdict("rejected", f"{error.op}: {error}")
    return Verdict("error", f"{type(error).__name__}: {error}")


def _halves(
    programs: Sequence[OpProgram], reference: ReferenceInterpreter, level: int, numerics: str
) -> list[Verdict]:
    half = len(programs) // 2
    parts = programs[:half], programs[half:]
    return [verdict for part in parts for verdict in judge(part, reference, level, numerics)]


def execute(program: OpProgram, level: int, numerics: str = "strict") -> list[bytes]:
    """Results of the kernel."""
    canonical, kernel = _kernel(program, host_target().isa, level, numerics)
    return run(kernel, program.inputs, [constant.content for constant in canonical.constants])


def _kernel(
    program: OpProgram, target: str, level: int, numerics: str = "strict"
) -> tuple[Canonical, CompiledKernel]:
    canonical = canonicalize(program.text.encode(), "stablehlo", numerics)
    options = CompileOptions(numerics=numerics, opt_level=level)
    return canonical, compile_spec(canonical.spec_text, canonical.arg_spec, target, options, lambda _: None)


def expected_of(programs: Sequence[OpProgram], reference: ReferenceInterpreter) -> list[bytes]:
    """Results by the oracle, of all programs in order."""
    asked = [
        replace(program, text=program.oracle or program.text)
        for program in programs
        if program.expected is None
    ]
    answers: list[bytes] = []
    if asked:
        whole = together(asked) if len(asked) > 1 else asked[0]
        answers = reference.evaluate(whole.text, whole.inputs)
    outputs: list[bytes] = []
    for program in programs:
        if program.expected is not None:
            outputs += program.expected
        else:
            count = len(program.result_dtypes)
            outputs, answers = outputs + answers[:count], answers[count:]
    return outputs


def _compare(program: OpProgram, got: list[bytes], expected: list[bytes]) -> Verdict:
    for index, (dtype, left, right) in enumerate(zip(program.result_dtypes, got, expected, strict=True)):
        wrong = difference(dtype, left, right, program.ulps, program.absolute)
        if wrong:
            return Verdict("wrong", f"result {index} ({dtype}): {wrong}\n{program.text}")
    return Verdict("right")
