"""Times of a kernel beside copies of memory and PyTorch, in turns on one stream, by events of the GPU."""

from __future__ import annotations

import importlib
import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.gpu.kit.runtime.devices import Execution
from benchmarks.gpu.rivals import rivals

#: Rounds that count, and rounds before them.
ROUNDS, WARM = 20, 3
#: Seconds between two events, about: short kernels are timed together.
_SAMPLE, _MOST_CALLS = 2e-3, 50
#: Seconds that must be left to prepare one more rival.
_PREPARATION_SECONDS = 5.0
Ways = dict[str, Callable[[], object]]


def timed(
    device: Any,
    work: Any,
    case: Mapping[str, Any],
    execution: Execution,
    values: Sequence[Mapping[str, Any]],
    until: float,
) -> Iterator[dict[str, Any]]:
    """Microseconds of a call by way, first without PyTorch, then with what of it can be had by ``until``.

    ``until`` is on ``time.monotonic``'s clock. Yields ``us``, the medians, ``spread_us`` with the least and
    the greatest, ``share_of_copy`` and ``tflops``; ``rivals`` says why a rival is absent.
    """
    half = max(1, case["moved"] // 2)
    source, to = device.allocate(half), device.allocate(half)
    try:
        ways: Ways = {"ours": work.launch, "copy": lambda: device.copy(to, source, half)}
        yield _said(case, _times(device, ways))
        absent = dict[str, str]()
        for name, make in _makers(case["name"], execution, values).items():
            if time.monotonic() + _PREPARATION_SECONDS > until:
                absent[name] = "no time left"
                continue
            try:
                way = make()
                way()
                device.synchronize()
                ways[name] = way
            except Exception as error:  # noqa: BLE001 - code of other projects
                absent[name] = f"{type(error).__name__}: {error}"[:300]
        yield _said(case, _times(device, ways)) | {"rivals": absent}
    finally:
        device.free(source)
        device.free(to)


def _makers(
    name: str, execution: Execution, values: Sequence[Mapping[str, Any]]
) -> dict[str, Callable[[], Callable[[], object]]]:
    """What prepares each rival; nothing without a PyTorch that has CUDA."""
    if importlib.util.find_spec("torch") is None:
        return {}
    torch: Any = importlib.import_module("torch")
    if not torch.cuda.is_available():
        return {}
    kinds = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
    tensors = [
        torch.frombuffer(bytearray(content), dtype=kinds[value["dtype"]]).reshape(value["shape"]).cuda()
        for content, value in zip(execution.inputs, values, strict=True)
    ]
    own = rivals(name)
    makers: dict[str, Callable[[], Callable[[], object]]] = {"eager": lambda: lambda: own.eager(*tensors)}
    special = own.special
    if special is not None:
        makers["sdpa"] = lambda: lambda: special(*tensors)

    def compiled(**options: Any) -> Callable[[], object]:
        function = torch.compile(own.eager, dynamic=False, **options)
        return lambda: function(*tensors)

    makers["inductor"] = compiled
    if name.startswith("matmul"):
        tuned = {"max_autotune": True, "max_autotune_gemm_backends": "TRITON"}
        makers["triton"] = lambda: compiled(options=tuned)
    return makers


def _times(device: Any, ways: Ways) -> dict[str, list[float]]:
    """Seconds of a call by way, in each round."""
    counts = dict[str, int]()
    for name, way in ways.items():
        way()
        once = device.seconds(way, 1)
        counts[name] = max(1, min(_MOST_CALLS, round(_SAMPLE / max(once, 1e-9))))
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(WARM + ROUNDS):
        for name, way in ways.items():
            seconds = device.seconds(way, counts[name])
            if number >= WARM:
                times[name].append(seconds)
    return times


def _said(case: Mapping[str, Any], times: Mapping[str, list[float]]) -> dict[str, Any]:
    best = {name: statistics.median(each) * 1e6 for name, each in times.items()}
    ours = max(best["ours"], 1e-9)
    return {
        "us": best,
        "spread_us": {name: [min(each) * 1e6, max(each) * 1e6] for name, each in times.items()},
        "copy_gb_per_s": case["moved"] / max(best["copy"], 1e-9) / 1e3,
        "share_of_copy": best["copy"] / ours,
        "tflops": case["flops"] / ours / 1e6,
    }
