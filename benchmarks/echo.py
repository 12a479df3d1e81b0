"""The rival of a server hit: a bare grpc.aio server that answers fixed bytes, in a process of its own.

``python -m benchmarks.echo SIZE`` prints the port. It has the shape of GetKernels (one request, a stream of
one reply) and nothing in it: no parsing, no lookup, no log. ``ONCE`` answers the same with the reply and the
status in one batch, as the server does. ``BACK`` answers with the bytes of the request.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import grpc

METHOD, ONCE, BACK = "/echo.Echo/Answer", "/echo.Echo/Once", "/echo.Echo/Back"


@contextmanager
def echo_server(size: int) -> Iterator[grpc.UnaryStreamMultiCallable]:
    """A callable on raw bytes that is answered with ``size`` bytes."""
    with echo_process(size) as (_, address), grpc.insecure_channel(address) as channel:
        yield channel.unary_stream(METHOD)


@contextmanager
def echo_process(size: int) -> Iterator[tuple[int, str]]:
    """The echo's process id and address."""
    command = [sys.executable, "-m", "benchmarks.echo", str(size)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = int(process.stdout.readline())
    try:
        yield process.pid, f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.communicate()


async def _serve(size: int) -> None:
    body = bytes(size)

    async def answer(request: bytes, context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        yield body

    async def once(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        return body

    async def back(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        return request

    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    handlers = {
        "Answer": grpc.unary_stream_rpc_method_handler(answer),
        "Once": grpc.unary_unary_rpc_method_handler(once),
        "Back": grpc.unary_unary_rpc_method_handler(back),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("echo.Echo", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
