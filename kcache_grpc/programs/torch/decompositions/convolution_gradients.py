"""Gradients of convolutions that torch-mlir does not lower: of grouped and of transposed ones, and of those
over one or three dimensions.

Each gradient is a convolution too.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

torch: Any = import_module("torch")
aten: Any = torch.ops.aten


def decompositions() -> dict[Any, Any]:
    """Operation -> its decomposition."""
    return {aten.convolution_backward.default: _convolution_backward}


def _convolution_backward(
    gradient: Any,
    input: Any,
    weight: Any,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    """The gradients of input, weight ``[out, in / groups, ...]`` and bias."""
    spatial = [*input.shape[2:], *gradient.shape[2:]]
    rank = input.dim() - 2
    lowered = groups == 1 and not transposed and rank == 2
    if lowered or not all(isinstance(size, int) for size in spatial):
        return NotImplemented
    window = [_repeated(values, rank) for values in (stride, padding, dilation)]
    results: list[Any] = [None, None, None]
    if output_mask[0]:
        results[0] = _of_input(gradient, input, weight, window, transposed, groups)
    if output_mask[1]:
        pair = (gradient, input) if transposed else (input, gradient)
        results[1] = _of_weight(*pair, weight, window, groups)
    if output_mask[2]:
        results[2] = gradient.sum([0, *range(2, rank + 2)])
    return tuple(results)


def _repeated(values: Sequence[int], rank: int) -> list[int]:
    return [*values] * rank if len(values) == 1 else [*values]


def _of_input(
    gradient: Any, input: Any, weight: Any, window: Sequence[list[int]], transposed: bool, groups: int
) -> Any:
    """The transposed convolution of the gradient, or the convolution where that was transposed."""
    stride, padding, dilation = window
    rank = input.dim() - 2
    if transposed:
        zeros = [0] * rank
        result = aten.convolution(gradient, weight, None, stride, padding, dilation, False, zeros, groups)
        return _narrowed(result, input)  # an output padding above the stride leaves steps over
    rest = [
        input.shape[axis + 2]
        - ((gradient.shape[axis + 2] - 1) * stride[axis] - 2 * padding[axis])
        - (dilation[axis] * (weight.shape[axis + 2] - 1) + 1)
        for axis in range(rank)
    ]
    return aten.convolution(gradient, weight, None, stride, padding, dilation, True, rest, groups)


def _of_weight(wide: Any, narrow: Any, weight: Any, window: Sequence[list[int]], groups: int) -> Any:
    """A convolution of ``wide``, which the window moves over, with ``narrow``, with a value for each step.

    The batch is what is summed over, so it takes the place of the channels of a group.
    """
    stride, padding, dilation = window
    rank = wide.dim() - 2
    batch, channels, *sizes = wide.shape
    operand = wide.reshape(batch, groups, channels // groups, *sizes).transpose(0, 2)
    operand = operand.reshape(channels // groups, groups * batch, *sizes)
    result = aten.convolution(
        operand, narrow.transpose(0, 1), None, dilation, padding, stride, False, [0] * rank, groups
    )
    return _narrowed(result.transpose(0, 1), weight)  # without steps that the last stride left over


def _narrowed(result: Any, like: Any) -> Any:
    """The first elements along each spatial axis, as many as ``like`` has."""
    for axis in range(2, like.dim()):
        if result.shape[axis] != like.shape[axis]:
            result = result.narrow(axis, 0, like.shape[axis])
    return result
