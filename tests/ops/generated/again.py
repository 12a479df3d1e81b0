"""``python -m tests.ops.generated.again FILE...``: what was not right in a run, after a mend.

FILE is what ``--json`` wrote. Its programs that were wrong or refused, ended a process or failed are drawn
and run again, and the file says then what became of them; those of classes that ``stated.py`` forbids are
left out of it. Status 1 where one is wrong yet.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.ops.generated.drive import Asked, Wished, these
from tests.ops.generated.structure.stated import forbidden

_BAD = ("wrong", "crash", "error")
_AGAIN = (*_BAD, "refused")


def again(summary: dict[str, Any]) -> dict[str, Any]:
    """The summary as it is now."""
    bad = [one for one in summary["others"] if one["outcome"] in _AGAIN]
    kept = [one for one in bad if not forbidden(one["op"], one.get("wish", ""), one["dtype"])]
    asked = [_asked(one, summary["seed"]) for one in kept]
    found = list(these(sorted(asked, key=lambda one: one[0]), summary["level"]))
    outcomes = Counter[str](summary["outcomes"])
    outcomes.subtract(one["outcome"] for one in bad)
    outcomes.update(case.outcome for case in found)
    classes: dict[str, dict[str, list[str]]] = summary["classes"]
    for case in found:
        for kind in case.classes if case.outcome == "right" else ():
            row = classes.setdefault(case.op, {})
            row[kind] = sorted({*row.get(kind, ()), case.dtype})
    others = [one for one in summary["others"] if one["outcome"] not in _AGAIN]
    others += [vars(case) for case in found if case.outcome != "right"]
    counted = {name: count for name, count in outcomes.items() if count}
    return summary | {"programs": sum(counted.values()), "outcomes": counted, "others": others}


def _asked(one: dict[str, Any], seed: int) -> Asked | Wished:
    name = one["op"], one["dtype"], seed, one["number"]
    return (*name, one["wish"]) if one.get("wish") else name


def main(files: list[str]) -> int:
    """Run the command line."""
    bad = 0
    for name in files:
        summary = again(json.loads(Path(name).read_text()))
        Path(name).write_text(json.dumps(summary, indent=1))
        print(name, summary["outcomes"])
        for one in summary["others"]:
            if one["outcome"] in _BAD:
                bad += 1
                print(f"{one['outcome']}: {one['op']} {one['dtype']} {one['number']} {one['reason']}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
