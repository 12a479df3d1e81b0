"""Random programs of several operations that could work in place, in what others still read.

Scatters, sorts, slices that are replaced, branches and loops take values again and again, one as two operands
of an operation among them, so that what is overwritten too early, or too late, shows in some result.
"""

from __future__ import annotations

from tests.gpu.harness.overwriting import FLAG, INDEX, NUMBER, Scope, Steps
from tests.ops.generated.draft import Draft, Value
from tests.ops.harness.programs import OpProgram
from tests.ops.harness.values import FLOATS, generator, tensor

DTYPES = ("i32", "f32", "i8", "i64", "f64", "bf16", "ui16", "i1")


class _Writer(Steps):
    """Steps, branches and loops in each other."""

    def block(self, scope: Scope, depth: int) -> tuple[str, str, str]:
        """Some steps in a block of their own: its lines, and two values that it ends with."""
        inner = scope.inner()
        for _ in range(self.draft.number(1, 3)):
            self.step(inner, depth)
        dtype = self.draft.dtype
        return "\n".join(inner.lines), self.some(inner, dtype), self.some(inner, INDEX)

    def step(self, scope: Scope, depth: int) -> None:
        if depth and self.draft.chance(0.3):
            self.draft.pick((self._branch, self._loop))(scope, depth - 1)
        else:
            self.draft.pick(self.steps)(scope)

    def _branch(self, scope: Scope, depth: int) -> None:
        """``case`` of two or three branches."""
        where, kinds = self.one(scope), f"{self.kind(self.draft.dtype)}, {self.kind(INDEX)}"
        regions = list[str]()
        for _ in range(self.draft.number(2, 3)):
            lines, first, other = self.block(scope, depth)
            regions.append(f"{{\n{lines}\nstablehlo.return {first}, {other} : {kinds}\n}}")
        result = self.name()
        scope.lines.append(
            f'{result}:2 = "stablehlo.case"({where}) ({", ".join(regions)}) : ({NUMBER}) -> ({kinds})'
        )
        scope.numbers.append(f"{result}#0")
        scope.places.append(f"{result}#1")

    def _loop(self, scope: Scope, depth: int) -> None:
        """``while`` of a few turns, whose number is given, or depends on what the loop carries."""
        whole, places = self.kind(self.draft.dtype), self.kind(INDEX)
        zero = self.constant(scope, "0", NUMBER)
        starts = [self.some(scope, self.draft.dtype) for _ in range(2)], self.some(scope, INDEX)
        i, x, y, k = (self.name() for _ in range(4))
        inside = scope.inner()
        inside.numbers += [x, y]
        inside.places.append(k)
        inside.ones.append(i)
        lines, own, other = self.block(inside, depth)
        condition, flag = self._condition(inside, i, k, scope.ones)
        step = Scope()
        turn = self.line(step, f"stablehlo.add {i}, {self.constant(step, '1', NUMBER)} : {NUMBER}")
        kept = self.draft.pick((x, y))
        kinds = f"{NUMBER}, {whole}, {whole}, {places}"
        carried = f"{i}: {NUMBER}, {x}: {whole}, {y}: {whole}, {k}: {places}"
        result, first, second = self.name(), *starts[0]
        scope.lines.append(
            f'{result}:4 = "stablehlo.while"({zero}, {first}, {second}, {starts[1]}) ({{\n^bb0({carried}):\n'
            + condition
            + f"\nstablehlo.return {flag} : {FLAG}\n}}, {{\n^bb0({carried}):\n{lines}\n"
            + "\n".join(step.lines)
            + f"\nstablehlo.return {turn}, {own}, {kept}, {other} : {kinds}\n}}) : ({kinds}) -> ({kinds})"
        )
        scope.numbers += [f"{result}#1", f"{result}#2"]
        scope.places.append(f"{result}#3")
        scope.ones.append(f"{result}#0")

    def _condition(self, inside: Scope, i: str, k: str, ones: list[str]) -> tuple[str, str]:
        """Lines and the flag that says whether a loop of counter ``i`` and places ``k`` goes on."""
        more = inside.inner()
        more.ones, more.places = [i, *ones], [k]
        most = self.constant(more, str(self.draft.number(0, 4)), NUMBER)
        compared = f"({NUMBER}, {NUMBER}) -> {FLAG}"
        flag = self.line(more, f"stablehlo.compare LT, {i}, {most} : {compared}")
        if self.draft.chance(0.7):
            wanted, limit = self.one(more), self.constant(more, "6", NUMBER)
            known = self.line(more, f"stablehlo.compare NE, {wanted}, {limit} : {compared}")
            flag = self.line(more, f"stablehlo.and {flag}, {known} : {FLAG}")
        return "\n".join(more.lines), flag


def program(dtype: str, seed: int, number: int) -> OpProgram:
    """The same one for the same arguments, on every machine."""
    draft = Draft("overwrites", dtype, generator("overwrites", dtype, seed, number))
    writer = _Writer(draft)
    scope = writer.scope
    values = "any" if dtype not in FLOATS else "small"
    scope.numbers += [draft.argument(writer.shape, values).name for _ in range(2)]
    scope.places += [draft.argument(writer.shape, "small", INDEX).name for _ in range(2)]
    scope.ones += [draft.argument((), "small", INDEX).name for _ in range(2)]
    for _ in range(draft.number(3, 9)):
        writer.step(scope, depth=2)
    draft.lines += scope.lines
    return draft.program(_results(writer, scope))


def _results(writer: _Writer, scope: Scope) -> list[Value]:
    """Some of all values: arguments, constants and one twice among them; now and then one of no elements."""
    draft, results = writer.draft, list[Value]()
    for _ in range(draft.number(2, 6)):
        dtype = writer.dtype()
        results.append(Value(writer.some(scope, dtype), dtype, writer.shape))
    if draft.chance(0.3):
        results.append(Value(draft.pick(scope.ones), INDEX, ()))
    if draft.chance(0.2):
        empty = (0, *writer.shape[1:])
        ranges = "".join(f", 0:{size}" for size in writer.shape[1:])
        text = f"stablehlo.slice {results[0].name} [1:1{ranges}] : ({results[0].type}) -> "
        text += tensor(results[0].dtype, empty)
        scope.lines.append(f"%empty = {text}")
        draft.lines.append(scope.lines[-1])
        results.append(Value("%empty", results[0].dtype, empty))
    return [*results, results[0]] if draft.chance(0.3) else results
