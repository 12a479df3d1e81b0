"""``python -m tests.conformance.jax_harnesses``: what becomes of each of JAX's cases.

``--mode static`` takes all at their sizes, ``held`` the same with inputs that are constants of the program,
``batched`` those of the published programs of open sizes, ``symbols`` functions that compute with sizes;
``--part I/N`` the I-th of N parts; beginnings of names choose, and ``--without`` leaves out. With
``--record FILE`` outcomes are kept, a line of JSON each, and what is in the file is not run again;
``--seconds`` begins no case after so many.

Status 1 when a result is wrong or a process ended.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from pathlib import Path

import jax

from tests.conformance.jax_functions.drive import driven
from tests.conformance.jax_functions.record import BAD, Record


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.jax_harnesses")
    parser.add_argument("--mode", choices=("static", "held", "batched", "symbols"), default="static")
    parser.add_argument("--part", default="1/1", help="the I-th of N parts of the list")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--without", nargs="*", default=[], help="beginnings of names to leave out")
    parser.add_argument("names", nargs="*", help="beginnings of names")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    from tests.conformance.jax_harnesses import symbols
    from tests.conformance.jax_harnesses.cases import CASES, batched

    lists = {"batched": batched(), "symbols": list(symbols.CASES)}
    names = lists.get(options.mode, list(CASES))
    names = [name for name in names if name.startswith(tuple(options.names or [""]))]
    names = [name for name in names if not name.startswith(tuple(options.without) or ("?",))]
    part, of = map(int, options.part.split("/"))
    names = names[part - 1 :: of]
    record = Record(options.record)
    end = time.monotonic() + options.seconds
    left = [name for name in names if (options.mode, name) not in record.outcomes]
    for outcomes in driven(left, options.mode, "tests.conformance.jax_harnesses.child"):
        record.add(options.mode, outcomes)
        for outcome in outcomes:
            if outcome.how in BAD:
                sys.stdout.write(
                    f"| {outcome.name} | {outcome.what} | {outcome.how} | {outcome.why[:300]} |\n"
                )
                sys.stdout.flush()
        if time.monotonic() > end:
            break
    seen = [
        record.outcomes[options.mode, name][0].how
        for name in names
        if (options.mode, name) in record.outcomes
    ]
    counts = Counter(seen)
    sys.stdout.write(f"{len(seen)} of {len(names)}: {dict(counts)}\n")
    return int(any(counts[how] for how in ("wrong", "error", "crash")))


if __name__ == "__main__":
    sys.exit(main())
