"""Runs kernels in this process: loading, argument checks, memory, threads."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kcache_grpc.runtime.kernel import Kernel

__all__ = ["Kernel"]


def __getattr__(name: str) -> Any:
    """``Kernel``, imported when it is first used: packs of the replay kit have only ``runtime.gpu``."""
    if name != "Kernel":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = import_module("kcache_grpc.runtime.kernel").Kernel
    return value
