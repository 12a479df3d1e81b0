"""Every exact rewrite fires, and changes no bit of any special value; what is not exact does not fire."""

# ruff: noqa: E501  (MLIR reads best unbroken)
from __future__ import annotations

from collections.abc import Sequence

import pytest

from kcache_compiler.spec import canonicalize
from kcache_compiler.spec.rewrites.table import EXACT, VALUE_CHANGING
from tests.compiler.interpreter import evaluate, special


def program(body: str, dtype: str) -> str:
    """``T`` is the tensor type; the arguments are ``%x`` and ``%y``; the result is ``%r``."""
    tensor = f"tensor<14x{dtype}>"
    text = f"func.func @main(%x: T, %y: T) -> T {{\n  {body}\n  return %r : T\n}}"
    return (
        text.replace("T", tensor)
        if "tensor<" not in body
        else text.replace(": T", f": {tensor}").replace("-> T", f"-> {tensor}")
    )


def constant(value: str, name: str = "c") -> str:
    return f"%{name} = stablehlo.constant dense<{value}> : T\n  "


X = "%r = stablehlo.optimization_barrier %x : T"
REAL = ("f32", "bf16", "f16", "f64")
INTEGERS = ("i32", "ui8", "i64")

#: rewrite -> [(written so, written simply, element types)]
CASES: dict[str, Sequence[tuple[str, str, tuple[str, ...]]]] = {
    "convert": [
        ("%r = stablehlo.convert %x : T", X, (*REAL, *INTEGERS, "i1")),
        (
            "%w = stablehlo.convert %x : (tensor<14xf32>) -> tensor<14xf64>\n  "
            "%r = stablehlo.convert %w : (tensor<14xf64>) -> tensor<14xf32>",
            "%r = stablehlo.optimization_barrier %x : tensor<14xf32>",
            ("f32",),
        ),
        (
            "%w = stablehlo.convert %x : (tensor<14xbf16>) -> tensor<14xf32>\n  "
            "%v = stablehlo.convert %w : (tensor<14xf32>) -> tensor<14xf16>\n  "
            "%r = stablehlo.convert %v : (tensor<14xf16>) -> tensor<14xbf16>",
            "%v = stablehlo.convert %x : (tensor<14xbf16>) -> tensor<14xf16>\n  "
            "%r = stablehlo.convert %v : (tensor<14xf16>) -> tensor<14xbf16>",
            ("bf16",),
        ),
        (
            "%w = stablehlo.convert %x : (tensor<14xui8>) -> tensor<14xi32>\n  "
            "%r = stablehlo.convert %w : (tensor<14xi32>) -> tensor<14xui8>",
            "%r = stablehlo.optimization_barrier %x : tensor<14xui8>",
            ("ui8",),
        ),
    ],
    "involution": [
        ("%n = stablehlo.negate %x : T\n  %r = stablehlo.negate %n : T", X, (*REAL, "i32")),
        ("%n = stablehlo.not %x : T\n  %r = stablehlo.not %n : T", X, ("i1", "i32")),
    ],
    "absolute": [
        (
            "%n = stablehlo.negate %x : T\n  %r = stablehlo.abs %n : T",
            "%r = stablehlo.abs %x : T",
            (*REAL, "i32"),
        ),
        (
            "%n = stablehlo.abs %x : T\n  %r = stablehlo.abs %n : T",
            "%r = stablehlo.abs %x : T",
            (*REAL, "i32"),
        ),
    ],
    "round_twice": [
        (f"%n = stablehlo.{op} %x : T\n  %r = stablehlo.{op} %n : T", f"%r = stablehlo.{op} %x : T", REAL)
        for op in ("ceil", "floor", "round_nearest_afz", "round_nearest_even", "sign")
    ],
    "neutral_arithmetic": [
        (constant("-0.0") + "%r = stablehlo.add %c, %x : T", X, REAL),
        (constant("0.0") + "%r = stablehlo.subtract %x, %c : T", X, REAL),
        (constant("1.0") + "%r = stablehlo.multiply %c, %x : T", X, REAL),
        (constant("1.0") + "%r = stablehlo.divide %x, %c : T", X, REAL),
        (constant("0") + "%r = stablehlo.add %x, %c : T", X, INTEGERS),
        (constant("0") + "%r = stablehlo.subtract %x, %c : T", X, INTEGERS),
        (constant("1") + "%r = stablehlo.multiply %x, %c : T", X, INTEGERS),
        (constant("1") + "%r = stablehlo.divide %x, %c : T", X, INTEGERS),
    ],
    "neutral_extremum": [
        (constant("0xFF800000") + "%r = stablehlo.maximum %x, %c : T", X, ("f32",)),
        (constant("0x7F800000") + "%r = stablehlo.minimum %c, %x : T", X, ("f32",)),
        (constant("-2147483648") + "%r = stablehlo.maximum %x, %c : T", X, ("i32",)),
        (constant("255") + "%r = stablehlo.minimum %x, %c : T", X, ("ui8",)),
    ],
    "neutral_bits": [
        (constant("true") + "%r = stablehlo.and %x, %c : T", X, ("i1",)),
        (constant("-1") + "%r = stablehlo.and %x, %c : T", X, ("i32",)),
        (constant("255") + "%r = stablehlo.and %x, %c : T", X, ("ui8",)),
        (constant("0") + "%r = stablehlo.or %x, %c : T", X, ("i32",)),
        (constant("0") + "%r = stablehlo.xor %c, %x : T", X, ("ui8",)),
        (constant("0") + "%r = stablehlo.shift_left %x, %c : T", X, ("i32",)),
        (constant("0") + "%r = stablehlo.shift_right_arithmetic %x, %c : T", X, ("i32",)),
        (constant("0") + "%r = stablehlo.shift_right_logical %x, %c : T", X, ("i32",)),
    ],
    "idempotent": [
        (
            f"%r = stablehlo.{op} %x, %x : T",
            X,
            (*REAL, "i32") if op in ("maximum", "minimum") else ("i1", "i32"),
        )
        for op in ("maximum", "minimum", "and", "or")
    ],
    "select_constant": [
        (
            "%p = stablehlo.compare LT, %x, %y : (T, T) -> tensor<14xi1>\n  %r = stablehlo.select %p, %x, %x : tensor<14xi1>, T".replace(
                "T", "tensor<14xf32>"
            )
            .replace("LTensor<14xf32>", "LT")
            .replace("Ltensor<14xf32>,", "LT,"),
            "%r = stablehlo.optimization_barrier %x : tensor<14xf32>",
            ("f32",),
        ),
        (
            "%p = stablehlo.constant dense<false> : tensor<14xi1>\n  %r = stablehlo.select %p, %y, %x : tensor<14xi1>, tensor<14xf32>",
            "%r = stablehlo.optimization_barrier %x : tensor<14xf32>",
            ("f32",),
        ),
    ],
    "select_extremum": [
        (
            "%c = stablehlo.constant dense<0.0> : tensor<14xf32>\n  "
            "%p = stablehlo.compare LE, %x, %c : (tensor<14xf32>, tensor<14xf32>) -> tensor<14xi1>\n  "
            "%r = stablehlo.select %p, %c, %x : tensor<14xi1>, tensor<14xf32>",
            "%c = stablehlo.constant dense<0.0> : tensor<14xf32>\n  %r = stablehlo.maximum %x, %c : tensor<14xf32>",
            ("f32",),
        ),
        (
            "%c = stablehlo.constant dense<-0.0> : tensor<14xf32>\n  "
            "%p = stablehlo.compare GE, %x, %c : (tensor<14xf32>, tensor<14xf32>) -> tensor<14xi1>\n  "
            "%r = stablehlo.select %p, %c, %x : tensor<14xi1>, tensor<14xf32>",
            "%c = stablehlo.constant dense<-0.0> : tensor<14xf32>\n  %r = stablehlo.minimum %x, %c : tensor<14xf32>",
            ("f32",),
        ),
        *(
            (
                f"%p = stablehlo.compare {direction}, %x, %y : (tensor<14xi32>, tensor<14xi32>) -> tensor<14xi1>\n  "
                f"%r = stablehlo.select %p, {branches} : tensor<14xi1>, tensor<14xi32>",
                f"%r = stablehlo.{op} %x, %y : tensor<14xi32>",
                ("i32",),
            )
            for direction, branches, op in (
                ("LT", "%x, %y", "minimum"),
                ("LE", "%y, %x", "maximum"),
                ("GT", "%x, %y", "maximum"),
                ("GE", "%y, %x", "minimum"),
            )
        ),
    ],
    "part_of_complex": [
        (
            "%z = stablehlo.complex %x, %y : tensor<14xcomplex<f32>>\n  "
            "%r = stablehlo.real %z : (tensor<14xcomplex<f32>>) -> tensor<14xf32>",
            "%r = stablehlo.optimization_barrier %x : tensor<14xf32>",
            ("f32",),
        ),
    ],
    "complex_of_parts": [
        (
            "%z = stablehlo.complex %x, %y : tensor<14xcomplex<f32>>\n  "
            "%s = stablehlo.sine %z : tensor<14xcomplex<f32>>\n  "
            "%a = stablehlo.real %s : (tensor<14xcomplex<f32>>) -> tensor<14xf32>\n  "
            "%b = stablehlo.imag %s : (tensor<14xcomplex<f32>>) -> tensor<14xf32>\n  "
            "%w = stablehlo.complex %a, %b : tensor<14xcomplex<f32>>\n  "
            "%r = stablehlo.abs %w : (tensor<14xcomplex<f32>>) -> tensor<14xf32>",
            "%z = stablehlo.complex %x, %y : tensor<14xcomplex<f32>>\n  "
            "%s = stablehlo.sine %z : tensor<14xcomplex<f32>>\n  "
            "%r = stablehlo.abs %s : (tensor<14xcomplex<f32>>) -> tensor<14xf32>",
            ("f32",),
        ),
    ],
    "square": [('%r = "chlo.square"(%x) : (T) -> T', "%r = stablehlo.multiply %x, %x : T", REAL)],
    "convert_constant": [
        (
            f"%i = stablehlo.constant dense<{number}> : tensor<14x{source}>\n  "
            f"%c = stablehlo.convert %i : (tensor<14x{source}>) -> tensor<14x{target}>\n  "
            f"%r = stablehlo.add %x, %c : tensor<14x{target}>",
            f"%c = stablehlo.constant dense<{rounded}> : tensor<14x{target}>\n  "
            f"%r = stablehlo.add %x, %c : tensor<14x{target}>",
            (target,),
        )
        for number, source, rounded, target in (
            ("10", "i64", "10.0", "f32"),
            ("16777217", "i64", "16777216.0", "f32"),
            ("16777219", "i32", "16777220.0", "f32"),
            ("9007199791611905", "i64", "9007200328482816.0", "f32"),
            ("-3", "i8", "-3.0", "f16"),
            ("true", "i1", "1.0", "bf16"),
            ("1.0E-5", "f64", "9.99999974E-6", "f32"),
            ("1.0E300", "f64", "0x7F800000", "f32"),
            ("-1.0E-300", "f64", "-0.0", "f32"),
            ("1.00390625000001", "f64", "1.0078125", "bf16"),
            ("257", "i64", "1", "i8"),
            ("-1", "i8", "4294967295", "ui32"),
        )
    ],
    "constant_arithmetic": [
        (
            constant(a, "a")
            + constant(b, "b")
            + f"%c = stablehlo.{op} %a, %b : T\n  %r = stablehlo.add %x, %c : T",
            constant(result) + "%r = stablehlo.add %x, %c : T",
            (dtype,),
        )
        for op, a, b, result, dtype in (
            ("add", "1.0", "1.0E-8", "1.0", "f32"),
            ("subtract", "10.0", "1.0", "9.0", "f32"),
            ("subtract", "1.0", "1.0", "0.0", "f32"),
            ("add", "-0.0", "-0.0", "-0.0", "f32"),
            ("multiply", "-1.0E-30", "1.0E-30", "-0.0", "f32"),
            ("multiply", "1.0E+30", "1.0E+30", "0x7F800000", "f32"),
            ("divide", "1.0", "3.0", "0.333333343", "f32"),
            ("divide", "1.0", "0x7F800000", "0.0", "f32"),
            ("divide", "1.0", "3.0", "0.33333333333333331", "f64"),
            ("maximum", "2.0", "-3.0", "2.0", "f16"),
            ("multiply", "200", "2", "144", "ui8"),
            ("subtract", "-2147483648", "1", "2147483647", "i32"),
        )
    ]
    + [
        (
            constant("2.0", "a") + "%c = stablehlo.negate %a : T\n  %r = stablehlo.maximum %x, %c : T",
            constant("-2.0") + "%r = stablehlo.maximum %x, %c : T",
            REAL,
        )
    ],
    "constant_root": [
        (
            constant(value, "a") + "%c = stablehlo.sqrt %a : T\n  %r = stablehlo.add %x, %c : T",
            constant(result) + "%r = stablehlo.add %x, %c : T",
            (dtype,),
        )
        for value, result, dtype in (
            ("8.0", "2.82842708", "f32"),
            ("0x3F22F983", "0x3F4C4229", "f32"),
            ("2.0", "1.4142135623730951", "f64"),
            ("16.0", "4.0", "bf16"),
            ("1.0E-300", "1.0E-150", "f64"),
        )
    ],
    "constant_comparison": [
        (
            "%a = stablehlo.constant dense<0.0> : tensor<14xf32>\n  %b = stablehlo.constant dense<9.0> : tensor<14xf32>\n  "
            f"%p = stablehlo.compare {direction}, %a, %b : (tensor<14xf32>, tensor<14xf32>) -> tensor<14xi1>\n  "
            "%r = stablehlo.select %p, %x, %y : tensor<14xi1>, tensor<14xf32>",
            f"%r = stablehlo.optimization_barrier %{result} : tensor<14xf32>",
            ("f32",),
        )
        for direction, result in (("LT", "x"), ("GE", "y"), ("EQ", "y"), ("NE", "x"))
    ],
    "sign_of_product": [
        (
            f"%n = stablehlo.negate %x : T\n  %r = stablehlo.{op} {operands} : T",
            f"%m = stablehlo.{op} {plain} : T\n  %r = stablehlo.negate %m : T",
            REAL,
        )
        for op, operands, plain in (
            ("multiply", "%n, %y", "%x, %y"),
            ("divide", "%n, %y", "%x, %y"),
            ("divide", "%y, %n", "%y, %x"),
        )
    ]
    + [
        (
            constant(f"-{number}") + f"%r = stablehlo.{op} %x, %c : T",
            constant(number) + f"%m = stablehlo.{op} %x, %c : T\n  %r = stablehlo.negate %m : T",
            REAL,
        )
        for op, number in (("multiply", "3.0"), ("multiply", "0.0"), ("divide", "3.0"))
    ]
    + [
        (
            "%n = stablehlo.negate %x : T\n  %r = stablehlo.multiply %n, %n : T",
            "%r = stablehlo.multiply %x, %x : T",
            REAL,
        )
    ],
    "sign_in_sum": [
        (
            "%n = stablehlo.negate %y : T\n  %r = stablehlo.add %x, %n : T",
            "%r = stablehlo.subtract %x, %y : T",
            REAL,
        ),
        (
            constant("-3.0") + "%r = stablehlo.add %c, %x : T",
            constant("3.0") + "%r = stablehlo.subtract %x, %c : T",
            REAL,
        ),
        (
            constant("-3.0") + "%n = stablehlo.negate %x : T\n  %r = stablehlo.add %c, %n : T",
            constant("-3.0") + "%r = stablehlo.subtract %c, %x : T",
            REAL,
        ),
    ],
    "sign_in_difference": [
        (
            "%n = stablehlo.negate %y : T\n  %r = stablehlo.subtract %x, %n : T",
            "%r = stablehlo.add %x, %y : T",
            REAL,
        ),
        (
            constant("-3.0") + "%r = stablehlo.subtract %x, %c : T",
            constant("3.0") + "%r = stablehlo.add %x, %c : T",
            REAL,
        ),
    ],
    "not_negative": [
        (
            constant("0.0") + "%m = stablehlo.multiply %x, %x : T\n  %r = stablehlo.maximum %m, %c : T",
            "%r = stablehlo.multiply %x, %x : T",
            REAL,
        ),
    ],
    "absolute_of_not_negative": [
        (
            "%m = stablehlo.multiply %x, %x : T\n  %r = stablehlo.abs %m : T",
            "%r = stablehlo.multiply %x, %x : T",
            REAL,
        ),
        (
            "%m = stablehlo.exponential %x : T\n  %r = stablehlo.abs %m : T",
            "%r = stablehlo.exponential %x : T",
            REAL,
        ),
    ],
    "small_power": [
        (constant("2.0") + "%r = stablehlo.power %x, %c : T", "%r = stablehlo.multiply %x, %x : T", REAL),
        (constant("2") + "%r = stablehlo.power %x, %c : T", "%r = stablehlo.multiply %x, %x : T", ("i32",)),
        (constant("1.0") + "%r = stablehlo.power %x, %c : T", X, REAL),
    ],
    "logistic": [
        (
            constant("1.0")
            + "%n = stablehlo.negate %x : T\n  %e = stablehlo.exponential %n : T\n  "
            + "%s = stablehlo.add %c, %e : T\n  %r = stablehlo.divide %c, %s : T",
            "%r = stablehlo.logistic %x : T",
            ("f32", "f64"),
        ),
        (
            constant("1.0")
            + "%e = stablehlo.exponential %x : T\n  %s = stablehlo.add %e, %c : T\n  %r = stablehlo.divide %c, %s : T",
            "%n = stablehlo.negate %x : T\n  %r = stablehlo.logistic %n : T",
            ("f32",),
        ),
    ],
    "clamp": [
        (
            "%r = stablehlo.clamp %y, %x, %x : T",
            "%m = stablehlo.maximum %y, %x : T\n  %r = stablehlo.minimum %m, %x : T",
            (*REAL, "i32"),
        ),
    ],
}

