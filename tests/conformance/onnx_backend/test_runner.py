"""The ``onnx`` package's runner: what our backend takes is right. A few operators here, all in the long."""

from __future__ import annotations

import re
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
import onnx.backend.test
from onnx import TensorProto, helper

import kcache_grpc as kcache
import kcache_grpc.onnx as backend
from kcache_grpc.errors import InvalidProgram, UnsupportedOp
from tests.conformance.onnx_models.node_tests import ROUNDED


@contextmanager
def rejections_skipped() -> Iterator[None]:
    """Skip the test where an operator is rejected, or a model of an opset before 7."""
    try:
        yield
    except UnsupportedOp as error:
        raise unittest.SkipTest(str(error)) from error
    except InvalidProgram as error:
        if "has opset" not in str(error):
            raise
        raise unittest.SkipTest(str(error)) from error


def run(client: kcache.Client, pattern: str) -> unittest.TestResult:
    """Run the package's tests whose names match; what is rejected is skipped."""

    class Prepared:
        def __init__(self, model: Any) -> None:
            self.prepared = backend.prepare(model, client=client)

        def run(self, inputs: Any) -> Any:
            with rejections_skipped():
                return self.prepared.run(inputs)

    class Tried(backend.Backend):
        @classmethod
        def prepare(cls, model: Any, device: str = "CPU", client: Any = client, **_: Any) -> Any:
            with rejections_skipped():
                return Prepared(model)

    runner = onnx.backend.test.BackendTest(Tried, __name__)
    runner.include(pattern)
    result = unittest.TestResult()
    # A test of another device skips itself; those that the pattern leaves out do, too.
    suites = [
        unittest.defaultTestLoader.loadTestsFromTestCase(case)
        for name, case in runner.test_cases.items()
        if name == "OnnxBackendNodeModelTest"
    ]
    chosen = [t for suite in suites for t in suite if re.search(pattern, t.id())]  # type: ignore[arg-type]
    unittest.TestSuite(chosen).run(result)
    return result


def right(result: unittest.TestResult) -> int:
    differ = [text for case, text in result.failures if case.id().rpartition(".")[2][:-4] not in ROUNDED]
    assert not differ, differ[0][-2000:]
    assert not result.errors, result.errors[0][1][-2000:]
    return result.testsRun - len(result.skipped)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::RuntimeWarning:onnx")  # of the package's making of its own cases
def test_a_few_operators(client: kcache.Client) -> None:
    assert (
        right(
            run(client, r"test_(matmul_2d|softmax_axis_1|reshape_reordered_all_dims|cast_FLOAT_to_INT4)_cpu")
        )
        == 4
    )


def test_small_inputs_are_bound_to_what_a_call_gives(client: kcache.Client) -> None:
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    model = helper.make_model(helper.make_graph([node], "g", infos, outputs))
    prepared = backend.prepare(model, client=client)
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    for shape in ([3, 8], [4, 6]):
        (y,) = prepared.run([x, np.array(shape)])
        np.testing.assert_array_equal(y, x.reshape(shape))


def test_only_cpus_are_supported() -> None:
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA")
    with pytest.raises(ValueError, match="runs on 'CPU'"):
        backend.prepare(onnx.ModelProto(), "CUDA")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("letter", "abcdefghilmnopqrstuwx")
def test_every_operator(client: kcache.Client, letter: str) -> None:
    """None is wrong; how many are right the conformance test counts."""
    result = run(client, rf"test_{letter}(?!.*expanded).*_cpu")
    assert right(result) >= 0
    assert result.testsRun
