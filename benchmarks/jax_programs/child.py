"""One contender, one program: ``python -m benchmarks.jax_programs.child NAME f32 CONTENDER THREADS FOLDER``.

Lines as those of ``benchmarks.models.child``. The contender ``reference`` writes the results in f64 to
FOLDER, and says how far those of ``jax.jit`` in f32 are off.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.models.child import REFERENCE, REFERENCE_FILE, first_line, serve

#: Calls before the first round, beside the one that is checked.
_WARM = 2


def main() -> None:
    name, _, contender, threads, folder = sys.argv[1:]
    os.environ["JAX_PLATFORMS"] = "cpu"
    serve(int(threads), lambda: _answer(name, contender, Path(folder)))


def _answer(name: str, contender: str, folder: Path) -> dict[str, Any]:
    """What is told before the first round, and ``call`` if the results are right."""
    try:
        return _reference(name, folder) if contender == REFERENCE else _ready(name, contender, folder)
    except Exception as error:  # noqa: BLE001 - of any library: it is the reason in the report
        absent = type(error).__name__ == "Absent"
        return {"reason": str(error) if absent else first_line(error)}


def _reference(name: str, folder: Path) -> dict[str, Any]:
    import jax
    import numpy as np

    from benchmarks.jax_programs.catalog import ALL, drawn

    arguments = drawn(name)
    function = jax.jit(ALL[name].function)
    single = [np.asarray(leaf) for leaf in jax.tree.leaves(function(*arguments))]
    with jax.enable_x64(True):
        wide = jax.tree.map(
            lambda leaf: leaf.astype(np.float64) if leaf.dtype.kind == "f" else leaf, arguments
        )
        exact = [np.asarray(leaf) for leaf in jax.tree.leaves(function(*wide))]
    if any(leaf.dtype != np.float64 for leaf in exact):
        raise TypeError("the program is not computed in f64")
    with (folder / REFERENCE_FILE).open("wb") as file:
        np.savez(file, *exact)
    return {"error": distance(name, arguments, single, exact)}


def _ready(name: str, contender: str, folder: Path) -> dict[str, Any]:
    import numpy as np

    from benchmarks.jax_programs.catalog import ALL, drawn
    from benchmarks.jax_programs.contenders import CONTENDERS

    arguments = drawn(name)
    began = time.perf_counter()
    call = CONTENDERS[contender](ALL[name], arguments)
    results = [np.asarray(leaf) for leaf in call()]
    seconds = time.perf_counter() - began
    with np.load(folder / REFERENCE_FILE) as stored:
        error = distance(name, arguments, results, list(stored.values()))
    del results
    for _ in range(_WARM):
        call()
    return {"ready": seconds, "error": error, "call": call}


def distance(name: str, arguments: Any, results: list[Any], exact: list[Any]) -> float:
    """The root mean square of differences, relative to that of the result; the largest of all results.

    Of a state, relative to its change: the weights hide what is wrong with a gradient. Infinite for other
    shapes and NaN.
    """
    import jax
    import numpy as np

    from benchmarks.jax_programs.catalog import ALL

    if [each.shape for each in results] != [each.shape for each in exact]:
        return float("inf")
    before = jax.tree.leaves(arguments[0]) if ALL[name].updates else []
    worst = 0.0
    for number, (result, other) in enumerate(zip(results, exact, strict=True)):
        change = other - before[number] if number < len(before) else other
        error = float(np.linalg.norm(result - other) / np.linalg.norm(change))
        worst = max(worst, error if error == error else float("inf"))
    return worst


if __name__ == "__main__":
    main()
