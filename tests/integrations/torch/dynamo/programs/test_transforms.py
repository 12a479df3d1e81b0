"""Transforms, autograd and control flow in compiled programs: results equal those of eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

import kcache_grpc as kcache
from kcache_grpc.integrations.torch.dynamo import kernels
from kcache_grpc.torch import failures
from tests.integrations.torch.dynamo.compiled import (
    Inputs,
    check,
    compile_with,
    kernel_count,
    strict,
    tensor,
)
from tests.integrations.torch.dynamo.programs.test_programs import Case, grad, plain, subject, wave

# Transforms of functions.


def hessian(x: Tensor, y: Tensor) -> Tensor:
    return torch.func.hessian(lambda z: (z.sin() * y[0]).sum())(x[0])


def jvp(x: Tensor, y: Tensor) -> Any:
    return torch.func.jvp(lambda z: z.sin() * 2, (x,), (y,))


def functional_call(x: Tensor, y: Tensor) -> Tensor:
    layer = nn.Linear(6, 4)
    return torch.func.functional_call(layer, {"weight": x, "bias": x[:, 0]}, (y,)).sin()


TRANSFORMS = {
    "vmap": Case(torch.func.vmap(wave), grad),
    "vmap of columns": Case(torch.func.vmap(wave, in_dims=1, out_dims=1), plain),
    "grad": Case(torch.func.grad(lambda x, y: wave(x, y).sum()), plain),
    "grad in vmap": Case(torch.func.vmap(torch.func.grad(lambda x, y: wave(x, y).sum())), plain),
    "jvp": Case(jvp, plain),
    "hessian": Case(hessian, plain),
    "vjp": Case(lambda x, y: torch.func.vjp(wave, x, y)[1](x), plain),
    "functional call": Case(functional_call, plain),
}


#: Warnings of PyTorch while it traces, which this project's tests would make errors.
_OF_PYTORCH = (
    "ignore:.*torch.jit.script:DeprecationWarning",
    "ignore:.*should not be instantiated:DeprecationWarning",
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning",
    "ignore:Graph break from:UserWarning",
)
pytestmark = [
    pytest.mark.long,
    pytest.mark.usefixtures("fresh_dynamo"),
    *(pytest.mark.filterwarnings(text) for text in _OF_PYTORCH),
]


@subject(TRANSFORMS)
def test_transforms(case: Case, address: str) -> None:
    check(case.function, case.inputs, address, kernel=case.kernel)


def test_a_compiled_function_in_a_transform(address: str) -> None:
    compiled = compile_with(wave, address)
    x, y = plain()
    torch.testing.assert_close(torch.func.vmap(compiled)(x, y), wave(x, y))
    torch.testing.assert_close(
        torch.func.grad(lambda z: compiled(z, y).sum())(x), torch.func.grad(lambda z: wave(z, y).sum())(x)
    )


# Autograd.


class Scaled(torch.autograd.Function):
    """Its gradient is not that of its forward, so that a decomposition would be noticed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin() * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grads[0] * x.cos() * 7


def checkpointed(x: Tensor, y: Tensor) -> Tensor:
    return checkpoint(lambda a, b: wave(a, b).exp(), x, y, use_reentrant=False) * 2  # pyright: ignore[reportOptionalOperand]


def checkpointed_dropout(x: Tensor, y: Tensor) -> Tensor:
    return checkpoint(
        lambda a, b: nn.functional.dropout(wave(a, b), 0.5),
        x,
        y,
        use_reentrant=False,
        preserve_rng_state=True,
    )  # pyright: ignore[reportReturnType]


