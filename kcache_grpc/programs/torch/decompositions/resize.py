"""Images at other sizes, axis by axis from the last: weighted sums of the elements along it.

The order of eager mode. PyTorch's own decompositions gather each element by the places of all axes, and take
``a + (b - a) * t`` for linear weights, which is NaN where ``a`` and ``b`` are one infinity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from kcache_grpc.programs.torch.decompositions.grid_sample import cubic_weights


class _Axis(NamedTuple):
    """The sizes of an axis before and behind, and how they were asked for."""

    of: Any
    to: Any
    align: bool
    scale: float | None

    def step(self) -> Any:
        """How far apart two results lie, in elements of the image."""
        if self.align:
            return (self.of - 1.0) / (self.to - 1.0) if self.to > 1 else 0
        return 1.0 / self.scale if self.scale is not None and self.scale > 0 else self.of / self.to

    def places(self, torch: Any, dtype: Any) -> Any:
        """Where results lie among the elements."""
        at = torch.arange(self.to).to(dtype)
        return at * self.step() if self.align else (at + 0.5) * self.step() - 0.5

    def is_kept(self) -> bool:
        """Whether its size is the same, whatever an open one is: the one of the export says nothing."""
        shapes: Any = import_module("torch.fx.experimental.symbolic_shapes")
        return shapes.statically_known_true(self.of == self.to)

    def within(self, place: Any) -> Any:
        return place.clamp(0, self.of - 1)


#: The elements that a result along an axis is the sum of: their places, and their weights.
_Terms = Callable[[Any, Any, _Axis], list[tuple[Any, Any]]]


def decompositions() -> dict[Any, Any]:
    """ATen operation -> what it is replaced by."""
    aten: Any = import_module("torch").ops.aten
    nearest = (aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d)
    exact = (aten._upsample_nearest_exact1d, aten._upsample_nearest_exact2d, aten._upsample_nearest_exact3d)
    linear = (aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d)
    kinds = ((nearest, _nearest, False), (exact, _nearest_exact, False), (linear, _linear, True))
    table: dict[Any, Any] = {}
    for packets, terms, weighted in (*kinds, ((aten.upsample_bicubic2d,), _cubic, True)):
        for packet in packets:
            table[packet.default] = _by_scales(terms, weighted)
            table[packet.vec] = _by_factors(terms, weighted)
    return table


def _by_scales(terms: _Terms, weighted: bool) -> Any:
    def decomposed(x: Any, output_size: Sequence[Any], *options: Any) -> Any:
        align, scales = (options[0], options[1:]) if weighted else (False, options)
        return _resized(x, output_size, align, scales or [None] * len(output_size), terms)

    return decomposed


def _by_factors(terms: _Terms, weighted: bool) -> Any:
    def decomposed(x: Any, output_size: Any, *options: Any) -> Any:
        torch: Any = import_module("torch")
        align, factors = options if weighted else (False, *options)
        if factors is None:
            return _resized(x, output_size, align, [None] * len(output_size), terms)
        sizes = [torch.sym_int(size * factor) for size, factor in zip(x.shape[2:], factors, strict=True)]
        return _resized(x, sizes, align, factors, terms)

    return decomposed


def _resized(x: Any, sizes: Sequence[Any], align: bool, scales: Sequence[float | None], terms: _Terms) -> Any:
    """Weighted sums of floats only: eager mode rounds those of bytes in steps of its own."""
    torch: Any = import_module("torch")
    copied = terms in (_nearest, _nearest_exact)
    if not copied and not x.is_floating_point():
        return NotImplemented
    resized = x if copied else x.to(_computed_in(torch, x.dtype))
    axes = [_Axis(*fields) for fields in zip(x.shape[2:], sizes, (align,) * len(sizes), scales, strict=True)]
    if terms is _nearest and len(axes) == 2 and all(axis.is_kept() for axis in axes):
        # Whatever the scales are, in eager mode too, but for lines and solids.
        return x.clone()
    for axis in reversed(range(2, x.dim())):
        along = axes[axis - 2]
        total: Any = None
        for place, weight in terms(torch, _computed_in(torch, x.dtype), along):
            share = resized.index_select(axis, place)
            if weight is not None:
                share = share * weight.reshape(-1, *(1,) * (x.dim() - axis - 1))
            total = share if total is None else total + share
        resized = total
    return resized.to(x.dtype)


def _computed_in(torch: Any, dtype: Any) -> Any:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _nearest(torch: Any, dtype: Any, axis: _Axis) -> list[tuple[Any, Any]]:
    return [(axis.within((torch.arange(axis.to).to(torch.float32) * axis.step()).to(torch.int64)), None)]


def _nearest_exact(torch: Any, dtype: Any, axis: _Axis) -> list[tuple[Any, Any]]:
    at = torch.arange(axis.to).to(torch.float32) + 0.5
    return [(axis.within((at * axis.step()).to(torch.int64)), None)]


def _linear(torch: Any, dtype: Any, axis: _Axis) -> list[tuple[Any, Any]]:
    if axis.is_kept():
        # Weights of 1 and 0, both of the element itself: an infinity is NaN, as in eager mode.
        at, none = torch.arange(axis.to), torch.zeros(axis.to, dtype=dtype)
        return [(at, none + 1), (at, none)]
    at = axis.places(torch, dtype).clamp(min=0.0)
    first = axis.within(at.to(torch.int64))
    weight = (at - first).clamp(0.0, 1.0)
    return [(first, 1 - weight), (axis.within(first + 1), weight)]


def _cubic(torch: Any, dtype: Any, axis: _Axis) -> list[tuple[Any, Any]]:
    at = axis.places(torch, dtype)
    whole = torch.floor(at)
    first, weights = whole.to(torch.int64), cubic_weights(at - whole)
    return [(axis.within(first + (place - 1)), weight) for place, weight in enumerate(weights)]
