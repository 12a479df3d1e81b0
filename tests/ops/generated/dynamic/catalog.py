"""All operations with open sizes that are generated."""

from __future__ import annotations

from collections.abc import Sequence

from tests.ops.generated.draft import Family
from tests.ops.generated.operations import catalog

#: Operations that have no size which could be open.
_WITHOUT = frozenset({"constant", "rng_bit_generator"})

FAMILIES: dict[str, Family] = {op: family for op, family in catalog.FAMILIES.items() if op not in _WITHOUT}


def pairs(ops: Sequence[str] = (), dtypes: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Every operation, or each of ``ops``, with each of its dtypes, or with those of ``dtypes``."""
    return [
        (name, dtype)
        for name, family in FAMILIES.items()
        if name in (ops or FAMILIES)
        for dtype in family.dtypes
        if dtype in (dtypes or family.dtypes)
    ]
