"""``python -m tests.conformance.torch_compile.page FILE...``: writes docs/results/torch-compile.md.

The files are what ``python -m tests.conformance.torch_compile`` printed, of all models or of some each; rows
of the others stay as they are.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.conformance.torch_compile.corpus import MODELS
from tests.conformance.torch_compile.run import Outcome
from tests.conformance.torch_compile.training import LOOPS, Loop

PAGE = Path(__file__).resolve().parents[3] / "docs" / "results" / "torch-compile.md"
FAILED = "**failed**"
_CHECKS = ": it checks indices"
_MODELS = (
    "| model | mode | outputs | gradients | graphs | kernels | operations | traffic | left to PyTorch |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
)
_LOOPS = (
    "| loop | first loss | last loss | largest difference | tolerance |\n| --- | --- | --- | --- | --- |\n"
)


def row(name: str, train: bool, result: Outcome) -> str:
    """The row of a model."""
    graphs = str(result.graphs)
    share, traffic = f"{result.share:.1%}", f"{result.traffic_share:.1%}"
    left = _left_out(result.left_out)
    if not result.graphs:
        share, traffic, left = "-", "-", "Dynamo does not trace it"
    gradients = f"{result.gradient_error:.1e}" if train else ""
    if result.wrong:
        left = f"{FAILED}: {result.wrong}; {left}"
    cells = (
        name,
        _mode(train),
        f"{result.error:.1e}",
        gradients,
        graphs,
        str(result.kernels),
        share,
        traffic,
    )
    return f"| {' | '.join(cells)} | {left} |"


def _left_out(counts: Mapping[str, int]) -> str:
    """What is left to PyTorch; checks of indices, which are several operators each, by their number."""
    texts = [
        f"{count} x {_short(reason)}" for reason, count in counts.items() if not reason.endswith(_CHECKS)
    ]
    checks = sum(count for reason, count in counts.items() if reason.endswith(_CHECKS))
    return "; ".join([*texts, *([f"{checks} operators{_CHECKS}"] if checks else [])])


def failure(name: str, train: bool, error: Exception) -> str:
    """The row of a model for which something raised."""
    text = " ".join(str(error).split())[:200].replace("|", "/")
    return f"| {name} | {_mode(train)} | | | | | | | {FAILED}: {type(error).__name__}: {text} |"


def loop_row(name: str, loop: Loop, apart: float, losses: Sequence[float]) -> str:
    """The row of a training loop."""
    verdict = "" if apart <= loop.tolerance else f" {FAILED}"
    return f"| {name} | {losses[0]:.4f} | {losses[-1]:.4f} | {apart:.1e}{verdict} | {loop.tolerance:.0e} |"


def _mode(train: bool) -> str:
    return "training" if train else "inference"


def _short(reason: str) -> str:
    operator, _, why = reason.partition(": ")
    return f"`{operator}`: {why.replace('|', '/')[:80]}"


def write(lines: Iterable[str]) -> None:
    """Write the tables, in the order of the models."""
    text, missing = with_rows(PAGE.read_text(), lines)
    PAGE.write_text(text)
    if missing:
        sys.stderr.write(f"no rows: {', '.join(missing)}\n")


def with_rows(text: str, lines: Iterable[str]) -> tuple[str, list[str]]:
    """The page ``text`` with the rows among ``lines``, and the names that have no row.

    A row replaces that of the same name and mode. Rows of other tables, which may name the same models, are
    neither read nor changed.
    """
    new = [line for line in lines if line.startswith("| ")]
    missing: set[str] = set()
    for heading, names in ((_MODELS, list(MODELS)), (_LOOPS, list(LOOPS))):
        old = re.findall(_table(heading), text)
        rows = {_case(line): line for line in (*"".join(old).splitlines()[2:], *new)}
        chosen = [row for name in names for (each, _), row in sorted(rows.items()) if each == name]
        missing |= set(names) - {name for name, _ in rows}
        text = re.sub(_table(heading), lambda _, table=(heading, chosen): _written(*table), text)
    return text, sorted(missing)


def _case(line: str) -> tuple[str, str]:
    """The name of a row, and its mode if it has one."""
    name, second = line.removeprefix("| ").split(" | ")[:2]
    return name, second if name in MODELS else ""


def _table(heading: str) -> str:
    """A regular expression of a table of this heading."""
    return re.escape(heading) + r"(?:\|.*\n)*"


def _written(heading: str, rows: Sequence[str]) -> str:
    return heading + "".join(f"{row}\n" for row in rows)


def main() -> None:
    """Run the command line."""
    write(line for name in sys.argv[1:] for line in Path(name).read_text().splitlines())


if __name__ == "__main__":
    main()
