"""The client and the real service, which is a process of its own: compile, run, restart."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kcache_grpc as kcache
from tests.serving import ServerProcess

pytestmark = pytest.mark.timeout(900)


def program(name: str = "main", rows: int = 4, value: str = "2.0") -> str:
    return (
        f"func.func @{name}(%x: tensor<{rows}x3xf32>) -> tensor<{rows}x3xf32> {{\n"
        f"  %c = stablehlo.constant dense<{value}> : tensor<{rows}x3xf32>\n"
        f"  %0 = stablehlo.multiply %x, %c : tensor<{rows}x3xf32>\n"
        f"  return %0 : tensor<{rows}x3xf32>\n}}\n"
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server"), "--workers", "1") as process:
        yield process


@pytest.fixture
def connect(server: ServerProcess, tmp_path: Path) -> Iterator[Any]:
    """Clients of the real server, each with an empty cache directory unless one is given."""
    with contextlib.ExitStack() as stack:

        def make(**settings: Any) -> kcache.Client:
            settings = {
                "cache_dir": tmp_path / f"cache{len(list(tmp_path.iterdir()))}",
                "strict": True,
                "timeout": 120,
                **settings,
            }
            return stack.enter_context(kcache.Client(server.address, **settings))

        yield make


def test_every_origin_and_the_numbers(connect: Any, tmp_path: Path) -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    client = connect(cache_dir=tmp_path / "first")
    stages: list[str] = []
    kernels = [client.compile(program(), on_progress=lambda stage, _: stages.append(stage))]
    kernels.append(client.compile(program()))
    kernels.append(connect().compile(program()))
    kernels.append(connect(cache_dir=tmp_path / "first").compile(program()))
    assert [kernel.origin for kernel in kernels] == ["compiled", "memory", "remote", "disk"]
    assert len({(kernel.key, kernel.spec_digest) for kernel in kernels}) == 1
    for kernel in kernels:
        (y,) = kernel(x)
        np.testing.assert_array_equal(y, 2 * x)
    assert {"canonicalize", "publish"} <= set(stages)
    assert kernels[2].artifact("llvm") == kernels[0].artifact("llvm")
    assert b"kcache_run" in kernels[1].artifact("so")


def test_a_renamed_and_relocated_graph_compiles_nothing(connect: Any) -> None:
    first = connect().compile(program(rows=5))
    client = connect()
    before = client.stats().compiles
    located = program("other_name", rows=5).replace("\n  return", ' loc("file.py":1:2)\n  return')
    again = client.compile(located)
    assert (again.key, again.origin) == (first.key, "remote")
    assert client.stats().compiles == before


def test_graph_operations(connect: Any) -> None:
    client = connect(namespace="graphs")
    graph = client.normalize(program())
    assert graph.arg_spec == "f32[4,3]"
    assert client.lookup(program()) is None
    assert client.count() == 0
    key = client.store(program())
    assert (key, client.store(program("renamed")), client.count()) == (1, 1, 1)
    spec = client.lookup(program())
    assert spec is not None
    assert (spec.key, spec.digest, spec.text) == (1, graph.digest, graph.text)
    assert client.retrieve(1) == spec
    assert client.retrieve(2) is None
    kernel = client.compile(program())
    assert (kernel.key, kernel.spec_digest) == (1, graph.digest)


def test_large_constants_come_along(connect: Any, tmp_path: Path) -> None:
    values = np.linspace(-1, 1, 90_000, dtype=np.float32)
    digits = values.tobytes().hex().upper()
    text = (
        "func.func @main(%x: tensor<90000xf32>) -> tensor<90000xf32> {\n"
        f'  %c = stablehlo.constant dense<"0x{digits}"> : tensor<90000xf32>\n'
        "  %0 = stablehlo.add %x, %c : tensor<90000xf32>\n  return %0 : tensor<90000xf32>\n}\n"
    )
    x = np.ones(90_000, np.float32)
    kernels = [connect(cache_dir=tmp_path / "c").compile(text), connect().compile(text)]
    kernels.append(connect(cache_dir=tmp_path / "c").compile(text))
    assert [kernel.origin for kernel in kernels] == ["compiled", "remote", "disk"]
    assert len(kernels[0].binding.constants) == 1
    for kernel in kernels:
        np.testing.assert_array_equal(kernel(x)[0], x + values)


def test_a_program_above_one_message(connect: Any) -> None:
    text = program(rows=6) + "// " + "x" * (4 << 20) + "\n"
    kernel = connect().compile(text)
    assert kernel.origin in ("compiled", "remote")
    again = connect().compile(text)
    assert (again.key, again.origin) == (kernel.key, "remote")


def test_linalg(connect: Any) -> None:
    text = (
        "func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {\n"
        "  %e = tensor.empty() : tensor<4xf32>\n"
        "  %0 = linalg.add ins(%a, %b : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>)"
        " -> tensor<4xf32>\n  return %0 : tensor<4xf32>\n}\n"
    )
    (y,) = connect().compile(text)(np.ones(4, np.float32), np.full(4, 2, np.float32))
    np.testing.assert_array_equal(y, np.full(4, 3, np.float32))


def test_a_jax_export(connect: Any) -> None:
    jax = pytest.importorskip("jax")
    exported = jax.export.export(jax.jit(lambda x: jax.nn.relu(x) * 3))(
        jax.ShapeDtypeStruct((5, 2), "float32")
    )
    kernel = connect().compile(exported)
    x = np.linspace(-2, 2, 10, dtype=np.float32).reshape(5, 2)
    np.testing.assert_array_equal(kernel(x)[0], np.maximum(x, 0) * 3)


def test_a_kernel_for_another_machine(connect: Any) -> None:
    client = connect()
    kernel = client.compile(program(), target="aarch64")
    assert kernel.artifact("so").startswith(b"\x7fELF")
    assert client.compile(program(), target="aarch64").origin == "memory"
    with pytest.raises(kcache.ArgumentError):
        kernel(np.zeros((4, 3), np.float32))


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ("func.func @main(", kcache.InvalidProgram),
        ("nonsense\n", kcache.InvalidProgram),
        (b"ML\xefR garbage", kcache.InvalidProgram),
        (b"\xff\xfe text", kcache.InvalidProgram),
        (program().replace("3xf32>", "3xbanana>"), kcache.InvalidProgram),
        (program(rows=2**60), (kcache.ResourceExhausted, kcache.InvalidProgram, kcache.CompileFailed)),
    ],
)
def test_bad_programs(connect: Any, bad: Any, error: Any) -> None:
    client = connect(namespace="bad")
    for call in (client.compile, client.normalize, client.store, client.lookup):
        with pytest.raises(error) as caught:
            call(bad)
        assert str(caught.value)
        if error is not kcache.InvalidProgram:
            break
    assert client.count() in (0, 1)


def test_an_op_without_a_lowering_is_named(connect: Any) -> None:
    text = (
        "func.func @main(%x: tensor<8xcomplex<f32>>) -> tensor<8xcomplex<f32>> {\n"
        "  %0 = stablehlo.custom_call @anything(%x) : (tensor<8xcomplex<f32>>)"
        " -> tensor<8xcomplex<f32>>\n  return %0 : tensor<8xcomplex<f32>>\n}\n"
    )
    client = connect(namespace="ops")
    with pytest.raises(kcache.UnsupportedOp) as caught:
        client.compile(text)
    assert caught.value.op == "stablehlo.custom_call"
    with pytest.raises(kcache.UnsupportedOp) as remembered:
        client.compile(text)
    assert remembered.value.op == "stablehlo.custom_call"
    assert "remembered_until" in remembered.value.metadata
    with pytest.raises(kcache.UnsupportedOp) as again:
        client.compile(text, retry=True)
    assert "remembered_until" not in again.value.metadata
    assert client.store(text) == 1


def test_sixteen_threads_over_a_few_graphs(connect: Any) -> None:
    client = connect()
    before = client.stats().compiles
    x = np.ones((4, 3), np.float32)

    def work(index: int) -> float:
        value = f"{index % 4 + 10}.0"
        return float(client.compile(program(value=value))(x)[0][0, 0])

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(work, range(64)))
    assert results == [index % 4 + 10.0 for index in range(64)]
    assert client.stats().compiles - before == 4


def test_many_at_once_and_async(connect: Any, server: ServerProcess, tmp_path: Path) -> None:
    programs = [program(value=f"{value}.0") for value in range(20, 24)]
    kernels = connect().compile_many(programs)
    assert [kernel.origin for kernel in kernels] == ["compiled"] * 4

    async def main() -> list[Any]:
        async with kcache.aio.Client(server.address, cache_dir=tmp_path / "a", strict=True) as client:
            return await asyncio.gather(*(client.compile(text) for text in programs))

    again = asyncio.run(main())
    assert [(kernel.key, kernel.origin) for kernel in again] == [(kernel.key, "remote") for kernel in kernels]


def test_killed_while_it_compiles_and_started_again(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, "--workers", "1").start()
    try:
        told: list[str] = []

        def kill(stage: str, seconds: float) -> None:
            if not told:
                told.append(stage)
                server.kill()
                server.start()

        with kcache.Client(server.address, cache_dir=tmp_path / "a", strict=True, timeout=120) as client:
            first = client.compile(program(), on_progress=kill)
        assert told
        assert first.origin in ("compiled", "remote")
        with kcache.Client(server.address, cache_dir=tmp_path / "b", strict=True) as client:
            again = client.compile(program())
            assert (again.key, again.origin, client.count()) == (first.key, "remote", 1)
    finally:
        server.stop()
