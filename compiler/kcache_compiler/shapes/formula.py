"""Sizes known at run time: integers, symbols and the operations of the manifest's grammar.

A formula is an ``int``, the name of a symbol, or ``(operator, left, right)``. Constructors fold
integers and neutral elements, so that a static program has integer formulas only and equal
sizes have mostly equal formulas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias, Union

Formula: TypeAlias = Union[int, str, "tuple[str, Formula, Formula]"]

_TOKEN = re.compile(r"\d+|[A-Za-z_]\w*|[-+*%(),]")
_INFIX = {"+": 1, "-": 1, "*": 2, "%": 2}


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
    """``a operator b``, folded; division by a formula that may be zero stays the caller's concern."""
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
    return apply("+", a, b)


def mul(a: Formula, b: Formula) -> Formula:
    return apply("*", a, b)


def product(factors: list[Formula]) -> Formula:
    total: Formula = 1
    for factor in factors:
        total = mul(total, factor)
    return total


def text(formula: Formula, outer: int = 0) -> str:
    """The formula in the grammar of the manifest."""
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
    """The value under ``symbols``."""
    if isinstance(formula, int):
        return formula
    if isinstance(formula, str):
        return symbols[formula]
    operator, a, b = formula
    return EVALUATE[operator](evaluate(a, symbols), evaluate(b, symbols))


def replaced(formula: Formula, meaning: Mapping[str, Formula]) -> Formula:
    """The formula with formulas in place of some symbols."""
    if isinstance(formula, tuple):
        operator, a, b = formula
        return apply(operator, replaced(a, meaning), replaced(b, meaning))
    return meaning.get(formula, formula) if isinstance(formula, str) else formula


def symbols_in(formula: Formula) -> set[str]:
    if isinstance(formula, tuple):
        return symbols_in(formula[1]) | symbols_in(formula[2])
    return {formula} if isinstance(formula, str) else set()


def evaluate_text(written: str, symbols: dict[str, int]) -> int:
    """The value of a formula in the grammar of the manifest under ``symbols``."""
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
