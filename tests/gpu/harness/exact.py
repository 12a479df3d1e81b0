"""A program on f16 or bf16 with f64 in their place: what its results are near, whatever rounds on the way."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import CompilerError
from kcache_compiler.types import CompileOptions
from kcache_grpc.model.target import host_target
from tests.ops.harness.native import run
from tests.ops.harness.programs import OpProgram
from tests.ops.harness.reference import argument_types
from tests.ops.harness.values import DTYPES, decode

_NARROW = re.compile(r"b?f16")


def exact(whole: OpProgram) -> list[bytes] | None:
    """The results in f64; None of a program that has no such twin, as it looks at bits."""
    wide = replace(whole, text=_NARROW.sub("f64", whole.text), inputs=_inputs(whole))
    try:
        canonical = canonicalize(wide.text.encode(), "stablehlo", "strict")
        options = CompileOptions(numerics="strict", opt_level=1)
        isa = host_target().isa
        kernel = compile_spec(canonical.spec_text, canonical.arg_spec, isa, options, lambda _: None)
    except CompilerError:
        return None
    return run(kernel, wide.inputs, [constant.content for constant in canonical.constants])


def _inputs(whole: OpProgram) -> list[bytes]:
    contents = list[bytes]()
    for kind, content in zip(argument_types(whole.text), whole.inputs, strict=True):
        narrow = _NARROW.search(kind)
        if narrow is None:
            contents.append(content)
        else:
            bits = np.frombuffer(content, DTYPES[narrow[0]][1])
            contents.append(decode(narrow[0], bits).astype("<f8").tobytes())
    return contents