def no_grad_inside(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        scale = wave(x, y)
    return scale * x.sin()


def grads_inside(x: Tensor, y: Tensor) -> Tensor:
    (slope,) = torch.autograd.grad(wave(x, y).sum(), x, create_graph=False)
    return slope * 2 + y.sin()


def hooked(x: Tensor, y: Tensor) -> Tensor:
    z = wave(x, y)
    z.register_hook(lambda slope: slope * 3)
    return z.sin()


AUTOGRAD = {
    "a function of autograd": Case(lambda x, y: Scaled.apply(x) * y + y, grad),
    "a checkpoint": Case(checkpointed, grad),
    "dropout in a checkpoint": Case(checkpointed_dropout, grad),
    "no_grad inside": Case(no_grad_inside, grad),
    "gradients inside": Case(grads_inside, grad, kernel=False),
    "a hook on an intermediate": Case(hooked, grad, kernel=False),
    "dropout": Case(lambda x, y: nn.functional.dropout(wave(x, y), 0.3) * 2 + y, grad),
    "random numbers": Case(lambda x, y: wave(x, y) + torch.rand_like(x) + torch.randn(4, 6).sin(), grad),
    "an update of what needs gradients": Case(lambda x, y: (x * 1).mul_(y).add_(x.sin()), grad),
}


@subject(AUTOGRAD)
def test_autograd(case: Case, address: str) -> None:
    check(case.function, case.inputs, address, kernel=case.kernel)


def second_derivative(function: Callable[..., Tensor]) -> list[Tensor]:
    x, y = grad()
    (slope,) = torch.autograd.grad(function(x, y).sum(), x, create_graph=True)
    slope.square().sum().backward()
    assert x.grad is not None
    return [slope.detach(), x.grad]


def test_double_backward_is_computed_or_raises(address: str) -> None:
    """AOTAutograd raises for every backend that compiles: no gradient is silently missing."""
    with pytest.raises(RuntimeError, match=r"double backward|does not currently support"):
        second_derivative(compile_with(wave, address))
    compiled = compile_with(lambda x, y: wave(x, y) * 2, address)
    with torch._functorch.config.patch(donated_buffer=False):
        x, y = grad()
        result = compiled(x, y).sum()
        result.backward(retain_graph=True)
        result.backward()
    other, _ = grad()
    (wave(other, y.detach()) * 4).sum().backward()
    torch.testing.assert_close(x.grad, other.grad)


def test_gradients_that_accumulate(address: str) -> None:
    compiled = compile_with(wave, address)
    slopes = []
    for function in (wave, compiled):
        x, y = grad()
        for _ in range(3):
            function(x, y).sum().backward()
        slopes.append(x.grad)
    torch.testing.assert_close(slopes[1], slopes[0])


def test_forward_mode(address: str) -> None:
    """Kernels know no tangents: the operators run."""
    compiled = compile_with(wave, address)
    x, y = plain()
    torch.testing.assert_close(compiled(x, y), wave(x, y))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, y)
        ours, theirs = (forward_ad.unpack_dual(run(dual, y)).tangent for run in (compiled, wave))
    torch.testing.assert_close(ours, theirs)


def test_a_result_of_inference_mode(address: str) -> None:
    compiled = compile_with(wave, address)
    with torch.inference_mode():
        x, y = plain()
        result = compiled(x, y)
        assert result.is_inference()
        torch.testing.assert_close(result, wave(x, y))
    outside = compiled(*plain())
    assert not outside.is_inference()
    x, y = grad()
    compiled(x, y).sum().backward()
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x, y), wave(x, y))


# Control flow.


def branches(x: Tensor, y: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda a, b: wave(a, b), lambda a, b: a * b - 1, (x, y))


def other_branch() -> Inputs:
    return -tensor(4, 6).abs(), tensor(4, 6, seed=1)


def looped(x: Tensor, y: Tensor) -> Tensor:
    from torch._higher_order_ops.while_loop import while_loop

    _, result = while_loop(
        lambda i, z: i < 3, lambda i, z: (i + 1, z.sin() * 2 + 1), (torch.tensor(0), x.clone())
    )
    return result * y.sin() + y


def breaks_in_a_loop(x: Tensor, y: Tensor) -> Tensor:
    for _ in range(3):
        x = wave(x, y)
        torch._dynamo.graph_break()
    return x * 2 + y


def reads_a_number(x: Tensor, y: Tensor) -> Tensor:
    scale = wave(x, y).sum().item()
    return x.sin() * scale + y


def sizes_that_depend_on_data(x: Tensor, y: Tensor) -> Tensor:
    return wave(x, y)[x > 0].sin() * 2 + 1


CONTROL = {
    "cond": Case(branches, plain, kernel=False),
    "cond, the other branch": Case(branches, other_branch, kernel=False),
    "cond with gradients": Case(branches, grad, kernel=False),
    "while_loop": Case(looped, plain),
    "breaks in a loop": Case(breaks_in_a_loop, grad),
    "a number of a tensor": Case(reads_a_number, plain),
    "sizes that depend on data": Case(sizes_that_depend_on_data, grad),
    "nested compilation": Case(lambda x, y: torch.compile(wave, backend="eager")(x, y) * 2 + y, grad),
}


@subject(CONTROL)
def test_control_flow(case: Case, address: str) -> None:
    check(case.function, case.inputs, address, kernel=case.kernel)


def test_compiled_functions_inside_each_other(address: str) -> None:
    inner = compile_with(wave, address)
    check(lambda x, y: inner(x, y).sin() + inner(y, x), grad, address)


# State of PyTorch that changes between calls.


def test_settings_that_change_between_calls(address: str) -> None:
    def function(x: Tensor) -> Tensor:
        return x.sin() * torch.ones(6) + torch.full((6,), 0.5) * 2

    compiled = compile_with(function, address)
    x = tensor(4, 6)
    threads = torch.get_num_threads()
    try:
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            torch.testing.assert_close(compiled(x), function(x))
        for count in (1, 3, threads):
            torch.set_num_threads(count)
            torch.testing.assert_close(compiled(x), function(x))
        with torch.device("meta"):
            assert torch.ones(1).is_meta
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(compiled(x), function(x))
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_num_threads(threads)


