"""One kernel for all batches, or all lengths, beside kernels of static sizes.

``python -m benchmarks.models.dynamic_sizes [--models NAMES] [--axis batch|length] [--sizes N,N] [--bound]
[--layers N] [--json FILE]``, on one thread. A model is exported by ``torch.export``, once with a dynamic
batch and once for each batch; with a dynamic length, from which models compute, it is compiled by
``torch.compile``. Both kernels are called alternately with inputs of a size, after their results were
compared. Seconds are those that the thread computed, so that other processes lengthen them less.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import kcache_grpc as kcache
from benchmarks.bound_arguments import computed
from benchmarks.environment import clear_and_restart, description
from benchmarks.models.catalog import Inputs, instantiate
from benchmarks.rounds import interleave, ratio

MODELS = ("resnet18", "resnet50", "mobilenetv3", "vit", "bert", "gpt2-prefill", "lstm")
SIZES = {"batch": (1, 2, 8, 32), "length": (16, 33, 64, 100, 128, 255, 256, 512)}
AXES = {"batch": 0, "length": 1}
#: Size at which the axis is dynamic: PyTorch takes 0 and 1 for static sizes.
TRACED = 7
#: Seconds of a round, about.
ROUND = 0.2


def sized(inputs: Inputs, axis: int, size: int) -> Inputs:
    """Inputs of another batch or length, of the same values."""
    return tuple(
        tensor.repeat_interleave(-(-size // tensor.shape[axis]), axis).narrow(axis, 0, size).contiguous()
        for tensor in inputs
    )


def of_export(client: kcache.Client, module: nn.Module, inputs: Inputs, dynamic: bool, bound: bool) -> Any:
    """The kernel of an export, of static sizes or of a dynamic batch."""
    axes = {0: torch.export.Dim("size", min=1, max=512)}
    shapes = tuple(axes for _ in inputs) if dynamic else None
    exported = torch.export.export(module, inputs, dynamic_shapes=shapes)
    return client.compile(exported, dynamic=dynamic, bound="weights" if bound else None)


def of_module(module: nn.Module, inputs: Inputs, dynamic: bool, bound: bool) -> Any:
    """A copy of the module, compiled for static sizes or for a dynamic length."""
    options: Any = {"bound": "weights"} if bound else {}
    compiled: Any = torch.compile(copy.deepcopy(module), backend="kcache", dynamic=False, options=options)
    if dynamic:
        compiled = torch.compile(copy.deepcopy(module), backend="kcache", options=options)
        for tensor in inputs:
            torch._dynamo.mark_dynamic(tensor, AXES["length"])
    compiled(*inputs)
    return compiled


def caller(kernel: Any, inputs: Inputs) -> Callable[[], Any]:
    return lambda: kernel(*inputs)


def measured(client: kcache.Client, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The ratio of processor times, dynamic / static, by size."""
    module, inputs = instantiate(name, **({"layers": options.layers} if options.layers else {}))
    axis = AXES[options.axis]

    def kernel(arguments: Inputs, dynamic: bool) -> Any:
        if options.axis == "length":
            return of_module(module, arguments, dynamic, options.bound)
        return of_export(client, module, arguments, dynamic, options.bound)

    dynamic = kernel(sized(inputs, axis, TRACED), True)
    rows: dict[str, Any] = {}
    for size in options.sizes or SIZES[options.axis]:
        sized_inputs = sized(inputs, axis, size)
        static = kernel(sized_inputs, False)
        calls = {"dynamic": caller(dynamic, sized_inputs), "static": caller(static, sized_inputs)}
        for result, expected in zip(*(call() for call in calls.values()), strict=True):
            torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-3)
        contenders = {each: computed(call) for each, call in calls.items()}
        count = max(1, int(ROUND / max(1e-6, contenders["static"](1) or 0)))
        samples = interleave(contenders, rounds=options.rounds, calls=count)
        middle, low, high = ratio(samples["dynamic"], samples["static"])
        row = {"ratio": middle, "least": low, "greatest": high, "static": samples["static"].median}
        rows[str(size)] = row
        bound = "bound" if options.bound else "plain"
        print(
            f"| {name} | {bound} | {options.axis} {size} | {row['static'] * 1e3:.2f} ms | "
            f"{middle:.2f} ({low:.2f} to {high:.2f}) |",
            flush=True,
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS))
    parser.add_argument("--axis", choices=SIZES, default="batch")
    parser.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")], default=None)
    parser.add_argument("--bound", action="store_true", help="with bound weights")
    parser.add_argument("--layers", type=int, help="layers of models of equal layers, such as BERT")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cache", type=Path, help="directory of compiled kernels that later runs use again")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch._dynamo.config.recompile_limit = 64
    rows: dict[str, Any] = {}
    print("| model | weights | size | static | dynamic / static |")
    print("| --- | --- | --- | --- | --- |")
    with (
        tempfile.TemporaryDirectory() as directory,
        kcache.Client(cache_dir=options.cache or Path(directory)) as client,
        torch.no_grad(),
    ):
        os.environ["KCACHE_CACHE_DIR"] = str(client.cache_dir)
        for name in options.models:
            rows[name] = measured(client, name, options)
    if options.json:
        options.json.write_text(json.dumps({"environment": description(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    clear_and_restart("benchmarks.models.dynamic_sizes")
    os.environ["KCACHE_NUM_THREADS"] = "1"
    main()
