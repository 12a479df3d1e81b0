"""LSTM, GRU and RNN in kernels: values and states, warm starts, and what is left to PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint

from kcache_grpc.integrations.torch.dynamo.backend import kcache
from kcache_grpc.integrations.torch.dynamo.lowering import decisions
from kcache_grpc.integrations.torch.dynamo.recurrent_modules import has_packed_sequences
from kcache_grpc.programs.torch import recurrent
from tests.integrations.torch.dynamo.compiled import check, compile_with, kernel_count, tensor

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

KINDS = (nn.LSTM, nn.GRU, nn.RNN)


@pytest.fixture(autouse=True)
def forget_decisions() -> None:
    decisions.forget()


def layers(kind: type[nn.RNNBase], dtype: torch.dtype = torch.float32, **settings: Any) -> nn.RNNBase:
    torch.manual_seed(0)
    make: Any = kind  # the base class has other parameters
    return make(6, 10, **settings).to(dtype).eval()


def inference(module: nn.Module) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        with torch.no_grad():
            return module(*args)

    return call


@pytest.mark.sampled(9)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("settings", "shape"),
    [
        ({}, (5, 1, 6)),
        ({"num_layers": 2, "bidirectional": True}, (4, 3, 6)),
        ({"num_layers": 3, "batch_first": True, "bias": False, "dropout": 0.5}, (2, 7, 6)),
    ],
    ids=["one", "bidirectional", "batch first"],
)
def test_layers(
    kind: type[nn.RNNBase], settings: dict[str, Any], shape: tuple[int, ...], address: str
) -> None:
    module = layers(kind, **settings)
    check(inference(module), lambda: (tensor(*shape),), address)
    assert [decision.origin for decision in decisions.decisions()] == ["warm"]


@pytest.mark.sampled(9)
@pytest.mark.parametrize("kind", KINDS)
def test_initial_states_and_single_sequences(kind: type[nn.RNNBase], address: str) -> None:
    module = layers(kind, num_layers=2)
    state = tensor(2, 3, 10, seed=1)
    states: Any = (state, tensor(2, 3, 10, seed=2)) if kind is nn.LSTM else state
    check(inference(module), lambda: (tensor(4, 3, 6), states), address)
    check(inference(module), lambda: (tensor(4, 6),), address)


@pytest.mark.sampled(9)
@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize(
    ("settings", "dtype"),
    [
        ({"proj_size": 4, "num_layers": 2, "bidirectional": True}, torch.float32),
        ({"proj_size": 4, "bias": False}, torch.float32),
        ({}, torch.float64),
    ],
    ids=["projection", "projection without bias", "f64"],
)
def test_projections_and_types(settings: dict[str, Any], dtype: torch.dtype, address: str) -> None:
    module = layers(nn.LSTM, dtype, **settings)
    check(inference(module), lambda: (tensor(5, 2, 6, dtype=dtype),), address)


@pytest.mark.parametrize(("kind", "dtype"), [(nn.LSTM, torch.bfloat16), (nn.GRU, torch.float16)])
def test_half_precision(kind: type[nn.RNNBase], dtype: torch.dtype, address: str) -> None:
    """As close to the result in f64 as eager mode is, up to a rounding."""
    module, x = layers(kind, dtype), tensor(5, 2, 6, dtype=dtype)
    exact = inference(layers(kind, dtype).double())(x.double())[0]
    eager, actual = inference(module)(x)[0], compile_with(inference(module), address)(x)[0]
    assert kernel_count() == 1
    error, allowed = (actual - exact).abs().max(), (eager - exact).abs().max()
    assert error <= 2 * allowed + torch.finfo(dtype).eps


def test_relu(address: str) -> None:
    check(inference(layers(nn.RNN, nonlinearity="relu")), lambda: (tensor(5, 2, 6),), address)


def test_bound_weights(address: str) -> None:
    module, x = layers(nn.LSTM, num_layers=2), tensor(5, 2, 6)
    compiled = compile_with(inference(module), address, options={"bound": "weights"})
    torch.testing.assert_close(compiled(x), inference(module)(x))
    assert decisions.decisions()[-1].bound == 8
    with torch.no_grad():
        module.weight_hh_l1.mul_(0.5)  # type: ignore[operator]
    torch.testing.assert_close(compiled(x), inference(module)(x))


class Head(nn.Module):
    """Operators around a recurrent layer."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layers = layers(kind, batch_first=True)
        self.out = nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.out(self.layers(torch.relu(x))[0]), -1)


