"""ONNX's floats of 8 and 4 bits: every code and every f16 converted, beside ``ml_dtypes``."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import Kernel

_SIZE = 4096

FORMATS: dict[str, Any] = {
    "FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn,
    "FLOAT8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "FLOAT8E5M2": ml_dtypes.float8_e5m2,
    "FLOAT8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "FLOAT4E2M1": ml_dtypes.float4_e2m1fn,
    "FLOAT8E8M0": ml_dtypes.float8_e8m0fnu,
}


def _model(nodes: list[Any], source: str, target: str) -> bytes:
    infos = [
        helper.make_tensor_value_info(name, TensorProto.DataType.Value(kind), [_SIZE])
        for name, kind in (("x", source), ("y", target))
    ]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    return helper.make_model(graph).SerializeToString()


def _cast(source: str, target: str, **attributes: Any) -> Kernel:
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.DataType.Value(target), **attributes)
    form = canonicalize(_model([node], source, target), "onnx")
    return Kernel(compile_spec(form.spec_text, form.arg_spec, "x86-64-v3", CompileOptions(), lambda _: None))


def _sampled() -> np.ndarray:
    """Every f16, ties and their neighbors in f32, and what is far outside."""
    values = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    random = np.random.default_rng(8).integers(0, 1 << 32, 20000, dtype=np.uint32).view(np.float32)
    finite = values[np.isfinite(values)]
    return np.concatenate([values, np.nextafter(finite, np.inf), np.nextafter(finite, -np.inf), random])


def _in_pieces(kernel: Kernel, x: np.ndarray) -> np.ndarray:
    padded = np.resize(x, -(-len(x) // _SIZE) * _SIZE).reshape(-1, _SIZE)
    return np.concatenate([kernel(part)[0] for part in padded])[: len(x)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FORMATS)
def test_every_code_is_widened(name: str) -> None:
    codes = np.arange(16 if name == "FLOAT4E2M1" else 256, dtype=np.uint8)
    got = _in_pieces(_cast(name, "FLOAT"), codes)
    expected = codes.view(FORMATS[name]).astype(np.float32)
    np.testing.assert_array_equal(got, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(expected)[numbers])


@pytest.mark.sampled(6)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("name", [name for name in FORMATS if "E8M0" not in name])
def test_floats_are_rounded_once(name: str, saturate: int) -> None:
    x = _sampled()
    dtype = FORMATS[name]
    got = _in_pieces(_cast("FLOAT", name, saturate=saturate), x).view(dtype)
    most = ml_dtypes.finfo(dtype).max
    expected = (np.clip(x, -most, most) if saturate else x).astype(dtype)
    np.testing.assert_array_equal(got.astype(np.float32), expected.astype(np.float32))
    signs = ~np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(got.view(np.uint8)[signs], expected.view(np.uint8)[signs])


def test_powers_of_two_are_rounded_up() -> None:
    x = np.abs(_sampled())
    x = x[np.isfinite(x) & (x >= 2.0**-127) & (x <= 2.0**127)]
    got = _in_pieces(_cast("FLOAT", "FLOAT8E8M0"), x).view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    assert (got >= x).all()
    assert (got < 2 * x.astype(np.float64)).all()


def test_arithmetic_on_narrow_elements_is_rejected() -> None:
    node = helper.make_node("Mul", ["x", "x"], ["y"])
    with pytest.raises(UnsupportedOp, match="data movement and conversion only"):
        canonicalize(_model([node], "FLOAT8E5M2", "FLOAT8E5M2"), "onnx")


def test_rounding_twice_is_rejected() -> None:
    with pytest.raises(UnsupportedOp, match="must round once"):
        _cast("DOUBLE", "FLOAT8E5M2")
