"""Windows that are scans, and windows that only look like them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.ops.harness.values import COMPLEX, DTYPES, FLOATS, INTEGERS, SIGNED, tensor


@dataclass(frozen=True)
class Window:
    """A ``reduce_window`` of ``op`` from ``init`` over ``shape``, its windows along ``axis``."""

    op: str
    dtype: str
    shape: tuple[int, ...]
    axis: int
    backward: bool = False
    init: str = ""
    #: Elements by which the window is shorter than its axis, and the padding at its other side longer.
    shorter: int = 0
    beyond: int = 0

    @property
    def start(self) -> str:
        """The init value as MLIR writes it."""
        return self.init or neutral(self.op, self.dtype)

    @property
    def line(self) -> str:
        """The operation on ``%x`` and ``%i``."""
        length = self.shape[self.axis] - self.shorter
        dims = [length if axis == self.axis else 1 for axis in range(len(self.shape))]
        pads = (self.beyond, length - 1) if self.backward else (length - 1, self.beyond)
        padding = [list(pads) if axis == self.axis else [0, 0] for axis in range(len(self.shape))]
        scalar = tensor(self.dtype, ())
        out = list(self.shape)
        out[self.axis] += self.beyond
        return (
            f'"stablehlo.reduce_window"(%x, %i) <{{window_dimensions = array<i64: {str(dims)[1:-1]}>, '
            f"padding = dense<{padding}> : tensor<{len(dims)}x2xi64>}}> ({{\n"
            f"  ^bb0(%p: {scalar}, %q: {scalar}):\n    %s = stablehlo.{self.op} %p, %q : {scalar}\n"
            f"    stablehlo.return %s : {scalar}\n  }}) : "
            f"({tensor(self.dtype, self.shape)}, {scalar}) -> {tensor(self.dtype, tuple(out))}"
        )

    @property
    def text(self) -> str:
        """A module whose ``main`` scans its argument."""
        kind, scalar = tensor(self.dtype, self.shape), tensor(self.dtype, ())
        out = self.line.rpartition("-> ")[2]
        return (
            f"func.func @main(%x: {kind}) -> {out} {{\n"
            f"  %i = stablehlo.constant dense<{self.start}> : {scalar}\n"
            f"  %v = {self.line}\n  return %v : {out}\n}}\n"
        )


def neutral(op: str, dtype: str) -> str:
    """The element that ``op`` leaves others alone with."""
    width = int(DTYPES[dtype][1][-1]) * 8
    lowest, highest = (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if dtype in SIGNED else (0, 2**width - 1)
    extremes = {"maximum": str(lowest), "minimum": str(highest)}
    if dtype in FLOATS:
        top, sign = {"f16": ("7C00", "FC00"), "bf16": ("7F80", "FF80")}.get(dtype, ("", ""))
        if not top:
            rest = "0" * (5 if dtype == "f32" else 12)
            top, sign = ("7F8", "FF8") if dtype == "f32" else ("7FF", "FFF")
            top, sign = top + rest, sign + rest
            top, sign = (f"{top:0<8}", f"{sign:0<8}") if dtype == "f32" else (f"{top:0<16}", f"{sign:0<16}")
        extremes = {"maximum": f"0x{sign}", "minimum": f"0x{top}"}
        numbers = {"add": "0.0", "multiply": "1.0"}
    elif dtype in COMPLEX:
        numbers = {"add": "(0.0, 0.0)", "multiply": "(1.0, 0.0)"}
    elif dtype == "i1":
        numbers, extremes = {"and": "true", "or": "false"}, {}
    else:
        numbers = {"add": "0", "multiply": "1", "and": str(highest if lowest == 0 else -1), "or": "0"}
    return (numbers | extremes)[op]


SHAPES = (((7,), 0), ((5, 9), 0), ((5, 9), 1), ((3, 1, 4), 1), ((2, 3, 17), 2), ((1,), 0))


def scans() -> Iterator[Window]:
    """Every combiner in every dtype, forward or backward, over some shape."""
    kinds = [(op, dtype) for op in ("add", "multiply") for dtype in INTEGERS + FLOATS + COMPLEX]
    kinds += [(op, dtype) for op in ("maximum", "minimum") for dtype in INTEGERS + FLOATS]
    kinds += [(op, dtype) for op in ("and", "or") for dtype in ("i1", "i8", "ui32", "i64")]
    for number, (op, dtype) in enumerate(kinds):
        shape, axis = SHAPES[number % len(SHAPES)]
        yield Window(op, dtype, shape, axis, backward=bool(number % 2))
    for shape, axis in SHAPES:
        for backward in (False, True):
            yield Window("add", "f32", shape, axis, backward)


def others() -> Iterator[Window]:
    """Windows that are no scans, or whose start counts."""
    for backward in (False, True):
        yield Window("add", "f32", (6,), 0, backward, init="1.0")
        yield Window("add", "i32", (3, 6), 1, backward, init="5")
        yield Window("multiply", "f32", (6,), 0, backward, init="0.0")
        yield Window("maximum", "f32", (6,), 0, backward, init="0.5")
        yield Window("add", "f32", (4, 6), 1, backward, shorter=1)
        yield Window("add", "f32", (6, 4), 0, backward, beyond=2)
