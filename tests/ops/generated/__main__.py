"""``python -m tests.ops.generated --programs N --seed S``: what became of about N programs.

``--op`` and ``--dtype`` choose, ``--aim SUMMARY...`` draws programs that hit what the runs of these summaries
have not hit. ``--relaxed`` compiles them under the numerics ``default``,
``--level`` is the optimization level, ``--json`` a file for a summary, which
``python -m tests.ops.generated.coverage`` reads. With ``--seconds`` no batch begins after so many. Fewer
programs than there are pairs of operation and dtype are of pairs that the seed draws.

Status 1 when a result is wrong, a process crashed, or a stage failed without naming the operation.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
from collections import Counter
from pathlib import Path

from kcache_compiler.passes.math import VERSION as MATH_VERSION
from kcache_compiler.spec import CANONICALIZER_VERSION
from kcache_compiler.versions import CODE_VERSION
from tests.ops.generated import coverage
from tests.ops.generated.drive import Case, cases, these
from tests.ops.generated.judge import OUTCOMES
from tests.ops.generated.operations.catalog import VERSION, drawn, pairs

_BAD = ("wrong", "crash", "error")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.ops.generated")
    parser.add_argument("--programs", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--op", nargs="*", default=())
    parser.add_argument("--dtype", nargs="*", default=())
    parser.add_argument("--level", type=int, default=1, help="optimization level")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--aim", nargs="*", type=Path, help="programs that hit what these summaries lack")
    parser.add_argument("--relaxed", action="store_true", help="numerics default, within its bounds")
    options = parser.parse_args()
    results: list[Case] = []
    table: dict[tuple[str, str], Counter[str]] = {}
    chosen = drawn(pairs(options.op, options.dtype), options.programs, options.seed)
    module = f"tests.ops.generated.{'relaxed' if options.relaxed else 'child'}"
    if options.aim is not None:
        hits: coverage.Hits = {}
        for file in options.aim:
            hits = coverage.add(hits, json.loads(file.read_text())["classes"])
        asked = coverage.aimed(hits, options.programs, options.seed, options.op)
        stream = these(asked, options.level, progress=_progress, module=module)
    else:
        stream = cases(chosen, options.programs, options.seed, options.level, _progress, module=module)
    end = time.monotonic() + options.seconds
    for case in itertools.takewhile(lambda _: time.monotonic() < end, stream):
        results.append(case)
        table.setdefault((case.op, case.dtype), Counter())[case.outcome] += 1
        if case.outcome in _BAD:
            name = f"{case.op} {case.dtype} number {case.number} {case.wish}".rstrip()
            print(f"\n{case.outcome}: {name}\n{case.reason}", flush=True)
    _print(table, results)
    if options.json is not None:
        options.json.write_text(json.dumps(_summary(options.seed, options.level, table, results), indent=1))
    return int(any(case.outcome in _BAD for case in results))


def _progress(done: int) -> None:
    print(f"\r{done}", end="", file=sys.stderr, flush=True)


def _print(table: dict[tuple[str, str], Counter[str]], results: list[Case]) -> None:
    print()
    for (op, dtype), counts in table.items():
        if set(counts) != {"right"}:
            print(
                f"{op:32} {dtype:5} {' '.join(f'{name}={counts[name]}' for name in OUTCOMES if counts[name])}"
            )
    whole = Counter(case.outcome for case in results)
    print(f"{len(results)} programs:", ", ".join(f"{whole[name]} {name}" for name in OUTCOMES))
    reasons = Counter(
        (case.op, case.reason.split("\n")[0][:110]) for case in results if case.outcome == "rejected"
    )
    for (op, reason), count in reasons.most_common(60):
        print(f"{count:6} {op}: {reason}")


def _summary(
    seed: int, level: int, table: dict[tuple[str, str], Counter[str]], results: list[Case]
) -> dict[str, object]:
    return {
        "seed": seed,
        "level": level,
        "generator": VERSION,
        "code": CODE_VERSION,
        "canonicalizer": CANONICALIZER_VERSION,
        "math": int(MATH_VERSION),
        "programs": len(results),
        "outcomes": dict(Counter(case.outcome for case in results)),
        "table": [{"op": op, "dtype": dtype, **counts} for (op, dtype), counts in table.items()],
        "others": [vars(case) for case in results if case.outcome != "right"],
        "classes": _classes(results),
    }


def _classes(results: list[Case]) -> dict[str, dict[str, list[str]]]:
    """Operation -> class -> dtypes of the programs that were right."""
    dtypes_by_class: dict[str, dict[str, set[str]]] = {}
    for case in results:
        for kind in case.classes if case.outcome == "right" else ():
            dtypes_by_class.setdefault(case.op, {}).setdefault(kind, set()).add(case.dtype)
    return {
        op: {kind: sorted(dtypes) for kind, dtypes in rows.items()} for op, rows in dtypes_by_class.items()
    }


if __name__ == "__main__":
    sys.exit(main())
