"""One kernel: built by all contenders, checked against f64, timed in turns."""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import torch

from benchmarks.kernels.bars import ABOVE_CACHES
from benchmarks.kernels.case import Array, Case, error_of
from benchmarks.kernels.contenders import Absent, Built, blas, onnx, ours, pytorch, xla
from benchmarks.kernels.limits import NAME as BY_HAND
from benchmarks.kernels.limits import SIZE_CLASSES, Limits
from benchmarks.kernels.settled import settled
from benchmarks.rounds import interleave

#: Short names for ``--rivals``.
RIVALS = {
    "eager": pytorch.EAGER,
    "inductor": pytorch.INDUCTOR,
    "autotune": pytorch.AUTOTUNED,
    "jax": xla.NAME,
    "numpy": blas.NAME,
    "onnx": onnx.NAME,
    "hand": BY_HAND,
}

#: Groups whose limit may be arithmetic; of the others it is the memory's bandwidth.
COMPUTING = {*pytorch.TUNED_GROUPS}
#: Stands among the contenders for what the machine gives in their turns.
_BEAT = "multiply-adds"
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


class Bench:
    """All contenders of one process."""

    def __init__(self, options: argparse.Namespace, folder: Path, limits: Limits) -> None:
        self._options = options
        self._limits = limits
        self._ours = ours.Ours(
            options.address, options.server, folder / "cache", options.numerics, options.target
        )
        self._rivals = options.rivals.split(",")
        self._tuning_left: float = options.autotune_seconds

    def machine(self) -> dict[str, Any]:
        """The machine's limits, and which kernels the rivals chose for it."""
        return {
            "threads": self._options.threads,
            "fma_peak_gflops": self._limits.peak / 1e9,
            "copy_gbps": {name: self._limits.bandwidth(size) / 1e9 for name, size in SIZE_CLASSES.items()},
            "core_types": {
                "OpenBLAS (NumPy)": blas.core(),
                "PyTorch": torch.backends.cpu.get_cpu_capability(),
                "MKL (PyTorch)": pytorch.core(),
            },
        }

    def measured(self, case: Case) -> dict[str, Any]:
        """The row of one kernel."""
        inputs = case.inputs()
        with torch.no_grad(), jax.enable_x64(any(array.dtype == "float64" for array in inputs)):
            expected = pytorch.reference(case, inputs)
            built, rows = self._built(case, inputs, expected)
            calls = {name: _Turns(contender.call, self._options) for name, contender in built.items()}
            facts = self._facts(case, inputs, expected)
            if calls and (beat := self._beat(facts)):
                calls[_BEAT] = _Turns(beat, self._options, share=0.2)
            samples = interleave(calls, rounds=self._options.rounds, calls=1) if calls else {}
            paced = samples.pop(_BEAT, None)
            for name, sample in samples.items():
                rows[name]["seconds"] = sample.seconds
                rows[name]["beside_others"] = calls[name].beside_others
            return {**facts, "beat": paced.seconds if paced else None, "contenders": rows}

    def _beat(self, facts: dict[str, Any]) -> Callable[[], object] | None:
        """What the kernel waits for, and no more: a copy of as many bytes, or some multiply-adds."""
        if facts["bound"] == "compute":
            return self._limits.beat()
        return self._limits.copying(facts["traffic"]) if facts["traffic"] >= ABOVE_CACHES else None

    def compiled(self, case: Case) -> dict[str, Any]:
        """Inductor alone, which leaves in its cache what it compiles: nothing is checked or timed."""
        inputs, rows = case.inputs(), dict[str, dict[str, Any]]()
        with torch.no_grad():
            for name, build in self._builders([]):
                if name not in (pytorch.INDUCTOR, pytorch.AUTOTUNED):
                    continue
                try:
                    rows[name] = {"compile_s": build(case, inputs).compile_s}
                except Exception as error:  # noqa: BLE001 - as below
                    rows[name] = {"absent": str(error)[:200]}
        return {"name": case.name, "threads": self._options.threads, "contenders": rows}

    def _facts(self, case: Case, inputs: list[Array], expected: list[Array]) -> dict[str, Any]:
        width = max(array.itemsize for array in inputs if array.dtype.kind != "i")
        moved = sum(array.nbytes for array in inputs) + sum(array.size * width for array in expected)
        traffic, flops = case.traffic or moved, case.flops or xla.flops(case, inputs)
        least, bound = self._limits.least_seconds(traffic, flops if case.group in COMPUTING else 0.0)
        facts = {"name": case.name, "group": case.group, "threads": self._options.threads}
        return {**facts, "traffic": traffic, "flops": flops, "least_s": least, "bound": bound}

    def _built(
        self, case: Case, inputs: list[Array], expected: list[Array]
    ) -> tuple[dict[str, Built], dict[str, dict[str, Any]]]:
        """Those that are right, and what there is to say of each."""
        built: dict[str, Built] = {}
        rows: dict[str, dict[str, Any]] = {}
        for name, build in self._builders(expected):
            try:
                contender = build(case, inputs)
                outputs = contender.read(contender.call())
                worst = max(error_of(got, due) for got, due in zip(outputs, expected, strict=True))
            except Absent as reason:
                rows[name] = {"absent": str(reason)}
                continue
            except Exception as error:  # noqa: BLE001 - one contender's failure is a line of the report
                rows[name] = {"absent": f"failed: {type(error).__name__}: {str(error)[:200]}"}
                continue
            rows[name] = {
                "error": worst,
                "compile_s": contender.compile_s,
                "compile_cpu_s": contender.compile_cpu_s,
                "stages": contender.stages,
                "launches": contender.launches,
            }
            if worst <= case.tolerance:
                built[name] = contender
            else:
                rows[name]["absent"] = f"wrong: error {worst:.1e}, allowed {case.tolerance:.0e}"
        return built, rows

    def _builders(self, expected: list[Array]) -> Iterator[tuple[str, Callable[[Case, list[Array]], Built]]]:
        yield ours.NAME, self._ours.build
        yield ours.READY, self._ours.build_ready
        every: dict[str, Callable[[Case, list[Array]], Built]] = {
            "eager": pytorch.build_eager,
            "inductor": pytorch.build_inductor,
            "autotune": self._autotuned,
            "jax": xla.build,
            "numpy": functools.partial(blas.build, like=expected),
            "onnx": functools.partial(onnx.build, threads=self._options.threads),
            "hand": self._limits.build,
        }
        for short in self._rivals:
            yield RIVALS[short], every[short]

    def _autotuned(self, case: Case, inputs: list[Array]) -> Built:
        """Inductor's, which compiles dozens of candidates; while there is time for it."""
        if self._tuning_left <= 0:
            raise Absent("the time for autotuning is used up (--autotune-seconds)")
        started = time.perf_counter()
        try:
            return pytorch.build_inductor(case, inputs, mode="max-autotune")
        finally:
            self._tuning_left -= time.perf_counter() - started


class _Turns:
    """The turns of one contender: as many calls as fill the budget; a turn gives the mean seconds of one.

    Each begins when all other threads sleep, with a call that is not timed: it wakes the contender's own.
    """

    def __init__(self, call: Callable[[], Any], options: argparse.Namespace, share: float = 1.0) -> None:
        self._call, self._clock = call, CLOCKS[options.clock]
        #: Turns in which others' threads went on too long to wait for.
        self.beside_others = 0
        settled()
        call()
        started = self._clock()
        call()
        taken = max(self._clock() - started, 1e-7)
        self._count = max(1, min(20_000, int(share * options.budget / taken)))

    def __call__(self, _: int) -> float:
        call, clock, count = self._call, self._clock, self._count
        self.beside_others += not settled()
        call()
        started = clock()
        for _ in range(count):
            call()
        return (clock() - started) / count
