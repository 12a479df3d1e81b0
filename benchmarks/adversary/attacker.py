"""The clients that attack, in a process of their own.

``python -m benchmarks.adversary.attacker KIND ADDRESS``, where ``KIND`` is ``unread`` or ``bombs``. It prints
``attacking`` once its calls are under way, and ends with the end of its standard input.
"""

from __future__ import annotations

import sys
from typing import Any

import grpc

from benchmarks.adversary.inputs import alias_bomb
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2_grpc
from tests.server.harness.programs import SO, add, compile_request, inline, kernels_request

#: Calls that are not read, queries of each and bytes of artifacts that it asks for.
CALLS, QUERIES, BUDGET = 300, 4096, 16 << 20
#: Programs that are expensive to read, and seconds until their callers give up.
BOMBS, DEADLINE = 5, 1.0
_CHANNEL = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]


def unread(stub: Any) -> list[Any]:
    """Calls for many copies of one kernel, whose replies nobody reads."""
    request = kernels_request([add(4)] * QUERIES, artifact_kinds=[SO], inline_budget_bytes=BUDGET)
    return [stub.GetKernels(request, timeout=600) for _ in range(CALLS)]


def bombs(stub: Any) -> list[Any]:
    """Compiles of bytecode that takes a minute to read, abandoned after a second."""
    requests = [compile_request(inline(alias_bomb(seed=seed))) for seed in range(BOMBS)]
    return [stub.CompileKernel(request, timeout=DEADLINE) for request in requests]


def main(kind: str, address: str) -> None:
    """Attacks until standard input ends."""
    attack = {"unread": unread, "bombs": bombs}[kind]
    with grpc.insecure_channel(address, _CHANNEL) as channel:
        stub: Any = kernel_cache_pb2_grpc.KernelCacheStub(channel)
        stub.CountSpecs(pb.CountSpecsRequest())
        calls = attack(stub)
        sys.stdout.write("attacking\n")
        sys.stdout.flush()
        sys.stdin.read()
        for call in calls:
            call.cancel()


if __name__ == "__main__":
    main(*sys.argv[1:])
