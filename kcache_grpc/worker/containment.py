"""Confines a worker: it may compute, read the installation and write to its own directory.

``confine`` takes effect after the imports of a worker and before it parses a program. Nothing that runs in a
worker can undo it, nor can programs that it starts. It leaves out, and names, what the kernel does not have.

``python -m kcache_grpc.worker.containment`` prints, as JSON, what this machine does not provide.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import resource
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# ---- limits

#: Bytes of a file that a worker writes: an object, a shared object, what a linker prints.
_FILE_BYTES = 1 << 30
_OPEN_FILES = 256
#: Processes and threads of the user beyond those that it has when the worker starts.
_MORE_PROCESSES = 4096

# ---- prctl and capabilities

_PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _PR_SET_SECCOMP = 38, 24, 47, 22
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63

# ---- seccomp

_FILTER = struct.Struct("=HBBI")
_SECCOMP_MODE_FILTER = 2
_LOAD, _JUMP_EQUAL, _JUMP_ABOVE, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _DENY = 0x7FFF0000, 0x00050000 | 1  # SECCOMP_RET_ERRNO with EPERM
_X32 = 0x40000000
#: Machine -> its AUDIT_ARCH, and the numbers of system calls that a worker needs for nothing: sockets, other
#: processes' memory, mounts and namespaces, io_uring (which makes sockets past a filter), keys, modules.
_DENIED: dict[str, tuple[int, tuple[int, ...]]] = {
    "x86_64": (
        0xC000003E,
        (
            *(41, 42, 43, 49, 50, 53, 288),  # socket, connect, accept, bind, listen, socketpair, accept4
            *(101, 310, 311, 438, 440, 312),  # ptrace, process_vm_*, pidfd_getfd, process_madvise, kcmp
            *(
                434,
                424,
                448,
                256,
                279,
                251,
            ),  # pidfd_*, process_mrelease, migrate_pages, move_pages, ioprio_set
            *(165, 166, 155, 161, 272, 308, 428, 429, 430, 432, 442),  # mounts and namespaces
            *(425, 426, 427),  # io_uring
            *(248, 249, 250, 321, 298, 323, 303, 304),  # keys, bpf, perf, userfaultfd, file handles
            *(175, 176, 313, 246, 320, 169, 167, 168),  # modules, kexec, reboot, swap
        ),
    ),
    "aarch64": (
        0xC00000B7,
        (
            *(198, 203, 202, 200, 201, 199, 242),
            *(117, 270, 271, 438, 440, 272),
            *(434, 424, 448, 238, 239, 30),
            *(40, 39, 41, 51, 97, 268, 428, 429, 430, 432, 442),
            *(425, 426, 427),
            *(217, 218, 219, 280, 241, 282, 264, 265),
            *(105, 106, 273, 104, 294, 142, 224, 225),
        ),
    ),
}
#: Machine -> system calls that change any process of the user, and that a worker may make for its own: the
#: values that each of the first arguments may have.
_OWN: dict[str, dict[int, tuple[frozenset[int], ...]]] = {
    "x86_64": {
        141: (frozenset({os.PRIO_PROCESS}), frozenset({0})),  # setpriority
        **dict.fromkeys((142, 144, 314, 203), (frozenset({0}),)),  # sched_set{param,scheduler,attr,affinity}
    },
    "aarch64": {
        140: (frozenset({os.PRIO_PROCESS}), frozenset({0})),
        **dict.fromkeys((118, 119, 274, 122), (frozenset({0}),)),
    },
}
#: Machine -> prlimit64, whose process is 0, or that of the worker where it makes the call itself.
_PRLIMIT = {"x86_64": 302, "aarch64": 261}
#: Where the number, the architecture and the arguments of a system call stand, the lower half of each first.
_NUMBER, _ARCHITECTURE, _ARGUMENTS, _ARGUMENT_BYTES = 0, 4, 16, 8

# ---- Landlock

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_MAKE_CHAR, _MAKE_SOCK, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
#: Rights over files, the only ones of a rule for one.
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
#: Rights that Landlock knows from each of its versions on.
_RIGHTS = ((1, (1 << 13) - 1), (2, 1 << 13), (3, _TRUNCATE), (5, _IOCTL_DEV))
_BIND_TCP, _CONNECT_TCP = 1, 2
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2

#: Directories of programs and their libraries.
_SYSTEM = (
    *("/lib", "/lib32", "/lib64", "/bin", "/sbin", "/nix/store", "/gnu/store", "/usr/local/cuda"),
    *(f"/usr/{name}" for name in ("lib", "lib32", "lib64", "libexec", "bin", "sbin")),
    *("/usr/local/lib", "/usr/local/lib64", "/usr/local/bin", "/usr/local/libexec"),
    *("/usr/x86_64-linux-gnu", "/usr/aarch64-linux-gnu"),
)
_READABLE = ("/proc", "/sys/devices/system/cpu", "/etc/ld.so.cache", "/etc/ld.so.preload")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_TOOLS = ("ld.lld", "ld", "ptxas")


@dataclass(frozen=True)
class Confinement:
    """What ``confine`` did. ``missing`` names what the kernel does not provide.

    ``parsing`` is a Landlock ruleset for forks that parse programs, -1 without Landlock.
    """

    missing: tuple[str, ...]
    parsing: int = -1


def confine(writable: Iterable[str], readable: Iterable[str] = ()) -> Confinement:
    """Confines this thread, which should be the only one of the process, and all that it begins, for ever.

    It may then write to files below ``writable``, and read those, ``readable``, and the files of the
    installation.
    """
    missing: list[str] = []
    if sum(1 for _ in os.scandir("/proc/self/task")) > 1:
        missing.append("rules for threads that a library began")
    _limit_resources()
    with _naming(missing, "no_new_privs"):
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    with _naming(missing, "dropped capabilities"):
        _drop_capabilities()
    parsing = -1
    with _naming(missing, "Landlock rules for files"):
        version = landlock_version()
        if version < 4:
            missing.append("Landlock rules for TCP")
        if version < 6:
            missing.append("Landlock rules for signals")
        readable = tuple(readable)
        confined = _ruleset(version, tuple(writable), readable)
        parsing = _ruleset(version, (), readable)
        _restrict(confined)
        os.close(confined)
    with _naming(missing, "a filter of system calls"):
        _filter_system_calls()
    return Confinement(tuple(missing), parsing)


def confine_fork(parsing: int, cpu_seconds: float) -> None:
    """Confines a fork that parses a program: it writes nowhere and starts no program.

    The fork ends a little after ``cpu_seconds`` of processor time; 0: no limit.
    """
    if cpu_seconds:
        soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
        most = int(cpu_seconds) + 5
        if hard == resource.RLIM_INFINITY or most < hard:
            resource.setrlimit(resource.RLIMIT_CPU, (most if soft < 0 else min(soft, most), most))
    if parsing >= 0:
        _restrict(parsing)
    with contextlib.suppress(OSError):  # named by ``confine``
        _filter_limits()


def missing_here() -> tuple[str, ...]:
    """What this machine does not provide, as a process finds out that confines itself."""
    command = [sys.executable, "-m", "kcache_grpc.worker.containment"]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # as a worker's
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
    return tuple(json.loads(done.stdout))


def landlock_version() -> int:
    """The version of Landlock that the kernel has. Raises ``OSError`` where it has none."""
    return _syscall(_CREATE_RULESET, None, 0, 1)


def _limit_resources() -> None:
    for kind, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, _FILE_BYTES),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_NPROC, _processes() + _MORE_PROCESSES),
    ):
        hard = resource.getrlimit(kind)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, limit))


def _processes() -> int:
    """Threads of this user that can be seen."""
    count, user = 0, os.getuid()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if entry.stat().st_uid == user:
                    count += sum(1 for _ in os.scandir(f"{entry.path}/task"))
    return count


def _drop_capabilities() -> None:
    for capability in range(_LAST_CAPABILITY + 1):
        with contextlib.suppress(OSError):  # there are fewer, or this user may not: it has none to give then
            _prctl(_PR_CAPBSET_DROP, capability)
    with contextlib.suppress(OSError):
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    if _libc().capset(header, bytes(24)) != 0:
        raise _error()


def _filter_system_calls() -> None:
    machine = platform.machine()
    if machine not in _DENIED:
        raise OSError(f"no filter is known for {machine}")
    arch, denied = _DENIED[machine]
    own = {**_OWN[machine], _PRLIMIT[machine]: (frozenset({0, os.getpid()}),)}
    _add_filter(arch, denied, own)


def _filter_limits() -> None:
    """A fork sets no limits of the worker that it is a fork of."""
    machine = platform.machine()
    if machine in _DENIED:
        _add_filter(_DENIED[machine][0], (), {_PRLIMIT[machine]: (frozenset({0}),)})


def _add_filter(arch: int, denied: Sequence[int], own: Mapping[int, Sequence[frozenset[int]]]) -> None:
    """Denies system calls of other architectures, ``denied``, and those of ``own`` with other arguments.

    Calls of another architecture (int 0x80) and of x32 have other numbers.
    """
    # A jump counts the instructions that it skips; -1 stands for the way to the last one, which denies.
    program = [(_LOAD, 0, 0, _ARCHITECTURE), (_JUMP_EQUAL, 0, -1, arch)]
    program += [(_LOAD, 0, 0, _NUMBER), (_JUMP_ABOVE, -1, 0, _X32 - 1)]
    program += [(_JUMP_EQUAL, -1, 0, number) for number in denied]
    for number, arguments in own.items():
        checks: list[tuple[int, int, int, int]] = []
        for index, allowed in enumerate(arguments):
            checks.append((_LOAD, 0, 0, _ARGUMENTS + index * _ARGUMENT_BYTES))
            values = sorted(allowed)
            for at, value in enumerate(values, 1):
                rest = len(values) - at
                checks.append((_JUMP_EQUAL, rest, 0 if rest else -1, value))
        program += [(_JUMP_EQUAL, 0, len(checks) + 1, number), *checks, (_RETURN, 0, 0, _ALLOW)]
    program += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _DENY)]
    last = len(program) - 1
    packed = [
        _FILTER.pack(code, *(last - at - 1 if skip < 0 else skip for skip in (then, otherwise)), value)
        for at, (code, then, otherwise, value) in enumerate(program)
    ]
    code = ctypes.create_string_buffer(b"".join(packed))
    described = ctypes.create_string_buffer(struct.pack("@HP", len(packed), ctypes.addressof(code)))
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(described))


def _ruleset(version: int, writable: Sequence[str], readable: Sequence[str]) -> int:
    """A ruleset: all is denied but reading the installation, and everything below ``writable``."""
    files = sum(rights for since, rights in _RIGHTS if version >= since)
    network = _BIND_TCP | _CONNECT_TCP if version >= 4 else 0
    scoped = _ABSTRACT_SOCKETS | _SIGNALS if version >= 6 else 0
    attributes = struct.pack("=QQQ", files, network, scoped)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _syscall(_CREATE_RULESET, attributes, size, 0)
    reading = _READ_FILE | _READ_DIR
    execute = _EXECUTE if writable else 0
    for path in dict.fromkeys((*_SYSTEM, *_installation(), *_tools())):
        _allow(ruleset, path, reading | execute, files)
    for path in (*_READABLE, *readable):
        _allow(ruleset, path, reading, files)
    for path in _import_directories():
        _allow(ruleset, path, _READ_DIR, files)
    for path in _DEVICES:
        _allow(ruleset, path, _READ_FILE | _WRITE_FILE, files)
    for path in writable:
        _allow(ruleset, path, files & ~(_EXECUTE | _MAKE_CHAR | _MAKE_BLOCK | _MAKE_SOCK | _IOCTL_DEV), files)
    return ruleset


def _allow(ruleset: int, path: str, rights: int, handled: int) -> None:
    """Allow ``rights`` below ``path``, if it exists."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not Path(path).is_dir():
            rights &= _OF_FILES
        _syscall(_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights & handled, descriptor), 0)
    finally:
        os.close(descriptor)


