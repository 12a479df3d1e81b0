"""What recognizing a program costs: canonicalization of programs of 1,000 to 50,000 operations.

``python -m benchmarks.recognition [--json FILE] [--rounds N]``. Times are CPU seconds of one process, on one
thread, from the program's text to the digest of its spec: checks of the bytes, parsing and verifying, shape
erasure, the graph, its text. Reading the program alone stands beside them.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.environment import clear_and_restart, description
from benchmarks.rounds import Contender, interleave
from kcache_compiler.frontends.limits import Limits
from kcache_compiler.frontends.program import read_program
from kcache_compiler.mlir.context import run_passes
from kcache_compiler.spec import canonicalize
from tests.recognition.exports.corpus import read
from tests.recognition.mutations import edit

#: About how many operations the programs of each kind have.
SIZES = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000)


def blocks(size: int, graph: str, stacked: bool) -> str:
    """Return copies of a graph of the corpus, each with arguments of its own: one behind the other, where the
    first result is what the first argument was, or side by side.
    """
    module = edit.parse(read(graph).texts[1])
    copies = max(1, round(size / len(edit.everywhere(module))))
    arguments = [str(argument.type) for argument in edit.body(edit.main_of(module)).arguments]
    results = [str(type) for type in edit.main_of(module).attributes["function_type"].value.results]
    asm, dialect, resources = module.operation.get_asm().partition("\n{-#")
    block = re.sub(r"func\.func (public )?@main", "func.func private @block", asm).rstrip()
    head, body, returned, first = [f"%x: {arguments[0]}"], [], list[str](), "%x"
    for copy in range(copies):
        names = [f"%w{copy}_{index}" for index in range(1, len(arguments))]
        head += [f"{name}: {type}" for name, type in zip(names, arguments[1:], strict=True)]
        call = f"func.call @block({', '.join([first, *names])}) : ({', '.join(arguments)}) -> "
        body.append(f"%y{copy}:{len(results)} = {call}({', '.join(results)})")
        fresh = [f"%y{copy}#{index}" for index in range(len(results))]
        first, returned = (fresh[0], fresh) if stacked else ("%x", [*returned, *fresh])
    types = ", ".join(results * (len(returned) // len(results)))
    body.append(f"return {', '.join(returned)} : {types}")
    main = f"func.func public @main({', '.join(head)}) -> ({types}) {{\n" + "\n".join(body) + "\n}\n"
    module = edit.parse(block.removesuffix("}") + main + "}" + dialect + resources)
    run_passes(module, "builtin.module(inline,symbol-dce)")
    return module.operation.get_asm()


def chain(size: int) -> str:
    """Return operations of which each reads the one before."""
    rng, type = random.Random(1), "tensor<8x16xf32>"
    lines, last, before = [f"func.func public @main(%a: {type}, %b: {type}) -> {type} {{"], "%a", "%b"
    for index in range(size):
        if rng.random() < 0.4:
            op, operands = rng.choice(["tanh", "exponential", "negate"]), [last]
        else:
            op = rng.choice(["add", "multiply", "subtract", "maximum", "divide"])
            operands = rng.choice([[last, before], [last, "%b"], ["%a", last]])
        lines.append(f"%v{index} = stablehlo.{op} {', '.join(operands)} : {type}")
        before, last = last, f"%v{index}"
    return "\n".join([*lines, f"return {last} : {type}\n}}"])


def wide(size: int) -> str:
    """Return columns of a broadcast, two operations and a transpose, added up as a tree."""
    rng, count = random.Random(2), 64
    matrix, vector, turned = "tensor<32x16xf32>", "tensor<16xf32>", "tensor<16x32xf32>"
    spread = f"({vector}) -> {matrix}"
    head = [f"%a{i}: {matrix}, %c{i}: {vector}" for i in range(count)]
    lines, level = [f"func.func public @main({', '.join(head)}) -> {turned} {{"], list[str]()
    for i in range(size // 5):
        binary, unary = rng.choice(["add", "multiply", "subtract"]), rng.choice(["tanh", "sine", "logistic"])
        lines += [
            f"%b{i} = stablehlo.broadcast_in_dim %c{rng.randrange(count)}, dims = [1] : {spread}",
            f"%x{i} = stablehlo.{binary} %a{rng.randrange(count)}, %b{i} : {matrix}",
            f"%u{i} = stablehlo.{unary} %x{i} : {matrix}",
            f"%t{i} = stablehlo.transpose %u{i}, dims = [1, 0] : ({matrix}) -> {turned}",
        ]
        level.append(f"%t{i}")
    while len(level) > 1:
        sums = [f"%s{len(level)}_{i}" for i in range(len(level) // 2)]
        pairs = zip(sums, level[::2], level[1::2], strict=False)
        lines += [f"{name} = stablehlo.add {left}, {right} : {turned}" for name, left, right in pairs]
        level = [*sums, *level[2 * len(sums) :]]
    return "\n".join([*lines, f"return {level[0]} : {turned}\n}}"])


#: Kinds of programs, from a size on.
KINDS: dict[str, Callable[[int], str]] = {
    "transformer stack": functools.partial(blocks, graph="transformer_block", stacked=True),
    "transformer gradients": functools.partial(blocks, graph="transformer_block_gradient", stacked=False),
    "chain": chain,
    "wide": wide,
}


def _repeated(call: Callable[[], Any]) -> Contender:
    def run(count: int) -> float:
        started = time.process_time()
        for _ in range(count):
            call()
        return time.process_time() - started

    return run


def measure(rounds: int = 5) -> dict[str, Any]:
    """The whole report: for each kind seconds by number of operations, and the exponent of their growth from
    a tenth of the most operations on.
    """
    kinds: dict[str, Any] = {}
    for kind, make in KINDS.items():
        programs = {size: make(size) for size in SIZES}
        contenders: dict[str, Contender] = {}
        for size, text in programs.items():
            program = text.encode()
            contenders[f"all {size}"] = _repeated(functools.partial(canonicalize, program, "stablehlo"))
            contenders[f"read {size}"] = _repeated(
                functools.partial(read_program, program, "stablehlo", Limits())
            )
        samples = interleave(contenders, rounds=rounds, calls=1)
        rows: list[dict[str, float]] = []
        for size, text in programs.items():
            operations = len(edit.everywhere(edit.parse(text)))
            whole = samples[f"all {size}"]
            rows.append(
                {
                    "operations": operations,
                    "seconds": whole.median,
                    "low": whole.spread[0],
                    "high": whole.spread[1],
                    "reading": samples[f"read {size}"].median,
                    "us_per_operation": whole.median / operations * 1e6,
                }
            )
        first, last = next(row for row in rows if row["operations"] * 11 > rows[-1]["operations"]), rows[-1]
        growth = math.log(last["low"] / first["low"]) / math.log(last["operations"] / first["operations"])
        kinds[kind] = {"rows": rows, "exponent": growth}
    return {"environment": description(), "kinds": kinds}


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
    for kind, fit in report["kinds"].items():
        print(f"{kind}: time grows as n^{fit['exponent']:.2f}")
        print("operations   seconds (low to high)   of it reading   us an operation")
        for row in fit["rows"]:
            spread = f"{row['low']:.3f} to {row['high']:.3f}"
            line = f"{row['operations']:10}   {row['seconds']:.3f} ({spread})   {row['reading']:13.3f}"
            print(f"{line}   {row['us_per_operation']:15.1f}")


if __name__ == "__main__":
    clear_and_restart("benchmarks.recognition")
    main()
