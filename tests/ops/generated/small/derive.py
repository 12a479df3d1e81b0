"""A program on small elements from one of another dtype: its types replaced, its arguments drawn anew."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from kcache_compiler.types import SMALL, SMALL_FLOATS, SMALL_INTEGERS
from kcache_grpc.runtime.dtypes import limits_of
from tests.ops.generated.draft import Draft
from tests.ops.generated.operations.catalog import FAMILIES
from tests.ops.generated.small import own, ragged
from tests.ops.harness.programs import OpProgram
from tests.ops.harness.values import INTEGERS, generator
from tests.ops.narrow_types.values import FINITE, POWERS, Array, codes, decode, encode

#: Not of small elements, or made by other means: random bits, functions with an f64 inside, complex numbers.
_NOT = frozenset(
    {
        *("complex", "imag", "real", "func.narrow", "rng_bit_generator", "rng_uniform", "rng_normal"),
        *("uniform_quantize", "uniform_dequantize", "chlo.next_after", "chlo.mulhi", "chlo.constant_like"),
        *("constant", "bitcast_convert", "convert", "dynamic_iota", "iota", "power", "reduce_precision"),
        *("cholesky", "triangular_solve", "fft", "batch_norm_grad", "batch_norm_inference"),
        *("batch_norm_training", "chlo.top_k", "chlo.broadcast_next_after", "chlo.bessel_i1e", "chlo.erf"),
        *("chlo.erfc", "chlo.erf_inv", "chlo.digamma", "chlo.lgamma", "chlo.zeta", "chlo.polygamma"),
    }
)
#: Sums and products of many: exact where most factors are zero.
_SUMS = frozenset(
    {
        *("convolution", "dot", "dot_general", "dynamic_conv", "einsum", "reduce", "reduce_window"),
        *("scatter", "select_and_scatter", "map", "composite", "func.call", "while", "if", "case"),
    }
)
#: Give what is no number of some numbers.
_PARTIAL = frozenset(
    {
        *("divide", "remainder", "sqrt", "rsqrt", "log", "log_plus_one", "atan2", "chlo.acosh", "chlo.acos"),
        *("chlo.asin", "chlo.atanh", "chlo.broadcast_divide", "chlo.broadcast_remainder"),
        *("chlo.broadcast_atan2",),
        *("chlo.broadcast_power", "cbrt", "logistic", "cosine", "sine", "tan"),
    }
)
#: Say of numbers whether they are infinite or NaN, or give NaN of most of them.
_WITH_NAN = frozenset(
    {
        *("chlo.is_inf", "chlo.is_neg_inf", "chlo.is_pos_inf", "is_finite", "chlo.acos", "chlo.acosh"),
        *("chlo.asin", "chlo.atanh"),
    }
)
#: Where the interpreter has no number to round with, or overflows on its way.
_WHOLE: dict[str, Callable[[Array], Array]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round_nearest_afz": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "round_nearest_even": np.rint,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
}
#: Of powers of two only what moves, orders, multiplies and divides them: there is no zero, and no sign.
_POWERS = frozenset(
    {
        *("maximum", "minimum", "multiply", "divide", "compare", "select", "clamp", "sort", "sqrt", "rsqrt"),
        *("transpose", "reshape", "slice", "concatenate", "reverse", "pad", "gather", "dynamic_slice"),
        *(
            "dynamic_update_slice",
            "broadcast",
            "broadcast_in_dim",
            "optimization_barrier",
            "add",
            "exponential",
        ),
    }
)
#: Where the interpreter rounds by a number that the type has not: numbers become others, or NaN.
_NOT_WHOLE = ("f8E3M4", "f6E2M3FN")
_ROUNDED = re.compile(
    r"(%\w+) = .stablehlo\.(ceil|floor|round_nearest_afz|round_nearest_even).\((%[\w#]+)\) : "
    r"\((tensor<[^<>]*>)\) -> \(\4\)"
)
_ARGUMENT = re.compile(r"%\w+:\s*tensor<((?:\d+x)*)([^<>]*)>")
_CONSTANT = re.compile(r"dense<([^<>]*)> : tensor<((?:\d+x)*)(\w+)>")
_TRIES = 40


def base_of(dtype: str) -> str:
    """The dtype whose programs are taken."""
    return "f16" if dtype in SMALL_FLOATS else "ui8" if dtype.startswith("u") else "i8"


def pairs() -> list[tuple[str, str]]:
    """Every operation with each of its small dtypes."""
    return [
        (op, dtype)
        for op, family in FAMILIES.items()
        if op not in _NOT
        for dtype in SMALL
        if base_of(dtype) in family.dtypes and (dtype != POWERS or op in _POWERS)
        if not (dtype in FINITE and op in _WITH_NAN)
    ] + own.pairs()


def program(op: str, dtype: str, seed: int, number: int) -> OpProgram:
    """The same one for the same arguments."""
    if op in own.OWN:
        return own.program(op, dtype, generator("small", op, dtype, seed, number))
    for attempt in range(_TRIES):
        rng = generator("small", op, dtype, seed, number, attempt)
        base = FAMILIES[op].make(Draft(op, base_of(dtype), rng))
        derived = _derived(base, dtype, rng)
        if derived is not None:
            return derived
    raise ValueError(f"no program of {op} in {dtype}")


def _derived(wide: OpProgram, dtype: str, rng: np.random.Generator) -> OpProgram | None:
    base = base_of(dtype)
    head = wide.text[: wide.text.index("->")]
    elements = [match[2] for match in _ARGUMENT.finditer(head)]
    if wide.op == "sort" and "TOTALORDER" in wide.text:
        return None  # the interpreter knows no order of zeros
    if dtype in FINITE and wide.op.startswith("func.") and "stablehlo.divide" in wide.text:
        return None  # some divisor may be 0
    if "complex" in wide.text or len(elements) != len(wide.inputs):
        return None
    kinds = _kinds(wide.op, dtype, elements.count(base))
    inputs = [
        codes(rng, dtype, len(data) // (2 if base == "f16" else 1), kinds.pop(0)).tobytes()
        if element == base
        else data
        for element, data in zip(elements, wide.inputs, strict=True)
    ]
    dtypes = [dtype if name == base else name for name in wide.result_dtypes]
    expected = _quotients(wide.op, dtype, inputs) if dtype in SMALL_INTEGERS else None
    if wide.op in _WHOLE:
        numbers = decode(dtype, np.frombuffer(inputs[0], np.uint8))
        with np.errstate(all="ignore"):
            expected = [encode(dtype, _WHOLE[wide.op](numbers)).tobytes()]
    if wide.op == "chlo.ragged_dot" and dtype in SMALL_FLOATS:
        expected = ragged.expected(_renamed(wide.text, base, dtype), dtype, inputs)
    ulps = 1.0 if wide.ulps > 0 else 0.0
    return replace(
        wide,
        dtype=dtype,
        text=_renamed(wide.text, base, dtype),
        oracle=_oracle(wide, base, dtype),
        inputs=inputs,
        result_dtypes=dtypes,
        expected=expected,
        ulps=ulps,
        absolute=0.0,
    )


def _kinds(op: str, dtype: str, count: int) -> list[str]:
    if op == "select_and_scatter":
        return ["some", "few", "zero"]  # the interpreter adds the initial value once more
    if dtype in SMALL_INTEGERS:
        return ["any"] * count
    if op == "sort":
        return ["some"] * count  # NaN have no place in most orders
    if op in _SUMS:
        return ["few", *["ones"] * (count - 1)]
    if op in _PARTIAL and (dtype in FINITE or dtype == POWERS):
        return ["positive"] * count
    return ["some" if dtype == POWERS or dtype in FINITE else "any"] * count


def _renamed(text: str, base: str, dtype: str) -> str:
    text = _CONSTANT.sub(lambda match: _constant(match, base, dtype), text)
    return re.sub(rf"(?<=[x<]){base}(?=>)", dtype, text)


def _oracle(program: OpProgram, base: str, dtype: str) -> str:
    """What the interpreter is asked: to round to whole numbers in f32 where the type is too narrow."""
    text = _renamed(program.oracle, base, dtype)
    if dtype not in _NOT_WHOLE:
        return text

    def in_f32(match: re.Match[str]) -> str:
        result, op, operand, kind = match.groups()
        wide = kind.replace(dtype, "f32")
        return (
            f"{result}w = stablehlo.convert {operand} : ({kind}) -> {wide}\n"
            f"  {result}r = stablehlo.{op} {result}w : {wide}\n"
            f"  {result} = stablehlo.convert {result}r : ({wide}) -> {kind}"
        )

    return _ROUNDED.sub(in_f32, text or _renamed(program.text, base, dtype))


def _constant(match: re.Match[str], base: str, dtype: str) -> str:
    """A constant of the base type as one of the small type."""
    body, dims, element = match.groups()
    if element != base:
        return match[0]
    if base in INTEGERS:
        low, high = limits_of(dtype)
        words = re.sub(r"-?\d+", lambda digits: str((int(digits[0]) - low) % (high - low + 1) + low), body)
        return f"dense<{words}> : tensor<{dims}{element}>"
    if body.startswith("0x"):
        number = float(np.array([int(body, 0)], np.uint16).view(np.float16)[0])
        code = int(encode(dtype, np.array([number]))[0])
        return f'dense<"0x{code:02X}"> : tensor<{dims}{element}>'
    return match[0]


def _quotients(op: str, dtype: str, inputs: list[bytes]) -> list[bytes] | None:
    """As XLA has them, where the interpreter ends its process."""
    name = op.removeprefix("chlo.broadcast_")
    if name not in ("divide", "remainder") or op != name:
        return None
    low, high = limits_of(dtype)
    span = high - low + 1
    numbers = [[(number - low) % span + low for number in data] for data in inputs]
    quotients: list[int] = []
    for a, b in zip(*numbers, strict=True):
        quotient = -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        quotients.append((quotient if name == "divide" else a - quotient * b if b else a) % span)
    return [bytes(quotients)]
