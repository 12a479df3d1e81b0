"""What recognizing a program costs: canonicalization of stacks of transformer blocks, to 20,000 operations.

``python -m benchmarks.recognition [--json FILE] [--rounds N]``. Times are CPU seconds of one process, on one
thread, from the program's text to the digest of its spec; parsing alone stands beside them.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import time
from pathlib import Path
from typing import Any

from benchmarks.environment import clear_and_restart, description
from benchmarks.rounds import Contender, interleave
from kcache_compiler.canonical import canonicalize
from kcache_compiler.frontends.context import new_context, parse_module, run_passes
from tests.recognition import edit
from tests.recognition.corpus import read

#: Blocks of a stack; each is about 137 operations of the program.
DEPTHS = (1, 8, 36, 73, 146)


def stacked(depth: int) -> tuple[str, int]:
    """Return a stack of transformer blocks, each with weights of its own, and how many operations it has."""
    module = edit.parse(read("transformer_block").texts[1])
    types = [str(argument.type) for argument in edit.body(edit.main_of(module)).arguments]
    block = module.operation.get_asm().replace("func.func public @main", "func.func private @block").rstrip()
    head, body, current = [f"%x: {types[0]}"], [], "%x"
    for layer in range(depth):
        weights = [f"%w{layer}_{index}" for index in range(1, len(types))]
        head += [f"{name}: {type}" for name, type in zip(weights, types[1:], strict=True)]
        call = f"func.call @block({', '.join([current, *weights])}) : ({', '.join(types)}) -> {types[0]}"
        current = f"%y{layer}"
        body.append(f"{current} = {call}")
    body.append(f"return {current} : {types[0]}")
    main = f"func.func public @main({', '.join(head)}) -> {types[0]} {{\n" + "\n".join(body) + "\n}\n"
    module = edit.parse(block.removesuffix("}") + main + "}")
    run_passes(module, "builtin.module(inline,symbol-dce)")
    return module.operation.get_asm(), len(edit.everywhere(module))


def contenders(programs: dict[int, str]) -> dict[str, Contender]:
    """Canonicalizing and parsing each program, by name and depth."""

    def repeated(call: Any) -> Contender:
        def run(count: int) -> float:
            started = time.process_time()
            for _ in range(count):
                call()
            return time.process_time() - started

        return run

    found: dict[str, Contender] = {}
    for depth, text in programs.items():
        found[f"canonicalize {depth}"] = repeated(functools.partial(canonicalize, text.encode(), "stablehlo"))
        found[f"parse {depth}"] = repeated(functools.partial(_parse, text))
    return found


def _parse(text: str) -> None:
    parse_module(text, new_context())


def measure(rounds: int = 5) -> dict[str, Any]:
    """The whole report: seconds by number of operations, and the exponent of the growth of the last steps."""
    made = {depth: stacked(depth) for depth in DEPTHS}
    samples = interleave(
        contenders({depth: text for depth, (text, _) in made.items()}), rounds=rounds, calls=1
    )
    rows: list[dict[str, float]] = []
    for depth, (_, operations) in made.items():
        whole, parsing = samples[f"canonicalize {depth}"], samples[f"parse {depth}"]
        rows.append(
            {
                "operations": operations,
                "seconds": whole.median,
                "low": whole.spread[0],
                "high": whole.spread[1],
                "parsing": parsing.median,
                "us_per_operation": whole.median / operations * 1e6,
            }
        )
    first, last = rows[-3], rows[-1]
    growth = math.log(last["low"] / first["low"]) / math.log(last["operations"] / first["operations"])
    return {"environment": description(), "stacks": rows, "exponent": growth}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the report there")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    report = measure(options.rounds)
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    print("operations   seconds (low to high)   of it parsing   us an operation")
    for row in report["stacks"]:
        spread = f"{row['low']:.3f} to {row['high']:.3f}"
        line = f"{row['operations']:10}   {row['seconds']:.3f} ({spread})   {row['parsing']:13.3f}"
        print(f"{line}   {row['us_per_operation']:15.1f}")
    print(f"time grows as n^{report['exponent']:.2f} over the last steps")


if __name__ == "__main__":
    clear_and_restart("benchmarks.recognition")
    main()
