"""Models whose weights are larger than any message, or than memory: the client keeps the weights."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import kcache_grpc as kcache
from tests.conformance.onnx_models.build import model, node, value
from tests.serving import ServerProcess
from tests.system.e2e.onnx.large_models import bert, resnet50

pytestmark = pytest.mark.issue(number=19, point=16)

logger = logging.getLogger(__name__)
Array = np.ndarray
WIDE = 4300


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def client(server: ServerProcess, tmp_path: Path) -> Iterator[kcache.Client]:
    with kcache.Client(server.address, cache_dir=tmp_path / "cache", strict=True, timeout=240) as connected:
        yield connected


def wide_layer(seed: int, wide: int = WIDE) -> tuple[onnx.ModelProto, Array]:
    """A model with one matrix, of 74 MB unless said otherwise, and the matrix."""
    matrix = np.random.default_rng(seed).random((wide, wide), np.float32) - np.float32(0.5)
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Relu", ["m"], ["y"])]
    return model(nodes, [value("x", [2, wide])], ["y"], {"w": matrix}), matrix


@pytest.mark.long
def test_models_above_the_limit_of_a_program(client: kcache.Client, tmp_path: Path) -> None:
    proto, matrix = wide_layer(1)
    other, other_matrix = wide_layer(2)
    path, external = tmp_path / "plain.onnx", tmp_path / "external.onnx"
    onnx.save(proto, path)
    onnx.save(other, external, save_as_external_data=True, location="weights.bin")
    x = np.random.default_rng(3).normal(size=(2, WIDE)).astype(np.float32)
    first = client.compile(path)
    second = client.compile(external)
    assert (first.origin, second.origin) == ("compiled", "memory")
    body = path.read_bytes()
    for kernel, used in [(first, matrix), (second, other_matrix), (client.compile(proto), matrix)] + [
        (client.compile(body), matrix) for _ in range(2)
    ]:
        (result,) = kernel(x)
        np.testing.assert_allclose(result, np.maximum(x @ used, 0), rtol=1e-4, atol=1e-3)


def test_tensors_of_pytorch_and_weights_of_onnx(client: kcache.Client) -> None:
    torch = pytest.importorskip("torch")
    proto, matrix = wide_layer(1, 600)
    x = torch.randn(2, 600)
    (result,) = client.compile(proto)(x)
    assert isinstance(result, torch.Tensor)
    np.testing.assert_allclose(result, np.maximum(x.numpy() @ matrix, 0), rtol=1e-4, atol=1e-3)


def chain(path: Path, wide: int, count: int) -> int:
    """Write a model of ``count`` square matrices, in a file without blocks; return the parameters."""
    proto = model(
        [
            step
            for i in range(count)
            for step in (
                node("MatMul", [f"x{i}", f"w{i}"], [f"m{i}"]),
                node("Relu", [f"m{i}"], [f"x{i + 1}"]),
            )
        ],
        [value("x0", [1, wide])],
        [f"x{count}"],
    )
    size = 4 * wide * wide
    for index in range(count):
        tensor = TensorProto(name=f"w{index}", data_type=TensorProto.FLOAT, dims=[wide, wide])
        tensor.data_location = TensorProto.EXTERNAL
        for key, text in (("location", "zeros.bin"), ("offset", index * size), ("length", size)):
            tensor.external_data.add(key=key, value=str(text))
        proto.graph.initializer.append(tensor)
    path.write_bytes(proto.SerializeToString())
    with (path.parent / "zeros.bin").open("wb") as file:
        file.truncate(count * size)
    return count * wide * wide


def resident(pids: Sequence[int], name: str = "VmRSS") -> list[int]:
    """Bytes of memory of processes."""
    matches = [re.search(rf"{name}:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text()) for pid in pids]
    return [int(match[1]) << 10 for match in matches if match is not None]


def test_seven_billion_parameters_in_little_memory(
    client: kcache.Client, server: ServerProcess, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    assert chain(path, 16_384, 27) > 7e9
    pids = [os.getpid(), server.pid]
    before = resident(pids)
    kernel = client.compile(path)
    assert len(kernel.manifest.inputs) == 28
    assert max(after - at for after, at in zip(resident(pids), before, strict=True)) < 100 << 20


def against_onnx_runtime(
    client: kcache.Client, server: ServerProcess, path: Path, inputs: dict[str, Any], rtol: float
) -> None:
    """The results are those of ONNX Runtime; neither client nor server holds the weights meanwhile."""
    runtime = pytest.importorskip("onnxruntime")
    (expected,) = runtime.InferenceSession(path).run(None, inputs)
    pids = [os.getpid(), server.pid]
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # VmHWM begins anew
    before, began = resident(pids), time.perf_counter()
    kernel = client.compile(path)
    seconds = time.perf_counter() - began
    grown = [peak - at for peak, at in zip(resident(pids, "VmHWM"), before, strict=True)]
    logger.info(
        "compiled in %.1f s; memory of client and server grew by %s MB", seconds, [g >> 20 for g in grown]
    )
    assert grown[0] < 300 << 20
    assert grown[1] < 100 << 20
    (result,) = kernel(*inputs.values())
    np.testing.assert_allclose(result, expected, rtol=rtol, atol=rtol * float(np.abs(expected).max()))


@pytest.mark.long
def test_resnet50(client: kcache.Client, server: ServerProcess, tmp_path: Path) -> None:
    path = tmp_path / "resnet50.onnx"
    onnx.save(resnet50(), path)
    assert path.stat().st_size > 100e6
    image = np.random.default_rng(1).normal(size=(1, 3, 224, 224)).astype(np.float32)
    against_onnx_runtime(client, server, path, {"image": image}, 1e-4)


@pytest.mark.long
def test_bert_large(client: kcache.Client, server: ServerProcess, tmp_path: Path) -> None:
    path = tmp_path / "bert.onnx"
    bert(path)
    assert (tmp_path / "bert.bin").stat().st_size > 1.3e9
    tokens = np.random.default_rng(1).integers(0, 30_000, (1, 32))
    against_onnx_runtime(client, server, path, {"tokens": tokens}, 1e-3)
