"""Draws a program by seed and number, compiles it, runs it alone and in slices, and compares."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import CompilerError, UnsupportedOp
from kcache_compiler.types import CompileOptions
from kcache_grpc.model.target import host_target
from tests.compiler.codegen_harness import NUMPY, Kernel, threaded_host
from tests.linalg_programs.draft import DTYPES, Draft, Inexact, Value
from tests.linalg_programs.moving import branched, cut_or_put, looped, padded, reshaped
from tests.linalg_programs.structured import generic, named, window
from tests.ops.generated.judge import Verdict

_STEPS: tuple[Callable[[Draft], None], ...] = (
    *(generic, generic, generic, generic, named, named, window),
    *(cut_or_put, cut_or_put, padded, reshaped, looped, branched),
)


def program(seed: int, number: int) -> tuple[str, list[Value], list[Value]]:
    """Text, arguments and results of a program."""
    rng = random.Random(f"{seed} {number}")
    draft = Draft(rng, rng.choice([40, 600, 8000]))
    for _ in range(rng.randint(1, 3)):
        draft.argument(rng.choice(list(DTYPES)), rng.choices(draft.sizes, k=rng.randint(1, 2)))
    for _ in range(rng.choice([2, 4, 8, 14])):
        kept = len(draft.lines), len(draft.values), len(draft.arguments)
        try:
            with np.errstate(over="ignore"):
                rng.choice(_STEPS)(draft)
        except Inexact:
            del draft.lines[kept[0] :], draft.values[kept[1] :], draft.arguments[kept[2] :]
    results = [rng.choice(draft.values[-6:]) for _ in range(rng.randint(1, 4))]
    return draft.text(results), draft.arguments, results


def judge(seed: int, number: int) -> Verdict:
    """What becomes of a program."""
    text, arguments, results = program(seed, number)
    rng = random.Random(number)
    numerics, level = rng.choice(["strict", "default"]), rng.choice([1, 3])
    try:
        form = canonicalize(text.encode(), "linalg", numerics)
        options = CompileOptions(numerics=numerics, opt_level=level)
        kernel = Kernel(
            compile_spec(form.spec_text, form.arg_spec, host_target().isa, options, lambda _: None)
        )
    except UnsupportedOp as error:
        return Verdict("rejected", f"{error.op}: {error}")
    except CompilerError as error:
        return Verdict("error", f"{type(error).__name__}: {error}")
    constants = [
        np.frombuffer(constant.content, NUMPY[constant.type.dtype]).reshape(
            tuple(map(int, constant.type.dims))
        )
        for constant in form.constants
    ]
    inputs = [*(value.content for value in arguments), *constants]
    for host in (None, threaded_host(3, lambda starts: rng.sample(starts, len(starts)))):
        for place, (got, wanted) in enumerate(zip(kernel(*inputs, host=host), results, strict=True)):
            if not np.array_equal(got, wanted.content):
                return Verdict("wrong", f"result {place}, {'alone' if host is None else 'in slices'}")
    return Verdict("right")