def test_operators_around_it_are_in_the_same_kernel(address: str) -> None:
    model = Head(nn.LSTM).eval()
    with torch.no_grad():
        compiled = compile_with(model, address, fullgraph=True)
        torch.testing.assert_close(compiled(tensor(2, 5, 6)), model(tensor(2, 5, 6)))
    assert kernel_count() == 1


@pytest.mark.sampled(9)
@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_one_operator(kind: type[nn.RNNBase], address: str) -> None:
    """PyTorch's decomposition has the operations of each step."""
    module = layers(kind)
    compiled = compile_with(inference(module), address)
    torch.testing.assert_close(compiled(tensor(300, 1, 6)), inference(module)(tensor(300, 1, 6)))
    assert sum(decisions.decisions()[-1].kernels) < 20


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.RNN])
def test_a_dynamic_number_of_steps_is_left_to_pytorch(kind: type[nn.RNNBase], address: str) -> None:
    module = layers(kind, num_layers=2, bidirectional=True)
    compiled = compile_with(inference(module), address, dynamic=True)
    for steps in (4, 7):
        torch.testing.assert_close(compiled(tensor(steps, 2, 6)), inference(module)(tensor(steps, 2, 6)))
    decision = decisions.decisions()[-1]
    left_out = [each.reason for each in decision.left_out if "_layer" in each.operator]
    assert left_out == ["its number of steps is dynamic"] * 4


def test_dropout_is_drawn_by_pytorch(address: str) -> None:
    module = layers(nn.LSTM, num_layers=2, dropout=0.5).train()
    check(inference(module), lambda: (tensor(5, 2, 6),), address)


def gradients(model: nn.Module, function: Callable[..., Any], *inputs: torch.Tensor) -> list[Any]:
    """Outputs, and gradients of inputs and parameters."""
    model.zero_grad()
    leaves = [each.detach().clone().requires_grad_() for each in inputs]
    torch.manual_seed(3)
    outputs = torch.utils._pytree.tree_leaves(function(*leaves))
    sum((each.sin() * each).sum() for each in outputs).backward()
    grads = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return [*outputs, *(leaf.grad for leaf in leaves), *(grad.clone() for grad in grads)]


