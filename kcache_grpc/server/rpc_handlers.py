"""Wraps the handlers of all RPCs: authentication, default deadline, errors to statuses, one log line.

One wrapper does all of it, since each costs every call. It is a generic handler and no interceptor of gRPC
(``startup.wrap_handlers`` says why).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import inspect
import itertools
import logging
import os
import time
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from kcache_grpc._proto.kcache.v1 import common_pb2
from kcache_grpc.errors import ArgumentError, KcacheError, PermissionDenied
from kcache_grpc.server.reply_flow_control import SMALL, Reader, ReplyFlowControl
from kcache_grpc.server.request_log import Request, RequestLog
from kcache_grpc.server.status import Take, checked, each, reader, to_status
from kcache_grpc.service import Caller
from kcache_grpc.service.values import ANONYMOUS, LOCAL, SHARED, Principal

if TYPE_CHECKING:
    from kcache_grpc.server.metrics import Metrics

logger = logging.getLogger("kcache.server")

#: gRPC's handlers are generic over messages, which does not matter here.
Handler = Any
#: Load balancers ask without a token.
_OPEN_PREFIX = "/grpc.health.v1.Health/"
_OUR_PREFIX = "/kcache.v1."
_MAX_HEADER_TEXT = 128


class RpcHandlers(grpc.GenericRpcHandler):
    """All handlers of a server, each wrapped on its first call."""

    def __init__(
        self,
        token: str,
        default_deadline: float,
        log: RequestLog,
        metrics: Metrics | None = None,
        replies: ReplyFlowControl | None = None,
        principals: Mapping[bytes, Principal] | None = None,
    ) -> None:
        self.replies = replies or ReplyFlowControl()
        self._token = f"Bearer {token}".encode() if token else b""
        #: By SHA-256 of their tokens.
        self._principals = principals or {}
        self._default_deadline = default_deadline
        self._log = log
        self._metrics = metrics
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._wrapped: dict[str, Handler] = {}
        #: Calls without a deadline of their own, by when they get ours: the order in which they came.
        self._open: dict[Call, float] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._request_ids = itertools.count()
        self._request_prefix = os.urandom(6).hex()

    def add(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Add handlers, which are wrapped like the others."""
        self._handlers.extend(handlers)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler:
        """The wrapped handler of a method. ``None``: gRPC answers UNIMPLEMENTED."""
        method = handler_call_details.method
        handler = self._wrapped.get(method)
        if handler is None:
            found = (each.service(handler_call_details) for each in self._handlers)
            first = next((each for each in found if each is not None), None)
            if first is None:
                return None
            handler = self._wrapped[method] = self._wrap(method, first)
        return handler

    def _wrap(self, method: str, handler: Any) -> Handler:
        if method.startswith(_OPEN_PREFIX):
            return handler
        behavior = (
            handler.stream_stream or handler.unary_stream or handler.stream_unary or handler.unary_unary
        )
        take = each if handler.request_streaming else checked
        if handler.response_streaming and not inspect.iscoroutinefunction(behavior):
            make = (
                grpc.stream_stream_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_stream_rpc_method_handler
            )
            wrapped: Any = self._streaming(method, behavior, take)
        else:
            # A stream whose handler writes its messages, and returns the last one: gRPC sends that together
            # with the status, which saves it and us a turn. On the wire it is a stream like any other.
            make = (
                grpc.stream_unary_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_unary_rpc_method_handler
            )
            wrapped = self._unary(method, behavior, take)
        return make(wrapped, reader(handler.request_deserializer), _serialized)

    def _unary(
        self, method: str, behavior: Callable[..., Awaitable[Any]], take: Take
    ) -> Callable[..., Awaitable[Any]]:
        ours = method.startswith(_OUR_PREFIX)

        async def wrapped(request: Any, context: Any) -> Any:
            call = Call(self, method, context)
            try:
                call.begin()
                response = await behavior(take(request), call if ours else context)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - becomes a status
                await call.fail(error)
            else:
                call.end("OK")
                return response

        return wrapped

    def _streaming(
        self, method: str, behavior: Callable[..., AsyncGenerator[Any]], take: Take
    ) -> Callable[..., AsyncIterator[Any]]:
        ours = method.startswith(_OUR_PREFIX)

        async def wrapped(request: Any, context: Any) -> AsyncIterator[Any]:
            call = Call(self, method, context)
            try:
                call.begin()
                async with aclosing(behavior(take(request), call if ours else context)) as responses:
                    async for response in responses:
                        yield response
            except GeneratorExit:
                call.end("CANCELLED")
                raise
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - becomes a status
                await call.fail(error)
            else:
                call.end("OK")

        return wrapped

    def authenticate(self, context: Any) -> Principal | None:
        """The principal of the call's token; ``None`` if no call needs one. Raises ``PermissionDenied``.

        Constant time for the token that all share. Those of principals are compared by their digests.
        """
        if not self._token and not self._principals:
            return None
        for name, value in context.invocation_metadata():
            if name == "authorization":
                given = value if isinstance(value, bytes) else value.encode()
                if self._token and hmac.compare_digest(given, self._token):
                    return SHARED
                if (principal := self._principals.get(_token_digest(given))) is not None:
                    return principal
        raise PermissionDenied(
            "the call carries no valid token; give the server's token with --token-file FILE, KCACHE_TOKEN "
            "or Client(token=...); other clients set metadata authorization: Bearer TOKEN"
        )

    def new_request_id(self) -> str:
        """Unique among all servers."""
        return f"{self._request_prefix}-{next(self._request_ids):x}"

    @property
    def default_deadline(self) -> float:
        """Seconds that a call without a deadline gets."""
        return self._default_deadline

    def start_deadline(self, call: Call) -> None:
        """Give a call the default deadline. One timer serves all calls, as one for each would cost more."""
        loop = asyncio.get_running_loop()
        due = self._open[call] = loop.time() + self._default_deadline
        if self._alarm is None:
            self._alarm = loop.call_at(due, self._expire)

    def end_deadline(self, call: Call) -> None:
        """The call has ended: its default deadline is void."""
        self._open.pop(call, None)

    def _expire(self) -> None:
        """Ends the calls that are due, and waits for the next one."""
        self._alarm, loop = None, asyncio.get_running_loop()
        now = loop.time()
        for call, due in list(self._open.items()):
            if due > now:
                self._alarm = loop.call_at(due, self._expire)
                return
            del self._open[call]
            call.expire()

    def write(self, request: Request) -> None:
        """One line of the request log, one observation of the metrics."""
        self._log.add(request)
        if self._metrics is not None:
            self._metrics.observe(request.method, request.outcome, request.milliseconds / 1e3)


