"""What a spec renders to computes what the program computed: bit for bit in the reference interpreter, on special values."""

# ruff: noqa: E501  (MLIR reads best unbroken)
from __future__ import annotations

import pytest

from kcache_compiler.spec import canonicalize
from kcache_compiler.spec.rendering.stablehlo import render
from kcache_compiler.types import Canonical
from tests.compiler.interpreter import evaluate, literal, special
from tests.compiler.variants import NAMES, text_of


def canonical(text: str) -> Canonical:
    """The spec under ``strict``: other classes may change values."""
    return canonicalize(text.encode(), "stablehlo", "strict")


def jobs(text: str, seed: int, integers: int = 5) -> list[tuple[str, list[str]]]:
    """The program, and its rendered spec, on the same arguments."""
    form = canonical(text)
    arguments = [special(t, seed + i, integers) for i, t in enumerate(form.arg_spec.args)]
    constants = [literal(c.type, c.content) for c in form.constants]
    return [(text, arguments), (render(form.spec_text, form.arg_spec), arguments + constants)]


def read_back(text: str) -> str:
    """The spec of the rendered spec."""
    form = canonical(text)
    inputs = len(form.arg_spec.args)
    lifted = {inputs + c.position: c.digest for c in form.constants}
    rendered = render(form.spec_text, form.arg_spec).encode()
    return canonicalize(rendered, "stablehlo", "strict", lifted=lifted).spec_text


def program(body: str, arguments: str, results: str) -> str:
    return f"func.func @main({arguments}) -> {results} {{\n{body}\n}}\n"


def unary(op: str, dtype: str = "f32", result: str | None = None) -> str:
    source, target = f"tensor<2x7x{dtype}>", f"tensor<2x7x{result or dtype}>"
    return program(f'%r = "{op}"(%x) : ({source}) -> {target}\nreturn %r : {target}', f"%x: {source}", target)


def binary(op: str, dtype: str = "f32", attributes: str = "", result: str | None = None) -> str:
    source, target = f"tensor<2x7x{dtype}>", f"tensor<2x7x{result or dtype}>"
    body = f'%r = "{op}"(%x, %y) {attributes} : ({source}, {source}) -> {target}\nreturn %r : {target}'
    return program(body, f"%x: {source}, %y: {source}", target)


CASES: dict[str, str] = {}

for _op in [
    "abs",
    "cbrt",
    "ceil",
    "cosine",
    "exponential",
    "exponential_minus_one",
    "floor",
    "log",
    "log_plus_one",
    "logistic",
    "negate",
    "round_nearest_afz",
    "round_nearest_even",
    "rsqrt",
    "sign",
    "sine",
    "sqrt",
    "tan",
    "tanh",
]:
    for _dtype in ("f32", "f16", "f64", "bf16"):
        CASES[f"{_op} {_dtype}"] = unary(f"stablehlo.{_op}", _dtype)
for _op in ["abs", "exponential", "log", "negate", "sqrt"]:
    CASES[f"{_op} c64"] = unary(f"stablehlo.{_op}", "complex<f32>", "f32" if _op == "abs" else None)
for _op in ["erf", "erfc", "acos", "asinh", "atanh", "cosh", "sinh", "lgamma", "digamma", "square"]:
    CASES[f"chlo {_op}"] = unary(f"chlo.{_op}")
CASES["chlo is_inf"] = unary("chlo.is_inf", "f32", "i1")
CASES["is_finite"] = unary("stablehlo.is_finite", "f32", "i1")
for _dtype in ("f32", "bf16", "f64", "i32", "ui8", "i64"):
    for _op in ["add", "subtract", "multiply", "maximum", "minimum"]:
        CASES[f"{_op} {_dtype}"] = binary(f"stablehlo.{_op}", _dtype)
for _op in ["divide", "power", "remainder", "atan2"]:
    CASES[f"{_op} f32"] = binary(f"stablehlo.{_op}")
for _op in ["and", "or", "xor", "shift_left", "shift_right_arithmetic", "shift_right_logical"]:
    CASES[f"{_op} i32"] = binary(f"stablehlo.{_op}", "i32")
