"""Sizes that are computed of sizes: what is rewritten has the same value, in the range that is told of it."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from kcache_compiler.shapes.arithmetic import Arithmetic
from kcache_compiler.shapes.formula import Formula, UnresolvedSize, evaluate
from kcache_compiler.shapes.symbols import SymbolFact, SymbolTable

_ORDERS = ("EQ", "NE", "LT", "LE", "GT", "GE")
#: Operations on integers, or on truths, and how many operands they have.
_INTEGERS = {"add": 2, "subtract": 2, "multiply": 2, "maximum": 2, "minimum": 2, "clamp": 3}
_INTEGERS |= {"negate": 1, "abs": 1, "sign": 1, "divide": 2, "remainder": 2, "compare": 2}
_TRUTHS = {"and": 2, "or": 2, "xor": 2, "not": 1}
_SIZES = (0, 1, 2, 3, 4, 5, 7, 9, 12, 13)

Value = tuple[Formula, "list[int | None]", bool]


class Table:
    """Values that are made of two sizes: formulas, and what they are at every pair of sizes."""

    def __init__(self, least: Mapping[str, int], exact: Mapping[int, SymbolFact]) -> None:
        self.symbols = SymbolTable(2, least, exact)
        self.required: list[tuple[Formula, Formula]] = []
        self.symbols.require_nonnegative = lambda formula: self.required.append((0, formula))
        self.arithmetic = Arithmetic(self.symbols, lambda size, least: self.required.append((least, size)))
        self.pairs = [
            {"s0": a, "s1": b}
            for a in _SIZES
            for b in _SIZES
            if a >= least.get("s0", 0)
            and b >= least.get("s1", 0)
            and all(
                expression.check(f"s{index}").met({"s0": a, "s1": b}) for index, expression in exact.items()
            )
        ]
        self.values: list[Value] = [
            (self.symbols.expansions[index] or f"s{index}", [pair[f"s{index}"] for pair in self.pairs], False)
            for index in range(2)
        ]

    def number(self, number: int) -> None:
        self.values.append((number, [number] * len(self.pairs), False))

    def add(self, op: str, order: str, operands: list[Value]) -> None:
        """The result of an operation; none where it is not followed."""
        truth = op in _TRUTHS or op == "compare"
        try:
            computed = self.arithmetic.compute(
                op, order, "i1" if truth else "i64", [[operand[0]] for operand in operands]
            )
        except UnresolvedSize:
            return
        if computed is None:
            return
        rows = zip(*(operand[1] for operand in operands), strict=True)
        self.values.append((computed[0], [_value(op, order, row) for row in rows], truth))

    def check(self) -> None:
        """Every value is right wherever all that is required holds."""
        required = [(self.symbols.expand(low), self.symbols.expand(high)) for low, high in self.required]
        places = [
            place
            for place, pair in enumerate(self.pairs)
            if all(evaluate(low, pair) <= evaluate(high, pair) for low, high in required)
        ]
        for formula, expected, _ in self.values:
            for expression in (formula, self.symbols.without_remainders(formula)):
                expanded = self.symbols.expand(expression)
                low, high = self.symbols.range(expression)
                for place in places:
                    wanted, pair = expected[place], self.pairs[place]
                    if wanted is None:
                        continue
                    assert evaluate(expanded, pair) == wanted, (pair, expanded)
                    assert low <= wanted <= (wanted if high is None else high), (pair, expression)


def _value(op: str, order: str, row: tuple[int | None, ...]) -> int | None:
    """What StableHLO says; None where something is divided by 0."""
    if None in row:
        return None
    x = [value for value in row if value is not None]
    if op in ("divide", "remainder") and x[1] == 0:
        return None
    match op:
        case "divide" | "remainder":
            quotient = abs(x[0]) // abs(x[1]) * (1 if (x[0] < 0) == (x[1] < 0) else -1)
            return quotient if op == "divide" else x[0] - quotient * x[1]
        case "compare":
            less, same = x[0] < x[1], x[0] == x[1]
            kinds = (same, not same, less, less or same, not (less or same), not less)
            return int(kinds[_ORDERS.index(order)])
        case "clamp":
            return min(max(x[1], x[0]), x[2])
        case "select":
            return x[1] if x[0] else x[2]
        case "negate" | "not":
            return (op == "not") - x[0]
        case "abs" | "sign":
            return abs(x[0]) if op == "abs" else (x[0] > 0) - (x[0] < 0)
        case "xor":
            return x[0] ^ x[1]
        case "maximum" | "or":
            return max(x)
        case "minimum" | "and":
            return min(x)
        case _:
            return {"add": x[0] + x[1], "subtract": x[0] - x[1], "multiply": x[0] * x[1]}[op]


def test_a_quotient_of_a_sum_whose_parts_may_be_below_0() -> None:
    """``(min(n - 10, m) + 20) // 3``, and what is left of it."""
    table = Table({}, {})
    for number in (10, 20, 3):
        table.number(number)
    first, second, ten, twenty, three = table.values
    table.add("subtract", "", [first, ten])
    table.add("minimum", "", [table.values[-1], second])
    table.add("add", "", [table.values[-1], twenty])
    whole = table.values[-1]
    table.add("divide", "", [whole, three])
    table.add("remainder", "", [whole, three])
    assert len(table.values) == 10
    table.check()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_sizes_are_what_the_program_computes(data: st.DataObject) -> None:
    draw = data.draw
    least = {f"s{index}": draw(st.sampled_from((0, 0, 1, 2, 5))) for index in range(2)}
    parts = st.builds(SymbolFact, st.integers(2, 4), st.integers(-7, 7))
    table = Table(least, draw(st.one_of(st.just({}), st.fixed_dictionaries({0: parts}))))
    for number in draw(st.lists(st.integers(-6, 20), min_size=3, max_size=3)):
        table.number(number)
    for _ in range(draw(st.integers(1, 8))):
        integers, truths = ([value for value in table.values if value[2] is truth] for truth in (False, True))
        names: list[str] = [*_INTEGERS, "divide"] + ([*_TRUTHS, "select"] if truths else [])
        op = draw(st.sampled_from(names))
        if op == "select":
            operands = [draw(st.sampled_from(truths)), *(draw(st.sampled_from(integers)) for _ in range(2))]
        else:
            among, count = (truths, _TRUTHS[op]) if op in _TRUTHS else (integers, _INTEGERS[op])
            operands = [draw(st.sampled_from(among)) for _ in range(count)]
        table.add(op, draw(st.sampled_from(_ORDERS)) if op == "compare" else "", operands)
    table.check()
