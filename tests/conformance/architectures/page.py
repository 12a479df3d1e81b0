"""``python -m tests.conformance.architectures.page FILE...``: writes the table of
docs/results/pytorch-models.md.

The files are what ``python -m tests.conformance.architectures`` printed, of all models or of some each.
Every model must
be there, and right.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.conformance.architectures.corpus import MODELS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "results" / "pytorch-models.md"
_HEAD = "| model | parameters | largest difference | seconds to compile |\n| --- | --- | --- | --- |\n"
_ROW = re.compile(r"\| ([^|]+) \| (\d+) \| right *\| ([^|]+) \| [\d.]+ \| ([\d.]+) \|")
_TABLE = re.compile(r"\| model \| parameters .*?(?=\n\n)", re.DOTALL)


def table(texts: Iterable[str]) -> str:
    """The page's table. Raises ``SystemExit`` where a model is missing or not right."""
    rows_by_name = {match[1]: match for text in texts for match in _ROW.finditer(text)}
    missing = [name for name in MODELS if name not in rows_by_name]
    if missing:
        raise SystemExit(f"not right, or not there: {', '.join(missing)}")
    rows = (
        f"| {name} | {int(rows_by_name[name][2]):,} | {rows_by_name[name][3]} | {rows_by_name[name][4]} |"
        for name in MODELS
    )
    return _HEAD + "\n".join(rows)


def main() -> None:
    new_table = table(Path(name).read_text() for name in sys.argv[1:])
    text = PAGE.read_text()
    assert _TABLE.search(text) is not None
    PAGE.write_text(_TABLE.sub(lambda _: new_table, text, count=1))


if __name__ == "__main__":
    main()
