"""``python -m benchmarks.torch_compile.grouped_products [WORD...]``: products of groups of rows.

Processor time of one thread, of calls of ``torch.compile(backend="kcache")`` and of PyTorch in turns in one
process: rows times the matrix of their group, the same with matrices that are transposed, and the gradients
of both operands. PyTorch multiplies each group that has rows (``torch.mm`` with ``out``), as transformers
does on the CPU. Results are compared before they are timed. Words choose the cases whose names have all.
"""

from __future__ import annotations

import functools
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kcache_grpc.programs.torch import recurrent
from tests.serving import ServerProcess

#: Calls of each are as many as take PyTorch this long, in seconds, within bounds.
_SECONDS, _LEAST, _MOST = 1.0, 11, 300
_TOLERANCE = 1e-5


class Case(NamedTuple):
    """``rows`` rows of ``inner`` elements, in ``groups`` groups with ``inner`` x ``width`` matrices.

    ``kind``: how many rows groups have: "even", "random", all in "one", or "each" one row.
    """

    rows: int
    groups: int
    inner: int
    width: int
    kind: str

    @property
    def name(self) -> str:
        return f"{self.rows} rows, {self.groups} groups, {self.inner} to {self.width}, {self.kind}"

    def offsets(self) -> Tensor:
        """The row after the last one of each group."""
        numbers = torch.arange(1, self.groups + 1)
        if self.kind == "even":
            ends = self.rows * numbers // self.groups
        elif self.kind == "one":
            ends = self.rows * (numbers > self.groups // 3)
        elif self.kind == "each":
            ends = numbers.clamp(max=self.rows)
        else:
            chosen = torch.randint(0, self.groups, (self.rows,), generator=torch.Generator().manual_seed(0))
            ends = torch.bincount(chosen, minlength=self.groups).cumsum(0)
        return ends.to(torch.int32)


CASES = (
    *(Case(512, 8, 512, 1024, kind) for kind in ("even", "random", "one")),
    Case(2048, 8, 512, 1024, "random"),
    Case(128, 64, 512, 1024, "random"),
    *(Case(16, 8, 512, 1024, kind) for kind in ("random", "one")),
    Case(8, 8, 512, 1024, "each"),
    Case(2, 8, 1024, 1024, "each"),
)


def _groups(offsets: Tensor) -> Iterator[tuple[int, slice]]:
    start = 0
    for group, end in enumerate(offsets.tolist()):
        if end > start:
            yield group, slice(start, end)
        start = max(start, end)


def eager_products(rows: Tensor, weights: Tensor, offsets: Tensor) -> Tensor:
    """Each group of rows times its matrix, by PyTorch."""
    result = rows.new_zeros(rows.shape[0], weights.shape[2])
    for group, part in _groups(offsets):
        torch.mm(rows[part], weights[group], out=result[part])
    return result


def eager_gradients(
    gradient: Tensor, rows: Tensor, weights: Tensor, offsets: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of rows and matrices, by PyTorch."""
    of_weights = torch.zeros_like(weights)
    for group, part in _groups(offsets):
        torch.mm(rows[part].t(), gradient[part], out=of_weights[group])
    return eager_products(gradient, weights.transpose(1, 2), offsets), of_weights


def _forms(case: Case) -> Iterator[tuple[str, Callable[..., Any], Callable[..., Any], tuple[Tensor, ...]]]:
    """Name, function for the backend, function of PyTorch, and arguments."""
    operators: Any = torch.ops.kcache
    rows, gradient = torch.randn(case.rows, case.inner), torch.randn(case.rows, case.width)
    weights, offsets = torch.randn(case.groups, case.inner, case.width), case.offsets()
    stored = weights.transpose(1, 2).contiguous()

    def gradients(gradient: Tensor, rows: Tensor, weights: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        of_rows = operators.grouped_mm(gradient, weights.transpose(1, 2), offsets)
        return of_rows, operators.grouped_outer(rows, gradient, offsets)

    yield (
        "product",
        lambda *given: operators.grouped_mm(*given),
        eager_products,
        (rows, weights, offsets),
    )
    yield (
        "transposed",
        lambda x, w, o: operators.grouped_mm(x, w.transpose(1, 2), o),
        lambda x, w, o: eager_products(x, w.transpose(1, 2), o),
        (rows, stored, offsets),
    )
    yield "gradients", gradients, eager_gradients, (gradient, rows, weights, offsets)


def _require_equal(actual: Any, expected: Any) -> None:
    pairs = zip(actual, expected, strict=True) if isinstance(actual, tuple) else [(actual, expected)]
    for ours, theirs in pairs:
        error = float((ours - theirs).abs().max() / theirs.abs().max())
        assert error < _TOLERANCE, error


def medians(functions: Sequence[Callable[[], Any]], calls: int) -> list[float]:
    """Median processor time of each, in seconds; they are called in turns."""
    for function in functions:
        function()
        function()
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(calls):
        for function, each in zip(functions, times, strict=True):
            begin = time.thread_time()
            function()
            each.append(time.thread_time() - begin)
    return [statistics.median(each) for each in times]


def main() -> None:
    """Run the command line."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    recurrent.operators()
    chosen = [case for case in CASES if all(word in case.name for word in sys.argv[1:])]
    sys.stdout.write("| case | form | PyTorch | kcache | times as fast |\n| --- | --- | --- | --- | --- |\n")
    with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder)) as server:
        options = {"address": server.address, "strict": True, "least_operators": 0}
        for case in chosen:
            for form, function, eager, arguments in _forms(case):
                torch._dynamo.reset()
                compiled = torch.compile(function, backend="kcache", options=options)
                _require_equal(compiled(*arguments), eager(*arguments))
                run = [functools.partial(eager, *arguments), functools.partial(compiled, *arguments)]
                once = max(medians(run[:1], 2)[0], 1e-6)
                theirs, ours = medians(run, max(_LEAST, min(_MOST, int(_SECONDS / once))))
                cells = (case.name, form, f"{theirs * 1e3:.2f} ms", f"{ours * 1e3:.2f} ms")
                sys.stdout.write(f"| {' | '.join(cells)} | {theirs / ours:.2f} |\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