def test_a_default_device_that_changes(address: str) -> None:
    def function(x: Tensor) -> Tensor:
        return x.sin() * 2 + torch.zeros(6, device="cpu") + torch.empty(3).shape[0]

    compiled = compile_with(function, address)
    x = tensor(4, 6)
    for device in ("cpu", "meta", "cpu"):
        with torch.device(device):
            torch.testing.assert_close(compiled(x), function(x))


def test_requires_grad_that_changes(address: str) -> None:
    compiled = compile_with(wave, address)
    x, y = plain()
    for needs in (False, True, False, True):
        x.requires_grad_(needs)
        result = compiled(x, y)
        assert result.requires_grad is needs
        torch.testing.assert_close(result, wave(x, y))


def test_dtypes_and_layouts_that_change(address: str) -> None:
    compiled = compile_with(wave, address)
    x, y = plain()
    variants = [
        x,
        x.double(),
        tensor(6, 4).t(),
        tensor(8, 6)[::2],
        x.bfloat16(),
        x.int(),
        x[:1],
        x[0],
        x[:, :1],
    ]
    for variant in variants * 2:
        torch.testing.assert_close(compiled(variant, y), wave(variant, y))
        torch.testing.assert_close(compiled(y, variant), wave(y, variant))


def test_sizes_that_change(address: str) -> None:
    compiled = compile_with(lambda x, y: (wave(x, y) @ y.t()).softmax(-1), address)
    for rows in (4, 5, 1, 0, 9, 2, 64):
        for columns in (6, 3, 1):
            x, y = tensor(rows, columns), tensor(rows, columns, seed=1)
            expected = (wave(x, y) @ y.t()).softmax(-1)
            torch.testing.assert_close(compiled(x, y), expected)


def test_a_subclass_that_another_mode_sees(address: str) -> None:
    """Fake and functional tensors outside a compilation, and modes of dispatch."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.testing._internal.two_tensor import TwoTensor
    from torch.utils.flop_counter import FlopCounterMode

    def function(x: Tensor, y: Tensor) -> Tensor:
        return (wave(x, y) @ y.t()).sin()

    compiled = torch.compile(function, backend="kcache", options=strict(address))
    x, y = plain()
    pairs = [TwoTensor(x, x.clone()), TwoTensor(y, y.clone())]
    torch.testing.assert_close(compiled(*pairs).a, function(x, y))
    with FlopCounterMode(display=False):
        torch.testing.assert_close(compiled(x, y), function(x, y))
    torch._dynamo.reset()
    with FakeTensorMode() as mode:
        fake = compiled(mode.from_tensor(x), mode.from_tensor(y))
        assert tuple(fake.shape) == (4, 4)
    torch.testing.assert_close(compiled(x, y), function(x, y))


def test_meta_inputs(address: str) -> None:
    compiled = compile_with(wave, address)
    for device in ("meta", "cpu", "meta"):
        x, y = (each.detach().to(device).requires_grad_() for each in plain())
        result = compiled(x, y)
        assert (result.device.type, tuple(result.shape)) == (device, (4, 6))
        result.sum().backward()
        assert x.grad is not None
        assert x.grad.device.type == device
        if device == "cpu":
            torch.testing.assert_close(result, wave(x, y))


def test_functional_tensors_are_left_to_pytorch(address: str) -> None:
    """AOTAutograd takes none as inputs, for any backend."""
    x, y = plain()
    kernels.FAILURES.forget()
    compiled = torch.compile(wave, backend="kcache", options={"address": address})
    with pytest.warns(kcache.KcacheWarning, match="functional tensor"):
        torch.testing.assert_close(torch.func.functionalize(compiled)(x, y), wave(x, y))
    assert failures() == {"compile: AssertionError": 1}
    kernels.FAILURES.forget()
    torch.testing.assert_close(compile_with(wave, address)(x, y), wave(x, y))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_tensors(address: str) -> None:
    """The size of their ragged dimension is a symbol without a value."""

    def function(x: Tensor) -> Tensor:
        return torch.tanh(x @ weights) * 2 + 1

    weights = tensor(6, 6)
    compiled = compile_with(function, address)
    for rows in ((3, 2), (4, 1, 5), (7, 7)):
        parts = [tensor(each, 6, seed=each) for each in rows]
        ours, theirs = (
            torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=True) for _ in range(2)
        )
        results = compiled(ours), function(theirs)
        for result in results:
            result.values().square().sum().backward()
        torch.testing.assert_close(results[0].values(), results[1].values())
        assert ours.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(ours.grad.values(), theirs.grad.values())
    assert kernel_count() > 0
