"""Writes docs/support.md: which ops compile in which dtypes, as the differential tests have it.

``python -m scripts.generate_support write|check``. A row is true because ``tests/ops/test_ops.py`` runs each
of its programs against the StableHLO reference interpreter, or sees it refused with ``UnsupportedOp``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.ops.programs import all_programs
from tests.ops.refused import REFUSED
from tests.ops.values import ALL

PAGE = Path(__file__).resolve().parents[1] / "docs" / "support.md"
_HEAD = """# Ops and dtypes

Made by `python -m scripts.generate_support write` from the programs of `tests/ops`, each of which is compiled
and compared with the StableHLO reference interpreter, or refused with `UnsupportedOp`. `yes`: agrees; `no`:
refused; empty: no program, and often no meaning. Names without a prefix are StableHLO's; `shape_ops` are
broadcast_in_dim, transpose, reshape, slice, pad, concatenate and reverse; `results` are programs with several
results. An op that is not listed is refused, or legalized by the toolchain without a test of ours.

"""


def page() -> str:
    """The whole text of the page."""
    found: dict[str, dict[str, bool]] = {}
    for program in all_programs():
        row = found.setdefault(program.op, {})
        row[program.dtype] = row.get(program.dtype, True) and program.id not in REFUSED
    lines = [f"| op | {' | '.join(ALL)} |", f"| --- |{' --- |' * len(ALL)}"]
    for op, row in sorted(found.items()):
        cells = [{True: "yes", False: "no", None: ""}[row.get(dtype)] for dtype in ALL]
        lines.append(f"| `{op}` | {' | '.join(cells)} |")
    return _HEAD + "\n".join(lines) + "\n"


def main() -> int:
    """Writes the page, or says whether it is what would be written."""
    if sys.argv[1:] == ["write"]:
        PAGE.write_text(page())
        return 0
    if sys.argv[1:] == ["check"]:
        fresh = PAGE.exists() and PAGE.read_text() == page()
        print(
            "docs/support.md: "
            + ("fresh" if fresh else "stale; run: python -m scripts.generate_support write")
        )
        return 0 if fresh else 1
    print((__doc__ or "").strip(), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