def _token_digest(authorization: bytes) -> bytes:
    """SHA-256 of the token in ``Bearer TOKEN``; that of nothing for another form."""
    return hashlib.sha256(authorization[7:] if authorization.startswith(b"Bearer ") else b"").digest()


def _serialized(message: Any) -> bytes:
    """Serializes what is not serialized yet: hits are kept as bytes."""
    return message if type(message) is bytes else message.SerializeToString()


def _check_header(header: common_pb2.RequestHeader) -> None:
    """Raises ``ArgumentError`` for texts that are too long, or that no store keeps."""
    for name in ("client_version", "request_id", "actor", "job"):
        text = getattr(header, name)
        if len(text.encode()) > _MAX_HEADER_TEXT:
            raise ArgumentError(f"{name} is longer than {_MAX_HEADER_TEXT} bytes", field=name)
        if "\0" in text:
            raise ArgumentError(f"{name} contains a NUL character", field=name)


@lru_cache(maxsize=256)
def _reader(peer: str, actor: str, job: str) -> Reader:
    """gRPC has one name for all connections of a Unix socket: there callers stand for them."""
    named = f"{actor} {job}"
    if peer.startswith("unix:"):
        return Reader(f"unix: {named}", "unix:")
    return Reader(peer, f"{peer.rpartition(':')[0]} {named}")


