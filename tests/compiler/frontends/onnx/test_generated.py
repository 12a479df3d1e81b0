"""Random ONNX models agree with another runtime, or are rejected by name; none ends a process."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.conformance.onnx_models.build import I64, ints, model, node, value
from tests.conformance.onnx_models.generated.__main__ import BAD, CHILD
from tests.conformance.onnx_models.generated.catalog import spans
from tests.conformance.onnx_models.generated.draw import Draw, Made
from tests.conformance.onnx_models.generated.judge import RUNTIME, judge, kernel_results
from tests.ops.generated.drive import cases

#: Shares of all pairs of operator and range of opsets; CI has one of them.
SHARES = 64


@pytest.mark.skipif(not RUNTIME, reason="needs onnxruntime: the reference alone gets some operators wrong")
@pytest.mark.parametrize(
    "share", [0, *(pytest.param(number, marks=pytest.mark.long) for number in range(1, SHARES))]
)
def test_generated_models_are_right_or_rejected(share: int) -> None:
    chosen = spans()[share::SHARES]
    results = list(cases(chosen, len(chosen), seed=1, module=CHILD))
    assert len(results) == len(chosen)
    assert [case for case in results if case.outcome in BAD] == []
    right = sum(case.outcome == "right" for case in results)
    assert right >= 0.85 * len(results)


def test_every_version_since_opset_7_is_drawn() -> None:
    versions = {
        (op, int(span.split("-")[0])) for op, span in spans(["Softmax", "GroupNormalization", "TopK"])
    }
    assert versions == {
        *(("Softmax", first) for first in (7, 11, 13)),
        *(("TopK", first) for first in (7, 10, 11, 24)),
        ("GroupNormalization", 21),
    }


def test_a_wrong_result_is_seen() -> None:
    proto = model(
        [node("Add", ["x", "y"], ["z"])], [value("x", [2], I64), value("y", [2], I64)], [value("z", [2], I64)]
    )
    asked = Made(proto, [ints(1, 2), ints(3, 4)])
    assert judge(asked).outcome == "right"
    other = onnx.ModelProto()
    other.CopyFrom(proto)
    other.graph.node[0].op_type = "Sub"
    assert judge(asked, answering=Made(other, [np.copy(array) for array in asked.arrays])).outcome == "wrong"


@pytest.mark.sampled(9)
@pytest.mark.parametrize("start", [-9, -5, -4, 0, 3, 4, 9])
@pytest.mark.parametrize("end", [-9, -5, -2, 2, 9])
def test_slices_backward_begin_within_the_axis(start: int, end: int) -> None:
    """As the standard says, its shape inference and ONNX Runtime; its reference has slices of NumPy."""
    draw = Draw("Slice", 13, np.random.default_rng(1))
    draw.add(np.arange(4, dtype=np.float32), constant=False)
    for number in (start, end, 0, -1):
        draw.numbers([number])
    drawn = draw.model()
    drawn.model.graph.output[0].type.tensor_type.shape.SetInParent()
    drawn.model.graph.output[0].type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(drawn.model, strict_mode=True, data_prop=True)
    (size,) = (dim.dim_value for dim in inferred.graph.output[0].type.tensor_type.shape.dim)
    first = min(max(start + 4 if start < 0 else start, 0), 3)
    (got,) = kernel_results(drawn)
    np.testing.assert_array_equal(got, np.arange(first, first - size, -1, dtype=np.float32))


@pytest.mark.parametrize(
    ("opset", "mask"), [(7, np.float16), (9, np.float16), (10, np.bool_), (22, np.bool_)]
)
def test_a_mask_of_dropout_has_the_type_of_its_version(opset: int, mask: type) -> None:
    draw = Draw("Dropout", opset, np.random.default_rng(1))
    draw.add(np.ones(3, np.float16), constant=False)
    draw.outputs = 2
    draw.bind("T1", "bool")
    results = kernel_results(draw.model())
    assert [array.dtype for array in results] == [np.float16, mask]
    assert results[1].all()


@pytest.mark.parametrize(("x", "scale"), [("float16", "float"), ("float", "float16"), ("float16", "double")])
def test_a_normalization_has_the_type_of_its_scale(x: str, scale: str) -> None:
    draw = Draw("RMSNormalization", 23, np.random.default_rng(1))
    draw.special = False
    draw.add(draw.array(x, (2, 3)), constant=False)
    draw.add(draw.array(scale, (3,)), constant=False)
    assert judge(draw.model()).outcome == "right"


def test_erf_of_integers_is_rejected_by_name() -> None:
    draw = Draw("Erf", 13, np.random.default_rng(1))
    draw.add(np.ones(3, np.int8), constant=False)
    verdict = judge(draw.model())
    assert (verdict.outcome, "onnx.Erf" in verdict.reason) == ("rejected", True)


@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 1.0), (1.0, 1.5), (2.0, 3.0), (3e9, 1.0)])
def test_products_of_integers_by_fractions_or_beyond_integers_are_rejected(alpha: float, beta: float) -> None:
    draw = Draw("Gemm", 13, np.random.default_rng(1))
    for shape in ((2, 3), (3, 4), (4,)):
        draw.add(np.ones(shape, np.int32), constant=False)
    draw.attributes = {"alpha": alpha, "beta": beta}
    verdict = judge(draw.model())
    assert verdict.outcome == ("right" if alpha == 2 else "rejected"), verdict
    assert alpha == 2 or "onnx.Gemm" in verdict.reason


def test_a_factor_of_nothing_does_not_count() -> None:
    draw = Draw("Gemm", 13, np.random.default_rng(1))
    for shape in ((2, 3), (3, 4)):
        draw.add(np.ones(shape, np.int32), constant=False)
    draw.attributes = {"beta": 0.5}
    assert judge(draw.model()).outcome == "right"


@pytest.mark.sampled(12)
@pytest.mark.parametrize("query", ["float16", "bfloat16", "float", "double"])
@pytest.mark.parametrize("value", ["float16", "bfloat16", "float", "double"])
def test_values_of_attention_have_an_element_of_their_own(query: str, value: str) -> None:
    draw = Draw("Attention", 24, np.random.default_rng(1))
    draw.special = False
    for element, size in ((query, 2), (query, 5), (value, 5)):
        draw.add(draw.array(element, (1, 2, size, 2)), constant=False)
    assert judge(draw.model()).outcome == "right"


@pytest.mark.sampled(12)
@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("sizes", [(1, 1, 4, 4), (1, 2, 3, 2, 4), (2, 1, 2, 5)])
@pytest.mark.parametrize("element", ["float16", "float", "double"])
def test_grids_are_of_any_number_of_images(element: str, sizes: tuple[int, ...], aligned: int) -> None:
    draw = Draw("AffineGrid", 20, np.random.default_rng(1))
    draw.special = False
    rank = len(sizes) - 2
    draw.add(draw.array(element, (sizes[0], rank, rank + 1)), constant=False)
    draw.numbers(list(sizes))
    draw.attributes = {"align_corners": aligned}
    assert judge(draw.model()).outcome == "right"


@pytest.mark.parametrize("sizes", [(1, 1, 1, 4), (1, 2, 3, 2, 1)])
@pytest.mark.parametrize("aligned", [0, 1])
def test_corners_of_one_element_are_rejected(sizes: tuple[int, ...], aligned: int) -> None:
    draw = Draw("AffineGrid", 20, np.random.default_rng(1))
    draw.special = False
    rank = len(sizes) - 2
    draw.add(draw.array("float", (sizes[0], rank, rank + 1)), constant=False)
    draw.numbers(list(sizes))
    draw.attributes = {"align_corners": aligned}
    verdict = judge(draw.model())
    assert verdict.outcome == ("rejected" if aligned else "right"), verdict
    assert not aligned or "onnx.AffineGrid" in verdict.reason


def test_sums_of_integers_have_the_type_of_their_input() -> None:
    draw = Draw("ReduceSumSquare", 7, np.random.default_rng(1))
    draw.add(np.array([[70_000, 2], [3, 4]], np.uint32), constant=False)
    draw.attributes = {"axes": [1]}
    assert judge(draw.model()).outcome == "right"


def test_statistics_are_of_the_element_that_the_attribute_says() -> None:
    draw = Draw("GroupNormalization", 21, np.random.default_rng(6))
    draw.special = False
    for shape in ((3, 4, 2, 3), (4,), (4,)):
        draw.add(draw.array("double", shape), constant=False)
    draw.attributes = {"num_groups": 1}
    assert judge(draw.model()).outcome == "right"


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_the_index_of_an_extreme_is_that_of_nan(op: str, last: int) -> None:
    draw = Draw(op, 13, np.random.default_rng(1))
    draw.add(np.array([[1, np.nan, 3, np.nan], [2, 2, 1, 1]], np.float32), constant=False)
    draw.attributes = {"axis": 1, "keepdims": 0, "select_last_index": last}
    (result,) = kernel_results(draw.model())
    assert result[0] == (3 if last else 1)
    assert result[1] == {("ArgMax", 0): 0, ("ArgMax", 1): 1, ("ArgMin", 0): 2, ("ArgMin", 1): 3}[op, last]


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool", "Conv"])
def test_pools_that_would_be_padded_by_less_than_nothing_are_rejected(op: str, auto_pad: str) -> None:
    """The standard's formula cuts there, and pads may not be below 0; convolutions pad by nothing."""
    draw = Draw(op, 22, np.random.default_rng(1))
    draw.add(np.arange(6, dtype=np.float32).reshape(1, 1, 6), constant=False)
    draw.attributes = {"kernel_shape": [1], "strides": [3], "auto_pad": auto_pad}
    if op == "Conv":
        draw.add(np.ones((1, 1, 1), np.float32), constant=False)
    verdict = judge(draw.model())
    assert verdict.outcome == ("right" if op == "Conv" else "rejected"), verdict
    assert op == "Conv" or "negative pad -2" in verdict.reason
