"""Exported programs as modules: the calling convention, state, updates, guards, and the warm start."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor
from torch.export import Dim, export

import kcache_grpc as kcache
from kcache_grpc.integrations.torch.dynamo.lowering.decisions import decisions
from kcache_grpc.integrations.torch.exported import graph
from kcache_grpc.torch import load
from tests.integrations.torch.exported.programs import counting, counting_call, export_counting


@pytest.fixture
def counted(client: kcache.Client) -> Any:
    return load(export_counting(counting()), client=client, strict=True)


class Sums(torch.nn.Module):
    """One kernel, or two with an operator of PyTorch between them."""

    def __init__(self, between: bool) -> None:
        super().__init__()
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        y = x.sin() + x
        if self.between:
            y = torch.special.airy_ai(y)
        return y.cos() * 2


@pytest.mark.parametrize("between", [False, True])
def test_the_only_kernel_uses_its_own_threads(
    client: kcache.Client, monkeypatch: pytest.MonkeyPatch, between: bool
) -> None:
    """Launches on PyTorch's threads wait for all of them: other processes delay those of a whole model."""
    asked: list[None] = []
    monkeypatch.setattr("kcache_grpc.runtime.torch.call.openmp_of_torch", lambda: asked.append(None))
    module, x = Sums(between), torch.randn(512, 512)
    loaded = load(export(module, (x,)), client=client, strict=True)
    torch.testing.assert_close(loaded(x), module(x))
    assert bool(asked) == between


@pytest.mark.parametrize("rows", [6, 2, 64])
def test_calls_do_what_the_module_does(counted: Any, rows: int) -> None:
    module = counting()
    (args, kwargs), (own_args, own_kwargs) = counting_call(rows), counting_call(rows)
    expected, actual = module(*args, **kwargs), counted(*own_args, **own_kwargs)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(own_args[1]["a"], args[1]["a"])
    torch.testing.assert_close(counted.total, module.total)
    assert actual[0]["total"] is counted.total
    assert actual[0]["rows"] == rows
    assert actual[1][0] is own_kwargs["extra"]
    assert decisions()[-1].share == 1


def test_arguments_by_position_may_be_named(counted: Any) -> None:
    (x, scales), extra = counting_call(6)
    expected = counting()(x, {"a": scales["a"].clone()}, **extra)
    torch.testing.assert_close(counted(scales=scales, x=x, **extra), expected)


def test_state_has_its_names_and_is_read_in_each_call(counted: Any) -> None:
    assert set(counted.state_dict()) == {"linear.weight", "linear.bias", "total"}
    other = counting(seed=1)
    counted.load_state_dict(other.state_dict())
    args, kwargs = counting_call(6)
    expected = other(args[0], {"a": args[1]["a"].clone()}, **kwargs)
    torch.testing.assert_close(counted(*args, **kwargs), expected)
    counted.linear.weight = torch.nn.Parameter(torch.zeros(4, 4), requires_grad=False)
    other.linear.weight.zero_()
    args, kwargs = counting_call(6)
    expected = other(args[0], {"a": args[1]["a"].clone()}, **kwargs)
    torch.testing.assert_close(counted(*args, **kwargs)[0]["y"], expected[0]["y"])


def test_a_copy_has_state_of_its_own(counted: Any) -> None:
    other = copy.deepcopy(counted)
    args, kwargs = counting_call(6)
    other(*args, **kwargs)
    assert other.total.abs().sum() > 0
    assert counted.total.abs().sum() == 0


class Call(NamedTuple):
    change: Callable[[tuple[Any, ...], dict[str, Any]], Any]
    message: str


