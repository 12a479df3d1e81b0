"""All operations that are generated, and a program of one by its number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.ops.generated.draft import Draft, Family
from tests.ops.generated.operations import (
    algebra,
    elementwise,
    indexing,
    norms,
    placing,
    ragged,
    randoms,
    reducing,
    shaping,
)
from tests.ops.generated.structure import composed, computed, control, nested, several
from tests.ops.harness.programs import OpProgram
from tests.ops.harness.values import generator

#: Of what is drawn: raised where programs are of more kinds than before, so that summaries tell runs apart.
VERSION = 3

FAMILIES: dict[str, Family] = {
    op: family
    for part in (
        elementwise,
        shaping,
        reducing,
        indexing,
        placing,
        control,
        norms,
        algebra,
        randoms,
        computed,
        composed,
        nested,
        several,
        ragged,
    )
    for op, family in sorted(part.families().items())
}


def pairs(ops: Sequence[str] = (), dtypes: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Every operation, or each of ``ops``, with each of its dtypes, or with those of ``dtypes``."""
    return [
        (name, dtype)
        for name, family in FAMILIES.items()
        if name in (ops or FAMILIES)
        for dtype in family.dtypes
        if dtype in (dtypes or family.dtypes)
    ]


def drawn(chosen: list[tuple[str, str]], count: int, seed: int) -> list[tuple[str, str]]:
    """``count`` of the pairs in their order, or all where there are no more."""
    if count >= len(chosen):
        return chosen
    places = generator("drawn", seed).permutation(len(chosen))[:count]
    return [chosen[int(place)] for place in sorted(places)]


#: Programs from this number on are drawn at the edges of what there is.
EDGES = 100


def program(op: str, dtype: str, seed: int, number: int, wish: str = "") -> OpProgram:
    """The same one for the same arguments, on every machine; drawn for a class of ``classes.py`` if one is
    wished, which its program may yet lack.
    """
    rng = generator("generated", op, dtype, seed, number, *([wish] if wish else []))
    with np.errstate(all="ignore"):  # NaN and infinities that NumPy, as an oracle, meets
        return FAMILIES[op].make(Draft(op, dtype, rng, edge=number >= EDGES, wish=wish))
