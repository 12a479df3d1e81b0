"""``python -m benchmarks.gpu.compiling [--rounds N]``: CPU milliseconds from a program to PTX and to a cubin.

Needs no GPU. In this process, warm: the first round is not counted, the least of the others is told.
``ptxas`` is a process of its own, where it is installed.
"""

from __future__ import annotations

import argparse
import resource
import time

from benchmarks.gpu.cases import Case, cases
from kcache_compiler.compile import lower_module
from kcache_compiler.llvm.ptxas import find_ptxas
from kcache_compiler.types import CompiledKernel, CompileOptions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--target", default="sm_90")
    arguments = parser.parse_args()
    ptxas = find_ptxas()
    print(f"target {arguments.target}, ptxas {ptxas.version if ptxas else 'none'}")
    print(f"{'case':18} {'PTX ms':>7} {'cubin ms':>9}  launches: registers, spilled, static shared bytes")
    for case in cases():
        ptx, cubin, kernel = _least(case, arguments.target, arguments.rounds)
        resources = [launch.resources for launch in kernel.interface.gpu_launches]
        said = "; ".join(
            f"{x.registers}, {x.spill_bytes}, {x.static_shared}" for x in resources if x is not None
        )
        print(f"{case.name:18} {ptx:7.0f} {cubin:9.0f}  {len(resources)}: {said}")


def _least(case: Case, target: str, rounds: int) -> tuple[float, float, CompiledKernel]:
    """CPU milliseconds of this process and of its children, each the least of all rounds."""
    own: list[float] = []
    children: list[float] = []
    kernel = _compile(case, target)
    for _ in range(rounds):
        began, before = time.process_time(), _of_children()
        kernel = _compile(case, target)
        own.append(time.process_time() - began)
        children.append(_of_children() - before)
    return min(own) * 1e3, min(children) * 1e3, kernel


def _compile(case: Case, target: str) -> CompiledKernel:
    return lower_module(case.program, len(case.shapes), target, CompileOptions(), lambda _: None)


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