@pytest.mark.parametrize(
    "call",
    [
        Call(lambda args, kwargs: ((torch.ones(65, 4), args[1]), kwargs), r"x\.shape\[0\] <= 64"),
        Call(lambda args, kwargs: ((torch.ones(6, 5), args[1]), kwargs), r"exported for \(\*, 4\)"),
        Call(lambda args, kwargs: ((args[0].double(), args[1]), kwargs), "exported for torch.float32"),
        Call(lambda args, kwargs: ((args[0], {"b": args[1]["a"]}), kwargs), "nested as"),
        Call(lambda args, kwargs: (args, {"other": kwargs["extra"]}), "by name are other"),
        Call(lambda args, kwargs: ((args[0], {"a": args[0][0]}), kwargs), "shares memory"),
        Call(lambda args, kwargs: ((args[0].requires_grad_(), args[1]), kwargs), "input x requires grad"),
    ],
    ids=lambda call: call.message,
)
def test_other_arguments_are_errors(counted: Any, call: Call) -> None:
    args, kwargs = call.change(*counting_call(6))
    with pytest.raises(kcache.ArgumentError, match=call.message):
        counted(*args, **kwargs)


def test_gradients_are_rejected(client: kcache.Client) -> None:
    exported = export(torch.nn.Linear(4, 4), (torch.ones(2, 4),))
    module = load(exported, client=client)
    with pytest.raises(kcache.ArgumentError, match="requires grad and grad mode is on"):
        module(torch.ones(2, 4))
    with torch.no_grad():
        torch.testing.assert_close(module(torch.ones(2, 4)), exported.module()(torch.ones(2, 4)))
    with pytest.raises(kcache.ArgumentError, match="training mode"):
        module.train()
    assert not module.eval().training


def test_converted_modules_are_rejected(counted: Any) -> None:
    args, kwargs = counting_call(6)
    with pytest.raises(kcache.ArgumentError, match=r"linear\.weight is of torch\.float64"):
        counted.double()(*args, **kwargs)


def test_other_strides_are_copied(counted: Any) -> None:
    args, kwargs = counting_call(6)
    transposed = args[0].t().contiguous().t()
    expected = counting()(args[0], {"a": args[1]["a"].clone()}, **kwargs)
    torch.testing.assert_close(counted(transposed, args[1], **kwargs)[0]["y"], expected[0]["y"])


class Mixed(torch.nn.Module):
    """An operator without a kernel between two parts."""

    def forward(self, x: Tensor) -> Tensor:
        positions = torch.nonzero(torch.relu(x) + x.abs())
        return (x.exp() + 1).sum() * positions.shape[0]


class Steps(torch.nn.Module):
    """A recurrent module whose states are used."""

    def __init__(self, recurrent: torch.nn.Module) -> None:
        super().__init__()
        self.recurrent = recurrent

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        states, last = self.recurrent(x)
        return states.relu(), last


@pytest.mark.sampled(9)
@pytest.mark.filterwarnings("ignore:The tensor attributes self.recurrent:UserWarning")  # of torch.export
@pytest.mark.parametrize(
    "recurrent",
    [
        torch.nn.LSTM(16, 24, 2),
        torch.nn.GRU(16, 24, bidirectional=True, batch_first=True),
        torch.nn.RNN(16, 24, nonlinearity="relu"),
    ],
    ids=["lstm", "gru", "rnn"],
)
def test_recurrent_modules_are_layers_of_a_kernel(client: kcache.Client, recurrent: torch.nn.Module) -> None:
    module, x = Steps(recurrent).eval(), torch.randn(5, 2, 16)
    loaded = load(export(module, (x,)), client=client, strict=True)
    assert decisions()[-1].share == 1
    assert decisions()[-1].kernels[0] < 40  # nodes: not those of each time step
    with torch.no_grad():
        torch.testing.assert_close(loaded(x), module(x))


class Attention(torch.nn.Module):
    """The attention of most models; with dropout PyTorch draws its random numbers."""

    def __init__(self, dropout: float, causal: bool) -> None:
        super().__init__()
        self.dropout, self.causal = dropout, causal

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            x, x, x, attn_mask=mask, dropout_p=self.dropout, is_causal=self.causal
        )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("dropout", "causal", "masked", "share"),
    [(0.0, False, False, 1), (0.0, True, False, 1), (0.0, False, True, 1), (0.1, False, False, 0)],
)
def test_attention_is_in_a_kernel_unless_it_has_dropout(
    client: kcache.Client, dropout: float, causal: bool, masked: bool, share: int
) -> None:
    module, x = Attention(dropout, causal), torch.randn(2, 4, 16, 32)
    args = (x, torch.randn(16, 16)) if masked else (x,)
    loaded = load(export(module, args), client=client, strict=True)
    assert decisions()[-1].share == share
    torch.manual_seed(0)
    expected = module(*args)
    torch.manual_seed(0)
    torch.testing.assert_close(loaded(*args), expected)


