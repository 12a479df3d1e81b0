"""``kcache run``: compile a program and run it on arrays from files or from a seed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcache_grpc.cli import options as o
from kcache_grpc.cli import output
from kcache_grpc.cli.commands import compile
from kcache_grpc.errors import ArgumentError, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kcache_grpc import Kernel

Inputs = Annotated[
    list[Path] | None,
    typer.Option("--input", "-i", help="Argument as .npy, or several as .npz; repeat it, in order."),
]
Seed = Annotated[int, typer.Option("--random", help="Seed of the arguments that no --input gives.")]
OutputDir = Annotated[
    Path | None, typer.Option("--output", "-o", help="Directory for the results: result_0.npy and so on.")
]
Size = Annotated[int, typer.Option(min=0, help="Size of the open axes of arguments that no --input gives.")]
Repeat = Annotated[int, typer.Option(min=1, help="Calls to time, after the first.")]


def run(
    file: o.ProgramFile,
    inputs: Inputs = None,
    seed: Seed = 0,
    size: Size = 16,
    output_dir: OutputDir = None,
    repeat: Repeat = 1,
    format: o.Format = None,
    numerics: o.Numerics = "default",
    opt_level: o.OptLevel = 3,
    schedule: o.Schedule = "",
    target: o.TargetName = "host",
    bound: o.Bound = None,
    compatible_target: o.CompatibleTarget = None,
    dynamic: o.Dynamic = "no",
    symbols: o.Symbols = None,
    evidence: o.Evidence = None,
    json: o.Json = False,
    addr: o.Addr = None,
    namespace: o.Namespace = None,
    token_file: o.TokenFile = None,
    tls: o.Tls = None,
    timeout: o.Timeout = None,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> None:
    """Compile a program for this machine and run it, on given or random arguments."""
    sizes, options = (
        o.sizes(dynamic, symbols),
        o.compile_options(numerics, opt_level, schedule, compatible_target, bound),
    )
    with o.connect(addr, namespace, token_file, tls, timeout, cache_dir) as client:
        kernel, _, _ = compile.obtain(client, file, format, target, options, sizes, evidence)
        arrays = arguments(kernel, inputs or [], seed, size)
        prepared, others = bound_to(kernel, arrays)
        results = prepared(*others)
        milliseconds = sorted(timed(prepared, others) for _ in range(repeat))
    if output_dir is not None:
        _save(results, output_dir)
    described = {
        "key": kernel.key,
        "origin": kernel.origin,
        "service": kernel.service,
        "target": str(kernel.manifest.target),
        "milliseconds": {
            "median": milliseconds[len(milliseconds) // 2],
            "min": milliseconds[0],
            "max": milliseconds[-1],
            "calls": repeat,
        },
        "arguments": [_statistics(f"argument {i}", array) for i, array in enumerate(arrays)],
        "results": [_statistics(f"result {i}", array) for i, array in enumerate(results)],
    }
    output.show(described, json, lambda: _table(described))


def arguments(kernel: Kernel, files: list[Path], seed: int, size: int) -> list[NDArray[Any]]:
    """Those of the files, and random ones for the rest; ``size`` is that of dynamic dimensions.

    None for the weights that the program brings. Raises ``NotFound`` and ``ArgumentError``.
    """
    import numpy as np

    from kcache_grpc.runtime.bound_kernel import BoundKernel
    from kcache_grpc.runtime.comparison import draw
    from kcache_grpc.runtime.dtypes import NAMELESS

    arrays = [array for file in files for array in _load(file)]
    specs = kernel.binding.inputs
    if isinstance(kernel, BoundKernel):
        specs = specs[: len(kernel.arguments.given)]
    if len(arrays) > len(specs):
        raise ArgumentError(
            f"the program takes {output.count(len(specs), 'argument')}, the files give {len(arrays)}"
        )
    arrays = [
        _named(array, spec.dtype) if spec.dtype in NAMELESS else array
        for array, spec in zip(arrays, specs, strict=False)
    ]
    symbols = _sizes(kernel, arrays, size)
    generator = np.random.default_rng(seed)
    drawn = [draw(generator, spec.dtype, spec.shape(symbols)) for spec in specs[len(arrays) :]]
    return arrays + drawn


def bound_to(kernel: Kernel, arrays: list[NDArray[Any]]) -> tuple[Kernel, Sequence[Any]]:
    """The kernel that the values of bound arguments were prepared for, and the other arguments."""
    from kcache_grpc.runtime.bound_kernel import BoundKernel

    if isinstance(kernel, BoundKernel):
        return kernel.resolve(arrays)
    values = {index: arrays[index] for index in kernel.manifest.options.bound}
    if not values:
        return kernel, arrays
    return kernel.prepare(values), [array for index, array in enumerate(arrays) if index not in values]


def _sizes(kernel: Kernel, arrays: list[NDArray[Any]], size: int) -> dict[str, int]:
    """Of the symbols: from the arrays that are given, of the others ``size``.

    0 for numbers that are no size, which the kernel rejects.
    """
    numbers = kernel.binding.size_arguments
    sizes = {
        (argument, axis): int(length) if length >= 0 else 0
        for argument, array in enumerate(arrays)
        for axis, length in enumerate(array.ravel() if argument in numbers and array.size else array.shape)
    }
    return {s.name: sizes.get((s.arg, s.axis), size) for s in kernel.binding.symbols}


def _load(file: Path) -> list[NDArray[Any]]:
    import numpy as np

    try:
        content: Any = np.load(file, allow_pickle=False)
    except FileNotFoundError as error:
        raise NotFound(f"{file} does not exist") from error
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{file} holds no NumPy array: {error}") from error
    if not hasattr(content, "files"):
        return [np.ascontiguousarray(content)]
    with content:
        return [np.ascontiguousarray(content[name]) for name in content.files]


def _named(array: Any, dtype: str) -> Any:
    """NumPy's files keep only the bytes of a bfloat16 and of smaller elements."""
    from kcache_grpc.runtime.dtypes import numpy_dtype

    numpy_type = numpy_dtype(dtype)
    raw = array.dtype.kind == "V" and array.dtype.itemsize == numpy_type.itemsize
    return array.view(numpy_type) if raw else array


