"""Jobs that misbehave on request: a worker runs them in place of the compiler's."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kcache_grpc.errors import InvalidProgram
from kcache_grpc.worker.frames import Frame

OnStage = Callable[[str], None]


def hello() -> dict[str, Any]:
    """As workers of an older version say it where a variable that workers are given says so."""
    older = os.environ.get("CUDA_HOME") == "older"
    return {
        "toolchain": [["compiler", "none"], ["pid", os.environ.get("PIN", "")]],
        **({} if older else {"gpu_toolchain": [["assembler", "none"]]}),
        "canonicalizer": 7,
        "limits": {},
    }


def warm() -> None:
    print("what the warm-up prints does not matter")


def echo(request: Frame, on_stage: OnStage) -> Frame:
    return Frame({"type": "result", "pid": os.getpid(), "nice": os.nice(0)}, request.blobs)


def look(request: Frame, on_stage: OnStage) -> Frame:
    links = Path("/proc/self/fd").iterdir()
    descriptors = [str(link.readlink()) for link in links if link.is_symlink()]
    main = getattr(sys.modules["__main__"].__spec__, "name", "")
    header = {"environment": dict(os.environ), "descriptors": descriptors, "main": main}
    return Frame({"type": "result", **header})


def stages(request: Frame, on_stage: OnStage) -> Frame:
    for name in request.header["stages"]:
        on_stage(name)
    return Frame({"type": "result"})


def noise(request: Frame, on_stage: OnStage) -> Frame:
    """What a native parser does: prints to the descriptors themselves."""
    os.write(1, b"\x00\x01 stdout noise " * 5000)
    os.write(2, b"stderr noise " * 5000)
    subprocess.run(["echo", "child noise"], check=True)
    return Frame({"type": "result"}, request.blobs)


def crash(request: Frame, on_stage: OnStage) -> Frame:
    on_stage("lower")
    os.write(2, b"LLVM ERROR: the last words\n")
    os.kill(os.getpid(), getattr(signal, request.header["signal"]))
    raise AssertionError("unreachable")


def segfault(request: Frame, on_stage: OnStage) -> Frame:
    on_stage("codegen")
    ctypes.string_at(0)
    raise AssertionError("unreachable")


def hang(request: Frame, on_stage: OnStage) -> Frame:
    on_stage("bufferize")
    subprocess.Popen(["sleep", "1000"])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1000)


def gate(request: Frame, on_stage: OnStage) -> Frame:
    """Holds the worker until the file appears that the test makes."""
    on_stage("lower")
    while not Path(request.header["gate"]).exists():
        time.sleep(0.005)
    return Frame({"type": "result"})


def eat(request: Frame, on_stage: OnStage) -> Frame:
    on_stage("codegen")
    return Frame({"type": "result"}, (bytes(1 << 40),))


def reject(request: Frame, on_stage: OnStage) -> Frame:
    raise InvalidProgram("no", line="3")


def bug(request: Frame, on_stage: OnStage) -> Frame:
    on_stage("fuse")
    raise ZeroDivisionError("a bug")


def leave(request: Frame, on_stage: OnStage) -> Frame:
    os._exit(3)


_ALL = (echo, look, stages, noise, crash, segfault, hang, gate, eat, reject, bug, leave)
JOBS = {job.__name__: job for job in _ALL}