class Heads(torch.nn.Module):
    """The results of attention have strides of which ``contiguous`` does nothing, and a view is possible."""

    def forward(self, x: Tensor) -> Tensor:
        heads = x.view(2, 9, 4, 8).transpose(1, 2)
        joined = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
        return joined.transpose(1, 2).contiguous().view(2, 9, 32) + 1


def test_views_of_the_results_of_attention(client: kcache.Client) -> None:
    x = torch.randn(2, 9, 32)
    loaded = load(export(Heads(), (x,)), client=client, strict=True)
    assert decisions()[-1].share == 1
    torch.testing.assert_close(loaded(x), Heads()(x))


class Twice(torch.nn.Module):
    """Two layers of one shape, whose graphs are equal, around an operator without a kernel."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        low = torch.linalg.eigvalsh(self.first(x).softmax(-1) @ torch.eye(32))
        return self.second(torch.outer(low, low)).softmax(-1)


def test_frozen_weights_are_those_of_the_first_call(client: kcache.Client) -> None:
    module, x = Twice().eval().requires_grad_(False), torch.randn(32, 32)
    loaded = load(export(module, (x,)), client=client, strict=True, bound="frozen")
    expected = module(x)
    torch.testing.assert_close(loaded(x), expected)
    copied = copy.deepcopy(loaded)
    loaded.first.weight.zero_()
    loaded.second.weight = torch.nn.Parameter(torch.zeros(32, 32), requires_grad=False)
    torch.testing.assert_close(loaded(x), expected)
    torch.testing.assert_close(copied(x), expected)
    other = Twice().eval().requires_grad_(False)
    copied_later = copy.deepcopy(copied)
    copied_later.load_state_dict(other.state_dict(), assign=True)
    torch.testing.assert_close(copied_later(x), other(x))
    tensors = [weakref.ref(tensor) for tensor in copied.parameters()]
    copied(x)
    del copied
    gc.collect()
    assert all(tensor() is None for tensor in tensors)
    read_anew = load(export(module, (x,)), client=client, strict=True, bound="weights")
    torch.testing.assert_close(read_anew(x), module(x))


def test_frozen_modules_reject_what_others_reject(client: kcache.Client) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()).eval()
    loaded = load(export(module, (torch.randn(4, 8),)), client=client, strict=True, bound="frozen")
    with torch.no_grad():
        loaded(torch.randn(4, 8))
        with pytest.raises(kcache.ArgumentError):
            loaded(torch.randn(5, 8))
    with pytest.raises(kcache.ArgumentError, match="requires grad"):
        loaded(torch.randn(4, 8))


def test_frozen_modules_write_their_buffers(client: kcache.Client) -> None:
    frozen = load(export_counting(counting()), client=client, strict=True, bound="frozen")
    module = counting()
    for rows in (6, 2):
        (args, kwargs), (own_args, own_kwargs) = counting_call(rows), counting_call(rows)
        torch.testing.assert_close(frozen(*own_args, **own_kwargs), module(*args, **kwargs))
    torch.testing.assert_close(frozen.total, module.total)


def test_operators_without_kernels_run_in_pytorch(client: kcache.Client) -> None:
    x = torch.tensor([[1.0, 0.0], [2.0, -3.0]])
    module = load(export(Mixed(), (x,)), client=client, strict=True)
    torch.testing.assert_close(module(x), Mixed()(x))
    assert any("nonzero" in each.operator for each in decisions()[-1].left_out)


class Swap(torch.nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        old = x.clone()
        x.copy_(y)
        y.copy_(old)
        return x + y


def test_exchanged_inputs(client: kcache.Client) -> None:
    module = load(export(Swap(), (torch.ones(3), torch.zeros(3))), client=client)
    x, y = torch.arange(3.0), torch.full((3,), 7.0)
    assert module(x, y).tolist() == [7.0, 8.0, 9.0]
    assert (x.tolist(), y.tolist()) == ([7.0] * 3, [0.0, 1.0, 2.0])


class Halves(torch.nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(x[::2] + y) * 2


def test_relations_between_sizes_are_guards(client: kcache.Client) -> None:
    half = Dim("half", min=2, max=40)
    exported = export(
        Halves(), (torch.ones(8), torch.ones(4)), dynamic_shapes={"x": {0: 2 * half}, "y": {0: half}}
    )
    module = load(exported, client=client)
    for size in (4, 7):
        x, y = torch.randn(2 * size), torch.randn(size)
        torch.testing.assert_close(module(x, y), Halves()(x, y))
    for sizes in ((9, 4), (8, 5), (90, 45)):
        with pytest.raises(kcache.ArgumentError, match="guard of the exported program"):
            module(*map(torch.ones, sizes))


class Power(torch.nn.Module):
    def forward(self, x: Tensor, exponent: int, mode: str) -> Tensor:
        return (x + 1) ** exponent if mode == "plus" else x**exponent


def test_constants_among_the_arguments(client: kcache.Client) -> None:
    module = load(export(Power(), (torch.ones(3), 2, "plus")), client=client)
    assert module(torch.ones(3), 2, "plus").tolist() == [4.0] * 3
    with pytest.raises(kcache.ArgumentError, match="exported for 2 only"):
        module(torch.ones(3), 3, "plus")
    with pytest.raises(kcache.ArgumentError, match="exported for 'plus' only"):
        module(torch.ones(3), 2, "minus")


def test_a_file_of_torch_export(client: kcache.Client, tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    torch.export.save(export_counting(counting()), path)
    module = load(path, client=client, strict=True)
    args, kwargs = counting_call(5)
    expected = counting()(args[0], {"a": args[1]["a"].clone()}, **kwargs)
    torch.testing.assert_close(module(*args, **kwargs), expected)
    with pytest.raises(kcache.NotFound):
        load(tmp_path / "other.pt2")
    (tmp_path / "damaged.pt2").write_bytes(path.read_bytes()[:100])
    with pytest.raises(kcache.ArgumentError, match="no exported program"):
        load(tmp_path / "damaged.pt2")
    with pytest.raises(kcache.ArgumentError, match=r"takes a torch\.export\.ExportedProgram"):
        load(counting())


class Renamed(torch.nn.Module):
    """The same computation as ``Counting`` would be under other names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)

    def forward(self, source: Tensor) -> Tensor:
        return torch.relu(self.first(source)).sin()


