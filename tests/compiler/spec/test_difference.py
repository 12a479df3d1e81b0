"""What differs between two specs, in words: of programs one change apart, and of texts of any version."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kcache_compiler
from kcache_compiler.difference import compare_specs, nearest, nearest_specs
from kcache_compiler.difference.literal import literal
from kcache_compiler.difference.nearest import distance

PROGRAMS = Path(__file__).parents[1] / "programs"
#: Operations of the real programs below, and what stands in their place.
OTHERS = {
    "add": "subtract",
    "multiply": "divide",
    "tanh": "logistic",
    "exponential": "tanh",
    "divide": "multiply",
    "rsqrt": "sqrt",
}


def spec(body: str, types: str = "f32", numerics: str = "default") -> str:
    """The spec of ``(x, y: 4x8) -> 4x8``; every line of ``body`` ends with the type."""
    kind = f"tensor<4x8x{types}>"
    lines = "".join(f"  {line} : {kind}\n" for line in body.strip().splitlines())
    text = f"func.func @main(%x: {kind}, %y: {kind}) -> {kind} {{\n{lines}}}\n"
    return kcache_compiler.canonicalize(text.encode(), "stablehlo", numerics).spec_text


def sentences(yours: str, theirs: str) -> list[str]:
    return [difference.sentence for difference in compare_specs(yours, theirs)]


BODY = """
%h = stablehlo.constant dense<0.5>
%a = stablehlo.add %x, %y
%b = stablehlo.multiply %a, %h
%c = stablehlo.tanh %b
%d = stablehlo.subtract %c, %y
return %d
"""


def test_equal_specs_do_not_differ():
    renamed = BODY.replace("%a", "%q").replace("%x, %y", "%y, %x")
    assert compare_specs(spec(BODY), spec(renamed)) == ()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tanh", "logistic", r"operation \d+: yours is tanh of %\d+, the stored one is logistic of %\d+"),
        ("<0.5>", "<0.25>", r"operation \d+, multiply: a constant differs: 0\.5 here, 0\.25 there"),
        (
            "subtract %c, %y",
            "subtract %y, %c",
            r"operation \d+, subtract: its operands are %\d+, argument 1 here and argument 1, %\d+ there: "
            "another order",
        ),
        ("subtract %c, %y", "subtract %c, %x", r"operand 1 is argument 1 here and argument 0 there"),
        ("return %d", "return %c", r"operation \d+: subtract of %\d+ and argument 1 is not in the stored"),
        (
            "tanh %b",
            "tanh %b : tensor<4x8xf32>\n%e = stablehlo.negate %c",
            r"operation \d+, subtract: operand 0 is %\d+ here",
        ),
    ],
)
def test_the_first_differing_operation_is_named(old, new, said):
    theirs = BODY.replace(old, new)
    if "negate" in theirs:
        theirs = theirs.replace(": tensor<4x8xf32>\n", "\n").replace("subtract %c", "subtract %e")
        said = r"operation \d+: yours is subtract of %\d+ and argument 1, the stored one is negate of %\d+"
    (sentence,) = sentences(spec(BODY), spec(theirs))
    assert re.match(said, sentence) or re.search(said, sentence), sentence


def test_the_other_way_round_says_what_only_the_stored_graph_has():
    (sentence,) = sentences(spec(BODY.replace("return %d", "return %c")), spec(BODY))
    assert re.fullmatch(
        r"operation \d+ of the stored graph: subtract of %\d+ and argument 1 is not in yours", sentence
    )


def test_another_element_type_is_a_matter_of_the_arguments_only():
    half = sentences(spec(BODY), spec(BODY, "bf16"))
    assert [re.sub(r"\[[^]]*\]", "[]", sentence) for sentence in half] == [
        "argument 0 is of f32 here and of bf16 there (f32[] here, bf16[] there)",
        "argument 1 is of f32 here and of bf16 there (f32[] here, bf16[] there)",
    ]


def test_under_other_arguments_a_differing_operation_is_found_all_the_same():
    differences = sentences(spec(BODY), spec(BODY.replace("tanh", "logistic"), "f64"))
    assert any("tanh" in sentence and "logistic" in sentence for sentence in differences)


def test_the_numerics_class_is_named():
    (difference,) = compare_specs(spec(BODY), spec(BODY, numerics="strict"))
    assert (difference.name, difference.yours, difference.theirs) == ("numerics", "default", "strict")
    assert difference.sentence == "the numerics class differs: default here, strict there"


def test_a_body_inside_an_operation_is_entered():
    loop = """
