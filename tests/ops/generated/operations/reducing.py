"""Reductions, windows and products."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kcache_compiler.types import DTYPE_BYTES
from tests.ops.generated.draft import Draft, Family, Shape, Value, combiner, greater, integers, pairs, sums
from tests.ops.generated.operations.convolutions import Windows, convolve, numbers, stored
from tests.ops.harness.programs import OpProgram
from tests.ops.harness.values import ALL, COMPLEX, FLOATS, INTEGERS, NUMBERS, tensor

_REAL = (*INTEGERS, *FLOATS)


def families() -> dict[str, Family]:
    """Every operation of this file."""
    return {
        "convolution": Family(NUMBERS, convolution),
        "dot": Family(NUMBERS, _dot),
        "dot_general": Family(ALL, _dot_general),
        "reduce": Family(ALL, _reduce),
        "reduce_window": Family(ALL, _reduce_window),
        "select_and_scatter": Family(_REAL, _select_and_scatter),
    }


def _combiner(draft: Draft) -> str:
    if draft.dtype == "i1":
        return draft.pick(("add", "multiply", "and", "or", "xor", "maximum", "minimum"), "body")
    if draft.dtype in INTEGERS:
        return draft.pick(("add", "multiply", "maximum", "minimum", "and", "or", "xor"), "body")
    return draft.pick(("add", "multiply", "maximum", "minimum"), "body")


def _combined(draft: Draft, op: str, terms: int) -> tuple[str, float, float]:
    """Kind of values, and how far (ulps, absolute) another order of combining is off."""
    if op == "add" and draft.dtype != "i1":
        kind, absolute = sums(draft, terms)
        if draft.wish.startswith("values ") and draft.dtype in COMPLEX:
            kind = "special"
        return kind, 0.0, absolute
    if op == "multiply" and draft.dtype in FLOATS + COMPLEX:
        return "tame", 4.0 * max(terms, 1), 0.0
    # Of complex numbers that are equal but for the sign of a zero, either may be the largest.
    return ("tame" if draft.dtype in COMPLEX else "any"), 0.0, 0.0


def _reduce(draft: Draft) -> OpProgram:
    often = 1.0 if draft.wished("body") in ("compare", "select") else 0.0 if draft.wish else 0.2
    if (draft.dtype in _REAL or (draft.edge and draft.dtype == "i1")) and draft.chance(often):
        return _arg_reduce(draft)
    shape = draft.shape(draft.scalar_or(1))
    dims = draft.axes(len(shape), 0 if draft.chance(0.1) or draft.wish else 1, "dimensions")
    result = tuple(size for axis, size in enumerate(shape) if axis not in dims)
    op = _combiner(draft)
    kind, ulps, absolute = _combined(draft, op, math.prod(shape[axis] for axis in dims))
    operands = [draft.argument(shape, kind), draft.argument((), kind)]
    results = draft.call(
        operands, [(draft.dtype, result)], f"dimensions = {integers(dims)}", [combiner(op, draft.dtype)]
    )
    return draft.program(results, ulps, absolute)


def _arg_reduce(draft: Draft) -> OpProgram:
    """The largest with its place, as frameworks write it."""
    shape = draft.shape(1)
    axis = draft.number(0, len(shape) - 1)
    result = shape[:axis] + shape[axis + 1 :]
    scalar, index = tensor(draft.dtype, ()), draft.pick(("i32", "i64"))
    place, where = tensor(index, ()), draft.argument(shape, "small", index)
    region = (
        f"{{\n  ^bb0(%p: {scalar}, %i: {place}, %q: {scalar}, %j: {place}):\n"
        f"    %g = stablehlo.compare GT, %p, %q : ({scalar}, {scalar}) -> tensor<i1>\n"
        f"    %e = stablehlo.compare EQ, %p, %q : ({scalar}, {scalar}) -> tensor<i1>\n"
        f"    %l = stablehlo.compare LT, %i, %j : ({place}, {place}) -> tensor<i1>\n"
        "    %b = stablehlo.and %e, %l : tensor<i1>\n    %c = stablehlo.or %g, %b : tensor<i1>\n"
        f"    %m = stablehlo.select %g, %p, %q : tensor<i1>, {scalar}\n"
        f"    %k = stablehlo.select %c, %i, %j : tensor<i1>, {place}\n"
        f"    stablehlo.return %m, %k : {scalar}, {place}\n  }}"
    )
    kind = "any" if draft.edge and draft.dtype in INTEGERS else "finite" if draft.edge else "tame"
    operands = [
        draft.argument(shape, kind),
        where,
        draft.argument((), kind),
        draft.argument((), "small", index),
    ]
    results = draft.call(
        operands, [(draft.dtype, result), (index, result)], f"dimensions = array<i64: {axis}>", [region]
    )
    return draft.program(results)


def _windows(draft: Draft, shape: Shape, dilate: bool = True) -> tuple[str, Shape, int]:
    """Attributes of windows over ``shape``, how many there are, and elements in one."""
    count: list[int] = []
    window = [draft.number(1, 3, "window_dimensions") for _ in shape]
    stride = [draft.number(1, 3, "window_strides") for _ in shape]
    named = ("base_dilations", "window_dilations", "padding")
    often = [
        1.0 if draft.wished(name) else chance for name, chance in zip(named, (0.2, 0.3, 0.6), strict=True)
    ]
    base = [draft.number(1, 2, named[0]) if dilate and draft.chance(often[0]) else 1 for _ in shape]
    taps = [draft.number(1, 2, named[1]) if dilate and draft.chance(often[1]) else 1 for _ in shape]
    padding = [
        (draft.number(-1, 2, named[2]), draft.number(0, 2, named[2])) if draft.chance(often[2]) else (0, 0)
        for _ in shape
    ]
    for axis, size in enumerate(shape):
        spaced = (size - 1) * base[axis] + 1 if size else 0
        whole = max(spaced + sum(padding[axis]), 0)
        if spaced + sum(padding[axis]) < 0:
            padding[axis] = (0, 0)
            whole = spaced
        reach = (window[axis] - 1) * taps[axis] + 1
        count.append((whole - reach) // stride[axis] + 1 if whole >= reach else 0)
    attributes = (
        f"window_dimensions = {integers(window)}, window_strides = {integers(stride)}, "
        f"base_dilations = {integers(base)}, window_dilations = {integers(taps)}, padding = {pairs(padding)}"
    )
    return attributes, tuple(count), math.prod(window)


def _reduce_window(draft: Draft) -> OpProgram:
    shape = draft.shape(draft.scalar_or(1), 3, 120)
    attributes, result, terms = _windows(draft, shape)
    op = _combiner(draft)
    kind, ulps, absolute = _combined(draft, op, terms)
    count = 2 if draft.chance(0.15) else 1
    operands = [draft.argument(shape, kind) for _ in range(count)] + [
        draft.argument((), kind) for _ in range(count)
    ]
    region = combiner(op, draft.dtype)
    if count == 2:
        t = tensor(draft.dtype, ())
        region = (
            f"{{\n  ^bb0(%p: {t}, %i: {t}, %q: {t}, %j: {t}):\n    %s = stablehlo.{op} %p, %q : {t}\n"
            f"    %k = stablehlo.{op} %i, %j : {t}\n    stablehlo.return %s, %k : {t}, {t}\n  }}"
        )
    results = draft.call(operands, [(draft.dtype, result)] * count, attributes, [region])
    return draft.program(results, ulps, absolute)


def _select_and_scatter(draft: Draft) -> OpProgram:
    """Padding is below the window; the initial value is 0, as it may be added any number of times."""
    shape = tuple(draft.number(2, 6) for _ in range(draft.rank(draft.scalar_or(1), 3)))
    shape = tuple(1 for _ in shape) if draft.wish == "one element" else shape
    shape = (0, *shape[1:]) if draft.wish == "empty" else shape
    while math.prod(shape) > 400:
        shape = tuple((size + 1) // 2 for size in shape)
    window = [draft.number(1, max(min(3, size), 1), "window_dimensions") for size in shape]
    stride = [draft.number(1, 3, "window_strides") for _ in shape]
    padding = [
        (draft.number(0, size - 1, "padding"), draft.number(0, size - 1, "padding")) for size in window
    ]
    source = tuple(
        (size + sum(pad) - wide) // step + 1
        for size, wide, step, pad in zip(shape, window, stride, padding, strict=True)
    )
    attributes = (
        f"window_dimensions = {integers(window)}, window_strides = {integers(stride)}, "
        f"padding = {pairs(padding)}"
    )
    kind, absolute = sums(draft, math.prod(window))
    whole = "any" if draft.edge and draft.dtype in INTEGERS else "finite" if draft.edge else "tame"
    operands = [draft.argument(shape, whole), draft.argument(source, kind)]
    operands.append(draft.given((), bytes(DTYPE_BYTES[draft.dtype]), draft.dtype))
    regions = [greater(draft.dtype, draft.pick(("GE", "LE", "GT"))), combiner("add", draft.dtype)]
    return draft.program(draft.call(operands, [(draft.dtype, shape)], attributes, regions), absolute=absolute)


def _precision(draft: Draft) -> str:
    """Of both operands; the same for the interpreter."""
    precision = draft.pick(("DEFAULT", "HIGH", "HIGHEST"), "precision_config")
    return f", precision_config = [{', '.join([f'#stablehlo<precision {precision}>'] * 2)}]"


def _dot(draft: Draft) -> OpProgram:
    n, m, k = draft.size(), draft.size(), draft.size()
    if draft.wish.startswith("values "):
        n, m, k = max(n, 1), max(m, 1), max(k, 1)
    left, right = draft.pick((((k,), (k,)), ((n, k), (k,)), ((n, k), (k, m)), ((k,), (k, m))))
    result = (*left[:-1], *right[1:])
    kind, absolute = sums(draft, k)
    operands = [draft.argument(left, kind), draft.argument(right, kind)]
    stated = _precision(draft)[2:] if draft.edge or draft.wish else ""
    program = draft.program(draft.call(operands, [(draft.dtype, result)], stated), absolute=4 * absolute)
    numbers = (
        "dot_dimension_numbers = #stablehlo.dot<"
        f"lhs_contracting_dimensions = [{len(left) - 1}], rhs_contracting_dimensions = [0]>"
    )
    if k == 0:
        program.expected = [bytes(math.prod(result) * DTYPE_BYTES[draft.dtype])]
    return draft.instead(program, operands, (draft.dtype, result), numbers, "dot_general")


def _summed_in(draft: Draft) -> str:
    """The dtype, or a wider one."""
    wider = {
        "i8": ("i16", "i32"),
        "i16": ("i32", "i64"),
        "i32": ("i64",),
        "ui8": ("ui16", "ui32"),
        "ui16": ("ui32", "ui64"),
        "ui32": ("ui64",),
        "f16": ("f32",),
        "bf16": ("f32",),
        "f32": ("f64",),
    }
    return draft.pick(wider.get(draft.dtype, (draft.dtype,))) if draft.chance(0.3) else draft.dtype


def _counts(draft: Draft) -> tuple[int, int, int, int]:
    """Of axes of batches, of sums, and free ones of both sides."""
    if not draft.wish.startswith("rank "):
        low = 2 if draft.wish.endswith("batching_dimensions out of order") else 0
        least = 2 if draft.wish.endswith("contracting_dimensions out of order") else 0
        batch, shared = draft.number(low, 2), draft.number(least, 2)
        return batch, shared, draft.number(0, 2), draft.number(0, 2)
    rank = int(draft.wish[5:])
    batch = draft.number(0, min(rank, 2))
    shared = draft.number(0, min(rank - batch, 2))
    free = rank - batch - shared
    return batch, shared, free, draft.number(0, min(free, 2))


def _dot_general(draft: Draft) -> OpProgram:
    counts = _counts(draft)
    batch = [draft.number(1, 4) for _ in range(counts[0])]
    shared = [draft.size() if draft.chance(0.7) else 1 for _ in range(counts[1])]
    free = [[min(draft.size(), 9) for _ in range(count)] for count in counts[2:]]
    places: list[tuple[list[int], list[int], Shape]] = []
    for side in range(2):
        sizes = [*batch, *shared, *free[side]]
        order = [int(axis) for axis in draft.rng.permutation(len(sizes))]
        if side:  # free axes come out in the order of the operand
            free[1] = [sizes[axis] for axis in order if axis >= len(batch) + len(shared)]
        else:
            free[0] = [sizes[axis] for axis in order if axis >= len(batch) + len(shared)]
        where = {axis: place for place, axis in enumerate(order)}
        batched = [where[axis] for axis in range(len(batch))]
        contracted = [where[axis + len(batch)] for axis in range(len(shared))]
        places.append((batched, contracted, tuple(sizes[axis] for axis in order)))
    (lb, lc, left), (rb, rc, right) = places
    precision = draft.pick(("DEFAULT", "HIGH", "HIGHEST"), "precision_config")
    numbers = (
        "dot_dimension_numbers = #stablehlo.dot<"
        f"lhs_batching_dimensions = {lb}, rhs_batching_dimensions = {rb}, "
        f"lhs_contracting_dimensions = {lc}, rhs_contracting_dimensions = {rc}>"
        + f", precision_config = [{', '.join([f'#stablehlo<precision {precision}>'] * 2)}]"
        * (draft.chance(0.3) or bool(draft.wished("precision_config")))
    )
    kind, absolute = sums(draft, math.prod(shared))
    operands = [draft.argument(left, kind), draft.argument(right, kind)]
    dtype = _summed_in(draft)
    shape = (*batch, *free[0], *free[1])
    program = draft.program(draft.call(operands, [(dtype, shape)], numbers), absolute=4 * absolute)
    if 0 in shared:
        program.expected = [bytes(math.prod(shape) * DTYPE_BYTES[dtype])]
    return program


def _spatial(draft: Draft) -> int:
    """How many axes of space: of no list of numbers where none are wished, else some."""
    drawn = draft.pick((0, 1, 1, 2, 2, 2, 3, 4))
    if draft.wish.startswith("rank "):
        return max(draft.rank(2, 6) - 2, 0)
    if draft.wish.endswith(" none"):
        return 0
    listed = draft.wish.endswith((" negative", " zero", " one", " more", " true", " false"))
    return max(drawn, 1) if listed else drawn


def _step(draft: Draft, name: str) -> int:
    return draft.number(1, 3, name) if draft.wished(name) else draft.pick((1, 1, 2, 3))


def convolution(draft: Draft, computed: bool = False) -> OpProgram:
    """Of any layout, groups, strides and dilations; ``computed``: its padding is a value."""
    spatial = _spatial(draft)
    many = draft.number(1, 3)
    groups, batches = draft.pick(((1, 1), (1, 1), (many, 1), (1, many)))
    if draft.wished("feature_group_count") == "more":
        groups, batches = max(many, 2), 1
    if draft.wished("batch_group_count") == "more":
        groups, batches = 1, max(many, 2)
    if draft.wish == "one element":
        groups, batches = 1, 1
    inputs, outputs = draft.number(1, 3), draft.number(1, 2) * groups * batches
    sizes = [draft.number(1, (7, 7, 7, 4, 2)[spatial]) for _ in range(spatial)]
    kernel = [draft.number(1, 3 if spatial < 4 else 2) for _ in range(spatial)]
    named = ("window_strides", "lhs_dilation", "rhs_dilation")
    stride, left, right = ([_step(draft, name) for _ in range(spatial)] for name in named)
    padding = [(draft.number(-1, 2, "padding"), draft.number(-1, 2, "padding")) for _ in range(spatial)]
    result: list[int] = []
    for axis in range(spatial):
        spaced = (sizes[axis] - 1) * left[axis] + 1
        reach = (kernel[axis] - 1) * right[axis] + 1
        if spaced + sum(padding[axis]) < reach:
            padding[axis] = (0, max(reach - spaced, 0))
        result.append((spaced + sum(padding[axis]) - reach) // stride[axis] + 1)
    batch = draft.number(1, 2) * batches * (draft.wish != "empty")
    image, ilabels = _labeled(draft, {"b": batch, "f": inputs * groups}, sizes)
    weight, klabels = _labeled(draft, {"i": inputs, "o": outputs}, kernel)
    result_shape, rlabels = _labeled(draft, {"b": batch // batches, "f": outputs}, result)
    turned = [draft.chance(0.5, "window_reversal") for _ in range(spatial)]
    reversal = ", ".join(str(flag).lower() for flag in turned)
    numbers = f"#stablehlo.conv<[{ilabels}]x[{klabels}]->[{rlabels}]>"
    attributes = (
        f"batch_group_count = {batches} : i64, feature_group_count = {groups} : i64, "
        f"dimension_numbers = {numbers}, window_strides = {integers(stride)}, "
        f"lhs_dilation = {integers(left)}, rhs_dilation = {integers(right)}, "
        f"window_reversal = array<i1{': ' if spatial else ''}{reversal}>"
    )
    attributes += _precision(draft) if draft.edge or draft.wish else ""
    stated = f"{attributes}, padding = {pairs(padding)}"
    kind, absolute = sums(draft, math.prod(kernel) * inputs)
    operands = [draft.argument(image, kind), draft.argument(weight, kind)]
    windows = Windows(stride, padding, left, right, turned, groups, batches)
    labels = [labels_text.split(", ") for labels_text in (ilabels, klabels, rlabels)]
    dtype = _summed_in(draft)
    # Where features come before batches the interpreter may end its process.
    expected = None
    if labels[2].index("f") < labels[2].index("b"):
        expected = _convolved(draft.dtype, dtype, operands, draft.inputs, labels, windows)
    if computed:
        type = f"tensor<{spatial}x2xi64>"
        amounts = ", ".join(f"[{low}, {high}]" for low, high in padding)
        text = f"stablehlo.constant dense<{f'[{amounts}]' if amounts else ''}> : {type}"
        paddings = draft.line(text, "i64", (spatial, 2))
        results = draft.call([*operands, paddings], [(dtype, result_shape)], attributes)
        program = draft.program(results, absolute=4 * absolute, expected=expected)
        return draft.instead(program, operands, (dtype, result_shape), stated, "convolution")
    results = draft.call(operands, [(dtype, result_shape)], stated)
    return draft.program(results, absolute=4 * absolute, expected=expected)


def _convolved(
    dtype: str,
    result_dtype: str,
    operands: Sequence[Value],
    inputs: Sequence[bytes],
    labels: list[list[str]],
    windows: Windows,
) -> list[bytes]:
    """In the order of axes that the definition has, and back."""
    space = [str(axis) for axis in range(len(windows.strides))]
    orders = [[*first, *space] for first in (("b", "f"), ("o", "i"), ("b", "f"))]
    image, kernel = (
        numbers(dtype, content, operand.shape).transpose([names.index(name) for name in order])
        for content, operand, names, order in zip(inputs, operands, labels, orders, strict=False)
    )
    result = convolve(image, kernel, windows)
    return [stored(result_dtype, result.transpose([orders[2].index(name) for name in labels[2]]))]


def _labeled(draft: Draft, named: dict[str, int], spatial: list[int]) -> tuple[Shape, str]:
    """Axes in a random order, and the labels that say which."""
    axes = [*named.items(), *((str(axis), size) for axis, size in enumerate(spatial))]
    order = [axes[int(place)] for place in draft.rng.permutation(len(axes))]
    return tuple(size for _, size in order), ", ".join(label for label, _ in order)
