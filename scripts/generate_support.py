"""Writes docs/reference/support.md and the table of ``kcache support``: what compiles, in which dtypes.

``python -m scripts.generate_support write|check``. A row is true because ``tests/ops/test_ops.py`` runs its
programs against the StableHLO reference interpreter, because ``python -m tests.ops.generated.seen`` saw it,
or because ``tests/repository/test_support.py`` compiles it.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.ops.generated.seen import CPU, GPU, PROGRAMS, seen
from tests.ops.harness.programs import OpProgram, all_programs
from tests.ops.harness.quantized_violations import quantized_violations
from tests.ops.harness.rejected import REJECTED
from tests.ops.harness.values import ALL, COMPLEX, FLOATS, INTEGERS, SIGNED, UNSIGNED
from tests.ops.harness.violations import violations
from tests.repository.edges import Edge, Outcome, edges

_ROOT = Path(__file__).resolve().parents[1]
PAGE = _ROOT / "docs" / "reference" / "support.md"
TABLE = _ROOT / "kcache_grpc" / "cli" / "commands" / "support_table.json"
#: An op; attributes (``#stablehlo.gather<...>``) are none.
_OP = re.compile(r"(?<![#\w])(?:stablehlo|chlo)\.\w+")
_GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("all", ALL),
    ("integers", INTEGERS),
    ("signed", SIGNED),
    ("unsigned", UNSIGNED),
    ("floats", FLOATS),
    ("complex", COMPLEX),
)

_TEXT = """\
# Operations and dtypes

This page lists the operations and dtypes that compile. `python -m scripts.generate_support write` writes it
from the programs that the tests run.

Programs are StableHLO (with CHLO) or linalg on tensors. A valid program has a key even if it does not
compile. `UnsupportedOp` names the operation and its location;
[unsupported programs](../guide/unsupported.md) explains how to list all unsupported operations of a program.
In the tables, "integers" are i8 to i64 and ui8 to ui64,
"signed" and "unsigned" are subsets of these, "floats" are f16, bf16, f32 and f64, and "complex" are c64 and
c128. [Narrow types](../guide/narrow-types.md) describes f8 to f4 and i4 to ui2.

## StableHLO and CHLO, compared with the reference interpreter

Each operation was compiled for a CPU (x86-64) in the dtypes of the second column, under numerics `strict`. It
was run on odd, one-element and empty shapes, with NaN, infinities and signed zeros. Its results agreed with
those of the reference interpreter, or with NumPy for operations that the interpreter lacks (`batch_norm_*`,
`cholesky`, `fft`, `rng_bit_generator`, `triangular_solve`). The programs are those of
`tests/ops/harness/programs.py`, and
{programs}
random programs of each operation and dtype (`python -m tests.ops.generated.seen`, recorded in
`tests/ops/generated/seen.json`). [Generated programs](../results/generated-programs.md) lists the attributes
that more random programs covered. The third column has the dtypes in which the random programs were compiled
for a GPU (`{gpu}`), but not run. An asterisk means that some of the programs were rejected, or could not be
compared. A dtype that is not listed was not tested.

- Shapes may be dynamic: [dynamic shapes](../guide/dynamic-shapes.md).
- `fft` takes lengths whose prime factors are at most 4096.
- `rng_bit_generator` returns the same bits as XLA; its default algorithm is Philox. `rng` returns values of a
  Philox generator whose key is the index of the operation in the program; they are the same in each run.
- `einsum` and `unary_einsum` accept all letters, including letters that are repeated in an operand or summed
  over, but no `...`. Letters of only one operand are summed first, in the dtype of the operand.
- See also [quantization](../guide/quantization.md), [error bounds](../results/math-accuracy.md) and
  [compile time](../results/compile-time.md).

{ops}

## Programs that violate a constraint

The tests have {violations} programs, each of which violates one constraint of the specification
(`tests/ops/harness/violations.py`, `tests/ops/harness/quantized_violations.py`). Each program raises
`InvalidProgram` before a key is assigned; the message names the operation and the constraint.

## Other StableHLO programs

Each row is one program that a test compiles or finds unsupported. The tests do not compare results.

