"""Code that took over a worker, or a process that reads a program, reaches neither key, store nor network."""

from __future__ import annotations

import asyncio
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kcache_compiler.types import ArgSpec, CompileOptions, TensorType
from kcache_grpc.worker import WorkerPool, WorkerSettings, codec, containment
from kcache_grpc.worker.frames import Frame
from kcache_grpc.worker.process import WorkerProcess


def _landlock() -> int:
    try:
        return containment.landlock_version()
    except OSError:
        return 0


pytestmark = [
    pytest.mark.issue(number=19, point=11),
    pytest.mark.skipif(
        _landlock() < 6, reason="the kernel has no Landlock, or one without rules for signals"
    ),
]
SETTINGS = WorkerSettings(
    memory_bytes=2 << 30, jobs="escaping_jobs", extra_path=(str(Path(__file__).parent),)
)
T = TypeVar("T")
#: Does something in the worker; gives whether it was permitted, and what came of it.
Act = Callable[[str, str], Coroutine[Any, Any, tuple[bool, str]]]


def in_worker(job: str, body: Callable[[Act], Coroutine[Any, Any, T]]) -> T:
    async def run() -> T:
        pool = WorkerPool(1, settings=SETTINGS)
        await pool.start()

        async def act(action: str, argument: str = "") -> tuple[bool, str]:
            frame = Frame({"type": job, "action": action, "argument": argument})
            reply = await pool.compile(frame, 60, lambda stage: None)
            return reply.header["permitted"], reply.header["outcome"]

        try:
            return await body(act)
        finally:
            await pool.close()

    return asyncio.run(run())


@pytest.mark.parametrize("job", ["act", "act_in_fork"])
def test_a_worker_reaches_nothing_of_the_server(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "signing.key"
    key.write_text("secret")
    key.chmod(0o600)
    listener = socket.socket(socket.AF_UNIX)
    address = str(tmp_path / "kcache.sock")
    listener.bind(address)
    listener.listen()

    async def body(act: Act) -> None:
        for path in (str(key), "/etc/passwd", f"/proc/{os.getpid()}/root{key}"):
            assert not (await act("read", path))[0], path
        for path in (str(tmp_path / "new"), str(key), str(tmp_path.parent / "new"), containment.__file__):
            assert not (await act("write", path))[0], path
        assert not (await act("remove", str(key)))[0]
        for family in ("AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK"):
            assert not (await act("socket", family))[0], family
        assert not (await act("connect", address))[0]
        server = str(os.getpid())
        for action in ("environment", "kill", "trace"):
            assert not (await act(action, server))[0], action

    in_worker(job, body)
    listener.close()
    assert key.read_text() == "secret"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("job", ["act", "act_in_fork"])
@pytest.mark.parametrize(
    "action",
    [
        *("kill", "thread_kill", "trace", "pidfd", "limit", "pages"),
        *("priority", "schedule", "affinity", "disk_priority"),
    ],
)
def test_a_worker_changes_no_other_process_of_its_user(job: str, action: str) -> None:
    """Each would be permitted to any process of the user that the server runs as."""

    async def body(act: Act) -> None:
        permitted, outcome = await act(action, str(os.getpid()))
        assert not permitted, outcome

    in_worker(job, body)


def test_a_worker_sets_no_priority_of_all_processes_of_a_user() -> None:
    async def body(act: Act) -> None:
        assert not (await act("user_priority", "54321"))[0]

    in_worker("act", body)


def test_a_worker_changes_itself_and_ends_what_it_started() -> None:
    async def body(act: Act) -> None:
        assert await act("own_process", "") == (True, "-9")

    in_worker("act", body)


def test_a_process_that_reads_a_program_sets_no_limit_of_its_worker() -> None:
    async def body(act: Act) -> None:
        assert (await act("limit", "0"))[0]
        permitted, outcome = await act("worker", "")
        assert not permitted, outcome

    in_worker("act_in_fork", body)


def _has_i386() -> bool:
    """Whether this kernel answers system calls of i386; without them, one ends its process."""
    program = "import sys, escaping_jobs; sys.stdout.write(escaping_jobs.i386_socket(''))"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, env=environment)
    return done.stdout == b"opened"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other machines have one architecture")
