"""Exported PyTorch modules through a real server: results against eager mode, weights, sizes, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch
from torch import nn
from torch.nn import functional

import kcache_grpc as kcache
from kcache_grpc.errors import ArgumentError, CompileFailed, InvalidProgram, UnsupportedOp
from tests.compiler.torch_modules import Function, Mlp, text_of


class Attention(nn.Module):
    """Causal self-attention with four heads."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        heads = [
            part.view(batch, length, 4, width // 4).transpose(1, 2)
            for part in self.project(x).split(width, 2)
        ]
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Convolution(nn.Module):
    """A convolution, its batch norm in inference, ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, padding=1, stride=2)
        self.norm = nn.BatchNorm2d(8)
        self.norm.running_mean = torch.randn(8)
        self.norm.running_var = torch.rand(8) + 0.5

    def forward(self, x: Any) -> Any:
        return torch.relu(self.norm(self.convolution(x)))


class Cell(nn.Module):
    """One step of an LSTM, its state as a pair."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(8, 8)

    def forward(self, x: Any, state: Any) -> Any:
        return self.cell(x, state)


def rand(*shape: int) -> Any:
    return torch.randn(*shape)


def of(function: Callable[..., Any]) -> nn.Module:
    return Function(function)


MODULES: dict[str, tuple[nn.Module, tuple[Any, ...]]] = {
    "mlp": (Mlp(), (rand(4, 16),)),
    "softmax": (of(lambda x: functional.softmax(x, -1)), (rand(4, 16),)),
    "layer norm": (nn.LayerNorm(16), (rand(4, 16),)),
    "layer norm of bf16": (nn.LayerNorm(16).bfloat16(), (rand(4, 16).bfloat16(),)),
    "group norm": (nn.GroupNorm(2, 8), (rand(2, 8, 4, 4),)),
    "variance": (of(lambda x: torch.var_mean(x, -1)), (rand(4, 16),)),
    "unbiased variance": (of(lambda x: x.var(0)), (rand(4, 16),)),
    "gelu": (nn.GELU(), (rand(4, 16),)),
    "gelu by tanh": (nn.GELU(approximate="tanh"), (rand(4, 16),)),
    "convolution": (Convolution().eval(), (rand(2, 3, 8, 8),)),
    "attention": (Attention(), (rand(2, 6, 16),)),
    "embedding": (nn.Embedding(20, 8), (torch.randint(0, 20, (3, 5)),)),
    "cross entropy": (of(functional.cross_entropy), (rand(4, 10), torch.randint(0, 10, (4,)))),
    "max pool": (nn.MaxPool2d(2), (rand(2, 3, 8, 8),)),
    "max pool that rounds up": (nn.MaxPool2d(3, 2, 1, ceil_mode=True), (rand(2, 3, 6, 6),)),
    "negative indices": (of(lambda x, i: (x[i], x[:, i], x[i, i])), (rand(4, 5), torch.tensor([0, -1, -4]))),
    "constants": (of(lambda x: x * (torch.full((4,), 2.0) % -1.5) + (torch.ones(4) == 1)), (rand(3, 4),)),
    "bytes": (
        of(lambda x: (x % -1, x % 100, torch.fmod(x, 7))),
        (torch.tensor([3, 200], dtype=torch.uint8),),
    ),
    "lstm cell": (Cell(), (rand(4, 8), (rand(4, 8), rand(4, 8)))),
    "encoder layer": (nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval(), (rand(2, 5, 16),)),
    "products along an axis": (
        of(lambda x, y: (x.cumprod(1), x.cumprod(0, dtype=torch.float64), y.cumprod(-1))),
        (rand(3, 5), torch.arange(1, 8).int()),
    ),
    "bags": (nn.EmbeddingBag(20, 8), (torch.randint(0, 20, (3, 5)),)),
    "bags by offsets, with padding": (
        nn.EmbeddingBag(20, 8, mode="mean", padding_idx=2),
        (torch.tensor([1, 2, 2, 2, 7, 1, 3]), torch.tensor([0, 1, 3, 3])),
    ),
    "weighted bags": (
        of(lambda x, i, w: functional.embedding_bag(i, x, per_sample_weights=w, mode="sum")),
        (rand(20, 4), torch.randint(0, 20, (3, 5)), rand(3, 5)),
    ),
    "upsampling": (nn.Upsample(scale_factor=2), (rand(1, 2, 3, 3),)),
    "roll": (of(lambda x: x.roll((1, -1), (0, 1))), (rand(3, 4),)),
    "diagonal": (of(lambda x: torch.diagonal(x, 1)), (rand(3, 4),)),
    "grouped queries": (
        of(lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)),
        (rand(2, 4, 6, 8), rand(2, 2, 5, 8), rand(2, 2, 5, 8)),
    ),
    "masked attention": (
        of(lambda q, k, v, mask: functional.scaled_dot_product_attention(q, k, v, mask)),
        (rand(4, 6, 8), rand(4, 5, 8), rand(4, 5, 8), torch.arange(30).reshape(6, 5) > 7),
    ),
    "remainder": (
        of(torch.remainder),
        (torch.tensor([5.0, -5.0, 5.0, -5.0, -0.0]), torch.tensor([3.0, 3.0, -3.0, -3.0, 2.0])),
    ),
    "integers": (
        of(lambda a, b: (a // b, a % b, torch.div(a, b, rounding_mode="trunc"))),
        (torch.tensor([5, -5, 5, -5, 6, (1 << 62) + 1]), torch.tensor([3, 3, -3, -3, -3, 3])),
    ),
}


def eager(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    with torch.no_grad():
        result = module(*inputs)
    return result if isinstance(result, tuple) else (result,)


def call(kernel: kcache.Kernel, *inputs: Any) -> tuple[Any, ...]:
    """What the kernel gives without gradients."""
    with torch.no_grad():
        return kernel(*inputs)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("name", MODULES)
def test_results_are_those_of_eager_mode(client: kcache.Client, name: str) -> None:
    module, inputs = MODULES[name]
    kernel = client.compile(torch.export.export(module, inputs))
    for got, expected in zip(call(kernel, *inputs), eager(module, inputs), strict=True):
        assert got.dtype == expected.dtype
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


# Weights.


def test_other_weights_are_the_same_kernel(client: kcache.Client) -> None:
    x = rand(4, 16)
    first_model, other = Mlp(), Mlp()
    first = client.compile(torch.export.export(first_model, (x,)))
    second = client.compile(torch.export.export(other, (x,)))
    assert second.origin == "memory"
    assert second.manifest.kernel_digest == first.manifest.kernel_digest
    assert not second.binding.constants
    torch.testing.assert_close(call(first, x), eager(first_model, (x,)))
    torch.testing.assert_close(call(second, x), eager(other, (x,)))


def test_weights_that_are_changed_in_place_count(client: kcache.Client) -> None:
    x, module = rand(4, 16), Mlp()
    kernel = client.compile(torch.export.export(module, (x,)))
    (before,) = call(kernel, x)
    with torch.no_grad():
        module.second.bias.add_(1.0)
    torch.testing.assert_close(call(kernel, x)[0], before + 1.0)


@pytest.mark.issue(number=19, point=3)
def test_training_is_not_stopped_silently(client: kcache.Client) -> None:
    x, module = rand(4, 16), Mlp()
    kernel = client.compile(torch.export.export(module, (x,)))
    call(kernel, x)
    with pytest.raises(ArgumentError, match=r"requires grad .*module\.requires_grad_\(False\)"):
        kernel(x)
    module.requires_grad_(False)
    torch.testing.assert_close(kernel(x), eager(module, (x,)))


# Updates in place.


@pytest.mark.issue(number=19, point=18)
@pytest.mark.parametrize("bound", [torch, np], ids=["torch", "numpy"])
def test_training_of_a_batch_norm_updates_its_buffers(client: kcache.Client, bound: Any) -> None:
    module, other = (nn.BatchNorm2d(3, dtype=torch.float32) for _ in range(2))
    kernel = client.compile(torch.export.export(module, (rand(2, 3, 4, 4),)))
    for _ in range(3):
        x = rand(2, 3, 4, 4) * 3 + 1
        expected = eager(other, (x,))
        (result,) = call(kernel, x if bound is torch else x.numpy())
        torch.testing.assert_close(torch.as_tensor(result), expected[0], rtol=1e-5, atol=1e-5)
    assert module.get_buffer("num_batches_tracked").item() == 3
    for name, buffer in module.named_buffers():
        torch.testing.assert_close(buffer, other.get_buffer(name))


@pytest.mark.issue(number=19, point=18)
def test_a_buffer_that_is_not_contiguous_is_updated(client: kcache.Client) -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3, 2).T)

        def forward(self, x: Any) -> Any:
            self.get_buffer("total").add_(x)
            return self.get_buffer("total") * 2

    module, x = Turned(), rand(2, 3)
    kernel = client.compile(torch.export.export(module, (x,)))
    torch.testing.assert_close(call(kernel, x)[0], x * 2)
    torch.testing.assert_close(call(kernel, x)[0], x * 4)
    torch.testing.assert_close(module.get_buffer("total"), x * 2)