class Named(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layer(x)).sin()


def test_a_known_graph_is_not_decomposed(client: kcache.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3, 4)
    load(export(Named().requires_grad_(False), (x,)), client=client, strict=True)
    monkeypatch.setattr(graph, "_decompositions", lambda: pytest.fail("the program was decomposed"))
    renamed = Renamed().requires_grad_(False)
    module = load(export(renamed, (x,)), client=client, strict=True)
    torch.testing.assert_close(module(x), renamed(x))
    assert decisions()[-1].origin == "warm"


def test_without_a_service_pytorch_runs_the_program(tmp_path: Path) -> None:
    exported = export(Named().requires_grad_(False), (torch.ones(3, 4),))
    with kcache.Client("127.0.0.1:1", cache_dir=tmp_path / "c", strict=True, timeout=5) as away:
        with pytest.raises(kcache.Unavailable):
            load(exported, client=away, strict=True)
        with pytest.warns(kcache.KcacheWarning, match="left to PyTorch"):
            module = load(exported, client=away)
    x = torch.randn(3, 4)
    torch.testing.assert_close(module(x), exported.module()(x))


def _written_to_slices(x: Tensor) -> Tensor:
    table = torch.zeros(4, 5)
    table[1:, 1:] = x.sin() * 2
    table[0, 1:] += 1
    return table.exp()


def _slice_as_result(x: Tensor) -> tuple[Tensor, Tensor]:
    copied = torch.ops.aten.copy.default(torch.zeros(3, 5)[:, 1:], x.sin() * 2)
    return copied, copied.exp() + 1


