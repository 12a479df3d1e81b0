"""Transposed convolutions of bound weights become convolutions without zeros between pixels, by phase.

A transposed convolution with stride ``s`` is a convolution of an image with ``s - 1`` zeros between pixels
(base dilation). Results at places that are equal modulo ``s``, a *phase*, read the same taps of the window,
every ``s``-th. Adjacent phases whose taps begin at the same pixel, and are as many, are output channels of
one convolution; with channels last, the channels of all phases of a sequence are its interleaved results.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound import build
from kcache_compiler.passes.bound.channels_last.state import FLOATS


@dataclass(frozen=True)
class _Phase:
    """The taps ``first``, ``first + stride``, ... of a window, ``count`` of them; how many pixels before the
    image the first result reads, and how many behind it the last one.
    """

    first: int
    count: int
    before: int
    behind: int


@dataclass(frozen=True)
class _Axis:
    """A spatial axis: its stride, its phases, and the results of each."""

    stride: int
    phases: tuple[_Phase, ...]
    results: int


def split_phases(body: mlir.Block, bound: Collection[mlir.Value]) -> None:
    """Rewrite the transposed convolutions of ``body`` whose weights are ``bound``."""
    for op in list(mlir.operations(body)):
        axes = _axes_of(op) if mlir.name_of(op) == "stablehlo.convolution" and _is_plain(op, bound) else None
        if axes is not None:
            with mlir.before(op):
                result = _Phases(op, axes).result()
            op.results[0].replace_all_uses_with(result)
            op.erase()


def _is_plain(op: mlir.Op, bound: Collection[mlir.Value]) -> bool:
    """Whether only its weights are bound, and it has base dilation, but no groups, strides, or others."""
    image, weights = op.operands
    if image in bound or weights not in bound or not build.is_static(op):
        return False
    if any(str(mlir.element_type(value.type)) not in FLOATS for value in (image, weights, op.results[0])):
        return False
    groups = ("feature_group_count", "batch_group_count")
    if any(name in op.attributes and mlir.int_of(op.attributes[name]) != 1 for name in groups):
        return False
    if any(_numbers(op, "window_reversal", 0)):
        return False
    plain = all(step == 1 for name in ("window_strides", "rhs_dilation") for step in _numbers(op, name, 1))
    return plain and any(step != 1 for step in _numbers(op, "lhs_dilation", 1))


def _numbers(op: mlir.Op, name: str, default: int) -> list[int]:
    spatial = len(mlir.convolution_dimensions(op)["kernel_spatial"])
    return mlir.integers(op.attributes[name]) if name in op.attributes else [default] * spatial


def _axes_of(op: mlir.Op) -> list[_Axis] | None:
    """Its spatial axes; None if a phase has no taps, or does not read the whole image."""
    numbers = mlir.convolution_dimensions(op)
    strides = _numbers(op, "lhs_dilation", 1)
    padding = mlir.integer_pairs(op, "padding") or [(0, 0)] * len(strides)
    image, kernel, result = (build.static_sizes(value) for value in (*op.operands, op.results[0]))
    axes: list[_Axis] = []
    for place, (stride, (low, _)) in enumerate(zip(strides, padding, strict=True)):
        pixels = image[numbers["input_spatial"][place]]
        taps = kernel[numbers["kernel_spatial"][place]]
        results = -(-result[numbers["output_spatial"][place]] // stride)
        phases = tuple(_phase(phase, stride, low, taps, pixels, results) for phase in range(stride))
        if any(phase.count < 1 or phase.before < 0 or phase.behind < 0 for phase in phases):
            return None
        axes.append(_Axis(stride, phases, results))
    return axes


def _phase(phase: int, stride: int, low: int, taps: int, pixels: int, results: int) -> _Phase:
    """The result ``stride * q + phase`` reads pixel ``q + m`` with tap ``stride * m + low - phase``."""
    least = -((low - phase) // stride)
    count = (phase - low + taps - 1) // stride - least + 1
    return _Phase(stride * least + low - phase, count, -least, results + count - 1 - pixels + least)


class _Phases:
    """Writes the convolutions of the phases, and what puts their results together."""

    def __init__(self, op: mlir.Op, axes: Sequence[_Axis]) -> None:
        self.op = op
        self.axes = axes
        self.numbers = mlir.convolution_dimensions(op)
        self.sizes = build.static_sizes(op.results[0])
        self.element = mlir.element_type(op.results[0].type)

    def result(self) -> mlir.Value:
        """All phases as channels, then each of their axes behind the spatial axis that it belongs to."""
        phases = itertools.product(*(axis.phases for axis in self.axes))
        groups = itertools.groupby(phases, lambda each: [(phase.before, phase.count) for phase in each])
        parts = [self._convolution(list(group)) for _, group in groups]
        feature, spatial = self.numbers["output_feature"], self.numbers["output_spatial"]
        value = self._joined(parts, feature)
        sizes = build.static_sizes(value)
        strides = {place: axis.stride for place, axis in zip(spatial, self.axes, strict=True)}
        split = [place for place in spatial if strides[place] != 1]
        channels = [*(strides[place] for place in split), self.sizes[feature]]
        apart = build.reshape(value, [*sizes[:feature], *channels, *sizes[feature + 1 :]])
        order: list[int] = []
        for axis in range(len(sizes)):
            order.append(axis + len(split) if axis >= feature else axis)
            order += [feature + split.index(axis)] if axis in split else []
        together = [size * strides.get(place, 1) for place, size in enumerate(sizes)]
        together[feature] = self.sizes[feature]
        value = build.reshape(build.transpose(apart, order), together)
        for place in spatial:
            value = build.leading(value, place, self.sizes[place])
        return value

    def _weights(self, phases: Sequence[_Phase]) -> mlir.Value:
        """The taps of a phase along each axis."""
        weights = self.op.operands[1]
        sizes = build.static_sizes(weights)
        starts, limits, steps = [0] * len(sizes), list(sizes), [1] * len(sizes)
        for place, phase, axis in zip(self.numbers["kernel_spatial"], phases, self.axes, strict=True):
            starts[place], steps[place], sizes[place] = phase.first, axis.stride, phase.count
            limits[place] = phase.first + (phase.count - 1) * axis.stride + 1
        return mlir.value(
            "stablehlo.slice",
            [weights],
            build.tensor_type(sizes, mlir.element_type(weights.type)),
            start_indices=build.int_array(starts),
            limit_indices=build.int_array(limits),
            strides=build.int_array(steps),
        )

    def _convolution(self, group: Sequence[Sequence[_Phase]]) -> mlir.Value:
        """The phases of ``group``, which read the same pixels, as channels of one convolution."""
        feature = self.numbers["kernel_output_feature"]
        kernel = self._joined([self._weights(phases) for phases in group], feature)
        sizes = list(self.sizes)
        for place, axis in zip(self.numbers["output_spatial"], self.axes, strict=True):
            sizes[place] = axis.results
        sizes[self.numbers["output_feature"]] *= len(group)
        attributes = mlir.attributes_of(self.op)
        attributes.pop("lhs_dilation")
        padding = ", ".join(f"[{phase.before}, {phase.behind}]" for phase in group[0])
        attributes["padding"] = mlir.attribute(f"dense<[{padding}]> : tensor<{len(self.axes)}x2xi64>")
        kind = build.tensor_type(sizes, self.element)
        operands = [self.op.operands[0], kernel]
        return mlir.create("stablehlo.convolution", operands, [kind], attributes).results[0]

    @staticmethod
    def _joined(parts: Sequence[mlir.Value], axis: int) -> mlir.Value:
        if len(parts) == 1:
            return parts[0]
        sizes = build.static_sizes(parts[0])
        sizes[axis] = sum(build.static_sizes(part)[axis] for part in parts)
        kind = build.tensor_type(sizes, mlir.element_type(parts[0].type))
        return mlir.value("stablehlo.concatenate", list(parts), kind, dimension=mlir.int_attr(axis))
