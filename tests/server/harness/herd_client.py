"""A client process of the herd: ``python -m tests.server.harness.herd_client TARGET CHANNELS FIRST COUNT
ORDER``.

Each channel asks for all kernels, over the servers in turn, in an order of its own. ORDER is ``at-once``: for
all of them as ``compile_many`` does, several a stream (``CompileKernels``); ``side-by-side``: for all of them
with a stream for each (``CompileKernel``); ``in-turn``: for each when it has the one before.

One JSON line a reply: number of the program, key, origin, digests of manifest and shared object. Last,
``{"cpu": SECONDS, "began": SECONDS, "ended": SECONDS}``: processor time from the first request to the last
answer, and when these were, by the clock that all processes share.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import grpc.aio

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2_grpc, manifest_pb2
from kcache_grpc.client.transport.compile_stream import groups
from tests.server.harness.programs import compile_request, inline
from tests.system.e2e.programs import scale_and_shift

ROUND_ROBIN = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})
_SECONDS = 300.0


async def main(target: str, channels: int, first: int, count: int, asking: str) -> None:
    options = [("grpc.service_config", ROUND_ROBIN), ("grpc.use_local_subchannel_pool", 1)]
    opened = [grpc.aio.insecure_channel(target, options=options) for _ in range(channels)]
    for channel in opened:
        await channel.channel_ready()
    print("ready", flush=True)
    sys.stdin.readline()
    before, began = time.process_time(), time.monotonic()
    numbers = range(first, first + count)
    requests = {number: _request(number) for number in numbers}
    replies = await asyncio.gather(
        *(_client(channel, requests, seed, asking) for seed, channel in enumerate(opened))
    )
    ended, cpu = time.monotonic(), time.process_time() - before
    for each in replies:
        for number, result, code in each:
            manifest = hashlib.sha256(result.manifest.payload).hexdigest()
            reply = [number, result.key, result.origin, manifest, hashlib.sha256(code).hexdigest()]
            print(json.dumps(reply))
    print(json.dumps({"cpu": cpu, "began": began, "ended": ended}))
    for channel in opened:
        await channel.close()


def _request(number: int) -> Any:
    return compile_request(
        inline(scale_and_shift(number).encode()),
        artifact_kinds=[manifest_pb2.ARTIFACT_KIND_SHARED_OBJECT],
        inline_budget_bytes=1 << 20,
    )


async def _client(
    channel: grpc.aio.Channel, requests: Mapping[int, Any], seed: int, asking: str
) -> list[tuple[int, Any, bytes]]:
    stub: Any = kernel_cache_pb2_grpc.KernelCacheStub(channel)
    order = random.Random(seed).sample(list(requests), len(requests))
    match asking:
        case "in-turn":
            return [await _kernel(stub, number, requests[number]) for number in order]
        case "side-by-side":
            return list(await asyncio.gather(*(_kernel(stub, number, requests[number]) for number in order)))
        case "at-once":
            replies = await asyncio.gather(*(_kernels(stub, some, requests) for some in groups(order)))
            return [each for some in replies for each in some]
        case other:
            raise ValueError(other)


async def _kernel(stub: Any, number: int, request: Any) -> tuple[int, Any, bytes]:
    replies = [reply async for reply in stub.CompileKernel(request, timeout=_SECONDS)]
    return _kernel_of(number, replies)


async def _kernels(
    stub: Any, numbers: Sequence[int], requests: Mapping[int, Any]
) -> list[tuple[int, Any, bytes]]:
    request = pb.CompileKernelsRequest(requests=[requests[number] for number in numbers])
    replies: list[list[Any]] = [[] for _ in numbers]
    async for message in stub.CompileKernels(request, timeout=_SECONDS):
        for event in message.events:
            assert event.HasField("reply"), event
            replies[event.index].append(event.reply)
    return [_kernel_of(number, some) for number, some in zip(numbers, replies, strict=True)]


def _kernel_of(number: int, replies: Sequence[Any]) -> tuple[int, Any, bytes]:
    (result,) = [reply.result for reply in replies if reply.HasField("result")]
    inside = b"".join(artifact.data for artifact in result.artifacts)
    return number, result, inside + b"".join(reply.chunk.data for reply in replies)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:5]), asking=sys.argv[5]))
