"""Programs that are small to send and expensive to read."""

from __future__ import annotations

import io

from kcache_compiler.mlir import context as mlir

_ADD = """
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
  %0 = "stablehlo.add"(%a, %a) {{expanded = #a{last}, name = {seed} : i64}}
    : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %a : tensor<4xf32>
}}
"""


def alias_bomb(levels: int = 26, seed: int = 0) -> bytes:
    """Bytecode of a few hundred bytes with an attribute of 2**levels elements, most of them shared.

    Its addition has a result of a wrong type: the diagnostic prints the attribute. ``seed`` makes programs of
    different digests, so that no failure is remembered.
    """
    return _with_wrong_result(_nested(levels) + _ADD.format(last=levels - 1, seed=seed))


def _nested(levels: int) -> str:
    lines = ["#a0 = [1 : i64, 2 : i64]"]
    lines += [f"#a{level} = [#a{level - 1}, #a{level - 1}]" for level in range(1, levels)]
    return "\n".join(lines)


def _with_wrong_result(text: str) -> bytes:
    native = mlir.native_ir()
    context = mlir.new_context()
    module = mlir.parse_module(text, context)
    add = next(op for op in mlir.all_operations(module.operation) if op.name == "stablehlo.add")
    add.results[0].set_type(native.Type.parse("tensor<5xf32>", context))
    written = io.BytesIO()
    module.operation.write_bytecode(written)
    return written.getvalue()