for _op in ["and", "or", "xor", "not"]:
    CASES[f"{_op} i1"] = (unary if _op == "not" else binary)(f"stablehlo.{_op}", "i1")
for _direction in ["EQ", "NE", "GE", "GT", "LE", "LT"]:
    for _dtype in ("f32", "i32", "ui32", "i1"):
        _attributes = f"{{comparison_direction = #stablehlo<comparison_direction {_direction}>}}"
        CASES[f"compare {_direction} {_dtype}"] = binary("stablehlo.compare", _dtype, _attributes, "i1")
    _total = f"{{comparison_direction = #stablehlo<comparison_direction {_direction}>, compare_type = #stablehlo<comparison_type TOTALORDER>}}"
    CASES[f"compare {_direction} total order"] = binary("stablehlo.compare", "f32", _total, "i1")
for _from, _to in (
    ("f32", "i32"),
    ("i32", "f32"),
    ("f32", "bf16"),
    ("bf16", "f64"),
    ("i1", "f32"),
    ("f32", "i1"),
    ("i8", "ui16"),
):
    if _from != "f32" or _to != "i32":
        CASES[f"convert {_from} {_to}"] = unary("stablehlo.convert", _from, _to)

OTHERS: dict[str, tuple[str, str, str]] = {
    "slice": (
        "%r = stablehlo.slice %x [0:3:2, 1:4] : (tensor<3x4xf32>) -> tensor<2x3xf32>",
        "%x: tensor<3x4xf32>",
        "tensor<2x3xf32>",
    ),
    "pad": (
        "%c = stablehlo.constant dense<-0.0> : tensor<f32>\n"
        "%r = stablehlo.pad %x, %c, low = [1, 0], high = [0, 2], interior = [1, 0] : (tensor<3x4xf32>, tensor<f32>) -> tensor<6x6xf32>",
        "%x: tensor<3x4xf32>",
        "tensor<6x6xf32>",
    ),
    "concatenate": (
        "%r = stablehlo.concatenate %x, %x, %x, dim = 1 : (tensor<3x1xf32>, tensor<3x1xf32>, tensor<3x1xf32>) -> tensor<3x3xf32>",
        "%x: tensor<3x1xf32>",
        "tensor<3x3xf32>",
    ),
    "reverse": (
        "%r = stablehlo.reverse %x, dims = [1, 0] : tensor<3x4xf32>",
        "%x: tensor<3x4xf32>",
        "tensor<3x4xf32>",
    ),
    "iota": (
        "%i = stablehlo.iota dim = 1 : tensor<3x4xf32>\n%r = stablehlo.add %i, %x : tensor<3x4xf32>",
        "%x: tensor<3x4xf32>",
        "tensor<3x4xf32>",
    ),
    "unit dims": (
        "%u = stablehlo.reshape %x : (tensor<3x1x4xf32>) -> tensor<1x3x4x1xf32>\n"
        "%t = stablehlo.transpose %u, dims = [2, 3, 0, 1] : (tensor<1x3x4x1xf32>) -> tensor<4x1x1x3xf32>\n"
        "%r = stablehlo.negate %t : tensor<4x1x1x3xf32>",
        "%x: tensor<3x1x4xf32>",
        "tensor<4x1x1x3xf32>",
    ),
    "empty": (
        "%b = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<4xf32>) -> tensor<0x4xf32>\n%r = stablehlo.exponential %b : tensor<0x4xf32>",
        "%x: tensor<4xf32>",
        "tensor<0x4xf32>",
    ),
    "reshape merges and splits": (
        "%t = stablehlo.transpose %x, dims = [2, 0, 1] : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>\n"
        "%a = stablehlo.reshape %t : (tensor<4x2x3xf32>) -> tensor<4x6xf32>\n"
        "%b = stablehlo.tanh %a : tensor<4x6xf32>\n%r = stablehlo.reshape %b : (tensor<4x6xf32>) -> tensor<8x3xf32>",
        "%x: tensor<2x3x4xf32>",
        "tensor<8x3xf32>",
    ),
    "reshape of a broadcast": (
        "%b = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<3xf32>) -> tensor<3x4xf32>\n"
        "%r = stablehlo.reshape %b : (tensor<3x4xf32>) -> tensor<12xf32>",
        "%x: tensor<3xf32>",
        "tensor<12xf32>",
    ),
    "reduce": (
        "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
        "%r = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0, 2] : (tensor<2x3x4xf32>, tensor<f32>) -> tensor<3xf32>",
        "%x: tensor<2x3x4xf32>",
        "tensor<3xf32>",
    ),
    "reduce a broadcast": (
        "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
        "%b = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<3xf32>) -> tensor<3x4xf32>\n"
        "%r = stablehlo.reduce(%b init: %z) applies stablehlo.add across dimensions = [1] : (tensor<3x4xf32>, tensor<f32>) -> tensor<3xf32>",
        "%x: tensor<3xf32>",
        "tensor<3xf32>",
    ),
    "reduce a unit dim": (
        "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
        "%r = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1] : (tensor<14x1xf32>, tensor<f32>) -> tensor<14xf32>",
        "%x: tensor<14x1xf32>",
        "tensor<14xf32>",
    ),
    "argmax": (
        """%l = stablehlo.constant dense<0xFF800000> : tensor<f32>
        %o = stablehlo.constant dense<0> : tensor<i32>
        %i = stablehlo.iota dim = 1 : tensor<2x7xi32>
        %m:2 = stablehlo.reduce(%x init: %l), (%i init: %o) across dimensions = [1] : (tensor<2x7xf32>, tensor<2x7xi32>, tensor<f32>, tensor<i32>) -> (tensor<2xf32>, tensor<2xi32>)
         reducer(%a: tensor<f32>, %b: tensor<f32>) (%p: tensor<i32>, %q: tensor<i32>) {
          %g = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
          %s = stablehlo.select %g, %a, %b : tensor<i1>, tensor<f32>
          %t = stablehlo.select %g, %p, %q : tensor<i1>, tensor<i32>
          stablehlo.return %s, %t : tensor<f32>, tensor<i32>
        }
        %r = stablehlo.add %m#1, %m#1 : tensor<2xi32>""",
        "%x: tensor<2x7xf32>",
        "tensor<2xi32>",
    ),
    "batched dot": (
        "%r = stablehlo.dot_general %x, %y, batching_dims = [1] x [0], contracting_dims = [2] x [1] : (tensor<2x3x4xf32>, tensor<3x4x5xf32>) -> tensor<3x2x5xf32>",
        "%x: tensor<2x3x4xf32>, %y: tensor<3x4x5xf32>",
        "tensor<3x2x5xf32>",
    ),
    "dot of broadcasts": (
        "%b = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<3xf32>) -> tensor<3x4xf32>\n"
        "%r = stablehlo.dot %b, %y : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>",
        "%x: tensor<3xf32>, %y: tensor<4x5xf32>",
        "tensor<3x5xf32>",
    ),
    "outer product": (
        "%r = stablehlo.dot %x, %y : (tensor<3x1xf32>, tensor<1x5xf32>) -> tensor<3x5xf32>",
        "%x: tensor<3x1xf32>, %y: tensor<1x5xf32>",
        "tensor<3x5xf32>",
    ),
    "inner product": (
        "%r = stablehlo.dot %x, %y : (tensor<5xf32>, tensor<5xf32>) -> tensor<f32>",
        "%x: tensor<5xf32>, %y: tensor<5xf32>",
        "tensor<f32>",
    ),
    "integer dot": (
        "%r = stablehlo.dot %x, %y : (tensor<3x4xi8>, tensor<4x5xi8>) -> tensor<3x5xi32>",
        "%x: tensor<3x4xi8>, %y: tensor<4x5xi8>",
        "tensor<3x5xi32>",
    ),
    "dot with precision": (
        "%r = stablehlo.dot_general %x, %y, contracting_dims = [0] x [1], precision = [HIGHEST, HIGHEST] : (tensor<4x3xf32>, tensor<5x4xf32>) -> tensor<3x5xf32>",
        "%x: tensor<4x3xf32>, %y: tensor<5x4xf32>",
        "tensor<3x5xf32>",
    ),
    "select by a scalar": (
        "%r = stablehlo.select %p, %x, %y : tensor<i1>, tensor<14xf32>",
        "%p: tensor<i1>, %x: tensor<14xf32>, %y: tensor<14xf32>",
        "tensor<14xf32>",
    ),
    "clamp": (
        "%r = stablehlo.clamp %l, %x, %h : (tensor<f32>, tensor<14xf32>, tensor<f32>) -> tensor<14xf32>",
        "%l: tensor<f32>, %x: tensor<14xf32>, %h: tensor<f32>",
        "tensor<14xf32>",
    ),
    "sort": (
        """%r = "stablehlo.sort"(%x) <{is_stable = true}> ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %l = stablehlo.compare GT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %l : tensor<i1> }) : (tensor<2x7xf32>) -> tensor<2x7xf32>""",
        "%x: tensor<2x7xf32>",
        "tensor<2x7xf32>",
    ),
    "while": (
        """%z = stablehlo.constant dense<0> : tensor<i32>
        %o = stablehlo.constant dense<1> : tensor<i32>
        %n = stablehlo.constant dense<4> : tensor<i32>
        %w:2 = stablehlo.while(%i = %z, %v = %x) : tensor<i32>, tensor<14xf32>
        cond { %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1> }
        do { %j = stablehlo.add %i, %o : tensor<i32>
          %u = stablehlo.add %v, %y : tensor<14xf32>
          stablehlo.return %j, %u : tensor<i32>, tensor<14xf32> }
        %r = stablehlo.negate %w#1 : tensor<14xf32>""",
        "%x: tensor<14xf32>, %y: tensor<14xf32>",
        "tensor<14xf32>",
    ),
    "case": (
        """%r = "stablehlo.case"(%i) ({ stablehlo.return %x : tensor<14xf32> }, {
          %t = stablehlo.tanh %x : tensor<14xf32>
          stablehlo.return %t : tensor<14xf32> }, {
          %c = stablehlo.constant dense<2.5> : tensor<14xf32>
          stablehlo.return %c : tensor<14xf32> }) : (tensor<i32>) -> tensor<14xf32>""",
        "%i: tensor<i32>, %x: tensor<14xf32>",
        "tensor<14xf32>",
    ),
    "gather": (
        """%r = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
          start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 4>}> : (tensor<6x4xf32>, tensor<3x1xi32>) -> tensor<3x4xf32>""",
        "%x: tensor<6x4xf32>, %i: tensor<3x1xi32>",
        "tensor<3x4xf32>",
    ),
    "scatter": (
        """%r = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
          inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %s = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %s : tensor<f32> }) : (tensor<6x4xf32>, tensor<3x1xi32>, tensor<3x4xf32>) -> tensor<6x4xf32>""",
        "%x: tensor<6x4xf32>, %i: tensor<3x1xi32>, %u: tensor<3x4xf32>",
        "tensor<6x4xf32>",
    ),
    "convolution": (
        """%r = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
          window = {stride = [2, 1], pad = [[1, 0], [0, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
          : (tensor<1x4x4x2xf32>, tensor<2x2x2x3xf32>) -> tensor<1x2x4x3xf32>""",
        "%x: tensor<1x4x4x2xf32>, %w: tensor<2x2x2x3xf32>",
        "tensor<1x2x4x3xf32>",
    ),
    "reduce_window": (
        """%c = stablehlo.constant dense<0.0> : tensor<f32>
        %r = "stablehlo.reduce_window"(%x, %c) <{window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 1, 2>}> ({
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %s = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %s : tensor<f32> }) : (tensor<4x4xf32>, tensor<f32>) -> tensor<3x2xf32>""",
        "%x: tensor<4x4xf32>",
        "tensor<3x2xf32>",
    ),
    "dynamic_slice": (
        "%r = stablehlo.dynamic_slice %x, %i, %i, sizes = [2, 2] : (tensor<4x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x2xf32>",
        "%x: tensor<4x4xf32>, %i: tensor<i32>",
        "tensor<2x2xf32>",
    ),
    "complex parts": (
        "%c = stablehlo.complex %x, %y : tensor<14xcomplex<f32>>\n%i = stablehlo.imag %c : (tensor<14xcomplex<f32>>) -> tensor<14xf32>\n"
        "%m = stablehlo.multiply %c, %c : tensor<14xcomplex<f32>>\n%s = stablehlo.real %m : (tensor<14xcomplex<f32>>) -> tensor<14xf32>\n"
        "%r = stablehlo.add %i, %s : tensor<14xf32>",
        "%x: tensor<14xf32>, %y: tensor<14xf32>",
        "tensor<14xf32>",
    ),
    "bits": (
        "%r = stablehlo.bitcast_convert %x : (tensor<14xf32>) -> tensor<14xi32>",
        "%x: tensor<14xf32>",
        "tensor<14xi32>",
    ),
    "narrower bits": (
        "%r = stablehlo.bitcast_convert %x : (tensor<14xf32>) -> tensor<14x2xi16>",
        "%x: tensor<14xf32>",
        "tensor<14x2xi16>",
    ),
    "constants": (
        "%c = stablehlo.constant dense<[0x7FC00001, -0.0, 0xFF800000, 1.0]> : tensor<4xf32>\n%r = stablehlo.add %x, %c : tensor<4xf32>",
        "%x: tensor<4xf32>",
        "tensor<4xf32>",
    ),
    "bfloat16 constants": (
        "%c = stablehlo.constant dense<[1.0, -0.0, 3.140625, 1.0e-40]> : tensor<4xbf16>\n%r = stablehlo.add %x, %c : tensor<4xbf16>",
        "%x: tensor<4xbf16>",
        "tensor<4xbf16>",
    ),
    "complex constants": (
        "%c = stablehlo.constant dense<[(1.0, -0.0), (0x7F800000, 2.0)]> : tensor<2xcomplex<f32>>\n%r = stablehlo.add %x, %c : tensor<2xcomplex<f32>>",
        "%x: tensor<2xcomplex<f32>>",
        "tensor<2xcomplex<f32>>",
    ),
    "small integers": (
        "%c = stablehlo.constant dense<[true, false, true]> : tensor<3xi1>\n%r = stablehlo.xor %x, %c : tensor<3xi1>",
        "%x: tensor<3xi1>",
        "tensor<3xi1>",
    ),
    "composite": (
        '%r = stablehlo.composite "my.thing" %x {decomposition = @thing} : (tensor<14xf32>) -> tensor<14xf32>',
        "%x: tensor<14xf32>",
        "tensor<14xf32>",
    ),
    "broadcasting": (
        '%r = "chlo.broadcast_add"(%x, %y) {broadcast_dimensions = array<i64: 1>} : (tensor<2x7xf32>, tensor<7xf32>) -> tensor<2x7xf32>',
        "%x: tensor<2x7xf32>, %y: tensor<7xf32>",
        "tensor<2x7xf32>",
    ),
    "rng_bit_generator": (
        "%s, %r = stablehlo.rng_bit_generator %x, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui32>)",
        "%x: tensor<2xui64>",
        "tensor<4xui32>",
    ),
    "fft": (
        "%r = stablehlo.fft %x, type = FFT, length = [4] : (tensor<3x4xcomplex<f32>>) -> tensor<3x4xcomplex<f32>>",
        "%x: tensor<3x4xcomplex<f32>>",
        "tensor<3x4xcomplex<f32>>",
    ),
    "cholesky": (
        "%r = stablehlo.cholesky %x, lower = true : tensor<3x3xf32>",
        "%x: tensor<3x3xf32>",
        "tensor<3x3xf32>",
    ),
    "batch norm": (
        '%r = "stablehlo.batch_norm_inference"(%x, %s, %s, %s, %s) {epsilon = 0.1 : f32, feature_index = 1 : i64} : '
        "(tensor<3x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<3x4xf32>",
        "%x: tensor<3x4xf32>, %s: tensor<4xf32>",
        "tensor<3x4xf32>",
    ),
    "tuple": (
        "%t = stablehlo.tuple %x, %x : tuple<tensor<4xf32>, tensor<4xf32>>\n"
        "%r = stablehlo.get_tuple_element %t[1] : (tuple<tensor<4xf32>, tensor<4xf32>>) -> tensor<4xf32>",
        "%x: tensor<4xf32>",
        "tensor<4xf32>",
    ),
    "map": (
        """%r = "stablehlo.map"(%x) <{dimensions = array<i64: 0>}> ({ ^bb0(%a: tensor<f32>):
          %s = stablehlo.add %a, %a : tensor<f32>
          stablehlo.return %s : tensor<f32> }) : (tensor<4xf32>) -> tensor<4xf32>""",
        "%x: tensor<4xf32>",
        "tensor<4xf32>",
    ),
}
#: The interpreter knows none of these.
NOT_INTERPRETED = {"rng_bit_generator", "cholesky", "batch norm"}
THING = """func.func private @thing(%x: tensor<14xf32>) -> tensor<14xf32> {
  %r = stablehlo.multiply %x, %x : tensor<14xf32>
  return %r : tensor<14xf32>
}
"""

