"""Processor time that the backend needs in the client to make programs of a graph of Dynamo."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from kcache_grpc.integrations.torch.dynamo.kernels import KernelSource
from kcache_grpc.integrations.torch.dynamo.lowering.lower import Lowering
from kcache_grpc.integrations.torch.dynamo.trace import Trace


class _Nesting(threading.local):
    """How many timed functions a thread is in."""

    depth = 0


@contextmanager
def decomposition_and_import() -> Generator[Callable[[], float]]:
    """Yields a function that returns the seconds so far, of cold starts.

    They are the processor time of the threads that compile: from the graph of Dynamo to the call of the
    client, and from its kernels to the callable. That is the decomposition table, AOTAutograd with all
    decompositions, the partition, the texts of the programs, and the plan. Imports of Python modules and
    what the client does for a kernel are not included.
    """
    seconds: list[float] = []
    nesting = _Nesting()

    def timed(function: Callable[..., Any], sign: int) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            begin, outer = time.thread_time(), nesting.depth
            nesting.depth += sign > 0
            try:
                return function(*args)
            finally:
                nesting.depth = outer
                if sign < 0 or not outer:
                    seconds.append(sign * (time.thread_time() - begin))

        return run

    signs = {(Trace, "function"): 1, (Trace, "_finish"): 1, (Lowering, "_finish"): 1}
    signs[KernelSource, "compile"] = -1
    originals = {(owner, name): getattr(owner, name) for owner, name in signs}
    for (owner, name), sign in signs.items():
        setattr(owner, name, timed(originals[owner, name], sign))
    try:
        yield lambda: sum(seconds)
    finally:
        for (owner, name), original in originals.items():
            setattr(owner, name, original)
