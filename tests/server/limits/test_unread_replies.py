"""Clients that do not read: what their replies hold in the server is bounded, and nobody else waits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2_grpc
from kcache_grpc.errors import ResourceExhausted
from kcache_grpc.server.reply_flow_control import Reader, ReplyFlowControl, ReplyLimits
from tests.server.harness.programs import SO, add, compile_request, inline, kernels_request, result_of
from tests.server.harness.running import process

pytestmark = pytest.mark.issue(number=19, point=9)

#: Programs of one kernel, of some 9 KB each.
PROGRAMS = 40
CALLS = 150
LIMITS = ReplyLimits(connection=100, caller=150, process=300)


def reader(connection: int, caller: str = "one") -> Reader:
    return Reader(f"{caller}:{connection}", caller)


def resident(pid: int) -> int:
    """Bytes."""
    fields = Path(f"/proc/{pid}/status").read_text().split()
    return int(fields[fields.index("VmRSS:") + 1]) << 10


def test_an_empty_reply_is_not_remembered() -> None:
    replies = ReplyFlowControl(LIMITS)
    assert replies.try_acquire(reader(1), 0)
    assert (replies._connections, replies._callers, replies.size) == ({}, {}, 0)


def test_replies_are_taken_at_once_within_the_limits_and_behind_those_that_wait() -> None:
    async def body() -> None:
        replies = ReplyFlowControl(LIMITS)
        assert replies.try_acquire(reader(1), 60)
        assert not replies.try_acquire(reader(1), 60)
        waiting = asyncio.ensure_future(replies.acquire(reader(1), 60))
        await asyncio.sleep(0)
        assert not replies.try_acquire(reader(1), 10)
        assert replies.try_acquire(reader(2), 60)
        assert not replies.try_acquire(reader(2), 40)  # beyond the caller
        replies.release(reader(1), 60)
        await waiting
        assert replies.size == 120
        replies.release(reader(1), 60)
        replies.release(reader(2), 60)
        assert (replies._connections, replies._callers, replies.size) == ({}, {}, 0)

    asyncio.run(body())


def test_replies_wait_for_those_of_their_connection_caller_and_process() -> None:
    async def body() -> None:
        replies = ReplyFlowControl(LIMITS)
        await replies.acquire(reader(1), 60)
        beyond_connection = asyncio.ensure_future(replies.acquire(reader(1), 60))
        await replies.acquire(reader(2), 60)
        beyond_caller = asyncio.ensure_future(replies.acquire(reader(2), 40))
        await replies.acquire(reader(3), 60)  # a connection without unread replies is always served
        await asyncio.sleep(0)
        assert not beyond_connection.done()
        assert not beyond_caller.done()
        assert replies.size == 180
        replies.release(reader(1), 60)
        await beyond_connection
        assert not beyond_caller.done()
        replies.release(reader(3), 60)
        replies.release(reader(1), 60)
        await beyond_caller
        assert replies.size == 100
        for number in range(3):
            await replies.acquire(reader(number, "others"), 90)
        beyond_process = asyncio.ensure_future(replies.acquire(reader(4), 10))
        await beyond_process  # the first of its connection
        beyond_process = asyncio.ensure_future(replies.acquire(reader(4), 10))
        await asyncio.sleep(0)
        assert not beyond_process.done()
        beyond_process.cancel()
        replies.release(reader(0, "others"), 90)
        with pytest.raises(asyncio.CancelledError):
            await beyond_process
        assert replies.size == 100 + 180 + 10

    asyncio.run(body())


def test_who_waits_too_long_is_told_why() -> None:
    async def body() -> None:
        replies = ReplyFlowControl(LIMITS, timeout=0.01)
        await replies.acquire(reader(1), 90)
        with pytest.raises(ResourceExhausted, match=r"90 bytes of earlier replies .* not read"):
            await replies.acquire(reader(1), 90)
        replies.release(reader(1), 90)
        await replies.acquire(reader(1), 90)

    asyncio.run(body())


def test_unread_replies_hold_a_bounded_part_of_memory_and_nobody_else_up(tmp_path: Path) -> None:
    """Each of the replies has 360 KB; those of a connection may hold 4 MiB, however many they are."""
    bodies = [add(4, names=(f"a{number}", f"b{number}")) for number in range(PROGRAMS)]
    request = kernels_request(bodies, inline_budget_bytes=16 << 20, artifact_kinds=[SO])
    closed = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]
    with process(tmp_path) as (server, address):
        with grpc.insecure_channel(address, closed) as other, grpc.insecure_channel(address, closed) as rude:
            stub: Any = kernel_cache_pb2_grpc.KernelCacheStub(other)
            for body in bodies:
                result_of(stub.CompileKernel(compile_request(inline(body))))
            reply_bytes = sum(reply.ByteSize() for reply in stub.GetKernels(request))
            assert reply_bytes > 256 << 10
            before = resident(server.pid)
            unread: Any = kernel_cache_pb2_grpc.KernelCacheStub(rude)
            calls = [unread.GetKernels(request, timeout=120)]
            next(calls[0])
            calls += [unread.GetKernels(request, timeout=120) for _ in range(CALLS - 1)]
            # Another client is served, also what is as large.
            for _ in range(3):
                statuses = [each.status for reply in stub.GetKernels(request) for each in reply.results]
                assert statuses == [pb.KERNEL_STATUS_FOUND] * PROGRAMS
            assert resident(server.pid) - before < 32 << 20
            for call in calls:
                call.cancel()
        log = tmp_path / "server.log"
    assert "Traceback" not in log.read_text()