PAIRS = [
    (rewrite, program(before, dtype), program(after, dtype), dtype)
    for rewrite, cases in CASES.items()
    for before, after, dtypes in cases
    for dtype in dtypes
]

#: Look like simplifications, and are not exact.
REJECTED = [
    (constant("0.0") + "%r = stablehlo.add %x, %c : T", X, "f32"),
    (constant("-0.0") + "%r = stablehlo.subtract %x, %c : T", X, "f32"),
    (
        constant("0.0") + "%r = stablehlo.multiply %x, %c : T",
        constant("0.0") + "%r = stablehlo.optimization_barrier %c : T",
        "f32",
    ),
    (
        "%r = stablehlo.subtract %x, %x : T",
        constant("0.0") + "%r = stablehlo.optimization_barrier %c : T",
        "f32",
    ),
    (
        "%r = stablehlo.divide %x, %x : T",
        constant("1.0") + "%r = stablehlo.optimization_barrier %c : T",
        "f32",
    ),
    (
        constant("0.0") + "%r = stablehlo.maximum %x, %c : T",
        constant("-0.0") + "%r = stablehlo.maximum %x, %c : T",
        "f32",
    ),
]
SELECTS = [
    ("GT", "0.0", "%x, %c", "maximum"),
    ("LT", "0.0", "%c, %x", "maximum"),
    ("LE", "-0.0", "%c, %x", "maximum"),
    ("GE", "0.0", "%c, %x", "minimum"),
    ("LT", "0.0", "%x, %c", "minimum"),
]
for _direction, _value, _branches, _op in SELECTS:
    _constant = f"%c = stablehlo.constant dense<{_value}> : tensor<14xf32>\n  "
    REJECTED.append(
        (
            _constant
            + f"%p = stablehlo.compare {_direction}, %x, %c : (tensor<14xf32>, tensor<14xf32>) -> tensor<14xi1>\n  "
            f"%r = stablehlo.select %p, {_branches} : tensor<14xi1>, tensor<14xf32>",
            _constant + f"%r = stablehlo.{_op} %x, %c : tensor<14xf32>",
            "f32",
        )
    )


