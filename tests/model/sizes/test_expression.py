"""Formulas: what they give, and that nothing else gets through."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcache_grpc.errors import IntegrityError
from kcache_grpc.model.sizes.expression import FormulaOverflow, evaluate

NAMES = ("s0", "s1", "workers")
SIZES = st.fixed_dictionaries({name: st.integers(0, 2**31) for name in NAMES})


def _formulas() -> st.SearchStrategy[tuple[str, str]]:
    """Pairs of a formula and the Python expression that it means."""
    leaf = st.one_of(
        st.integers(0, 10**12).map(lambda n: (str(n), str(n))),
        st.sampled_from(NAMES).map(lambda name: (name, f"v[{name!r}]")),
    )

    def combine(children: st.SearchStrategy[tuple[str, str]]) -> st.SearchStrategy[tuple[str, str]]:
        pair = st.tuples(children, children)
        binary = st.tuples(st.sampled_from("+-*"), pair).map(
            lambda x: (f"({x[1][0][0]} {x[0]} {x[1][1][0]})", f"w({x[1][0][1]} {x[0]} {x[1][1][1]})")
        )
        least = st.tuples(st.sampled_from(["min", "max"]), pair).map(
            lambda x: (f"{x[0]}({x[1][0][0]},{x[1][1][0]})", f"{x[0]}({x[1][0][1]},{x[1][1][1]})")
        )
        rounded = st.tuples(children, st.integers(1, 4096)).map(
            lambda x: (f"roundup({x[0][0]}, {x[1]})", f"w(-(-{x[0][1]} // {x[1]}) * {x[1]})")
        )
        return binary | least | rounded

    return st.recursive(leaf, combine, max_leaves=12)


@given(_formulas(), SIZES)
def test_a_formula_means_what_python_means(formula: tuple[str, str], sizes: dict[str, int]) -> None:
    text, meaning = formula
    try:
        wanted = eval(meaning, {"v": sizes, "min": min, "max": max, "w": within})
    except OverflowError:
        with pytest.raises(FormulaOverflow):
            evaluate(text, sizes)
    else:
        assert evaluate(text, sizes) == wanted


def within(value: int) -> int:
    """A signed 64-bit integer, or an error."""
    if not -(2**63) <= value < 2**63:
        raise OverflowError
    return value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2+3*4", 14),
        ("20-3-4", 13),
        ("17%5*2", 4),
        ("-3+s0", 2),
        ("ceildiv(s0, 2)", 3),
        ("roundup(s0*4,64)", 64),
        (" ( s0 ) ", 5),
        ("0007", 7),
        (f"{2**63 - 1}", 2**63 - 1),
        (f"-{2**63 - 1} - 1", -(2**63)),
        (f"{'0' * 40}9", 9),
    ],
)
def test_precedence_and_functions(text: str, value: int) -> None:
    assert evaluate(text, {"s0": 5}) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1+",
        "(1",
        "1)",
        "min(1)",
        "min(1,2,3)",
        "1 2",
        "s0 s0",
        "2**3",
        "__import__('os')",
        "1.5",
        "s0[0]",
        "é",
        "1/2",
        "nosuch+1",
        "5%0",
        "ceildiv(1,0)",
        "(" * 5000 + ")" * 5000,
        "(" * 1500 + "1" + ")" * 1500,
        "+",
        "min",
    ],
)
def test_anything_else_is_an_integrity_error(text: str) -> None:
    with pytest.raises(IntegrityError):
        evaluate(text, {"s0": 5})


@pytest.mark.parametrize(
    "text",
    [f"{2**63}", "9" * 19, "9" * 4000, f"{2**62}*2", f"{2**63 - 1}+1-1", "s0*s0", f"-(-{2**63 - 1} - 1)",
     f"0-{2**63 - 1}-2", f"roundup({2**63 - 1}, 64)", "s0*s0*0"],
)  # fmt: skip
def test_values_beyond_64_bits_are_an_integrity_error(text: str) -> None:
    with pytest.raises(IntegrityError, match="not a signed 64-bit integer"):
        evaluate(text, {"s0": 2**32})


@given(st.text(max_size=60))
def test_no_text_escapes_as_another_error(text: str) -> None:
    with contextlib.suppress(IntegrityError):
        evaluate(text, {"s0": 5})
