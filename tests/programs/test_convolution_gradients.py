"""Gradients of convolutions, against PyTorch's own."""

from __future__ import annotations

import itertools

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch

from kcache_grpc.programs.torch.decompositions import convolution_gradients

#: Rank, transposed, groups, stride, padding, dilation, window, output padding.
CASES = [
    case
    for case in itertools.product((1, 2), (False, True), (1, 2), (1, 3), (0, 1), (1, 2), (1, 4), (0, 1))
    if (case[0] != 2 or case[1] or case[2] > 1) and (not case[7] or (case[1] and max(case[3], case[5]) > 1))
]


def test_gradients() -> None:
    [(operator, gradients)] = convolution_gradients.decompositions().items()
    for rank, transposed, groups, stride, padding, dilation, size, rest in CASES:
        channels = (4, 8 // groups) if transposed else (8, 4 // groups)
        weight = torch.randn(*channels, *[size] * rank, dtype=torch.float64)
        values = torch.randn(2, 4, *(13, 14)[:rank], dtype=torch.float64)
        options = ([stride] * rank, [padding] * rank, [dilation] * rank, transposed, [rest] * rank, groups)
        output = torch.ops.aten.convolution(values, weight, None, *options)
        arguments = (torch.randn_like(output), values, weight, [8], *options, [True] * 3)
        for actual, expected in zip(gradients(*arguments), operator(*arguments), strict=True):
            torch.testing.assert_close(actual, expected)


def test_others_are_left_whole() -> None:
    [(_, gradients)] = convolution_gradients.decompositions().items()
    values, weight = torch.zeros(1, 2, 5, 5), torch.zeros(3, 2, 3, 3)
    arguments = (torch.zeros(1, 3, 3, 3), values, weight, [3], [1], [0], [1], False, [0], 1, [True] * 3)
    assert gradients(*arguments) is NotImplemented
