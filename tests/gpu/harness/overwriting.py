"""Operations that take values and may overwrite them: one after the other, in blocks that see what is around.

All values have one of two types: numbers of a dtype, and ``i32`` that also say places. Every step is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.ops.generated.draft import Draft
from tests.ops.harness.values import FLOATS, tensor

INDEX = "i32"
FLAG = "tensor<i1>"
NUMBER = "tensor<i32>"


@dataclass
class Scope:
    """What stands in one block so far: lines, and values by name, the newest last."""

    lines: list[str] = field(default_factory=list[str])
    numbers: list[str] = field(default_factory=list[str])
    places: list[str] = field(default_factory=list[str])
    #: Scalars of i32.
    ones: list[str] = field(default_factory=list[str])

    def inner(self) -> Scope:
        """A block that sees what is here."""
        return Scope([], list(self.numbers), list(self.places), list(self.ones))


class Steps:
    """Operations in a row, on values of one shape; axis 0 is what places are along."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        rank = draft.pick((1, 1, 2))
        self.shape = (draft.number(2, 9), draft.number(1, 5))[:rank]
        self.count = 0
        self.scope = Scope()
        self.steps: tuple[Callable[[Scope], None], ...] = (
            self._scatter,
            self._scatter,
            self._sort,
            self._replaced,
            self._replaced,
            self._gathered,
            self._mixed,
            self._mixed,
            self._chosen,
            self._turned,
            self._summed,
            self._constant,
            self._states,
        )

    # -- values

    def name(self) -> str:
        """One that no value has."""
        self.count += 1
        return f"%v{self.count}"

    def kind(self, dtype: str) -> str:
        """The type of the values of a dtype."""
        return tensor(dtype, self.shape)

    def dtype(self) -> str:
        """That of the numbers, or that of the places."""
        return self.draft.dtype if self.draft.chance(0.6) else INDEX

    def some(self, scope: Scope, dtype: str) -> str:
        """A value, most often a new one."""
        among = scope.places if dtype == INDEX else scope.numbers
        if dtype == INDEX == self.draft.dtype:
            among = [*scope.places, *scope.numbers]
        return among[-1] if self.draft.chance(0.4) else self.draft.pick(among)

    def add(self, scope: Scope, dtype: str, text: str) -> str:
        """The value of a line, for later steps."""
        value = self.name()
        scope.lines.append(f"{value} = {text}")
        (scope.places if dtype == INDEX else scope.numbers).append(value)
        return value

    def line(self, scope: Scope, text: str) -> str:
        """The value of a line, for this step alone."""
        value = self.name()
        scope.lines.append(f"{value} = {text}")
        return value

    def constant(self, scope: Scope, text: str, kind: str) -> str:
        return self.line(scope, f"stablehlo.constant dense<{text}> : {kind}")

    def literal(self, dtype: str, number: int) -> str:
        if dtype == "i1":
            return "true" if number % 2 else "false"
        return f"{number}.0" if dtype in FLOATS else str(number)

    def one(self, scope: Scope) -> str:
        """A number that says a place: an argument, or an element of the places."""
        if self.draft.chance(0.5):
            return self.draft.pick(scope.ones)
        start = [self.draft.number(0, size - 1) for size in self.shape]
        ranges = ", ".join(f"{at}:{at + 1}" for at in start)
        single = tensor(INDEX, (1,) * len(self.shape))
        source = self.some(scope, INDEX)
        cut = self.line(scope, f"stablehlo.slice {source} [{ranges}] : ({self.kind(INDEX)}) -> {single}")
        return self.line(scope, f"stablehlo.reshape {cut} : ({single}) -> {NUMBER}")

    def rows(self, scope: Scope) -> tuple[str, str]:
        """A place along axis 0 for each row, and its type."""
        kind = tensor(INDEX, (self.shape[0], 1))
        source = self.some(scope, INDEX)
        if len(self.shape) == 1:
            return self.line(scope, f"stablehlo.reshape {source} : ({self.kind(INDEX)}) -> {kind}"), kind
        at = self.draft.number(0, self.shape[1] - 1)
        text = f"stablehlo.slice {source} [0:{self.shape[0]}, {at}:{at + 1}] : ({self.kind(INDEX)}) -> {kind}"
        return self.line(scope, text), kind

    # -- steps

    def _scatter(self, scope: Scope) -> None:
        """Rows into rows: of one value into another, or into itself; added up, or the last one stays."""
        dtype = self.dtype()
        where, kind = self.rows(scope)
        into, new = self.some(scope, dtype), self.some(scope, dtype)
        scalar, whole = tensor(dtype, ()), self.kind(dtype)
        op = self.draft.pick(("xor", "or", "set") if dtype == "i1" else ("maximum", "minimum", "set", "set"))
        if dtype not in (*FLOATS, "i1") and self.draft.chance(0.4):
            op = "add"
        body = f"%s = stablehlo.{op} %p, %q : {scalar}\nstablehlo.return %s"
        body = "stablehlo.return %q" if op == "set" else body
        windows = "update_window_dims = [1], " if len(self.shape) == 2 else ""
        numbers = f"{windows}inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]"
        self.add(
            scope,
            dtype,
            f'"stablehlo.scatter"({into}, {where}, {new}) <{{scatter_dimension_numbers = '
            f"#stablehlo.scatter<{numbers}, index_vector_dim = 1>}}> ({{\n"
            f"^bb0(%p: {scalar}, %q: {scalar}):\n{body} : {scalar}\n"
            f"}}) : ({whole}, {kind}, {whole}) -> {whole}",
        )

    def _sort(self, scope: Scope) -> None:
        """By the places or by the numbers; what comes along is often what is sorted by."""
        dtypes = [self.dtype() for _ in range(self.draft.number(1, 3))]
        values = [self.some(scope, dtype) for dtype in dtypes]
        scalars = [tensor(dtype, ()) for dtype in dtypes]
        by = self.draft.number(0, len(dtypes) - 1)
        named = [f"%{side}{n}: {kind}" for n, kind in enumerate(scalars) for side in "pq"]
        total = ", TOTALORDER" if dtypes[by] in FLOATS else ""
        way = self.draft.pick(("LT", "GT"))
        kinds = ", ".join(map(self.kind, dtypes))
        result = self.name()
        many = f":{len(dtypes)}" if len(dtypes) > 1 else ""
        scope.lines.append(
            f'{result}{many} = "stablehlo.sort"({", ".join(values)}) '
            f"<{{dimension = {self.draft.number(0, len(self.shape) - 1)} : i64, is_stable = true}}> ({{\n"
            f"^bb0({', '.join(named)}):\n%s = stablehlo.compare {way}, %p{by}, %q{by}{total} : "
            f"({scalars[by]}, {scalars[by]}) -> {FLAG}\nstablehlo.return %s : {FLAG}\n"
            f"}}) : ({kinds}) -> ({kinds})"
        )
        for number, dtype in enumerate(dtypes):
            into = scope.places if dtype == INDEX else scope.numbers
            into.append(f"{result}#{number}" if many else result)

    def _replaced(self, scope: Scope) -> None:
        """A part of one value into another, or into itself elsewhere."""
        dtype, part = self.dtype(), tuple(self.draft.number(1, size) for size in self.shape)
        whole, kind = self.kind(dtype), tensor(dtype, part)
        into, source = self.some(scope, dtype), self.some(scope, dtype)
        if self.draft.chance(0.3):
            source = into
        numbers = ", ".join([NUMBER] * len(part))
        at, to = (", ".join(self.one(scope) for _ in part) for _ in range(2))
        sizes = ", ".join(map(str, part))
        cut = self.line(
            scope,
            f"stablehlo.dynamic_slice {source}, {at}, sizes = [{sizes}] : ({whole}, {numbers}) -> {kind}",
        )
        self.add(
            scope,
            dtype,
            f"stablehlo.dynamic_update_slice {into}, {cut}, {to} : ({whole}, {kind}, {numbers}) -> {whole}",
        )

    def _gathered(self, scope: Scope) -> None:
        dtype = self.dtype()
        where, kind = self.rows(scope)
        source, whole = self.some(scope, dtype), self.kind(dtype)
        windows = "offset_dims = [1], " if len(self.shape) == 2 else ""
        sizes = ", ".join(map(str, (1, *self.shape[1:])))
        self.add(
            scope,
            dtype,
            f'"stablehlo.gather"({source}, {where}) <{{dimension_numbers = #stablehlo.gather<{windows}'
            "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, "
            f"slice_sizes = array<i64: {sizes}>, indices_are_sorted = false}}> "
            f": ({whole}, {kind}) -> {whole}",
        )

    def _mixed(self, scope: Scope) -> None:
        dtype = self.dtype()
        left, other = self.some(scope, dtype), self.some(scope, dtype)
        ops = ("and", "or", "xor") if dtype == "i1" else ("maximum", "minimum")
        if dtype not in ("i1", *FLOATS):
            ops = (*ops, "add", "subtract", "xor")
        elif dtype in ("f32", "f64"):
            ops = (*ops, "add")
        self.add(scope, dtype, f"stablehlo.{self.draft.pick(ops)} {left}, {other} : {self.kind(dtype)}")

    def _chosen(self, scope: Scope) -> None:
        dtype = self.dtype()
        left, other = self.some(scope, INDEX), self.some(scope, INDEX)
        flags, whole = self.kind("i1"), self.kind(INDEX)
        way = self.draft.pick(("LT", "EQ", "GE"))
        known = self.line(scope, f"stablehlo.compare {way}, {left}, {other} : ({whole}, {whole}) -> {flags}")
        pair = f"{self.some(scope, dtype)}, {self.some(scope, dtype)}"
        self.add(scope, dtype, f"stablehlo.select {known}, {pair} : {flags}, {self.kind(dtype)}")

    def _turned(self, scope: Scope) -> None:
        """Reversed, or its first rows behind the others."""
        dtype = self.dtype()
        value, whole = self.some(scope, dtype), self.kind(dtype)
        if self.draft.chance(0.5):
            axis = self.draft.number(0, len(self.shape) - 1)
            self.add(scope, dtype, f"stablehlo.reverse {value}, dims = [{axis}] : {whole}")
            return
        size, rest = self.shape[0], self.shape[1:]
        cut = self.draft.number(1, size - 1)
        ranges = "".join(f", 0:{other}" for other in rest)
        kinds = [tensor(dtype, (count, *rest)) for count in (size - cut, cut)]
        parts = [
            self.line(scope, f"stablehlo.slice {value} [{at}{ranges}] : ({whole}) -> {kind}")
            for at, kind in zip((f"{cut}:{size}", f"0:{cut}"), kinds, strict=True)
        ]
        text = f"stablehlo.concatenate {', '.join(parts)}, dim = 0 : ({', '.join(kinds)}) -> {whole}"
        self.add(scope, dtype, text)

    def _summed(self, scope: Scope) -> None:
        """The largest along axis 0, or the sum, everywhere."""
        dtype = self.dtype()
        op, start = ("or", "false") if dtype == "i1" else ("maximum", self.literal(dtype, 0))
        if dtype not in ("i1", *FLOATS):
            op = self.draft.pick(("add", "maximum"))
        value, whole, scalar = self.some(scope, dtype), self.kind(dtype), tensor(dtype, ())
        first, rest = self.constant(scope, start, scalar), tensor(dtype, self.shape[1:])
        small = self.line(
            scope,
            f"stablehlo.reduce({value} init: {first}) applies stablehlo.{op} across dimensions = [0] : "
            f"({whole}, {scalar}) -> {rest}",
        )
        dims = "[1]" if len(self.shape) == 2 else "[]"
        self.add(scope, dtype, f"stablehlo.broadcast_in_dim {small}, dims = {dims} : ({rest}) -> {whole}")

    def _constant(self, scope: Scope) -> None:
        """One number everywhere, or a ramp."""
        dtype = self.dtype()
        if dtype != "i1" and self.draft.chance(0.5):
            axis = self.draft.number(0, len(self.shape) - 1)
            self.add(scope, dtype, f"stablehlo.iota dim = {axis} : {self.kind(dtype)}")
            return
        number = self.literal(dtype, self.draft.number(0, 5))
        self.add(scope, dtype, f"stablehlo.constant dense<{number}> : {self.kind(dtype)}")

    def _states(self, scope: Scope) -> None:
        """Random bits: a state that the program itself stores, element by element."""
        state = self.constant(scope, f"[{self.draft.number(0, 9)}, 7]", "tensor<2xui64>")
        result, bits = self.name(), tensor("ui32", self.shape)
        scope.lines.append(
            f"{result}:2 = stablehlo.rng_bit_generator {state}, algorithm = THREE_FRY : "
            f"(tensor<2xui64>) -> (tensor<2xui64>, {bits})"
        )
        cut = self.line(scope, f"stablehlo.slice {result}#0 [1:2] : (tensor<2xui64>) -> tensor<1xui64>")
        flat = self.line(scope, f"stablehlo.reshape {cut} : (tensor<1xui64>) -> tensor<ui64>")
        number = self.line(scope, f"stablehlo.convert {flat} : (tensor<ui64>) -> {NUMBER}")
        scope.ones.append(number)
        whole = self.kind(INDEX)
        some = self.line(scope, f"stablehlo.convert {result}#1 : ({bits}) -> {whole}")
        last = self.constant(scope, "15", whole)
        self.add(scope, INDEX, f"stablehlo.and {some}, {last} : {whole}")
