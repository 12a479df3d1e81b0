"""Shape inference, by the graph before and after it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kcache_compiler.shapes.formula import Check, UnresolvedSize, text
from kcache_compiler.shapes.monomial import is_symbolic, size_text
from kcache_compiler.spec.dynamic_graph import SizedGraph, dynamic_graph
from kcache_compiler.spec.shape_inference import infer_sizes
from kcache_compiler.spec.text import CANONICALIZER_VERSION, parse_spec, write_spec

_HEADER = f"kcache.spec v1 canonicalizer={CANONICALIZER_VERSION} numerics=strict family=stablehlo\n"


@dataclass(frozen=True)
class Case:
    """``sizes`` are the formulas of derived symbols by name; ``guards`` are the checks of the kernel."""

    before: str
    after: str
    sizes: dict[str, str]
    guards: tuple[str, ...] = ()


CASES = {
    "a size becomes an extent": Case(
        """
arg a0 f32[s0]
%0 = get_dimension_size a0[0] : i32[] | dimension = 0 : i64
return %0[]
""",
        """
arg a0 f32[s0]
%0 = extent : i32[] | s0
return %0[]
""",
        {},
    ),
    "the result of a pad has a derived size": Case(
        """
arg a0 f32[s0]
arg a1 f32[s1]
%0 = constant : f32[] | 00000000
%1 = constant : i32[] | 00000000
%2 = get_dimension_size a1[0] : i32[] | dimension = 0 : i64
%3 = dynamic_pad a0[0] %0[] %1[*1] %2[*1] %1[*1] : f32[?]
return %3[0]
""",
        """
arg a0 f32[s0]
arg a1 f32[s1]
%0 = constant : f32[] | 00000000
%1 = constant : i32[] | 00000000
%2 = extent : i32[] | s1
%3 = pad a0[0] %0[] : f32[s2] | edge_padding_low = array<i64: 0>, edge_padding_high = array<i64: s1>, \
interior_padding = array<i64: 0>
return %3[0]
""",
        {"s2": "s0 + s1"},
    ),
    "the bounds of a slice are guarded": Case(
        """
arg a0 f32[s0]
%0 = constant : i32[] | 00000000
%1 = get_dimension_size a0[0] : i32[] | dimension = 0 : i64
%2 = constant : i32[] | 03000000
%3 = subtract %1[] %2[] : i32[]
%4 = constant : i32[] | 01000000
%5 = real_dynamic_slice a0[0] %0[*1] %3[*1] %4[*1] : f32[?]
return %5[0]
""",
        """
arg a0 f32[s0]
%0 = constant : i32[] | 00000000
%1 = extent : i32[] | s0
%2 = constant : i32[] | 03000000
%3 = subtract %1[] %2[] : i32[]
%4 = constant : i32[] | 01000000
%5 = slice a0[0] : f32[s1] | start_indices = array<i64: 0>, limit_indices = array<i64: s1>, strides = \
array<i64: 1>
return %5[0]
""",
        {"s1": "s0 + -3"},
        ("3 <= s0",),
    ),
    "a reshape guards the number of elements, over a quotient that is a symbol": Case(
        """
arg a0 f32[s0]
%0 = get_dimension_size a0[0] : i32[] | dimension = 0 : i64
%1 = constant : i32[] | 02000000
%2 = divide %0[] %1[] : i32[]
%3 = concatenate %2[*1] %1[*1] : i32[2] | dimension = 0 : i64
%4 = dynamic_reshape a0[0] %3[0] : f32[?,2]
return %4[0,1]
""",
        """
arg a0 f32[s0]
%0 = extent : i32[] | s0
%1 = constant : i32[] | 02000000
%2 = divide %0[] %1[] : i32[]
%3 = concatenate %2[*1] %1[*1] : i32[2] | dimension = 0 : i64
%4 = reshape a0[0] : f32[s2,2]
return %4[0,1]
""",
        {"s2": "ceildiv(max(s0 + -1,0),2)"},
        ("s0 == ceildiv(max(s0 + -1,0),2) * 2",),
    ),
}


def _guard(check: Check) -> str:
    return f"{text(check.left)} {'==' if check.equal else '<='} {text(check.right)}"


def _derived(sized: SizedGraph) -> dict[str, str]:
    """Formulas of the symbols in results of nodes that no argument has."""
    body = sized.graph.graph.body
    arguments = {size for kind in body.params for size in kind.dims or ()}
    sizes = {size for node in body.nodes for kind in node.results for size in kind.dims or ()}
    return {
        size_text(size): text(sized.sizes.formula(size))
        for size in sorted(sizes - arguments)
        if is_symbolic(size)
    }


@pytest.mark.parametrize("name", CASES)
def test_the_graph_after_inference(name: str) -> None:
    case = CASES[name]
    sized = infer_sizes(dynamic_graph(parse_spec(_HEADER + case.before.lstrip())))
    assert write_spec(sized.graph.graph) == _HEADER + case.after.lstrip()
    assert _derived(sized) == case.sizes
    assert tuple(map(_guard, sized.sizes.checks)) == case.guards


def test_a_size_that_depends_on_data_is_not_inferred() -> None:
    before = """
arg a0 f32[s0]
arg a1 i32[1]
%0 = dynamic_iota a1[0] : f32[?] | iota_dimension = 0 : i64
return %0[0]
"""
    with pytest.raises(UnresolvedSize, match="dynamic_iota of sizes that depend on data"):
        infer_sizes(dynamic_graph(parse_spec(_HEADER + before.lstrip())))


def test_sizes_that_never_fit_are_rejected() -> None:
    """``x[: n + 1]`` reads beyond every ``x``."""
    before = """
arg a0 f32[s0]
%0 = constant : i32[] | 00000000
%1 = get_dimension_size a0[0] : i32[] | dimension = 0 : i64
%2 = constant : i32[] | 01000000
%3 = add %1[] %2[] : i32[]
%4 = real_dynamic_slice a0[0] %0[*1] %3[*1] %2[*1] : f32[?]
return %4[0]
"""
    with pytest.raises(UnresolvedSize, match="never satisfy"):
        infer_sizes(dynamic_graph(parse_spec(_HEADER + before.lstrip())))
