"""Operations that are written by others: computed padding, einsum, CHLO that broadcasts, narrow integers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from kcache_compiler.types import DTYPE_BYTES
from tests.ops.generated.draft import Draft, Family, Shape, sums
from tests.ops.generated.operations.convolutions import numbers, stored
from tests.ops.generated.operations.elementwise import of_orders
from tests.ops.generated.operations.reducing import convolution
from tests.ops.harness.compare import BITS
from tests.ops.harness.programs import OpProgram, total_ranks
from tests.ops.harness.values import ALL, FLOATS, INTEGERS, NUMBERS, random_bytes, tensor

_BITS = ("i1", *INTEGERS)
_BROADCASTS: dict[str, tuple[str, ...]] = {
    "add": ALL,
    "and": _BITS,
    "atan2": FLOATS,
    "compare": (*INTEGERS, *FLOATS),
    "complex": ("f32", "f64"),
    "divide": FLOATS,
    "maximum": ALL,
    "minimum": ALL,
    "multiply": ALL,
    "next_after": FLOATS,
    "or": _BITS,
    "polygamma": ("f32", "f64"),
    "power": FLOATS,
    "remainder": FLOATS,
    "shift_left": INTEGERS,
    "shift_right_arithmetic": INTEGERS,
    "shift_right_logical": INTEGERS,
    "subtract": NUMBERS,
    "xor": _BITS,
    "zeta": ("f32", "f64"),
}
_NARROW = ("i2", "i4", "ui2", "ui4")
_NARROW_OPS = ("add", "and", "maximum", "minimum", "multiply", "negate", "not", "or", "subtract", "xor")


def families() -> dict[str, Family]:
    """Every operation of this file."""
    table = {f"chlo.broadcast_{op}": Family(dtypes, _broadcast(op)) for op, dtypes in _BROADCASTS.items()}
    return table | {
        "chlo.broadcast_select": Family(ALL, _broadcast_select),
        "chlo.constant_like": Family(NUMBERS[:-2], _constant_like),
        "constant": Family(ALL[:-2], _constant),
        "dynamic_conv": Family(NUMBERS, _dynamic_conv),
        "einsum": Family(NUMBERS, _einsum),
        "func.narrow": Family(INTEGERS, _narrow),
        "unary_einsum": Family(NUMBERS, _any_einsum),
    }


def _dynamic_conv(draft: Draft) -> OpProgram:
    """Padding as a value; the interpreter knows it as an attribute."""
    return convolution(draft, computed=True)


def _broadcast(op: str) -> Callable[[Draft], OpProgram]:
    def make(draft: Draft) -> OpProgram:
        result = draft.shape()
        first, second = (tuple(1 if draft.chance(0.2) else size for size in result) for _ in range(2))
        spread = tuple(max(pair) if 0 not in pair else 0 for pair in zip(first, second, strict=True))
        drop = draft.number(0, len(result))
        while drop and any(second[axis] != 1 and first[axis] == 1 for axis in range(drop)):
            drop -= 1
        second = second[drop:]
        spread = tuple(
            first[axis] if axis < drop or second[axis - drop] == 1 else second[axis - drop]
            for axis in range(len(result))
        )
        tame = "tame" if op in ("atan2", "power", "multiply", "maximum", "minimum") else "any"
        kinds = [tame if draft.dtype in ("c64", "c128") or op in ("atan2", "power") else "any"] * 2
        if draft.edge and kinds[0] == "tame":
            kinds = ["finite" if draft.dtype in ("c64", "c128") else "any"] * 2
        if op in ("polygamma", "zeta"):
            kinds = ["small", "unit"]
        order = _order(draft) if op == "compare" and (draft.edge or draft.wish) else ""
        kinds = ["bits", "bits"] if order == "TOTALORDER" else kinds
        if op in ("polygamma", "zeta") and draft.wish.startswith("values "):
            *pair, answer = of_orders(draft, first, second)
            results = draft.call(pair, [(draft.dtype, spread)])
            return draft.program(results, 96.0, 4e-5 if draft.dtype == "f32" else 1e-9, [answer])
        edges = "special" if op in ("maximum", "minimum") and draft.dtype in ("c64", "c128") else ""
        operands = [
            draft.argument(shape, kind, may=edges) for shape, kind in zip((first, second), kinds, strict=True)
        ]
        way = draft.pick(("EQ", "NE", "LT", "LE", "GT", "GE"), "comparison_direction")
        attributes = f"comparison_direction = #chlo<comparison_direction {way}>" if op == "compare" else ""
        if order:
            attributes += f", compare_type = #chlo<comparison_type {order}>"
        result_dtypes = {"compare": "i1", "complex": {"f32": "c64", "f64": "c128"}.get(draft.dtype, "")}
        ulps = 4.0 if op in ("atan2", "power") else 64.0 if draft.dtype in ("c64", "c128") else 0.0
        absolute = 1e-5 if draft.dtype == "c64" else 0.0
        if op in ("polygamma", "zeta"):  # accuracy is tested elsewhere
            ulps, absolute = 96.0, 4e-5 if draft.dtype == "f32" else 1e-9
        results = draft.call(operands, [(result_dtypes.get(op, draft.dtype), spread)], attributes)
        expected = None
        if order == "TOTALORDER":  # the interpreter has -0 as 0, and some NaN elsewhere
            ranks = [
                total_ranks(draft.dtype, data).reshape(operand.shape)
                for data, operand in zip(draft.inputs, operands, strict=True)
            ]
            expected = [_WAYS[way](*np.broadcast_arrays(*ranks)).astype(np.uint8).tobytes()]
        return draft.program(results, ulps, absolute, expected)

    return make


_WAYS: dict[str, Callable[..., npt.NDArray[np.bool_]]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def _order(draft: Draft) -> str:
    """A type of comparison that the dtype has."""
    if draft.dtype in FLOATS:
        return draft.pick(("FLOAT", "TOTALORDER"), "compare_type")
    return "UNSIGNED" if draft.dtype.startswith("u") else "SIGNED"


def _broadcast_select(draft: Draft) -> OpProgram:
    """Shapes of equal rank, or scalars."""
    result = draft.shape()
    shapes = [
        () if draft.chance(0.2) else tuple(1 if draft.chance(0.2) else size for size in result)
        for _ in range(3)
    ]
    result_shape = tuple(
        next((shape[axis] for shape in shapes if shape and shape[axis] != 1), 1)
        for axis in range(len(result) if any(shapes) else 0)
    )
    operands = [draft.argument(shapes[0], dtype="i1")]
    operands += [draft.argument(shape, "bits") for shape in shapes[1:]]
    results = draft.call(operands, [(draft.dtype, result_shape)])
    return draft.program(results, BITS, expected=[_selected(draft.inputs, shapes, result_shape, draft.dtype)])


def _selected(inputs: list[bytes], shapes: list[Shape], common: Shape, dtype: str) -> bytes:
    """The interpreter has no such operation."""
    kind = f"V{DTYPE_BYTES[dtype]}"
    flags = np.frombuffer(inputs[0], np.uint8).reshape(shapes[0])
    first, second = (
        np.frombuffer(data, kind).reshape(shape) for data, shape in zip(inputs[1:], shapes[1:], strict=True)
    )
    first, second, flags = (np.broadcast_to(array, common) for array in (first, second, flags))
    result = second.copy()
    result[flags != 0] = first[flags != 0]
    return result.tobytes()


def _literal(draft: Draft, shape: Shape) -> tuple[str, bytes]:
    content = random_bytes(draft.rng, draft.dtype, math.prod(shape), "any")
    if draft.dtype == "i1":
        words = ["true" if flag else "false" for flag in content]
        return (f"[{', '.join(words)}]" if words else ""), content
    return (f'"0x{content.hex().upper()}"' if content else ""), content


def _constant(draft: Draft) -> OpProgram:
    """Any values, few or many, or one everywhere."""
    if draft.dtype == "i1" and draft.wish.startswith(("rank ", "empty", "one element")):
        return _flags(draft)
    shape = draft.shape(0, 3) if draft.dtype != "i1" else (draft.size(),)
    draft.argument(())
    text, content = _literal(draft, shape)
    if draft.dtype != "i1" and draft.chance(0.3):
        text, content = _literal(draft, ())
        content *= math.prod(shape)
        text = text if math.prod(shape) else ""
    constant = draft.line(
        f"stablehlo.constant dense<{text}> : {tensor(draft.dtype, shape)}", draft.dtype, shape
    )
    return draft.program([constant], expected=[content])


def _flags(draft: Draft) -> OpProgram:
    """One truth everywhere."""
    shape, truth = draft.shape(), draft.chance(0.5)
    draft.argument(())
    text = ("true" if truth else "false") if math.prod(shape) else ""
    constant = draft.line(f"stablehlo.constant dense<{text}> : {tensor('i1', shape)}", "i1", shape)
    return draft.program([constant], expected=[bytes([truth]) * math.prod(shape)])


def _constant_like(draft: Draft) -> OpProgram:
    value = draft.argument(draft.shape())
    number = draft.number(0, 100)
    text = f"{number}.5" if draft.dtype in FLOATS else str(number)
    element = tensor(draft.dtype, ()).removeprefix("tensor<").removesuffix(">")
    results = draft.call([value], [(draft.dtype, value.shape)], f"value = {text} : {element}")
    return draft.program(results)


def _einsum(draft: Draft) -> OpProgram:
    """Letters that are shared and kept, summed, or of one side; the interpreter has ``dot_general``, whose
    result has them in this order.
    """
    if draft.edge or draft.wish:
        return _any_einsum(draft)
    sizes = [draft.size() if place != 1 else draft.number(1, 6) for place in range(4)]
    batch, shared, left, right = (min(size, 9) for size in sizes)
    kind, absolute = sums(draft, shared)
    batched = draft.chance(0.5)
    first: Shape = (batch, left, shared) if batched else (left, shared)
    second: Shape = (batch, shared, right) if batched else (shared, right)
    operands = [draft.argument(first, kind), draft.argument(second, kind)]
    config = "bik,bkj->bij" if batched else "ik,kj->ij"
    result = (draft.dtype, (batch, left, right) if batched else (left, right))
    program = draft.program(
        draft.call(operands, [result], f'einsum_config = "{config}"'), absolute=4 * absolute
    )
    shares = "lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], " if batched else ""
    stated = (
        f"dot_dimension_numbers = #stablehlo.dot<{shares}lhs_contracting_dimensions = "
        f"[{2 if batched else 1}], rhs_contracting_dimensions = [{1 if batched else 0}]>"
    )
    return draft.instead(program, operands, result, stated, "dot_general")


def _term(draft: Draft, letters: str, count: int) -> str:
    return "".join(draft.pick(letters) for _ in range(count))


def _any_einsum(draft: Draft) -> OpProgram:
    """Letters of one operand or two, which may come twice in one, and need not be in the result."""
    letters = "abcde"[: draft.number(2, 5)]
    count = 1 if draft.op == "unary_einsum" else 2
    longest = int(draft.wish[5:]) if draft.wish.startswith("rank ") else 4
    least = 0 if count == 2 else min(1, longest)
    terms = [_term(draft, letters, draft.number(least, longest)) for _ in range(count)]
    if draft.wish.startswith("rank "):
        terms[0] = _term(draft, letters, longest)
    used = list(dict.fromkeys("".join(terms)))
    order = [used[axis] for axis in draft.axes(len(used), len(used) if draft.chance(0.4) else 0)]
    never = draft.wish.startswith("values ") or longest > 4
    often = 0.4 if draft.wish == "empty" else 0.0 if never else 0.1
    sizes = {
        letter: draft.number(0 if draft.chance(often) else 1, 4 if longest <= 4 else 2) for letter in used
    }
    if draft.wish == "empty" and used:
        sizes[draft.pick(used)] = 0
    shapes = [tuple(sizes[letter] for letter in term) for term in terms]
    result = tuple(sizes[letter] for letter in order)
    summed = math.prod(sizes[letter] for letter in used if letter not in order)
    kind, absolute = sums(draft, summed)
    if summed == 1 and count == 1:
        kind, absolute = "bits", 0.0
    operands = [draft.argument(shape, kind) for shape in shapes]
    config = f"{','.join(terms)}->{''.join(order)}"
    arrays = [
        numbers(draft.dtype, content, shape) for content, shape in zip(draft.inputs, shapes, strict=True)
    ]
    if count == 2:
        pairs = zip(arrays, terms, reversed(terms), strict=True)
        arrays, terms = zip(
            *(_summed(draft, array, term, other, order) for array, term, other in pairs), strict=True
        )
    product = _contracted(draft, f"{','.join(terms)}->{''.join(order)}", *arrays)
    expected = [stored(draft.dtype, product)]
    results = draft.call(operands, [(draft.dtype, result)], f'einsum_config = "{config}"')
    return draft.program(results, absolute=16 * absolute * max(summed, 1), expected=expected)


def _summed(
    draft: Draft, array: np.ndarray, term: str, other: str, order: list[str]
) -> tuple[np.ndarray, str]:
    """An operand and its letters after the sums over those that it alone has, which are rounded."""
    if all(letter in other or letter in order for letter in term):
        return array, term
    kept = "".join(letter for letter in dict.fromkeys(term) if letter in other or letter in order)
    product = _contracted(draft, f"{term}->{kept}", array)
    return numbers(draft.dtype, stored(draft.dtype, product), product.shape), kept


def _contracted(draft: Draft, config: str, *arrays: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", over="ignore"):
        product = np.einsum(config, *arrays)
    return product != 0 if draft.dtype == "i1" else product


def _narrow(draft: Draft) -> OpProgram:
    """Integers of 2 and 4 bits inside a program: converted, computed with, converted back."""
    shape, element = draft.shape(), draft.pick(_NARROW)
    first, second = draft.argument(shape), draft.argument(shape)
    kind = f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"
    names = ["%n0", "%n1"]
    for name, value in zip(names, (first, second), strict=True):
        draft.lines.append(f"{name} = stablehlo.convert {value.name} : ({value.type}) -> {kind}")
    for step in range(draft.number(1, 3)):
        op = draft.pick(_NARROW_OPS)
        operands = names[-1:] if op in ("negate", "not") else names[-2:]
        names.append(f"%n{step + 2}")
        draft.lines.append(f"{names[-1]} = stablehlo.{op} {', '.join(operands)} : {kind}")
    if draft.chance(0.3):
        flags = f"tensor<{''.join(f'{size}x' for size in shape)}i1>"
        text = f"stablehlo.compare LT, {names[-1]}, %n0 : ({kind}, {kind}) -> {flags}"
        return draft.program([draft.line(text, "i1", shape)])
    text = f"stablehlo.convert {names[-1]} : ({kind}) -> {first.type}"
    return draft.program([draft.line(text, draft.dtype, shape)])
