"""Products of groups of rows with a matrix each, such as those of tokens and their experts, as operators.

``kcache::grouped_mm(rows, weights, offsets)``: group ``g`` is the rows from ``offsets[g - 1]``, 0 for the
first one, to ``offsets[g]``, and is multiplied by ``weights[g]``; rows after the last group give zeros.
Shapes are ``[S, K]``, ``[G, K, N]``, ``[G]`` and ``[S, N]``. ``kcache::grouped_outer(left, right, offsets)``
is for each group the transpose of its left rows times its right rows: ``[S, K]`` and ``[S, N]`` to
``[G, K, N]``.

They stand for ``aten._grouped_mm`` and for the operators of the package ``transformers`` that do the same, on
the CPU; the service lowers them to loops over blocks of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

_torch: Any = import_module("torch")


def _bounds(offsets: Any) -> Iterator[tuple[int, int, int]]:
    """The groups that have rows, with their first row and their end."""
    start = 0
    for group, end in enumerate(offsets.tolist()):
        if end > start:
            yield group, start, end
        start = max(start, end)


def grouped_mm(rows: Any, weights: Any, offsets: Any) -> Any:
    """The products of all groups, by PyTorch."""
    result = rows.new_zeros((rows.shape[0], weights.shape[2]))
    for group, start, end in _bounds(offsets):
        result[start:end] = rows[start:end] @ weights[group]
    return result


def grouped_outer(left: Any, right: Any, offsets: Any) -> Any:
    """The sums of outer products of all groups, by PyTorch."""
    result = left.new_zeros((offsets.shape[0], left.shape[1], right.shape[1]))
    for group, start, end in _bounds(offsets):
        result[group] = left[start:end].t() @ right[start:end]
    return result


def _fake_grouped_mm(rows: Any, weights: Any, _: Any) -> Any:
    return rows.new_empty((rows.shape[0], weights.shape[2]))


def _fake_grouped_outer(left: Any, right: Any, offsets: Any) -> Any:
    return left.new_empty((offsets.shape[0], left.shape[1], right.shape[1]))


#: Schema of an operator -> its kernel outside of programs, and its results for fake tensors.
OPERATORS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "grouped_mm(Tensor rows, Tensor weights, Tensor offsets) -> Tensor": (grouped_mm, _fake_grouped_mm),
    "grouped_outer(Tensor left, Tensor right, Tensor offsets) -> Tensor": (
        grouped_outer,
        _fake_grouped_outer,
    ),
}


# Operators of PyTorch and transformers as these.


def rows() -> dict[Any, Any]:
    """Operator -> its decomposition, for the operators that there are now."""
    table: dict[Any, Callable[..., Any]] = {_torch.ops.aten._grouped_mm.default: _aten_grouped_mm}
    library: Any = _torch.ops.transformers
    for name, decomposition in (
        ("grouped_mm_fallback", _fallback),
        ("grouped_mm_fallback_backward", _fallback_backward),
    ):
        packet = getattr(library, name, None)
        if packet is not None:
            table[packet.default] = decomposition
    return table


def _operators() -> Any:
    return import_module("kcache_grpc.programs.torch.recurrent").operators()


def _is_computed(*tensors: Any) -> bool:
    """Whether the product of these tensors is an operator here: on the CPU, of one floating-point type."""
    dtypes = {tensor.dtype for tensor in tensors}
    return len(dtypes) == 1 and all(
        tensor.device.type == "cpu" and tensor.is_floating_point() for tensor in tensors
    )


def _aten_grouped_mm(left: Any, right: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """Of rows and matrices; of columns and rows, whose products are summed; of matrices and columns."""
    if bias is not None or out_dtype not in (None, left.dtype) or not _is_computed(left, right):
        return NotImplemented
    ranks = (left.dim(), right.dim())
    if ranks == (3, 3):
        return _torch.bmm(left, right)
    if ranks == (2, 3):
        return _operators().grouped_mm(left, right, offs)
    if ranks == (2, 2):
        return _operators().grouped_outer(left.t(), right, offs)
    return _operators().grouped_mm(right.t(), left.transpose(1, 2), offs).t().contiguous()


def _fallback(input: Any, weight: Any, offs: Any) -> Any:
    """``transformers::grouped_mm_fallback``."""
    if not _is_computed(input, weight):
        return NotImplemented
    return _operators().grouped_mm(input, weight, offs)


def _fallback_backward(input: Any, weight: Any, offs: Any, grad_output: Any) -> Any:
    """``transformers::grouped_mm_fallback_backward``; the gradient of a transposed weight is transposed."""
    if not _is_computed(input, weight, grad_output):
        return NotImplemented
    grad_input = _operators().grouped_mm(grad_output, weight.transpose(1, 2), offs)
    if weight.stride()[-2:] == (1, weight.shape[-2]):
        return grad_input, _operators().grouped_outer(grad_output, input, offs).transpose(1, 2)
    return grad_input, _operators().grouped_outer(input, grad_output, offs)