def key(text: str) -> str:
    return canonicalize(text.encode(), "stablehlo", "strict", erasing=False).spec_text


def answers(pairs: list[tuple[str, str]]) -> list[bool]:
    """For each pair of programs, whether the interpreter gives the same bits on special values."""
    jobs: list[tuple[str, list[str]]] = []
    for i, pair in enumerate(pairs):
        types = canonicalize(pair[0].encode(), "stablehlo").arg_spec.args
        arguments = [special(t, 10 * i + k) for k, t in enumerate(types)]
        jobs += [(text, arguments) for text in pair]
    results = evaluate(jobs)
    return [results[2 * i] == results[2 * i + 1] for i in range(len(pairs))]


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("rewrite", "before", "after", "dtype"), PAIRS)
def test_what_a_rewrite_makes_equal_has_one_key(rewrite: str, before: str, after: str, dtype: str) -> None:
    assert key(before) == key(after)


def test_no_rewrite_changes_a_bit() -> None:
    same = answers([(before, after) for _, before, after, _ in PAIRS])
    assert [PAIRS[i][:2] for i, ok in enumerate(same) if not ok] == []


def test_every_rewrite_has_a_case_and_a_proof() -> None:
    assert {r.name for r in EXACT} == set(CASES) | {"extent_less_one"}
    assert all(len(r.proof) > 10 for r in EXACT)
    assert not VALUE_CHANGING["strict"]


