"""All operations that are generated, and a program of one by its number."""

from __future__ import annotations

from collections.abc import Sequence

from tests.ops.generated.quantized import chains, combined, computed, moved, norms, products
from tests.ops.generated.quantized.computed import Maker
from tests.ops.generated.quantized.draft import Draft
from tests.ops.harness.values import generator

FAMILIES: dict[str, Maker] = {
    op: make
    for part in (computed, products, norms, moved, combined, chains)
    for op, make in sorted(part.families().items())
}
#: Storage and expressed types.
DTYPES = (
    *("i8:f32", "u8:f32", "i4:f32", "u4:f32", "i16:f32", "i32:f32", "u16:f32", "i2:f32", "u2:f32", "u32:f32"),
    *("i8:f16", "i8:bf16", "i4:bf16", "u8:f64", "i32:f64"),
)


def pairs(ops: Sequence[str] = (), dtypes: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Every operation, or each of ``ops``, with each of its dtypes, or with those of ``dtypes``."""
    return [(op, dtype) for op in (ops or FAMILIES) for dtype in (dtypes or DTYPES)]


def program(op: str, dtype: str, seed: int, number: int) -> Draft:
    """The same one for the same arguments, on every machine."""
    draft = Draft(op, dtype, generator("quantized", op, dtype, seed, number))
    FAMILIES[op](draft)
    return draft
