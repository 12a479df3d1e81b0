"""What products of groups of rows are in small floats: each product and each sum is rounded, in their order.

Where more than the default precision is asked for, they are summed in f32 and rounded once. The interpreter
knows no precision, and multiplies what is of other groups by 0, which keeps NaN and infinities.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import numpy as np

from tests.ops.generated.operations.convolutions import Array
from tests.ops.generated.operations.ragged import grouped
from tests.ops.harness.values import DTYPES
from tests.ops.narrow_types.values import decode, encode

_TYPE = re.compile(r"tensor<((?:\d+x)*)(\w+)>")
_LIST = re.compile(r"(\w+) = \[([\d, ]*)\]")


def expected(text: str, dtype: str, inputs: Sequence[bytes]) -> list[bytes]:
    """The result of a program of ``_ragged_dot``, whose axes are batches, rows and what is summed."""
    line = next(line for line in text.splitlines() if "chlo.ragged_dot" in line)
    each = dtype if "precision DEFAULT" in line else ""
    stated = {name: [int(axis) for axis in re.findall(r"\d+", axes)] for name, axes in _LIST.findall(line)}
    types = _TYPE.findall(line.rpartition(" : ")[2])
    shapes = [tuple(int(size) for size in re.findall(r"\d+", dims)) for dims, _ in types]
    lhs, rhs = (
        decode(dtype, np.frombuffer(data, np.uint8)).reshape(shape)
        for data, shape in zip(inputs[:2], shapes[:2], strict=True)
    )
    lengths = np.frombuffer(inputs[2], DTYPES[types[2][1]][1]).reshape(shapes[2])
    with np.errstate(all="ignore"):
        product = grouped(
            _mode(stated), lhs, rhs, lengths, shapes[3], functools.partial(_multiplied, each=each)
        )
        return [encode(dtype, product).tobytes()]


def _mode(stated: dict[str, list[int]]) -> str:
    if stated["rhs_group_dimensions"]:
        return "rows"
    return "sums" if stated["lhs_ragged_dimensions"] == stated["lhs_contracting_dimensions"] else "batches"


def _multiplied(lhs: Array, rhs: Array, each: str) -> Array:
    """A product of matrices, element after element from a zero; rounded to ``each`` at every step, if any."""
    total = np.zeros((*lhs.shape[:-1], rhs.shape[-1]), np.float32)
    for k in range(lhs.shape[-1]):
        product = (lhs[..., :, k, None] * rhs[..., None, k, :]).astype(np.float32)
        total = _rounded(total + _rounded(product, each), each)
    return total


def _rounded(numbers: Array, dtype: str) -> Array:
    if not dtype:
        return numbers
    return decode(dtype, encode(dtype, numbers)).astype(np.float32)