@pytest.mark.issue(number=19, point=18)
def test_inputs_are_updated_in_place(client: kcache.Client) -> None:
    def step(x: Any, y: Any) -> Any:
        x[0].add_(y)
        y.mul_(2)
        return x.sum()

    x, y = rand(2, 3), rand(3)
    kernel = client.compile(torch.export.export(of(step), (x, y)))
    wanted = x.clone(), y.clone()
    expected = step(*wanted)
    arrays = x.numpy().copy(), y.numpy().copy()
    (result,) = kernel(x, y)
    torch.testing.assert_close((result, x, y), (expected, *wanted))
    kernel(*arrays)
    torch.testing.assert_close(torch.from_numpy(arrays[0]), wanted[0])
    mixed = rand(3)
    before = mixed.clone()
    kernel(arrays[0], mixed)
    torch.testing.assert_close(mixed, before * 2)
    array, first = y.numpy().copy(), rand(2, 3)
    kernel(first, array)
    torch.testing.assert_close(torch.from_numpy(array), y * 2)
    with pytest.raises(ArgumentError, match=r"inputs_0 is updated in place .* shares memory with another"):
        kernel(x, x[0])
    frozen = x.numpy().copy()
    frozen.flags.writeable = False
    with pytest.raises(ArgumentError, match=r"inputs_0 is updated in place .* it is read-only: pass x\.copy"):
        kernel(frozen, y)
    with torch.inference_mode():
        protected = rand(2, 3)
        kernel(protected, y)
    with pytest.raises(ArgumentError, match=r"it is an inference tensor: pass x\.clone"):
        kernel(protected, y)


