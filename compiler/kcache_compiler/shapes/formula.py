"""Size expressions ("formulas"): integers, symbols and the operators of the manifest's grammar.

A formula is an ``int``, the name of a symbol, or ``(operator, left, right)``. Constructors fold constants and
neutral elements: a program of static shapes has integer formulas only, and equal sizes mostly have equal
formulas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, Union

Formula: TypeAlias = Union[int, str, "tuple[str, Formula, Formula]"]

_TOKEN = re.compile(r"\d+|[A-Za-z_]\w*|[-+*%(),]")
_INFIX = {"+": 1, "-": 1, "*": 2, "%": 2}


class UnresolvedSize(Exception):
    """Shape inference has no formula for a size, which ``args`` describes."""


def _ceildiv(a: int, b: int) -> int:
    return -(-a // b)


def _roundup(a: int, b: int) -> int:
    return -(-a // b) * b


EVALUATE: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "%": lambda a, b: a % b,
    "ceildiv": _ceildiv,
    "roundup": _roundup,
    "min": min,
    "max": max,
}


def apply(operator: str, a: Formula, b: Formula) -> Formula:
    """Return ``a operator b``, folded. The caller ensures that a divisor is not 0."""
    if isinstance(a, int) and isinstance(b, int) and not (b == 0 and operator in ("%", "ceildiv", "roundup")):
        return EVALUATE[operator](a, b)
    match operator, a, b:
        case ("+", 0, other) | ("+", other, 0) | ("-", other, 0):
            return other
        case ("*", 1, other) | ("*", other, 1) | ("ceildiv", other, 1) | ("roundup", other, 1):
            return other
        case ("*", 0, _) | ("*", _, 0):
            return 0
        case (("min" | "max"), _, _) if a == b:
            return a
        case ("-", _, _) if a == b:
            return 0
        case (("+" | "*" | "min" | "max"), _, _):
            left, right = sorted((a, b), key=_order)
            return (operator, left, right)
        case _:
            return (operator, a, b)


def _order(formula: Formula) -> tuple[bool, str]:
    return isinstance(formula, int), repr(formula)


def add(a: Formula, b: Formula) -> Formula:
    """Return ``a + b``, folded."""
    return a + b if isinstance(a, int) and isinstance(b, int) else apply("+", a, b)


def mul(a: Formula, b: Formula) -> Formula:
    """Return ``a * b``, folded."""
    return a * b if isinstance(a, int) and isinstance(b, int) else apply("*", a, b)


def product(factors: Sequence[Formula]) -> Formula:
    """Return the product of the factors, folded; 1 if there are none."""
    total: Formula = 1
    for factor in factors:
        total = mul(total, factor)
    return total


def text(formula: Formula, outer: int = 0) -> str:
    """Return the formula in the manifest's grammar; ``outer`` is the precedence of the enclosing operator."""
    if not isinstance(formula, tuple):
        return str(formula)
    operator, a, b = formula
    if operator not in _INFIX:
        return f"{operator}({text(a)},{text(b)})"
    level = _INFIX[operator]
    chained = operator in "+*" and isinstance(b, tuple) and b[0] == operator
    written = f"{text(a, level)} {operator} {text(b, level if chained else level + 1)}"
    return f"({written})" if level < outer else written


def evaluate(formula: Formula, symbols: dict[str, int]) -> int:
    """Return the value of a formula for these sizes of its symbols."""
    if isinstance(formula, int):
        return formula
    if isinstance(formula, str):
        return symbols[formula]
    operator, a, b = formula
    return EVALUATE[operator](evaluate(a, symbols), evaluate(b, symbols))


def substitute(formula: Formula, replacements: Mapping[str, Formula]) -> Formula:
    """Return the formula with symbols replaced by formulas; other symbols are kept."""
    if isinstance(formula, tuple):
        operator, a, b = formula
        return apply(operator, substitute(a, replacements), substitute(b, replacements))
    return replacements.get(formula, formula) if isinstance(formula, str) else formula


def symbols_in(formula: Formula) -> set[str]:
    """Return the names of the symbols of a formula."""
    if isinstance(formula, tuple):
        return symbols_in(formula[1]) | symbols_in(formula[2])
    return {formula} if isinstance(formula, str) else set()


def evaluate_text(written: str, symbols: dict[str, int]) -> int:
    """Return the value of a formula in the manifest's grammar for these sizes of its symbols."""
    tokens = _TOKEN.findall(written)
    value, rest = _sum(tokens, symbols)
    if rest:
        raise ValueError(f"not a formula: {written!r}")
    return value


def _sum(tokens: list[str], symbols: dict[str, int]) -> tuple[int, list[str]]:
    value, tokens = _term(tokens, symbols)
    while tokens and tokens[0] in "+-":
        other, rest = _term(tokens[1:], symbols)
        value, tokens = EVALUATE[tokens[0]](value, other), rest
    return value, tokens


def _term(tokens: list[str], symbols: dict[str, int]) -> tuple[int, list[str]]:
    value, tokens = _factor(tokens, symbols)
    while tokens and tokens[0] in "*%":
        other, rest = _factor(tokens[1:], symbols)
        value, tokens = EVALUATE[tokens[0]](value, other), rest
    return value, tokens


def _factor(tokens: list[str], symbols: dict[str, int]) -> tuple[int, list[str]]:
    head, *rest = tokens
    if head == "-":
        value, rest = _factor(rest, symbols)
        return -value, rest
    if head == "(":
        value, rest = _sum(rest, symbols)
        return value, rest[1:]
    if head in EVALUATE:
        left, rest = _sum(rest[1:], symbols)
        right, rest = _sum(rest[1:], symbols)
        return EVALUATE[head](left, right), rest[1:]
    return (int(head) if head.isdigit() else symbols[head]), rest
