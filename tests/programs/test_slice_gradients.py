"""Gradients of slices and writes of slices, against PyTorch's own."""

from __future__ import annotations

import itertools
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch

from kcache_grpc.programs.torch.decompositions import scatter

_DECOMPOSITIONS = scatter.decompositions()
_ATEN = torch.ops.aten
#: Size, dimension, start, end, step.
SLICES = list(itertools.product((5, 8), (0, 1, -1), (0, 1, 3, -2), (2, 5, -1, sys.maxsize), (1, 2, 3)))


def _shape(size: int, dim: int) -> list[int]:
    shape = [3, 4, 2]
    shape[dim] = size
    return shape


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_gradients_of_slices(dtype: torch.dtype) -> None:
    for size, dim, start, end, step in SLICES:
        sizes = _shape(size, dim)
        part = _ATEN.slice(torch.zeros(sizes), dim, start, end, step)
        gradient = torch.randint(1, 9, part.shape).to(dtype)
        arguments = (gradient, sizes, dim, start, end, step)
        actual = _DECOMPOSITIONS[_ATEN.slice_backward.default](*arguments)
        assert torch.equal(actual, _ATEN.slice_backward(*arguments))
        assert actual.dtype == dtype


def test_gradients_of_selections() -> None:
    for dim, index in itertools.product((0, 1, -1), (0, 2, -1)):
        sizes = _shape(3, dim)
        gradient = torch.randn(torch.zeros(sizes).select(dim, index).shape)
        actual = _DECOMPOSITIONS[_ATEN.select_backward.default](gradient, sizes, dim, index)
        assert torch.equal(actual, _ATEN.select_backward(gradient, sizes, dim, index))


def test_writes_of_slices() -> None:
    for size, dim, start, end, step in SLICES:
        values = torch.randn(_shape(size, dim))
        source = torch.randn(_ATEN.slice(values, dim, start, end, step).shape)
        arguments = (values, source, dim, start, end, step)
        actual = _DECOMPOSITIONS[_ATEN.slice_scatter.default](*arguments)
        assert actual is NotImplemented or torch.equal(actual, _ATEN.slice_scatter(*arguments))
        assert actual is not NotImplemented or end != sys.maxsize
