"""Formulas over symbols: how manifests say sizes that depend on the call.

Grammar, small enough for a client in any language. Every value on the way is a signed 64-bit integer; a
formula that leaves that range has no value::

    sum     = product (("+" | "-") product)*
    product = atom (("*" | "%") atom)*
    atom    = integer | "-" atom | symbol | "(" sum ")" | function "(" sum "," sum ")"
    function = "ceildiv" | "min" | "max" | "roundup"

``%`` and ``ceildiv`` are for operands of at least 0 and a right one of at least 1; ``roundup(a, b)`` is
``ceildiv(a, b) * b``. Symbols are ``[A-Za-z_][A-Za-z0-9_]*``. A comparison is two sums and one of ``==``,
``!=``, ``<``, ``<=``, ``>``, ``>=`` between them.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from kcache_grpc.errors import IntegrityError

Formula = Callable[[Mapping[str, int]], int]

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*)|([-+*%(),]))", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SPACE = " \t\n\r\f\v"
_COMPARED = re.compile(r"([^=!<>]*)(==|!=|<=|>=|<|>)([^=!<>]*)")
_MAX_TEXT = 4096
_MAX_DEPTH = 100
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class FormulaOverflow(IntegrityError):
    """A value of a formula is not a signed 64-bit integer."""


class FormulaDivision(IntegrityError):
    """A formula divides by zero at these sizes."""


def _ceildiv(a: int, b: int) -> int:
    return -(-a // b)


def _roundup(a: int, b: int) -> int:
    return _ceildiv(a, b) * b


_FUNCTIONS: Mapping[str, Callable[[int, int], int]] = {
    "ceildiv": _ceildiv,
    "min": min,
    "max": max,
    "roundup": _roundup,
}
_OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "%": lambda a, b: a % b,
}


_COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def evaluate(text: str, symbols: Mapping[str, int]) -> int:
    """Value of a formula. Raises ``IntegrityError`` for a bad text or an unknown symbol.

    Where sizes are such that it has none, a subclass: ``FormulaOverflow`` for a value that is not a signed
    64-bit integer, here or on the way, and ``FormulaDivision`` for a division by 0.
    """
    try:
        return parse(text)(symbols)
    except KeyError as error:
        raise IntegrityError(f"formula {text!r} names the unknown symbol {error.args[0]!r}") from error
    except ZeroDivisionError as error:
        raise FormulaDivision(f"formula {text!r} divides by zero") from error
    except FormulaOverflow as error:
        raise FormulaOverflow(f"formula {text!r}: {error}") from error


def holds(text: str, symbols: Mapping[str, int]) -> bool:
    """Whether a comparison holds; the empty text does always. Raises as ``evaluate``."""
    if not text:
        return True
    left, compare, right = comparison(text)
    return compare(evaluate(left, symbols), evaluate(right, symbols))


def comparison(text: str) -> tuple[str, Callable[[int, int], bool], str]:
    """A comparison: its left formula, what compares, its right one. Raises ``IntegrityError``."""
    match = _COMPARED.fullmatch(text)
    if match is None:
        raise IntegrityError(
            f"bad comparison {text[:200]!r}: it is not two formulas with one of == != < <= > >="
        )
    left, sign, right = match.groups()
    parse(left)
    parse(right)
    return left, _COMPARISONS[sign], right


@lru_cache(maxsize=4096)
def parse(text: str) -> Formula:
    """A formula as a function of the symbols' values. Raises ``IntegrityError`` for a bad text."""
    if text.isascii() and text.isdigit() and len(text) <= 18:
        value = int(text)
        return lambda _: value
    return _Parser(text).formula()


def symbols_of(text: str) -> list[str]:
    """The symbols that a formula names, without repetitions, in order."""
    return [name for name in dict.fromkeys(_NAME.findall(text)) if name not in _FUNCTIONS]


class _Parser:
    """Parses a formula or a comparison by recursive descent."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._tokenize(text)
        self.position = 0

    def formula(self) -> Formula:
        result = self._sum(0)
        if self.position != len(self.tokens):
            raise self._error(f"unexpected {self.tokens[self.position]!r}")
        return result

    def _tokenize(self, text: str) -> list[str]:
        if len(text) > _MAX_TEXT:
            raise IntegrityError(f"a formula of {len(text)} characters is longer than {_MAX_TEXT}")
        tokens: list[str] = []
        position = 0
        stripped = text.rstrip(_SPACE)
        while position < len(stripped):
            match = _TOKEN.match(stripped, position)
            if match is None:
                raise IntegrityError(f"bad formula {text!r}: unexpected {stripped[position]!r}")
            tokens.append(match.group(match.lastindex or 0))
            position = match.end()
        return tokens

    def _sum(self, depth: int) -> Formula:
        return self._chain(("+", "-"), self._product, depth)

    def _product(self, depth: int) -> Formula:
        return self._chain(("*", "%"), self._atom, depth)

    def _chain(self, operators: tuple[str, str], operand: Callable[[int], Formula], depth: int) -> Formula:
        left = operand(depth)
        while self._peek() in operators:
            left = _binary(_OPERATORS[self._take()], left, operand(depth))
        return left

    def _atom(self, depth: int) -> Formula:
        if depth > _MAX_DEPTH:
            raise self._error("nested too deeply")
        token = self._take()
        if token.isdigit():
            return self._integer(token)
        if token.startswith("-"):
            inner = self._atom(depth + 1)
            return lambda symbols: _within(-inner(symbols))
        if token.startswith("("):
            return self._closed(self._sum(depth + 1))
        if token in _FUNCTIONS:
            return self._call(_FUNCTIONS[token], depth + 1)
        if token.isidentifier():
            return lambda symbols: _within(symbols[token])
        raise self._error(f"unexpected {token!r}")

    def _integer(self, token: str) -> Formula:
        # Longer than any value: too long for int() to be quick.
        value = int(token) if len(token.lstrip("0")) < 20 else _MOST + 1
        if value > _MOST:
            raise self._error(f"{token[:40]} is not a signed 64-bit integer")
        return lambda _: value

    def _call(self, function: Callable[[int, int], int], depth: int) -> Formula:
        self._expect("(")
        left = self._sum(depth)
        self._expect(",")
        return self._closed(_binary(function, left, self._sum(depth)))

    def _closed(self, inner: Formula) -> Formula:
        self._expect(")")
        return inner

    def _peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        if not token:
            raise self._error("ends too early")
        self.position += 1
        return token

    def _expect(self, token: str) -> None:
        if self._peek() != token:
            raise self._error(f"expected {token!r}")
        self.position += 1

    def _error(self, reason: str) -> IntegrityError:
        return IntegrityError(f"bad formula {self.text!r}: {reason}")


def _binary(function: Callable[[int, int], int], left: Formula, right: Formula) -> Formula:
    return lambda symbols: _within(function(left(symbols), right(symbols)))


def _within(value: int) -> int:
    if not _LEAST <= value <= _MOST:
        raise FormulaOverflow(f"{value} is not a signed 64-bit integer")
    return value
