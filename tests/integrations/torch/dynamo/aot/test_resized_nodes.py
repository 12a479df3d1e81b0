"""Elementwise nodes that differ in their sizes are traced once, to the graphs of AOTAutograd's two runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import PropagateUnbackedSymInts

from tests.integrations.torch.dynamo.aot.backends import Backend

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

#: Sizes of which some are 1, and some are equal.
SIZES = ((2, 3, 4, 5), (2, 8, 6, 6), (1, 4, 5, 7), (1, 6, 2, 3), (2, 5, 1, 1), (2, 7, 1, 1), (2, 1, 3, 4))
SIZES += ((2, 1, 5, 6), (1, 1, 1, 1), (3, 3, 3, 3), (3, 2, 4, 1), (3, 5, 2, 1), (0, 3, 4, 5), (2, 3, 0, 5))
#: The same for other ranks.
OTHER_SIZES = ((4, 3), (5, 7), (1, 3), (1, 6), (2, 3, 4), (2, 5, 6), (2, 3, 2, 4, 5), (2, 4, 3, 5, 6))
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x,
    "transposed": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
    "sliced": lambda x: torch.cat([x, x], -1)[..., : x.shape[-1]],
    "offset": lambda x: torch.cat([x[:1], x])[1:],
    "expanded": lambda x: x[:1].expand(x.shape),
}
_TOLERANCE: dict[torch.dtype, dict[str, Any]] = {
    torch.bfloat16: {"rtol": 0.05, "atol": 0.05},
    torch.float16: {"rtol": 0.01, "atol": 0.01},
}


def _norm(x: Tensor, seed: int, **settings: Any) -> torch.nn.Module:
    norm = (
        torch.nn.BatchNorm1d if x.dim() < 4 else {4: torch.nn.BatchNorm2d, 5: torch.nn.BatchNorm3d}[x.dim()]
    )(x.shape[1], **settings)
    generator = torch.Generator().manual_seed(seed)
    for value in norm.state_dict().values():
        if value.is_floating_point():
            value.copy_(torch.rand(value.shape, generator=generator) + 0.5)
    return norm


class Each(torch.nn.Module):
    """A module for each of several tensors."""

    def __init__(self, layers: Sequence[torch.nn.Module]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(layer(x) for layer, x in zip(self.layers, inputs, strict=True))


def _inputs(sizes: Sequence[Sequence[int]], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(size, generator=generator).to(dtype) for size in sizes]


def _compare(
    function: Callable[..., Any],
    inputs: Sequence[Tensor],
    monkeypatch: pytest.MonkeyPatch,
    *,
    once: bool = True,
    **settings: Any,
) -> int:
    """Compare a trace and its results with those of two runs; returns how many nodes were traced."""
    seen: list[tuple[Any, ...]] = []
    found: list[tuple[Tensor, ...]] = []
    traced: list[str] = []
    run_node = PropagateUnbackedSymInts.run_node

    def spied(interpreter: Any, node: torch.fx.Node) -> Any:
        traced.extend([node.name] if node.op.startswith("call") else [])
        return run_node(interpreter, node)

    with torch.no_grad():
        expected = function(*inputs)
        for attempt in (False, True):
            torch._dynamo.reset()
            traced.clear()
            backend = Backend(monkeypatch, attempt)
            monkeypatch.setattr(PropagateUnbackedSymInts, "run_node", spied)
            results = torch.compile(function, backend=backend, fullgraph=True, **settings)(*inputs)
            monkeypatch.undo()
            assert {*backend.once} == {attempt and once}
            for result, other in zip(results, expected, strict=True):
                # Kernels of PyTorch round 16-bit results of batch norms otherwise than its decompositions.
                torch.testing.assert_close(result, other, **_TOLERANCE.get(result.dtype, {}))
            seen.append((backend.graphs, backend.records, backend.values))
            found.append(results)
    assert seen[0] == seen[1]
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0, equal_nan=True, check_stride=True)
    return len(traced)


@pytest.mark.sampled(18)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_batch_norms_of_several_sizes(
    layout: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [size for size in SIZES if layout in ("contiguous", "channels last") or 0 not in size]
    inputs = [LAYOUTS[layout](x) for x in _inputs(sizes, dtype)]
    model = Each([_norm(x, seed).to(dtype) for seed, x in enumerate(inputs)]).eval()
    count = _compare(model, inputs, monkeypatch)
    if layout in ("contiguous", "channels last"):
        assert count < len(inputs)


@pytest.mark.sampled(18)
@pytest.mark.parametrize(
    "settings",
    [{}, {"eps": 0.25}, {"affine": False}, {"momentum": None}, {"eps": 0.0, "affine": False}],
    ids=str,
)
def test_settings_of_batch_norms(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = _inputs((*SIZES[:4], *OTHER_SIZES))
    model = Each([_norm(x, seed, **settings) for seed, x in enumerate(inputs)]).eval()
    assert _compare(model, inputs, monkeypatch) == len(inputs) // 2


def test_batch_norms_that_differ_in_a_constant_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = _inputs(SIZES[:2] * 2)
    model = Each([_norm(x, i, eps=(0.1, 0.1, 0.2, 0.3)[i]) for i, x in enumerate(inputs)]).eval()
    assert _compare(model, inputs, monkeypatch) == 3


def test_a_weight_of_another_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = _inputs(SIZES[:2] * 2, torch.bfloat16)
    norms = [_norm(x, seed) for seed, x in enumerate(inputs)]
    model = Each([*norms[:2], *(norm.to(torch.bfloat16) for norm in norms[2:])]).eval()
    assert _compare(model, inputs, monkeypatch) == 2


def test_batch_norms_with_own_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = _inputs(SIZES[:4])
    model = Each([_norm(x, seed, track_running_stats=False) for seed, x in enumerate(inputs)]).eval()
    # These flags are those of layers that write running statistics.
    _compare(model, inputs, monkeypatch, once=False)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_training_without_gradients_updates_statistics(
    momentum: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def model() -> Each:
        return Each([_norm(x, seed, momentum=momentum) for seed, x in enumerate(inputs)]).train()

    inputs = _inputs(SIZES[:2])
    ours, theirs = model(), model()
    backend = Backend(monkeypatch)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(torch.compile(ours, backend=backend)(*inputs), theirs(*inputs))
    assert not any(backend.once)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    assert all(int(layer.num_batches_tracked) == 2 for layer in ours.layers)  # type: ignore[arg-type]


def test_a_dynamic_batch_is_traced_as_by_aotautograd(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = _inputs(SIZES[:2])
    model = Each([_norm(x, seed) for seed, x in enumerate(inputs)]).eval()
    _compare(model, inputs, monkeypatch, once=False, dynamic=True)


def test_gradients_of_batch_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = _inputs(SIZES[:2])
    ours, theirs = (Each([_norm(x, seed) for seed, x in enumerate(inputs)]).eval() for _ in range(2))
    for model in (torch.compile(ours, backend=(backend := Backend(monkeypatch))), theirs):
        torch.stack([result.square().sum() for result in model(*inputs)]).sum().backward()
    assert backend.once == [False]
    for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        function.__name__: function
        for function in (
            *(F.relu, F.relu6, F.leaky_relu, F.elu, F.hardtanh, F.silu, F.mish, F.hardswish, F.hardsigmoid),
            *(F.gelu, F.sigmoid, F.tanh, F.softplus, torch.relu, torch.sigmoid, torch.tanh),
        )
    },
    "gelu of tanh": lambda x: F.gelu(x, approximate="tanh"),
    "method": lambda x: x.sigmoid(),
    "scalar": lambda x: x * 2.5,
    "alpha": lambda x: torch.add(x, x, alpha=2),
    "truncated": lambda x: torch.div(x, 0.5, rounding_mode="trunc"),
    "twice": lambda x: x * x,
    "gate": lambda x: x * x.mean((2, 3), keepdim=True),
    "gate first": lambda x: x.mean((2, 3), keepdim=True) * x,
    "rows": lambda x: x + x.mean(2, keepdim=True) / x.mean(3, keepdim=True),
    "last axis": lambda x: x - x.mean((0, 1, 2)),
    "channels last": lambda x: x + x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x + x.transpose(2, 3).contiguous().transpose(2, 3),
    "double": lambda x: x + x.double(),
    "scalar tensor": lambda x: x * x.sum(),
    "integers": lambda x: x.int() + x,
    "booleans": lambda x: (x > 0) * x,
}


@pytest.mark.sampled(36)
@pytest.mark.parametrize("layout", ["contiguous", "channels last", "transposed"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_several_sizes(name: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function = FUNCTIONS[name]

    def run(*inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(function(x) for x in inputs)

    inputs = [LAYOUTS[layout](x) for x in _inputs(SIZES[:-2])]
    assert _compare(run, inputs, monkeypatch) > 0
