"""A server as a process: memory settings, logging, signals, the line that says where it listens."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import json
import logging
import os
import signal
import sys
from pathlib import Path

from kcache_grpc.server.config import ServerConfig
from kcache_grpc.server.startup import ServerHandle, start_server

logger = logging.getLogger("kcache.server")

# From malloc.h. Both or neither: otherwise glibc returns and refaults the memory of every large reply.
_M_TRIM_THRESHOLD, _TRIM_BYTES = -1, 134_217_728
_M_MMAP_THRESHOLD, _MMAP_BYTES = -3, 16_777_216
#: Seconds between two looks at the memory of the process, and bytes above the least that are given back.
_TRIM_SECONDS, _TRIM_ABOVE = 2.0, 32 << 20
#: Looks that are left out at most, after memory could not be given back.
_MOST_PAUSE = 64
#: Objects more that begin a collection of the youngest: 700 are one burst of requests.
_GC_OBJECTS = 10_000


def serve(config: ServerConfig) -> None:
    """Runs a server until SIGTERM or SIGINT, then drains it; a second signal ends it at once.

    Prints one JSON line ``{"event": "listening", "addresses": [...], "pid": ...}`` on stdout once it serves,
    and writes the same to ``config.ready_file``. Logs to stderr. Raises what ``start_server`` raises.
    """
    _keep_memory()
    _log_to_stderr(config.log_format)
    gc.disable()  # until it serves: what a start makes stays
    try:
        asyncio.run(_serve(config))
    finally:
        gc.enable()


async def _serve(config: ServerConfig) -> None:
    """Run a server until SIGTERM or SIGINT, then drain it; a second signal ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    starting = loop.create_task(start_server(config))
    stopping = loop.create_task(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        return
    handle = starting.result()
    _keep_objects()
    _announce(handle, config)
    returning = loop.create_task(_return_memory())
    await stopping
    returning.cancel()
    logger.info("draining for up to %g s", config.grace)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, os._exit, 128 + number)
    await handle.stop(config.grace)
    if config.ready_file is not None:
        config.ready_file.unlink(missing_ok=True)


def _announce(handle: ServerHandle, config: ServerConfig) -> None:
    line = json.dumps({"event": "listening", "addresses": list(handle.addresses), "pid": os.getpid()})
    if config.ready_file is not None:
        _write_whole(config.ready_file, line + "\n")
    with contextlib.suppress(BrokenPipeError):  # nobody listens: no reason to stop
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _write_whole(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


async def _return_memory() -> None:
    """Gives the system back what a burst of requests needed, once it is over: glibc keeps what is freed."""
    least = before = _resident()
    pause = wait = 1
    while True:
        await asyncio.sleep(_TRIM_SECONDS)
        resident = _resident()
        wait -= 1
        if wait <= 0 and resident > least + _TRIM_ABOVE and abs(resident - before) < _TRIM_ABOVE // 4:
            gc.collect()  # errors and their frames are cycles, with the messages that they were about
            with contextlib.suppress(OSError, AttributeError):
                await asyncio.to_thread(ctypes.CDLL(None).malloc_trim, 0)
            returned = resident - _resident()
            # What could not be given back is in use: it is looked at again, less and less often.
            pause = 1 if returned > _TRIM_ABOVE // 4 else min(2 * pause, _MOST_PAUSE)
            wait, resident = pause, resident - returned
        least, before = min(least, resident), resident


def _resident() -> int:
    """Bytes of this process in memory; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _keep_memory() -> None:
    with contextlib.suppress(OSError, AttributeError):  # another libc: slower large replies, nothing else
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)


def _keep_objects() -> None:
    """What is there now stays: the collector of cycles need not look through it again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(_GC_OBJECTS, 20, 20)


def _log_to_stderr(format: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if format == "json" else _TextFormatter())
    root = logging.getLogger("kcache")
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    root.propagate = False


class _TextFormatter(logging.Formatter):
    """Request lines carry their own time; everything else gets time, level and logger."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return record.getMessage() if record.name == "kcache.request" else super().format(record)


class _JsonFormatter(logging.Formatter):
    """One JSON object a line; request lines are JSON already."""

    def format(self, record: logging.LogRecord) -> str:
        if record.name == "kcache.request":
            return record.getMessage()
        fields = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields)
