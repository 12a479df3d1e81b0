"""The client's explanations, from a real server; and what they look like."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import kcache_grpc as kcache
from kcache_grpc.model.explanation import HITS
from tests.serving import ServerProcess

#: Kernels for all sizes are what is tested here, not the evidence for them
# (tests/server/variants/test_evidence.py).
pytestmark = pytest.mark.filterwarnings("ignore:dynamic=.assume.:kcache_grpc.KcacheWarning")

TARGET = "x86-64-v3"


def program(op: str = "tanh", rows: int = 4, padding: int = 0) -> str:
    return (
        f"func.func @main(%x: tensor<{rows}x3xf32>) -> tensor<{rows}x3xf32> {{\n"
        f"  %0 = stablehlo.{op} %x : tensor<{rows}x3xf32>\n"
        f"  return %0 : tensor<{rows}x3xf32>\n}}\n" + "// \n" * padding
    )


@pytest.fixture
def client(server: ServerProcess, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[kcache.Client]:
    space = request.node.originalname.replace("_", "-")[:60]
    with kcache.Client(server.address, namespace=space, cache_dir=tmp_path / "cache", strict=True) as client:
        yield client


def test_a_hit_and_misses(client: kcache.Client) -> None:
    assert client.explain(program(), target=TARGET).step == "NAMESPACE_EMPTY"
    kernel = client.compile(program(), target=TARGET)
    hit = client.explain(program(), target=TARGET)
    assert isinstance(hit, kcache.Explanation)
    assert (hit.hit, hit.key) == (True, kernel.key)
    assert (hit.kernel_digest, hit.spec_digest) == (kernel.manifest.kernel_digest, kernel.spec_digest)
    assert client.explain(program(), target=TARGET, options=kcache.Options(opt_level=0)).step == "OPTIONS"
    assert client.explain(program(), target="x86-64-v2").step == "TARGET"
    assert client.explain(program(rows=5), target=TARGET).step == "SIZES"
    unknown = client.explain(program("cosine"), target=TARGET, neighbors=1)
    (near,) = unknown.nearest
    assert near.differences[0].sentence == (
        "operation 0: yours is cosine of argument 0, the stored one is tanh of argument 0"
    )
    assert (near.differences[0].yours, near.differences[0].theirs) == (
        "cosine of argument 0",
        "tanh of argument 0",
    )


def test_what_people_read(client: kcache.Client) -> None:
    client.compile(program(), target=TARGET)
    hit = str(client.explain(program(), target=TARGET))
    assert hit.splitlines()[0].startswith("hit: this program was stored on ")
    assert hit.endswith("(yours)")
    miss = str(client.explain(program("cosine"), target="x86-64-v2"))
    first, second, third, fourth = miss.splitlines()
    assert first == "miss: no stored program has the same spec"
    assert second.startswith("  1. key 1, kernel ")
    assert third.startswith("     operation 0: yours is cosine of argument 0")
    assert fourth == "     compiled for x86-64-v3, you asked for x86-64-v2"


def test_other_sizes_and_what_dynamic_would_do(client: kcache.Client) -> None:
    client.compile(program(), target=TARGET, dynamic="assume", symbols=[(0, 0)])
    assert client.explain(program(rows=7), target=TARGET, dynamic="auto").hit
    assert client.explain(program(rows=7), target=TARGET, dynamic="assume", symbols=[(0, 0)]).hit
    missed = client.explain(program(rows=7), target=TARGET)
    assert missed.step == "SIZES"
    assert 'dynamic="auto"' in missed.nearest[0].differences[0].sentence
    bounded = {(0, 0): kcache.Dim(multiple_of=7)}
    bounds = client.explain(program(rows=7), target=TARGET, dynamic="assume", symbols=bounded)
    assert not bounds.hit
    assert bounds.guard == "s0 % 7 == 0"


def test_nothing_is_stored_and_no_tier_is_asked(client: kcache.Client) -> None:
    client.explain(program("cosine"), target=TARGET)
    assert client.count() == 0
    assert client.lookup(program("cosine")) is None


def test_a_large_program_is_uploaded(client: kcache.Client) -> None:
    client.compile(program(), target=TARGET)
    explanation = client.explain(program(padding=1 << 20), target=TARGET)
    assert explanation.hit
    explanation = client.explain(program("cosine", padding=1 << 20), target=TARGET)
    assert explanation.step == "SPEC_UNKNOWN"


def test_the_asynchronous_client_says_the_same(
    client: kcache.Client, server: ServerProcess, tmp_path: Path
) -> None:
    client.compile(program(), target=TARGET)
    space = client._core.config.namespace

    async def main() -> kcache.Explanation:
        async with kcache.aio.Client(server.address, namespace=space, cache_dir=tmp_path / "aio") as other:
            return await other.explain(program("cosine"), target=TARGET)

    assert asyncio.run(main()) == client.explain(program("cosine"), target=TARGET)


@pytest.mark.parametrize("neighbors", [0, -1, True, 1.5, None])
def test_a_number_of_neighbors_that_is_none(client: kcache.Client, neighbors: object) -> None:
    with pytest.raises(kcache.ArgumentError):
        client.explain(program(), neighbors=neighbors)  # pyright: ignore[reportArgumentType]


def test_too_many_neighbors(client: kcache.Client) -> None:
    with pytest.raises(kcache.ResourceExhausted):
        client.explain(program(), target=TARGET, neighbors=1000)


def test_the_embedded_service_explains_too(tmp_path: Path) -> None:
    with kcache.Client(cache_dir=tmp_path / "cache") as client:
        client.compile(program(), target=TARGET)
        explanation = client.explain(program(), target=TARGET)
        assert explanation.step in HITS
