"""Workers are forks of one process that has imported the compiler."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kcache_grpc import errors
from kcache_grpc.worker import WorkerSettings
from kcache_grpc.worker.fork_server import ForkServer
from tests.worker.test_pool import PATH, SETTINGS, compile, pool, run, until, worker_alive


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_pools_of_one_process_share_a_fork_server() -> None:
    async def body() -> set[int]:
        async with pool(compilers=2) as first, pool() as second:
            return {parent(pid) for pid in (*first.pids, *second.pids)}

    before, after = asyncio.run(body()), asyncio.run(body())
    assert before == after
    assert len(before) == 1
    assert os.getpid() not in before


def test_a_killed_fork_server_takes_its_workers_along_and_is_replaced() -> None:
    async def body() -> None:
        async with pool() as p:
            pids = p.pids
            server = parent(pids[0])
            os.kill(server, signal.SIGKILL)
            await until(lambda: not any(worker_alive(pid) for pid in pids))
            assert (await compile(p, "echo")).blobs == (b"x" * 100,)
            # The pool replaces a worker that ended when it needs another one.
            workers = [pid for pid in p.pids if worker_alive(pid)]
            assert workers
            assert server not in map(parent, workers)

    run(body())


def test_workers_have_groups_of_their_own_and_the_session_of_the_service() -> None:
    async def body() -> None:
        async with pool() as p:
            assert [os.getpgid(pid) for pid in p.pids] == p.pids
            assert {os.getsid(pid) for pid in p.pids} == {os.getsid(0)}
            assert os.getpgid(parent(p.pids[0])) == parent(p.pids[0])

    run(body())


def test_an_ended_worker_is_reaped() -> None:
    async def body() -> list[int]:
        async with pool() as p:
            return p.pids

    pids = asyncio.run(body())

    async def gone() -> None:
        await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))

    run(asyncio.wait_for(gone(), 60))
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_cancelled_start_leaves_no_process() -> None:
    settings = WorkerSettings(jobs=SETTINGS.jobs, extra_path=(PATH,), memory_bytes=SETTINGS.memory_bytes)

    async def body() -> None:
        from kcache_grpc.worker.process import WorkerProcess

        worker = await WorkerProcess.start(settings)
        server = parent(worker.pid)
        await worker.close()
        starting = asyncio.create_task(WorkerProcess.start(settings))
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        children = Path(f"/proc/{server}/task/{server}/children")
        await until(lambda: not children.read_text().split())

    run(asyncio.wait_for(body(), 60))


def test_a_fork_server_that_cannot_start_says_why() -> None:
    server = ForkServer({"PYTHONPATH": os.pathsep.join(sys.path)}, "no_such_module")
    with pytest.raises(errors.Unavailable, match="No module named 'no_such_module'"):
        server.fork({}, (0, 1, 2), 60)
    assert not server.alive


def test_a_process_ends_its_fork_servers() -> None:
    script = f"""
import asyncio
from pathlib import Path
from kcache_grpc.worker import WorkerPool, WorkerSettings
async def main():
    pool = WorkerPool(1, settings=WorkerSettings(jobs="misbehaving_jobs", extra_path=({PATH!r},)))
    await pool.start()
    print(*pool.pids, *{{Path(f"/proc/{{pid}}/stat").read_text().split()[3] for pid in pool.pids}})
    await pool.close()
asyncio.run(main())
"""
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not done.stderr
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 3

    async def gone() -> None:
        await until(lambda: not any(worker_alive(pid) for pid in pids))

    run(asyncio.wait_for(gone(), 60))
