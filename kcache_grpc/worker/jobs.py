"""The jobs of a worker process. Imports the compiler, so only the child imports this module.

A job module has ``hello() -> dict`` and ``JOBS``: type of a request -> function of the request and of
``on_stage``, giving the reply.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import kcache_compiler
from kcache_compiler.canonical import CANONICALIZER_VERSION
from kcache_compiler.types import Canonical
from kcache_grpc.worker import codec
from kcache_grpc.worker.frames import Frame

OnStage = Callable[[str], None]


def hello() -> dict[str, Any]:
    """The compiler's fingerprint; imports everything that a job needs, so that the first job does not."""
    return {
        "toolchain": [list(pair) for pair in kcache_compiler.toolchain()],
        "canonicalizer": CANONICALIZER_VERSION,
        "limits": dataclasses.asdict(kcache_compiler.Limits()),
    }


def canonicalize(request: Frame, on_stage: OnStage) -> Frame:
    """A ``codec.canonicalize_job``."""
    header = request.header
    on_stage("canonicalize")
    limits = dataclasses.replace(kcache_compiler.Limits(), **header["limits"])
    canonical: Canonical = kcache_compiler.canonicalize(
        request.blobs[0], header["format"], header["numerics"], limits
    )
    return codec.encode_canonical(canonical)


def compile_spec(request: Frame, on_stage: OnStage) -> Frame:
    """A ``codec.compile_job``."""
    spec_text, arg_spec, target, options = codec.decode_compile_job(request)
    return codec.encode_kernel(kcache_compiler.compile_spec(spec_text, arg_spec, target, options, on_stage))


JOBS: Mapping[str, Callable[[Frame, OnStage], Frame]] = {
    "canonicalize": canonicalize,
    "compile": compile_spec,
}
