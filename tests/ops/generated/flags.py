"""What a program may promise of its indices: that they are sorted, that none comes twice."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.ops.harness.values import DTYPES

_NUMBERS = re.compile(r"(\w+) = (\[[^\]]*\]|\d+)")


@dataclass(frozen=True)
class Indices:
    """Indices of a gather or scatter by its dimension numbers as text, which calls two of them ``maps`` and
    ``batches``.
    """

    content: bytes
    dtype: str
    shape: tuple[int, ...]
    numbers: str
    maps: str
    batches: str

    def rows(self) -> npt.NDArray[np.int64] | None:
        """A row an index, in the order of the operand's axes; None where other axes count too."""
        fields = dict(_NUMBERS.findall(self.numbers))
        order = [int(axis) for axis in re.findall(r"\d+", fields[self.maps])]
        if fields.get(self.batches, "[]") != "[]" or not order:
            return None
        values = np.frombuffer(self.content, DTYPES[self.dtype][1]).astype(np.int64)
        vector = int(fields["index_vector_dim"])
        shape = self.shape if vector < len(self.shape) else (*self.shape, 1)
        rows = np.moveaxis(values.reshape(shape), vector, -1).reshape(-1, len(order))
        return rows[:, np.argsort(order)]

    def sorted(self) -> bool:
        """Whether no index is below the one before it."""
        rows = self.rows()
        listed = [] if rows is None else rows.tolist()
        return rows is not None and listed == sorted(listed)

    def unique(self) -> bool:
        """Whether no index comes twice."""
        rows = self.rows()
        return rows is not None and len({tuple(row) for row in rows.tolist()}) == len(rows)
