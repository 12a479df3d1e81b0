"""Which inputs of a graph kernels may have bound."""

from __future__ import annotations

from importlib import import_module
from typing import Any

torch: Any = import_module("torch")
_FAKE: Any = import_module("torch._subclasses.fake_tensor").FakeTensor


def is_bindable(value: Any) -> bool:
    """Whether a value is a plain tensor on the CPU whose updates in place PyTorch counts."""
    plain = type(value) in (torch.Tensor, torch.nn.Parameter) or isinstance(value, _FAKE)
    return (
        plain
        and value.device.type == "cpu"
        and value.layout is torch.strided
        and not (value.is_quantized or value.is_complex() or value.is_neg() or value.is_inference())
    )
