"""Writes docs/support.md: what compiles, in which dtypes, and what is refused, as the tests have it.

``python -m scripts.generate_support write|check``. A row is true because ``tests/ops/test_ops.py`` runs its
programs against the StableHLO reference interpreter, or because ``tests/house/test_support.py`` compiles it.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.house.edges import Edge, Outcome, edges
from tests.ops.generated.catalog import pairs
from tests.ops.programs import OpProgram, all_programs
from tests.ops.refused import REFUSED
from tests.ops.values import ALL, COMPLEX, FLOATS, INTEGERS, SIGNED, UNSIGNED

PAGE = Path(__file__).resolve().parents[1] / "docs" / "support.md"
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
# What compiles

Made by `python -m scripts.generate_support write` from the programs that the tests run.

Programs come as StableHLO (with CHLO) or as linalg on tensors. Keys do not depend on this page: a valid
program that `compile` refuses has a key, unless the page says otherwise. `UnsupportedOp` names the op and
where it is. "integers" are i8 to i64 and ui8 to ui64, "signed" and "unsigned" the halves of these, "floats"
are f16, bf16, f32 and f64, "complex" are c64 and c128. Buffers hold these and i1, nothing else.

## StableHLO and CHLO, compared with the reference interpreter

`tests/ops` compiles each op below in these dtypes under numerics `strict`, on odd, one-element and empty
shapes, with NaN, infinities and signed zeros, and compares the results with the reference interpreter, or
with NumPy where that lacks the op (`batch_norm_*`, `cholesky`, `fft`, `triangular_solve`). Random programs
of each op are part of it: `python -m tests.ops.generated --programs N --seed S` makes as many as one likes,
and counts which are right, refused, wrong, or end the process. Dynamic ops are those whose sizes the program
states; `fft`, `cholesky`, `triangular_solve` and `batch_norm_*` take fixed sizes only, and `fft` lengths
whose prime factors are at most 4096. `bitcast_convert` of complex numbers to another width is refused.
A dtype that is not listed was not tested, which does not mean that it is refused. How exact the functions are
is in [math-accuracy.md](math-accuracy.md).

{ops}

## Other StableHLO programs

Each line is one program that a test compiles, or sees refused. Results are not compared.

{stablehlo}

## Linalg

Each line is one program in f32 that a test compiles, or sees refused. Results are not compared.

{linalg}
"""


def page() -> str:
    """The page as the tests have it."""
    programs, found = all_programs(), edges()
    passed = _uses(program for program in programs if program.id not in REFUSED)
    for op, dtype in pairs():
        if "." not in op or op.startswith("chlo."):
            passed[op if "." in op else f"stablehlo.{op}"].add(dtype)
    return _TEXT.format(
        ops=_table("op", "dtypes", ((f"`{op}`", _short(passed[op])) for op in sorted(passed))),
        stablehlo=_outcomes(edge for edge in found if edge.format == "stablehlo"),
        linalg=_outcomes(edge for edge in found if edge.format == "linalg"),
    )


def _uses(programs: Iterable[OpProgram]) -> dict[str, set[str]]:
    """Op -> dtypes of the programs that use it."""
    uses: dict[str, set[str]] = defaultdict(set)
    for program in programs:
        for op in _OP.findall(program.text):
            if op != "stablehlo.return":
                uses[op].add(program.dtype)
    return uses


def _short(dtypes: set[str]) -> str:
    """Groups by their names, and what is left."""
    left, parts = set(dtypes), list[str]()
    for name, group in _GROUPS:
        if left.issuperset(group):
            parts.append(name)
            left -= set(group)
    return ", ".join([*parts, *(dtype for dtype in ALL if dtype in left)])


def _outcomes(found: Iterable[Edge]) -> str:
    order = list(Outcome)
    rows = sorted(found, key=lambda edge: order.index(edge.outcome))
    return _table("program", "what happens", ((edge.name, edge.outcome.value) for edge in rows))


def _table(left: str, right: str, rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"| {one} | {other} |" for one, other in ((left, right), ("---", "---"), *rows))


def main(arguments: list[str]) -> int:
    """Run the subcommand of the command line; 1: the page is stale."""
    if arguments == ["write"]:
        PAGE.write_text(page())
        return 0
    if arguments == ["check"]:
        return int(PAGE.read_text() != page())
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
