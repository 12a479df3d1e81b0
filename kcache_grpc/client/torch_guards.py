"""What an export takes for granted of open sizes, checked at each call: which are equal, derived or bounded.

A spec says what its operations need. A program may have been exported for less: one ``Dim`` for two inputs
that nothing else ties, bounds that chose a branch, an axis that ``squeeze`` keeps as it is not 1.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any

from kcache_grpc.errors import ArgumentError

#: As PyTorch checks them: an export for sizes from 2 on takes 0 and 1, too.
_LEAST_CHECKED = 2
_SIZE = re.compile(r"L((?:\[[^\[\]]*\])+)\.size\(\)\[(\d+)\]")
_KEY = re.compile(r"\['?([^\[\]']*)'?\]")
_ALLOWED = (
    *(ast.Expression, ast.Compare, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Constant, ast.Name, ast.Load),
    *(ast.cmpop, ast.operator, ast.unaryop, ast.boolop),
)

#: Checks the sizes of a call's arrays. Raises ``ArgumentError``.
Check = Callable[[Sequence[Any]], None]


def check_of(exported: Any, decomposed: Any) -> Check | None:
    """What to call before a kernel of ``exported``; ``None`` where nothing is left to check.

    It takes the inputs that are tensors, in order. Conditions that are of anything but sizes are left out.
    """
    inputs = _inputs(exported)
    names = tuple(str(node.target) for node in inputs)
    places = [
        (name, axis, size)
        for name, node in zip(names, inputs, strict=True)
        for axis, size in enumerate(_shape(node))
    ]
    sizes = _Sizes([place for place in places if not isinstance(place[2], int)])
    texts = [
        *sizes.conditions,
        *sizes.bounds(exported.range_constraints),
        *_observed(getattr(exported, "_guards_code", ())),
        *_squeezed(exported, sizes),
        *_squeezed(decomposed, sizes),
    ]
    known = {f"{name}_{axis}" for name, axis, _ in places}
    conditions = [made for text in dict.fromkeys(texts) if (made := _compiled(text, known)) is not None]
    return _checking(conditions, names) if conditions else None


def _inputs(exported: Any) -> list[Any]:
    """The placeholders of the inputs that are tensors."""
    nodes = (node for node in exported.graph.nodes if node.op == "placeholder")
    return [
        node
        for spec, node in zip(exported.graph_signature.input_specs, nodes, strict=True)
        if spec.kind.name == "USER_INPUT" and type(spec.arg).__name__ == "TensorArgument"
    ]


def _shape(node: Any) -> Sequence[Any]:
    return getattr(node.meta.get("val"), "shape", ())


class _Sizes:
    """Open sizes by the axes that they are read from."""

    def __init__(self, places: Sequence[tuple[str, int, Any]]) -> None:
        self.conditions: list[str] = []
        #: Formula -> the axis that has it.
        self._axes: dict[str, str] = {}
        #: Symbol -> the formula of an axis that gives it.
        self._symbols: dict[str, str] = {}
        formulas = [(f"{name}_{axis}", size.node.expr) for name, axis, size in places]
        for axis, formula in formulas:
            first = self._axes.setdefault(str(formula), axis)
            if first != axis:
                self.conditions.append(f"{axis} == {first}")
        for simple in (True, False):
            for axis, formula in formulas:
                self._read(axis, formula, simple)

    def _read(self, axis: str, formula: Any, simple: bool) -> None:
        symbols = [str(symbol) for symbol in formula.free_symbols]
        if len(symbols) != 1 or formula.is_Symbol != simple:
            return
        (symbol,) = symbols
        if simple:
            self._symbols.setdefault(symbol, axis)
        elif symbol in self._symbols:
            self.conditions.append(f"{axis} == {self.written(formula)}")
        else:
            self._solve(axis, formula, symbol)

    def _solve(self, axis: str, formula: Any, symbol: str) -> None:
        """The symbol of ``c * s`` or ``s + c``; of other formulas nothing is known."""
        added, rest = formula.as_coeff_Add()
        factor, rest = rest.as_coeff_Mul()
        if not rest.is_Symbol or not added.is_Integer or not factor.is_Integer or factor < 1:
            return
        self._symbols[symbol] = f"(({axis} - {added}) // {factor})"
        if factor != 1:
            self.conditions.append(f"({axis} - {added}) % {factor} == 0")

    def written(self, formula: Any) -> str:
        """A formula of the export over axes."""
        return re.sub(r"[A-Za-z_]\w*", lambda found: self._symbols.get(found[0], found[0]), str(formula))

    def bounds(self, constraints: Any) -> Iterator[str]:
        for formula, limits in constraints.items():
            if limits.lower.is_Integer and limits.lower > _LEAST_CHECKED:
                yield f"{self.written(formula)} >= {limits.lower}"
            if limits.upper.is_Integer:
                yield f"{self.written(formula)} <= {limits.upper}"


def _observed(guards: Sequence[str]) -> Iterator[str]:
    """What decided while the program was traced; inputs are named by their path, as placeholders are."""
    for guard in guards:
        yield _SIZE.sub(lambda found: f"{'_'.join(_KEY.findall(found[1]))}_{found[2]}", guard)


def _squeezed(program: Any, sizes: _Sizes) -> Iterator[str]:
    """Axes that are squeezed where their size is 1, which the program as it is traced keeps."""
    for node in program.graph.nodes:
        if node.op != "call_function" or not str(node.target).startswith("aten.squeeze"):
            continue
        shape = _shape(node.args[0])
        chosen = node.args[1] if len(node.args) > 1 else range(len(shape))
        for axis in [chosen] if isinstance(chosen, int) else chosen:
            if not isinstance(shape[axis], int):
                yield f"{sizes.written(shape[axis].node.expr)} != 1"


def _compiled(text: str, known: set[str]) -> tuple[str, CodeType] | None:
    """A condition of sizes; ``None`` for one of anything else."""
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return None
    for part in ast.walk(tree):
        if not isinstance(part, _ALLOWED) or (isinstance(part, ast.Name) and part.id not in known):
            return None
    return ast.unparse(tree), compile(tree, "<guard>", "eval")


def _checking(conditions: Sequence[tuple[str, CodeType]], names: tuple[str, ...]) -> Check:
    def check(arrays: Sequence[Any]) -> None:
        if len(arrays) != len(names):
            return
        sizes = {
            f"{name}_{axis}": int(size)
            for name, array in zip(names, arrays, strict=True)
            for axis, size in enumerate(getattr(array, "shape", ()))
        }
        for text, code in conditions:
            # Where an axis is missing, the kernel says so.
            if all(name in sizes for name in code.co_names) and not _holds(code, sizes):
                raise _broken(text, code, sizes)

    return check


def _holds(code: CodeType, sizes: dict[str, int]) -> bool:
    try:
        return bool(eval(code, {"__builtins__": {}}, sizes))  # noqa: S307 (sizes, numbers, operators)
    except ZeroDivisionError:
        return False


def _broken(text: str, code: CodeType, sizes: dict[str, int]) -> ArgumentError:
    named = ", ".join(f"{_shown(name)} is {sizes[name]}" for name in code.co_names)
    condition = re.sub(
        r"[A-Za-z_]\w*", lambda found: _shown(found[0]) if found[0] in sizes else found[0], text
    )
    return ArgumentError(
        f"{named}, and the program was exported for {condition} only: "
        "call it with such sizes, or export it again"
    )


def _shown(name: str) -> str:
    owner, _, axis = name.rpartition("_")
    return f"{owner}.shape[{axis}]"


__all__ = ["Check", "check_of"]
