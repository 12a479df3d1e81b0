"""What numbers of code at samples of sizes say of the sizes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcache_compiler.errors import CompileFailed
from kcache_compiler.shapes.formula import (
    Check,
    Formula,
    add,
    apply,
    formula_of,
    monomial_text,
    mul,
    polynomial,
    proves,
)
from kcache_compiler.shapes.formula import evaluate as value_of
from kcache_compiler.shapes.monomial import evaluate
from kcache_compiler.shapes.recovery import Ambiguous, RecoveredSizes
from kcache_compiler.spec.dynamic_graph import (
    dynamic_graph,
    has_symbolic_sizes,
    substitute,
    with_stated_sizes,
)
from kcache_compiler.spec.shape_inference import infer_sizes
from kcache_compiler.spec.text import CANONICALIZER_VERSION, parse_spec, write_spec

SAMPLES = ((8209, 8231), (8219, 8233), (8221, 8237), (8243, 8263), (8269, 8273))


def _texts(*formulas: Formula) -> list[str]:
    return [" ".join(str(value_of(f, {"s0": a, "s1": b})) for f in formulas) + " 7" for a, b in SAMPLES]


def _codes(*formulas: Formula) -> RecoveredSizes:
    return RecoveredSizes(SAMPLES, _texts(*formulas))


def _first(formula: Formula) -> int:
    return value_of(formula, {"s0": SAMPLES[0][0], "s1": SAMPLES[0][1]})


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        ("s0", "s0"),
        (mul("s0", 12), "12*s0"),
        (mul("s1", "s0"), "s0*s1"),
        (mul(mul("s0", 2), "s0"), "2*s0*s0"),
    ],
)
def test_monomials(formula: Formula, text: str) -> None:
    assert monomial_text(_codes(formula)(_first(formula))) == text


@pytest.mark.parametrize(
    "formula",
    [
        add("s0", 2),
        apply("-", "s1", 1),
        add("s0", "s1"),
        add(mul("s0", "s1"), add("s0", 3)),
        apply("-", mul("s0", "s1"), "s1"),
    ],
    ids=str,
)
def test_sums(formula: Formula) -> None:
    codes = _codes("s0", "s1", mul("s0", "s1"), formula)
    assert proves(codes(_first(formula)), formula, equal=True)
    assert proves(codes(-_first(formula)), mul(-1, formula), equal=True)


def test_a_number_that_stays_is_itself() -> None:
    assert _codes("s0")(7) == 7
    assert RecoveredSizes()(8209) == 8209


def test_a_literal_that_equals_a_sample_asks_for_other_samples() -> None:
    texts = [f"{text} 8209" for text in _texts("s0")]
    with pytest.raises(Ambiguous):
        RecoveredSizes(SAMPLES, texts)(8209)


def test_a_number_that_two_sizes_have_asks_for_other_samples() -> None:
    with pytest.raises(Ambiguous):
        RecoveredSizes([(5, 6), (7, 11)], ["5 5", "7 11"])


def test_a_number_without_a_formula_asks_for_other_samples() -> None:
    with pytest.raises(Ambiguous):
        RecoveredSizes(SAMPLES, [str(number) for number in (3, 1, 4, 15, 92)])(3)


def test_only_numbers_may_differ() -> None:
    with pytest.raises(CompileFailed, match="differs in more than sizes"):
        RecoveredSizes(SAMPLES[:2], ["add 1", "sub 1"])


@pytest.mark.parametrize(
    "text",
    [
        "memref<{}x4xf32>",
        "%c{}_i32 = arith.constant {} : i32",
        "affine_map<(d0) -> (-d0 + {})>",
        "[0, {}] [1, 1]",
    ],
)
def test_sizes_are_found_where_code_has_them(text: str) -> None:
    codes = RecoveredSizes(SAMPLES, [text.replace("{}", str(a)) for a, _ in SAMPLES])
    assert codes.varies(SAMPLES[0][0])
    assert codes(SAMPLES[0][0]) == "s0"


@pytest.mark.parametrize("text", ["%{}", '"{}"', "#map{}", "1.{}", "0x{}"])
def test_names_and_contents_are_not_sizes(text: str) -> None:
    if text in ("#map{}", "%{}"):
        with pytest.raises(CompileFailed):
            RecoveredSizes(SAMPLES, [text.replace("{}", str(a)) for a, _ in SAMPLES])
    else:
        assert not RecoveredSizes(SAMPLES, [text.replace("{}", "8209") for _ in SAMPLES]).varies(8209)


_ATOMS = st.one_of(st.integers(0, 9), st.sampled_from(["s0", "s1", "s2"]))
_FORMULAS = st.recursive(
    _ATOMS, lambda inner: st.builds(apply, st.sampled_from(["+", "-", "*"]), inner, inner), max_leaves=8
)
_VALUES = st.fixed_dictionaries({name: st.integers(0, 50) for name in ("s0", "s1", "s2")})


@settings(max_examples=200, deadline=None)
@given(_FORMULAS, _FORMULAS, _VALUES)
def test_what_is_settled_holds(a: Formula, b: Formula, values: dict[str, int]) -> None:
    terms = polynomial(a)
    assert terms is not None
    assert value_of(formula_of(terms), values) == value_of(a, values)
    if proves(a, b, equal=True):
        assert value_of(a, values) == value_of(b, values)
    if proves(a, b, equal=False):
        assert value_of(a, values) <= value_of(b, values)


SPEC = f"""kcache.spec v1 canonicalizer={CANONICALIZER_VERSION} numerics=strict family=stablehlo
arg a0 f32[s2,s5]
arg a1 f32[2*s2*s5]
arg a2 i32[]
%0 = constant : i32[] | 00000000
%1 = dynamic_slice a0[0,1] a2[] %0[] : f32[1,s5] | slice_sizes = array<i64: 1, s5>
%2 = extent : f32[] | 1/(s2*s5)
%3 = multiply %1[*1,1] %2[*1,*s5] : f32[1,s5]
return %3[*1,1]
"""


def test_open_sizes_are_named_in_order() -> None:
    opened = dynamic_graph(parse_spec(SPEC))
    assert opened.names == ("s2", "s5")
    text = write_spec(opened.graph)
    assert "arg a1 f32[2*s0*s1]" in text
    assert "slice_sizes = array<i64: 1, s1>" in text
    assert "1/(s0*s1)" in text
    assert [(a, evaluate(b, {0: 7})) for a, b in opened.sizes.limits] == [(1, 7)]


def test_samples_keep_the_limits_and_stand_nowhere_else() -> None:
    opened = dynamic_graph(parse_spec(SPEC))
    seen: set[int] = set()
    for attempt in range(3):
        samples = with_stated_sizes(opened).sizes.samples(3, attempt)
        assert samples is not None
        sizes = {size for sample in samples for size in sample}
        assert len(sizes) == 6
        assert not sizes & seen
        seen |= sizes
        graph = substitute(opened.graph, dict(enumerate(samples[0])))
        assert not has_symbolic_sizes(graph.body)


def test_stated_and_inferred_sizes_answer_alike() -> None:
    """A program that states its sizes has the same formulas and guards when they are inferred."""
    graph = dynamic_graph(parse_spec(SPEC))
    stated, inferred = with_stated_sizes(graph), infer_sizes(graph)
    assert write_spec(inferred.graph.graph) == write_spec(graph.graph)
    for size in sorted(graph.sizes.symbolic):
        assert inferred.sizes.formula(size) == stated.sizes.formula(size)
    assert inferred.sizes.checks == stated.sizes.checks == (Check(1, "s0", equal=False),)
    for sized in (stated, inferred):
        samples = sized.sizes.samples(3, 0)
        assert samples is not None
        assert len({tuple(sample) for sample in samples}) == 3
        for sample in samples:
            values = {f"s{index}": value for index, value in enumerate(sample)}
            assert all(check.met(values) for check in sized.sizes.checks)