{stablehlo}

## Linalg

Each row is one program in f32 that a test compiles or finds unsupported. The tests do not compare results.

{linalg}
"""


def page() -> str:
    """The page as the tests have it."""
    all_edges = edges()
    compared, compiled = _seen(CPU), _seen(GPU)
    rows = ((f"`{op}`", _column(compared[op]), _column(compiled[op])) for op in sorted(compared | compiled))
    return _TEXT.format(
        programs={1: "one", 2: "two", 3: "three"}[PROGRAMS],
        gpu=GPU,
        violations=len(violations()) + len(quantized_violations()),
        ops=_table(("op", "compared on a CPU", f"compiled for `{GPU}`"), rows),
        stablehlo=_outcomes(edge for edge in all_edges if edge.format == "stablehlo"),
        linalg=_outcomes(edge for edge in all_edges if edge.format == "linalg"),
    )


def table() -> str:
    """What ``kcache support`` lists, as JSON."""
    compared, compiled = _seen(CPU), _seen(GPU)
    targets = {
        CPU: "dtypes whose results agreed with the reference interpreter's, on a CPU",
        GPU: "dtypes that were compiled for a GPU, and not run",
    }
    ops = sorted(compared | compiled)
    rows = [{"op": op, CPU: _sorted(compared[op]), GPU: _sorted(compiled[op])} for op in ops]
    note = "* some programs in this dtype were rejected, or could not be compared"
    return json.dumps({"targets": targets, "note": note, "ops": rows}, indent=1) + "\n"


def _seen(where: str) -> dict[str, set[str]]:
    """Op -> dtypes in which its programs worked; with an asterisk where not all of them did."""
    dtypes: dict[str, set[str]] = defaultdict(set)
    if where == CPU:
        dtypes |= _uses(program for program in all_programs() if program.id not in REJECTED)
    for name in seen():
        if "." in name and not name.startswith("chlo."):
            continue
        op = name if "." in name else f"stablehlo.{name}"
        for dtype, outcome in seen()[name][where].items():
            if outcome == "partly":
                dtypes[op].discard(dtype)
                dtypes[op].add(f"{dtype}*")
            elif outcome == "right":
                dtypes[op].add(dtype)
    return dtypes


def _uses(programs: Iterable[OpProgram]) -> dict[str, set[str]]:
    """Op -> dtypes of the programs that are for it; for ops without random programs, of all that use it."""
    uses: dict[str, set[str]] = defaultdict(set)
    for program in programs:
        for op in _OP.findall(program.text):
            name = op.removeprefix("stablehlo.")
            if op != "stablehlo.return" and (name == program.op or name not in seen()):
                uses[op].add(program.dtype)
    return uses


def _short(dtypes: set[str]) -> str:
    """Groups by their names, and what is left."""
    left, parts = {dtype for dtype in dtypes if not dtype.endswith("*")}, list[str]()
    for name, group in _GROUPS:
        if left.issuperset(group):
            parts.append(name)
            left -= set(group)
    return ", ".join([*parts, *(dtype for dtype in ALL if dtype in left), *_partly(dtypes)])


def _column(dtypes: set[str]) -> str:
    return _short(dtypes) or "-"


def _partly(dtypes: set[str]) -> list[str]:
    return [f"{dtype}*" for dtype in ALL if f"{dtype}*" in dtypes]


def _sorted(dtypes: set[str]) -> list[str]:
    return [*(dtype for dtype in ALL if dtype in dtypes), *_partly(dtypes)]


def _outcomes(selected: Iterable[Edge]) -> str:
    order = list(Outcome)
    rows = sorted(selected, key=lambda edge: order.index(edge.outcome))
    return _table(("program", "outcome"), ((edge.name, edge.outcome.value) for edge in rows))


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


def main(arguments: list[str]) -> int:
    """Run the subcommand of the command line; 1: the page is stale."""
    if arguments == ["write"]:
        PAGE.write_text(page())
        TABLE.write_text(table())
        return 0
    if arguments == ["check"]:
        return int(PAGE.read_text() != page() or TABLE.read_text() != table())
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
