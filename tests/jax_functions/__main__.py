"""``python -m tests.jax_functions [--part I/N] [NAME...]``: what becomes of each function, and the share."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.jax_functions.run import FUNCTIONS, outcomes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.jax_functions")
    parser.add_argument("--part", default="1/1", help="the I-th of N parts of the list")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    part, of = map(int, given.part.split("/"))
    names: list[str] = given.names or list(FUNCTIONS)[part - 1 :: of]
    counts: Counter[tuple[str, str]] = Counter()
    bad: set[str] = set()
    for found in outcomes(names):
        counts[found.what, found.how] += 1
        if found.how in ("wrong", "refused"):
            bad.add(found.name)
            sys.stdout.write(f"| {found.name} | {found.what} | {found.how} | {found.why[:300]} |\n")
            sys.stdout.flush()
    for what in ("forward", "gradient"):
        listed = ", ".join(f"{how} {n}" for (w, how), n in sorted(counts.items()) if w == what)
        sys.stdout.write(f"{what}: {listed}\n")
    share = 1 - len(bad) / len(names)
    sys.stdout.write(f"{len(names) - len(bad)} of {len(names)} functions right, {share:.1%}\n")
    return 1 if any(how == "wrong" for _, how in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
