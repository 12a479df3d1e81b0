"""The first message of a worker process, and the job of ``kcache support``: what of a program is rejected.

The message has the compiler's fingerprints and limits. Only the child imports this module.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import kcache_compiler
from kcache_compiler.spec import CANONICALIZER_VERSION
from kcache_compiler.support import check
from kcache_compiler.types import CompileOptions
from kcache_grpc.worker.child.graph_program import decode_graph
from kcache_grpc.worker.failure import clip
from kcache_grpc.worker.frames import Frame

#: Called by a job with the name of each stage that begins.
OnStage = Callable[[str], None]
__all__ = ["JOBS", "hello", "warm"]


def hello() -> dict[str, Any]:
    """The compiler's fingerprints and the limits of its frontends."""
    return {
        "toolchain": [list(pair) for pair in kcache_compiler.toolchain()],
        "gpu_toolchain": [list(pair) for pair in kcache_compiler.gpu_toolchain()],
        "canonicalizer": CANONICALIZER_VERSION,
        "limits": dataclasses.asdict(kcache_compiler.Limits()),
    }


def warm() -> None:
    """Nothing: there is one job."""


def support(request: Frame, on_stage: OnStage) -> Frame:
    """A program's format, target, numerics and bytes; replies with what ``kcache support`` prints."""
    header, body = request.header, request.blobs[0]
    limits = replace(kcache_compiler.Limits(), **header.get("limits", {}))
    program = decode_graph(body, limits) if header["format"] == "graph" else body
    options = CompileOptions(numerics=header["numerics"], opt_level=1)
    report = check(program, header["format"], header["target"], options, limits, on_stage)
    rejected = [
        {
            "op": rejection.op,
            "reason": clip(rejection.reason),
            "count": rejection.count,
            "where": list(rejection.where),
        }
        for rejection in report.rejections
    ]
    counted = report.supported if report.operations else None
    result = {"operations": report.operations or None, "supported": counted, "rejected": rejected}
    return Frame({"type": "result", "found": result | {"note": report.note}})


JOBS: Mapping[str, Callable[[Frame, OnStage], Frame]] = {"support": support}
