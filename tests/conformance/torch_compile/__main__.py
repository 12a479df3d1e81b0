"""``python -m tests.conformance.torch_compile [NAME...]``: models and training loops beside eager mode.

Writes rows of the tables of docs/results/torch-compile.md to standard output, and the page with ``--write``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conformance.torch_compile import page
from tests.conformance.torch_compile.corpus import MODELS
from tests.conformance.torch_compile.run import outcome
from tests.conformance.torch_compile.training import LOOPS, difference
from tests.serving import ServerProcess


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.torch_compile")
    parser.add_argument("names", nargs="*", default=[*MODELS, *LOOPS])
    parser.add_argument("--write", action="store_true", help="write the tables of the page")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder)) as server:
        options = {"address": server.address, "warm_start": False}
        for name in arguments.names:
            for line in _rows(name, options):
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()
                lines.append(line)
    if arguments.write:
        page.write(lines)
    return 1 if any(page.FAILED in line for line in lines) else 0


def _rows(name: str, options: dict[str, Any]) -> Iterator[str]:
    if name in LOOPS:
        apart, losses = difference(LOOPS[name], options)
        yield page.loop_row(name, LOOPS[name], apart, losses)
        return
    model = MODELS[name]
    if model.missing:
        sys.stderr.write(f"{name}: {model.missing}\n")
        return
    for train in (False, True) if model.trains else (False,):
        yield _row(name, train, options)


def _row(name: str, train: bool, options: dict[str, Any]) -> str:
    try:
        return page.row(name, train, outcome(name, MODELS[name], train, options))
    except Exception as error:  # a failure is a row
        return page.failure(name, train, error)


if __name__ == "__main__":
    sys.exit(main())