for _name, (_body, _arguments, _results) in OTHERS.items():
    CASES[_name] = program(f"{_body}\nreturn %r : {_results}", _arguments, _results) + (
        THING if _name == "composite" else ""
    )
CASES["results that repeat"] = program(
    "%c = stablehlo.constant dense<2.0> : tensor<3xf32>\nreturn %x, %c, %x, %y : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>",
    "%x: tensor<3xf32>, %unused: tensor<9xi8>, %y: tensor<3xf32>",
    "(tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>)",
)
CASES["lifted constants"] = program(
    f"%c = stablehlo.constant dense<{[float(i) for i in range(300)]}> : tensor<300xf32>\n"
    f"%d = stablehlo.constant dense<{[float(-i) for i in range(300)]}> : tensor<300xf32>\n"
    "%a = stablehlo.multiply %x, %c : tensor<300xf32>\n%b = stablehlo.multiply %x, %d : tensor<300xf32>\n"
    "%r = stablehlo.subtract %a, %b : tensor<300xf32>\nreturn %r, %c : tensor<300xf32>, tensor<300xf32>",
    "%x: tensor<300xf32>",
    "(tensor<300xf32>, tensor<300xf32>)",
)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", CASES)
def test_rendering_a_spec_and_reading_it_back_changes_nothing(name: str) -> None:
    assert read_back(CASES[name]) == canonical(CASES[name]).spec_text


