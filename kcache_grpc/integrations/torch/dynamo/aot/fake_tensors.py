"""Fake tensors of known metadata, made without the dispatch of an operator, which takes much longer.

All are of static sizes, and of the current mode of a trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

torch: Any = import_module("torch")
_fakes: Any = import_module("torch._subclasses.fake_tensor")


def new_empty(mode: Any, size: Sequence[int], stride: Sequence[int], dtype: Any, device: Any) -> Any:
    """A tensor with a storage of its own."""
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
