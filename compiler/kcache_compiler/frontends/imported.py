"""What an importer may say beyond a module: weights that it bound, sizes that it chose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kcache_compiler.mlir.context import Native


@dataclass(frozen=True)
class Imported:
    """A StableHLO module whose last arguments may be bound to weights.

    ``bound``: argument index -> content, little-endian and row-major. ``open_axes``: (argument, axis) whose
    size the program leaves open, and the module has chosen -> its name in the program. ``others`` import the
    same program with other such sizes, or give None where it has none of these. ``dynamic`` imports it with
    unknown ones, for programs that compute with them. ``counted_results``: (result, axis, result that counts)
    of results of which the count says how many elements there are along the axis; counts follow the program's
    own results.
    """

    module: Native
    bound: Mapping[int, bytes] = field(default_factory=dict[int, bytes], repr=False)
    open_axes: Mapping[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    others: tuple[Callable[[], Native | None], ...] = ()
    dynamic: Callable[[], Native] | None = None
    counted_results: tuple[tuple[int, int, int], ...] = ()
