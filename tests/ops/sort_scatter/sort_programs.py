"""Sorts along any axis, of several operands, with comparators of all kinds."""

from __future__ import annotations

from dataclasses import dataclass

from tests.ops.harness.values import tensor

#: What decides, as lines on the pairs ``%a, %b`` (first operand) and ``%c, %d`` (second).
_LESS = "%s = stablehlo.compare {way}, %a, %b{kind} : ({t}, {t}) -> tensor<i1>"
_TWO_KEYS = """%e = stablehlo.compare EQ, %a, %b : ({t}, {t}) -> tensor<i1>
    %f = stablehlo.compare {way}, %a, %b : ({t}, {t}) -> tensor<i1>
    %g = stablehlo.compare GT, %c, %d : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %s = stablehlo.select %e, %g, %f : (tensor<i1>, tensor<i1>, tensor<i1>) -> tensor<i1>"""


@dataclass(frozen=True)
class Sort:
    """A program that sorts ``%x``, with ``%y`` of i32 beside it when there are ``pairs``."""

    dtype: str
    shape: tuple[int, ...]
    axis: int
    way: str = "LT"
    pairs: bool = False
    keys: int = 1
    total: bool = False

    @property
    def text(self) -> str:
        scalar, x, y = tensor(self.dtype, ()), tensor(self.dtype, self.shape), tensor("i32", self.shape)
        total = ", TOTALORDER" if self.total else ""
        lines = (_LESS if self.keys == 1 else _TWO_KEYS).format(way=self.way, t=scalar, kind=total)
        values, kinds, arguments = "%x", x, f"%a: {scalar}, %b: {scalar}"
        if self.pairs:
            values, kinds = "%x, %y", f"{x}, {y}"
            arguments += ", %c: tensor<i32>, %d: tensor<i32>"
        results = f"({kinds})" if self.pairs else kinds
        named = "%v#0, %v#1" if self.pairs else "%v"
        return (
            f"func.func @main(%x: {x}{f', %y: {y}' if self.pairs else ''}) -> {results} {{\n"
            f'  %v{":2" if self.pairs else ""} = "stablehlo.sort"({values}) '
            f"<{{dimension = {self.axis} : i64, is_stable = true}}> ({{\n"
            f"  ^bb0({arguments}):\n    {lines}\n    stablehlo.return %s : tensor<i1>\n"
            f"  }}) : ({kinds}) -> {results}\n"
            f"  return {named} : {kinds}\n}}\n"
        )


def sorts() -> list[Sort]:
    """Every dtype; lengths around those of runs and merges; ties, pairs, two keys."""
    programs = [
        Sort(dtype, (3, 37), 1, way)
        for dtype, way in (
            ("i1", "LT"),
            ("i8", "GT"),
            ("i16", "LT"),
            ("i32", "GT"),
            ("i64", "GT"),
            ("ui8", "LT"),
            ("ui16", "GT"),
            ("ui32", "LT"),
            ("ui64", "GT"),
            ("f16", "LT"),
            ("bf16", "GT"),
            ("f32", "LT"),
            ("f64", "GT"),
        )
    ]
    programs += [
        Sort("ui8", (length,), 0, "LT", pairs=True) for length in (1, 2, 15, 16, 17, 33, 64, 65, 200)
    ]
    programs += [Sort("f32", (3, 20, 2), axis, "GT", pairs=True) for axis in range(3)]
    programs += [
        Sort("ui8", (2, 40), 1, "LT", pairs=True, keys=2),
        Sort("i8", (40, 2), 0, "GT", pairs=True, keys=2),
    ]
    programs += [Sort("f32", shape, 0) for shape in ((0,), (0, 3), (3, 0), (1, 5))]
    return programs