@pytest.mark.parametrize("job", ["act", "act_in_fork"])
def test_system_calls_of_other_architectures_are_denied(job: str) -> None:
    """They have other numbers than those that the filter names."""

    async def body(act: Act) -> None:
        permitted, outcome = await act("x32_socket", "")
        assert not permitted, outcome
        if _has_i386():
            permitted, outcome = await act("i386_socket", "")
            assert not permitted, outcome

    in_worker(job, body)


def test_programs_that_a_worker_starts_are_confined_too(tmp_path: Path) -> None:
    key = tmp_path / "signing.key"
    key.write_text("secret")
    program = tmp_path / "program"
    program.write_bytes(Path("/bin/sh").read_bytes())
    program.chmod(0o755)

    async def body(act: Act) -> None:
        assert await act("start", sys.executable) == (True, "7\n")  # a linker may be one
        assert not (await act("cat", str(key)))[0]
        assert not (await act("start", str(program)))[0]

    in_worker("act", body)


def test_a_process_that_reads_a_program_writes_nothing_and_starts_nothing() -> None:
    async def body(act: Act) -> None:
        assert not (await act("home", ""))[0]
        assert not (await act("start", sys.executable))[0]

    in_worker("act_in_fork", body)


def test_a_worker_has_its_own_folder_and_no_privileges() -> None:
    async def body(act: Act) -> None:
        assert await act("home", "") == (True, "mine")
        permitted, state = await act("state", "")
        assert permitted
        assert state == "1 0000000000000000 0000000000000000 2 0 True"

    in_worker("act", body)


def test_a_confined_worker_reads_links_and_keeps_libraries(tmp_path: Path) -> None:
    """A product needs a library, which is compiled, linked and kept for other workers."""
    text = b"""func.func @main(%a: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %d = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0]
    : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  return %d : tensor<256x256xf32> }"""
    libraries = tmp_path / "libraries"

    async def body() -> None:
        pool = WorkerPool(1, settings=WorkerSettings(libraries=libraries))
        await pool.start()
        try:
            job = codec.canonicalize_job(text, "stablehlo", "default", {}, 60.0)
            canonical = codec.decode_canonical(await pool.canonicalize(job, 60.0))
            spec = ArgSpec((TensorType("f32", (256, 256)),))
            job = codec.compile_job(canonical.spec_text, spec, "x86-64-v3", CompileOptions())
            kernel = codec.decode_kernel(await pool.compile(job, 240.0, lambda stage: None))
        finally:
            await pool.close()
        assert kernel.artifacts["so"].startswith(b"\x7fELF")

    asyncio.run(body())
    assert list(libraries.iterdir())


def test_a_compiler_has_one_thread_and_no_grpc_when_it_is_confined() -> None:
    """Rules hold for one thread, and a fork has one: gRPC and BLAS begin others."""

    async def body() -> None:
        worker = await WorkerProcess.start(WorkerSettings())
        try:
            assert worker.unconfined == ()
        finally:
            await worker.close()

    asyncio.run(body())
    program = (
        "import sys, kcache_grpc.worker.__main__\n"
        "from kcache_grpc.worker.child import jobs\n"
        "jobs.hello(), jobs.warm()\n"
        "print('grpc' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_what_a_machine_provides_is_found_out_as_a_worker_does() -> None:
    assert containment.missing_here() == ()


def test_what_a_machine_does_not_provide_is_named() -> None:
    """On a machine whose system calls have no filter here, all else takes effect."""
    program = (
        "from kcache_grpc.worker import containment\n"
        "containment.platform.machine = lambda: 'riscv64'\n"
        "print(containment.confine(()).missing)\n"
        "open('/etc/passwd')"
    )
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout == "('a filter of system calls',)\n"
    assert "PermissionError" in done.stderr
