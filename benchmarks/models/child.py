"""One contender and one model: ``python -m benchmarks.models.child MODEL DTYPE CONTENDER THREADS FOLDER``.

The first line on stdout says that it is ready, with the seconds until the first result and the error, or
why it is not. Each line on stdin, a number of seconds and the name of a clock, asks for a round of about that
length; the answer is the median of its calls. The contender ``reference`` writes the outputs in f64 to
FOLDER, and says how far eager mode in DTYPE is.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REFERENCE, REFERENCE_FILE = "reference", "reference.pt"
#: By name: the time that passes, and that of all processors that this process used.
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
#: Calls before the first round, beside the one that is checked.
_WARM = 2


def main() -> None:
    name, dtype, contender, threads, folder = sys.argv[1:]
    serve(int(threads), lambda: answers(name, dtype, contender, int(threads), Path(folder)))


def serve(threads: int, ready: Callable[[], dict[str, Any]]) -> None:
    """Tell what ``ready`` returns, but for ``call`` and ``inputs``, then time rounds of ``call``."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    told = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    answer = ready()
    call = answer.pop("call", None)
    _inputs = answer.pop("inputs", None)  # contenders read their memory, and may not own it
    print(json.dumps(answer), file=told)
    for line in sys.stdin if call else ():
        budget, clock = line.split()
        print(json.dumps(timed(call, float(budget), CLOCKS[clock])), file=told)


def answers(name: str, dtype: str, contender: str, threads: int, folder: Path) -> dict[str, Any]:
    """What is told before the first round, and ``call`` if the results are right."""
    # Imports come here, after the affinity is set: libraries count CPUs when they load.
    import torch

    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            return (
                _reference(name, dtype, folder)
                if contender == REFERENCE
                else _ready(name, dtype, contender, threads, folder)
            )
    except Exception as error:  # noqa: BLE001 - of any library: it is the reason in the report
        absent = type(error).__name__ == "Absent"
        return {"reason": str(error) if absent else first_line(error)}


def _reference(name: str, dtype: str, folder: Path) -> dict[str, Any]:
    import torch

    from benchmarks.models.catalog import instantiate
    from benchmarks.models.contenders import eager

    module, inputs = instantiate(name, dtype)
    call, read = eager(module, inputs, 0, folder)
    single = read(call())
    wide = tuple(each.double() if each.is_floating_point() else each for each in inputs)
    call, read = eager(module.double(), wide, 0, folder)
    exact = read(call())
    torch.save(exact, folder / REFERENCE_FILE)
    return {"error": distance(single, exact)}


def _ready(name: str, dtype: str, contender: str, threads: int, folder: Path) -> dict[str, Any]:
    import torch

    from benchmarks.models.catalog import instantiate
    from benchmarks.models.contenders import CONTENDERS, decisions

    module, inputs = instantiate(name, dtype)
    began = time.perf_counter()
    run, read = CONTENDERS[contender](module, inputs, threads, folder)

    def call() -> Any:
        with torch.no_grad():
            return run()

    error = distance(read(call()), torch.load(folder / REFERENCE_FILE))
    seconds = time.perf_counter() - began
    for _ in range(_WARM):
        call()
    return {"ready": seconds, "error": error, "decisions": decisions(), "call": call, "inputs": inputs}


def distance(results: list[Any], exact: list[Any]) -> float:
    """The root mean square of differences, relative to that of the output; the largest of all outputs.

    Infinite for other shapes and NaN. An element that is wrong shows, as f32 alone is off by 1e-7 or 1e-6,
    and bf16 by 1e-2.
    """
    if [tuple(each.shape) for each in results] != [tuple(each.shape) for each in exact]:
        return float("inf")
    pairs = zip(results, exact, strict=True)
    errors = [float((result.double() - other).norm() / other.norm()) for result, other in pairs]
    return max(error if error == error else float("inf") for error in errors)


def first_line(error: BaseException) -> str:
    """An error as one line."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}"[:200]


def timed(
    call: Callable[[], Any], budget: float, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Any]:
    """The median of calls that take about ``budget`` seconds together, three at least."""
    seconds: list[float] = []
    call()
    while sum(seconds) < budget or len(seconds) < 3:
        began = clock()
        call()
        seconds.append(clock() - began)
    return {"seconds": statistics.median(seconds), "calls": len(seconds)}


if __name__ == "__main__":
    main()
