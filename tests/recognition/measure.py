"""Measures what is recognized, graph by graph, and prints what was lost as soon as it is known:
``python -m tests.recognition.measure same|different [--count 200] [--graphs NAME ...]``.

The same seeds as the long tests of ``test_same`` and ``test_different``: the same figures.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections import Counter

from tests.recognition import meaning
from tests.recognition.exports.corpus import NAMES, read
from tests.recognition.measured import change, write_differently

FIRST_SEED = 1000


def measure_same(names: list[str], count: int, numerics: str) -> bool:
    """Write each graph ``count`` times; whether all writings have their graph's key."""
    tried, lost = 0, 0
    for name in names:
        result = write_differently(read(name), range(FIRST_SEED, FIRST_SEED + count), numerics)
        print(f"{name}: {result}", *result.lost, sep="\n  lost: ", flush=True)
        tried, lost = tried + result.tried, lost + len(result.lost)
    print(f"same, {numerics}: {tried - lost} of {tried} writings of {len(names)} graphs have the key")
    return not lost


def measure_different(names: list[str], count: int) -> bool:
    """Change the meaning of each graph ``count`` times; whether no change has a key that is not its own."""
    total, kinds, collisions = Counter[str](), Counter[str](), 0
    with meaning.Interpreter() as interpreter:
        for name in names:
            result = change(read(name), count, interpreter, confirm=True)
            print(f"{name}: {result}", *result.collisions, sep="\n  collision: ", flush=True)
            total, kinds, collisions = (
                total + result.count,
                kinds + result.kinds,
                collisions + len(result.collisions),
            )
    print(f"different: {collisions} collisions in {total['different']} changes of {len(names)} graphs")
    print(", ".join(f"{number} {word}" for word, number in total.most_common()))
    print(", ".join(f"{number} {kind}" for kind, number in kinds.most_common()))
    return not collisions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["same", "different"])
    parser.add_argument("--count", type=int, default=200, help="rewrites of each graph")
    parser.add_argument("--numerics", default="default")
    parser.add_argument("--graphs", nargs="+", default=NAMES, choices=NAMES, metavar="NAME")
    options = parser.parse_args()
    if options.what == "same":
        whole = measure_same(options.graphs, options.count, options.numerics)
    else:
        whole = measure_different(options.graphs, options.count)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(f"{sum(u.ru_utime + u.ru_stime for u in used):.0f} s of CPU")
    sys.exit(0 if whole else 1)


if __name__ == "__main__":
    main()
