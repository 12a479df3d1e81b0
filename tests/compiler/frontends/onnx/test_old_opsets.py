"""Models of opsets 1 to 6 are converted, also those that the converter of ``onnx`` gets wrong."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import NUMPY, Kernel

pytestmark = pytest.mark.issue(number=19, point=17)

DATA = Path(onnx.__file__).parent / "backend/test/data"
Array = np.ndarray[Any, Any]


def _results(model: onnx.ModelProto, inputs: list[Array]) -> tuple[Array, ...]:
    canonical = canonicalize(model.SerializeToString(), "onnx")
    compiled = compile_spec(
        canonical.spec_text, canonical.arg_spec, "x86-64-v3", CompileOptions(), lambda _: None
    )
    weights = [
        np.frombuffer(c.content, NUMPY[c.type.dtype]).reshape(c.type.dims) for c in canonical.constants
    ]
    return Kernel(compiled)(*inputs, *weights)


def _model(op: str, shapes: list[tuple[int, ...]], opset: int, **attributes: Any) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in zip("abc", shapes, strict=False)
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, shapes[0])
    node = helper.make_node(op, list("abc"[: len(shapes)]), ["y"], **attributes)
    graph = helper.make_graph([node], "graph", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)


def _tensors(folder: Path, kind: str) -> list[Array]:
    files = sorted(folder.glob(f"{kind}_*.pb"), key=lambda file: int(file.stem.rpartition("_")[2]))
    return [numpy_helper.to_array(onnx.load_tensor(str(file))) for file in files]


def _old_models() -> list[Path]:
    paths: list[Path] = []
    for path in sorted(DATA.glob("pytorch-*/*/model.onnx")):
        opsets = {entry.version for entry in onnx.load(str(path)).opset_import}
        if opsets and min(opsets) < 7:
            paths.append(path)
    return paths


def _check(path: Path) -> None:
    folder = path.parent / "test_data_set_0"
    wanted = _tensors(folder, "output")
    results = _results(onnx.load(str(path)), _tensors(folder, "input"))
    assert len(results) == len(wanted)
    for result, expected in zip(results, wanted, strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-5, err_msg=str(path))


@pytest.mark.parametrize(
    "name", ["operator_add_size1_broadcast", "operator_pow", "BatchNorm2d_eval", "PReLU_2d_multiparam"]
)
def test_models_of_the_package_are_right(name: str) -> None:
    (path,) = [path for path in _old_models() if path.parent.name == f"test_{name}"]
    _check(path)


@pytest.mark.long
def test_all_old_models_of_the_package_are_right() -> None:
    paths = _old_models()
    assert len(paths) >= 110
    for path in paths:
        _check(path)


def test_slopes_belong_to_channels_though_they_fit_the_last_axis() -> None:
    x, slope = np.linspace(-3, 3, 18, dtype=np.float32).reshape(2, 3, 3), np.array([1, 2, 3], np.float32)
    (result,) = _results(_model("PRelu", [(2, 3, 3), (3,)], 6), [x, slope])
    np.testing.assert_allclose(result, np.where(x < 0, x * slope[:, None], x))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("opset", [1, 6])
@pytest.mark.parametrize(("axis", "shape"), [(1, (3,)), (-2, (3,)), (2, (3,)), (0, (2, 3)), (1, (3, 3))])
def test_operands_meet_at_the_axis_that_an_attribute_names(
    opset: int, axis: int, shape: tuple[int, ...]
) -> None:
    x = np.arange(18, dtype=np.float32).reshape(2, 3, 3)
    y = np.arange(1, 1 + math.prod(shape), dtype=np.float32).reshape(shape)
    (result,) = _results(_model("Add", [(2, 3, 3), shape], opset, broadcast=1, axis=axis), [x, y])
    behind = 3 - axis % 3 - len(shape)
    np.testing.assert_array_equal(result, x + y.reshape(*shape, *[1] * behind))


def test_what_the_converter_does_not_know_is_unsupported() -> None:
    # Before opset 6 Tile takes a count and an axis.
    model = _model("Tile", [(2, 3), (1,), (1,)], 1)
    with pytest.raises(UnsupportedOp, match=r"opset 1, which onnx\.version_converter cannot convert to 7"):
        canonicalize(model.SerializeToString(), "onnx")
