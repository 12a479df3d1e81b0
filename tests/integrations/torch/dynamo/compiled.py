"""Comparison of a compiled function with eager mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kcache_grpc.integrations.torch.dynamo.lowering import decisions

Inputs = tuple[Any, ...]


def strict(address: str) -> dict[str, Any]:
    """Options by which a failure of kcache fails the test."""
    return {"address": address, "strict": True}


def compile_with(
    function: Callable[..., Any], address: str, *, options: Mapping[str, Any] | None = None, **settings: Any
) -> Callable[..., Any]:
    """``function`` compiled by the backend for a service, strict unless the options say otherwise."""
    return torch.compile(
        function, backend="kcache", options={**strict(address), **(options or {})}, **settings
    )


def tensor(*shape: int, grad: bool = False, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normally distributed elements."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator).to(dtype)
    return values.requires_grad_(grad)


def kernel_count() -> int:
    """Kernels of the graphs since the last ``decisions.forget()``."""
    return sum(len(decision.kernels) for decision in decisions.decisions())


def check(
    function: Callable[..., Any],
    inputs: Callable[[], Inputs],
    address: str,
    *,
    kernel: bool = True,
    backward: bool = True,
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> None:
    """Compare outputs, gradients, changed inputs and aliases with eager mode, traced and from a record.

    ``kernel``: at least one kernel must have been compiled.
    """
    expected = list(_observed(function, inputs, backward))
    for start in ("traced", "warm"):
        torch._dynamo.reset()
        decisions.forget()
        compiled = compile_with(function, address, options=options, **settings)
        for call in range(2):
            for name, value in _compared(list(_observed(compiled, inputs, backward)), expected):
                torch.testing.assert_close(
                    *value, msg=lambda text, at=(start, call, name): f"{at}: {text}", equal_nan=True
                )
        if kernel:
            assert kernel_count() > 0, [str(decision) for decision in decisions.decisions()]


def _compared(
    actual: Sequence[tuple[str, Any]], expected: Sequence[tuple[str, Any]]
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    assert [name for name, _ in actual] == [name for name, _ in expected]
    for (name, value), (_, other) in zip(actual, expected, strict=True):
        yield name, (value, other)


def _observed(
    function: Callable[..., Any], inputs: Callable[[], Inputs], backward: bool
) -> Iterator[tuple[str, Any]]:
    """Everything about one call that a program can see, by name."""
    torch.manual_seed(7)
    arguments = inputs()
    result = function(*arguments)
    outputs = pytree.tree_leaves(result)
    tensors = [output for output in outputs if isinstance(output, Tensor)]
    for index, output in enumerate(outputs):
        if isinstance(output, Tensor):
            yield f"type of output {index}", [output.requires_grad, type(output) is Tensor]
            yield f"strides of output {index}", [] if output.layout is not torch.strided else _strides(output)
            yield f"output {index}", _plain(output)
        else:
            yield f"output {index}", output
    yield "aliases", [x.is_set_to(y) for x in tensors for y in tensors if x.layout is torch.strided]
    yield "inputs returned", [any(x is y for y in arguments) for x in outputs]
    differentiable = [x for x in tensors if x.requires_grad and (x.is_floating_point() or x.is_complex())]
    if backward and differentiable:
        sum((x.abs() * 3).sum() for x in differentiable).backward()
    for index, argument in enumerate(pytree.tree_leaves(arguments)):
        if isinstance(argument, Tensor):
            yield f"input {index} afterwards", _plain(argument)
            if argument.is_leaf and argument.grad is not None:
                yield f"gradient of input {index}", _plain(argument.grad)


def _strides(value: Tensor) -> list[int]:
    return list(value.stride()) if value.numel() > 1 else []


def _plain(value: Tensor) -> Tensor:
    if value.is_quantized:
        value = value.dequantize()
    if value.layout is not torch.strided:
        value = value.to_dense()
    return value.detach().resolve_conj().resolve_neg().clone()
