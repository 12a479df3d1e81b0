"""Reductions and windows of several operands, of bodies of one's own, and into a wider type."""

from __future__ import annotations

from tests.ops.generated.draft import Draft, Family, Value, integers
from tests.ops.harness.programs import OpProgram
from tests.ops.harness.values import FLOATS, INTEGERS, tensor

_REAL = (*INTEGERS, *FLOATS)
#: Of any numbers exact in any order.
_LARGEST = {
    "maximum": "%s{n} = stablehlo.maximum %p{n}, %q{n} : {t}",
    "minimum": "%s{n} = stablehlo.minimum %p{n}, %q{n} : {t}",
    "chosen": (
        "%g{n} = stablehlo.compare GE, %p{n}, %q{n} : ({t}, {t}) -> tensor<i1>\n"
        "    %s{n} = stablehlo.select %g{n}, %p{n}, %q{n} : tensor<i1>, {t}"
    ),
}
#: Of small whole numbers.
_ADDED = {
    "add": "%s{n} = stablehlo.add %p{n}, %q{n} : {t}",
    "subtracted": "%m{n} = stablehlo.negate %q{n} : {t}\n    %s{n} = stablehlo.subtract %p{n}, %m{n} : {t}",
    "turned": "%s{n} = stablehlo.add %q{n}, %p{n} : {t}",
}


def families() -> dict[str, Family]:
    """Every operation of this file."""
    wide = tuple(dtype for dtype in _REAL if dtype not in ("i64", "ui64", "f64"))
    return {
        "func.several_reduced": Family(_REAL, _reduced),
        "func.several_windows": Family(_REAL, _windows),
        "func.widened_sum": Family(wide, _widened),
    }


def _operands(draft: Draft) -> tuple[list[Value], list[Value], str]:
    """Two or three operands of one shape, their starts, and the region."""
    shape = draft.shape(draft.scalar_or(1), 3, 150)
    count = draft.number(2, 3)
    dtypes = [draft.dtype, *(draft.pick(("i32", "f32", "ui8", draft.dtype)) for _ in range(count - 1))]
    added = [draft.chance(0.5) for _ in dtypes]
    bodies = [draft.pick(list((_ADDED if flag else _LARGEST).values())) for flag in added]
    may = ""
    if draft.wish.startswith("values ") and draft.dtype in FLOATS:
        # What a choice by a comparison is depends on the order, where there is NaN or -0.
        bodies, may = [(_ADDED["add"] if flag else _LARGEST["maximum"]) for flag in added], "special"
    kinds = ["small" if flag or dtype in FLOATS else "any" for flag, dtype in zip(added, dtypes, strict=True)]
    values = [draft.argument(shape, *pair, may=may) for pair in zip(kinds, dtypes, strict=True)]
    starts = [draft.argument((), *pair) for pair in zip(kinds, dtypes, strict=True)]
    scalars = [tensor(dtype, ()) for dtype in dtypes]
    lines = [body.format(n=n, t=kind) for n, (body, kind) in enumerate(zip(bodies, scalars, strict=True))]
    named = [f"%{side}{n}: {kind}" for side in "pq" for n, kind in enumerate(scalars)]
    returned = ", ".join(f"%s{n}" for n in range(count))
    region = (
        f"{{\n  ^bb0({', '.join(named)}):\n    "
        + "\n    ".join(lines)
        + f"\n    stablehlo.return {returned} : {', '.join(scalars)}\n  }}"
    )
    return values, starts, region


def _reduced(draft: Draft) -> OpProgram:
    values, starts, region = _operands(draft)
    shape = values[0].shape
    dims = draft.axes(len(shape), 1)
    result_shape = tuple(size for axis, size in enumerate(shape) if axis not in dims)
    results = [(value.dtype, result_shape) for value in values]
    attributes = f"dimensions = {integers(dims)}"
    return draft.program(draft.call([*values, *starts], results, attributes, [region], op="reduce"))


def _windows(draft: Draft) -> OpProgram:
    values, starts, region = _operands(draft)
    shape = values[0].shape
    window = [draft.number(1, max(min(size, 3), 1)) for size in shape]
    stride = [draft.number(1, 2) for _ in shape]
    result_shape = tuple(
        (size - wide) // step + 1 if size >= wide else 0
        for size, wide, step in zip(shape, window, stride, strict=True)
    )
    results = [(value.dtype, result_shape) for value in values]
    attributes = f"window_dimensions = {integers(window)}, window_strides = {integers(stride)}"
    return draft.program(draft.call([*values, *starts], results, attributes, [region], op="reduce_window"))


def _widened(draft: Draft) -> OpProgram:
    """Numbers that are converted and added, as frameworks sum narrow ones."""
    kinds = {"f": "f32" if draft.dtype != "f32" else "f64", "b": "f32", "i": "i64", "u": "ui64"}
    wide = kinds[draft.dtype[0]]
    kind = "small" if draft.dtype in FLOATS else "any"
    shape = draft.shape(draft.scalar_or(1), 3, 150)
    value = draft.argument(shape, kind, may="special" if draft.dtype in FLOATS else "")
    converted = draft.call([value], [(wide, shape)], op="convert")
    dims = draft.axes(len(shape), 1)
    result = tuple(size for axis, size in enumerate(shape) if axis not in dims)
    number = "0.0" if wide in FLOATS else "0"
    start = draft.line(f"stablehlo.constant dense<{number}> : {tensor(wide, ())}", wide, ())
    scalar = tensor(wide, ())
    region = (
        f"{{\n  ^bb0(%p: {scalar}, %q: {scalar}):\n    %s = stablehlo.add %p, %q : {scalar}\n"
        f"    stablehlo.return %s : {scalar}\n  }}"
    )
    attributes = f"dimensions = {integers(dims)}"
    total = draft.call([*converted, start], [(wide, result)], attributes, [region], op="reduce")
    narrow = draft.call(total, [(draft.dtype, result)], op="convert")
    return draft.program([*total, *narrow])