func.func @main(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  %r = stablehlo.while(%i = %x) : tensor<f32>
    cond {
      %t = stablehlo.compare LT, %i, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %t : tensor<i1>
    } do {
      %n = stablehlo.add %i, %y : tensor<f32>
      stablehlo.return %n : tensor<f32>
    }
  return %r : tensor<f32>
}
"""
    yours, theirs, later = (
        kcache_compiler.canonicalize(text.encode(), "stablehlo").spec_text
        for text in (loop, loop.replace("stablehlo.add", "stablehlo.multiply"), loop.replace("LT", "GE"))
    )
    (sentence,) = sentences(yours, theirs)
    assert re.match(
        r"in region 1 of operation 0 \(while\), operation 0: yours is add of .* stored one is multiply",
        sentence,
    )
    (sentence,) = sentences(yours, later)
    assert re.match(
        r"in region 0 of operation 0 \(while\), operation 0, compare: .*LT here, [GL]E there", sentence
    )


@pytest.mark.parametrize("name", ["adam", "conv_block", "transformer"])
def test_one_operation_of_a_real_program(name):
    """Each kind once, at its last living place: the sentences name both kinds. Composites are not raised."""
    text = (PROGRAMS / f"{name}.mlir").read_text()
    yours = kcache_compiler.canonicalize(text.encode(), "stablehlo", "strict").spec_text
    tried = 0
    for op, other in OTHERS.items():
        for match in reversed([*re.finditer(rf"= stablehlo\.({op}) %", text)]):
            changed = text[: match.start(1)] + other + text[match.end(1) :]
            theirs = kcache_compiler.canonicalize(changed.encode(), "stablehlo", "strict").spec_text
            if theirs == yours:
                continue
            said = " ".join(sentences(yours, theirs))
            assert op in said, said
            assert other in said, said
            tried += 1
            break
    assert tried >= 3


HEAD = "kcache.spec v1 canonicalizer={} numerics=default family=stablehlo\n"
SYMBOLIC = (
    HEAD.format(2)
    + "arg a0 f32[s0,s1]\narg a1 f32[s1,2*s0]\n%0 = add a0[0,1] a1[*s0,0] : f32[s0,s1]\nreturn %0[0,1]\n"
)


def test_symbols_and_lines_of_other_versions_are_read_too():
    other = SYMBOLIC.replace("arg a1 f32[s1,2*s0]", "arg a1 f32[s1,s2]")
    assert sentences(SYMBOLIC, other) == ["argument 1 is f32[s1,2*s0] here and f32[s1,s2] there"]
    axes = SYMBOLIC.replace("a0[0,1]", "a0[1,0]")
    assert sentences(SYMBOLIC, axes) == [
        "operation 0, add: operand 0, argument 0, is read as [0,1] here and as [1,0] there: other axes"
    ]
    older = SYMBOLIC.replace("canonicalizer=2", "canonicalizer=1")
    assert sentences(SYMBOLIC, older) == ["the stored graph was made by canonicalizer 1, yours by 2"]
    unknown = SYMBOLIC.replace("return", "where s0 = 2*s1\nreturn")
    assert sentences(SYMBOLIC, unknown) == ["a line differs: '' here, 'where s0 = 2*s1' there"]


@pytest.mark.parametrize(
    "text", ["", "\n", "nonsense", "%0 = \n  %1 = add\nreturn", HEAD.format(1), "return" * 9]
)
def test_no_text_is_too_odd_to_compare(text):
    assert compare_specs(text, SYMBOLIC)
    assert compare_specs(SYMBOLIC, text)
    assert compare_specs(text, text) == ()


def test_results_are_compared():
    two = SYMBOLIC.replace("return %0[0,1]", "return %0[0,1] a0[0,1]")
    assert sentences(SYMBOLIC, two) == ["results: 1 here, 2 there"]
    turned = SYMBOLIC.replace("return %0[0,1]", "return %0[1,0]")
    assert sentences(SYMBOLIC, turned) == [
        "result 0, %0, is read as [0,1] here and as [1,0] there: other axes"
    ]


@pytest.mark.parametrize(
    ("element", "content", "said"),
    [
        ("f32", "0000003f", "0.5"),
        ("f32", "cdcccc3d", "0.1"),
        ("bf16", "003f", "0.5"),
        ("f16", "0038", "0.5"),
        ("i64", "ffffffffffffffff", "-1"),
        ("i1", "01", "true"),
        ("f32", "0000807f", "inf"),
        ("c64", "0000803f00000040", "(1, 2)"),
        ("i8", "0102030405060708", "[1, 2, 3, 4, 5, 6, ... 8 in all]"),
        ("f8E4M3FN", "=1.500000e+00", "1.500000e+00"),
        ("mystery", "00ff", "00ff"),
    ],
)
def test_constants_are_numbers(element, content, said):
    assert literal(element, content) == said


def test_the_nearest_come_first():
    yours = spec(BODY)
    candidates = [
        spec("%a = stablehlo.negate %x\nreturn %a"),
        spec(BODY, "f64"),
        spec(BODY.replace("<0.5>", "<0.25>")),
        spec(BODY.replace("tanh", "logistic")),
        spec(BODY, numerics="strict"),
    ]
    ranked = nearest_specs(yours, candidates, 4)
    assert [each.index for each in ranked] == [4, 2, 3, 1]
    assert [each.distance for each in ranked] == sorted(each.distance for each in ranked)
    assert all(each.differences for each in ranked)
    assert distance(yours, yours) == 0
    assert distance(yours, yours.replace("family=stablehlo", "family=linalg")) == 1000


def test_of_many_large_graphs_only_the_nearest_is_compared_to_the_end(monkeypatch):
    yours = spec(BODY)
    candidates = [spec(BODY.replace("<0.5>", f"<{value}>")) for value in ("0.25", "0.75")]
    monkeypatch.setattr(nearest, "COMPARED_CHARACTERS", len(yours))
    first, second = nearest_specs(yours, [*candidates, spec(BODY, "f64")], 3)[:2]
    assert "a constant differs" in first.differences[0].sentence
    (difference,) = second.differences
    assert difference.sentence == "the graphs are too large to be compared operation by operation"


MEAN = (
    HEAD.format(2)
    + """arg a0 f32[s0,s1]
