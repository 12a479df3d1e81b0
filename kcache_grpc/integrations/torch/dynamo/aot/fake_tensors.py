"""Fake tensors of known metadata, made without the dispatch of an operator, which takes much longer.

All are of static sizes, and of the current mode of a trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from typing import Any

torch: Any = import_module("torch")
_fakes: Any = import_module("torch._subclasses.fake_tensor")

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_DEVICES = ("cpu", "cuda")


def new_empty(mode: Any, size: Sequence[int], stride: Sequence[int], dtype: Any, device: Any) -> Any:
    """A tensor with its own storage."""
    if mode.propagate_real_tensors:
        with mode:
            return torch.empty_strided(size, stride, dtype=dtype, device=device)
    with _fakes.in_kernel_invocation_manager(mode):
        element = torch.empty_strided(size, stride, dtype=dtype, device="meta")
    return _fakes.FakeTensor(mode, element, device)


def view_of(base: Any, size: Sequence[int], stride: Sequence[int], offset: int) -> Any:
    """A tensor with the storage of ``base``. ``stride`` and ``offset`` count elements."""
    mode = base.fake_mode
    if mode.propagate_real_tensors:
        return torch.as_strided(base, size, stride, offset)
    with _fakes.in_kernel_invocation_manager(mode):
        element = torch.as_strided(base, size, stride, offset)
    return _fakes.FakeTensor(mode, element, base.fake_device)


def detached(value: Any) -> Any:
    """``value.detach()``, which requires grad if ``value`` does."""
    mode = value.fake_mode
    if mode.propagate_real_tensors:
        return value.detach().requires_grad_(value.requires_grad)
    with _fakes.in_kernel_invocation_manager(mode):
        element = value.detach()
    return _fakes.FakeTensor(mode, element, value.fake_device).requires_grad_(value.requires_grad)


def fakes_of(mode: Any, values: Sequence[Any]) -> list[Any]:
    """The fake tensors that ``mode`` makes of inputs of static sizes; other values as they are.

    Those are tensors that the mode has to look into: subclasses, views, tensors that share a storage with
    another input, tensors of rank 0, and others that a size, strides and a dtype do not describe.
    """
    if mode.propagate_real_tensors or torch._C._functorch.peek_interpreter_stack() is not None:
        return list(values)
    plain = [_is_plain(value) for value in values]
    shared: Counter[int] = Counter(
        value.untyped_storage()._cdata
        for value in values
        if isinstance(value, torch.Tensor) and _has_storage(value)
    )
    return [
        _fake_of(mode, value) if is_plain and shared[value.untyped_storage()._cdata] == 1 else value
        for value, is_plain in zip(values, plain, strict=True)
    ]


def _has_storage(value: Any) -> bool:
    return value.layout is torch.strided and type(value) in _PLAIN


def _is_plain(value: Any) -> bool:
    if type(value) not in _PLAIN or value.layout is not torch.strided or value.device.type not in _DEVICES:
        return False
    if not value.dim() or value.storage_offset() or value._is_view() or not value.is_leaf:
        return False
    if value.is_quantized or value.is_nested or value.is_inference():
        return False
    if value.is_conj() or value.is_neg() or value._is_zerotensor() or value.grad is not None:
        return False
    if torch._is_functional_tensor(value) or getattr(value, "_is_buffer", False):
        return False
    if value.requires_grad and value.grad_dtype != value.dtype:
        return False
    return value.untyped_storage().nbytes() == _bytes(value)


def _bytes(value: Any) -> int:
    """The smallest storage of a tensor."""
    if not value.numel():
        return 0
    steps = zip(value.shape, value.stride(), strict=True)
    return (1 + sum((size - 1) * stride for size, stride in steps)) * value.itemsize


def _fake_of(mode: Any, value: Any) -> Any:
    fake = new_empty(mode, value.shape, value.stride(), value.dtype, value.device)
    if type(value) is torch.nn.Parameter:
        fake._is_param = True
    return fake.requires_grad_(value.requires_grad)
