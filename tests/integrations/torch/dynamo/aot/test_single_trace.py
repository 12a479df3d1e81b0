"""Inference graphs that are traced once: the same graphs and records as of AOTAutograd's two runs.

What writes an input, returns an alias or may have other effects is traced as AOTAutograd does.
"""

from __future__ import annotations

import itertools
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


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner = torch.nn.LayerNorm(16), torch.nn.Linear(16, 48)
        self.outer = torch.nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.inner(self.norm(x)).split(16, dim=2)
        query, key, value = (part.view(2, 8, 4, 4).transpose(1, 2) for part in parts)
        joined = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return x + self.outer(joined.transpose(1, 2).reshape(2, 8, 16))


class Convolutions(torch.nn.Module):
    """Its activations are computed in place."""

    def __init__(self, inplace: bool) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            *(torch.nn.Conv2d(4, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(inplace)),
            *(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Dropout(0.5, inplace)),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        wide = self.layers(x)
        return wide, wide.chunk(2, -1)[0] * 2


def _convolution() -> tuple[torch.nn.Module, ...]:
    return torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.SiLU()


def in_place_inside(x: Tensor) -> Tensor:
    result = torch.zeros(4, 4)
    result[1] = x[0]
    result += x
    return result.t().contiguous()


def creations(x: Tensor) -> tuple[Tensor, Tensor]:
    positions = torch.arange(4).unsqueeze(0)
    scaled = x.detach() * torch.tensor([1.0, 2.0, 3.0, 4.0])
    return x.masked_fill(positions > 2, 0.0), scaled.to(torch.float64) @ torch.eye(4, dtype=torch.float64)


def strides(x: Tensor) -> tuple[Tensor, ...]:
    first, second = x.unfold(0, 2, 1).unbind(-1)
    return first.expand(2, 3, 4) + 1, second.reshape(-1).sort()[0], torch.where(x > 0, x, 0).sum(0)


def modes(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x


def modes_between(x: Tensor) -> tuple[Tensor, ...]:
    first = x @ x
    with torch.autocast("cpu", dtype=torch.bfloat16):
        second = x @ x
    return first, second, x @ x


def scalars(x: Tensor) -> tuple[Tensor, ...]:
    return x * 0.0, x * -0.0, x * 1, x * True, x + 1, x + 1.0, x**2, x**2.0


def views(x: Tensor) -> tuple[Tensor, ...]:
    """Equal calls whose operands differ in offset, in strides, or by being the same tensor twice."""
    y = x * 2
    first, second = y[0:2], y[2:4]
    turned, other = y.t(), (x * 3).contiguous()
    same = y.contiguous(), other.contiguous()
    sums = first + second, first + first, y + turned, y + other, turned + y
    halves = [*y.chunk(2, 1), *other.chunk(2, 1)]
    bits = [each.view(torch.int32) + 1 for each in (y, other, first, second)]
    return *sums, *bits, same[0] + same[1], *(half.clone() for half in halves), first[0].exp()


SEPARATE: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "attention": (Attention().eval(), (2, 8, 16)),
    "convolutions": (Convolutions(False).eval(), (1, 4, 6, 6)),
    "convolutions in place": (Convolutions(True).eval(), (1, 4, 6, 6)),
    "in place inside": (in_place_inside, (4, 4)),
    "creations": (creations, (4, 4)),
    "strides": (strides, (4, 4)),
    "modes": (modes, (4, 4)),
    "modes between": (modes_between, (4, 4)),
    "equal layers": (torch.nn.Sequential(*(Attention() for _ in range(3))).eval(), (2, 8, 16)),
    "equal convolutions": (
        torch.nn.Sequential(*(torch.nn.Sequential(*_convolution()) for _ in range(3))).eval(),
        (1, 4, 6, 6),
    ),
    "scalars": (scalars, (4, 4)),
    "views": (views, (4, 4)),
    "transposed": (lambda x: (x * 2).transpose(0, 1), (4, 3)),
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", SEPARATE)
def test_one_trace_gives_what_two_runs_give(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, shape = SEPARATE[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    seen: list[tuple[Any, ...]] = []
    with torch.no_grad():
        for once in (True, False):
            torch._dynamo.reset()
            backend = Backend(monkeypatch, once)
            result = torch.compile(function, backend=backend)(x)
            torch.testing.assert_close(result, function(x))
            assert backend.once == [once]
            seen.append((backend.graphs, backend.records, backend.values))
            monkeypatch.undo()
    assert seen[0] == seen[1]


def test_equal_nodes_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[str] = []
    run_node = PropagateUnbackedSymInts.run_node

    def spied(interpreter: Any, node: torch.fx.Node) -> Any:
        traced.extend([node.name] if node.op.startswith("call") else [])
        return run_node(interpreter, node)

    monkeypatch.setattr(PropagateUnbackedSymInts, "run_node", spied)
    counts: list[int] = []
    for layers in (1, 4):
        model = torch.nn.Sequential(*(Attention() for _ in range(layers))).eval()
        torch._dynamo.reset()
        traced.clear()
        with torch.no_grad():
            torch.compile(model, backend=Backend(monkeypatch))(torch.randn(2, 8, 16))
        counts.append(len(traced))
        monkeypatch.setattr(PropagateUnbackedSymInts, "run_node", spied)
    assert counts[0] == counts[1] > 0


def test_equal_random_operators_draw_their_own_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(x: Tensor) -> tuple[Tensor, Tensor]:
        return F.dropout(x, 0.5) + 1, F.dropout(x, 0.5) + 1

    backend = Backend(monkeypatch)
    with torch.no_grad():
        first, second = torch.compile(draw, backend=backend)(torch.ones(256))
    assert backend.once == [True]
    assert not torch.equal(first, second)


def test_sizes_that_depend_on_data_are_traced_for_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def places(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x.nonzero().sum(0), y.nonzero().sum(0)

    x, y = torch.tensor([1.0, 0.0, 2.0, 0.0]), torch.tensor([1.0, 3.0, 2.0, 0.0])
    symbols: list[str] = []
    with torch.no_grad(), torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        result = torch.compile(places, backend=(backend := Backend(monkeypatch)))(x, y)
    torch.testing.assert_close(result, places(x, y))
    for name, _, values in itertools.chain(*backend.values):
        symbols.extend(str(values[0][0][0]) for _ in range(name.startswith("nonzero")))
    assert len(symbols) == len({*symbols}) == 2, symbols


def _data(x: Tensor, y: Tensor) -> Tensor:
    x.data.mul_(2)
    return x + y


def _subview(x: Tensor, y: Tensor) -> Tensor:
    x[0].add_(1)
    return x + y


def _two_views(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    total = x + y
    return total[0], total[1]


def _statistics(x: Tensor, y: Tensor) -> Tensor:
    return F.batch_norm(x, y[0], y[1], training=True)


def _out(x: Tensor, y: Tensor) -> Tensor:
    return torch.add(x, 1, out=y) * 2


def _unchanged(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.contiguous(), x + y


def _same_type(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.to(torch.float32), x + y


NOT_SEPARATE: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "view of an input": lambda x, y: (x.t(), x + y),
    "unchanged": _unchanged,
    "same dtype": _same_type,
    "written copy of an input": lambda x, y: (x.add(1).mul_(2).view(-1), x.view(-1)),
    "complex numbers": lambda x, y: (torch.complex(x, y).conj() * x).imag * 2,
    "written input": lambda x, y: x.add_(y) * 2,
    "written view": _subview,
    "written data": _data,
    "running statistics": _statistics,
    "out": _out,
    "views of one tensor": _two_views,
    "assignment": lambda x, y: (x.copy_(y), y * 2)[1],
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", NOT_SEPARATE)
def test_writes_and_aliases_are_traced_as_by_aotautograd(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function = NOT_SEPARATE[name]
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(4, 4, generator=generator) for _ in range(2))
    ours, theirs = (x.clone(), y.clone().abs()), (x.clone(), y.clone().abs())
    backend = Backend(monkeypatch)
    with torch.no_grad():
        results, expected = torch.compile(function, backend=backend)(*ours), function(*theirs)
    torch.testing.assert_close(results, expected)
    torch.testing.assert_close(ours, theirs)
    assert [value.shape for value in ours] == [value.shape for value in theirs]
    assert _aliases(results, ours) == _aliases(expected, theirs)
    assert backend.once
    assert not any(backend.once)


def test_a_mode_that_a_graph_leaves_is_that_of_eager_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    def leaves_grad_mode(x: Tensor) -> Tensor:
        torch.set_grad_enabled(False)
        return x * 2

    backend = Backend(monkeypatch)
    try:
        torch.compile(leaves_grad_mode, backend=backend)(torch.ones(3))
        assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)
    assert backend.once == [False]


def test_updates_inside_vmap(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return torch.vmap(lambda a, b: (a * b).add_(b))(x, y)

    def writes(x: Tensor, y: Tensor) -> Tensor:
        return torch.vmap(lambda a, b: a.add_(b))(x, y) * 2

    for of, once in ((function, True), (writes, False)):
        backend, ours, theirs = Backend(monkeypatch), torch.ones(2, 3), torch.ones(2, 3)
        y = torch.arange(6.0).view(2, 3)
        with torch.no_grad():
            torch.testing.assert_close(torch.compile(of, backend=backend)(ours, y), of(theirs, y))
        torch.testing.assert_close(ours, theirs)
        assert backend.once == [once]
        monkeypatch.undo()


def test_gradients_are_traced_as_by_aotautograd(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Backend(monkeypatch)
    x = torch.ones(3, requires_grad=True)
    torch.compile(lambda x: (x * 2).sum(), backend=backend)(x).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0] * 3
    assert backend.once == [False]


def _aliases(results: Any, inputs: Sequence[Tensor]) -> list[tuple[int, int]]:
    """Pairs of tensors that share a storage."""
    outputs = results if isinstance(results, tuple) else (results,)
    tensors = [*outputs, *inputs]
    pointers = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return [(i, j) for i, a in enumerate(pointers) for j, b in enumerate(pointers) if i < j and a == b]


def test_numbers_that_are_symbols_are_traced_as_by_aotautograd(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch makes a tensor of a float that changes, whose item is a symbol: copies have none."""

    def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x * factor + factor if factor > 0 else x

    backend = Backend(monkeypatch)
    compiled = torch.compile(scaled, backend=backend, fullgraph=True)
    x = torch.arange(6.0)
    with torch.no_grad():
        for factor in (1.0, 2.5, 3.5):
            torch.testing.assert_close(compiled(x, factor), scaled(x, factor))
    assert backend.once == [True, False]
