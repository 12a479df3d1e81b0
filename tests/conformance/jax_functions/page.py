"""Writes docs/jax-functions.md from records of ``python -m tests.conformance.jax_functions``.

``python -m tests.conformance.jax_functions.page FILE...``: what later files say of a function holds.
"""

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

PAGE = Path(__file__).resolve().parents[3] / "docs" / "jax-functions.md"
_MODULES = {"jnp": "jax.numpy", "lax": "jax.lax", "nn": "jax.nn", "special": "jax.scipy.special"}

_TEXT = """\
# JAX's functions

{count} functions of `jax.numpy`, `jax.lax`, `jax.nn` and `jax.scipy.special`
(`tests/conformance/jax_functions`),
exported by `jax.export`, taken as the client takes them, compiled for `x86-64-v3` under numerics `default`,
run, and compared with what `jax.jit` gives on a CPU; then the gradient of a weighted sum of each one's
results by all its floating-point arguments, in the same way.

Written on {date}, {versions};
what failed was run again after it was mended:

```
python -m tests.conformance.jax_functions --mode f32 --record FILE  # --part I/N for a part, --seconds S to
go on later
python -m tests.conformance.jax_functions.page FILE...              # writes this page
```

A process of its own judges the functions; one that ends it, takes longer than two minutes, or raises an
exception that is no refusal counts as failed. A function is right when its results and its gradient are: of
the same shapes and dtypes, integers and truth values equal, NaN and infinities in the same places, and other
numbers no further off than {tolerances}
(of the number itself; of the largest number of the result; those for 32 bits where the program rounds to 32
bits on its way, as attention of 64 bits does before its softmax). "No gradient" are functions without
arguments or results of floating point, and those that JAX itself does not differentiate. Signs of
eigenvectors and singular vectors, which nothing fixes, are not compared. In the mode `edges` each number is
compared by its own size alone, as results may hold 1e30; those that agree only as to the largest number are
listed below. There a result may instead be what JAX gives operation by operation (`jax.disable_jit`), as XLA
rewrites a product with 0 and its like as if no number were NaN or infinite; or what StableHLO's reference
interpreter gives, which multiplies the zeros around and between elements of a convolution, as the
specification says, so that they make NaN of an infinity in the other operand: XLA leaves zeros between
elements out.

| mode | arguments |
| --- | --- |
| `f32` | random f32, i32, u32 and complex64, in ranges where the function is defined |
| `x64` | the same in 64 bits, with `jax_enable_x64` |
| `edges` | as `f32`, a third of the floats NaN, infinities, 0, -0, 1, -1, 1e30, -1e30 or 1e-30 |
| `symbolic` | as `f32`, of one export and one kernel for all sizes, at those of the list, 1 and 6 larger |

## Shares

A mode with fewer functions than the list was run on a part of it; what JAX does not export in a mode is left
out of its share.

{shares}

## What is not right

{failures}

Of the mode `edges`: the gradient of `conv strided` is such a convolution, in a program with another one that
the interpreter does not take. In `conv grouped` a product of 1e30 and -1e30 is added to an infinity in one
rounding, as [numerics](numerics.md) allows, and in two by `jax.jit`, whose product is infinite; the class
`strict` gives its NaN. `special.expn` of 1e-30 did not end within 50 seconds under `jax.jit` either.

## What agrees as to the largest number only

{near}

## What has no gradient, or no export

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
            found = [one for one in _found(record, mode, module) if one[0].how != "undefined"]
            if not found:
                continue
            bad = sum(any(one.how in BAD for one in outcomes) for outcomes in found)
            counts = Counter((one.what, one.how) for outcomes in found for one in outcomes)
            title = f"`{_MODULES[module]}`" if module else "all"
            right = len(found) - bad
            rows.append(
                f"| `{mode}` | {title} | {len(found)} | {right} | {right / len(found):.1%} | "
                f"{counts['forward', 'right']} | {counts['gradient', 'right']} | "
                f"{counts['gradient', 'undefined']} |"
            )
    return "\n".join(rows)


def _failures(record: Record) -> str:
    rows = ["| mode | function | what | outcome | why |", "| --- | --- | --- | --- | --- |"]
    for mode in MODES:
        for outcomes in _found(record, mode):
            rows += [
                f"| `{mode}` | `{one.name}` | {one.what} | {one.how} | {_why(one)} |"
                for one in outcomes
                if one.how in BAD
            ]
    return "\n".join(rows) if len(rows) > 2 else "Nothing."


def _near(record: Record) -> str:
    """Of the mode ``edges``: right outcomes with a reason."""
    found = [
        one for outcomes in _found(record, "edges") for one in outcomes if one.how == "right" and one.why
    ]
    rows = [f"| `{one.name}` | {one.what} | {_why(one)} |" for one in found]
    head = ["| function | what | first number that is further off |", "| --- | --- | --- |"]
    return "\n".join([*head, *rows]) if rows else "Nothing."


def _why(one: Outcome) -> str:
    text = re.sub(r' at "?-"?:\d+:\d+', "", one.why.split("\n")[0])
    return text.replace("|", "\\|")[:200]


def _undefined(record: Record) -> str:
    parts: list[str] = []
    for mode in MODES:
        reasons = Counter(
            (one.what, _reason(one))
            for outcomes in _found(record, mode)
            for one in outcomes
            if one.how == "undefined"
        )
        parts += [
            f"| `{mode}` | {what} | {reason} | {count} |" for (what, reason), count in reasons.most_common()
        ]
    return "\n".join(["| mode | what | why | functions |", "| --- | --- | --- | --- |", *parts])


def _reason(one: Outcome) -> str:
    if not one.why.startswith("JAX:"):
        return one.why
    return "JAX does not differentiate it" if "ifferentia" in one.why else "JAX does not trace or export it"


def _names() -> str:
    parts: list[str] = []
    for module, title in _MODULES.items():
        names = sorted(name.removeprefix(f"{module}.") for name in FUNCTIONS if name.startswith(f"{module}."))
        parts.append(f"**{title}** ({len(names)}): {', '.join(names)}.")
    return "\n\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
