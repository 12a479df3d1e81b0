"""Evaluates programs with StableHLO's reference interpreter, which may abort: a process of its own.

Standard input: lines of JSON, each ``[text, [[dtype, dims, hex bytes], ...]]``; standard output: a line for
each, the results as ``[[dtype, dims, hex bytes], ...]`` or ``{"error": ...}``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from torch_mlir import ir as _ir  # pyright: ignore
from torch_mlir._mlir_libs import _stablehlo  # pyright: ignore

from kcache_compiler.frontends.limits import Limits
from kcache_compiler.mlir.context import new_context, parse_module, run_passes
from kcache_compiler.spec.graph.constants import dense_text, is_resource, read_constant
from kcache_compiler.spec.graph.native import TypeReader
from tests.recognition.mutations import edit

ir: Any = _ir
PREPARE = "builtin.module(inline,symbol-dce,func.func(chlo-legalize-to-stablehlo))"
TYPES = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "int32": "i32",
    "int64": "i64",
    "bool": "i1",
    "uint32": "ui32",
}


#: A context keeps every type and attribute that it ever saw.
PROGRAMS_PER_CONTEXT = 100


def evaluate(
    context: Any, text: str, arguments: list[tuple[str, list[int], str]]
) -> list[tuple[str, list[int], str]]:
    with context, ir.Location.unknown():
        module = parse_module(text, context)
        _plain_constants(module)
        run_passes(module, PREPARE)
        constants = [ir.Attribute.parse(_literal(*argument)) for argument in arguments]
        return [_read(result) for result in _stablehlo.eval_module(module, constants)]


def _plain_constants(module: Any) -> None:
    """Write the constants that the interpreter does not read as those that it does."""
    for op in edit.everywhere(module):
        if op.name == "arith.constant" or (op.name == "stablehlo.constant" and is_resource(op)):
            value = op.attributes["value"]
            if is_resource(op):
                constant = read_constant(op, TypeReader(Limits())(op.results[0].type))
                value = ir.Attribute.parse(dense_text(op, constant))
            operation = ir.Operation.create(
                "stablehlo.constant",
                results=[value.type],
                attributes={"value": value},
                ip=ir.InsertionPoint(op),
            )
            op.results[0].replace_all_uses_with(operation.results[0])
            op.erase()


def _literal(dtype: str, dims: list[int], content: str) -> str:
    type = f"tensor<{''.join(f'{d}x' for d in dims)}{TYPES[dtype]}>"
    if dtype == "bool":
        return f"dense<{'true' if content.startswith('01') else 'false'}> : {type}"
    return f'dense<"0x{content}"> : {type}'


def _read(attribute: Any) -> tuple[str, list[int], str]:
    array = np.array(attribute)
    return str(array.dtype), list(array.shape), array.tobytes().hex()


def main() -> None:
    context = new_context()
    for number, line in enumerate(sys.stdin):
        if number % PROGRAMS_PER_CONTEXT == 0:
            context = new_context()
        try:
            answer: object = evaluate(context, *json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:1000]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