%0 = constant : f32[] | 00000000
%1 = reduce a0[0,1] %0[] : f32[s0] | combiner = add, dimensions = [1]
%2 = extent : f32[] | s1
%3 = divide %1[0] %2[*s0] : f32[s0]
%4 = iota : f32[s0]
%5 = add %3[0] %4[0] : f32[s0]
return %5[0]
"""
)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "%2 = extent : f32[] | s1",
            "%2 = extent : f32[] | s1-1",
            "operation 3, divide: a constant differs: the size s1 here, the size s1-1 there",
        ),
        (
            "%2 = extent : f32[] | s1",
            "%2 = constant : f32[] | 00000041",
            "operation 3, divide: a constant differs: the size s1 here, 8 there",
        ),
        (
            "%4 = iota : f32[s0]",
            "%4 = iota : f32[s1]",
            "operation 5, add: a constant differs: iota f32[s0] here, iota f32[s1] there",
        ),
        (
            "dimensions = [1]",
            "dimensions = [0]",
            "operation 1, reduce: dimensions = [1] here, dimensions = [0] there",
        ),
        (
            "combiner = add",
            "combiner = maximum",
            "operation 1, reduce: combiner = add here, combiner = maximum there",
        ),
        (
            "f32[s0] | comb",
            "f32[s1] | comb",
            "operation 1, reduce: it gives f32[s0] here and f32[s1] there",
        ),
    ],
)
def test_sizes_attributes_and_types(old, new, said):
    theirs = MEAN.replace(old, new)
    assert theirs != MEAN
    assert sentences(MEAN, theirs) == [said]


def test_arguments_are_counted():
    theirs = SYMBOLIC.replace("arg a1", "arg a1 f32[s0]\narg a2")
    first, second, *_ = sentences(SYMBOLIC, theirs)
    assert first == "arguments: 2 here, 3 there"
    assert second == "argument 1 has rank 2 here and rank 1 there (f32[s1,2*s0] here, f32[s0] there)"
    many = HEAD.format(2) + "".join(f"arg a{i} f32[]\n" for i in range(9)) + "return a0[]\n"
    *said, last = sentences(many, many.replace("f32[]", "f64[]"))
    assert (len(said), last) == (4, "5 more arguments differ")


def test_long_texts_are_cut():
    theirs = SYMBOLIC.replace("return", "odd " + "x" * 5000 + "\nreturn")
    (sentence,) = sentences(SYMBOLIC, theirs)
    assert len(sentence) < 400
