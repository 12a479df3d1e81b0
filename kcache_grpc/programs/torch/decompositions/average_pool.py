"""Means of windows that round up their number, or have a divisor of their own: torch-mlir rejects them, or
takes the window's size for the divisor.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any, NamedTuple


def decompositions() -> dict[Any, Any]:
    """ATen operation -> what it is replaced by."""
    aten: Any = import_module("torch").ops.aten
    return {
        aten.avg_pool2d.default: _avg_pool(aten.avg_pool2d.default, 2),
        aten.avg_pool3d.default: _avg_pool(aten.avg_pool3d.default, 3),
    }


class _Axis(NamedTuple):
    """A window's way along one axis."""

    size: int
    window: int
    step: int
    pad: int
    up: bool

    @property
    def windows(self) -> int:
        rest = self.size + 2 * self.pad - self.window
        count = (-(-rest // self.step) if self.up else rest // self.step) + 1
        return count - 1 if self.up and (count - 1) * self.step >= self.size + self.pad else count

    @property
    def behind(self) -> int:
        """What has to be padded behind."""
        return max((self.windows - 1) * self.step + self.window - self.size - self.pad, 0)

    def divisors(self, torch: Any, padded: bool) -> Any:
        """How many elements each window has along the axis."""
        first = torch.arange(self.windows) * self.step - self.pad
        end = (first + self.window).clamp(max=self.size + (self.pad if padded else 0))
        return end - (first if padded else first.clamp(min=0))


def _avg_pool(operation: Any, rank: int) -> Any:
    def decomposed(
        x: Any,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        torch: Any = import_module("torch")
        sizes = x.shape[-rank:]
        known = all(type(size) is int for size in sizes) and x.is_floating_point()
        if not known or (not ceil_mode and divisor_override is None):
            return NotImplemented
        parts = [_spread(part, rank) for part in (kernel_size, stride or kernel_size, padding)]
        axes = [_Axis(size, k, s, p, ceil_mode) for size, k, s, p in zip(sizes, *parts, strict=True)]
        wide = x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x
        margins = [margin for axis in reversed(axes) for margin in (axis.pad, axis.behind)]
        means = operation(torch.constant_pad_nd(wide, margins, 0.0), parts[0], parts[1])
        for at, axis in enumerate(axes):
            means = means.narrow(at - rank, 0, axis.windows)
        total = means * float(math.prod(parts[0]))
        if divisor_override is not None:
            return (total / float(divisor_override)).to(x.dtype)
        for at, axis in enumerate(axes):
            shape = [axis.windows if other == at else 1 for other in range(rank)]
            total = total / axis.divisors(torch, count_include_pad).reshape(shape).to(total.dtype)
        return total.to(x.dtype)

    return decomposed


def _spread(value: Any, rank: int) -> list[int]:
    numbers = [value] if isinstance(value, int) else [*value]
    return numbers * (rank // len(numbers))
