"""``python -m tests.linalg_programs --programs 300 --seed 1``: draws programs, compiles and compares them.

Each is judged in this process; ``--first`` says with which number to go on after a crash. The status is 1
when a result is wrong or a stage fails without naming an operation.
"""

from __future__ import annotations

import argparse
import sys

from tests.linalg_programs.judge import judge, program


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.linalg_programs")
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first program")
    asked = parser.parse_args()
    counts: dict[str, int] = {}
    for number in range(asked.first, asked.first + asked.programs):
        verdict = judge(asked.seed, number)
        counts[verdict.outcome] = counts.get(verdict.outcome, 0) + 1
        if verdict.outcome != "right":
            text = program(asked.seed, number)[0] if verdict.outcome == "wrong" else ""
            print(f"{number}: {verdict.outcome}: {verdict.reason}\n{text}", flush=True)
    print(counts)
    return int(bool({"wrong", "error"} & counts.keys()))


if __name__ == "__main__":
    sys.exit(main())
