"""What runs of generated programs print at their end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from tests.ops.generated.drive import Case


def tell_outcomes(results: Sequence[Case], outcomes: Collection[str]) -> Counter[str]:
    """Prints a line an operation of which not all are right, then the sums, which it returns."""
    for op in dict.fromkeys(case.op for case in results):
        counts = Counter(case.outcome for case in results if case.op == op)
        if set(counts) != {"right"}:
            print(f"{op:32} {' '.join(f'{name}={counts[name]}' for name in outcomes if counts[name])}")
    whole = Counter(case.outcome for case in results)
    print(f"{len(results)} programs:", ", ".join(f"{whole[name]} {name}" for name in outcomes))
    return whole


def tell_reasons(results: Sequence[Case], outcomes: Collection[str]) -> None:
    """Prints why programs of these outcomes are not right, the most common first."""
    reasons = Counter(
        (case.outcome, case.op, case.reason.split("\n")[0][:130])
        for case in results
        if case.outcome in outcomes
    )
    for (outcome, op, reason), count in reasons.most_common(60):
        print(f"{count:6} {outcome} {op}: {reason}")
