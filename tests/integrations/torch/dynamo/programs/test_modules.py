"""Modules in training: tied weights, hooks, replaced data, modes, copies, threads and forks."""

from __future__ import annotations

import copy
import os
import pickle
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from kcache_grpc.torch import failures
from tests.integrations.torch.dynamo.compiled import compile_with, strict, tensor

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("fresh_dynamo")]


class Tied(nn.Module):
    """Two layers with one weight, normalization with running statistics, and dropout."""

    def __init__(self, dropout: float = 0.25) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.norm = nn.BatchNorm1d(6)
        self.second = nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.dropout(self.norm(torch.tanh(self.first(x))))).sin()


Change = Callable[[Any], Any]


def nothing(module: Any) -> None:
    """A step without a change."""


def swap_data(module: Any) -> None:
    module.first.weight.data = module.first.weight.data.t().contiguous() * 0.5


def swap_data_transposed(module: Any) -> None:
    module.first.weight.data = module.first.weight.data.t()


def untie(module: Any) -> None:
    module.second.weight = nn.Parameter(module.first.weight.detach() * 2)


def freeze(module: Any) -> None:
    module.first.weight.requires_grad_(not module.first.weight.requires_grad)


def evaluate(module: Any) -> None:
    module.train(not module.training)


def to_double(module: Any) -> None:
    module.double()


def to_float(module: Any) -> None:
    module.float()


def load(module: Any) -> None:
    module.load_state_dict({name: value * 1.5 for name, value in module.state_dict().items()})


def momentum(module: Any) -> None:
    module.norm.momentum = 0.9 if module.norm.momentum == 0.1 else 0.1


def hook_output(module: Any) -> None:
    module.norm.register_forward_hook(lambda layer, inputs, output: output * 2)


def hook_gradient(module: Any) -> None:
    module.first.bias.register_hook(lambda slope: slope * 3)


def hook_backward(module: Any) -> None:
    module.second.register_full_backward_hook(lambda layer, inputs, outputs: (inputs[0] * 2,))


def trajectory(module: nn.Module, call: Callable[[Tensor], Tensor], changes: list[Change]) -> list[Any]:
    """Losses, gradients and the state after each step."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    seen: list[Any] = []
    torch.manual_seed(3)
    for step, change in enumerate(changes):
        change(module)
        dtype = next(module.parameters()).dtype
        loss = call(tensor(5, 6, seed=step, dtype=dtype)).square().sum()
        if loss.requires_grad:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        slopes = [None if each.grad is None else each.grad.clone() for each in module.parameters()]
        state = {name: value.clone() for name, value in module.state_dict().items()}
        seen.append((loss.detach(), slopes, state))
    return seen


CHANGES = {
    "swapped data": [nothing, swap_data, nothing, swap_data_transposed, nothing],
    "untied": [nothing, untie, nothing],
    "frozen": [nothing, freeze, nothing, freeze],
    "modes": [nothing, evaluate, nothing, evaluate, nothing],
    "dtypes": [nothing, to_float, nothing, to_double],
    "loaded": [nothing, load, nothing],
    "attributes": [nothing, momentum, momentum],
    "hooks": [hook_output, hook_gradient, nothing, hook_output],
    "backward hooks": [hook_backward, nothing],
}


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_changes_between_steps(changes: list[Change], address: str) -> None:
    """In double precision: these trajectories multiply a rounding error by ten in each step."""
    torch.manual_seed(1)
    module = Tied().double()
    other = copy.deepcopy(module)
    expected = trajectory(module, module, changes)
    actual = trajectory(other, compile_with(other, address), changes)
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-5)
    torch._dynamo.reset()
    third = trained_like(changes, address)
    torch.testing.assert_close(third, expected, rtol=1e-3, atol=1e-5)


def trained_like(changes: list[Change], address: str) -> list[Any]:
    """The same once more, from records."""
    torch.manual_seed(1)
    module = Tied().double()
    return trajectory(module, compile_with(module, address), changes)


def test_copies_and_pickles(address: str) -> None:
    torch.manual_seed(1)
    module = Tied(0.0)
    compiled: Any = compile_with(module, address)
    x = tensor(5, 6)
    compiled(x)
    module.eval()
    expected = module(x)
    duplicate = copy.deepcopy(compiled)
    torch.testing.assert_close(duplicate(x), expected)
    with torch.no_grad():
        duplicate._orig_mod.first.weight.mul_(3)
    torch.testing.assert_close(compiled(x), expected)
    torch.testing.assert_close(duplicate(x), duplicate._orig_mod(x))
    restored = pickle.loads(pickle.dumps(compiled._orig_mod))
    torch.testing.assert_close(compile_with(restored, address)(x), expected)
    in_place = Tied(0.0)
    in_place.load_state_dict(module.state_dict())
    in_place.eval()
    in_place.compile(backend="kcache", options=strict(address))
    torch.testing.assert_close(in_place(x), expected)
    torch.testing.assert_close(pickle.loads(pickle.dumps(in_place))(x), expected)
    torch.testing.assert_close(copy.deepcopy(in_place)(x), expected)


def test_dropout_draws_what_eager_mode_draws(address: str) -> None:
    module = Tied(0.5)
    compiled = compile_with(module, address)
    x = tensor(5, 6)
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        expected = module(x)
        after = torch.rand(3)
        torch.manual_seed(seed)
        torch.testing.assert_close(compiled(x), expected)
        assert torch.equal(torch.rand(3), after)


def test_threads_that_call_one_function(address: str) -> None:
    def function(x: Tensor) -> Tensor:
        return (x.sin() * 2 + x.tanh()).softmax(-1)

    compiled = compile_with(function, address, dynamic=True)
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for step in range(40):
                x = tensor(2 + (seed + step) % 7, 5, seed=seed, grad=True)
                result = compiled(x)
                torch.testing.assert_close(result, function(x))
                result.square().sum().backward()
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning")
def test_a_fork_after_a_compile(address: str) -> None:
    """A child calls the kernels of its parent, and compiles its own."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        compiled = compile_with(lambda x: x.sin() * 2 + x, address)
        x = tensor(4, 6)
        expected = compiled(x)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                other = compile_with(lambda x: x.cos() * 3 + x, address)
                torch.testing.assert_close(compiled(x), expected)
                torch.testing.assert_close(other(x), x.cos() * 3 + x)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        torch.testing.assert_close(compiled(x), expected)
    finally:
        torch.set_num_threads(threads)


def test_nothing_failed() -> None:
    """After the tests of this file."""
    assert not [reason for reason in failures() if reason.startswith("call")]
