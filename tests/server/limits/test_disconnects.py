"""Clients that leave before they have read their reply."""

from __future__ import annotations

import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import pytest

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2_grpc
from tests.server.harness.programs import SO, add, compile_request, inline, kernels_request, result_of
from tests.server.harness.running import process

#: Programs of one kernel: with an artifact each, their reply is larger than the window of HTTP/2.
_PROGRAMS = 80


@pytest.mark.issue(number=19, point=14)
def test_a_client_that_disconnects_is_recorded_as_cancelled(tmp_path: Path) -> None:
    """It has read the first message of a reply, or none; the server waits in a write when it leaves."""
    bodies = [add(4, names=(f"a{number}", f"b{number}")) for number in range(_PROGRAMS)]
    request = kernels_request(bodies, inline_budget_bytes=16 << 20, artifact_kinds=[SO])
    with process(tmp_path) as (server, address):
        with grpc.insecure_channel(address) as channel:
            stub: Any = kernel_cache_pb2_grpc.KernelCacheStub(channel)
            for body in bodies:
                result_of(stub.CompileKernel(compile_request(inline(body))))
            assert len(list(stub.GetKernels(request))) > 2
        for _ in range(4):
            # Its own connection, whose window stays as it is: 64 KiB.
            options = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]
            with grpc.insecure_channel(address, options) as channel:
                stub = kernel_cache_pb2_grpc.KernelCacheStub(channel)
                calls = [stub.GetKernels(request) for _ in range(3)]
                for call in calls:
                    next(call)
        server.send_signal(signal.SIGTERM)
        assert server.wait(240) == 0
    log = (tmp_path / "server.log").read_text()
    outcomes = Counter(re.findall(r"rpc=GetKernels outcome=(\w+)", log))
    assert outcomes == {"OK": 1, "CANCELLED": 12}
    assert "Traceback" not in log