def test_rendered_specs_compute_the_same_bits() -> None:
    # Its bindings cannot carry complex arguments or results either.
    names = [
        n for n, text in CASES.items() if n not in NOT_INTERPRETED and "complex" not in text.partition("{")[0]
    ]
    answers = evaluate([job for i, name in enumerate(names) for job in jobs(CASES[name], i)])
    different = [name for i, name in enumerate(names) if answers[2 * i] != answers[2 * i + 1]]
    assert different == []


def test_rendered_programs_compute_the_same_bits() -> None:
    answers = evaluate([job for i, name in enumerate(NAMES) for job in jobs(text_of(name), 100 * i)])
    different = [name for i, name in enumerate(NAMES) if answers[2 * i] != answers[2 * i + 1]]
    assert different == []


def test_weights_are_not_part_of_the_spec_but_of_the_binding() -> None:
    first = canonical(CASES["lifted constants"])
    other = canonical(CASES["lifted constants"].replace("299.0", "298.5"))
    assert first.spec_text == other.spec_text
    assert {c.digest for c in first.constants} != {c.digest for c in other.constants}
    assert [c.position for c in first.constants] == [0, 1]
    assert [len(c.content) for c in first.constants] == [1200, 1200]


def test_small_constants_are_part_of_the_spec_exactly() -> None:
    specs = {
        canonical(CASES["constants"].replace("0x7FC00001, -0.0", v)).spec_digest
        for v in ("0x7FC00002, -0.0", "0x7FC00001, 0.0")
    }
    assert len({*specs, canonical(CASES["constants"]).spec_digest}) == 3
