"""The expectations that StableHLO's published test programs state beside their results.

``custom_call @check.expect_eq(result, expected)`` and its like compare two values while an interpreter runs a
program, and end the run where they differ. They give nothing, so a program's results are the same without
them: they are left out, and nobody compares.
"""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.mlir.context import Native

_TARGETS = frozenset(
    f"check.expect_{kind}" for kind in ("eq", "eq_const", "close", "almost_eq", "almost_eq_const")
)


def drop_expectations(custom_calls: Sequence[Native]) -> None:
    """Erase the expectations among ``custom_calls``."""
    for call in custom_calls:
        if call.attributes["call_target_name"].value in _TARGETS and not len(call.results):
            call.erase()
