"""``python -m tests.ops.generated.quantized.passes``: sums and products of i8 with three scales, by the
toolchain's ``stablehlo-legalize-quant-to-math`` and by ours, against the specification's formulas.
"""

from __future__ import annotations

import numpy as np

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.mlir import context as mlir
from kcache_compiler.types import CompileOptions
from kcache_grpc.model.target import host_target
from tests.ops.generated.quantized.element import Element, Ints, rounded
from tests.ops.harness.native import run

_PASSES = "builtin.module(func.func(stablehlo-legalize-quant-to-math,chlo-legalize-to-stablehlo))"
_ROUNDS = 30


def main() -> None:
    """Count integers that differ."""
    rng = np.random.default_rng(0)
    every = np.arange(-128, 128)
    for op, function in (("add", np.add), ("multiply", np.multiply)):
        ours = theirs = 0
        for _ in range(_ROUNDS):
            elements = [
                Element("i8", -128, 127, "f32", (float(np.float32(scale)),), (int(zero),))
                for scale, zero in zip(rng.uniform(0.01, 1, 3), rng.integers(-20, 20, 3), strict=True)
            ]
            left, right = every, rng.permutation(every)
            floats = function(elements[0].dequantized(left), elements[1].dequantized(right))
            wanted, _ = elements[2].quantized(rounded("f32", floats))
            text = _text(op, elements)
            ours += int((_run(text, left, right) != wanted).sum())
            theirs += int((_run(_legalized(text), left, right) != wanted).sum())
        print(f"{op}: of {_ROUNDS * len(every)} integers {ours} differ, by the toolchain's pass {theirs}")


def _text(op: str, elements: list[Element]) -> str:
    a, b, c = (element.tensor((256,)) for element in elements)
    return (
        f'func.func @main(%a: {a}, %b: {b}) -> {c} {{\n  %0 = "stablehlo.{op}"(%a, %b) : ({a}, {b}) -> {c}\n'
        f"  return %0 : {c}\n}}\n"
    )


def _legalized(text: str) -> str:
    module = mlir.parse_module(text, mlir.new_context())
    mlir.run_passes(module, _PASSES)
    return str(module)


def _run(text: str, *inputs: Ints) -> Ints:
    form = canonicalize(text.encode(), "stablehlo", "strict")
    options = CompileOptions(numerics="strict", opt_level=1)
    kernel = compile_spec(form.spec_text, form.arg_spec, host_target().isa, options, lambda _: None)
    (content,) = run(kernel, [array.astype("i1").tobytes() for array in inputs], [])
    return np.frombuffer(content, "i1").astype(np.int64)


if __name__ == "__main__":
    main()
