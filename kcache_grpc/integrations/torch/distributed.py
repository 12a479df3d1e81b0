"""Longer timeouts of process groups while some ranks wait for kernels that others already have."""

from __future__ import annotations

import math
from datetime import timedelta
from importlib import import_module
from typing import Any

from kcache_grpc.errors import ArgumentError


def extend_process_group_timeout(seconds: float) -> int:
    """Extend the timeout of the next collectives of all process groups of this rank once.

    A rank whose kernels are hits runs ahead of ranks that compile, and waits for them in its next collective.
    It calls this function with the compile time that it saved. The extension ends when the first collective
    that was issued after the call finishes. PyTorch applies it to groups of the NCCL backend; groups of other
    backends keep their timeout.

    ``seconds``: extension in seconds, rounded down to whole seconds. Returns the seconds that were passed to
    ``torch.distributed``: 0 without effect where that is unavailable or not initialized, or where ``seconds``
    is below 1. Raises ``ArgumentError`` for a negative or non-finite number.

    Source: ``add_ephemeral_timeout_increase_for_distributed`` of ``torch/_inductor/codecache.py``.
    """
    if isinstance(seconds, bool) or not math.isfinite(seconds) or seconds < 0:
        raise ArgumentError(f"seconds is {seconds!r}; pass a finite number of at least 0")
    distributed: Any = import_module("torch.distributed")
    whole = int(seconds)
    if not whole or not distributed.is_available() or not distributed.is_initialized():
        return 0
    distributed.distributed_c10d._add_ephemeral_timeout_for_all_pgs(timedelta(seconds=whole))
    return whole
