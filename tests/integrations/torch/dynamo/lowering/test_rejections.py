"""Rejected islands: which nodes are left to PyTorch, why, and that lowering ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import kcache_grpc as kcache
from kcache_grpc.errors import CompileFailed, CompileTimeout, ResourceExhausted, UnsupportedOp
from kcache_grpc.integrations.torch.dynamo.kernels import KernelSource
from kcache_grpc.integrations.torch.dynamo.lowering import decisions
from kcache_grpc.integrations.torch.dynamo.lowering.lower import Lowered, Lowering
from kcache_grpc.integrations.torch.dynamo.lowering.plan import Program
from kcache_grpc.integrations.torch.dynamo.lowering.rejections import Rejection
from kcache_grpc.integrations.torch.dynamo.settings import Settings
from tests.integrations.torch.dynamo.compiled import Inputs, check, compile_with, tensor
from tests.integrations.torch.dynamo.graphs import failing, run

COMPLEX = torch.complex64
X = torch.randn(4, 4)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    decisions.forget()
    yield
    torch._dynamo.reset()


@pytest.fixture
def source(client: kcache.Client) -> KernelSource:
    return KernelSource(Settings(), client)


def two_uses(z: Tensor, x: Tensor) -> Tensor:
    """The second use of ``exp`` is of complex numbers, which kernels do not have."""
    return (torch.exp(x + x * x) + torch.exp(z * z).abs()) * 2


def inputs() -> Inputs:
    return tensor(4, 5, grad=True, dtype=COMPLEX), tensor(4, 5, grad=True, seed=1)


@pytest.mark.parametrize("dynamic", [False, True])
def test_only_the_rejected_use_is_left_to_pytorch(address: str, dynamic: bool) -> None:
    compile_with(two_uses, address, dynamic=dynamic, options={"warm_start": False})(*inputs())
    [decision] = [each for each in decisions.decisions() if each.kind == "forward"]
    [left] = [each for each in decision.left_out if each.operator == "aten.exp.default"]
    assert left.reason.startswith("UnsupportedOp: it is not supported for complex numbers")
    assert f"1 x aten.exp.default: {left.reason} ({left.node})" in str(decision)
    assert sum(decision.kernels) == 7  # mul, add, exp; mul; abs, add, mul
    check(two_uses, inputs, address, dynamic=dynamic)


def test_a_use_with_rejected_arguments_is_left_to_pytorch(source: KernelSource) -> None:
    def function(x: Tensor, index: Tensor) -> Any:
        product = torch.scatter_reduce(x * 2, 0, index, x.sin(), "prod", include_self=False)
        return (torch.scatter_reduce(x, 0, index, x.cos(), "sum") + product,)

    index = torch.randint(0, 4, (4, 4))
    module = make_fx(function, tracing_mode="fake")(X, index)
    expected = [node.name for node in module.graph.nodes if "scatter" in node.name][:1]
    lowered = Lowering(module, "inference", source.compile, source.rejected).lower()
    left = [each for each in lowered.decision.left_out if "scatter" in each.operator]
    assert [each.node for each in left] == expected
    assert "torch-mlir has no lowering of it" in left[0].reason
    torch.testing.assert_close(run(lowered, X, index), list(function(X, index)))


def test_all_rejected_uses_are_found_at_once(source: KernelSource) -> None:
    def function(z: Tensor, x: Tensor) -> Any:
        for _ in range(20):
            z, x = torch.exp(z * z), torch.exp(x * x)
        return z, x

    z = tensor(3, dtype=COMPLEX) / 4
    module = make_fx(function, tracing_mode="fake")(z, X)
    attempts: list[int] = []
    lowering = Lowering(module, "inference", _counting(source.compile, attempts), source.rejected)
    lowered = lowering.lower()
    left = [each for each in lowered.decision.left_out if each.operator == "aten.exp.default"]
    assert len(left) == 20
    assert sum(lowered.decision.kernels) == 41  # all of x, and the first product of z
    assert len(attempts) == 2
    assert str(lowered.decision).count("aten.exp.default") == 1
    torch.testing.assert_close(run(lowered, z, X), list(function(z, X)), equal_nan=True)


def _counting(compile: Callable[..., Any], attempts: list[int]) -> Callable[..., Any]:
    def counted(programs: Sequence[Program]) -> Any:
        attempts.append(len(programs))
        return compile(programs)

    return counted


@pytest.mark.parametrize("lines", [(), (0, 1, 2, 9999)])
def test_without_places_all_uses_are_left_to_pytorch(source: KernelSource, lines: tuple[int, ...]) -> None:
    """As of a service that names no places, or of places that are no operation's."""

    def rejected(program: Program) -> list[Rejection]:
        return [each._replace(lines=lines) for each in source.rejected(program)]

    def function(z: Tensor, x: Tensor) -> Any:
        return (two_uses(z, x),)

    values = tensor(4, 5, dtype=COMPLEX), tensor(4, 5)
    module = make_fx(function, tracing_mode="fake")(*values)
    lowered = Lowering(module, "inference", source.compile, rejected).lower()
    assert [each.operator for each in lowered.decision.left_out].count("aten.exp.default") == 2
    torch.testing.assert_close(run(lowered, *values), list(function(*values)))


