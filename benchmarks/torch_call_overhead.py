"""What a call with PyTorch tensors costs beside the kernel: 5 and 150 arguments of f32[4,8], one output.

``python -m benchmarks.torch_call_overhead [--json FILE]``. The kernel is a C function with kcache's ABI that
does nothing, called with addresses at hand (cffi), through ``TorchCall`` with and without the extension
module, and through ``Kernel``. The rival is what Inductor compiles a graph of as many arguments to, below
Dynamo's guards; its time contains the sum of the arguments, 32 elements each. All with one thread.
"""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.call_overhead import repeated
from benchmarks.environment import clear_and_restart, description
from benchmarks.rounds import Contender, Sample, interleave, ratio
from kcache_grpc.runtime.cpu import fast_call
from kcache_grpc.runtime.cpu._abi import ffi
from kcache_grpc.runtime.torch.call import TorchCall
from tests.runtime.c_kernels import make

COUNTS = (5, 150)
SHAPE = (4, 8)
BARE = "kernel alone (cffi, addresses ready)"
OURS, OURS_CFFI, KERNEL = "TorchCall", "TorchCall, cffi", "Kernel.__call__"
INDUCTOR = "Inductor's wrapper"


def contenders(count: int, *, inductor: bool) -> dict[str, Contender]:
    """All by name, for so many arguments."""
    torch: Any = importlib.import_module("torch")
    tensors = [torch.rand(SHAPE) for _ in range(count)]
    kernel = make("RUN { return 0; }", ["f32[4,8]"] * count, ["f32[4,8]"])
    through_module, through_cffi = TorchCall(kernel), TorchCall(kernel)
    through_module(tensors)
    with mock.patch.object(fast_call, "extension", return_value=None):
        through_cffi(tensors)  # the first call decides
    output, library = torch.empty(SHAPE), kernel._library  # pyright: ignore[reportPrivateUsage]
    assert library is not None
    addresses = [ffi.cast("void *", tensor.data_ptr()) for tensor in (*tensors, output)]
    ready, run, null = ffi.new("void *[]", addresses), library.kcache_run, ffi.NULL
    calls: dict[str, Any] = {
        BARE: lambda: run(ready, null, null, null),
        OURS: lambda: through_module(tensors),
        OURS_CFFI: lambda: through_cffi(tensors),
        KERNEL: lambda: kernel(*tensors),
    }
    if inductor:
        wrapper = inductor_wrapper(tensors)
        calls[INDUCTOR] = lambda: wrapper(list(tensors))  # it empties the list
    return {name: repeated(call) for name, call in calls.items()}


def inductor_wrapper(tensors: list[Any]) -> Any:
    """What Inductor compiles a graph to: a function of a list of tensors, below Dynamo's guards."""
    torch: Any = importlib.import_module("torch")
    inductor: Any = importlib.import_module("torch._inductor.compile_fx")
    compiled: list[Any] = []

    def capture(graph: Any, examples: list[Any]) -> Any:
        def compile_inner(inner: Any, inputs: list[Any], **options: Any) -> Any:
            compiled.append(inductor.compile_fx_inner(inner, inputs, **options))
            return compiled[-1]

        return inductor.compile_fx(graph, examples, inner_compile=compile_inner)

    def add(*arguments: Any) -> Any:
        total = arguments[0]
        for argument in arguments[1:]:
            total = total + argument
        return total

    # A hit of PyTorch's caches would pass `compile_inner` by.
    with torch.no_grad(), inductor.config.patch(force_disable_caches=True):
        torch.compile(add, backend=capture)(*tensors)
    return compiled[-1]


def report(samples: dict[str, Sample]) -> dict[str, Any]:
    """Microseconds a call, those beyond the kernel alone, and ratios with their spread over the rounds."""
    bare, ours = samples[BARE], samples[OURS]
    rows = {
        name: {
            "median": sample.median * 1e6,
            "spread": [value * 1e6 for value in sample.spread],
            "beyond_kernel": (sample.median - bare.median) * 1e6,
        }
        for name, sample in samples.items()
    }
    names = [name for name in (OURS_CFFI, KERNEL, INDUCTOR) if name in samples]
    labels = ("median", "low", "high")
    ratios = {name: dict(zip(labels, ratio(ours, samples[name]), strict=True)) for name in names}
    return {"microseconds": rows, "ratios": {f"{OURS} / {name}": row for name, row in ratios.items()}}


def measure(rounds: int, calls: int, *, inductor: bool) -> dict[str, Any]:
    """The whole report, by number of arguments."""
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)
    environment = {
        **description(),
        "torch": torch.__version__,
        "extension": fast_call.extension() is not None,
    }
    arguments = {
        str(count): report(interleave(contenders(count, inductor=inductor), rounds=rounds, calls=calls))
        for count in COUNTS
    }
    return {"environment": environment, "arguments": arguments}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the report there")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--no-inductor", action="store_true", help="without a C++ compiler")
    options = parser.parse_args()
    result = measure(options.rounds, options.calls, inductor=not options.no_inductor)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    print(", ".join(f"{name} {value}" for name, value in result["environment"].items() if name != "versions"))
    for count, entry in result["arguments"].items():
        print(f"{count} arguments")
        for name, row in entry["microseconds"].items():
            low, high = row["spread"]
            print(
                f"  {name:38} {row['median']:8.2f} us  ({low:.2f} to {high:.2f}), "
                f"{row['beyond_kernel']:8.2f} us beyond the kernel"
            )
        for name, row in entry["ratios"].items():
            print(f"  {name:38} {row['median']:8.3f} x   ({row['low']:.3f} to {row['high']:.3f})")


if __name__ == "__main__":
    clear_and_restart("benchmarks.torch_call_overhead")
    main()
