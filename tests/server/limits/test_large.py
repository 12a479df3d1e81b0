"""Kernels of several megabytes: no message is above gRPC's usual limit, and all bytes come."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import groupby

import pytest

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.model.manifest import Manifest
from tests.server.harness import large_jobs
from tests.server.harness.programs import SO, add, compile_request, header, inline, kernels_request
from tests.server.harness.running import Running, config_in, running

MLIR, LLVM = 2, 3
KINDS = [SO, MLIR, LLVM]
PROGRAM = add(4)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(config_in(tmp_path_factory.mktemp("large"), worker=large_jobs.settings())) as server:
        list(server.stub.CompileKernel(compile_request(inline(PROGRAM))))
        yield server


@pytest.mark.parametrize("budget", [0, 3 << 20, 16 << 20])
def test_looked_up(server: Running, budget: int) -> None:
    request = kernels_request([PROGRAM] * 3, artifact_kinds=KINDS, inline_budget_bytes=budget)
    results: list[pb.KernelResult] = []
    for _ in range(2):  # from the store, from memory
        replies = list(server.stub.GetKernels(request))
        assert all(reply.ByteSize() < 4 << 20 for reply in replies)
        results = [result for reply in replies for result in reply.results]
        assert [result.index for result in results] == [0, 1, 2]
        sent = [artifact for result in results for artifact in result.artifacts]
        assert sum(len(artifact.data) for artifact in sent) <= budget
        assert bool(sent) == bool(budget)
        for artifact in sent:
            assert hashlib.sha256(artifact.data).digest() == artifact.ref.sha256
    manifest = Manifest.from_bytes(results[0].manifest.payload)
    for kind in ("so", "llvm"):
        ref = manifest.artifact(kind)
        assert ref is not None
        parts = server.stub.ReadArtifact(pb.ReadArtifactRequest(header=header(), sha256=ref.sha256))
        assert hashlib.sha256(b"".join(part.data for part in parts)).digest() == ref.sha256


@pytest.mark.parametrize("budget", [0, 3 << 20, 16 << 20])
def test_compiled(server: Running, budget: int) -> None:
    request = compile_request(inline(PROGRAM), artifact_kinds=KINDS, inline_budget_bytes=budget)
    first, *others = server.stub.CompileKernel(request)
    assert max(reply.ByteSize() for reply in (first, *others)) < 4 << 20
    digests = {artifact.ref.sha256: artifact.data for artifact in first.result.artifacts}
    assert len(digests) == bool(budget)
    for sha256, group in groupby(others, lambda reply: reply.chunk.ref.sha256):
        content = b""
        for reply in group:
            assert reply.chunk.offset == len(content)
            content += reply.chunk.data
        digests[sha256] = content
    manifest = Manifest.from_bytes(first.result.manifest.payload)
    wanted = {ref.sha256 for ref in manifest.artifacts if ref.kind in ("so", "mlir", "llvm")}
    assert len(wanted) == len(KINDS)
    assert {hashlib.sha256(content).digest() for content in digests.values()} == set(digests) == wanted


def test_who_goes_away_midway_disturbs_nobody(server: Running) -> None:
    for taken in range(6):
        going = server.stub.CompileKernel(compile_request(inline(PROGRAM), artifact_kinds=KINDS))
        for _ in range(taken):
            next(going)
        going.cancel()
    request = compile_request(inline(PROGRAM), artifact_kinds=KINDS)
    assert len(list(server.stub.CompileKernel(request))) == 1 + 3 * len(KINDS)
