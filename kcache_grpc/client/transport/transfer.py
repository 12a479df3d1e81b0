"""Programs up, and their bindings; artifacts down: in pieces, and resumed where a connection breaks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from kcache_grpc._proto.kcache.v1 import common_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.client.transport.connection import Connection
from kcache_grpc.client.transport.interface import (
    GET_UPLOAD,
    READ_ARTIFACT,
    STORE_GRAPH,
    UPLOAD_PROGRAM,
    Deadline,
    Wire,
)
from kcache_grpc.client.trust.verification import KernelRequest, check_bytes
from kcache_grpc.errors import ArgumentError, IntegrityError, NotFound, ResourceExhausted, Unavailable
from kcache_grpc.model.evidence import witness
from kcache_grpc.model.manifest import Binding
from kcache_grpc.model.program import Program
from kcache_grpc.model.wire import format_to_proto, numerics_to_proto

T = TypeVar("T")

#: Bytes of a program up to which it is sent along without asking whether the server knows it.
_SMALL_PROGRAM = 64 << 10
_CHUNK = 1 << 20


async def with_program(
    connection: Connection,
    program: Program,
    deadline: Deadline,
    call: Callable[[common_pb2.GraphSource], Awaitable[T]],
    *,
    known: bool | None = None,
) -> T:
    """Calls with the program's digest where the server may know it, else with its bytes.

    ``known``: whether it does; ``None``: nobody asked it, so it is tried where the program is not small.
    Bytes that are too large for one message are uploaded first. Raises ``ResourceExhausted`` when they are
    above what the server takes at all.
    """
    state = await connection.state(deadline)
    size = len(program.body)
    if state.max_program_bytes and size > state.max_program_bytes:
        raise ResourceExhausted(
            f"the program has {size} bytes, above the server's limit of {state.max_program_bytes}",
            limit="max_program_bytes",
        )
    by_digest = common_pb2.GraphSource(program_digest=program.digest)
    if size > _SMALL_PROGRAM if known is None else known:
        try:
            return await call(by_digest)
        except NotFound:
            pass
    if size <= state.max_inline_program_bytes:
        body = common_pb2.Program(format=format_to_proto(program.format), body=program.body)
        return await call(common_pb2.GraphSource(program=body))
    await upload(connection, program, deadline)
    return await call(by_digest)


async def upload(connection: Connection, program: Program, deadline: Deadline) -> None:
    """Brings a program to the server, from where an earlier attempt of anyone ended."""
    header = connection.header()

    async def once(wire: Wire) -> None:
        received = await _held(wire, header, program, deadline)
        if received is None:
            return
        try:
            reply = await wire.upload(UPLOAD_PROGRAM, _chunks(header, program, received), deadline.left())
        except (ArgumentError, IntegrityError):
            if received == 0:
                raise
            # What was there was begun by somebody who said or sent something else under this digest.
            reply = await wire.upload(UPLOAD_PROGRAM, _chunks(header, program, 0), deadline.left())
        if not reply.complete:
            raise Unavailable(f"the server holds {reply.committed_size_bytes} bytes of the uploaded program")
        if reply.program_digest != program.digest:
            raise IntegrityError("the server computed another digest of the uploaded program")

    await connection.channel.attempt(once, deadline)


async def _held(
    wire: Wire, header: common_pb2.RequestHeader, program: Program, deadline: Deadline
) -> int | None:
    """Bytes that the server has; ``None`` for all of them."""
    request = pb.GetUploadRequest(header=header, program_digest=program.digest)
    try:
        reply = await wire.unary(GET_UPLOAD, request, deadline.left())
    except NotFound:
        return 0
    if reply.complete:
        return None
    return reply.committed_size_bytes if reply.committed_size_bytes <= len(program.body) else 0


def _chunks(
    header: common_pb2.RequestHeader, program: Program, offset: int
) -> Iterator[pb.UploadProgramRequest]:
    body = memoryview(program.body)
    yield pb.UploadProgramRequest(
        header=header,
        format=format_to_proto(program.format),
        size_bytes=len(body),
        write_offset=offset,
        program_digest=program.digest,
        data=bytes(body[offset : offset + _CHUNK]),
    )
    for start in range(offset + _CHUNK, len(body), _CHUNK):
        yield pb.UploadProgramRequest(data=bytes(body[start : start + _CHUNK]))


async def download(
    connection: Connection, sha256: bytes, size: int, deadline: Deadline, begun: bytes = b""
) -> bytes:
    """The bytes of an artifact or constant, verified; ``begun`` is what came of them before.

    Raises ``NotFound`` when the server has them no more, ``IntegrityError`` when they are other bytes.
    """
    content = bytearray(begun)
    header = connection.header()

    def take(reply: pb.ReadArtifactResponse) -> None:
        if len(content) + len(reply.data) > size:
            raise IntegrityError(f"the server sends more than the {size} bytes of artifact {sha256.hex()}")
        content.extend(reply.data)

    async def once(wire: Wire) -> None:
        if len(content) == size:
            return
        request = pb.ReadArtifactRequest(header=header, sha256=sha256, read_offset=len(content))
        await connection.channel.follow(wire.stream(READ_ARTIFACT, request, deadline.left()), take)
        if len(content) < size:
            raise Unavailable(
                f"the stream of artifact {sha256.hex()} ended at {len(content)} of {size} bytes"
            )

    await connection.channel.attempt(once, deadline)
    return check_bytes(bytes(content), sha256, size, f"artifact {sha256.hex()}")


async def bind(connection: Connection, program: Program, numerics: str, deadline: Deadline) -> Binding:
    """The verified binding of a program, which is stored unless it is known."""
    header = connection.header()

    async def call(source: common_pb2.GraphSource) -> pb.StoreGraphResponse:
        request = pb.StoreGraphRequest(header=header, graph=source, numerics=numerics_to_proto(numerics))
        return await connection.channel.unary(STORE_GRAPH, request, deadline, float("inf"))

    async def checked() -> Binding:
        reply = await with_program(connection, program, deadline, call)
        binding = (await connection.verifier(deadline)).binding(reply.binding, program, numerics)
        if binding.key != reply.key or binding.spec_digest != reply.spec_digest:
            raise IntegrityError(f"the server answered key {reply.key}, and signed key {binding.key}")
        return binding

    return await connection.renewed(checked, deadline)


async def with_witnesses(connection: Connection, request: KernelRequest, deadline: Deadline) -> KernelRequest:
    """The request with what its evidence shows; programs that the service does not know are stored there."""
    if not request.evidence:
        return request
    numerics = request.options.numerics
    bindings = [await bind(connection, program, numerics, deadline) for program in request.evidence]
    return replace(request, witnesses=tuple(map(witness, bindings)))
