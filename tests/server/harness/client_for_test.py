"""A client process of the tests: many equal CompileKernel calls at once, one line ``origin:digest`` each."""

from __future__ import annotations

import hashlib
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2_grpc
from tests.server.harness.programs import add, compile_request, inline, result_of


def main(address: str, calls: int) -> None:
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(240)
        stub = kernel_cache_pb2_grpc.KernelCacheStub(channel)
        print("ready", flush=True)
        sys.stdin.readline()
        streams = [stub.CompileKernel(compile_request(inline(add(50)))) for _ in range(calls)]
        with ThreadPoolExecutor(calls) as threads:
            for result in threads.map(result_of, streams):
                print(f"{result.origin}:{hashlib.sha256(result.manifest.payload).hexdigest()}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
