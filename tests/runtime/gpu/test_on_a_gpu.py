"""Kernels on a real GPU: the emulator's cases, streams, capture, memory. ``pytest -m gpu`` runs them.

Skipped, with the reason, where the driver does not start.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kcache_grpc as kcache
from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.gpu.target import GPU_TARGETS
from kcache_grpc.runtime.gpu.device import device_numbered
from kcache_grpc.runtime.gpu.device_memory import DeviceArray
from tests.compiler.codegen_harness import NUMPY
from tests.gpu.harness.programs import TEMPLATES, Template
from tests.serving import ServerProcess

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:dynamic=.assume.:kcache_grpc.KcacheWarning"),
]


@pytest.fixture(scope="module")
def device() -> Any:
    try:
        return device_numbered(0)
    except ArgumentError as error:
        pytest.skip(error.message)


@pytest.fixture(scope="module")
def target(device: Any) -> str:
    """The newest plain architecture that this GPU runs."""
    digits = [name.removeprefix("sm_") for name in GPU_TARGETS if name[-1].isdigit()]
    capabilities = [(int(text[:-1]), int(text[-1])) for text in digits]
    major, minor = max(each for each in capabilities if each <= device.capability)
    return f"sm_{major}{minor}"


@pytest.fixture(scope="module")
def client(device: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[kcache.Client]:
    cache = tmp_path_factory.mktemp("cache")
    cache.chmod(0o700)
    with (
        ServerProcess(tmp_path_factory.mktemp("server")) as server,
        kcache.Client(server.address, cache_dir=cache) as client,
    ):
        yield client


@pytest.fixture
def torch(device: Any) -> Any:
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    return module


def uploaded(device: Any, array: np.ndarray[Any, Any], dtype: str) -> DeviceArray:
    with device.driver.within(device.context):
        buffer = DeviceArray(device.driver, device.ordinal, 0, dtype, array.shape)
        cuda: Any = importlib.import_module("cuda.bindings.driver")
        content = np.ascontiguousarray(array).tobytes()
        if content:
            (result,) = cuda.cuMemcpyHtoD(buffer.pointer, content, len(content))
            assert int(result) == 0
        return buffer


def downloaded(device: Any, array: DeviceArray) -> np.ndarray[Any, Any]:
    with device.driver.within(device.context):
        cuda: Any = importlib.import_module("cuda.bindings.driver")
        result = np.empty(array.shape, NUMPY[array.dtype])
        if result.nbytes:
            (code,) = cuda.cuMemcpyDtoH(result.ctypes.data, array.pointer, result.nbytes)
            assert int(code) == 0
        return result


@pytest.mark.parametrize("dynamic", [False, "assume"], ids=["static", "dynamic"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_the_emulators_cases(
    template: Template, dtype: str, dynamic: Any, client: kcache.Client, device: Any, target: str
) -> None:
    for sizes in template.sizes:
        arguments = template.arguments(dtype, sizes)
        kernel = client.compile(template.text(dtype, *sizes), target=target, dynamic=dynamic)
        (result,) = kernel(*(uploaded(device, each, dtype) for each in arguments))
        template.check(dtype, arguments, downloaded(device, result))


_ADD = """func.func @main(%a: tensor<1024x64xf32>, %b: tensor<1024x64xf32>) -> tensor<1024x64xf32> {
  %r = stablehlo.add %a, %b : tensor<1024x64xf32>
  return %r : tensor<1024x64xf32> }"""


def test_pytorch_tensors_on_the_current_stream(torch: Any, client: kcache.Client, target: str) -> None:
    kernel = client.compile(_ADD, target=target)
    stream = torch.cuda.Stream()
    x = torch.randn(1024, 64, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        y = x * 2
        (z,) = kernel(x, y)
        assert not stream.query(), "the call waited for the GPU"
    stream.synchronize()
    assert torch.equal(z, x * 3)
    with pytest.raises(ArgumentError, match="not aligned to 16 bytes"):
        kernel(torch.randn(1024 * 64 + 1, device="cuda")[1:].view(1024, 64), x)
    with pytest.raises(ArgumentError, match="it is on cpu"):
        kernel(x.cpu(), x)


def test_a_cuda_graph_captures_calls(torch: Any, client: kcache.Client, target: str) -> None:
    kernel = client.compile(_ADD, target=target)
    x, y = torch.ones(1024, 64, device="cuda"), torch.ones(1024, 64, device="cuda")
    kernel(x, y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (z,) = kernel(x, y)
    x.fill_(41)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(z, torch.full_like(z, 42))


def test_jax_arrays_in_jax_arrays_out(client: kcache.Client, target: str, device: Any) -> None:
    jax = pytest.importorskip("jax")
    if not any(each.platform == "gpu" for each in jax.devices()):
        pytest.skip("this JAX has no CUDA")
    x = jax.numpy.ones((1024, 64), "float32")
    (z,) = client.compile(_ADD, target=target)(x, x + 1)
    np.testing.assert_array_equal(np.asarray(z), np.full((1024, 64), 3, np.float32))
