"""The jobs of a worker process. Imports the compiler, so only the child imports this module.

A job module has ``hello() -> dict``, ``warm() -> None`` and ``JOBS``: type of a request -> function of the
request and of ``on_stage``, giving the reply.

Processor time and memory of a job are limited while it parses a program, in proportion to the program: a
reader that needs more was given something that expands, such as aliases of aliases that a message prints out.
What comes after has the limits of the worker.
"""

from __future__ import annotations

import dataclasses
import math
import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import kcache_compiler
from kcache_compiler.difference import nearest_specs
from kcache_compiler.types import Canonical, CompileOptions
from kcache_grpc.worker import codec
from kcache_grpc.worker.child.graph_program import decode_graph
from kcache_grpc.worker.child.support import OnStage, hello
from kcache_grpc.worker.child.support import support as check_support
from kcache_grpc.worker.child.warm_up import compile_typical_program
from kcache_grpc.worker.frames import Frame
from kcache_grpc.worker.libraries import shared_libraries

#: Loads the parser, the pipelines and LLVM's back end.
_SMALL = b"""
module { func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %r = stablehlo.add %a, %a : tensor<4xf32>
  return %r : tensor<4xf32> } }
"""
__all__ = ["FORKED", "JOBS", "LINKING", "hello", "warm"]
#: These parse what clients send, with parsers that do not survive all of it: each has its own process.
FORKED = frozenset({"canonicalize", "support"})
#: Of these, those that compile too.
LINKING = frozenset({"support"})
#: The stage whose limits are those of this module.
PARSE_STAGE = "read"
#: Processor seconds and bytes of memory for a program of no size, and for each byte of one.
_SECONDS, _SECONDS_PER_BYTE = 2, 20 / (1 << 20)
_BYTES, _BYTES_PER_BYTE = 1 << 30, 64


def warm() -> None:
    """Makes the first job as fast as the others. Runs after the hello: no start waits for it."""
    canonical = kcache_compiler.canonicalize(_SMALL, "stablehlo")
    kcache_compiler.compile_spec(
        canonical.spec_text, canonical.arg_spec, "x86-64-v2", CompileOptions(), lambda _: None
    )


def canonicalize(request: Frame, on_stage: OnStage) -> Frame:
    """A ``codec.canonicalize_job``."""
    header = request.header
    on_stage = limited(on_stage, len(request.blobs[0]), header["seconds"])
    on_stage("canonicalize")
    limits = dataclasses.replace(kcache_compiler.Limits(), **header["limits"])
    body, format = request.blobs[0], header["format"]
    program = decode_graph(body, limits) if format == "graph" else body
    canonical: Canonical = kcache_compiler.canonicalize(program, format, header["numerics"], limits, on_stage)
    return codec.encode_canonical(canonical)


def compile_spec(request: Frame, on_stage: OnStage) -> Frame:
    """A ``codec.compile_job``."""
    spec_text, arg_spec, target, options = codec.decode_compile_job(request)
    kernel = kcache_compiler.compile_spec(spec_text, arg_spec, target, options, on_stage, shared_libraries())
    return codec.encode_kernel(kernel)


def precompile(request: Frame, on_stage: OnStage) -> Frame:
    """A ``codec.precompile_job``. Compiles nothing where workers share no libraries."""
    on_stage("precompile")
    libraries = shared_libraries()
    target = request.header["target"]
    compiled = 0 if libraries is None else kcache_compiler.precompile_libraries(target, libraries)
    return Frame({"type": "result", "compiled": compiled})


def warm_up(request: Frame, on_stage: OnStage) -> Frame:
    """A ``codec.warm_up_job``."""
    on_stage("warm_up")
    compile_typical_program(request.header["target"], shared_libraries())
    return Frame({"type": "result"})


def compare(request: Frame, on_stage: OnStage) -> Frame:
    """A ``codec.compare_job``."""
    on_stage("compare")
    yours, *candidates = (blob.decode() for blob in request.blobs)
    return codec.encode_neighbors(nearest_specs(yours, candidates, request.header["most"]))


def support(request: Frame, on_stage: OnStage) -> Frame:
    """A ``codec.support_job``."""
    return check_support(request, limited(on_stage, len(request.blobs[0]), request.header["seconds"]))


JOBS: Mapping[str, Callable[[Frame, OnStage], Frame]] = {
    "canonicalize": canonicalize,
    "compile": compile_spec,
    "compare": compare,
    "precompile": precompile,
    "warm_up": warm_up,
    "support": support,
}


def limited(on_stage: OnStage, size: int, seconds: float) -> OnStage:
    """``on_stage``, with limits for a program of ``size`` bytes in ``PARSE_STAGE`` and ``seconds`` in all.

    Seconds are of the processor; passing them ends the process with SIGXCPU. ``RLIMIT_AS`` limits memory.
    """
    started = time.process_time()
    memory = resource.getrlimit(resource.RLIMIT_AS)

    def begin(stage: str) -> None:
        on_stage(stage)
        if stage == PARSE_STAGE:
            _limit_seconds(started, min(seconds, parse_seconds(size)))
            _limit_memory(_address_space() + _BYTES + _BYTES_PER_BYTE * size, memory)
        else:
            _limit_seconds(started, seconds)
            resource.setrlimit(resource.RLIMIT_AS, memory)

    return begin


def parse_seconds(size: int) -> float:
    """Processor seconds for parsing a program of ``size`` bytes."""
    return _SECONDS + _SECONDS_PER_BYTE * size


def _limit_seconds(started: float, seconds: float) -> None:
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    soft = math.ceil(started + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (_least(soft, hard), hard))


def _limit_memory(size: int, worker: tuple[int, int]) -> None:
    soft, hard = worker
    resource.setrlimit(resource.RLIMIT_AS, (_least(size, soft), hard))


def _least(limit: int, other: int) -> int:
    return limit if other == resource.RLIM_INFINITY else min(limit, other)


def _address_space() -> int:
    """Bytes of this process's address space."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
