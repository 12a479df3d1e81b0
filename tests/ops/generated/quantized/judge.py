"""Programs compiled together, apart where anything is wrong, and their results against what is allowed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import CompilerError, UnsupportedOp
from kcache_compiler.types import CompileOptions
from kcache_grpc.model.target import host_target
from tests.ops.generated.judge import Verdict
from tests.ops.generated.quantized.draft import BUFFERS, Check, Draft
from tests.ops.harness.native import run
from tests.ops.harness.values import decode


def text_of(programs: Sequence[Draft]) -> str:
    """One module whose ``main`` does what all of them do."""
    functions: list[str] = []
    calls: list[str] = []
    arguments: list[str] = []
    results: list[tuple[str, str]] = []
    for number, part in enumerate(programs):
        names = [f"%in{len(arguments) + place}" for place in range(len(part.arguments))]
        parameters = ", ".join(f"%a{place}: {type}" for place, type in enumerate(part.arguments))
        types = ", ".join(check.type for check in part.checks)
        body = "\n  ".join([*part.lines, f"return {', '.join(part.returned)} : {types}"])
        private = (
            f"func.func private @part{number}({parameters}) -> ({types}) {{\n  {body}\n}}\n{part.functions}"
        )
        functions.append(private.replace("@inner", f"@inner{number}"))
        arguments += [f"{name}: {type}" for name, type in zip(names, part.arguments, strict=True)]
        many = f":{len(part.checks)}" if len(part.checks) > 1 else ""
        calls.append(
            f"%out{number}{many} = func.call @part{number}({', '.join(names)}) : "
            f"({', '.join(part.arguments)}) -> ({types})"
        )
        for place, check in enumerate(part.checks):
            results.append((f"%out{number}#{place}" if many else f"%out{number}", check.type))
    names, kinds = ", ".join(name for name, _ in results), ", ".join(kind for _, kind in results)
    inside = "\n  ".join([*calls, f"return {names} : {kinds}"])
    return f"func.func @main({', '.join(arguments)}) -> ({kinds}) {{\n  {inside}\n}}\n" + "".join(functions)


def judge(programs: Sequence[Draft], level: int = 1, numerics: str = "strict") -> list[Verdict]:
    """A verdict of each program."""
    text = text_of(programs)
    try:
        form = canonicalize(text.encode(), "stablehlo", numerics)
        options = CompileOptions(numerics=numerics, opt_level=level)
        kernel = compile_spec(form.spec_text, form.arg_spec, host_target().isa, options, lambda _: None)
    except CompilerError as error:
        if len(programs) == 1:
            return [_rejection(error)]
        half = len(programs) // 2
        return [*judge(programs[:half], level, numerics), *judge(programs[half:], level, numerics)]
    inputs = [content for program in programs for content in program.inputs]
    got = run(kernel, inputs, [constant.content for constant in form.constants])
    verdicts: list[Verdict] = []
    for case in programs:
        verdicts.append(_compare(case, got[: len(case.checks)]))
        got = got[len(case.checks) :]
    return verdicts


def _rejection(error: CompilerError) -> Verdict:
    if isinstance(error, UnsupportedOp):
        return Verdict("rejected", f"{error.op}: {error}")
    return Verdict("error", f"{type(error).__name__}: {error}")


def _compare(program: Draft, got: Sequence[bytes]) -> Verdict:
    for index, (check, content) in enumerate(zip(program.checks, got, strict=True)):
        wrong = _difference(check, content)
        if wrong:
            return Verdict("wrong", f"result {index} ({check.type}): {wrong}\n{text_of([program])}")
    return Verdict("right")


def _difference(check: Check, content: bytes) -> str:
    """What differs, in words."""
    raw = np.frombuffer(content, BUFFERS[check.dtype]).reshape(check.low.shape)
    floats = "f" in check.dtype
    values = decode(check.dtype, raw) if floats else raw.astype(np.int64)
    if check.dtype in ("i2", "i4", "u2", "u4"):
        size = 1 << int(check.dtype[1:])
        values = values % size - (size * (values % size >= size // 2) if check.dtype[0] == "i" else 0)
    wrong = ~((check.low <= values) & (values <= check.high))
    if floats:
        wrong &= ~(np.isnan(check.low) | np.isnan(check.high))
    if not wrong.any():
        return ""
    place = tuple(int(axis[0]) for axis in np.nonzero(wrong))
    wanted = f"{check.low[place]} to {check.high[place]}"
    count = f"{int(wrong.sum())} of {values.size} values differ"
    return f"{count}, first at {place}: {values[place]} is not {wanted}"
