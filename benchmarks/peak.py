"""Shares of this machine's limits: of its multiply-adds, and of the bandwidth of its memory.

``python -m benchmarks.peak [--rounds N] [--only TEXT] [--json FILE]``, on one thread, f32, weights bound.
In each round a kernel is called, and then the limit is measured for about as long: as many independent
chains of multiply-adds as registers hold for products and convolutions, a sum of as many bytes in order for
products of one row, which read each weight once. A share is the rate of the kernel by that of the limit,
round by round. Seconds are those that the thread computed, so that other processes lengthen them less.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import kcache_grpc as kcache
from benchmarks.bound_arguments import computed
from benchmarks.convolution_layers import IMAGES, Layer
from benchmarks.environment import clear_and_restart, description
from benchmarks.kernels.limits import Limits
from benchmarks.rounds import Contender, interleave, ratio

#: What a share is of, and the share that is the aim.
COMPUTE, MEMORY = "multiply-adds", "read bandwidth"
AIM = {COMPUTE: 0.90, MEMORY: 0.85}
#: Seconds of one measurement, about.
SECONDS = 0.05
#: Rounds of the chains, a multiply-add of each, in a call.
CHAINS = 20_000

#: Rows, depth and columns; the last of a hundred rows and more are BERT's.
PRODUCTS = (
    *((1024, 1024, 1024), (2048, 2048, 2048), (4096, 1024, 1024)),
    *((128, 768, 3072), (128, 3072, 768), (128, 768, 2304), (128, 768, 768)),
    *((1, 4096, 4096), (1, 768, 50257), (1, 768, 3072)),
)
#: Of ResNet-50, then VGG-16.
LAYERS = (
    *(Layer(56, 64, 64, 3), Layer(28, 128, 128, 3), Layer(14, 256, 256, 3), Layer(7, 512, 512, 3)),
    *(Layer(56, 64, 256), Layer(28, 512, 128), Layer(14, 256, 1024), Layer(7, 2048, 512)),
    *(Layer(56, 256, 256, 3), Layer(28, 512, 512, 3), Layer(14, 512, 512, 3)),
)


@dataclass(frozen=True)
class Case:
    """A program whose arguments after the first are bound; ``amount``: operations, or bytes of weights."""

    name: str
    text: str
    shapes: tuple[tuple[int, ...], ...]
    limit: str
    amount: int


def cases() -> Iterator[Case]:
    """All kernels."""
    for rows, depth, columns in PRODUCTS:
        yield _product(rows, depth, columns)
    for layer in LAYERS:
        window = (layer.window, layer.window, layer.inputs, layer.outputs)
        shapes = ((IMAGES, layer.size, layer.size, layer.inputs), window, (layer.outputs,))
        yield Case(str(layer), layer.text(), shapes, COMPUTE, layer.operations)


def _product(rows: int, depth: int, columns: int) -> Case:
    shapes = ((rows, depth), (depth, columns))
    x, w, y = (f"tensor<{first}x{second}xf32>" for first, second in (*shapes, (rows, columns)))
    text = f"""
func.func @main(%x: {x}, %w: {w}) -> {y} {{
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : ({x}, {w}) -> {y}
  return %0 : {y}
}}"""
    limit = MEMORY if rows == 1 else COMPUTE
    amount = 4 * depth * columns if rows == 1 else 2 * rows * depth * columns
    return Case(f"product {rows} x {depth} x {columns}", text, shapes, limit, amount)


def called(client: kcache.Client, case: Case) -> Callable[[], Any]:
    """The kernel with random arguments, after its result was compared with NumPy's, if it is a product."""
    draw = np.random.default_rng(0)
    x, *weights = (draw.standard_normal(shape, np.float32) / shape[0] ** 0.5 for shape in case.shapes)
    bound: dict[int | str, Any] = dict(enumerate(weights, 1))
    kernel = client.compile(case.text, bound=tuple(bound)).bind(bound)
    if len(weights) == 1:
        expected = x.astype(np.float64) @ weights[0].astype(np.float64)
        np.testing.assert_allclose(kernel(x)[0], expected, rtol=1e-3, atol=1e-3)
    return lambda: kernel(x)


def measured(client: kcache.Client, case: Case, limits: Limits, rounds: int) -> dict[str, Any]:
    """The share of a kernel, with the least and the greatest."""
    kernel = computed(called(client, case))
    of_limit: float = case.amount
    if case.limit == MEMORY:
        limit = limits.reading(case.amount)
    else:
        limit = limits.beat(CHAINS)
        of_limit = limit()
    counts = [max(1, round(SECONDS / _seconds(each))) for each in (kernel, computed(limit))]
    contenders = {"kernel": _repeated(kernel, counts[0]), "limit": _repeated(computed(limit), counts[1])}
    samples = interleave(contenders, rounds=rounds, calls=1)
    scale = case.amount / of_limit
    shares = [scale * each for each in ratio(samples["limit"], samples["kernel"])]
    rate = case.amount / samples["kernel"].median
    return {"limit": case.limit, "share": shares[0], "least": shares[1], "greatest": shares[2], "rate": rate}


def _seconds(contender: Contender) -> float:
    contender(1)
    return max(1e-6, contender(3) or 0) / 3


def _repeated(contender: Contender, count: int) -> Contender:
    """``count`` calls as one, whose seconds are the mean."""
    return lambda calls: (contender(calls * count) or 0) / count


def row(name: str, result: dict[str, Any]) -> str:
    share, least, greatest = (f"{result[each]:.0%}" for each in ("share", "least", "greatest"))
    below = "" if result["share"] >= AIM[result["limit"]] else f"below {AIM[result['limit']]:.0%}"
    unit = "GB/s" if result["limit"] == MEMORY else "GFLOP/s"
    rate = f"{result['rate'] / 1e9:.0f} {unit}"
    return f"| {name} | {rate} | {share} ({least} to {greatest}) of {result['limit']} | {below} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="kernels whose description contains this text")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # OpenMP then has one thread
    rows: dict[str, Any] = {}
    print("| kernel | rate | share | |")
    print("| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as directory, kcache.Client(cache_dir=Path(directory)) as client:
        limits = Limits(Path(directory))
        for case in (case for case in cases() if options.only in case.name):
            rows[case.name] = measured(client, case, limits, options.rounds)
            print(row(case.name, rows[case.name]), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"environment": description(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    clear_and_restart("benchmarks.peak")
    os.environ["KCACHE_NUM_THREADS"] = "1"
    main()
