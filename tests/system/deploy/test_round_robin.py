"""A client that takes turns between three real servers on one Postgres, without a balancer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import numpy as np
import pytest

import kcache_grpc as kcache
from kcache_grpc._proto.kcache.v1 import common_pb2, kernel_cache_pb2_grpc
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from tests.postgres import PostgresServer
from tests.server.harness.programs import digest, header
from tests.serving import ServerProcess

PROGRAM = """func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %r = stablehlo.add %a, %a : tensor<4xf32>
  return %r : tensor<4xf32>
}
"""


def break_off(address: str, body: bytes) -> None:
    """Upload half of a program, and be gone."""
    first = pb.UploadProgramRequest(
        header=header(),
        format=common_pb2.PROGRAM_FORMAT_STABLEHLO,
        size_bytes=len(body),
        program_digest=digest(body),
    )
    parts = [
        pb.UploadProgramRequest(data=body[at : at + (1 << 19)]) for at in range(0, len(body) // 2, 1 << 19)
    ]
    with grpc.insecure_channel(address) as channel:
        stub = kernel_cache_pb2_grpc.KernelCacheStub(channel)
        reply = stub.UploadProgram(iter([first, *parts]), timeout=60)
    assert 0 < reply.committed_size_bytes < len(body)


@pytest.fixture
def replicas(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[list[ServerProcess]]:
    url, key = postgres_server.create(), tmp_path / "signing.key"
    with ExitStack() as stack:
        started = []
        for number in range(3):
            (tmp_path / f"r{number}").mkdir()
            server = ServerProcess(
                tmp_path / f"r{number}", "--db", url, "--key-file", str(key), "--workers", "1"
            )
            started.append(stack.enter_context(server))
        yield started
    postgres_server.drop(url)


@pytest.mark.long
def test_calls_take_turns_and_pass_over_a_server_that_died(
    tmp_path: Path, replicas: list[ServerProcess]
) -> None:
    address = ",".join(replica.address for replica in replicas)
    with kcache.Client(address, cache_dir=tmp_path / "cache", strict=True) as client:
        kernel = client.compile(PROGRAM)
        assert kernel.origin == "compiled"
        np.testing.assert_array_equal(kernel(np.ones(4, np.float32))[0], np.full(4, 2, np.float32))
        # An upload in many messages to one server, and its use in a call to another.
        filling = "\n".join("// " + "x" * 100 for _ in range(50_000))
        keys = {client.store(f"{PROGRAM}{filling}\n// {number}") for number in range(4)}
        assert keys == {kernel.key}
        # Servers write their logs a moment later.
        for _ in range(3000):
            assert client.count() == 1
            if all("rpc=CountSpecs" in replica.log() for replica in replicas):
                break
        else:
            raise AssertionError("not all servers were asked")
        # Uploads that broke off at one server go on at whichever comes next.
        large = [f"{PROGRAM}{filling}\n// broken {number}".encode() for number in range(4)]
        for body in large:
            break_off(replicas[0].address, body)
        assert {client.store(body.decode()) for body in large} == {kernel.key}
        replicas[0].kill()
        for _ in range(9):
            assert client.count() == 1
