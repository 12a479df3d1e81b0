"""Compiles as the service tells them: one a stream, or several."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kcache_grpc._proto.kcache.v1 import common_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.client.progress import Progress, Stage
from kcache_grpc.client.transport.connection import Connection
from kcache_grpc.client.transport.grpc_errors import from_status
from kcache_grpc.client.transport.interface import COMPILE_KERNELS, Deadline, Io, OutOfTime, Wire
from kcache_grpc.client.trust.verification import KernelRequest
from kcache_grpc.errors import IntegrityError, NotFound, Unavailable
from kcache_grpc.model.target import code_kind
from kcache_grpc.model.wire import (
    artifact_kind_to_proto,
    format_to_proto,
    options_to_proto,
    shapes_to_proto,
    target_match_to_proto,
    target_to_proto,
)

T = TypeVar("T")

#: Most bytes of artifacts inside one answer; the rest is read one by one.
INLINE_BUDGET = 8 << 20
#: Programs of one stream: few, so that those of a model are spread over the replicas.
_GROUP = 8
#: Bytes of a program that shares a message with others: this many are below the transport's limit.
_MOST_SHARED = 256 << 10
#: What a server says of a miss that a compile repairs, and whether it has the program.
_MISSES: Mapping[int, bool] = {
    pb.KERNEL_STATUS_NEED_PROGRAM: False,
    pb.KERNEL_STATUS_NEED_COMPILE: True,
    pb.KERNEL_STATUS_FAILED: True,
}


@dataclass
class Compile:
    """What came of one compile so far, over all attempts to follow it."""

    progress: Progress
    began: float = field(default_factory=time.monotonic)
    result: pb.CompileResult | None = None
    stage: Stage = field(default_factory=lambda: Stage("queued"))
    parts: dict[bytes, bytearray] = field(default_factory=dict[bytes, bytearray])

    def take(self, reply: pb.CompileKernelResponse) -> None:
        """The next event."""
        # One time for all that one message tells: nobody knows when in between they began.
        now = time.monotonic() - self.began
        for stage in (*reply.stage.earlier_stages, *reply.result.earlier_stages):
            self.progress(Stage(stage, self.stage.expected_seconds), now)
        match reply.WhichOneof("event"):
            case "stage":
                self.stage = self._staged(reply.stage)
                self.progress(self.stage, now)
            case "heartbeat":
                self.progress(self.stage, now)
            case "result":
                self.result = reply.result
                for artifact in reply.result.artifacts:
                    self.parts[artifact.ref.sha256] = bytearray(artifact.data)
                self.progress(Stage("receive", self.stage.expected_seconds), now)
            case "chunk":
                self._take_chunk(reply.chunk)
            case _:
                pass

    def _staged(self, message: pb.CompileStage) -> Stage:
        """The stage, with what the service has said by now of the time that the compile takes."""
        if not message.HasField("expected_duration"):
            return Stage(message.stage, self.stage.expected_seconds)
        expected = message.expected_duration
        return Stage(message.stage, expected.seconds + expected.nanos / 1e9)

    def _take_chunk(self, chunk: pb.ArtifactChunk) -> None:
        content = self.parts.setdefault(chunk.ref.sha256, bytearray())
        if chunk.offset == 0:
            content.clear()
        if chunk.offset != len(content):
            raise IntegrityError(f"a part of an artifact begins at {chunk.offset} instead of {len(content)}")
        content.extend(chunk.data)


def compile_request(
    request: KernelRequest, source: common_pb2.GraphSource, header: common_pb2.RequestHeader | None = None
) -> pb.CompileKernelRequest:
    """What asks for one kernel, with its code."""
    return pb.CompileKernelRequest(
        header=header,
        graph=source,
        target=target_to_proto(request.target),
        options=options_to_proto(request.options),
        artifact_kinds=[artifact_kind_to_proto(code_kind(request.target))],
        shapes=shapes_to_proto(request.shapes),
        target_match=target_match_to_proto(request.options.compatible_targets),
        retry_failed=request.retry,
        inline_budget_bytes=INLINE_BUDGET,
    )


def groups(items: Sequence[T]) -> list[Sequence[T]]:
    """Equal parts, each for one stream."""
    count = -(-len(items) // _GROUP)
    return [items[index::count] for index in range(count)]


async def compile_together(
    connection: Connection,
    io: Io,
    requests: Sequence[KernelRequest],
    answers: Sequence[pb.KernelResult],
    deadline: Deadline,
    progress: Progress,
) -> list[Compile | None]:
    """The compiles of what the server missed, several a stream. Raises the error of one that fails.

    ``None``: what has to be asked for alone: a single one, what is too large, and what had no answer, be it
    that the stream broke or that the server does not know such streams.
    """
    if len(requests) < 2:
        return [None] * len(requests)
    state = await connection.state(deadline)
    largest = min(_MOST_SHARED, state.max_inline_program_bytes, state.max_program_bytes or _MOST_SHARED)

    def source(index: int) -> common_pb2.GraphSource:
        program = requests[index].program
        if _MISSES[answers[index].status]:
            return common_pb2.GraphSource(program_digest=program.digest)
        body = common_pb2.Program(format=format_to_proto(program.format), body=program.body)
        return common_pb2.GraphSource(program=body)

    async def follow(indices: Sequence[int]) -> dict[int, Compile]:
        compiles = {index: Compile(progress) for index in indices}
        await _follow(
            connection,
            [compile_request(requests[index], source(index)) for index in indices],
            list(compiles.values()),
            deadline,
        )
        return {index: each for index, each in compiles.items() if each.result is not None}

    missed = [
        index
        for index, (request, answer) in enumerate(zip(requests, answers, strict=True))
        if answer.status in _MISSES and len(request.program.body) <= largest
    ]
    if len(missed) < 2:
        return [None] * len(requests)
    per_group = await io.gather([lambda group=group: follow(group) for group in groups(missed)])
    by_index = {index: each for some in per_group for index, each in some.items()}
    return [by_index.get(index) for index in range(len(requests))]


async def _follow(
    connection: Connection,
    requests: Sequence[pb.CompileKernelRequest],
    compiles: Sequence[Compile],
    deadline: Deadline,
) -> None:
    """Follows one stream to its end, or to where it breaks."""
    request = pb.CompileKernelsRequest(header=connection.header(), requests=requests)

    def take(reply: pb.CompileKernelsResponse) -> None:
        for event in reply.events:
            if event.index >= len(compiles):
                raise IntegrityError(f"the server answers {event.index} of {len(compiles)} requests")
            match event.WhichOneof("event"):
                case "reply":
                    compiles[event.index].take(event.reply)
                case "failure":
                    error = from_status(event.failure)
                    # The program is wanted, or bytes are lost, or the server goes down: not the last word.
                    if not isinstance(error, NotFound | Unavailable):
                        raise error
                case _:
                    pass

    async def once(wire: Wire) -> None:
        try:
            await connection.channel.follow(wire.stream(COMPILE_KERNELS, request, deadline.left()), take)
        except Unavailable as error:
            if error.metadata.get("code") != "UNIMPLEMENTED":
                raise

    try:
        await connection.channel.attempt(once, deadline, single=True)
    except OutOfTime:
        raise
    except Unavailable:
        pass
