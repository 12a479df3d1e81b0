"""Random programs of every operation agree with the oracle, or are rejected by name; none ends a process."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.generated import coverage
from tests.ops.generated.again import again
from tests.ops.generated.classes import classes
from tests.ops.generated.drive import cases, these
from tests.ops.generated.judge import execute
from tests.ops.generated.operations.catalog import EDGES, FAMILIES, pairs
from tests.ops.generated.structure.stated import of_attribute, table
from tests.ops.harness.programs import OpProgram

#: What this version rejects, of all that is generated.
REJECTED: frozenset[str] = frozenset()
#: Shares of all pairs of operation and dtype; CI has one of them.
SHARES = 64


@pytest.mark.parametrize(
    "share", [0, *(pytest.param(number, marks=pytest.mark.long) for number in range(1, SHARES))]
)
def test_generated_programs_are_right_or_rejected(share: int) -> None:
    chosen = pairs()[share::SHARES]
    results = list(cases(chosen, len(chosen), seed=2))
    assert len(results) == len(chosen)
    bad = [case for case in results if case.outcome in ("wrong", "crash", "error")]
    assert not bad, bad[0]
    assert {case.op for case in results if case.outcome == "rejected"} <= REJECTED
    right = sum(case.outcome == "right" for case in results)
    assert right >= 0.95 * len(results)


def test_programs_at_the_edges_are_right() -> None:
    ops = ("einsum", "unary_einsum", "rng", "torch_index_select", "chlo.broadcast_compare")
    asked = [(op, dtype, 3, EDGES + n) for op in ops for n, dtype in enumerate(("f32", "bf16", "i8", "ui32"))]
    results = list(these(asked))
    assert [case for case in results if case.outcome != "right"] == []
    assert "einsum_config diagonal" in {kind for case in results for kind in case.classes}


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("op", "dtype", "kind"),
    [
        ("rng", "f32", "rank 0"),
        ("rng", "i8", "rank 0"),
        ("batch_norm_training", "f32", "empty"),
        ("batch_norm_grad", "f16", "empty"),
    ],
)
def test_one_number_is_drawn_and_norms_of_nothing_are_what_divisions_give(
    op: str, dtype: str, kind: str
) -> None:
    requests = [coverage.built(op, dtype, seed, kind) for seed in range(3)]
    results = list(these([request[0] for request in requests if request]))
    assert [case.outcome for case in results] == ["right"] * 3, results


def test_each_draw_has_numbers_of_its_own() -> None:
    types = "(tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<9xf32>"
    text = f"""func.func @main(%a: tensor<f32>, %b: tensor<f32>) -> (tensor<9xf32>, tensor<9xf32>) {{
      %n = stablehlo.constant dense<9> : tensor<1xi64>
      %r = stablehlo.rng %a, %b, %n, distribution = UNIFORM : {types}
      %s = stablehlo.rng %a, %b, %n, distribution = UNIFORM : {types}
      return %r, %s : tensor<9xf32>, tensor<9xf32> }}"""
    bounds = [np.array(bound, "f4").tobytes() for bound in (0, 1)]
    first, second = execute(OpProgram("rng", "f32", text, bounds, ["f32"] * 2), 1)
    assert not set(np.frombuffer(first, "f4")) & set(np.frombuffer(second, "f4"))


def test_bf16_between_blocks_where_nothing_is_optimized() -> None:
    results = list(cases([("concatenate", "bf16"), ("pad", "bf16")], 6, seed=5, level=0))
    assert [case.outcome for case in results] == ["right"] * 6, results


@pytest.mark.parametrize(
    ("op", "attributes", "result"),
    [
        (
            "dot_general",
            "dot_dimension_numbers = #stablehlo.dot<rhs_contracting_dimensions = [0], "
            "lhs_contracting_dimensions = [1]>, precision_config = "
            "[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]",
            3 * 240 * 200,
        ),
        (
            "convolution",
            "batch_group_count = 1 : i64, feature_group_count = 1 : i64, "
            "dimension_numbers = #stablehlo.conv<[b, f]x[i, o]->[b, f]>",
            3 * 240 * 200,
        ),
    ],
)
def test_factors_of_a_wider_sum_are_unsigned(op: str, attributes: str, result: int) -> None:
    text = f"""func.func @main(%a: tensor<1x3xui8>, %b: tensor<3x1xui8>) -> tensor<1x1xui32> {{
      %r = "stablehlo.{op}"(%a, %b) <{{{attributes}}}>
        : (tensor<1x3xui8>, tensor<3x1xui8>) -> tensor<1x1xui32>
      return %r : tensor<1x1xui32> }}"""
    program = OpProgram(op, "ui8", text, [bytes([240] * 3), bytes([200] * 3)], ["ui32"])
    assert execute(program, 1) == [result.to_bytes(4, "little")]


def test_complex_numbers_are_clamped_by_both_parts() -> None:
    numbers = "tensor<1xcomplex<f32>>"
    text = f"""func.func @main(%a: {numbers}, %b: {numbers}, %c: {numbers}) -> {numbers} {{
      %r = stablehlo.clamp %a, %b, %c : {numbers}
      return %r : {numbers} }}"""
    low, value, high = (np.array([number], "c8").tobytes() for number in (-2j, 1j, 2j))
    assert execute(OpProgram("clamp", "c64", text, [low, value, high], ["c64"]), 1) == [value]


def test_elements_that_are_spread_keep_the_padding_before_them() -> None:
    text = """func.func @main(%a: tensor<2xi8>) -> tensor<6xi8> {
      %one = stablehlo.constant dense<1> : tensor<i8>
      %b = stablehlo.pad %a, %one, low = [1], high = [0], interior = [0]
        : (tensor<2xi8>, tensor<i8>) -> tensor<3xi8>
      %c = stablehlo.pad %b, %one, low = [1], high = [0], interior = [1]
        : (tensor<3xi8>, tensor<i8>) -> tensor<6xi8>
      return %c : tensor<6xi8> }"""
    assert execute(OpProgram("pad", "i8", text, [bytes([7, 8])], ["i8"]), 1) == [bytes([1, 1, 1, 7, 1, 8])]


def test_a_scan_of_no_complex_numbers_is_nothing_and_what_it_carries() -> None:
    whole, row = "tensor<0x2xcomplex<f32>>", "tensor<2xcomplex<f32>>"
    text = f"""func.func @main(%a: {whole}, %b: {row}) -> ({whole}, {row}) {{
      %r:2 = "chlo.scan"(%a, %b) <{{dimension = 0 : i64, is_reverse = false,
        operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>}}> ({{
      ^bb0(%x: {row}, %c: {row}):
        %s = stablehlo.add %c, %x : {row}
        stablehlo.return %s, %s : {row}, {row}
      }}) : ({whole}, {row}) -> ({whole}, {row})
      return %r#0, %r#1 : {whole}, {row} }}"""
    carried = np.array([1 + 2j, 3], "c8").tobytes()
    assert execute(OpProgram("chlo.scan", "c64", text, [b"", carried], ["c64", "c64"]), 1) == [b"", carried]


def test_what_was_wrong_is_run_again_after_a_mend() -> None:
    wrong = {"op": "reverse", "dtype": "f32", "number": 0, "outcome": "wrong", "reason": "", "wish": "rank 3"}
    none = wrong | {"op": "clamp", "dtype": "c64", "wish": "values NaN"}
    before = {"seed": 4, "level": 1, "programs": 3, "outcomes": {"right": 1, "wrong": 2}, "classes": {}}
    after = again(before | {"others": [wrong, none]})
    assert after["outcomes"] == {"right": 2}
    assert after["programs"] == 2
    assert after["classes"]["reverse"]["rank 3"] == ["f32"]


def test_the_page_has_the_sums_and_the_pairs_of_all_summaries() -> None:
    first = {"outcomes": {"right": 1200, "rejected": 1}, "classes": {"reverse": {"empty": ["f32"]}}}
    second = {"outcomes": {"right": 5, "no-oracle": 2}, "classes": {"reverse": {"empty": ["f64"]}}}
    hits: coverage.Hits = {}
    for summary in (first, second):
        coverage.add(hits, summary["classes"])
    runs = coverage.runs_of([first, second])
    assert runs.startswith("1,208 programs in 2 runs: 1,205 right, 1 unsupported, 0 wrong")
    page = coverage.page(hits, runs, "2026-01-31")
    assert f"Date: 2026-01-31. {runs}" in page
    assert hits == {"reverse": {"empty": ["f32", "f64"]}}
    assert "| `reverse` | empty | 0 of " in page


def test_classes_are_read_from_the_program() -> None:
    text = """func.func @main(%a0: tensor<3x0xf32>, %a1: tensor<f32>) -> (tensor<2x0xf32>) {
  %v1 = "stablehlo.pad"(%a0, %a1) <{edge_padding_low = array<i64: -1, 0>, \
edge_padding_high = array<i64: 0, 0>, interior_padding = array<i64: 0, 2>}> : \
(tensor<3x0xf32>, tensor<f32>) -> (tensor<2x0xf32>)
  return %v1 : tensor<2x0xf32>
}
"""
    program = OpProgram("pad", "f32", text, [b"", np.array(-0.0, "f4").tobytes()], ["f32"])
    assert classes(program) == [
        "edge_padding_high zero",
        "edge_padding_low negative",
        "edge_padding_low zero",
        "empty",
        "interior_padding more",
        "interior_padding zero",
        "rank 2",
        "values -0",
    ]


def test_programs_are_drawn_for_what_was_not_hit() -> None:
    hits = {"reverse": {"dimensions out of order": ["f32"], "empty": ["f32"]}}
    asked = coverage.aimed(hits, 400, seed=1, chosen=["reverse"])
    drawn = [request for request in asked if request[0] == "reverse"]
    assert {dtype for _, dtype, *_ in drawn} >= {"i8", "f64"}
    f32 = [kind for _, dtype, _, _, kind in drawn if dtype == "f32"]
    assert "dimensions in order" in f32
    assert not {"dimensions out of order", "empty"} & {*f32}


@pytest.mark.long
def test_there_is_a_program_for_each_class_of_an_attribute_in_each_dtype() -> None:
    """Made and not compiled: seconds."""
    asked = [
        (op, dtype, kind)
        for op, family in FAMILIES.items()
        for (kind, dtype), why in table(op, family.dtypes).items()
        if of_attribute(kind) and not why
    ]
    assert len(asked) > 5000
    assert [
        request for request in asked if coverage.built(request[0], request[1], 1, request[2]) is None
    ] == []


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(number, marks=pytest.mark.long) for number in range(1, SHARES))]
)
def test_there_is_a_program_for_each_rank_shape_and_value_in_each_dtype(part: int) -> None:
    asked = [
        (op, dtype, kind)
        for op, family in FAMILIES.items()
        for (kind, dtype), why in table(op, family.dtypes).items()
        if not of_attribute(kind) and not why
    ]
    chosen = asked[part::SHARES]
    assert [
        request for request in chosen if coverage.built(request[0], request[1], 1, request[2]) is None
    ] == []