@pytest.mark.sampled(24)
@pytest.mark.parametrize(
    ("kind", "settings", "shape"),
    [
        (nn.LSTM, {}, (5, 3, 6)),
        (nn.LSTM, {"num_layers": 2, "bidirectional": True, "batch_first": True}, (3, 5, 6)),
        (nn.LSTM, {"bias": False}, (1, 4, 6)),
        (nn.GRU, {}, (5, 3, 6)),
        (nn.GRU, {"num_layers": 2, "bidirectional": True, "bias": False}, (7, 2, 6)),
        (nn.RNN, {"num_layers": 2}, (5, 1, 6)),
        (nn.RNN, {"nonlinearity": "relu", "bidirectional": True}, (5, 3, 6)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients(
    kind: type[nn.RNNBase], settings: dict[str, Any], shape: tuple[int, ...], dtype: torch.dtype, address: str
) -> None:
    module = layers(kind, dtype, **settings).train()
    x = tensor(*shape, dtype=dtype)
    expected = gradients(module, module, x)
    for start in ("traced", "warm"):
        torch._dynamo.reset()
        decisions.forget()
        compiled = compile_with(module, address, fullgraph=True)
        torch.testing.assert_close(
            gradients(module, compiled, x), expected, msg=lambda text, at=start: f"{at}: {text}"
        )
        assert {decision.kind for decision in decisions.decisions()} == {"forward", "backward"}
        assert kernel_count() == 2


@pytest.mark.long
@pytest.mark.sampled(9)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_initial_states(kind: type[nn.RNNBase], address: str) -> None:
    module = layers(kind, num_layers=2).train()
    states = [tensor(2, 3, 10, seed=seed) for seed in range(1 + (kind is nn.LSTM))]

    def call(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, *initial: function(x, initial if kind is nn.LSTM else initial[0])

    compiled = compile_with(module, address)
    actual = gradients(module, call(compiled), tensor(4, 3, 6), *states)
    torch.testing.assert_close(actual, gradients(module, call(module), tensor(4, 3, 6), *states))
    assert kernel_count() == 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize("frozen", [False, True])
def test_gradients_with_operators_around_it(frozen: bool, address: str) -> None:
    model = Head(nn.LSTM).train()
    model.layers.requires_grad_(not frozen)
    actual = gradients(model, compile_with(model, address, fullgraph=True), tensor(2, 5, 6))
    torch.testing.assert_close(actual, gradients(model, model, tensor(2, 5, 6)))
    assert kernel_count() == 2


def test_dropout_with_gradients_is_drawn_by_pytorch(address: str) -> None:
    module = layers(nn.GRU, num_layers=2, dropout=0.5).train()
    actual = gradients(module, compile_with(module, address), tensor(5, 2, 6))
    torch.testing.assert_close(actual, gradients(module, module, tensor(5, 2, 6)))


def test_checkpointed_layers(address: str) -> None:
    """Their dropout is that of eager mode, in the second run of the layers, too."""
    module = layers(nn.GRU, num_layers=2, dropout=0.5).train()

    def call(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda y: module(y)[0], x * 1.5, use_reentrant=False)

    actual = gradients(module, compile_with(call, address, fullgraph=True), tensor(200, 1, 6))
    torch.testing.assert_close(actual, gradients(module, call, tensor(200, 1, 6)))
    counts = [sum(decision.kernels) for decision in decisions.decisions()]
    assert max(counts) < 400, counts  # of 200 steps: thousands


@pytest.mark.sampled(9)
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo reads it, where it hides the warning
@pytest.mark.parametrize("kind", KINDS)
def test_layers_under_transforms_are_left_to_pytorch(kind: type[nn.RNNBase], address: str) -> None:
    module = layers(kind).train()

    def call(x: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda y: module(y)[0].sin().sum())(x)

    torch.testing.assert_close(compile_with(call, address)(tensor(4, 3, 6)), call(tensor(4, 3, 6)))


def test_many_steps_with_gradients_are_one_operator(address: str) -> None:
    module = layers(nn.LSTM).train()
    actual = gradients(module, compile_with(module, address), tensor(200, 1, 6))
    torch.testing.assert_close(actual, gradients(module, module, tensor(200, 1, 6)))
    assert all(sum(decision.kernels) < 60 for decision in decisions.decisions())


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo reads it, where it hides the warning
@pytest.mark.parametrize(
    ("settings", "dtype"),
    [({"proj_size": 4}, torch.float32), ({}, torch.bfloat16)],
    ids=["projection", "bf16"],
)
def test_gradients_that_are_left_to_pytorch(
    settings: dict[str, Any], dtype: torch.dtype, address: str
) -> None:
    module = layers(nn.LSTM, dtype, **settings).train()
    actual = gradients(module, compile_with(module, address), tensor(5, 2, 6, dtype=dtype))
    torch.testing.assert_close(actual, gradients(module, module, tensor(5, 2, 6, dtype=dtype)))
    assert kernel_count() == 0


def test_steps_are_not_traced_where_an_input_of_half_precision_has_gradients(address: str) -> None:
    module = layers(nn.LSTM, torch.bfloat16).requires_grad_(False)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="leaves lstm"):
        compile_with(module, address, fullgraph=True)(tensor(5, 2, 6, grad=True, dtype=torch.bfloat16))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo reads it, where it hides the warning
def test_a_dynamic_number_of_steps_with_gradients_is_left_to_pytorch(address: str) -> None:
    module = layers(nn.LSTM).train()
    compiled = compile_with(module, address)
    for steps in (4, 7, 9):
        actual = gradients(module, compiled, tensor(steps, 2, 6))
        torch.testing.assert_close(actual, gradients(module, module, tensor(steps, 2, 6)))
    assert kernel_count() == 2


@pytest.mark.sampled(9)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch_first", [False, True])
def test_empty_batches(kind: type[nn.RNNBase], batch_first: bool, address: str) -> None:
    """PyTorch's decomposition of an LSTM calls an operator that divides by the number of sequences."""
    module = layers(kind, num_layers=2, batch_first=batch_first)
    x = torch.zeros(0, 4, 6) if batch_first else torch.zeros(4, 0, 6)
    torch.testing.assert_close(compile_with(inference(module), address)(x), inference(module)(x))


def test_packed_sequences_are_left_to_pytorch(address: str) -> None:
    module = layers(nn.LSTM)
    packed = pack_padded_sequence(tensor(5, 3, 6), [5, 3, 2])
    actual = compile_with(inference(module), address)(packed)
    torch.testing.assert_close(actual, inference(module)(packed))


def test_a_graph_of_packed_sequences_runs_eagerly() -> None:
    module = layers(nn.GRU)
    packed = pack_padded_sequence(tensor(5, 3, 6), [5, 3, 2])
    graph = torch.fx.Graph()
    names = ("data", "batch_sizes", "state", *(name for name, _ in module.named_parameters()))
    data, sizes, state, *weights = [graph.placeholder(name) for name in names]
    results = graph.call_function(torch.gru, (data, sizes, state, weights, True, 1, 0.0, False, False))
    graph.output(results)
    traced = torch.fx.GraphModule(nn.Module(), graph)
    assert has_packed_sequences(graph)
    inputs = [packed.data, packed.batch_sizes, tensor(1, 3, 10), *module.parameters()]
    compiled = kcache(traced, inputs, options={"strict": True, "address": "127.0.0.1:1"})
    torch.testing.assert_close(compiled(*inputs), traced(*inputs))
    assert decisions.decisions()[-1].origin == "eager"


def test_autocast_is_left_to_pytorch(address: str) -> None:
    module = layers(nn.GRU)  # oneDNN has no nn.LSTM of bf16 for processors without AVX-512

    def call(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            return module(x)[0]

    torch.testing.assert_close(compile_with(call, address)(tensor(5, 2, 6)), call(tensor(5, 2, 6)))


def test_other_backends_break_the_graph_as_before(address: str) -> None:
    compile_with(inference(layers(nn.GRU)), address)(tensor(3, 1, 6))
    assert kernel_count() == 1
    torch._dynamo.reset()
    targets: list[Any] = []

    def other(graph: Any, _: Any) -> Any:
        targets.extend(node.target for node in graph.graph.nodes)
        return graph

    torch.compile(inference(Head(nn.GRU)), backend=other)(tensor(2, 5, 6))
    assert torch._dynamo.config.allow_rnn is False
    assert torch.gru not in targets


@pytest.mark.parametrize("reverse", [False, True])
def test_operators_compute_what_modules_do(reverse: bool) -> None:
    """Where an operator is in no kernel, it calls PyTorch's function: one direction of two."""
    module = layers(nn.LSTM, bidirectional=True)
    suffix = "_l0_reverse" if reverse else "_l0"
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    weights = [getattr(module, name + suffix) for name in names]
    x, zero = tensor(5, 2, 6), torch.zeros(2, 10)
    with torch.no_grad():
        actual = recurrent.operators().lstm_layer(x, zero, zero, *weights, None, reverse)
        states, (h, c) = module(x)
    part = slice(10, 20) if reverse else slice(0, 10)
    torch.testing.assert_close(actual, (states[..., part], h[int(reverse)], c[int(reverse)]))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("lstm_steps_backward", [(4, 3, 5), (4, 3, 5), (4, 3, 20), (4, 3, 5), (4, 3, 5), (20, 5)]),
        ("steps_backward", [(4, 3, 5), (4, 3, 15), (4, 3, 5), (15, 5)]),
    ],
)
def test_loops_of_gradients_outside_of_kernels(name: str, arguments: Any, address: str) -> None:
    """PyTorch runs the steps where an operator is in no kernel."""
    operator = getattr(recurrent.operators(), name)
    inputs = [tensor(*shape, seed=seed, dtype=torch.float64) for seed, shape in enumerate(arguments)]
    actual = compile_with(lambda *tensors: operator(*tensors), address)(*inputs)
    torch.testing.assert_close(actual, operator(*inputs))
    assert kernel_count() == 1
