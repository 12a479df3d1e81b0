"""``python -m tests.conformance.torch_compile.opinfo``: PyTorch's samples of its operations, compiled.

Each operation that PyTorch tests, in f32, i64, i1 and bf16 where it has them, with four of its samples in one
graph: values, dtypes, shapes, strides, ``requires_grad`` and, in f32, gradients of ``torch.compile(backend=
"kcache")`` are compared with eager mode. Islands of a single operator become kernels too.

``--part I/N`` takes the I-th of N parts, ``--op`` and ``--dtype`` choose, ``--seconds`` begins no case after
so many, ``--dynamic`` compiles with dynamic shapes. ``--record FILE`` keeps a line of JSON for each case and
leaves out what is kept there, so that a run goes on where one ended. ``--page FILE...`` writes the table of
records to docs/results/torch-compile-operators.md instead. Status 1 when a case is wrong, raises an error, or
ends a process.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.conformance.torch_ops.harness import samples
from tests.ops.generated.drive import Case, cases

_JUDGE = "tests.conformance.torch_compile.opinfo_judge"
BAD = ("wrong", "error", "crash")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "results" / "torch-compile-operators.md"
#: Outcomes, as the page names them, in the order of its columns.
OUTCOMES = {
    "kernel": "in a kernel",
    "partly": "partly",
    "views": "views only",
    "left": "left to PyTorch",
    "eager": "no graph",
    "no-oracle": "no sample",
    "pytorch": "PyTorch differs",
    "expected": "not defined",
    "wrong": "wrong",
    "error": "error",
    "crash": "crash",
}
_HEAD = """# `torch.compile`: PyTorch's operations

