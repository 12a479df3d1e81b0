"""``python -m tests.conformance.architectures [NAME...]``: every model, and how far its results are from
eager mode.

A server compiles them; with ``--in-process`` this process does, as a worker would.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kcache_grpc as kcache
from tests.conformance.architectures.corpus import MODELS
from tests.conformance.architectures.run import InProcess, outcome
from tests.serving import ServerProcess


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.architectures")
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--in-process", action="store_true")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    sys.stdout.write("| model | parameters | result | difference | export s | compile s |\n")
    sys.stdout.write("| --- | --- | --- | --- | --- | --- |\n")
    with contextlib.nullcontext(InProcess()) if options.in_process else _served() as client:
        for name in options.names:
            result = outcome(client, name)
            counts[result.how] += 1
            sys.stdout.write(
                f"| {name} | {result.parameters} | {result.how} {result.why[:300]} | {result.apart:.1e} | "
                f"{result.export_s:.1f} | {result.compile_s:.1f} |\n"
            )
            sys.stdout.flush()
    sys.stdout.write(f"\n{dict(counts)}\n")
    return 0 if set(counts) <= {"right"} else 1


@contextlib.contextmanager
def _served() -> Iterator[Any]:
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder, "cache")
        cache.mkdir(mode=0o700)
        server = ServerProcess(Path(folder))
        with server, kcache.Client(server.address, cache_dir=cache) as client:
            yield client


if __name__ == "__main__":
    sys.exit(main())
