"""Products whose weights are bound, packed once, beside those that pack them at each call.

``python -m benchmarks.bound_arguments [--rounds N]``, on one thread. Rows of ``x`` times weights of GPT-2,
row-major (``k x n``) and transposed (``n x k``), f32. Seconds are those that the thread computed, so that
other processes lengthen them less.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import kcache_grpc as kcache
from benchmarks.environment import clear_and_restart
from benchmarks.rounds import Contender, interleave, ratio

ROWS, DEPTH, COLUMNS = (32, 128, 512), 768, (2304, 3072)
CALLS = 5


def product(rows: int, columns: int, transposed: bool) -> str:
    """The text of a product of ``rows`` rows."""
    shape = f"{columns}x{DEPTH}" if transposed else f"{DEPTH}x{columns}"
    x, w, result = (f"tensor<{each}xf32>" for each in (f"{rows}x{DEPTH}", shape, f"{rows}x{columns}"))
    return f"""
func.func @main(%x: {x}, %w: {w}) -> {result} {{
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [{int(transposed)}] : ({x}, {w}) -> {result}
  return %0 : {result}
}}"""


def computed(call: Callable[[], Any]) -> Contender:
    """Calls, timed by the clock of the thread."""

    def run(count: int) -> float:
        start = time.thread_time()
        for _ in range(count):
            call()
        return time.thread_time() - start

    return run


def contenders(client: kcache.Client, rows: int, columns: int, transposed: bool) -> dict[str, Contender]:
    """The kernel with and without bound weights."""
    text = product(rows, columns, transposed)
    draw = np.random.default_rng(0)
    x = draw.standard_normal((rows, DEPTH), np.float32)
    w = draw.standard_normal((columns, DEPTH) if transposed else (DEPTH, columns), np.float32)
    plain, bound = client.compile(text), client.compile(text, bound=[1]).bind({1: w})
    return {"bound": computed(lambda: bound(x)), "plain": computed(lambda: plain(x, w))}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=25)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as directory, kcache.Client(cache_dir=Path(directory)) as client:
        for rows in ROWS:
            for columns in COLUMNS:
                for transposed in (False, True):
                    both = contenders(client, rows, columns, transposed)
                    samples = interleave(both, rounds=rounds, calls=CALLS)
                    plain, bound = samples["plain"], samples["bound"]
                    middle, low, high = ratio(plain, bound)
                    layout = "transposed" if transposed else "row-major"
                    least = f"{plain.spread[0] * 1e3:6.2f} ms, {bound.spread[0] * 1e3:6.2f} ms"
                    print(
                        f"{rows:4} x {DEPTH} x {columns} {layout:10} plain and bound at least {least}; "
                        f"plain / bound {middle:.2f} ({low:.2f} to {high:.2f})"
                    )


if __name__ == "__main__":
    clear_and_restart("benchmarks.bound_arguments")
    os.environ["KCACHE_NUM_THREADS"] = "1"
    main()
