"""One line a request, formatted and written off the request's path."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache

from kcache_grpc.service import Caller
from kcache_grpc.service.tasks.background_task import BackgroundTask

logger = logging.getLogger("kcache.request")

_PERIOD = 0.2
_MAX_WAITING = 100_000
_SECOND = "{}.{:03d}+00:00"
#: Characters of a caller's text in a line.
_MAX_TEXT = 160
#: What needs no quotes in a text line; anything else could pass for a field or a line of ours.
_PLAIN = re.compile(r"[\w.,:;/@+\[\]-]*", re.ASCII)


@dataclass
class Request:
    """What is known of a request at its end."""

    at: float
    method: str
    outcome: str
    milliseconds: float
    caller: Caller | None

    def fields(self) -> dict[str, object]:
        """As named values."""
        caller = self.caller or _NOBODY
        return {
            "time": _time(self.at),
            "rpc": self.method.rpartition("/")[2],
            "outcome": self.outcome,
            "ms": round(self.milliseconds, 3),
            "namespace": _short(caller.namespace),
            "request_id": _short(caller.request_id),
            "client": _short(caller.client),
            "peer": _short(caller.peer),
        }


_NOBODY = Caller(namespace="")


def _time(at: float) -> str:
    thousandths = round(at * 1000)
    return _SECOND.format(_second(thousandths // 1000), thousandths % 1000)


@lru_cache(maxsize=4)
def _second(at: int) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat()[:19]


def _short(text: str) -> str:
    """Rejected requests are logged too, with whatever they said."""
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."


class RequestLog:
    """``add`` costs a microsecond; a task writes every 200 ms. One event loop."""

    def __init__(self, format: str) -> None:
        self._json = format == "json"
        self._waiting: list[Request] = []
        self._task = BackgroundTask(self._run)

    def start(self) -> None:
        """Begins to write periodically."""
        self._task.start()

    def add(self, request: Request) -> None:
        """Notes a request."""
        if logger.isEnabledFor(logging.INFO) and len(self._waiting) < _MAX_WAITING:
            self._waiting.append(request)

    async def close(self) -> None:
        """Writes what waits and stops."""
        await self._task.close()
        self._flush()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_PERIOD)
            self._flush()

    def _flush(self) -> None:
        requests, self._waiting = self._waiting, []
        if requests:  # one record for all: a record costs more than its line
            logger.info("%s", "\n".join(map(self._line, requests)))

    def _line(self, request: Request) -> str:
        return json.dumps({"event": "request", **request.fields()}) if self._json else _text(request)


def _text(request: Request) -> str:
    """``request.fields()`` but for those that are empty. Every request costs its line."""
    caller = request.caller or _NOBODY
    request_id = _quoted(_short(caller.request_id))
    return "".join(
        (
            f"time={_time(request.at)} rpc={request.method.rpartition('/')[2]} outcome={request.outcome} ",
            f"ms={round(request.milliseconds, 3)}",
            _named("namespace", _short(caller.namespace)),
            f" request_id={request_id}" if request_id else "",
            _named("client", _short(caller.client)),
            _named("peer", _short(caller.peer)),
        )
    )


@lru_cache(maxsize=1024)
def _named(name: str, text: str) -> str:
    """A field whose values come again and again; nothing if it is empty."""
    return f" {name}={_quoted(text)}" if text else ""


def _quoted(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
