"""The thread pool that is linked with CPU kernels: ``parallel_for`` as native code.

``runtime/thread_pool.c`` is its source, docs/reference/c-abi.md its documentation. The LLVM IR next to the
source is compiled once per process and triple, at the triple's baseline, so that a server needs no C
compiler. ``scripts/generate_thread_pool.py`` writes the IR.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from kcache_compiler.llvm.emission import emit_object, optimize
from kcache_compiler.llvm.target import Target, baseline
from kcache_compiler.types import Launch

_RUNTIME = Path(__file__).with_name("runtime")


def may_use_threads(launches: list[Launch]) -> bool:
    """Whether a launch may have two slices of its grain; exact if extent and grain are static."""
    return any(_splits(launch.extent, launch.grain) for launch in launches)


def _splits(extent: str, grain: str) -> bool:
    if extent.lstrip("-").isdigit() and grain.lstrip("-").isdigit():
        return int(extent) >= 2 * max(int(grain), 1)
    return extent != "1"


def pool_object(target: Target) -> bytes:
    """The pool's object code for the triple of ``target``; equal bytes for all targets of a triple."""
    return _object(baseline(target))


@functools.cache
def pool_text_digest() -> str:
    """The pool's part of the toolchain fingerprint: a digest of the IR of all architectures."""
    texts = [path.read_bytes() for path in sorted(_RUNTIME.glob("thread_pool.*.ll"))]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


def pool_ir(target: Target) -> str:
    """The pool as LLVM IR, without a triple and a data layout."""
    return (_RUNTIME / f"thread_pool.{target.architecture}.ll").read_text()


@functools.cache
def _object(target: Target) -> bytes:
    return emit_object(optimize(pool_ir(target), target, 2), target, 2)
