"""ONNX models over a real server: objects, files and bytes; weights travel with the kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

import kcache_grpc as kcache
from tests.conformance.onnx_models.build import arrays_for, assert_close, model, node, reference, reweighted
from tests.conformance.onnx_models.corpus import CORPUS, OPEN, attention_block, mlp
from tests.serving import ServerProcess
from tests.system.e2e import audit_store


@pytest.fixture
def client(server: ServerProcess, tmp_path: Path) -> Iterator[kcache.Client]:
    with kcache.Client(server.address, cache_dir=tmp_path / "cache", strict=True, timeout=240) as connected:
        yield connected


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["mlp", "convolutions", "attention_block", "embedding"])
def test_kernels_need_no_argument_but_the_inputs(client: kcache.Client, name: str) -> None:
    proto = CORPUS[name]()
    arrays = arrays_for(proto)
    kernel = client.compile(proto)
    assert kernel.origin == "compiled"
    assert_close(kernel(*arrays), reference(proto, arrays))
    assert len(kernel.manifest.constants) > 0


def test_other_weights_are_compiled_once(
    client: kcache.Client, server: ServerProcess, tmp_path: Path
) -> None:
    proto = attention_block(3, 4)
    other = reweighted(proto)
    arrays = arrays_for(proto)
    first = client.compile(proto)
    kernels = audit_store.count(server.database, "kernels")
    second = client.compile(other)
    assert second.key == first.key
    assert second.origin != "compiled"
    assert audit_store.count(server.database, "kernels") == kernels
    assert_close(first(*arrays), reference(proto, arrays))
    assert_close(second(*arrays), reference(other, arrays))
    with kcache.Client(server.address, cache_dir=tmp_path / "new", strict=True, timeout=240) as stranger:
        again = stranger.compile(other)
        assert again.origin == "remote"
        assert_close(again(*arrays), reference(other, arrays))
        assert_close(stranger.compile(proto)(*arrays), reference(proto, arrays))
    assert audit_store.complaints(server.database) == []


def test_objects_files_and_bytes_are_one_program(client: kcache.Client, tmp_path: Path) -> None:
    proto = mlp(5)
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    key = client.store(proto)
    body = proto.SerializeToString()
    assert [client.store(program) for program in (path, body, bytearray(body))] == [key] * 3
    assert client.store(body, format="onnx") == key
    assert client.compile(path).key == key


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", OPEN)
def test_open_dims_are_one_kernel_for_all_sizes(client: kcache.Client, name: str) -> None:
    make, names, sizes = OPEN[name]
    proto = make(*names)
    kernel = client.compile(proto)
    for at in sizes:
        arrays = arrays_for(proto, at)
        assert_close(kernel(*arrays), reference(proto, arrays))
    large = next(at for at in reversed(sizes) if min(at.values()) > 1)
    fixed = make(*(large[n] for n in names))
    assert client.store(fixed) == kernel.key


def test_rejections_reach_the_caller(client: kcache.Client) -> None:
    custom = model(
        [node("Fancy", ["x"], ["y"], domain="com.a", name="here")], {"x": [2]}, ["y"], domains=["com.a"]
    )
    with pytest.raises(kcache.UnsupportedOp, match=r"com\.a\.Fancy.*here"):
        client.compile(custom)
    broken = mlp().SerializeToString()[:-3]
    with pytest.raises(kcache.InvalidProgram, match=r"onnx\.ModelProto"):
        client.compile(broken, format="onnx")
    with pytest.raises(kcache.ArgumentError, match="ModelProto"):
        client.compile(mlp().graph)
