"""Layouts of tensors in a graph: row-major, a permutation of that, or neither."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kcache_grpc.integrations.torch.dynamo.lowering.plan import Layout, LayoutLike
from kcache_grpc.integrations.torch.dynamo.lowering.sizes import Sample, evaluated


def layout_of(tensor: Any, samples: Sequence[Sample]) -> LayoutLike:
    """``None`` for a row-major tensor, ``"copy"`` where no order of its axes is row-major."""
    layouts = {_layout_at(tensor, sample) for sample in samples or ({},)}
    return layouts.pop() if len(layouts) == 1 else "copy"


def _layout_at(tensor: Any, sample: Sample) -> LayoutLike:
    sizes = [evaluated(size, sample) for size in tensor.shape]
    strides = [evaluated(stride, sample) for stride in tensor.stride()]
    if 0 in sizes or is_row_major(sizes, strides):
        return None
    # Axes of size 1 keep their position among those of larger strides.
    order = sorted(range(len(sizes)), key=lambda axis: (-strides[axis], axis))
    permuted = is_row_major([sizes[axis] for axis in order], [strides[axis] for axis in order])
    return Layout(tuple(order)) if permuted else "copy"


def is_row_major(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a tensor of these sizes and strides is contiguous in the order of its axes."""
    expected = 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
