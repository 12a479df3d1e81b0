"""PyTorch modules exported with open sizes: one kernel gives what the module does, at every size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional

from kcache_compiler import CompileOptions, canonicalize
from kcache_compiler.compile import compile_spec
from kcache_grpc.model.target import host_target
from tests.compiler.torch_modules import Function, text_of
from tests.ops.harness.native import run

#: A module, the shape of its argument with 5 where it is open, and the open axis.
CASES: dict[str, tuple[Any, tuple[int, ...], int]] = {
    "softmax": (lambda x: torch.softmax(x, -1), (5, 7), 0),
    "softmax over the open axis": (lambda x: torch.softmax(x, 0), (5, 7), 0),
    "log_softmax": (lambda x: torch.log_softmax(x, -1), (5, 7), 0),
    "view": (lambda x: x.view(x.shape[0] * 2, 2).sum(1), (5, 4), 0),
    "positions": (lambda x: torch.arange(x.shape[0])[:, None] + x, (5, 4), 0),
    "attention": (lambda x: functional.scaled_dot_product_attention(x, x, x), (2, 3, 5, 4), 2),
    "attention over a batch": (lambda x: functional.scaled_dot_product_attention(x, x, x), (5, 3, 6, 4), 0),
    "product": (lambda x: x @ x.transpose(0, 1), (5, 4), 0),
    "mean of the open axis": (lambda x: x.mean(0), (5, 4), 0),
    "var": (lambda x: x.var(0), (5, 4), 0),
    "stack and split": (lambda x: torch.cat([x[:, :2], x[:, 2:] * 2, x], 1), (5, 4), 0),
    "cumsum": (lambda x: x.cumsum(1), (5, 4), 0),
    "where": (lambda x: torch.where(x > 0, x, x.mean(1, keepdim=True)), (5, 4), 0),
    "expand": (lambda x: x[:, None, :].expand(-1, 3, -1) * 2, (5, 4), 0),
    "flatten": (lambda x: x.flatten(1).relu(), (5, 2, 3), 0),
}


class Net(nn.Module):
    """What image classifiers are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
        )
        self.head = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 8), nn.GELU())

    def forward(self, x: Any) -> Any:
        return self.head(self.body(x))


def _agrees(module: nn.Module, shape: tuple[int, ...], axis: int) -> None:
    module.eval()
    torch.manual_seed(1)
    size = torch.export.Dim("size", min=2, max=4096)
    shapes = ({axis: size},)
    named = (shapes,) if isinstance(module, Function) else shapes
    program = text_of(module, torch.randn(shape), dynamic_shapes=named)
    canonical = canonicalize(program, "torch", "default")
    kernel = compile_spec(
        canonical.spec_text, canonical.arg_spec, host_target().isa, CompileOptions(), lambda _: None
    )
    constants = [constant.content for constant in canonical.constants]
    for count in (2, 3, 8, 17, 33):
        x = torch.randn(tuple(count if place == axis else n for place, n in enumerate(shape)))
        expected: Any = module(x).detach().numpy()
        (content,) = run(kernel, [x.numpy().tobytes()], constants, (count,) * len(kernel.interface.symbols))
        got = np.frombuffer(content, expected.dtype).reshape(expected.shape)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


#: Cases that only long runs have.
_MORE = ("softmax over the open axis", "log_softmax", "view", "product", "var", "where", "expand", "flatten")


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in _MORE else ()) for name in CASES]
)
def test_functions_of_an_open_size_give_what_torch_gives(name: str) -> None:
    function, shape, axis = CASES[name]
    _agrees(Function(function), shape, axis)


def test_a_classifier_of_open_batches_gives_what_torch_gives() -> None:
    _agrees(Net(), (5, 3, 8, 8), 0)