def test_simplifications_that_are_not_exact_do_not_happen() -> None:
    pairs = [(program(before, dtype), program(after, dtype)) for before, after, dtype in REJECTED]
    assert [before for before, after in pairs if key(before) == key(after)] == []
    assert not any(answers(pairs)), "the interpreter tells each of these pairs apart"


@pytest.mark.parametrize("op", ["negate", "abs"])
def test_what_has_no_sign_is_negated_to_nan(op: str) -> None:
    body = f"%n = stablehlo.negate %x : T\n  %r = stablehlo.{op} %n : T"
    assert "negate" in key(program(body, "f8E8M0FNU"))
    assert "negate" not in key(program(body, "f8E5M2"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            """%c = stablehlo.constant dense<255> : tensor<4xui8>
            %p = stablehlo.compare LE, %c, %x : (tensor<4xui8>, tensor<4xui8>) -> tensor<4xi1>
            %r = stablehlo.select %p, %c, %x : tensor<4xi1>, tensor<4xui8>""",
            "%r = stablehlo.optimization_barrier %x : tensor<4xui8>",
            id="a minimum with the greatest value, written as a selection",
        ),
        pytest.param(
            """%n = stablehlo.not %x : tensor<4xui8>
            %m = stablehlo.not %n : tensor<4xui8>
            %p = stablehlo.compare LT, %m, %x : (tensor<4xui8>, tensor<4xui8>) -> tensor<4xi1>
            %r = stablehlo.select %p, %x, %m : tensor<4xi1>, tensor<4xui8>""",
            "%r = stablehlo.optimization_barrier %x : tensor<4xui8>",
            id="the greater of a value and itself",
        ),
    ],
)
def test_what_a_rewrite_builds_is_rewritten_too(first: str, second: str) -> None:
    head, tail = "func.func @main(%x: tensor<4xui8>) -> tensor<4xui8> {\n", "\nreturn %r : tensor<4xui8>\n}"
    texts = {canonicalize((head + body + tail).encode(), "stablehlo").spec_text for body in (first, second)}
    assert len(texts) == 1


