"""Evaluates modules with StableHLO's reference interpreter, which may abort: run as a process of its own.

Standard input: lines of JSON, ``[module text, [MLIR literals of the arguments]]``. Standard output: a line of
JSON for each, the results as text (floats that are NaN as ``nan``), or ``{"error": ...}``.
"""

from __future__ import annotations

import json
import re
import sys

from torch_mlir import ir  # pyright: ignore
from torch_mlir._mlir_libs import _stablehlo  # pyright: ignore

from kcache_compiler.mlir.context import new_context, parse_module, run_passes

PREPARE = "builtin.module(inline,symbol-dce,func.func(chlo-legalize-to-stablehlo))"
#: The interpreter has no ``dot``; this pass rejects ``map``, which it has.
DEPRECATED = "builtin.module(func.func(stablehlo-legalize-deprecated-ops))"


def evaluate(text: str, arguments: list[str]) -> list[str]:
    context = new_context()
    with context:
        module = parse_module(text, context)
        run_passes(module, PREPARE)
        if "stablehlo.dot " in text:
            run_passes(module, DEPRECATED)
        values = [ir.Attribute.parse(argument, context) for argument in arguments]
        return [
            re.sub(r"0x[7F]F[8-9A-F]\w+|0x7FC\w*|0xFFC\w*|0x[7F][DE]\w\w\b", "nan", str(r))
            for r in _stablehlo.eval_module(module, values)
        ]


def main() -> None:
    for line in sys.stdin:
        text, arguments = json.loads(line)
        try:
            answer: object = evaluate(text, arguments)
        except Exception as error:
            answer = {"error": str(error)[:2000]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
