"""Programs of unusual tensors and views: results equal those of eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from tests.integrations.torch.dynamo.compiled import Inputs, check, tensor

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


class Case(NamedTuple):
    """A function and its inputs. ``kernel``: part of it is a kernel, else PyTorch runs all of it."""

    function: Callable[..., Any]
    inputs: Callable[[], Inputs]
    kernel: bool = True
    backward: bool = True


def plain() -> Inputs:
    return tensor(4, 6), tensor(4, 6, seed=1)


def grad() -> Inputs:
    return tensor(4, 6, grad=True), tensor(4, 6, seed=1, grad=True)


def twice(x: Any) -> Inputs:
    return x, x


def wave(x: Tensor, y: Tensor) -> Tensor:
    return torch.sin(x) * y + torch.tanh(x - y)


# Tensors that are not plain.


def sparse_product(x: Tensor, y: Tensor) -> Tensor:
    return torch.sparse.mm(x.to_sparse(), y.t()).sin() * 2


def sparse_inputs() -> Inputs:
    return tensor(4, 6).relu().to_sparse(), tensor(4, 6, seed=1)


def compressed_inputs() -> Inputs:
    return tensor(4, 6).relu().to_sparse_csr(), tensor(4, 6, seed=1)


def quantized(x: Tensor, y: Tensor) -> Tensor:
    rounded = torch.quantize_per_tensor(x, 0.1, 10, torch.quint8)
    return rounded.dequantize() * y + rounded.int_repr().float().sin()


def quantized_inputs() -> Inputs:
    return torch.quantize_per_tensor(tensor(4, 6), 0.1, 10, torch.quint8), tensor(4, 6, seed=1)


def complex_inputs(*, grad: bool = False) -> Inputs:
    return (
        tensor(4, 6, dtype=torch.complex64).requires_grad_(grad),
        (tensor(4, 6, seed=1) * (1 + 2j)).detach().requires_grad_(grad),
    )


def conjugates(x: Tensor, y: Tensor) -> Tensor:
    return x.conj() * y + y.conj().imag * 2


TENSORS = {
    "a sparse intermediate": Case(sparse_product, plain, kernel=False),
    "a sparse input": Case(lambda x, y: (x * 2).to_dense() * y.sin() + y, sparse_inputs, kernel=False),
    "a sparse input of compressed rows": Case(
        lambda x, y: (x @ y.t()).sin() * 2 + y.sum(), compressed_inputs, kernel=False
    ),
    "a quantized intermediate": Case(quantized, plain, kernel=False),
    "a quantized input": Case(lambda x, y: x.dequantize() * y.sin() + y, quantized_inputs, kernel=False),
    "complex": Case(lambda x, y: x * y + x.exp(), complex_inputs),
    "complex gradients": Case(lambda x, y: x * y + x.abs(), lambda: complex_inputs(grad=True)),
    "lazy conjugates": Case(conjugates, complex_inputs, kernel=False),
    "a lazy conjugate as input": Case(
        lambda x, y: x * y + x, lambda: tuple(each.conj() for each in complex_inputs()), kernel=False
    ),
    "an input with the negative bit": Case(
        lambda x, y: x.sin() * y + x, lambda: (complex_inputs()[1].conj().imag, tensor(4, 6)), kernel=False
    ),
    "no elements": Case(lambda x, y: (wave(x, y), x.sum(), (x @ y.t())), lambda: twice(tensor(0, 6))),
    "no elements and gradients": Case(
        lambda x: (x.sin() * 2).mean(0) + 1, lambda: (tensor(0, 6, grad=True),), kernel=False
    ),
    "rank zero": Case(wave, lambda: (tensor(grad=True), tensor(seed=1))),
    "meta": Case(lambda x, y: torch.empty_like(x, device="meta").sin().shape[0] * (y.sin() + y * 2), plain),
    "booleans": Case(lambda x, y: (x > 0) & ~(y > 0) | (x < y), plain),
    "integers": Case(lambda x, y: (x * 10).to(torch.int32) // 3 + (y * 10).to(torch.int64) % 5, plain),
    "bfloat16": Case(
        lambda x, y: (x * y).exp() + y,
        lambda: (tensor(4, 6, dtype=torch.bfloat16, grad=False), tensor(4, 6, dtype=torch.bfloat16)),
    ),
    "double": Case(
        wave,
        lambda: (tensor(4, 6, dtype=torch.float64, grad=True), tensor(4, 6, seed=1, dtype=torch.float64)),
    ),
    "mixed dtypes": Case(
        lambda x, y: x * y + 1, lambda: (tensor(4, 6, dtype=torch.float16), tensor(4, 6, dtype=torch.float64))
    ),
    "nan and infinity": Case(lambda x, y: torch.maximum(x.log(), y / 0) + torch.nan_to_num(x.sqrt()), plain),
}


# Layouts.


def overlapping() -> Inputs:
    return tensor(1, 6).expand(4, 6), torch.as_strided(tensor(12, seed=1), (4, 6), (2, 1))


def reversed_axes(x: Tensor, y: Tensor) -> Tensor:
    return x.flip(0) * y.flip(0, 1) + torch.flip(x, [1])


LAYOUTS = {
    "overlapping inputs": Case(wave, overlapping),
    "an expanded leaf": Case(
        lambda x, y: wave(x.expand(4, 6), y), lambda: (tensor(1, 6, grad=True), tensor(4, 6, seed=1))
    ),
    "as_strided": Case(lambda x, y: wave(torch.as_strided(x, (3, 4), (2, 1), 3), y[:3, :4]), grad),
    "flip": Case(reversed_axes, grad),
    "transposed": Case(wave, lambda: (tensor(6, 4).t(), tensor(6, 4, seed=1).t())),
    "one transposed": Case(wave, lambda: (tensor(6, 4).t(), tensor(4, 6, seed=1))),
    "a slice with a step": Case(wave, lambda: (tensor(8, 12)[::2, ::2], tensor(4, 6, seed=1))),
    "an offset": Case(wave, lambda: (tensor(25)[1:].view(4, 6), tensor(4, 6, seed=1))),
    "channels last": Case(
        lambda x, y: torch.relu(x * 2) + y.sin(),
        lambda: (
            tensor(2, 3, 4, 5).contiguous(memory_format=torch.channels_last).requires_grad_(),
            tensor(2, 3, 4, 5, seed=1),
        ),
    ),
    "sizes of one": Case(wave, lambda: (tensor(1, 6).t().t(), tensor(4, 1))),
}


# Aliases and mutations.


def add_in_place(x: Tensor, y: Tensor) -> Tensor:
    x.add_(y)
    return x.sin() * 2


def write_view(x: Tensor, y: Tensor) -> Tensor:
    x[1:3].mul_(2).add_(y[1:3])
    x[:, 0] = 7
    return wave(x, y)


def write_differentiable_view(x: Tensor, y: Tensor) -> Tensor:
    z = x * 1
    z[1:3] *= y[1:3]
    z.t()[0] = 5
    return wave(z, y)


def write_leaf(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        x.mul_(0.5).add_(y)
    return wave(x, y)


def aliased_outputs(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    z = wave(x, y)
    return z, z, z[1:], z.t(), x, x.view(-1), y


def detached(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    z = wave(x, y)
    return z.detach(), z, x.detach()


def overlapping_mutation(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return wave(x, y)


def overlapping_parts() -> Inputs:
    base = tensor(30)
    return base[:24].view(4, 6), base[6:].view(4, 6)


def same_storage() -> Inputs:
    base = tensor(4, 6)
    return base, base.view(4, 6)


def data_swap(x: Tensor, y: Tensor) -> Tensor:
    x.data = y.data * 2
    return wave(x, y)


def resized(x: Tensor, y: Tensor) -> Tensor:
    z = x.clone()
    z.resize_(2, 3)
    return z.sin() * 2 + y[:2, :3]


def set_to(x: Tensor, y: Tensor) -> Tensor:
    z = x.clone()
    z.set_(y.clone())  # pyright: ignore[reportArgumentType]
    return wave(z, y)


def counted(x: Tensor, y: Tensor) -> Tensor:
    z = torch.zeros_like(x)
    for step in range(3):
        z += x * step
        y.copy_(z)
    return wave(z, y)


ALIASES = {
    "an input changed in place": Case(add_in_place, plain),
    "a view of an input changed": Case(write_view, plain),
    "a view changed under autograd": Case(write_differentiable_view, grad),
    "a leaf changed without gradients": Case(write_leaf, grad),
    "outputs that alias": Case(aliased_outputs, grad),
    "outputs that alias, without gradients": Case(aliased_outputs, plain),
    "detached outputs": Case(detached, grad),
    "one tensor twice": Case(wave, lambda: twice(tensor(4, 6, grad=True))),
    "one tensor twice and changed": Case(add_in_place, lambda: twice(tensor(4, 6))),
    "overlapping inputs changed": Case(overlapping_mutation, overlapping_parts),
    "two tensors of one memory": Case(overlapping_mutation, same_storage),
    "data replaced": Case(data_swap, plain, kernel=False),
    "an intermediate resized": Case(resized, plain, kernel=False),
    "an intermediate set": Case(set_to, plain, kernel=False),
    "an input written in a loop": Case(counted, plain),
}


def subject(cases: dict[str, Case]) -> Any:
    """Parameters of a test, by name."""
    return pytest.mark.parametrize("case", cases.values(), ids=cases)


@pytest.mark.sampled(12)
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state:UserWarning")
@subject(TENSORS)
def test_tensors(case: Case, address: str) -> None:
    check(case.function, case.inputs, address, kernel=case.kernel, backward=case.backward)


@pytest.mark.sampled(12)
@subject(LAYOUTS)
def test_layouts(case: Case, address: str) -> None:
    check(case.function, case.inputs, address, kernel=case.kernel, backward=case.backward)


@pytest.mark.sampled(12)
@subject(ALIASES)
def test_aliases_and_mutations(case: Case, address: str) -> None:
    check(case.function, case.inputs, address, kernel=case.kernel, backward=case.backward)
