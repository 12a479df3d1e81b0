"""``python -m tests.conformance.torch_ops.page FILE...``: writes docs/results/pytorch-operators.md.

The files are what ``python -m tests.conformance.torch_ops --draw core --record FILE`` kept, and the same
with ``--draw
samples``, all of each. Nothing in them may be wrong.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.conformance.torch_ops.__main__ import BAD
from tests.conformance.torch_ops.harness import core
from tests.conformance.torch_ops.harness.mixed import DTYPES

PAGE = Path(__file__).resolve().parents[3] / "docs" / "results" / "pytorch-operators.md"
_HEAD = """# PyTorch operators: ATen's core set

The operations that PyTorch tags as its core set (`torch.Tag.core`), each called with operands of ten dtypes:
exported, compiled, and compared with eager mode. Only floating-point operands change their dtype; complex
operands, indices and Python scalars do not. *Undefined*: eager mode, or the export, rejects that dtype.
*Samples*: how many of PyTorch's own samples, of those that are right, contain the operation before
decomposition. Commands:

```
python -m tests.conformance.torch_ops --draw core --record core.jsonl  # --seconds N ends it; repeated, it
continues
python -m tests.conformance.torch_ops --draw samples --record samples.jsonl
python -m tests.conformance.torch_ops.page core.jsonl samples.jsonl
```

"""


def page(cases: Iterable[dict[str, Any]]) -> str:
    """The text. Raises ``SystemExit`` where a case is missing, or wrong."""
    table: dict[str, dict[str, str]] = defaultdict(dict)
    samples: Counter[str] = Counter()
    others: list[dict[str, Any]] = []
    for case in cases:
        if case["outcome"] in BAD:
            raise SystemExit(f"{case['outcome']}: {case['op']} {case['dtype']}: {case['reason']}")
        if case["op"].startswith("aten."):
            table[case["op"]][case["dtype"]] = case["outcome"]
        else:
            samples.update(case["classes"])
            others.append(case)
    missing = [pair for pair in core.pairs() if pair[1] not in table[pair[0]]]
    if missing:
        raise SystemExit(f"{len(missing)} are missing: {missing[:5]}")
    counts = Counter(outcome for outcomes in table.values() for outcome in outcomes.values())
    right = sum("right" in outcomes.values() for outcomes in table.values())
    lines = [
        f"Of {len(table)} operations {right} are right in at least one dtype. Of {counts.total()} pairs with "
        f"a dtype {counts['right']} are right, {counts['rejected']} unsupported, and "
        f"{counts['no-oracle']} undefined in eager mode.",
        "",
        "| operation | right | unsupported | undefined | samples |",
        "| --- | --- | --- | --- | --- |",
        *(_row(name, outcomes, samples[name]) for name, outcomes in sorted(table.items())),
        "",
        "No kernel has these:",
        "",
        "| operation | because |",
        "| --- | --- |",
        *(f"| `{name}` | {why} |" for name, why in sorted(core.NONE.items())),
        "",
        *_rejected(others),
    ]
    return _HEAD + "\n".join(lines) + "\n"


def _row(name: str, outcomes: dict[str, str], samples: int) -> str:
    kinds = (_dtypes(outcomes, outcome) for outcome in ("right", "rejected", "no-oracle"))
    return f"| `{name}` | {' | '.join(kinds)} | {samples or ''} |"


def _rejected(samples: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Unsupported operations of the samples, the most frequent first."""
    counts = Counter(case["outcome"] for case in samples)
    reasons = Counter(_reason(case) for case in samples if case["outcome"] == "rejected")
    yield "## PyTorch's samples"
    yield ""
    yield f"Of {len(samples)} samples {counts['right']} are right, and {counts['rejected']} unsupported."
    yield f"{counts['no-oracle']} have no oracle: PyTorch rejects them, or a result is not a tensor."
    yield ""
    yield "| samples | unsupported |"
    yield "| --- | --- |"
    for count in sorted(set(reasons.values()), reverse=True):
        names = sorted(name for name, times in reasons.items() if times == count)
        yield f"| {count} | {', '.join(names)} |"


def _reason(case: dict[str, Any]) -> str:
    match = re.search(r"unsupported op torch\.([\w.]+)", case["reason"])
    if match:
        return f"`{match[1].removesuffix('.default')}`"
    changes = "the program changes" in case["reason"]
    return "writes to its arguments" if changes else case["reason"].partition(": ")[2].partition(":")[0]


def _dtypes(outcomes: dict[str, str], outcome: str) -> str:
    chosen = [dtype for dtype in DTYPES if outcomes[dtype] == outcome]
    return "all" if len(chosen) == len(DTYPES) else ", ".join(chosen)


def _cases(names: Iterable[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        yield from map(json.loads, Path(name).read_text().splitlines())


if __name__ == "__main__":
    PAGE.write_text(page(_cases(sys.argv[1:])))
