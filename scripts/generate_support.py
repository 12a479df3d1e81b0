"""Writes docs/support.md and the table of ``kcache support``: what compiles, in which dtypes.

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

from tests.ops.generated.judge import OUTCOMES
from tests.ops.generated.ledger import VERSIONS, newest, rows, totals
from tests.ops.generated.seen import CPU, GPU, PROGRAMS, seen
from tests.ops.harness.programs import OpProgram, all_programs
from tests.ops.harness.quantized_violations import quantized_violations
from tests.ops.harness.rejected import REFUSED
from tests.ops.harness.values import ALL, COMPLEX, FLOATS, INTEGERS, SIGNED, UNSIGNED
from tests.ops.harness.violations import violations
from tests.repository.edges import Edge, Outcome, edges

_ROOT = Path(__file__).resolve().parents[1]
PAGE = _ROOT / "docs" / "support.md"
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
# What compiles

Made by `python -m scripts.generate_support write` from the programs that the tests run.

Programs come as StableHLO (with CHLO) or as linalg on tensors. Keys do not depend on this page: a valid
program that `compile` refuses has a key, unless the page says otherwise. `UnsupportedOp` names the op and
where it is. "integers" are i8 to i64 and ui8 to ui64, "signed" and "unsigned" the halves of these, "floats"
are f16, bf16, f32 and f64, "complex" are c64 and c128. Buffers hold these, i1, and elements of 8 bits and
fewer, f8 to f4 and i4 to ui2, which the table leaves out: [small-elements.md](small-elements.md).

## What of a program is refused

`kcache support FILE` says of a program each op that would be refused, how often, where
and why: all of them, where `compile` names the first. It takes StableHLO, linalg and Torch dialect as text
or bytecode, ONNX models, graphs, and what `torch.export.save` wrote (`.pt2`), for any `--target`, and exits
with 0 where all compiles and with 1 where something is refused. `--json` prints the same for programs.
Without FILE it prints the table below.

The service of `--addr` or `KCACHE_ADDR` compiles the program (RPC `CheckProgram`; in Python
`client.support(program)`), without one a process of the command's own, and nothing is kept. Where the program
is refused, it takes
refused nodes of ONNX and ops of the Torch dialect out and goes on with the rest, and compiles each op of
StableHLO alone, then the program without those that are refused. Where that leaves anything unseen it says
so: of linalg it names the first refusal only.

## StableHLO and CHLO, compared with the reference interpreter

Each op below was compiled for a CPU (x86-64) in the dtypes of the second column, under numerics `strict`,
on odd, one-element and empty shapes, with NaN, infinities and signed zeros, and its results agreed with the
reference interpreter's, or with NumPy's where that lacks the op (`batch_norm_*`, `cholesky`, `fft`,
`rng_bit_generator`, `triangular_solve`). The programs are those of `tests/ops/harness/programs.py` and
{programs}
random ones of each op and dtype, which `python -m tests.ops.generated.seen` makes, compares and writes
down in `tests/ops/generated/seen.json` (`python -m tests.ops.generated --programs N --seed S` makes as many
others as one likes, and counts which are right, refused, wrong, or end the process). The third column has
the dtypes in which the random programs were compiled for a GPU (`{gpu}`), and not run. With an asterisk,
some of the programs were refused, or the interpreter could not run them.

{runs}
Some are of one operation, others of up to sixteen that feed each other (`func.composed`,
`func.long_composed`), of branches and loops inside each other (`func.nested`). Which attributes they had in
which dtypes is in [coverage.md](coverage.md).

Sizes may be open (`?`, the symbolic shapes of `jax.export`), and computed of other sizes; what is compiled,
checked when the kernel runs, or refused is in [open-sizes.md](open-sizes.md). `fft` takes
lengths whose prime factors are at most 4096. `rng_bit_generator` gives XLA's bits: its default is Philox.
`einsum` and `unary_einsum` take any letters, twice in an operand or summed over, and no `...`; letters
that one operand alone has are summed first, in its dtype. `rng` gives
the numbers of a Philox whose key is the number of the draw in the program, the same ones in each run.
Quantized elements: [quantization.md](quantization.md).
A dtype that is not listed was not seen to
work, which does not mean that it is refused. How exact the functions are is in
[math-accuracy.md](math-accuracy.md).

{ops}

## Programs that break a constraint

{violations} programs that break one constraint of the specification each (`tests/ops/harness/violations.py`,
`tests/ops/harness/quantized_violations.py`) are
refused with `InvalidProgram` before a key is taken; the message names the operation and what is broken.

## Long chains

What chains of 1,000 operations of one kind take to compile: [compile-time.md](compile-time.md).

## Other StableHLO programs

Each line is one program that a test compiles, or sees refused. Results are not compared.

{stablehlo}

## Linalg

Each line is one program in f32 that a test compiles, or sees refused. Results are not compared.

{linalg}
"""


def page() -> str:
    """The page as the tests have it."""
    found = edges()
    compared, compiled = _seen(CPU), _seen(GPU)
    rows = ((f"`{op}`", _column(compared[op]), _column(compiled[op])) for op in sorted(compared | compiled))
    return _TEXT.format(
        programs={1: "one", 2: "two", 3: "three"}[PROGRAMS],
        gpu=GPU,
        runs=_runs(),
        violations=len(violations()) + len(quantized_violations()),
        ops=_table(("op", "compared on a CPU", f"compiled for `{GPU}`"), rows),
        stablehlo=_outcomes(edge for edge in found if edge.format == "stablehlo"),
        linalg=_outcomes(edge for edge in found if edge.format == "linalg"),
    )


def _runs() -> str:
    """What random programs were run by hand."""
    sums = totals(rows())
    others = ", ".join(f"{sums[name]:,} {name}" for name in OUTCOMES[1:])
    latest = newest(rows())
    made_with = ", ".join(f"{name} {latest[0][name]}" for name in VERSIONS) if latest else ""
    newer = totals(latest)
    rest = ", ".join(f"{newer[name]:,} {name}" for name in OUTCOMES[1:])
    with_these = (
        f"\nOf the newest versions that any run had ({made_with})\n"
        f"there were {newer.total():,} in {len(latest)} runs: "
        f"{newer['right']:,} right, {rest}.\n"
        "The others were run while the compiler and the generator grew."
    )
    return (
        f"By hand {sums.total():,} others were run, in {len(rows())} runs that\n"
        f"`python -m tests.ops.generated.ledger` sums up: {sums['right']:,} right, {others}."
        f"{with_these if latest else ''}"
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
    note = "* some programs in this dtype were refused, or could not be compared"
    return json.dumps({"targets": targets, "note": note, "ops": rows}, indent=1) + "\n"


def _seen(where: str) -> dict[str, set[str]]:
    """Op -> dtypes in which its programs worked; with an asterisk where not all of them did."""
    found: dict[str, set[str]] = defaultdict(set)
    if where == CPU:
        found |= _uses(program for program in all_programs() if program.id not in REFUSED)
    for name in seen():
        if "." in name and not name.startswith("chlo."):
            continue
        op = name if "." in name else f"stablehlo.{name}"
        for dtype, outcome in seen()[name][where].items():
            if outcome == "partly":
                found[op].discard(dtype)
                found[op].add(f"{dtype}*")
            elif outcome == "right":
                found[op].add(dtype)
    return found


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


def _outcomes(found: Iterable[Edge]) -> str:
    order = list(Outcome)
    rows = sorted(found, key=lambda edge: order.index(edge.outcome))
    return _table(("program", "what happens"), ((edge.name, edge.outcome.value) for edge in rows))


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
