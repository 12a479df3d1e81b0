"""Writes docs/results/jax-functions.md from records of ``python -m tests.conformance.jax_functions``.

``python -m tests.conformance.jax_functions.page FILE...``: what later files say of a function holds.
"""

# ruff: noqa: E501  (the text of the page)
from __future__ import annotations

import datetime
import platform
import re
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

from tests.conformance.jax_functions.compare import TOLERANCES
from tests.conformance.jax_functions.record import BAD, Record
from tests.conformance.jax_functions.run import FUNCTIONS, MODES, Outcome

PAGE = Path(__file__).resolve().parents[3] / "docs" / "results" / "jax-functions.md"
_MODULES = {"jnp": "jax.numpy", "lax": "jax.lax", "nn": "jax.nn", "special": "jax.scipy.special"}

#: Outcomes of records, as the page spells them.
_SHOWN = {"rejected": "unsupported"}

_TEXT = """\
# JAX functions

{count} functions of `jax.numpy`, `jax.lax`, `jax.nn` and `jax.scipy.special` (`tests/conformance/jax_functions`),
exported by `jax.export`, compiled through the client for `x86-64-v3` under numerics `default`, and compared with
`jax.jit` on a CPU; then the gradient of a weighted sum of each one's results with respect to all its
floating-point arguments, in the same way.

Written on {date}, {versions};
failures were run again after a fix:

```
python -m tests.conformance.jax_functions --mode f32 --record FILE  # --part I/N for a part, --seconds S to continue later
python -m tests.conformance.jax_functions.page FILE...              # writes this page
```

Functions run in a separate process; one that kills it, takes longer than two minutes, or raises an unexpected
exception counts as failed. A function is right if its results and its gradient are: of the same shapes and
dtypes, integers and booleans equal, NaN and infinities at the same positions, and other values no further off
than {tolerances}
(of the value itself; of the largest value of the result; those for 32 bits where the program rounds to 32 bits
internally, as attention of 64 bits does before its softmax). "No gradient" are functions without floating-point
arguments or results, and those that JAX does not differentiate. Signs of eigenvectors and singular vectors are
not compared. In the mode `edges` each value is compared relative to itself, as results may hold 1e30; those that
agree only relative to the largest value are listed below. There a result may instead equal JAX without jit
(`jax.disable_jit`), as XLA simplifies products with 0 without regard to NaN and infinity, or StableHLO's reference
interpreter, which multiplies the zeros around and between elements of a convolution, so that an infinity gives
NaN: XLA skips zeros between elements.

| mode | arguments |
| --- | --- |
| `f32` | random f32, i32, u32 and complex64, in ranges where the function is defined |
| `x64` | the same in 64 bits, with `jax_enable_x64` |
| `edges` | as `f32`, a third of the floats NaN, infinities, 0, -0, 1, -1, 1e30, -1e30 or 1e-30 |
| `symbolic` | as `f32`, one export and one dynamic kernel, at the sizes of the list, 1 and 6 larger |

## Shares

A mode with fewer functions than the list was run on a part of it; functions that JAX does not export in a mode
are not counted.

{shares}

## Failures

{failures}

In the mode `edges` the gradient of `conv strided` is such a convolution, in a program with another one that the
interpreter rejects. In `conv grouped` a product of 1e30 and -1e30 is added to an infinity in one rounding, as
[numerics](../guide/numerics.md) allows, and in two by `jax.jit`, whose product is infinite; the
class `strict` gives its NaN. `special.expn` of 1e-30 did not end within 50 seconds under `jax.jit` either.

## Agreement relative to the largest value only

{near}

## Without gradient or export

{undefined}

## The list

{names}
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
    packages = ", ".join(f"{name} {version(name)}" for name in ("jax", "jaxlib", "numpy", "torch-mlir"))
    tolerances = ", ".join(
        f"{relative:g} and {largest:g} for {8 * width} bits"
        for width, (relative, largest) in TOLERANCES.items()
    )
    return _TEXT.format(
        count=len(FUNCTIONS),
        date=datetime.datetime.now(datetime.UTC).date(),
        versions=f"{packages}, Python {platform.python_version()}",
        tolerances=tolerances,
        shares=_shares(record),
        failures=_failures(record),
        near=_near(record),
        undefined=_undefined(record),
        names=_names(),
    )


def _found(record: Record, mode: str, module: str = "") -> list[list[Outcome]]:
    prefix = f"{module}." if module else ""
    names = [name for name in FUNCTIONS if name.startswith(prefix)]
    return [record.outcomes[mode, name] for name in names if (mode, name) in record.outcomes]


def _shares(record: Record) -> str:
    rows = ["| mode | module | functions | right | share | forward right | gradient right | no gradient |"]
    rows.append("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for mode in MODES:
        for module in (*_MODULES, ""):
            groups = [group for group in _found(record, mode, module) if group[0].how != "undefined"]
            if not groups:
                continue
            bad = sum(any(outcome.how in BAD for outcome in outcomes) for outcomes in groups)
            counts = Counter((outcome.what, outcome.how) for outcomes in groups for outcome in outcomes)
            title = f"`{_MODULES[module]}`" if module else "all"
            right = len(groups) - bad
            rows.append(
                f"| `{mode}` | {title} | {len(groups)} | {right} | {right / len(groups):.1%} | "
                f"{counts['forward', 'right']} | {counts['gradient', 'right']} | "
                f"{counts['gradient', 'undefined']} |"
            )
    return "\n".join(rows)


def _failures(record: Record) -> str:
    rows = ["| mode | function | what | outcome | why |", "| --- | --- | --- | --- | --- |"]
    for mode in MODES:
        for outcomes in _found(record, mode):
            rows += [
                f"| `{mode}` | `{outcome.name}` | {outcome.what} | {_SHOWN.get(outcome.how, outcome.how)} | {_why(outcome)} |"
                for outcome in outcomes
                if outcome.how in BAD
            ]
    return "\n".join(rows) if len(rows) > 2 else "Nothing."


def _near(record: Record) -> str:
    """Of the mode ``edges``: right outcomes with a reason."""
    near = [
        outcome
        for outcomes in _found(record, "edges")
        for outcome in outcomes
        if outcome.how == "right" and outcome.why
    ]
    rows = [f"| `{outcome.name}` | {outcome.what} | {_why(outcome)} |" for outcome in near]
    head = ["| function | what | first value that is further off |", "| --- | --- | --- |"]
    return "\n".join([*head, *rows]) if rows else "Nothing."


def _why(outcome: Outcome) -> str:
    text = re.sub(r' at "?-"?:\d+:\d+', "", outcome.why.split("\n")[0])
    return text.replace("|", "\\|")[:200]


def _undefined(record: Record) -> str:
    parts: list[str] = []
    for mode in MODES:
        reasons = Counter(
            (outcome.what, _reason(outcome))
            for outcomes in _found(record, mode)
            for outcome in outcomes
            if outcome.how == "undefined"
        )
        parts += [
            f"| `{mode}` | {what} | {reason} | {count} |" for (what, reason), count in reasons.most_common()
        ]
    return "\n".join(["| mode | what | why | functions |", "| --- | --- | --- | --- |", *parts])


def _reason(outcome: Outcome) -> str:
    if not outcome.why.startswith("JAX:"):
        return outcome.why
    return (
        "JAX does not differentiate it" if "ifferentia" in outcome.why else "JAX does not trace or export it"
    )


def _names() -> str:
    parts: list[str] = []
    for module, title in _MODULES.items():
        names = sorted(name.removeprefix(f"{module}.") for name in FUNCTIONS if name.startswith(f"{module}."))
        parts.append(f"**{title}** ({len(names)}): {', '.join(names)}.")
    return "\n\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