@pytest.mark.parametrize("element", ["f64", "f32"])
def test_one_less_than_a_size_is_one_constant_where_its_type_holds_it(element: str) -> None:
    head = f"""func.func @main(%x: tensor<4x7x{element}>) -> (tensor<4x{element}>, tensor<4x{element}>) {{
      %z = stablehlo.constant dense<0.0> : tensor<{element}>
      %k = stablehlo.constant dense<7.0> : tensor<4x{element}>
      %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1] : (tensor<4x7x{element}>, tensor<{element}>) -> tensor<4x{element}>
    """
    tail = f"""
      %m = stablehlo.divide %s, %k : tensor<4x{element}>
      %r = stablehlo.divide %s, %n : tensor<4x{element}>
      return %m, %r : tensor<4x{element}>, tensor<4x{element}> }}"""
    computed = f"""%c = stablehlo.constant dense<7.0> : tensor<4x{element}>
      %o = stablehlo.constant dense<1.0> : tensor<4x{element}>
      %n = stablehlo.subtract %c, %o : tensor<4x{element}>"""
    folded = f"%n = stablehlo.constant dense<6.0> : tensor<4x{element}>"
    texts = {
        canonicalize((head + n + tail).encode(), "stablehlo", "strict").spec_text for n in (computed, folded)
    }
    assert all("s1-1" in text or "subtract" in text for text in texts)
    assert len(texts) == (1 if element == "f64" else 2)


@pytest.mark.parametrize("op", ["maximum", "minimum"])
def test_a_symmetric_value_and_its_transpose_are_one_operand(op: str) -> None:
    text = """func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
      %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
      %y = stablehlo.add %x, %t : tensor<4x4xf32>
      %u = stablehlo.transpose %y, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
      %r = stablehlo.OP
      return %r : tensor<4x4xf32> }"""
    texts = {
        canonicalize(text.replace("OP", body).encode(), "stablehlo").spec_text
        for body in (f"{op} %y, %u : tensor<4x4xf32>", "optimization_barrier %u : tensor<4x4xf32>")
    }
    assert len(texts) == 1
