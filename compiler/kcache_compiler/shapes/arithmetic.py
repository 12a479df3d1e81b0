"""Arithmetic of programs on sizes: integer operations of StableHLO on elements that are formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kcache_compiler.shapes.formula import Formula, UnresolvedSize
from kcache_compiler.shapes.symbols import SymbolTable

#: The elements of a small integer tensor, row major.
Elements = list[Formula]
_WIDTHS = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "ui8": 1, "ui16": 2, "ui32": 4, "ui64": 8}
#: Most elements of a tensor that are followed.
MAX_ELEMENTS = 32
_BOOLEAN_OPS = frozenset({"and", "or", "xor", "not", "compare"})
#: Element types that sizes are computed in; narrower integers might overflow.
_SIZE_TYPES = frozenset({"i1", "i32", "i64", "ui32", "ui64"})


def read_constant(content: str, element: str, count: int) -> Elements | None:
    """Return the elements of an integer constant of ``count`` elements; None if it is not followed."""
    width = _WIDTHS.get(element)
    if width is None or count > MAX_ELEMENTS or content.startswith("="):
        return None
    data = bytes.fromhex(content)
    signed = element.startswith("i") and element != "i1"
    elements: Elements = [
        int.from_bytes(data[start : start + width], "little", signed=signed)
        for start in range(0, len(data), width)
    ]
    if len(elements) == 1:
        return elements * count
    return elements if len(elements) == count else None


class Arithmetic:
    """Integer operations, element by element. Booleans are 0 and 1."""

    def __init__(self, symbols: SymbolTable, require_at_least: Callable[[Formula, Formula], None]) -> None:
        """``require_at_least(x, y)`` is called with what an operation takes for granted: ``x >= y``."""
        self.symbols = symbols
        self._require_at_least = require_at_least

    def compute(
        self, op: str, attributes: str, element: str, operands: Sequence[Elements]
    ) -> Elements | None:
        """Return the elements of the result of an elementwise operation; None where they are not known.

        Elements of f64 are converted integers here, which rounding to integers does not change.
        """
        if element == "f64":
            return list(operands[0]) if op in ("convert", "ceil", "floor") else None
        if element not in _SIZE_TYPES:
            return None
        results: Elements = []
        for scalars in zip(*operands, strict=True):
            result = self._scalar(op, attributes, element, list(scalars))
            if result is None:
                return None
            results.append(result)
        return results

    def _scalar(self, op: str, attributes: str, element: str, x: Elements) -> Formula | None:
        """Return an elementwise integer operation as a formula; None if it is unsupported or may wrap."""
        a = self.symbols.apply
        if (element == "i1") != (op in _BOOLEAN_OPS) and op != "select":
            return None
        match op:
            case "add" | "subtract" | "multiply":
                result = a({"add": "+", "subtract": "-", "multiply": "*"}[op], x[0], x[1])
                return None if element.startswith("u") and self.symbols.range(result)[0] < 0 else result
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
                return self._divide(op, x[0], x[1])
            case "compare":
                return self._compare(attributes.split(", ")[0], x[0], x[1])
            case "and":
                return self._and(x[0], x[1])
            case "or":
                return a("max", x[0], x[1])
            case "xor":
                return self._compare("NE", x[0], x[1])
            case "not":
                return a("-", 1, x[0])
            case "select":
                return self._select(x[0], x[1], x[2])
            case _:
                return None

    def _divide(self, op: str, left: Formula, right: Formula) -> Formula | None:
        """The quotient rounded toward zero, or the remainder. Dividend and divisor must have known signs: the
        divisor is above 0, the dividend never above 0 or required not to be below 0.
        """
        if isinstance(left, int) and isinstance(right, int) and right:
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            return quotient if op == "divide" else left - quotient * right
        low, high = self.symbols.range(left)
        if self.symbols.range(right)[0] < 1:
            return None
        a = self.symbols.apply
        if high is not None and high <= 0:
            negated = a("-", 0, left)
            result = (
                a("%", negated, right) if op == "remainder" else self.symbols.floor_divide(negated, right)
            )
            return a("-", 0, result)
        if low < 0:
            self._require_at_least(left, 0)
        return a("%", left, right) if op == "remainder" else self.symbols.floor_divide(left, right)

    def _compare(self, direction: str, left: Formula, right: Formula) -> Formula:
        a = self.symbols.apply
        match direction:
            case "LE" | "LT":
                difference = a("-", right, left)
                positive = a("+", difference, 1) if direction == "LE" else difference
                return a("min", a("max", positive, 0), 1)
            case "GE" | "GT":
                return self._compare({"GE": "LE", "GT": "LT"}[direction], right, left)
            case "EQ":
                return self._and(self._compare("LE", left, right), self._compare("LE", right, left))
            case "NE":
                return a("-", 1, self._compare("EQ", left, right))
            case _:
                raise UnresolvedSize(f"a comparison {direction}")

    def _and(self, left: Formula, right: Formula) -> Formula:
        """The conjunction of booleans. Floor division of signed integers is written as "the signs differ and
        the remainder is not 0", where the dividend is not 0 either: such pairs exclude each other.
        """
        if left == right:
            return left
        if self._exclude(left, right) or self._exclude(right, left):
            return 0
        return self.symbols.apply("*", left, right)

    def _exclude(self, left: Formula, right: Formula) -> bool:
        """Whether the booleans are ``min(x % m, 1)`` and ``1 - min(x, 1)``."""
        remainder = self.symbols.operation(left)
        negated = self.symbols.operation(self.symbols.apply("-", 1, right))
        if remainder is not None and remainder[0] == "min" and remainder[2] == 1:
            remainder = self.symbols.operation(remainder[1])
        if remainder is None or negated is None:
            return False
        is_nonzero = negated[0] == "min" and negated[2] == 1
        return is_nonzero and remainder[0] == "%" and remainder[1] == negated[1]

    def _select(self, condition: Formula, if_true: Formula, if_false: Formula) -> Formula:
        a = self.symbols.apply
        if isinstance(condition, int) or if_true == if_false:
            return if_true if condition else if_false
        return a("+", a("*", condition, a("-", if_true, if_false)), if_false)
