"""Random scatters over all of their dimension numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.ops.harness.values import generator, tensor

#: Regions by name: the new value of ``%p`` when ``%q`` comes.
_REGIONS = {
    "add": "%s = stablehlo.add %p, %q : {t}",
    "multiply": "%s = stablehlo.multiply %p, %q : {t}",
    "maximum": "%s = stablehlo.maximum %p, %q : {t}",
    "ordered": "%r = stablehlo.subtract %q, %p : {t}\n    %s = stablehlo.add %r, %r : {t}",
    "set": "%s = stablehlo.maximum %q, %q : {t}",
}


@dataclass(frozen=True)
class Scatter:
    """A program with one scatter of ``%x`` by ``%i`` and ``%u``; ``limit`` bounds what indices reach."""

    text: str
    dtype: str
    operand: tuple[int, ...]
    indices: tuple[int, ...]
    updates: tuple[int, ...]
    index: str
    limit: int

    def index_bytes(self, seed: int) -> bytes:
        """Indices inside and outside, negative ones among them."""
        rng = np.random.default_rng(seed)
        low = 0 if self.index.startswith("ui") else -2
        values = rng.integers(low, self.limit + 2, self.indices)
        kind = np.dtype(self.index.replace("ui", "uint").replace("i", "int") if low else self._unsigned())
        return values.astype(kind).tobytes()

    def _unsigned(self) -> str:
        return "uint" + self.index[2:]


def scatter(seed: int, dtype: str, region: str) -> Scatter:
    """A random valid scatter."""
    rng = generator("scatter", seed)
    rank = int(rng.integers(1, 5))
    operand = [int(size) for size in rng.integers(1, 6, rank)]
    if rng.random() < 0.1:
        operand[int(rng.integers(rank))] = 0
    roles = [str(rng.choice(["inserted", "batching", "window"], p=[0.35, 0.2, 0.45])) for _ in range(rank)]
    roles = [
        "window" if size == 0 and role == "inserted" else role
        for size, role in zip(operand, roles, strict=True)
    ]
    batching = [axis for axis in range(rank) if roles[axis] == "batching"]
    inserted = [axis for axis in range(rank) if roles[axis] == "inserted"]
    windows = [axis for axis in range(rank) if roles[axis] == "window"]
    others = [axis for axis in range(rank) if axis not in batching]
    moved = [int(axis) for axis in rng.permutation(others)[: int(rng.integers(0, len(others) + 1))]]
    places = [(operand[axis], axis) for axis in batching]
    places += [
        (int(size), -1) for size in rng.integers(0 if rng.random() < 0.1 else 1, 5, int(rng.integers(0, 3)))
    ]
    places = [places[number] for number in rng.permutation(len(places))]
    shape = [size for size, _ in places]
    vector = int(rng.integers(0, len(shape) + 1))
    implicit = len(moved) == 1 and rng.random() < 0.3
    if implicit:
        vector = len(shape)
        indices = shape
    else:
        indices = [*shape[:vector], len(moved), *shape[vector:]]
    where = {axis: number + (number >= vector) for number, (_, axis) in enumerate(places) if axis >= 0}
    sizes = [
        int(rng.integers(0 if rng.random() < 0.1 else 1, operand[axis] + 1)) if operand[axis] else 0
        for axis in windows
    ]
    count = len(shape) + len(windows)
    update_windows = sorted(int(axis) for axis in rng.permutation(count)[: len(windows)])
    left, inner = iter(shape), iter(sizes)
    updates = [next(inner) if axis in update_windows else next(left) for axis in range(count)]
    numbers = (
        f"update_window_dims = {update_windows}, inserted_window_dims = {inserted}, "
        f"input_batching_dims = {batching}, "
        f"scatter_indices_batching_dims = {[where[axis] for axis in batching]}, "
        f"scatter_dims_to_operand_dims = {moved}, index_vector_dim = {vector}"
    )
    index = str(rng.choice(["i32", "i64", "ui8", "ui32", "i8", "ui64"]))
    scalar = tensor(dtype, ())
    x, i, u = tensor(dtype, tuple(operand)), tensor(index, tuple(indices)), tensor(dtype, tuple(updates))
    text = (
        f"func.func @main(%x: {x}, %i: {i}, %u: {u}) -> {x} {{\n"
        f'  %v = "stablehlo.scatter"(%x, %i, %u) '
        f"<{{scatter_dimension_numbers = #stablehlo.scatter<{numbers}>}}> ({{\n"
        f"  ^bb0(%p: {scalar}, %q: {scalar}):\n    {_REGIONS[region].format(t=scalar)}\n"
        f"    stablehlo.return %s : {scalar}\n  }}) : ({x}, {i}, {u}) -> {x}\n  return %v : {x}\n}}\n"
    )
    return Scatter(text, dtype, tuple(operand), tuple(indices), tuple(updates), index, max([*operand, 1]))
