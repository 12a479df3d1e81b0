"""``python -m tests.ops.generated.again FILE...``: what was not right in a run, after a mend.

FILE is what ``--json`` wrote. Its programs that were wrong or rejected, ended a process or failed are drawn
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
_AGAIN = (*_BAD, "rejected")


def again(summary: dict[str, Any]) -> dict[str, Any]:
    """The summary as it is now."""
    bad = [record for record in summary["others"] if record["outcome"] in _AGAIN]
    kept = [record for record in bad if not forbidden(record["op"], record.get("wish", ""), record["dtype"])]
    asked = [_asked(record, summary["seed"]) for record in kept]
    results = list(these(sorted(asked, key=lambda request: request[0]), summary["level"]))
    outcomes = Counter[str](summary["outcomes"])
    outcomes.subtract(record["outcome"] for record in bad)
    outcomes.update(case.outcome for case in results)
    classes: dict[str, dict[str, list[str]]] = summary["classes"]
    for case in results:
        for kind in case.classes if case.outcome == "right" else ():
            row = classes.setdefault(case.op, {})
            row[kind] = sorted({*row.get(kind, ()), case.dtype})
    others = [record for record in summary["others"] if record["outcome"] not in _AGAIN]
    others += [vars(case) for case in results if case.outcome != "right"]
    counted = {name: count for name, count in outcomes.items() if count}
    return summary | {"programs": sum(counted.values()), "outcomes": counted, "others": others}


def _asked(record: dict[str, Any], seed: int) -> Asked | Wished:
    name = record["op"], record["dtype"], seed, record["number"]
    return (*name, record["wish"]) if record.get("wish") else name


def main(files: list[str]) -> int:
    """Run the command line."""
    bad = 0
    for name in files:
        summary = again(json.loads(Path(name).read_text()))
        Path(name).write_text(json.dumps(summary, indent=1))
        print(name, summary["outcomes"])
        for case in summary["others"]:
            if case["outcome"] in _BAD:
                bad += 1
                print(f"{case['outcome']}: {case['op']} {case['dtype']} {case['number']} {case['reason']}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
