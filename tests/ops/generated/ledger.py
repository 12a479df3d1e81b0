"""What was run by hand, in ``ledger.json``: a row a run of ``python -m tests.ops.generated``.

``python -m tests.ops.generated.ledger add FILE...`` adds what ``--json`` wrote, a run again in place of the
same one before; without arguments it prints the sums.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.ops.generated import coverage
from tests.ops.generated.judge import OUTCOMES

FILE = Path(__file__).with_name("ledger.json")
Row = dict[str, int]
#: What a run was made with: the generator, and the versions that a change of compiled code raises. Rows that
#: do not name them are of older ones.
VERSIONS = ("generator", "code", "canonicalizer", "math")


def rows() -> list[Row]:
    """Seed, optimization level, versions, number of programs and their outcomes, of each run."""
    return json.loads(FILE.read_text()) if FILE.exists() else []


def totals(found: list[Row]) -> Counter[str]:
    """The sum of all runs by outcome."""
    return sum((Counter({name: row.get(name, 0) for name in OUTCOMES}) for row in found), Counter[str]())


def newest(found: list[Row]) -> list[Row]:
    """The rows of the newest generator, compiler, canonicalizer and math library that any row names."""
    made = [_made_with(row) for row in found]
    return [row for row, versions in zip(found, made, strict=True) if any(versions) and versions == max(made)]


def _made_with(row: Row) -> tuple[int, ...]:
    return tuple(row.get(name, 0) for name in VERSIONS)


def told(name: str, found: list[Row]) -> str:
    """A line of sums."""
    sums = totals(found)
    return f"{name}: {sums.total():,} programs in {len(found)} runs: " + ", ".join(
        f"{sums[one]:,} {one}" for one in OUTCOMES
    )


def add(found: list[Row], summary: dict[str, Any]) -> list[Row]:
    """``found`` with one more run."""
    outcomes: dict[str, int] = summary["outcomes"]
    row: Row = {"seed": summary["seed"], "level": summary["level"]}
    row |= {name: summary[name] for name in VERSIONS if name in summary}
    row |= {"programs": summary["programs"]} | outcomes
    others = [one for one in found if (one["seed"], one["level"]) != (row["seed"], row["level"])]
    return sorted([*others, row], key=lambda one: (one["level"], one["seed"]))


def main(arguments: list[str]) -> int:
    """Run the command line."""
    found = rows()
    if arguments[:1] == ["add"]:
        for name in arguments[1:]:
            summary = json.loads(Path(name).read_text())
            found = add(found, summary)
            coverage.save(coverage.add(coverage.hits(), summary.get("classes", {})))
        FILE.write_text("[\n" + ",\n".join(json.dumps(row) for row in found) + "\n]\n")
    elif arguments:
        print(__doc__)
        return 2
    print(told("all", found))
    latest = newest(found)
    made_with = (
        ", ".join(f"{name} {latest[0].get(name, 0)}" for name in VERSIONS) if latest else "no versions"
    )
    print(told(made_with, latest))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
