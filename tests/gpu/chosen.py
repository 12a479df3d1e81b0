"""``python -m tests.gpu.chosen [--cases N] [--seed S]``: random choices, sizes and values for a GPU.

Each case is a template at sizes that fit nothing, with several schedule choices at once, and with NaN,
infinities and -0 among its arguments. The result has these where the CPU's kernel has them, and is as near to
it as sums in another order are. Status 1 where it is not, or a kernel does what it must not.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass

import numpy as np

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.compile import lower_module
from kcache_compiler.errors import CompileFailed
from kcache_compiler.schedule.choices import CHOICES
from kcache_compiler.types import ArgSpec, CompiledKernel, CompileOptions
from kcache_grpc.model.target import host_target
from tests.compiler.codegen_harness import NUMPY, Kernel
from tests.gpu.harness.emulate import ORDERS, EmulationError
from tests.gpu.harness.programs import TEMPLATES, TOLERANCE, Array, Template
from tests.gpu.harness.run import run_gpu

GPU = {name: values for name, values in CHOICES.items() if name.startswith("gpu_")}
TARGETS = ("sm_75", "sm_80", "sm_90")
_SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0)


@dataclass(frozen=True)
class Case:
    """A template of a dtype at sizes, of a kernel for these or (``opened``) for all sizes, with choices,
    for a target; ``share`` of its values are special.
    """

    name: str
    dtype: str
    sizes: tuple[int, ...]
    schedule: str
    target: str
    order: str
    opened: bool
    share: float
    seed: int


def case(seed: int) -> Case:
    """The case of a number."""
    rng = np.random.default_rng(seed)
    template = TEMPLATES[rng.integers(len(TEMPLATES))]
    rank = len(template.sizes[0])
    most = 150 if template.name in ("matmul", "batched") else 1500
    sizes = [
        int(rng.choice([0, 1, int(rng.integers(2, 40)), int(rng.integers(2, most))])) for _ in range(rank)
    ]
    if template.name == "batched":
        sizes[0] = min(sizes[0], 3)
    if rank == 2:
        sizes[int(rng.integers(2))] = int(rng.integers(1, 8))
    chosen = {name: str(rng.choice(values)) for name, values in GPU.items() if rng.random() < 0.35}
    return Case(
        template.name,
        str(rng.choice(template.dtypes)),
        tuple(sizes),
        ",".join(f"{name}:{value}" for name, value in sorted(chosen.items())),
        str(rng.choice(TARGETS)),
        str(rng.choice(ORDERS)),
        bool(rng.random() < 0.3),
        float(rng.choice([0.0, 0.0, 0.002, 0.2])),
        seed,
    )


def judged(subject: Case) -> str:
    """ "right", "rejected", or what is wrong."""
    (template,) = (template for template in TEMPLATES if template.name == subject.name)
    text, arguments = template.text(subject.dtype, *subject.sizes), _arguments(template, subject)
    cpu = lower_module(text, len(arguments), host_target().isa, CompileOptions(opt_level=1), lambda _: None)
    try:
        kernel = _compiled(text, len(arguments), subject)
    except CompileFailed as rejected:
        return "rejected" if rejected.stage == "schedule" else f"{type(rejected).__name__}: {rejected}"
    try:
        (got,) = run_gpu(kernel, arguments, order=subject.order, seed=subject.seed + 1)
    except EmulationError as error:
        return str(error)
    return _difference(template, subject.dtype, arguments, got, Kernel(cpu)(*arguments)[0])


def _compiled(text: str, arguments: int, subject: Case) -> CompiledKernel:
    options = CompileOptions(schedule=subject.schedule)
    if not subject.opened:
        return lower_module(text, arguments, subject.target, options, lambda _: None)
    canonical = canonicalize(text.encode(), "stablehlo", "default")
    assert not canonical.constants
    return compile_spec(
        canonical.spec_text, ArgSpec(canonical.symbolic_args), subject.target, options, lambda _: None
    )


def _arguments(template: Template, subject: Case) -> list[Array]:
    rng = np.random.default_rng(subject.seed)
    arrays: list[Array] = []
    for shape in template.shapes(*subject.sizes):
        array = rng.standard_normal(shape)
        special = rng.random(shape) < subject.share
        array[special] = rng.choice(_SPECIAL, int(special.sum()))
        arrays.append(array.astype(NUMPY[subject.dtype]))
    return arrays


def _difference(template: Template, dtype: str, arguments: list[Array], got: Array, wanted: Array) -> str:
    actual, other = got.astype(np.float64), wanted.astype(np.float64)
    if actual.shape != other.shape:
        return f"shape {actual.shape}, not {other.shape}"
    finite = np.isfinite(other)
    if not np.array_equal(actual[~finite], other[~finite], equal_nan=True):
        return "what is not finite differs"
    with np.errstate(all="ignore"):
        sizes = [np.nan_to_num(np.abs(argument.astype("f8")), nan=0, posinf=0) for argument in arguments]
        scale = float(np.max(np.abs(template.expected(*sizes)), initial=1.0)) if actual.size else 1.0
    error = float(np.max(np.abs(actual[finite] - other[finite]), initial=0.0))
    return "right" if error <= 2 * TOLERANCE[dtype] * scale else f"{error:g} off, of {scale:g}"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.chosen", description=__doc__)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    counts = Counter[str]()
    for number in range(options.cases):
        drawn = case(options.seed * 1_000_000 + number)
        verdict = judged(drawn)
        fine = verdict in ("right", "rejected")
        counts[verdict if fine else "wrong"] += 1
        if not fine:
            print(f"{drawn}\n{verdict}", flush=True)
    print(", ".join(f"{number} {outcome}" for outcome, number in counts.items()))
    return int("wrong" in counts)


if __name__ == "__main__":
    sys.exit(main())
