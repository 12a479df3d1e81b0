"""deploy/nginx.conf in front of real servers on one Postgres, where nginx is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2_grpc
from tests.ports import free_port
from tests.postgres import PostgresServer
from tests.repository.sources import ROOT
from tests.server.harness.programs import add, by_digest, compile_request, header, inline, result_of
from tests.serving import ServerProcess

NGINX = shutil.which("nginx")
pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed (Debian package nginx)")


@contextmanager
def balancer(folder: Path, replicas: list[str]) -> Iterator[str]:
    """The address of nginx in front of ``replicas``, with the configuration of the composition."""
    port = free_port()
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    for number, address in enumerate(replicas, 1):
        text = text.replace(f"kcache-{number}:7420", address)
    text = text.replace("listen 7420", f"listen 127.0.0.1:{port}").replace("/tmp/nginx", f"{folder}/nginx")
    if os.geteuid() == 0:
        text = "user root;\n" + text
    (folder / "nginx.conf").write_text(re.sub(r"worker_processes auto", "worker_processes 1", text))
    assert NGINX is not None
    command = [NGINX, "-c", str(folder / "nginx.conf"), "-p", str(folder), "-g", "daemon off;"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            grpc.channel_ready_future(channel).result(timeout=120)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate(timeout=120)


@pytest.fixture
def replicas(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[list[ServerProcess]]:
    url = postgres_server.create()
    key = tmp_path / "identity" / "signing.key"
    with ExitStack() as stack:
        started = []
        for number in range(3):
            folder = tmp_path / f"r{number}"
            folder.mkdir()
            server = ServerProcess(folder, "--db", url, "--key-file", str(key), "--workers", "1")
            started.append(stack.enter_context(server))
        yield started
    postgres_server.drop(url)


def test_any_replica_answers_and_a_killed_one_is_passed_over(
    tmp_path: Path, replicas: list[ServerProcess]
) -> None:
    with (
        balancer(tmp_path, [replica.address for replica in replicas]) as address,
        grpc.insecure_channel(address) as channel,
    ):
        stub = kernel_cache_pb2_grpc.KernelCacheStub(channel)
        first = result_of(stub.CompileKernel(compile_request(inline(add(4))), timeout=120))
        for _ in range(6):
            again = result_of(stub.CompileKernel(compile_request(by_digest(add(4))), timeout=60))
            assert again.manifest == first.manifest
        # Each of them had a call or two.
        replicas[1].kill()
        started = time.monotonic()
        for _ in range(6):
            assert stub.CountSpecs(pb.CountSpecsRequest(header=header()), timeout=120).count == 1
        assert time.monotonic() - started < 120