def test_numpy_in_numpy_out(client: kcache.Client) -> None:
    x, module = rand(4, 16), Mlp()
    (result,) = client.compile(torch.export.export(module, (x,)))(x.numpy())
    assert isinstance(result, np.ndarray)
    np.testing.assert_allclose(result, eager(module, (x,))[0].numpy(), rtol=1e-5, atol=1e-6)


def test_wrong_arguments_are_told_by_the_modules_names(client: kcache.Client) -> None:
    x = rand(4, 16)
    kernel = client.compile(torch.export.export(Mlp(), (x,)))
    with pytest.raises(ArgumentError, match=r"argument 0 \(x\) must be f32\[4,16\]: got shape \(4, 17\)"):
        call(kernel, rand(4, 17))
    with pytest.raises(ArgumentError, match=r"takes 1 arguments \(x\), got 0"):
        call(kernel)


def test_many_programs_at_once_keep_their_weights(client: kcache.Client) -> None:
    x = rand(4, 16)
    modules = [Mlp(), nn.LayerNorm(16), Mlp()]
    kernels = client.compile_many([torch.export.export(module, (x,)) for module in modules])
    for module, kernel in zip(modules, kernels, strict=True):
        torch.testing.assert_close(call(kernel, x), eager(module, (x,)))


# Sizes.


@pytest.mark.sampled(6)
@pytest.mark.filterwarnings(r"ignore:var\(\).* degrees of freedom:UserWarning")
@pytest.mark.parametrize("name", ["mlp", "attention", "layer norm", "unbiased variance"])
def test_an_export_with_open_sizes_is_one_kernel(client: kcache.Client, name: str) -> None:
    module, (x,) = MODULES[name]
    axes = {axis: torch.export.Dim(f"size{axis}") for axis in range(x.dim() - 1)}
    shapes = ((axes,),) if isinstance(module, Function) else (axes,)
    exported = torch.export.export(module, (x,), dynamic_shapes=shapes)
    kernel = client.compile(exported)
    # Of no values PyTorch's unbiased variance is 0 / 0, and n - 1 is -1.
    first = (1, 2) if name == "unbiased variance" else (0, 2)
    for sizes in [first, (2, 1), (1, 3), (7, 2), (5, 11)]:
        inputs = (rand(*sizes[: x.dim() - 1], 16),)
        expected = eager(module, inputs)
        torch.testing.assert_close(call(kernel, *inputs), expected, rtol=1e-5, atol=1e-5, equal_nan=True)
    assert client.store(exported) == client.store(torch.export.export(module, (x,))) == kernel.key


def test_a_program_that_computes_with_a_size_is_rejected(client: kcache.Client) -> None:
    rows = torch.export.Dim("rows")
    exported = torch.export.export(
        Function(lambda x: x + x.shape[0]), (rand(4, 16),), dynamic_shapes=(({0: rows},),)
    )
    with pytest.raises(UnsupportedOp, match="computes with the size of 'axis 0 of input 0'"):
        client.compile(exported)


# Texts, and what is no program.


def test_text_with_its_weights_in_it(client: kcache.Client) -> None:
    x, module = rand(4, 16), Mlp()
    kernel = client.compile(text_of(module, x).decode())
    torch.testing.assert_close(call(kernel, x), eager(module, (x,)))


def test_ops_without_a_lowering_are_named(client: kcache.Client) -> None:
    exported = torch.export.export(Function(lambda x: x.histc(4)), (rand(4, 16),))
    with pytest.raises(UnsupportedOp, match=r"torch\.aten\.histc") as caught:
        client.compile(exported)
    assert caught.value.op == "torch.aten.histc"


def test_truncated_and_mislabeled_texts(client: kcache.Client) -> None:
    text = text_of(Mlp(), rand(4, 16))
    for cut in (30, 400, len(text) // 2, len(text) - 2):
        with pytest.raises((InvalidProgram, CompileFailed)):
            client.normalize(text[:cut], "torch")
    with pytest.raises(InvalidProgram, match="format 'torch', and was sent as 'stablehlo'"):
        client.normalize(text, "stablehlo")


def test_a_module_is_no_program(client: kcache.Client) -> None:
    with pytest.raises(ArgumentError, match=r"pass torch\.export\.export\(module, inputs\)"):
        client.compile(Mlp())