class Call:
    """One RPC, as our servicers see it in place of gRPC's context."""

    __slots__ = (
        "_acquired",
        "_caller",
        "_context",
        "_handlers",
        "_late",
        "_method",
        "_principal",
        "_started",
        "_task",
    )

    def __init__(self, handlers: RpcHandlers, method: str, context: Any) -> None:
        self._handlers = handlers
        self._method = method
        self._context = context
        self._started = time.perf_counter()
        #: Of a call that has no deadline of its own.
        self._task: asyncio.Task[Any] | None = None
        self._late = False
        self._caller: Caller | None = None
        self._principal: Principal | None = None
        #: Bytes of the reply that are produced, or about to be, and not sent.
        self._acquired = 0

    def caller(self, header: common_pb2.RequestHeader) -> Caller:
        """Who calls. Raises ``ArgumentError`` beyond a header's limits; namespaces are judged later."""
        client, request, actor, job = header.client_version, header.request_id, header.actor, header.job
        if (
            len(client) + len(request) + len(actor) + len(job) > _MAX_HEADER_TEXT
            or "\0" in (said := f"{client}{request}{actor}{job}")
            or not said.isascii()
        ):
            _check_header(header)
        peer = self._context.peer()
        self._caller = Caller(
            header.namespace or "default",
            request or self._handlers.new_request_id(),
            client,
            peer,
            actor,
            job,
            self._started,
            self._principal or (LOCAL if peer.startswith("unix:") else ANONYMOUS),
        )
        return self._caller

    async def write(self, message: Any) -> None:
        """Sends one message of a stream, not the last: for handlers that are no generators.

        Returns once gRPC has passed it on. Raises ``asyncio.CancelledError`` where the client is gone.
        """
        try:
            await self._context.write(_serialized(message))
        except (grpc.aio.InternalError, grpc.aio.UsageError) as error:
            # gRPC fails the write first, and cancels this task a moment later.
            raise asyncio.CancelledError("the client is gone") from error

    async def acquire(self, size: int) -> None:
        """Wait until this number of bytes of the reply may be produced; ``release`` ends that.

        Raises ``ResourceExhausted`` when earlier replies are not read for too long.
        """
        if not self.try_acquire(size):
            await self._handlers.replies.acquire(self._reader(), size)
            self._acquired += size

    def try_acquire(self, size: int) -> bool:
        """Whether this many bytes of the reply may be produced at once, as after ``acquire``."""
        if not self._handlers.replies.try_acquire(self._reader(), size):
            return False
        self._acquired += size
        return True

    def release(self) -> None:
        """What was taken is sent."""
        if self._acquired:
            self._handlers.replies.release(self._reader(), self._acquired)
            self._acquired = 0

    def release_at_end(self, size: int = SMALL + 1) -> None:
        """gRPC sends the last message, of ``size`` bytes: what was taken is held until the call ends."""
        if size <= SMALL:
            self.release()
        if not self._acquired:
            return
        replies, reader, taken = self._handlers.replies, self._reader(), self._acquired
        self._acquired = 0

        def ended(_: object) -> None:
            replies.release(reader, taken)

        self._context.add_done_callback(ended)

    def _reader(self) -> Reader:
        caller = self._caller
        return (
            _reader(self._context.peer(), "", "")
            if caller is None
            else _reader(caller.peer, caller.actor, caller.job)
        )

    @property
    def elapsed(self) -> float:
        """Seconds since the call came in."""
        return time.perf_counter() - self._started

    def begin(self) -> None:
        """Checks the token and sets the default deadline."""
        self._principal = self._handlers.authenticate(self._context)
        if self._context.time_remaining() is not None:
            return
        self._task = asyncio.current_task()
        self._handlers.start_deadline(self)

    def expire(self) -> None:
        """The default deadline has passed."""
        self._late = True
        if self._task is not None:
            self._task.cancel()

    def end(self, outcome: str) -> None:
        """Logs the call."""
        if self._task is not None:
            self._handlers.end_deadline(self)
        self._handlers.write(Request(time.time(), self._method, outcome, self.elapsed * 1e3, self._caller))

    async def fail(self, error: BaseException) -> None:
        """Ends the call with the status that ``error`` means. Always raises."""
        if isinstance(error, grpc.aio.AbortError):
            self.end("ABORTED")
            raise error
        if isinstance(error, asyncio.CancelledError):
            if not self._late:
                self.end("CANCELLED")
                raise error
            self.end("DEADLINE_EXCEEDED")
            text = f"the call has no deadline and passed the default of {self._handlers.default_deadline:g} s"
            await self._context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, text)
        known = self.public_error(error)
        code, message, trailers = to_status(known)
        # Whoever holds the error, as asyncio and gRPC do for a while, holds no requests and replies with it.
        traceback.clear_frames(error.__traceback__)
        self.end(known.reason)
        await self._context.abort(code, message, trailers)

    def public_error(self, error: BaseException) -> KcacheError:
        """The error as callers get it: one that is not kcache's is logged, and reported by an incident id."""
        if isinstance(error, KcacheError):
            return error
        incident = os.urandom(6).hex()
        logger.error("internal error %s in %s", incident, self._method, exc_info=error)
        return KcacheError(f"internal error {incident}; the server's log has the details", incident=incident)
