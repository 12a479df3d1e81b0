"""Several calls of the same tensors, judged together, and apart where anything is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from tests.conformance.torch_ops.harness.judge import judge
from tests.conformance.torch_ops.harness.samples import Sample, Unfit
from tests.ops.generated.judge import OUTCOMES, Verdict

#: What is worst comes first.
_WORST = ("wrong", "crash", "error", "rejected", "right", "no-oracle")
assert sorted(_WORST) == sorted(OUTCOMES)


class Call(NamedTuple):
    """A function of all tensors of its group, by a name that says what it computes."""

    name: str
    function: Callable[..., Any]


def judge_calls(calls: Sequence[Call], tensors: Sequence[Any], edges: bool = False) -> Verdict:
    """The worst of the verdicts; the reason names each call that is not right. Calls that eager mode rejects
    do not count; raises ``Unfit`` where it rejects all.
    """
    known = [call for call in calls if _has_oracle(call, tensors)]
    if not known:
        raise Unfit("eager mode rejects all of them")
    verdicts = _apart(known, tuple(tensors), edges)
    if not verdicts:
        return Verdict("right", f"{len(known)}")
    worst = min((verdict.outcome for _, verdict in verdicts), key=_WORST.index)
    lines = "\n".join(f"{name}: {verdict.outcome} {verdict.reason}" for name, verdict in verdicts)
    return Verdict(worst, f"{len(known) - len(verdicts)} of {len(known)} right\n{lines}")


def _has_oracle(call: Call, tensors: Sequence[Any]) -> bool:
    try:
        result = call.function(*(x.clone() for x in tensors))
    except Exception:  # a number for a tensor, a dtype that it has not
        return False
    return isinstance(result, torch.Tensor)


def _apart(calls: Sequence[Call], tensors: tuple[Any, ...], edges: bool) -> list[tuple[str, Verdict]]:
    """The calls that are not right, by halves of those that are not right together."""

    def all_of_them(*arguments: Any) -> tuple[Any, ...]:
        return tuple(call.function(*arguments) for call in calls)

    verdict, _ = judge(Sample(all_of_them, tensors), edges)
    if verdict.outcome == "right":
        return []
    if len(calls) == 1:
        return [(calls[0].name, verdict)]
    half = len(calls) // 2
    return [*_apart(calls[:half], tensors, edges), *_apart(calls[half:], tensors, edges)]
