"""Jobs that do what an exploited parser would: a worker runs them in place of the compiler's."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kcache_grpc.worker.frames import Frame

OnStage = Callable[[str], None]


def hello() -> dict[str, Any]:
    return {
        "toolchain": [["compiler", "none"]],
        "gpu_toolchain": [["assembler", "none"]],
        "canonicalizer": 7,
        "limits": {},
    }


def warm() -> None:
    pass


def _status(name: str) -> str:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))


def _read(path: str) -> str:
    return Path(path).read_text()


def _write(path: str) -> str:
    Path(path).write_text("x")
    return "written"


def _remove(path: str) -> str:
    Path(path).unlink()
    return "removed"


def _socket(family: str) -> str:
    with socket.socket(getattr(socket, family)) as opened:
        return str(opened)


def _connect(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as opened:
        opened.connect(path)
        return "connected"


def _x32_socket(_: str) -> str:
    """By the number that x32 programs use, which a kernel without them does not know."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(0x40000000 | 41), socket.AF_UNIX, socket.SOCK_STREAM, 0) < 0:
        raise OSError(ctypes.get_errno(), "socket")
    return "opened"


#: mov eax, 359 (socket); mov ebx, AF_UNIX; mov ecx, SOCK_STREAM; xor edx, edx; int 0x80: a call of i386.
_I386_SOCKET = bytes.fromhex("53 b867010000 bb01000000 b901000000 31d2 cd80 5b c3")


def i386_socket(_: str) -> str:
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(_I386_SOCKET)
    result = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
    if result < 0:
        raise OSError(-result, "socket")
    return "opened"


def _kill(pid: str) -> str:
    os.kill(int(pid), signal.SIGCONT)
    return "signaled"


def _environment(pid: str) -> str:
    return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")


def _trace(pid: str) -> str:
    if ctypes.CDLL(None, use_errno=True).ptrace(16, int(pid), None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    return "attached"


def _thread_kill(pid: str) -> str:
    if ctypes.CDLL(None, use_errno=True).tgkill(int(pid), int(pid), signal.SIGCONT) != 0:
        raise OSError(ctypes.get_errno(), "tgkill")
    return "signaled"


def _pidfd(pid: str) -> str:
    os.close(os.pidfd_open(int(pid)))
    return "opened"


def _limit(pid: str) -> str:
    """Sets what it is already: harmless where it is permitted."""
    before = resource.prlimit(int(pid), resource.RLIMIT_NOFILE)
    return str(resource.prlimit(int(pid), resource.RLIMIT_NOFILE, before))


def _priority(pid: str) -> str:
    os.setpriority(os.PRIO_PROCESS, int(pid), os.getpriority(os.PRIO_PROCESS, int(pid)))
    return "set"


def _user_priority(user: str) -> str:
    """Of all processes of a user. Raises ``ProcessLookupError`` where there is none."""
    os.setpriority(os.PRIO_USER, int(user), 19)
    return "set"


def _schedule(pid: str) -> str:
    os.sched_setscheduler(int(pid), os.SCHED_OTHER, os.sched_param(0))
    return "set"


def _affinity(pid: str) -> str:
    os.sched_setaffinity(int(pid), os.sched_getaffinity(int(pid)))
    return "set"


def _disk_priority(pid: str) -> str:
    """Of the process: the best effort, at the usual level."""
    number = {"x86_64": 251, "aarch64": 30}[platform.machine()]
    if ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), 1, int(pid), 2 << 13 | 4) != 0:
        raise OSError(ctypes.get_errno(), "ioprio_set")
    return "set"


def _pages(pid: str) -> str:
    """Asks where no pages are."""
    number = {"x86_64": 279, "aarch64": 239}[platform.machine()]
    if ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), int(pid), 0, None, None, None, 0):
        raise OSError(ctypes.get_errno(), "move_pages")
    return "asked"


def _own_process(_: str) -> str:
    """What a worker may do to itself, and to programs that it started."""
    for pid in ("0", str(os.getpid())):
        _limit(pid)
    for change in (_priority, _schedule, _affinity):
        change("0")
    command = [sys.executable, "-S", "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        child.kill()
        return str(child.wait())


def _worker(pid: str) -> str:
    """A fork and the worker that it is a fork of."""
    return _limit(pid or str(os.getppid()))


def _start(program: str) -> str:
    return subprocess.run([program, "-c", "print(7)"], capture_output=True, text=True, check=True).stdout


def _cat(path: str) -> str:
    """What programs that it starts may do."""
    program = f"print(open({path!r}).read())"
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PermissionError(done.stderr)
    return done.stdout


def _home(_: str) -> str:
    """Its own folder."""
    Path("made").mkdir()
    Path("made/file").write_text("mine")
    return Path("made/file").read_text()


def _state(_: str) -> str:
    limits = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1] for name in ("CORE", "FSIZE")}
    open_files, processes = (
        resource.getrlimit(each)[1] for each in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)
    )
    words = (_status("NoNewPrivs"), _status("CapEff"), _status("CapBnd"), _status("Seccomp"), limits["CORE"])
    bounded = all(value != resource.RLIM_INFINITY for value in (limits["FSIZE"], open_files, processes))
    return " ".join(map(str, (*words, bounded)))


_ACTIONS: dict[str, Callable[[str], str]] = {
    "read": _read,
    "write": _write,
    "remove": _remove,
    "socket": _socket,
    "connect": _connect,
    "x32_socket": _x32_socket,
    "i386_socket": i386_socket,
    "kill": _kill,
    "environment": _environment,
    "trace": _trace,
    "thread_kill": _thread_kill,
    "pidfd": _pidfd,
    "limit": _limit,
    "priority": _priority,
    "user_priority": _user_priority,
    "schedule": _schedule,
    "affinity": _affinity,
    "disk_priority": _disk_priority,
    "pages": _pages,
    "own_process": _own_process,
    "worker": _worker,
    "start": _start,
    "cat": _cat,
    "home": _home,
    "state": _state,
}


def act(request: Frame, on_stage: OnStage) -> Frame:
    """Does what is asked for; replies with what came of it, and whether it was permitted."""
    try:
        outcome = _ACTIONS[request.header["action"]](request.header["argument"])
    except PermissionError as error:
        return Frame({"type": "result", "permitted": False, "outcome": str(error)})
    return Frame({"type": "result", "permitted": True, "outcome": outcome})


JOBS = {"act": act, "act_in_fork": act}
FORKED = frozenset({"act_in_fork"})
