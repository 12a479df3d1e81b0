"""The command ``kcache``. Commands import what they need when they run, so that ``--help`` stays quick."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; ``arguments`` default to those of the process."""
    from kcache_grpc.cli.app import run

    return run(list(sys.argv[1:] if arguments is None else arguments))


__all__ = ["main"]
