"""How long a graph of 1,000 operations of one kind takes to compile, and how large its code is.

``python -m benchmarks.chains [KIND...] [--count N] [--seconds S] [--target T] [--json FILE] [--table S]``:
each kind in a chain, whose operations take what the one before gave, after a first compile that warms the
process up; ``mixed``: kinds of plain f32 in turn; then networks of 48 equal layers. Where an operation needs
others around it (what slices, reshapes, compares or adds), those are on top. Status 1 when one takes more
than ``--seconds`` of processor time (10). ``--json`` goes on from what is in the file; ``--table`` ends with
a table of the kinds that took so many seconds and more.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TypeAlias

from benchmarks.chains.programs import KINDS, MIXED, NETWORKS, program
from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import CompilerError
from kcache_compiler.types import CompileOptions
from kcache_grpc.model.target import host_target

#: Processor seconds, bytes of code and launches of a kind; or why there are none.
Result: TypeAlias = tuple[float, int, int] | str


def measure(text: str, target: str) -> tuple[float, int, int]:
    """Processor seconds of reading and compiling a program, the bytes of its code, its launches."""
    start = time.process_time()
    canonical = canonicalize(text.encode(), "stablehlo", "default")
    kernel = compile_spec(canonical.spec_text, canonical.arg_spec, target, CompileOptions(), lambda _: None)
    seconds = time.process_time() - start
    code = next(kernel.artifacts[name] for name in ("so", "cubin", "ptx") if name in kernel.artifacts)
    return seconds, len(code), len(kernel.interface.launches or kernel.interface.gpu_launches)


def _tried(kind: str, count: int, target: str) -> Result:
    try:
        return measure(program(kind, count), target)
    except CompilerError as error:
        return f"{type(error).__name__}: {error}"


def _line(seconds: float, size: int, launches: int) -> str:
    return f"{seconds:6.2f} s {size / 1024:8.1f} KiB {launches:5} launches"


def summary(results: dict[str, Result], seconds: float) -> str:
    """How many kinds take no longer than ``seconds``, and which do."""
    over = [kind for kind, result in results.items() if isinstance(result, str) or result[0] > seconds]
    within = f"{len(results) - len(over)} of {len(results)} kinds within {seconds:g} s"
    return within + (f"; not: {', '.join(over)}" if over else "")


def table(results: dict[str, Result], least: float) -> str:
    """The kinds that took ``least`` seconds and more, the longest first, as Markdown."""
    rows = [
        (kind, result)
        for kind, result in results.items()
        if not isinstance(result, str) and result[0] >= least
    ]
    lines = ["| 1,000 times | s | KiB of code | launches |", "| --- | --- | --- | --- |"]
    for kind, (seconds, size, launches) in sorted(rows, key=lambda row: -row[1][0]):
        name = kind if kind in NETWORKS else f"`{kind}`"
        lines.append(f"| {name} | {seconds:.1f} | {size / 1024:.0f} | {launches:,} |")
    return "\n".join(lines)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chains")
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--target", default=host_target().isa)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=float)
    options = parser.parse_args()
    results: dict[str, Result] = {}
    if options.json is not None and options.json.exists():
        results = json.loads(options.json.read_text())["kinds"]
    measure(program("add", 2), options.target)
    for kind in options.kinds or (*KINDS, MIXED, *NETWORKS):
        if kind in results:
            continue
        result = results[kind] = _tried(kind, options.count, options.target)
        shown = result if isinstance(result, str) else _line(*result)
        print(f"{kind:34} {shown}", flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps({"count": options.count, "kinds": results}, indent=1) + "\n")
    print(summary(results, options.seconds))
    if options.table is not None:
        print(table(results, options.table))
    return int(any(isinstance(outcome, str) or outcome[0] > options.seconds for outcome in results.values()))


if __name__ == "__main__":
    sys.exit(main())
