"""Forks, interpreters and imports: the client in processes of its own."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.conftest import PROGRAM
from tests.client.fake import FakeServer


def python(script: str, *arguments: str, timeout: float = 240) -> str:
    """What a script printed; it must end well and warn of nothing."""
    command = [sys.executable, "-W", "error", "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout


FORK = """
import os, sys, threading, warnings
warnings.filterwarnings("ignore", category=DeprecationWarning)  # 3.12: fork in a process with threads
import kcache_grpc as kcache
address, cache, program = sys.argv[1:]
client = kcache.Client(address, cache_dir=cache, strict=True, timeout=120)
assert client.compile(program).origin == "compiled"
# Locks that another thread holds at the fork must not stop the child.
core = client._core
locks = [core._counters._lock, core._table._by_program._lock, core._running_calls._lock]
for lock in locks:
    lock.acquire()
child = os.fork()
if child == 0:
    status = 1
    try:
        assert client.compile(program).origin == "memory"
        assert client.compile(program + "\\n").origin == "compiled"
        assert client.count() == 2
        status = 0
    finally:
        os._exit(status)
for lock in locks:
    lock.release()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert client.compile(program + "\\n\\n").origin == "compiled"
print(client.count())
"""


def test_a_client_lives_on_in_a_fork(fake: FakeServer, cache_dir: Path) -> None:
    assert python(FORK, fake.address, str(cache_dir), PROGRAM).strip() == "3"


LIGHT = """
import sys
import kcache_grpc
heavy = {"grpc", "numpy", "google.protobuf", "sqlalchemy", "torch_mlir", "llvmlite"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
kcache_grpc.Client, kcache_grpc.aio.Client
late = {"sqlalchemy", "torch_mlir", "llvmlite", "alembic", "jax", "torch", "kcache_grpc.server"}
assert not late & set(sys.modules), late & set(sys.modules)
missing = [name for name in kcache_grpc.__all__ if not hasattr(kcache_grpc, name)]
assert not missing, missing
assert set(kcache_grpc.__all__) <= set(dir(kcache_grpc))
assert kcache_grpc.__version__
try:
    kcache_grpc.Klient
except AttributeError as error:
    print(error)
"""


def test_imports_are_light() -> None:
    assert "Klient" in python(LIGHT)


#: No ``__main__`` guard: what starts a process must not run this file again.
EMBEDDED = """
import numpy as np
import kcache_grpc as kcache

client = kcache.Client(cache_dir={cache!r})
kernel = client.compile({program!r})
x = np.arange(4, dtype=np.float32)
print(kernel.origin, kernel(x)[0].tolist(), client.compile({program!r}).origin)
"""
DOUBLE = (
    "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
    "  %0 = stablehlo.add %a, %a : tensor<4xf32>\n  return %0 : tensor<4xf32>\n}\n"
)


@pytest.mark.timeout(900)
def test_a_script_without_main_guard_embeds_the_service(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(EMBEDDED.format(cache=str(tmp_path / "cache"), program=DOUBLE))

    def play() -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", str(script)], capture_output=True, text=True, timeout=800
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout.strip()

    assert play() == "compiled [0.0, 2.0, 4.0, 6.0] memory"
    assert play() == "disk [0.0, 2.0, 4.0, 6.0] memory"
    # Without its own tier the client gets it from the service's database.
    for folder in ("kernels", "blobs"):
        (tmp_path / "cache" / folder).rename(tmp_path / folder)
    assert play() == "remote [0.0, 2.0, 4.0, 6.0] memory"


EMBEDDED_LIFE = """
import asyncio, os, signal, sys, threading, warnings
warnings.filterwarnings("ignore", category=DeprecationWarning)  # 3.12: fork in a process with threads
import kcache_grpc as kcache
from kcache_grpc import embedded
cache, program = sys.argv[1:]
first, second = kcache.Client(cache_dir=cache), kcache.Client(cache_dir=cache)
kernels = []
def ask(client): kernels.append(client.compile(program))
threads = [threading.Thread(target=ask, args=(client,)) for client in (first, second) * 4]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(kernels) == 8 and {kernel.key for kernel in kernels} == {1}
[service] = embedded._running.processes.values()
assert service.service.socket.exists() and service.private.stat().st_mode & 0o777 == 0o700
assert first.stats().compiles == 1
assert len(kernels[0].artifact("llvm")) > 0

async def use():
    async with kcache.aio.Client(cache_dir=cache) as client:
        return (await client.compile(program)).origin, await client.count(), await client.store(program)
print(*asyncio.run(use()))

# A child uses the service of its parent, and does not end it.
child = os.fork()
if child == 0:
    status = 1
    try:
        assert first.compile(program).origin == "memory"
        assert first.compile(program.replace("add", "multiply")).origin == "compiled"
        assert second.count() == 2
        status = 0
    finally:
        os._exit(status)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert first.count() == 2

# A service that was killed is started again.
os.kill(service.pid, signal.SIGKILL)
assert first.count() == 2
[again] = embedded._running.processes.values()
assert again.pid != service.pid
print(again.private, again.pid)
"""


@pytest.mark.timeout(900)
def test_one_embedded_service_a_process(tmp_path: Path) -> None:
    output = python(EMBEDDED_LIFE, str(tmp_path / "cache"), DOUBLE, timeout=800).split()
    assert output[:3] == ["disk", "1", "1"]
    assert not Path(output[3]).exists()
    assert _ends(int(output[4]))
    assert (tmp_path / "cache" / "embedded" / "signing.key").stat().st_mode & 0o777 == 0o600


def _ends(pid: int) -> bool:
    """Whether a process that is told to end does so, on a machine that may be busy."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watched], [], [], 60)[0])
    finally:
        os.close(watched)
