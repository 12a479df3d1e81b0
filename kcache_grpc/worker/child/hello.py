"""The first message of a worker process: the compiler's fingerprints and limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import kcache_compiler
from kcache_compiler.spec import CANONICALIZER_VERSION

#: Called by a job with the name of each stage that begins.
OnStage = Callable[[str], None]


def hello() -> dict[str, Any]:
    """The compiler's fingerprints and the limits of its frontends."""
    return {
        "toolchain": [list(pair) for pair in kcache_compiler.toolchain()],
        "gpu_toolchain": [list(pair) for pair in kcache_compiler.gpu_toolchain()],
        "canonicalizer": CANONICALIZER_VERSION,
        "limits": dataclasses.asdict(kcache_compiler.Limits()),
    }