def _restrict(ruleset: int) -> None:
    _syscall(_RESTRICT_SELF, ruleset, 0)


def _installation() -> list[str]:
    """Where the interpreter, its packages and what is loaded of them lie."""
    paths: dict[str, None] = {}
    for prefix in {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}:
        for name in ("bin", "lib", "lib64", "pyvenv.cfg"):
            paths[str(Path(prefix) / name)] = None
    for name in ("stdlib", "platstdlib", "purelib", "platlib"):
        paths[sysconfig.get_path(name)] = None
    for path in sys.path:  # of environments that lie over another one
        if Path(path).name in ("site-packages", "dist-packages"):
            paths[path] = None
    for name, module in list(sys.modules.items()):
        if "." not in name:
            for location in getattr(module, "__path__", ()):
                paths[os.path.realpath(location)] = None  # such as one that is linked into site-packages
            if not hasattr(module, "__path__") and (file := getattr(module, "__file__", None)):
                paths[os.path.realpath(file)] = None
    return [path for path in paths if path != "/"]


def _import_directories() -> list[str]:
    return [path for path in sys.path if path]


def _tools() -> list[str]:
    """Where the linker and the assembler lie that are on PATH, with their libraries."""
    directories = [home] if (home := os.environ.get("CUDA_HOME")) else []
    for name in _TOOLS:
        if path := shutil.which(name):
            directory = Path(path).resolve().parent
            directories += [
                str(directory),
                *(str(directory.parent / each) for each in ("lib", "lib64", "nvvm")),
            ]
    return directories


@contextlib.contextmanager
def _naming(missing: list[str], name: str) -> Generator[None]:
    """Names what raises ``OSError``."""
    try:
        yield
    except OSError:
        missing.append(name)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, *arguments: int) -> None:
    words = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    if _libc().prctl(option, *words) != 0:
        raise _error()


def _syscall(number: int, *arguments: int | bytes | None) -> int:
    values = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = _libc().syscall(ctypes.c_long(number), *values)
    if result < 0:
        raise _error()
    return result


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(confine(()).missing))
