"""A process that executes cases: names come on standard input, results leave on standard output, as JSON.

A kernel that hangs or crashes takes this process along and no other; ``replay.py`` starts a new one.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.kit.runtime.devices import Execution, NoGpu, opened
from benchmarks.gpu.kit.runtime.reading import Pack, PackedKernel, Record
from benchmarks.gpu.kit.runtime.speed import timed
from benchmarks.gpu.kit.runtime.values import compared, fill_of, size_of
from kcache_grpc.errors import KcacheError

#: Wrong results of a case that are reported.
_SHOWN = 3
#: ``PR_SET_PDEATHSIG`` of ``<sys/prctl.h>``.
_SET_DEATH_SIGNAL = 1
Report = Callable[[dict[str, Any]], None]


class Judge:
    """Executes cases of a pack on a device."""

    def __init__(self, pack: Pack, device: Any) -> None:
        self._pack, self._device = pack, device

    def result(self, name: str, target: str, seconds: float, report: Report) -> dict[str, Any]:
        """What became of a case, with the kernel for ``target``, within so many seconds.

        ``report`` takes what is known before the end.
        """
        began = time.monotonic()
        case = self._pack.cases[name]
        result: dict[str, Any] = {"case": name, "status": "right", "share": 0.0, "differences": []}
        try:
            record = self._pack.record(name)
            kernel = record.kernel(target)
            for number, call in enumerate(record.header["calls"]):
                execution = self._execution(record, kernel, call)
                if case["kind"] == "speed" and hasattr(self._device, "prepared"):
                    self._measured(record, case, call, execution, result, began + seconds, report)
                else:
                    self._compare(record, call, number, self._device.execute(execution), result)
        except KcacheError as error:
            result |= {"status": "failed", "error": error.message[:2000]}
        result["seconds"] = round(time.monotonic() - began, 3)
        return result

    def _execution(self, record: Record, kernel: PackedKernel, call: dict[str, Any]) -> Execution:
        symbols = kernel.symbols([value["shape"] for value in call["inputs"]])
        return Execution(
            kernel,
            kernel.calls(symbols),
            [record.argument(value) for value in call["inputs"]],
            kernel.constants(),
            [size_of(value["dtype"], value["shape"]) for value in call["expected"]],
            [fill_of(value, record.data(value["wanted"])) for value in call["expected"]],
            kernel.workspace(symbols),
        )

    def _measured(
        self,
        record: Record,
        case: dict[str, Any],
        call: dict[str, Any],
        execution: Execution,
        result: dict[str, Any],
        until: float,
        report: Report,
    ) -> None:
        with self._device.prepared(execution) as work:
            work.launch()
            self._device.synchronize()
            self._compare(record, call, 0, work.results(), result)
            result["image"] = work.image
            report(result)
            if result["status"] == "right":
                for times in timed(self._device, work, case, execution, call["inputs"], until):
                    result |= times
                    report(result)

    def _compare(
        self,
        record: Record,
        call: dict[str, Any],
        number: int,
        outputs: Sequence[bytes],
        result: dict[str, Any],
    ) -> None:
        for place, (expected, got) in enumerate(zip(call["expected"], outputs, strict=True)):
            wanted, positions = record.data(expected["wanted"]), record.data(expected["positions"])
            found = compared(expected, wanted, positions, got)
            result["share"] = max(result["share"], found["share"])
            if found["wrong"]:
                result["status"] = "wrong"
                if len(result["differences"]) < _SHOWN:
                    result["differences"].append({"call": number, "output": place, **found})


def _end_with_parent() -> None:
    """Linux ends this process when the thread that started it ends, also while a kernel hangs."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, int(signal.SIGKILL))


def main() -> int:
    """Serve requests until standard input ends; 3 where there is no GPU."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.kit.runtime.worker", description=__doc__)
    parser.add_argument("pack", type=Path)
    parser.add_argument("--driver", default="")
    parser.add_argument("--case", help="execute this case alone, as under compute-sanitizer")
    parser.add_argument("--target", help="the target of its kernel")
    options = parser.parse_args()
    if not options.case:  # compute-sanitizer may start this process from a thread that ends
        _end_with_parent()
    # What libraries print must not mix with results.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(message: dict[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")

    try:
        device = opened(options.driver)
    except NoGpu as error:
        say({"no_gpu": str(error)})
        return 3
    say({"ready": device.description()})
    judge = Judge(Pack(options.pack), device)
    if options.case:
        device.poison = False  # initcheck detects what is read before it is written
        result = judge.result(options.case, options.target, 0, lambda _: None)
        say({"result": result})
        return int(result["status"] != "right")
    for line in sys.stdin:
        request = json.loads(line)
        partial: Report = lambda known: say({"partial": known})  # noqa: E731
        say({"result": judge.result(request["case"], request["target"], request["seconds"], partial)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
