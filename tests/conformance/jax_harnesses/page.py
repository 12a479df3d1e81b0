"""Writes docs/results/jax-primitives.md from records of ``python -m tests.conformance.jax_harnesses``.

``python -m tests.conformance.jax_harnesses.page FILE...``: what later files say of a case holds.
"""

# ruff: noqa: E501  (tables)
from __future__ import annotations

import datetime
import re
import sys
import textwrap
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import jax

from tests.conformance.jax_functions.record import Record
from tests.conformance.jax_functions.run import Outcome

PAGE = Path(__file__).resolve().parents[3] / "docs" / "results" / "jax-primitives.md"

#: Outcomes of records, as the page spells them.
_SHOWN = {"rejected": "unsupported"}

_TEXT = """\
# JAX primitives

StableHLO's published test programs were generated from the test cases of JAX's primitives
(`jax._src.internal_test_util.test_harnesses`): static programs hold one case, dynamic ones a case mapped over a batch of any
size (`jax.vmap`), or functions that compute with sizes. `tests/conformance/jax_harnesses` generates them with the installed JAX: exported by
`jax.export` with `jax_enable_x64`, compiled through the client for `x86-64-v3` under numerics `default`, and compared with
`jax.jit` on a CPU, as in [JAX functions](jax-functions.md). Where several results are valid (vectors of `eigh` and `svd`, unstable
sorts, indices of `approx_top_k`) the properties that they must have are compared (`tests/conformance/jax_harnesses/agree.py`).

Written on {date}, {versions}:

```
python -m tests.conformance.jax_harnesses --mode static --record FILE  # --part I/N for a part, --seconds S to continue later
python -m tests.conformance.jax_harnesses.page FILE...                 # writes this page
```

| mode | programs |
| --- | --- |
| `static` | every case that JAX implements on CPUs, at its sizes |
| `held` | the same with inputs as constants of the program, as in the published programs |
| `batched` | of each primitive the cases in its most frequent dtype, mapped over a batch: one kernel, at batches of 3, 1 and 5 |
| `symbols` | functions that compute with sizes (`tests/conformance/jax_harnesses/symbols.py`): one kernel, at three pairs of sizes |

{shares}

A case is undefined if JAX does not run or export it; those are not part of the share. Cases run in a separate process; one
that kills it, or takes longer than two minutes, counts as wrong. Cases that were not run are missing in the counts.

## Unsupported or wrong

{bad}

## Not run or exported by JAX

{undefined}

## Right, by primitive: static and batched

{groups}
"""


def main() -> int:
    """Write the page."""
    record = Record(None)
    for name in sys.argv[1:]:
        record.outcomes |= Record(Path(name)).outcomes
    PAGE.write_text(page(record))
    return 0


def page(record: Record) -> str:
    """The page as text."""
    jax.config.update("jax_enable_x64", True)
    from tests.conformance.jax_harnesses import cases, symbols

    whole = list(cases.CASES)
    lists = {"static": whole, "held": whole, "batched": cases.batched(), "symbols": list(symbols.CASES)}
    by_mode = {
        mode: {name: record.outcomes[mode, name][0] for name in names if (mode, name) in record.outcomes}
        for mode, names in lists.items()
    }
    packages = ("jax", "jaxlib", "numpy", "torch-mlir")
    return _TEXT.format(
        date=datetime.datetime.now(datetime.UTC).date(),
        versions=", ".join(f"{name} {version(name)}" for name in packages),
        shares=_shares(by_mode, {mode: len(names) for mode, names in lists.items()}),
        bad=_reasons(by_mode, ("rejected", "wrong", "error", "crash")),
        undefined=_reasons(by_mode, ("undefined",)),
        groups=_groups(by_mode, {name: case.group_name for name, case in cases.CASES.items()}),
    )


def _shares(by_mode: dict[str, dict[str, Outcome]], wholes: dict[str, int]) -> str:
    lines = [
        "| mode | cases | run | right | unsupported | wrong | undefined | share right |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for mode, outcomes in by_mode.items():
        counts = Counter(outcome.how for outcome in outcomes.values())
        wrong = counts["wrong"] + counts["error"] + counts["crash"]
        defined = len(outcomes) - counts["undefined"]
        share = f"{counts['right'] * 1000 // defined / 10}%" if defined else ""
        cells = (wholes[mode], len(outcomes), counts["right"], counts["rejected"], wrong, counts["undefined"])
        lines.append(f"| `{mode}` | {' | '.join(f'{cell:,}' for cell in cells)} | {share} |")
    return "\n".join(lines)


def _reasons(by_mode: dict[str, dict[str, Outcome]], hows: tuple[str, ...]) -> str:
    """Cases of one reason are a line, which names the first of them."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for mode, outcomes in by_mode.items():
        for name, outcome in outcomes.items():
            if outcome.how in hows:
                groups.setdefault((mode, outcome.how, _plain(outcome.why)), []).append(name)
    if not groups:
        return "Nothing."
    lines = ["| mode | cases | first case | outcome | why |", "| --- | --- | --- | --- | --- |"]
    lines += [
        f"| `{mode}` | {len(names)} | `{names[0][:70]}` | {_SHOWN.get(how, how)} | {why} |"
        for (mode, how, why), names in groups.items()
    ]
    return "\n".join(lines)


def _plain(why: str) -> str:
    """Without places in the program, which differ from case to case."""
    return re.sub(r" at \S*:\d+:\d+", "", why).replace("|", "\\|").split("\n", 1)[0][:200]


def _groups(by_mode: dict[str, dict[str, Outcome]], groups: dict[str, str]) -> str:
    counts: dict[str, Counter[str]] = {}
    for mode in ("static", "batched"):
        for name, outcome in by_mode[mode].items():
            counts.setdefault(groups[name], Counter())[mode] += outcome.how == "right"
    parts = (f"`{group}` {count['static']} and {count['batched']}" for group, count in sorted(counts.items()))
    return textwrap.fill(", ".join(parts), 140, break_on_hyphens=False)


if __name__ == "__main__":
    sys.exit(main())