def timed(kernel: Kernel, arrays: Sequence[Any]) -> float:
    """Milliseconds of a call."""
    began = time.perf_counter()
    kernel(*arrays)
    return (time.perf_counter() - began) * 1e3


def _save(results: tuple[NDArray[Any], ...], directory: Path) -> None:
    import numpy as np

    directory.mkdir(parents=True, exist_ok=True)
    for index, result in enumerate(results):
        np.save(directory / f"result_{index}.npy", result)


def _statistics(name: str, array: NDArray[Any]) -> dict[str, Any]:
    import numpy as np

    numbers: NDArray[Any] = np.abs(array) if array.dtype.kind == "c" else array
    numbers = numbers.astype(np.float64).ravel()
    finite = numbers[np.isfinite(numbers)]
    empty = finite.size == 0
    return {
        "name": name,
        "dtype": str(array.dtype),
        "shape": "x".join(map(str, array.shape)) or "scalar",
        "min": None if empty else float(finite.min()),
        "max": None if empty else float(finite.max()),
        "mean": None if empty else float(finite.mean()),
        "nan": int(np.isnan(numbers).sum()),
        "inf": int(np.isinf(numbers).sum()),
    }


def _table(described: dict[str, Any]) -> Any:
    from rich.console import Group

    times = described["milliseconds"]
    head = {
        "key": described["key"],
        "origin": described["origin"],
        "service": described["service"],
        "target": described["target"],
        "milliseconds": "{median:.4f} ({min:.4f} to {max:.4f}, {counted})".format(
            **times, counted=output.count(times["calls"], "call")
        ),
    }
    return Group(output.pairs(head), "", output.rows(described["arguments"] + described["results"]))
