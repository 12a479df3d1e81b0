"""ONNX's operators that read between elements, transform, and put together, beside its reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from kcache_compiler import canonicalize
from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from tests.compiler.frontends.onnx.test_frontend import canonical, run
from tests.conformance.onnx_models.build import Array, assert_close, ints, model, node, reference


class Case(NamedTuple):
    op: str
    inputs: Sequence[Array]
    #: Inputs behind the others that are constants; ``None`` for one that is left out.
    constants: Sequence[Array | None] = ()
    outputs: int = 1
    opset: int = 22
    attributes: Mapping[str, Any] = MappingProxyType({})


def _random(*dims: int, low: float = -1.0, high: float = 1.0, seed: int = 3) -> Array:
    return np.random.default_rng([seed, *dims]).uniform(low, high, dims).astype(np.float32)


def _made(case: Case) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(len(case.inputs))]
    constants = {f"c{i}": c for i, c in enumerate(case.constants) if c is not None}
    read = [*names, *(f"c{i}" if c is not None else "" for i, c in enumerate(case.constants))]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in zip(names, case.inputs, strict=True)
    ]
    kinds = [helper.np_dtype_to_tensor_dtype(case.inputs[0].dtype), *[TensorProto.INT64] * 3]
    if case.op == "TfIdfVectorizer":
        kinds[0] = TensorProto.FLOAT
    results = [helper.make_tensor_value_info(f"y{i}", kinds[i], None) for i in range(case.outputs)]
    outputs = [result.name for result in results]
    proto = node(case.op, read, outputs, **case.attributes)
    return model([proto], infos, results, constants, opset=case.opset)


def _grid(mode: str, padding: str, corners: int, spatial: Sequence[int] = (5, 7)) -> Case:
    x = _random(2, 3, *spatial)
    grid = _random(2, *[size - 1 for size in spatial], len(spatial), low=-2.6, high=2.6)
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    return Case("GridSample", [x, grid], attributes=attributes)


_GRIDS = {
    f"{mode}-{padding}-{corners}": _grid(mode, padding, corners)
    for mode in ("nearest", "linear", "cubic")
    for padding in ("zeros", "border", "reflection")
    for corners in (0, 1)
    if (mode, padding) != ("cubic", "border")
}
_IN_SHORT = ("nearest-reflection-1", "linear-zeros-0", "linear-border-1", "cubic-reflection-0")

_ROIS = np.array([[1.5, 0.2, 8.1, 5.3], [0, 0, 3.3, 19], [-4, 2, 2, 4.1], [5, 5, 5.2, 5.1]], np.float32)
_ROI = {"output_height": 3, "output_width": 5, "sampling_ratio": 3, "spatial_scale": 0.7}

_DEFORMED = {
    "strides": [2, 1],
    "dilations": [1, 2],
    "pads": [1, 0, 2, 1],
    "group": 2,
    "offset_group": 2,
}

CASES: dict[str, Case] = {
    **{f"grid-{name}": _GRIDS[name] for name in _IN_SHORT},
    "grid-of-a-volume": _grid("linear", "reflection", 0, (3, 4, 5)),
    "roi-avg": Case("RoiAlign", [_random(2, 3, 7, 9), _ROIS, ints(1, 0, 1, 0)], attributes=_ROI),
    "roi-max": Case(
        "RoiAlign",
        [_random(2, 3, 7, 9), _ROIS, ints(0, 0, 1, 1)],
        attributes={**_ROI, "mode": "max", "coordinate_transformation_mode": "output_half_pixel"},
    ),
    "deform-conv": Case(
        "DeformConv",
        [
            _random(2, 4, 7, 9),
            _random(6, 2, 3, 2),
            _random(2, 24, 4, 8, low=-2, high=2),
            _random(6),
            _random(2, 12, 4, 8, low=0),
        ],
        attributes=_DEFORMED,
    ),
    "antialias-cubic": Case(
        "Resize",
        [_random(1, 2, 9, 11)],
        [None, np.array([1, 1, 0.61, 0.37], np.float32)],
        opset=19,
        attributes={"mode": "cubic", "antialias": 1, "exclude_outside": 1},
    ),
    "antialias-linear": Case(
        "Resize",
        [_random(1, 2, 9, 11)],
        [None, None, ints(4, 13)],
        opset=19,
        attributes={"mode": "linear", "antialias": 1, "axes": [2, 3]},
    ),
    "crop-and-resize": Case(
        "Resize",
        [_random(1, 2, 9, 11)],
        [np.array([0.2, -0.3, 0.9, 1.2], np.float32), None, ints(5, 7)],
        opset=19,
        attributes={
            "mode": "linear",
            "coordinate_transformation_mode": "tf_crop_and_resize",
            "axes": [2, 3],
            "extrapolation_value": 7.5,
        },
    ),
    "dft-longer": Case("DFT", [_random(3, 7, 2)], [ints(9)[0], ints(-2)[0]]),
    "dft-half-of-an-outer-axis": Case(
        "DFT", [_random(7, 3, 1)], [None, ints(0)[0]], attributes={"onesided": 1}
    ),
    "dft-back": Case("DFT", [_random(2, 6, 2).astype(np.float64)], attributes={"inverse": 1}),
    "stft": Case("STFT", [_random(2, 23, 1)], [ints(4)[0], _random(9, seed=5)], opset=17),
    "stft-of-complex": Case(
        "STFT", [_random(2, 23, 2)], [ints(5)[0], None, ints(8)[0]], opset=17, attributes={"onesided": 0}
    ),
    "det": Case("Det", [_random(2, 3, 5, 5)]),
    "col2im": Case(
        "Col2Im",
        [_random(2, 2 * 6, 9)],
        [ints(6, 8), ints(2, 3)],
        attributes={"strides": [2, 3], "dilations": [3, 1], "pads": [2, 1, 1, 2]},
    ),
    "max-pool-places": Case(
        "MaxPool",
        [_random(2, 3, 9, 8)],
        outputs=2,
        attributes={"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 1, 1], "dilations": [1, 2]},
    ),
    "max-pool-places-by-columns": Case(
        "MaxPool",
        [np.round(_random(2, 3, 5, 7) * 2)],
        outputs=2,
        attributes={"kernel_shape": [2, 3], "strides": [2, 2], "dilations": [2, 1], "storage_order": 1},
    ),
    "max-unpool": Case(
        "MaxUnpool",
        [_random(1, 2, 2, 2), ints(1, 7, 12, 21, 26, 34, 41, 47).reshape(1, 2, 2, 2)],
        [ints(1, 2, 7, 6)],
        attributes={"kernel_shape": [2, 3], "strides": [2, 3]},
    ),
    "tensor-scatter": Case(
        "TensorScatter", [_random(3, 2, 7, 4), _random(3, 2, 3, 4), ints(4, 0, 2)], opset=24
    ),
    "tensor-scatter-around": Case(
        "TensorScatter",
        [_random(3, 7, 4), _random(3, 3, 4), ints(6, 9, 0)],
        opset=24,
        attributes={"axis": 1, "mode": "circular"},
    ),
    "compress": Case(
        "Compress",
        [_random(3, 5, 2)],
        [np.array([False, True, True, False])],
        attributes={"axis": -2},
    ),
    "n-grams": Case(
        "TfIdfVectorizer",
        [np.array([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]], np.int32)],
        attributes={
            "mode": "TF",
            "min_gram_length": 1,
            "max_gram_length": 2,
            "max_skip_count": 2,
            "ngram_counts": [0, 4],
            "ngram_indexes": [6, 1, 2, 3, 4, 5, 0],
            "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
        },
    ),
}


def _check(case: Case) -> None:
    proto = _made(case)
    assert_close(run(canonical(proto), list(case.inputs)), reference(proto, case.inputs))


@pytest.mark.sampled(24)
@pytest.mark.parametrize("name", CASES)
def test_values_are_the_references(name: str) -> None:
    _check(CASES[name])


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in _GRIDS if name not in _IN_SHORT])
def test_every_mode_of_grids(name: str) -> None:
    _check(_GRIDS[name])


def test_determinants_of_singular_and_permuted_matrices() -> None:
    x = np.stack([np.eye(4)[[2, 0, 3, 1]], np.ones((4, 4)), np.diag([0.0, 1, 2, 3]), np.eye(4)[::-1]])
    (got,) = run(canonical(_made(Case("Det", [x.astype(np.float32)]))), [x.astype(np.float32)])
    np.testing.assert_array_equal(got, [-1, 0, 0, 1])


def test_infinity_beside_a_grid_stays_where_it_is() -> None:
    """What padding by zeros reads outside is zero, whatever the element at the edge."""
    x = np.full((1, 1, 3, 3), np.inf, np.float32)
    grid = np.full((1, 1, 1, 2), 3.0, np.float32)
    (got,) = run(canonical(_made(Case("GridSample", [x, grid]))), [x, grid])
    np.testing.assert_array_equal(got, np.zeros((1, 1, 1, 1)))


def test_opset_10_takes_the_next_element_of_fewer() -> None:
    """As its own test says, where later ones round: each of the others lies between two."""
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 2, 4)
    proto = _made(Case("Resize", [x], [np.array([1, 1, 0.6, 0.6], np.float32)], opset=10))
    (got,) = run(canonical(proto), [x])
    np.testing.assert_array_equal(got, [[[[1, 3]]]])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_integers_shrink_beyond_a_limit_between_two(dtype: Any) -> None:
    x = np.array([0, 1, 2, 9, 100], dtype)
    proto = _made(Case("Shrink", [x], attributes={"lambd": 1.5, "bias": 1.0}))
    (got,) = run(canonical(proto), [x])
    np.testing.assert_array_equal(got, np.array([0, 0, 1, 8, 99], dtype))


def test_powers_of_integers_by_floats_are_exact() -> None:
    x, y = ints(94969189, 27413231), np.array([1, 2], np.float32)
    (got,) = run(canonical(_made(Case("Pow", [x, y]))), [x, y])
    np.testing.assert_array_equal(got, ints(94969189, 27413231**2))


_ROWS = np.ones((3, 3), np.uint8)
_SCALE, _ZERO = np.array(0.5, np.float32), np.array(0, np.uint8)

_REJECTED: dict[str, tuple[Case, str]] = {
    "scales of rows": (
        Case("QLinearMatMul", [_ROWS, np.ones(3, np.float32), _ZERO, _ROWS, _SCALE, _ZERO, _SCALE, _ZERO]),
        "more than one scale of its first operand",
    ),
    "cubic weights at the border": (_grid("cubic", "border", 0), "reference and PyTorch"),
    "fraction of integers": (Case("Shrink", [ints(1, 2)], attributes={"bias": 1.5}), "bias = 1.5"),
    "roots of integers": (Case("ReduceL2", [ints(1, 2)]), "roots and logarithms of i64"),
    "adaptive samples": (Case("RoiAlign", [_random(1, 1, 3, 3), _ROIS, ints(0, 0, 0, 0)]), "sampling_ratio"),
    "unique": (
        Case("Unique", [_random(3000, 9)], attributes={"axis": 0}),
        "too many for pairwise comparison",
    ),
    "condition": (Case("Compress", [_random(0), np.ones(0, np.bool_)]), "empty input"),
    "cubic integers": (
        Case(
            "GridSample", [np.ones((1, 1, 3, 3), np.int32), _random(1, 2, 2, 2)], attributes={"mode": "cubic"}
        ),
        "mode 'cubic' of i32",
    ),
}


@pytest.mark.parametrize("name", _REJECTED)
def test_what_is_not_covered_is_rejected_by_name(name: str) -> None:
    case, reason = _REJECTED[name]
    with pytest.raises(UnsupportedOp, match=f"onnx.{case.op}.*{reason}"):
        canonicalize(_made(case).SerializeToString(), "onnx")


_INVALID: dict[str, Case] = {
    "blocks": Case("Col2Im", [_random(1, 5, 4)], [ints(5, 5), ints(2, 2)]),
    "frames": Case("STFT", [_random(1, 5, 1)], [ints(0)[0]], opset=17),
    "length": Case("DFT", [_random(2, 5, 1)], [ints(0)[0]]),
    "grid": Case("GridSample", [_random(1, 1, 3, 3), _random(2, 2, 2, 2)]),
    "offset": Case("DeformConv", [_random(1, 1, 3, 3), _random(1, 1, 2, 2), _random(1, 8, 3, 3)]),
    "region": Case(
        "Resize",
        [_random(1, 3)],
        [np.ones(2, np.float32), None, ints(1, 2)],
        opset=19,
        attributes={"coordinate_transformation_mode": "tf_crop_and_resize"},
    ),
}


@pytest.mark.parametrize("name", _INVALID)
def test_nodes_that_do_not_fit_are_invalid(name: str) -> None:
    with pytest.raises(InvalidProgram, match=_INVALID[name].op):
        canonicalize(_made(_INVALID[name]).SerializeToString(), "onnx")
