"""Elements of 8 bits and fewer from and to NumPy, PyTorch, JAX and Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import kcache_grpc as kcache
from kcache_grpc.runtime.dtypes import SMALL, numpy_dtype

OPTIONS = kcache.Options(numerics="strict", opt_level=1)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kcache.Client]:
    path: Path = tmp_path_factory.mktemp("cache")
    with kcache.Client(cache_dir=path) as opened:
        yield opened


@pytest.fixture(scope="module")
def twice(client: kcache.Client) -> kcache.Kernel:
    """Adds each of its arguments, one a type, to itself."""
    types = [f"tensor<4x{name}>" for name in SMALL]
    arguments = ", ".join(f"%a{i}: {type}" for i, type in enumerate(types))
    lines = [f"%{i} = stablehlo.add %a{i}, %a{i} : {type}" for i, type in enumerate(types)]
    results = ", ".join(f"%{i}" for i in range(len(types)))
    kinds = ", ".join(types)
    body = "\n".join([*lines, f"return {results} : {kinds}"])
    return client.compile(f"func.func @main({arguments}) -> ({kinds}) {{\n{body}\n}}", options=OPTIONS)


def program(element: str) -> str:
    kind = f"tensor<4x{element}>"
    line = f"%0 = stablehlo.negate %a : {kind}"
    return f"func.func @main(%a: {kind}) -> {kind} {{ {line}\n return %0 : {kind} }}"


def test_the_manifest_and_numpy_have_every_type(twice: kcache.Kernel) -> None:
    assert [spec.dtype for spec in twice.manifest.inputs] == list(SMALL)
    arrays = [np.array([1, 1, 2, 1]).astype(np.float32).astype(numpy_dtype(name)) for name in SMALL]
    for _ in range(2):  # the fast path of a call too
        for array, result in zip(arrays, twice(*arrays), strict=True):
            assert result.dtype == array.dtype
            with np.errstate(all="ignore"):
                sums = (array.astype(np.float32) * 2).astype(result.dtype)
            assert (result.view(np.uint8) == sums.view(np.uint8)).all(), result.dtype


def test_bits_above_an_element_say_nothing(client: kcache.Client) -> None:
    kernel = client.compile(program("i4"), options=OPTIONS)
    raw = np.array([0x01, 0xF1, 0x0F, 0xA8], np.uint8).view(ml_dtypes.int4)
    assert kernel(raw)[0].view(np.uint8).tolist() == [0x0F, 0x0F, 0x01, 0x08]


def test_other_arrays_are_rejected(client: kcache.Client) -> None:
    kernel = client.compile(program("f8E5M2"), options=OPTIONS)
    with pytest.raises(kcache.ArgumentError, match="f8E5M2"):
        kernel(np.zeros(4, np.uint8))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2fnuz"])
def test_torch_tensors(client: kcache.Client, name: str) -> None:
    torch: Any = pytest.importorskip("torch")
    element = {"4": "f8E4M3FN", "5": "f8E5M2"}[name[8]]
    element = element.removesuffix("FN") + "FNUZ" if name.endswith("uz") else element
    kernel = client.compile(program(element), options=OPTIONS)
    x = torch.tensor([1.0, -2.0, 0.5, 3.0]).to(getattr(torch, name))
    for _ in range(2):
        (result,) = kernel(x)
        assert result.dtype == x.dtype
        assert result.float().tolist() == [-1.0, 2.0, -0.5, -3.0]


def test_torch_has_no_bytes_of_integers_of_four_bits(client: kcache.Client) -> None:
    torch: Any = pytest.importorskip("torch")
    kernel = client.compile(program("i4"), options=OPTIONS)
    with pytest.raises(kcache.ArgumentError, match="i4"):
        kernel(torch.zeros(4, dtype=torch.int8))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "int4", "float4_e2m1fn"])
def test_jax_arrays(client: kcache.Client, name: str) -> None:
    jnp: Any = pytest.importorskip("jax.numpy")
    element = {"float8_e4m3fn": "f8E4M3FN", "int4": "i4", "float4_e2m1fn": "f4E2M1FN"}[name]
    kernel = client.compile(program(element), options=OPTIONS)
    x = jnp.array([1, -2, 0, 3]).astype(name)
    for _ in range(2):
        (result,) = kernel(x)
        assert result.dtype == x.dtype
        assert result.astype(jnp.float32).tolist() == [-1, 2, 0, -3]


def test_python_numbers(client: kcache.Client) -> None:
    kinds = "tensor<i4>, tensor<f8E4M3FN>"
    text = f"func.func @main(%a: tensor<i4>, %b: tensor<f8E4M3FN>) -> ({kinds}) {{ return %a, %b : {kinds} }}"
    kernel = client.compile(text, options=OPTIONS)
    whole, number = kernel(-8, 1.5)
    assert (int(whole), float(number)) == (-8, 1.5)
    with pytest.raises(kcache.ArgumentError, match="8 is out of range for i4"):
        kernel(8, 1.5)
    with pytest.raises(kcache.ArgumentError, match="out of range for f8E4M3FN"):
        kernel(0, 1e6)
    for number in (1e6, float("inf"), float("nan"), 10**400):
        with pytest.raises(kcache.ArgumentError, match="out of range for f4E2M1FN"):
            client.compile(program("f4E2M1FN").replace("4x", ""), options=OPTIONS)(number)
    with pytest.raises(kcache.ArgumentError, match="out of range for f8E4M3FN"):
        kernel(0, 10**400)
