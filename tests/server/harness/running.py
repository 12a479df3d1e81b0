"""A real server on port 0, in this process or in one of its own, and a blocking client for it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2_grpc
from kcache_grpc.server import ServerConfig, start_server
from tests.fresh import fresh_store


@dataclass
class Running:
    """A server in a thread of this process, and a channel to it."""

    config: ServerConfig
    addresses: tuple[str, ...]
    stub: Any
    channel: grpc.Channel
    stop: Callable[[float], None]
    #: Seals the audit log now.
    seal: Callable[[], None]
    loop: asyncio.AbstractEventLoop

    @property
    def address(self) -> str:
        return self.addresses[0]


@contextmanager
def running(config: ServerConfig) -> Iterator[Running]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="test-server")
    thread.start()

    def call(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(240)

    try:
        handle = call(start_server(config))
        try:
            with grpc.insecure_channel(handle.addresses[0]) as channel:
                stub = kernel_cache_pb2_grpc.KernelCacheStub(channel)
                yield Running(
                    config,
                    handle.addresses,
                    stub,
                    channel,
                    lambda grace: call(handle.stop(grace)),
                    lambda: call(handle.service.seal()),
                    loop,
                )
        finally:
            call(handle.stop(0))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def config_in(folder: Path, **changes: Any) -> ServerConfig:
    if "db" not in changes:
        fresh_store(folder / "kcache.sqlite")
    config = ServerConfig(
        db=f"sqlite:///{folder}/kcache.sqlite",
        state_dir=folder / "state",
        listen=("127.0.0.1:0",),
        workers=1,
        lease_ttl=2.0,
    )
    return replace(config, **changes)


@contextmanager
def process(folder: Path, **settings: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``serve`` in a process of its own, its first address, and its log in ``folder``."""
    if "KCACHE_DB" not in settings:
        fresh_store(folder / "kcache.sqlite")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("KCACHE_")},
        "KCACHE_DB": f"sqlite:///{folder}/kcache.sqlite",
        "KCACHE_STATE_DIR": str(folder / "state"),
        "KCACHE_LISTEN": "127.0.0.1:0",
        "KCACHE_SOCKET": str(folder / f"run-{os.urandom(3).hex()}" / "s"),
        "KCACHE_WORKERS": "1",
        "KCACHE_LEASE_TTL": "2",
        **settings,
    }
    with (folder / "server.log").open("a") as log:
        command = [sys.executable, str(Path(__file__).with_name("serve_for_test.py"))]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
    assert child.stdout is not None
    try:
        line = child.stdout.readline()
        assert line, (folder / "server.log").read_text()
        yield child, json.loads(line)["addresses"][0]
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
