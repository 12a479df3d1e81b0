"""Processor time that the backend needs in the client to make programs of a graph of Dynamo."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from kcache_grpc.integrations.torch.dynamo.kernels import KernelSource
from kcache_grpc.integrations.torch.dynamo.trace import Trace


@contextmanager
def decomposition_and_import() -> Generator[Callable[[], float]]:
    """Yields a function that returns the seconds so far, of cold starts.

    They are the processor time of the thread that compiles: from the graph of Dynamo to the call of the
    client, and from its kernels to the callable. That is the decomposition table, AOTAutograd with all
    decompositions, the partition, the texts of the programs, and the plan. Imports of Python modules and
    what the client does for a kernel are not included.
    """
    seconds = 0.0

    def timed(function: Callable[..., Any], sign: int) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            nonlocal seconds
            begin = time.thread_time()
            try:
                return function(*args)
            finally:
                seconds += sign * (time.thread_time() - begin)

        return run

    trace, compile_programs = Trace.function, KernelSource.compile
    Trace.function = timed(trace, 1)  # type: ignore[method-assign]
    KernelSource.compile = timed(compile_programs, -1)  # type: ignore[method-assign]
    try:
        yield lambda: seconds
    finally:
        Trace.function, KernelSource.compile = trace, compile_programs  # type: ignore[method-assign]
