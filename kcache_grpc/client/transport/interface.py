"""The interfaces of input and output that the client's core needs, and the methods of the service.

The core is written once, as coroutines over these protocols. The asynchronous client gives it an
implementation on ``grpc.aio``; the synchronous one gives it an implementation that blocks, so that its
coroutines never suspend and run to their end without an event loop (``blocking.run``).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from google.protobuf.message import Message

from kcache_grpc._proto.kcache.v1 import (
    estimate_pb2,
    explain_pb2,
    support_pb2,
)
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.client.address import Endpoint
from kcache_grpc.errors import Unavailable

T = TypeVar("T")
Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound="ReplyMessage")
ReplyOut = TypeVar("ReplyOut", bound="ReplyMessage", covariant=True)

Metadata = tuple[tuple[str, str], ...]


class ReplyMessage(Protocol):
    """What replies are read into: a message of protobuf, or what reads one."""

    @classmethod
    def FromString(cls: type[T], s: bytes) -> T:  # noqa: N802
        """Reads a serialized message. Raises ``DecodeError``."""
        ...


@dataclass(frozen=True)
class Method(Generic[Request, Reply]):
    """One method of a service of ``kcache.v1``: its name and what it answers with."""

    name: str
    request: type[Request]
    reply: type[Reply]
    service: str = "KernelCache"

    @functools.cached_property
    def path(self) -> str:
        """As HTTP/2 sees it."""
        return f"/kcache.v1.{self.service}/{self.name}"


GET_CAPABILITIES = Method("GetCapabilities", pb.GetCapabilitiesRequest, pb.GetCapabilitiesResponse)
NORMALIZE_GRAPH = Method("NormalizeGraph", pb.NormalizeGraphRequest, pb.NormalizeGraphResponse)
STORE_GRAPH = Method("StoreGraph", pb.StoreGraphRequest, pb.StoreGraphResponse)
LOOKUP_GRAPH = Method("LookupGraph", pb.LookupGraphRequest, pb.LookupGraphResponse)
GET_SPEC = Method("GetSpec", pb.GetSpecRequest, pb.GetSpecResponse)
COUNT_SPECS = Method("CountSpecs", pb.CountSpecsRequest, pb.CountSpecsResponse)
GET_KERNELS = Method("GetKernels", pb.GetKernelsRequest, pb.GetKernelsResponse)
UPLOAD_PROGRAM = Method("UploadProgram", pb.UploadProgramRequest, pb.UploadProgramResponse)
GET_UPLOAD = Method("GetUpload", pb.GetUploadRequest, pb.GetUploadResponse)
COMPILE_KERNEL = Method("CompileKernel", pb.CompileKernelRequest, pb.CompileKernelResponse)
COMPILE_KERNELS = Method("CompileKernels", pb.CompileKernelsRequest, pb.CompileKernelsResponse)
LIST_KERNELS = Method("ListKernels", pb.ListKernelsRequest, pb.ListKernelsResponse)
READ_ARTIFACT = Method("ReadArtifact", pb.ReadArtifactRequest, pb.ReadArtifactResponse)
EXPLAIN = Method("Explain", explain_pb2.ExplainRequest, explain_pb2.ExplainResponse)
ESTIMATE_COMPILE = Method(
    "EstimateCompile", estimate_pb2.EstimateCompileRequest, estimate_pb2.EstimateCompileResponse
)
CHECK_PROGRAM = Method("CheckProgram", support_pb2.CheckProgramRequest, support_pb2.CheckProgramResponse)
GET_STATS = Method("GetStats", pb.GetStatsRequest, pb.GetStatsResponse)


class Replies(Protocol[ReplyOut]):
    """A stream of replies. Raises errors of kcache."""

    async def next(self) -> ReplyOut | None:
        """The next reply; ``None`` at the end."""
        ...

    def cancel(self) -> None:
        """Ends the call; harmless when it has ended."""
        ...


class Wire(Protocol):
    """One connection to one server. Every method raises errors of kcache, never gRPC's."""

    async def unary(self, method: Method[Request, Reply], request: Request, timeout: float) -> Reply:
        """One request, one reply."""
        ...

    def stream(self, method: Method[Request, Reply], request: Request, timeout: float) -> Replies[Reply]:
        """One request, many replies."""
        ...

    async def upload(
        self, method: Method[Request, Reply], requests: Iterator[Request], timeout: float
    ) -> Reply:
        """Many requests, one reply."""
        ...

    def exchange(
        self, method: Method[Request, Reply], requests: Iterator[Request], timeout: float
    ) -> Replies[Reply]:
        """Many requests, many replies."""
        ...

    async def close(self) -> None:
        """Ends the connection."""
        ...


class Io(Protocol):
    """Waiting, in the way of the client's world."""

    def connect(self, endpoint: Endpoint) -> Wire:
        """A connection, made when it is first used."""
        ...

    @property
    def home(self) -> object:
        """What connections are bound to; another value means that they must be made again."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Waits."""
        ...

    async def blocking(self, work: Callable[[], T]) -> T:
        """The result of work that uses files or the processor for longer than an event loop may stand."""
        ...

    async def wait(self, future: Future[T], timeout: float) -> T:
        """The result of another caller's work. Raises ``TimeoutError``; the work goes on."""
        ...

    async def gather(self, works: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
        """All results, made side by side; the first error ends it."""
        ...

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run ``work`` concurrently with the caller. It must not raise."""
        ...


def channel_options(endpoint: Endpoint) -> list[tuple[str, int | str]]:
    """How both kinds of channel are set up.

    A server that is silent on the wire for 30 s, with heartbeats due every 5 s, is pinged and then given up.
    Retries are ours, so that they share one deadline and one breaker. A channel without a server tries to
    connect at least twice a second, so that no probe of the breaker is answered by an old failure. Calls go
    to all addresses of the target in turn, those that cannot be reached left out.
    """
    options: list[tuple[str, int | str]] = [
        ("grpc.lb_policy_name", "round_robin"),
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 2_000),
        ("grpc.max_reconnect_backoff_ms", 500),
    ]
    return [*options, ("grpc.enable_http_proxy", 0)] if endpoint.local else options


def call_metadata(endpoint: Endpoint) -> Metadata:
    """Sent with every call."""
    return (("authorization", f"Bearer {endpoint.token}"),) if endpoint.token else ()


class OutOfTime(Unavailable):
    """The caller's own timeout passed. The work at the service goes on."""


class Deadline:
    """When a call has to end; ``seconds`` is what it was given."""

    __slots__ = ("ends", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.ends = time.monotonic() + seconds

    def left(self, most: float = float("inf")) -> float:
        """Seconds that are left, at most ``most``. Raises ``OutOfTime`` when there are none."""
        left = self.ends - time.monotonic()
        if left <= 0:
            raise OutOfTime(
                f"no answer within the timeout of {self.seconds:g} s; what the service began goes on there",
                deadline="client",
            )
        return min(left, most)
