"""Guards of an export on dynamic sizes, checked at each call: which are equal, derived or bounded.

A spec says what its operations need. A program may have been exported for less: one ``Dim`` for two inputs
that nothing else ties, bounds that chose a branch, an axis that ``squeeze`` keeps as it is not 1.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from types import CodeType
from typing import Any, NamedTuple

from kcache_grpc.errors import ArgumentError

#: As PyTorch checks them: an export for sizes from 2 on takes 0 and 1, too.
_LEAST_CHECKED = 2
_ALLOWED = (
    *(ast.Expression, ast.Compare, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.IfExp, ast.Constant, ast.Name),
    *(ast.Load, ast.Call, ast.cmpop, ast.unaryop, ast.boolop),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.BitAnd, ast.BitOr),
)
#: Powers of sizes beyond it are no condition that an export has, and may take for ever.
_MOST_POWER = 8


def _choose(condition: Any, left: Any, right: Any) -> Any:
    return left if condition else right


#: Functions of sizes, by the names that conditions have for them.
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{function.__name__: function for function in (abs, float, int, max, min, round)},
    **{function.__name__: function for function in (math.ceil, math.floor, math.sqrt, math.trunc)},
    # PyTorch's own names of them: 2.15 writes torch.sym_max where 2.13 wrote max.
    **{f"sym_{function.__name__}": function for function in (float, int, max, min)},
    "sym_sqrt": math.sqrt,
    "sym_ite": _choose,
    "sym_not": operator.not_,
}
_VARIABLE = re.compile(r"\bsize_(\d+)_(\d+)\b")

#: Checks the sizes of a call's arrays. Raises ``ArgumentError``.
Check = Callable[[Sequence[Any]], None]


def check_of(exported: Any, decomposed: Any) -> Check | None:
    """What to call before a kernel of ``exported``; ``None`` where nothing is left to check.

    It takes the inputs that are tensors, in order. Conditions that are of anything but sizes are left out.
    Raises ``ArgumentError`` for a condition of sizes that cannot be read: a kernel without that check would
    compute wrong numbers at some sizes.
    """
    inputs = _inputs(exported)
    places = [
        (_variable(index, axis), size)
        for index, node in enumerate(inputs)
        for axis, size in enumerate(_shape(node))
    ]
    sizes = _Sizes([place for place in places if not isinstance(place[1], int)])
    texts = [
        *sizes.conditions,
        *sizes.bounds(exported.range_constraints),
        *_observed(exported),
        *_squeezed(exported, sizes),
        *_squeezed(decomposed, sizes),
    ]
    known = {variable for variable, _ in places}
    conditions: list[_Condition] = []
    for text in dict.fromkeys(texts):
        condition = _compiled(text, known)
        if condition is not None:
            conditions.append(condition)
        elif _VARIABLE.search(text):
            raise _unreadable(text, inputs)
    return SizeCheck(conditions, [str(node.target) for node in inputs]) if conditions else None


def _variable(index: int, axis: int) -> str:
    """What conditions call the size of an axis of an input. Inputs may have names that look alike."""
    return f"size_{index}_{axis}"


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

    def __init__(self, places: Sequence[tuple[str, Any]]) -> None:
        self.conditions: list[str] = []
        #: Formula -> the axis that has it.
        self._axes: dict[str, str] = {}
        #: Symbol -> the formula of an axis that gives it.
        self._symbols: dict[str, str] = {}
        formulas = [(axis, size.node.expr) for axis, size in places]
        for axis, formula in formulas:
            first = self._axes.setdefault(str(formula), axis)
            if first != axis:
                self.conditions.append(f"{axis} == {first}")
        for simple in (True, False):
            for axis, formula in formulas:
                self._read(axis, formula, simple)
        for axis, formula in formulas:
            if len(formula.free_symbols) > 1:
                self.conditions.append(f"{axis} == {self.written(formula)}")

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
        return re.sub(r"[A-Za-z_]\w*", lambda match: self._symbols.get(match[0], match[0]), str(formula))

    def bounds(self, constraints: Any) -> Iterator[str]:
        for formula, limits in constraints.items():
            if limits.lower.is_Integer and limits.lower > _LEAST_CHECKED:
                yield f"{self.written(formula)} >= {limits.lower}"
            if limits.upper.is_Integer:
                yield f"{self.written(formula)} <= {limits.upper}"


def _observed(exported: Any) -> Iterator[str]:
    """What decided while the program was traced."""
    guards: Sequence[str] = getattr(exported, "_guards_code", ())
    if guards:
        paths = _Paths(exported)
        yield from (text for guard in guards if (text := paths.written(guard)) is not None)


class _Paths(ast.NodeTransformer):
    """Writes ``L['x'][0].size()[1]`` as the variable of that axis, ``math.floor`` as ``floor``."""

    def __init__(self, exported: Any) -> None:
        specs = [spec for spec in exported.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
        tensors = (place for place, spec in enumerate(specs) if type(spec.arg).__name__ == "TensorArgument")
        #: The leaf of the inputs -> which of the tensors it is.
        self._tensors = {leaf: index for index, leaf in enumerate(tensors)}
        self._roots: dict[str, Any] = {"flat_args": list(range(len(specs)))}
        try:
            pytree: Any = import_module("torch.utils._pytree")
            positional, named = pytree.tree_unflatten(range(len(specs)), exported.call_spec.in_spec)
            names = exported.module_call_graph[0].signature.forward_arg_names or ()
        except Exception:  # noqa: BLE001 (classes of the caller; PyTorch of another version)
            return
        self._roots |= dict(zip(names, positional, strict=False)) | named

    def written(self, guard: str) -> str | None:
        """``None`` for what is of anything but sizes of inputs."""
        try:
            return ast.unparse(self.visit(ast.parse(guard, mode="eval")))
        except (SyntaxError, LookupError, TypeError, AttributeError):
            if ".size()" in guard:
                raise _unreadable(guard, ()) from None
            return None

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        match node:
            case ast.Subscript(ast.Call(ast.Attribute(owner, "size"), []), ast.Constant(int(axis))):
                leaf = self._at(owner)
                return ast.Name(_variable(self._tensors[leaf], axis), ast.Load())
            case _:
                pass
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node.func:
            case ast.Attribute(ast.Name("math" | "torch"), name):
                node.func = ast.Name(name, ast.Load())
            case _:
                pass
        return self.generic_visit(node)

    def _at(self, path: ast.expr) -> Any:
        """What stands at a path. Raises ``LookupError``, ``TypeError`` or ``AttributeError``."""
        match path:
            case ast.Subscript(ast.Name("L"), ast.Constant(str(name))):
                return self._roots[name]
            case ast.Subscript(ast.Subscript(ast.Name("L"), ast.Constant(str(name))), ast.Constant(key)) if (
                name not in self._roots
            ):
                # Of ``*name`` or ``**name``, whose parts are inputs of their own.
                return self._roots[key if isinstance(key, str) else f"{name}_{key}"]
            case ast.Subscript(owner, ast.Constant(key)):
                return self._at(owner)[key]
            case ast.Attribute(owner, name):
                return getattr(self._at(owner), name)
            case _:
                raise LookupError(ast.unparse(path))


def _squeezed(program: Any, sizes: _Sizes) -> Iterator[str]:
    """Axes that are squeezed where their size is 1, which the program as it is traced keeps."""
    for node in program.graph.nodes:
        if node.op != "call_function" or not str(node.target).startswith("aten.squeeze"):
            continue
        shape = _shape(node.args[0])
        if not shape:
            continue
        chosen = node.args[1] if len(node.args) > 1 else range(len(shape))
        for axis in [chosen] if isinstance(chosen, int) else chosen:
            if not isinstance(shape[axis], int):
                yield f"{sizes.written(shape[axis].node.expr)} != 1"


class _Condition(NamedTuple):
    text: str
    variables: tuple[str, ...]
    code: CodeType

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it does, at sizes for all of its variables."""
        try:
            # Sizes, numbers, operators and the functions above.
            return bool(eval(self.code, {"__builtins__": {}, **_FUNCTIONS}, sizes))  # noqa: S307
        except (ArithmeticError, ValueError):
            return False