Samples of PyTorch's own tests (`op_db`) through `torch.compile(backend="kcache", options={"strict": True,
"least_operators": 0})`, so that a single operator is a kernel too. Values, dtypes, shapes, strides,
`requires_grad` and, in f32, gradients are compared with eager mode. *In a kernel*: all that computes.
*Partly*: some operators, perhaps of the gradient, are left to PyTorch. *No graph*: Dynamo does not trace it.
*PyTorch differs*: backend `aot_eager` differs from eager mode too. *Not defined*: indices of equal elements
after a sort that is not stable. Of `linalg.eigh` magnitudes are compared: the signs are not defined.
All cases are of 2026-11-30, 21:09 to 22:00 UTC, at commit `81333998`, on an AMD Zen 4 with AVX-512, two
shared cores; none passed a limit of time, and none ended a process. Two were wrong, `nn.functional.elu` and
`nn.functional.celu` in bf16: LLVM 22 selects an incorrect instruction of AVX-512. These two were run again
at commit `b0d16260`, which corrects that, and are the only cases of another commit. Commands:

```
python -m tests.conformance.torch_compile.opinfo --record opinfo.jsonl  # --seconds N; repeated, it continues
python -m tests.conformance.torch_compile.opinfo --page opinfo.jsonl
```

"""


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.torch_compile.opinfo")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--op", nargs="*", default=())
    parser.add_argument("--dtype", nargs="*", default=())
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--page", type=Path, nargs="*")
    arguments = parser.parse_args()
    if arguments.page is not None:
        lines = [line for file in arguments.page for line in file.read_text().splitlines()]
        PAGE.write_text(page([Case(**json.loads(line)) for line in lines]))
        return 0
    part, parts = map(int, arguments.part.split("/"))
    pairs = [
        (op, dtype)
        for op, dtype in samples.pairs()
        if (not arguments.op or op in arguments.op) and (not arguments.dtype or dtype in arguments.dtype)
    ]
    names = list(dict.fromkeys(op for op, _ in pairs))[part - 1 :: parts]
    chosen = [pair for pair in pairs if pair[0] in set(names)]
    judged = _judged(arguments, chosen)
    counts = Counter(case.outcome for case in judged)
    words = ", ".join(f"{count} {OUTCOMES[outcome]}" for outcome, count in sorted(counts.items()))
    sys.stdout.write(f"{len(judged)} of {len(chosen)} cases: {words}\n")
    return int(any(case.outcome in BAD for case in judged))


def _judged(arguments: argparse.Namespace, chosen: Sequence[tuple[str, str]]) -> list[Case]:
    """What became of the cases before time was over; printed as soon as it is known."""
    judged = list(_recorded(arguments.record, chosen))
    known = {(case.op, case.dtype) for case in judged}
    missing = [pair for pair in chosen if pair not in known]
    end = time.monotonic() + arguments.seconds
    module = f"{_JUDGE} dynamic" if arguments.dynamic else _JUDGE
    drawn = cases(missing, len(missing), arguments.seed, module=module)
    for case in itertools.takewhile(lambda _: time.monotonic() < end, drawn):
        judged.append(case)
        if arguments.record:
            with arguments.record.open("a") as file:
                file.write(json.dumps(asdict(case)) + "\n")
        if case.outcome in (*BAD, "pytorch", "expected"):
            sys.stdout.write(f"{case.outcome}: {case.op} {case.dtype}: {case.reason}\n")
            sys.stdout.flush()
    return judged


def _recorded(file: Path | None, chosen: Sequence[tuple[str, str]]) -> Iterator[Case]:
    if file is None or not file.exists():
        return
    wished = set(chosen)
    for line in file.read_text().splitlines():
        case = Case(**json.loads(line))
        if (case.op, case.dtype) in wished:
            yield case


def page(judged: Sequence[Case]) -> str:
    """The text of the page: of records of one case the last."""
    judged = list({(case.op, case.dtype): case for case in judged}.values())
    counts = Counter(case.outcome for case in judged)
    by_operation: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    reasons: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for case in judged:
        by_operation[case.op][case.outcome].append(case.dtype)
        if case.outcome not in ("kernel", "views", "no-oracle"):
            reasons[case.op, OUTCOMES[case.outcome], case.reason.replace("|", "\\|")].append(case.dtype)
    shown = [outcome for outcome in OUTCOMES if counts[outcome]]
    total = f"{len(by_operation)} operations, {len(judged)} cases of an operation and a dtype"
    lines = [
        f"{total}: {', '.join(f'{counts[outcome]} {OUTCOMES[outcome]}' for outcome in shown)}.",
        "",
        *_by_dtype(judged, shown),
        "",
        f"| operation | {' | '.join(OUTCOMES[outcome] for outcome in shown)} |",
        f"| --- |{' --- |' * len(shown)}",
        *(
            f"| `{name}` | {' | '.join(', '.join(cells[outcome]) for outcome in shown)} |"
            for name, cells in sorted(by_operation.items())
        ),
        "",
        "Reasons:",
        "",
        "| operation | dtypes | outcome | reason |",
        "| --- | --- | --- | --- |",
        *(
            f"| `{name}` | {', '.join(dtypes)} | {outcome} | {reason} |"
            for (name, outcome, reason), dtypes in sorted(reasons.items())
        ),
    ]
    return _HEAD + "\n".join(lines) + "\n"


def _by_dtype(judged: Sequence[Case], shown: Sequence[str]) -> Iterator[str]:
    """A table of counts; cases that were not run are those of ``samples.pairs()`` that are not ``judged``."""
    yield f"| dtype | {' | '.join(OUTCOMES[outcome] for outcome in shown)} | not run |"
    yield f"| --- |{' --- |' * len(shown)} --- |"
    all_cases = Counter(dtype for _, dtype in samples.pairs())
    for dtype in samples.DTYPES:
        counts = Counter(case.outcome for case in judged if case.dtype == dtype)
        cells = [counts[outcome] for outcome in shown]
        yield f"| {dtype} | {' | '.join(map(str, [*cells, all_cases[dtype] - sum(cells)]))} |"


if __name__ == "__main__":
    sys.exit(main())
