"""Small integers that are made of sizes, element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kcache_compiler.shapes.formula import Formula
from kcache_compiler.spec.size_inference.symbols import Symbols, Unresolved

Elements = list[Formula]
_WIDTHS = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "ui8": 1, "ui16": 2, "ui32": 4, "ui64": 8}
#: Integers of a value that are followed.
MOST = 32
_LOGIC = frozenset({"and", "or", "xor", "not", "compare"})
#: What sizes are computed in; narrower integers might not hold them.
_SIZES = frozenset({"i1", "i32", "i64", "ui32", "ui64"})


def read_constant(content: str, element: str, count: int) -> Elements | None:
    """The elements of a constant of integers, few of them."""
    width = _WIDTHS.get(element)
    if width is None or count > MOST or content.startswith("="):
        return None
    data = bytes.fromhex(content)
    found: Elements = [
        int.from_bytes(data[at : at + width], "little", signed=element.startswith("i") and element != "i1")
        for at in range(0, len(data), width)
    ]
    return found * count if len(found) == 1 else found if len(found) == count else None


class Arithmetic:
    """Operations on elements; ``at_least`` is told what they take for granted."""

    def __init__(self, symbols: Symbols, at_least: Callable[[Formula, Formula], None]) -> None:
        self.symbols = symbols
        self._at_least = at_least

    def compute(
        self, op: str, attributes: str, element: str, operands: Sequence[Elements]
    ) -> Elements | None:
        """The elements of the result of an operation element by element; None where it is not known.

        Numbers of f64 are whole here, as converted from integers, and so that rounding leaves them.
        """
        if element == "f64":
            return list(operands[0]) if op in ("convert", "ceil", "floor") else None
        if element not in _SIZES:
            return None
        made: Elements = []
        for given in zip(*operands, strict=True):
            one = self._one(op, attributes, element, list(given))
            if one is None:
                return None
            made.append(one)
        return made

    def _one(self, op: str, attributes: str, element: str, x: Elements) -> Formula | None:
        a = self.symbols.apply
        if (element == "i1") != (op in _LOGIC) and op != "select":
            return None
        match op:
            case "add" | "subtract" | "multiply":
                made = a({"add": "+", "subtract": "-", "multiply": "*"}[op], x[0], x[1])
                return None if element.startswith("u") and self.symbols.range(made)[0] < 0 else made
            case "negate" | "abs" | "sign" if element.startswith("u"):
                return None
            case "maximum" | "minimum":
                return a(op[:3], x[0], x[1])
            case "clamp":
                return a("min", a("max", x[1], x[0]), x[2])
            case "negate":
                return a("-", 0, x[0])
            case "abs":
                return a("max", x[0], a("-", 0, x[0]))
            case "sign":
                return a("max", a("min", x[0], 1), -1)
            case "convert":
                return None if element.startswith("u") else x[0]
            case "divide" | "remainder":
                return self._division(op, x[0], x[1])
            case "compare":
                return self._compared(attributes.split(", ")[0], x[0], x[1])
            case "and":
                return self._both(x[0], x[1])
            case "or":
                return a("max", x[0], x[1])
            case "xor":
                return self._compared("NE", x[0], x[1])
            case "not":
                return a("-", 1, x[0])
            case "select":
                return self._chosen(x[0], x[1], x[2])
            case _:
                return None

    def _division(self, op: str, left: Formula, right: Formula) -> Formula | None:
        """Towards zero: up where what is divided is never above 0, else down, as neither may be negative."""
        if isinstance(left, int) and isinstance(right, int) and right:
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            return quotient if op == "divide" else left - quotient * right
        least, most = self.symbols.range(left)
        if self.symbols.range(right)[0] < 1:
            return None
        a = self.symbols.apply
        if most is not None and most <= 0:
            turned = a("-", 0, left)
            made = a("%", turned, right) if op == "remainder" else self.symbols.floor(turned, right)
            return a("-", 0, made)
        if least < 0:
            self._at_least(left, 0)
        return a("%", left, right) if op == "remainder" else self.symbols.floor(left, right)

    def _compared(self, direction: str, left: Formula, right: Formula) -> Formula:
        """1 where it holds, else 0."""
        a = self.symbols.apply
        match direction:
            case "LE" | "LT":
                apart = a("-", right, left)
                return a("min", a("max", a("+", apart, 1) if direction == "LE" else apart, 0), 1)
            case "GE" | "GT":
                return self._compared({"GE": "LE", "GT": "LT"}[direction], right, left)
            case "EQ":
                return self._both(self._compared("LE", left, right), self._compared("LE", right, left))
            case "NE":
                return a("-", 1, self._compared("EQ", left, right))
            case _:
                raise Unresolved(f"a comparison {direction}")

    def _both(self, left: Formula, right: Formula) -> Formula:
        """Both of two truths. What leaves a rest is not 0, so its sign is known: division that rounds down is
        written with that.
        """
        if left == right:
            return left
        if self._never(left, right) or self._never(right, left):
            return 0
        return self.symbols.apply("*", left, right)

    def _never(self, left: Formula, right: Formula) -> bool:
        """Whether they are ``min(x % m, 1)`` and ``1 - min(x, 1)``."""
        rest, one = self.symbols.shown(left), self.symbols.shown(self.symbols.apply("-", 1, right))
        if rest is not None and rest[0] == "min" and rest[2] == 1:
            rest = self.symbols.shown(rest[1])
        if rest is None or one is None:
            return False
        return one[0] == "min" and one[2] == 1 and rest[0] == "%" and rest[1] == one[1]

    def _chosen(self, where: Formula, yes: Formula, no: Formula) -> Formula:
        a = self.symbols.apply
        if isinstance(where, int) or yes == no:
            return yes if where else no
        return a("+", a("*", where, a("-", yes, no)), no)
