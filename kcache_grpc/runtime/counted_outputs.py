"""Outputs whose sizes depend on data: cut to the counts that the kernel gives with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kcache_grpc.errors import IntegrityError
from kcache_grpc.model.manifest import CountedOutput


def cut(outputs: tuple[Any, ...], counted: Sequence[CountedOutput]) -> tuple[Any, ...]:
    """The program's own results: row-major copies of as many elements as there are, without the counts.

    Arrays of any framework; on a GPU this waits for the kernel. Raises ``IntegrityError`` for a count beyond
    the axis.
    """
    results = list(outputs[: min(entry.count for entry in counted)])
    for entry in counted:
        whole, count = results[entry.output], int(outputs[entry.count])
        if not 0 <= count <= whole.shape[entry.axis]:
            raise IntegrityError(
                f"the kernel counts {count} elements along axis {entry.axis} of output {entry.output}, "
                f"which has shape {tuple(whole.shape)}"
            )
        results[entry.output] = whole[(*[slice(None)] * entry.axis, slice(0, count))]
    for index in {entry.output for entry in counted}:
        results[index] = _own(results[index])
    return tuple(results)


def _own(part: Any) -> Any:
    """A copy without the buffer behind it, where the framework's arrays may share one."""
    if hasattr(part, "clone"):
        return part.clone().contiguous()
    return part.copy() if hasattr(part, "copy") else part