def _compiled(text: str, known: set[str]) -> _Condition | None:
    """A condition of sizes; ``None`` for one of anything else."""
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return None
    variables: dict[str, None] = {}
    for part in ast.walk(tree):
        if not isinstance(part, _ALLOWED) or (isinstance(part, ast.Call) and part.keywords):
            return None
        if isinstance(part, ast.Constant) and not isinstance(part.value, (int, float)):
            return None
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Pow) and not _is_small_power(part):
            return None
        if isinstance(part, ast.Name) and part.id in known:
            variables[part.id] = None
        elif isinstance(part, ast.Name) and part.id not in _FUNCTIONS:
            return None
    return _Condition(ast.unparse(tree), tuple(variables), compile(tree, "<guard>", "eval"))


def _is_small_power(power: ast.BinOp) -> bool:
    """Whether it is quickly computed, whatever the sizes are."""
    exponent = power.right.value if isinstance(power.right, ast.Constant) else None
    nested = any(isinstance(part, ast.Pow) for part in ast.walk(power.left))
    return isinstance(exponent, int) and 0 <= exponent <= _MOST_POWER and not nested


class SizeCheck:
    """Checks the sizes of a call's arrays against conditions. Raises ``ArgumentError`` where one is broken.

    ``conditions`` and ``names``, those of the inputs, are texts: a check can be stored and rebuilt from them
    with ``check_from``.
    """

    def __init__(self, conditions: Sequence[_Condition], names: Sequence[str]) -> None:
        self._conditions = tuple(conditions)
        self.names = tuple(names)

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions over ``size_<input>_<axis>``."""
        return tuple(condition.text for condition in self._conditions)

    def __call__(self, arrays: Sequence[Any]) -> None:
        if len(arrays) != len(self.names):
            return
        sizes = {
            _variable(index, axis): int(size)
            for index, array in enumerate(arrays)
            for axis, size in enumerate(getattr(array, "shape", ()))
        }
        for condition in self._conditions:
            # Where an axis is missing, the kernel says so.
            if all(name in sizes for name in condition.variables) and not condition.holds(sizes):
                raise _broken(condition, sizes, self.names)


def check_from(conditions: Sequence[str], names: Sequence[str]) -> SizeCheck:
    """The check of stored conditions. Raises ``ArgumentError`` for a text that is no condition of sizes."""
    compiled: list[_Condition] = []
    for text in conditions:
        known = {match[0] for match in _VARIABLE.finditer(text)}
        condition = _compiled(text, known)
        if condition is None:
            raise ArgumentError(f"{text!r} is no condition of sizes")
        compiled.append(condition)
    return SizeCheck(compiled, names)


def _unreadable(text: str, inputs: Sequence[Any]) -> ArgumentError:
    def shown(match: re.Match[str]) -> str:
        return f"{inputs[int(match[1])].target}.shape[{match[2]}]"

    return ArgumentError(
        f"the program was exported under the condition {_VARIABLE.sub(shown, text)!r}, "
        "which this version of kcache cannot check: export it with static sizes"
    )


def _broken(condition: _Condition, sizes: Mapping[str, int], names: Sequence[str]) -> ArgumentError:
    def shown(text: str) -> str:
        return _VARIABLE.sub(lambda match: f"{names[int(match[1])]}.shape[{match[2]}]", text)

    actual = ", ".join(f"{shown(name)} is {sizes[name]}" for name in condition.variables)
    return ArgumentError(
        f"{actual}, and the program was exported for {shown(condition.text)} only: "
        "call it with such sizes, or export it again"
    )


__all__ = ["Check", "SizeCheck", "check_from", "check_of"]
