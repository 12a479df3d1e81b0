"""One process of the benchmark: ``python -m benchmarks.torch_compile.child MODEL BACKEND CALLS [traced]``.

``traced``: kcache traces the graph, whatever records of it there are.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch._dynamo

from benchmarks.torch_compile.models import MODELS


def measure(name: str, backend: str, calls: int, traced: bool) -> dict[str, object]:
    """Seconds from ``torch.compile`` to the first result, and of each later call; one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    make_model, make_input = MODELS[name]
    model, argument = make_model().eval(), make_input()
    with torch.no_grad():
        reference = _first(model(argument))
        with _client_time(backend) as client_time:
            begin, cpu = time.perf_counter(), time.process_time()
            options: dict[str, Any] | None = {"warm_start": False} if traced else None
            compiled = torch.compile(model, backend=backend, options=options)
            result = _first(compiled(argument))
            first = time.perf_counter() - begin
            cpu = time.process_time() - cpu
            imported = client_time()
        seconds: list[float] = []
        for _ in range(calls):
            begin = time.perf_counter()
            compiled(argument)
            seconds.append(time.perf_counter() - begin)
    error = float((result - reference).abs().max() / reference.abs().max())
    measured = {"first": first, "cpu": cpu, "import": imported, "calls": seconds, "error": error}
    return {**measured, **_decisions(backend)}


def _first(results: object) -> torch.Tensor:
    return results[0] if isinstance(results, tuple) else results  # type: ignore[return-value]


def _client_time(backend: str) -> AbstractContextManager[Callable[[], float]]:
    if backend != "kcache":
        return nullcontext(lambda: 0.0)
    from benchmarks.torch_compile.client_time import decomposition_and_import

    return decomposition_and_import()


def _decisions(backend: str) -> dict[str, object]:
    if backend != "kcache":
        return {}
    from kcache_grpc.torch import decisions

    return {"decisions": [str(decision) for decision in decisions()]}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]), "traced" in sys.argv[4:])))