@pytest.mark.parametrize(("function", "left_out"), [(_written_to_slices, 0), (_slice_as_result, 1)])
def test_copies_to_slices_are_parts_of_kernels(
    client: kcache.Client, function: Callable[..., Any], left_out: int
) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Tensor) -> Any:
            return function(x)

    x = torch.randn(3, 4)
    module = load(export(Module(), (x,)), client=client, strict=True)
    expected = function(x)
    torch.testing.assert_close(module(x), expected)
    assert len(decisions()[-1].left_out) == left_out
    if left_out:
        assert module(x)[0].stride() == expected[0].stride()


def _images() -> Tensor:
    return torch.randn(2, 3, 4, 6).contiguous(memory_format=torch.channels_last)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("function", "args"),
    [
        (torch.linalg.solve, (torch.randn(4, 4), torch.randn(4, 3))),
        (torch.linalg.qr, (torch.randn(4, 3),)),
        (lambda x: torch.topk(x, 2, dim=0), (torch.randn(4, 3),)),
        (lambda x: torch.slice_scatter(x, torch.ones(2, 3), 0, 0, 2), (torch.randn(3, 4).t(),)),
        (lambda x: x.unfold(0, 2, 1), (torch.randn(4, 3),)),
        (lambda x: torch.nn.functional.adaptive_avg_pool2d(x + 1, 2), (_images(),)),
        (lambda x: torch.nn.functional.channel_shuffle(x, 3) + 1, (_images(),)),
        (lambda x: torch.nn.functional.interpolate(x + 1, scale_factor=2), (_images(),)),
        (lambda x: torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"), (_images(),)),
        (lambda x: torch.nn.functional.interpolate(x, size=5, mode="bicubic"), (_images(),)),
    ],
    ids=[
        *("solve", "qr", "topk", "slice_scatter", "unfold", "adaptive", "channel_shuffle"),
        *("nearest", "bilinear", "bicubic"),
    ],
)
def test_results_have_the_strides_of_eager_mode(
    client: kcache.Client, function: Callable[..., Any], args: tuple[Tensor, ...]
) -> None:
    class Module(torch.nn.Module):
        def forward(self, *tensors: Tensor) -> Any:
            return function(*tensors)

    module = load(export(Module(), args), client=client, strict=True)
    expected, actual = (torch.utils._pytree.tree_leaves(each(*args)) for each in (function, module))
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    assert [each.stride() for each in actual] == [each.stride() for each in expected]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "function",
    [
        torch.linalg.cholesky,
        torch.linalg.inv,
        torch.inverse,
        torch.linalg.lu_factor,
        lambda x: torch.linalg.lu_factor_ex(x, check_errors=True)[:2],
        lambda x: torch.linalg.matrix_power(x, -2),
        lambda x: torch.linalg.solve(x, torch.ones(4)),
        lambda x: torch.linalg.solve_ex(x, torch.ones(4, 3), left=True, check_errors=True)[0],
        lambda x: torch.linalg.tensorinv(x.reshape(4, 2, 2), 1),
        lambda x: (torch.linalg.cholesky(x), x + 1)[1],
        torch.cholesky_inverse,
        lambda x: torch.linalg.svdvals(torch.where(x == 0, torch.nan, x)),
    ],
    ids=[
        "cholesky",
        "inv",
        "inverse",
        "lu",
        "lu_ex",
        "power",
        "solve",
        "solve_ex",
        "tensorinv",
        "unused",
        "cholesky_inverse",
        "svd",
    ],
)
def test_a_matrix_without_a_result_raises(client: kcache.Client, function: Callable[[Tensor], Any]) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Tensor) -> Any:
            return function(x)

    x = torch.randn(4, 4)
    definite = x @ x.t() + torch.eye(4)
    module = load(export(Module(), (definite,)), client=client, strict=True)
    torch.testing.assert_close(module(definite), function(definite), rtol=1e-4, atol=1e-4)
    with pytest.raises(RuntimeError, match=r"is singular|is zero|not positive-definite|non-finite"):
        module(torch.zeros(4, 4))
    assert all(each.reason.startswith("no benefit") for each in decisions()[-1].left_out)