# Islands that have no kernel as a whole.


def _failing_with(error: Exception, operation: str) -> Callable[..., Any]:
    """Raises for programs with an operation. Kernels of others fail when they are called."""

    def compile(programs: Sequence[Program]) -> Any:
        if any(operation.encode() in program.text for program in programs):
            raise error
        return failing(programs)

    return compile


@pytest.mark.parametrize(
    ("error", "temporary"),
    [
        (CompileFailed("no registers"), False),
        (CompileTimeout("60 s"), True),
        (ResourceExhausted("1 GB"), True),
    ],
)
def test_only_the_island_that_fails_is_left_to_pytorch(error: Exception, temporary: bool) -> None:
    def function(x: Tensor) -> Any:
        y = x.t()
        first = torch.tanh(y) * 2
        return (torch.sin(torch.rand_like(first) + y) * 3, first)

    module = make_fx(function, tracing_mode="fake")(X)
    lowering = Lowering(module, "inference", _failing_with(error, "aten.tanh"), lambda _: ())
    lowered = lowering.lower()
    assert lowered.decision.kernels == [4]  # t, add, sin, mul: the view is not left out
    reason = f"{type(error).__name__}: {error}"
    assert [(each.operator, each.reason) for each in lowered.decision.left_out] == [
        ("aten.tanh.default", reason),
        ("aten.mul.Tensor", reason),
        ("aten.rand_like.default", "it draws random numbers"),
    ]
    assert lowering.temporary == [error] * temporary


def _several_uses(x: Tensor) -> Any:
    """Forty divisions in one island, which are written as ``aten.div.Scalar``."""
    for _ in range(40):
        x = torch.tanh(x / 3) + torch.exp(x)
    return (x,)


def test_uses_that_are_named_one_at_a_time_end_with_all_uses() -> None:
    module = make_fx(_several_uses, tracing_mode="fake")(X)
    attempts: list[int] = []

    def rejected(program: Program) -> list[Rejection]:
        attempts.append(1)
        lines = program.text.decode().splitlines()
        first = next(number for number, line in enumerate(lines, 1) if "aten.div" in line)
        return [Rejection("aten.div.Scalar", "not here", (first,))]

    compile = _failing_with(UnsupportedOp("unsupported op", op="torch.aten.div.Scalar"), "aten.div")
    decision = Lowering(module, "inference", compile, rejected, least_operators=0).lower().decision
    assert {each.operator for each in decision.left_out} == {"aten.div.Tensor"}
    assert len(decision.left_out) == 40
    assert len(attempts) < 40


def _many_islands(x: Tensor) -> Any:
    """Twenty islands with ``tanh``, and one without."""
    for _ in range(20):
        x = torch.rand_like(torch.tanh(x) * 2)
    return (torch.sin(x) * 3,)


def test_islands_that_fail_are_found_at_once() -> None:
    module = make_fx(_many_islands, tracing_mode="fake")(X)
    attempts: list[int] = []
    compile = _counting(_failing_with(CompileFailed("no registers"), "aten.tanh"), attempts)
    assert Lowering(module, "inference", compile, lambda _: ()).lower().decision.kernels == [2]
    assert len(attempts) == 21 + 1


@pytest.mark.parametrize(
    "rejections",
    [
        [],
        [Rejection("", "all of it")],
        [Rejection("aten.absent.default", "unknown", (1, 10**6))],
        [Rejection("", "one at a time", (3,))],
    ],
)
def test_lowering_ends_where_everything_is_rejected(rejections: list[Rejection]) -> None:
    module = make_fx(_many_islands, tracing_mode="fake")(X)
    compile = _failing_with(UnsupportedOp("unsupported op", op="torch.absent"), "torch.aten")
    lowered: Lowered = Lowering(module, "inference", compile, lambda _: rejections).lower()
    assert lowered.decision.kernels == []
    assert len(lowered.plan.steps) == len([n for n in module.graph.nodes if n.op == "call_function"])
