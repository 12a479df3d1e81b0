"""Arrays of other frameworks, in and out; element types of NumPy."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kcache_grpc.errors import ArgumentError, IntegrityError
from kcache_grpc.runtime.cpu import abi_source
from kcache_grpc.runtime.dtypes import DTYPES, PLAIN, numpy_dtype, numpy_dtypes
from tests.runtime.c_kernels import ADD, copy_of, make

SHAPE = (4, 8)


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def jax():
    return pytest.importorskip("jax")


def add_kernel():
    return make(ADD, ["f32[4,8]", "f32[4,8]"], ["f32[4,8]"], names=["left", "right"])


def test_torch_in_torch_out(torch):
    x, y = torch.arange(32.0).reshape(SHAPE), torch.ones(SHAPE)
    kernel = add_kernel()
    for _ in range(3):
        (result,) = kernel(x, y)
        assert isinstance(result, torch.Tensor)
        assert result.data_ptr() % 64 == 0
        assert torch.equal(result, x + y)


@pytest.mark.parametrize("dtype", PLAIN)
def test_every_dtype_of_torch(torch, dtype):
    names = {"i1": "bool", "bf16": "bfloat16", "c64": "complex64", "c128": "complex128"}
    theirs = getattr(
        torch, names.get(dtype) or {"i": "int", "f": "float", "u": "uint"}[dtype[0]] + dtype.lstrip("uif")
    )
    x = torch.tensor([1, 0, 1]).to(theirs)
    kernel = make(copy_of(3 * x.element_size()), [f"{dtype}[3]"], [f"{dtype}[3]"])
    (result,) = kernel(x)
    assert result.dtype == theirs
    assert result.tolist() == x.tolist()


def test_torch_arguments_that_are_rejected(torch):
    good = torch.ones(SHAPE)
    weights = torch.ones(SHAPE, requires_grad=True)
    cases = [
        (torch.ones(8, 4).T, r"x\.contiguous\(\)"),
        (torch.ones(SHAPE, dtype=torch.float64), "got dtype f64"),
        (weights, "requires grad"),
        (torch.ones(SHAPE, device="meta"), r"x\.cpu\(\)"),
        (torch.ones(SHAPE).to_sparse(), "to_dense"),
        (torch.ones(4, 9), "axis 1 is 9 instead of 8"),
        (torch.zeros(SHAPE).to(torch.float8_e4m3fn), "got dtype f8E4M3FN"),
    ]
    for wrong, says in cases:
        with pytest.raises(ArgumentError, match=says):
            add_kernel()(good, wrong)
    with torch.no_grad():
        assert torch.equal(add_kernel()(weights, good)[0], weights + good)
    conjugate = torch.ones(2, dtype=torch.complex64).conj()
    with pytest.raises(ArgumentError, match="resolve_conj"):
        make(copy_of(16), ["c64[2]"], ["c64[2]"])(conjugate)


def test_zero_size_tensors(torch):
    kernel = make("RUN { return 0; }", ["f32[0,3]"], ["f32[0]", "bf16[3,0]"])
    assert [tuple(result.shape) for result in kernel(torch.zeros(0, 3))] == [(0,), (3, 0)]


def test_jax_in_jax_out(jax):
    x, y = jax.numpy.arange(32.0).reshape(SHAPE), jax.numpy.ones(SHAPE)
    kernel = add_kernel()
    for _ in range(2):
        (result,) = kernel(x, y)
        assert isinstance(result, jax.Array)
        np.testing.assert_array_equal(np.asarray(result), np.asarray(x + y))


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "int32", "uint8", "float16", "bfloat16", "float32", "complex64"]
)
def test_dtypes_of_jax(jax, dtype):
    ours = {"bool": "i1", "int8": "i8", "int32": "i32", "uint8": "ui8", "float16": "f16", "bfloat16": "bf16"}
    ours = {**ours, "float32": "f32", "complex64": "c64"}[dtype]
    x = jax.numpy.asarray([1, 0, 1]).astype(dtype)
    kernel = make(copy_of(x.nbytes), [f"{ours}[3]"], [f"{ours}[3]"])
    (result,) = kernel(x)
    assert isinstance(result, jax.Array)
    assert result.dtype == x.dtype
    assert result.tolist() == x.tolist()


def test_jax_arrays_of_the_wrong_kind(jax):
    good = jax.numpy.ones(SHAPE)
    for wrong, says in [
        (good.astype("int32"), "got dtype i32"),
        (jax.numpy.ones((4, 9)), "axis 1"),
        (good[0], "rank 1"),
    ]:
        with pytest.raises(ArgumentError, match=says):
            add_kernel()(good, wrong)


def test_tracers_of_jax_are_rejected(jax):
    kernel = add_kernel()
    for transform in (jax.jit, jax.grad, jax.vmap):
        with pytest.raises(ArgumentError, match="got a JAX tracer"):
            transform(lambda x: kernel(x, x)[0])(jax.numpy.ones(SHAPE))


def test_outputs_follow_the_first_array(torch):
    tensor, array = torch.ones(SHAPE), np.ones(SHAPE, np.float32)
    assert isinstance(add_kernel()(tensor, array)[0], torch.Tensor)
    assert isinstance(add_kernel()(array, tensor)[0], np.ndarray)
    scaled = make(
        "RUN { *(float *)buffers[2] = *(float *)buffers[0] * *(float *)buffers[1]; return 0; }",
        ["f32[]", "f32[]"],
        ["f32[]"],
    )
    (result,) = scaled(2.0, torch.tensor(3.0))
    assert isinstance(result, torch.Tensor)
    assert result == 6
    (result,) = scaled(2.0, 4.0)
    assert isinstance(result, np.ndarray)
    assert result == 8


class Exporter:
    """Some framework that knows DLPack and nothing else."""

    def __init__(self, array, device=(1, 0), version=True):
        self.array, self.device, self.version = array, device, version

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        if not self.version and options:
            raise TypeError("unexpected keyword argument 'max_version'")
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("version", [False, True])
def test_any_exporter(version):
    x = Exporter(np.arange(32, dtype=np.float32).reshape(SHAPE), version=version)
    (result,) = add_kernel()(x, x)
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, x.array * 2)


class Broken(Exporter):
    def __dlpack_device__(self):
        raise AttributeError("no device here")


def test_exporters_that_are_rejected():
    good = np.ones(SHAPE, np.float32)
    read_only = good.copy()
    read_only.flags.writeable = False
    cases = [
        (Exporter(good, device=(2, 1)), "it is on CUDA:1"),
        (Exporter(good, device=(99, 0)), "device type 99:0"),
        (Broken(good), "__dlpack__ failed: no device here"),
        (Exporter(np.ones((8, 4), np.float32).T), "row-major"),
        (Exporter(read_only, version=False), "__dlpack__ failed"),
        (Exporter(good.astype(np.float64)), "got dtype f64"),
        (Exporter(np.ones(32, np.float32)), "rank 1"),
    ]
    for wrong, says in cases:
        with pytest.raises(ArgumentError, match=says):
            add_kernel()(good, wrong)


def test_an_exporters_memory_is_given_back():
    array = np.ones(SHAPE, np.float32)
    before = sys.getrefcount(array)
    exporter = Exporter(array)
    for _ in range(5):
        add_kernel()(exporter, exporter)
    del exporter
    assert sys.getrefcount(array) == before


def test_the_runtime_imports_no_framework():
    program = "import sys, kcache_grpc.runtime; print({'torch', 'jax', 'pycparser'} & set(sys.modules))"
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=240
    )
    assert out.stdout.strip() == "set()"


def test_the_generated_abi_is_fresh():
    pytest.importorskip("pycparser")
    module = importlib.import_module("kcache_grpc.runtime.cpu._abi")
    assert Path(module.__file__ or "").read_text() == abi_source.generate()


def test_bfloat16_without_a_package_for_it():
    """``uint16`` stands for the bits, in and out."""
    program = """
import sys
sys.modules["ml_dtypes"] = None
import numpy as np
from tests.runtime.c_kernels import copy_of, make
kernel = make(copy_of(6), ["bf16[3]"], ["bf16[3]"])
for _ in range(2):
    (result,) = kernel(np.array([1, 2, 3], np.uint16))
    assert result.dtype == np.uint16 and result.tolist() == [1, 2, 3]
"""
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240, cwd=root)


_TYPES_ALONE = """
import sys
from kcache_grpc.runtime.dtypes import numpy_dtype
print(numpy_dtype("f32"), numpy_dtype("i1"), "ml_dtypes" in sys.modules)
"""


def test_types_of_numpy_import_nothing() -> None:
    ran = subprocess.run([sys.executable, "-c", _TYPES_ALONE], capture_output=True, text=True, check=True)
    assert ran.stdout == "float32 bool False\n"


@pytest.mark.parametrize("name", DTYPES)
def test_each_type_has_a_dtype(name: str) -> None:
    assert isinstance(numpy_dtype(name), np.dtype)
    assert numpy_dtype(name) == numpy_dtypes()[name]


def test_a_type_of_a_later_version() -> None:
    with pytest.raises(IntegrityError, match="unknown dtype 'f7'"):
        numpy_dtype("f7")
