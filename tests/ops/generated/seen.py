"""What random programs were seen to do, for docs/reference/support.md and ``kcache support``: the file
``seen.json``.

``python -m tests.ops.generated.seen`` makes two programs of every operation and dtype, compares what they
give on this machine with the oracle, compiles them for a GPU, and writes the file; not if anything was wrong.
With names of operations it does so for these, and keeps what the file says of others.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.ops.generated.drive import Case, cases
from tests.ops.generated.operations.catalog import pairs

FILE = Path(__file__).with_name("seen.json")
#: The processors whose results were compared, and the GPU that was only compiled for.
CPU, GPU = "x86-64", "sm_90"
#: The seed and number of programs of each pair; the tests run the first of each.
SEED, PROGRAMS = 2, 2
_BAD = ("wrong", "crash")


@cache
def seen() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """Op -> ``CPU`` or ``GPU`` -> dtype -> ``right``, ``unseen`` (rejected, not comparable) or ``partly``."""
    return json.loads(FILE.read_text())


def measure(target: str, ops: Sequence[str] = ()) -> list[Case]:
    """Every program, or those of ``ops``, compared, or compiled for a target."""
    chosen = pairs(ops)
    return list(cases(chosen, PROGRAMS * len(chosen), SEED, progress=_progress, target=target))


def summary(results: list[Case]) -> dict[str, dict[str, str]]:
    """Operation -> dtype -> what its programs did."""
    outcomes: dict[tuple[str, str], set[str]] = {}
    for case in results:
        outcome = "right" if case.outcome == "right" else "unseen"
        outcomes.setdefault((case.op, case.dtype), set()).add(outcome)
    table: dict[str, dict[str, str]] = {}
    for (op, dtype), each in outcomes.items():
        table.setdefault(op, {})[dtype] = "partly" if len(each) > 1 else each.pop()
    return table


def _progress(done: int) -> None:
    print(f"\r{done}", end="", file=sys.stderr, flush=True)


def main(ops: Sequence[str]) -> int:
    """Measure, and write the file."""
    compared, compiled = measure("", ops), measure(GPU, ops)
    bad = [case for case in compared if case.outcome in (*_BAD, "error")]
    bad += [case for case in compiled if case.outcome in _BAD]
    for case in bad:
        print(f"\n{case.outcome}: {case.op} {case.dtype} number {case.number}: {case.reason}")
    if bad:
        return 1
    write(compared, compiled)
    return 0


def write(compared: list[Case], compiled: list[Case]) -> None:
    """Write what was found to the file, over what it says of the same operations."""
    tables = {CPU: summary(compared), GPU: summary(compiled)}
    rows = dict(seen()) if FILE.exists() else {}
    rows |= {op: {where: table.get(op, {}) for where, table in tables.items()} for op in tables[CPU]}
    text = ",\n".join(f"{json.dumps(op)}: {json.dumps(row)}" for op, row in sorted(rows.items()))
    FILE.write_text(f"{{\n{text}\n}}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
