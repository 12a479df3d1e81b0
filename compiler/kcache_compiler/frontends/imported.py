"""The result of an importer: a StableHLO module, bound weights, and the sizes chosen for dynamic dims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcache_compiler.mlir.types import Module


@dataclass(frozen=True)
class Imported:
    """A StableHLO module whose last arguments may be bound to weights.

    ``bound``: argument index -> content, little-endian and row-major. ``dynamic_axes``: (argument, axis) of a
    dynamic dimension, which has a sample size in the module -> its name in the program. ``others``: functions
    that import the program at other sample sizes, or return None if it is invalid at these. ``dynamic``
    imports the program with dynamic dimensions, for programs that compute with sizes.
    ``counted_results``: (result, axis, index of the result that holds the size) of results with a
    data-dependent size; the results that hold sizes follow the program's own.
    """

    module: Module
    bound: Mapping[int, bytes] = field(default_factory=dict[int, bytes], repr=False)
    dynamic_axes: Mapping[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    others: tuple[Callable[[], Module | None], ...] = ()
    dynamic: Callable[[], Module] | None = None
    counted_results: tuple[tuple[int, int, int], ...] = ()
