"""What expansion does to a module: bodies in place of operations, and nothing else."""

import numpy as np
import pytest
from torch_mlir import ir

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.inline_math_functions import inline_math_functions
from tests.math.harness import DTYPES, Compiled, compiled


def expanded(text: str) -> ir.Module:
    with mlir.new_context(), ir.Location.unknown():
        module = mlir.parse(text)
        inline_math_functions(module)
        assert module.operation.verify()
        return module


GENERIC = """
#map = affine_map<(d0) -> (d0)>
func.func private @other(f32) -> f32
func.func @f(%a: tensor<?xf32>, %b: tensor<?xf32>) -> tensor<?xf32> {
  %r = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%a : tensor<?xf32>) outs(%b : tensor<?xf32>) {
  ^bb0(%x: f32, %o: f32):
    %0 = math.exp %x : f32
    %1 = math.tanh %0 : f32
    %2 = func.call @other(%1) : (f32) -> f32
    %3 = math.sqrt %2 : f32
    linalg.yield %3 : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}
"""


def test_bodies_of_generics() -> None:
    module = expanded(GENERIC)
    names = [mlir.name_of(op) for op in mlir.walk(module)]
    assert "math.exp" not in names
    assert "math.tanh" not in names
    assert names.count("math.sqrt") == 1
    assert names.count("func.call") == 1
    assert names.count("func.func") == 2
    allowed = {
        "math.fma",
        "math.sqrt",
        "linalg.generic",
        "linalg.yield",
        "func.func",
        "func.return",
        "func.call",
    }
    assert all(n.startswith("arith.") or n in allowed or n == "builtin.module" for n in names)


def test_a_module_without_math_is_left_alone() -> None:
    text = "func.func @f(%x: f32) -> f32 {\n  %0 = arith.addf %x, %x : f32\n  return %0 : f32\n}"
    with mlir.new_context(), ir.Location.unknown():
        module = mlir.parse(text)
        before = str(module)
        inline_math_functions(module)
        assert str(module) == before


def test_calls_and_their_declarations_go() -> None:
    module = expanded(
        """
        func.func private @kcm_lgamma_f32(f32) -> f32
        func.func @f(%x: f32) -> f32 {
          %0 = func.call @kcm_lgamma_f32(%x) : (f32) -> f32
          return %0 : f32
        }
        """
    )
    assert "kcm_" not in str(module)


ONE = "func.func @f(%x: {type}) -> {type} {{ %0 = math.exp %x : {type} return %0 : {type} }}"


@pytest.mark.parametrize(
    ("text", "op"),
    [
        (ONE.format(type="f80"), "math.exp"),
        (ONE.format(type="tensor<4xf32>"), "math.exp"),
        (
            "func.func private @kcm_airy_f32(f32) -> f32\n"
            "func.func @f(%x: f32) -> f32 { %0 = call @kcm_airy_f32(%x) : (f32) -> f32 return %0 : f32 }",
            "math.airy",
        ),
    ],
)
def test_an_unknown_function_or_type_is_rejected_by_name(text: str, op: str) -> None:
    with pytest.raises(UnsupportedOp, match=op) as caught:
        expanded(text)
    assert caught.value.op == op
    assert caught.value.location


UNARY = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "cos", "cosh", "erf", "erfc", "exp"),
    *("exp2", "expm1", "log", "log10", "log1p", "log2", "round", "rsqrt", "sin", "sinh", "tan", "tanh"),
)


@pytest.mark.parametrize(
    "op",
    [
        *(f"math.{n} %x : f32" for n in UNARY),
        *(f"math.{n} %x, %y : f32" for n in ("atan2", "powf")),
        "arith.remf %x, %y : f32",
    ],
)
def test_every_operation_of_the_dialect(op: str) -> None:
    text = f"func.func @f(%x: f32, %y: f32) -> f32 {{\n %0 = {op}\n return %0 : f32\n}}"
    kept = {"math.fma", "math.sqrt", "math.roundeven", "math.trunc"}
    module = expanded(text)
    names = {mlir.name_of(o) for o in mlir.walk(module)}
    assert {n for n in names if n.startswith("math.")} <= kept


VECTORS = """
func.func @run(%p: memref<1000000000x{type}> {{llvm.noalias}}, %q: memref<1000000000x{type}> {{llvm.noalias}},
    %out: memref<1000000000x{type}> {{llvm.noalias}}, %n: index) {{
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %n step %c4 {{
    %x = vector.load %p[%i] : memref<1000000000x{type}>, vector<4x{type}>
    %y = vector.load %q[%i] : memref<1000000000x{type}>, vector<4x{type}>
    %r = {op} : vector<4x{type}>
    vector.store %r, %out[%i] : memref<1000000000x{type}>, vector<4x{type}>
  }}
  return
}}
"""


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(
    ("op", "name"),
    [("math.powf %x, %y", "pow"), ("math.atan2 %x, %y", "atan2"), ("arith.remf %x, %y", "rem")],
)
def test_vectors_have_the_bits_of_scalars(
    op: str, name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.normal(size=64).astype(DTYPES[dtype]) * 10 for _ in range(2))
    want = compiled(name, dtype, 2)(x, y)
    monkeypatch.setattr("tests.math.harness.loop_text", lambda *_: VECTORS.format(op=op, type=dtype))
    got = Compiled(f"{name}_{dtype}", (dtype, dtype), dtype)(x, y)
    assert np.array_equal(got, want, equal_nan=True)


def test_expansion_is_deterministic() -> None:
    assert str(expanded(GENERIC)) == str(expanded(GENERIC))
