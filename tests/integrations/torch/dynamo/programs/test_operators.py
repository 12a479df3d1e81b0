"""Operators whose results were not those of eager mode, each as a kernel of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from kcache_grpc.integrations.torch.dynamo.lowering.decisions import decisions, forget

_OPTIONS = {"strict": True, "least_operators": 0, "warm_start": False}


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    forget()
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="kcache", options=_OPTIONS, fullgraph=True, **options)


def kernels() -> int:
    return sum(len(decision.kernels) for decision in decisions())


def test_gradient_of_a_slice_without_end() -> None:
    """Its end is 2^63 - 1: the compiler ran out of memory."""
    x = torch.randn(2, 3, requires_grad=True)
    compiled(lambda x: x[:, 1:] * 2)(x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.tensor([[0.0, 2.0, 2.0]] * 2))
    assert kernels() == 2


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("start", "end", "step"), [(1, 100, 1), (-2, -1, 1), (0, None, 2), (-9, 9, 3)])
def test_bounds_of_slice_scatter(start: int, end: int | None, step: int) -> None:
    x = torch.randn(2, 5)
    y = torch.randn(2, len(range(5)[start:end:step]))

    def function(x: Tensor, y: Tensor) -> Tensor:
        return torch.slice_scatter(x, y, 1, start, end, step)

    torch.testing.assert_close(compiled(function)(x, y), function(x, y))


def test_gradient_that_is_a_lazy_conjugate() -> None:
    def gradient(function: Callable[..., Any], seed: Tensor) -> Tensor:
        z = torch.view_as_complex(torch.arange(12.0).reshape(3, 2, 2)).clone().requires_grad_()
        function(z).backward(seed)
        assert z.grad is not None
        return z.grad

    def function(z: Tensor) -> Tensor:
        return z * z + z

    seed = torch.view_as_complex(torch.linspace(-1, 1, 12).reshape(3, 2, 2))
    run = compiled(function)
    for each in (seed, seed.conj()):
        torch.testing.assert_close(gradient(run, each), gradient(function, each))


@pytest.mark.sampled(18)
@pytest.mark.parametrize(
    ("function", "sizes"),
    [
        (lambda x: torch.as_strided_copy(x, (2, 2), (1, 2), 0), (3, 3)),
        (lambda x: torch.narrow_copy(x, 1, 2, 2), (5, 5, 5)),
        (lambda x: torch.permute_copy(x, (0, 2, 3, 1)), (1, 2, 3, 4)),
        (lambda x: torch.kthvalue(x, 2, -1, True)[0], (5, 5, 5)),
        (lambda x: torch.linalg.qr(x)[1], (4, 4)),
        (lambda x: torch.linalg.solve(x, x[:, 0]), (2, 5, 5)),
        (lambda x: torch.triangular_solve(x[:, :1], x)[1], (5, 5)),
        (lambda x: torch.unsafe_split(x, 5, 1)[1], (5, 10, 5)),
        (lambda x: torch.unsafe_chunk(x, 5, 1)[1], (5, 5, 5)),
        (lambda x: torch.slice_scatter(x.t().sin(), x.t()[:1] * 2, 0, 1, 2) + 1, (4, 3)),
        (lambda x: torch.slice_scatter(x.t().sin(), x.t()[:2] * 2, 0, 0, 3, 2) + 1, (4, 3)),
    ],
)
@pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated:UserWarning")
def test_strides(function: Callable[[Tensor], Tensor], sizes: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(sizes)
    ours, theirs = compiled(function)(x), function(x)
    torch.testing.assert_close(ours, theirs)
    assert ours.stride() == theirs.stride()


def test_determinant_of_an_empty_matrix() -> None:
    assert compiled(torch.linalg.det)(torch.ones(2, 0, 0)).tolist() == [1.0, 1.0]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "function",
    [
        torch.linalg.cholesky_ex,
        torch.linalg.inv_ex,
        torch.linalg.lu_factor_ex,
        lambda x, **options: torch.linalg.solve_ex(x, torch.ones(4, 3), **options),
    ],
    ids=["cholesky", "inverse", "lu", "solve"],
)
def test_errors_of_a_matrix_are_raised_where_the_program_asks_for_it(function: Callable[..., Any]) -> None:
    run, checked = compiled(function), compiled(lambda x: function(x, check_errors=True))
    zeros = torch.zeros(2, 4, 4)
    torch.testing.assert_close(run(zeros)[-1], function(zeros)[-1])
    torch.testing.assert_close(checked(torch.eye(4)), function(torch.eye(4)))
    with pytest.raises(RuntimeError, match="Batch element 0"):
        checked(zeros)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("upper", [False, True])
def test_inverse_by_a_singular_cholesky_factor_raises(upper: bool) -> None:
    run = compiled(lambda factor: torch.cholesky_inverse(factor, upper))
    factors = torch.eye(4).repeat(3, 1, 1) * 2
    torch.testing.assert_close(run(factors), torch.cholesky_inverse(factors, upper))
    torch.testing.assert_close(run(torch.ones(0, 0)), torch.ones(0, 0))
    factors[1, 2, 2] = factors[1, 3, 3] = 0
    with pytest.raises(RuntimeError, match=r"Batch element 1\): The diagonal element 3 is zero"):
        run(factors)
    with pytest.raises(RuntimeError, match="The diagonal element 1 is zero"):
        run(torch.tensor([[-0.0, 1.0], [1.0, 1.0]]))


@pytest.mark.parametrize(
    "function",
    [torch.linalg.svdvals, torch.linalg.matrix_rank, torch.linalg.pinv],
    ids=["values", "rank", "pinv"],
)
def test_singular_values_of_nan_raise(function: Callable[[Tensor], Tensor]) -> None:
    run = compiled(function)
    matrices = torch.eye(4)[:, :3].repeat(3, 1, 1) * 2
    torch.testing.assert_close(run(matrices), function(matrices))
    assert kernels()
    matrices[1, 3, 0] = torch.nan
    with pytest.raises(RuntimeError, match=r"Batch element 1\): The algorithm failed to converge"):
        run(matrices)


def test_operator_without_a_derivative() -> None:
    """The backward pass raises, as in eager mode: AOTAutograd raises when it traces."""
    run = compiled(lambda x: torch.linalg.ldl_factor(x * 2).LD)
    x = torch.tensor([[2.0, 1.0], [1.0, 3.0]], requires_grad=True)
    result = run(x)
    torch.testing.assert_close(result, torch.linalg.ldl_factor(x * 2).LD)
    with pytest.raises(RuntimeError, match=r"^derivative for aten::linalg_ldl_factor_ex is not implemented"):
        result.sum().backward()
    [left] = decisions()[-1].left_out
    assert (left.operator, left.reason) == ("aten.linalg_ldl_factor_ex", "PyTorch has no derivative of it")


@pytest.mark.sampled(12)
@pytest.mark.parametrize("function", [torch.linalg.det, torch.linalg.slogdet])
@pytest.mark.parametrize("transposed", [False, True])
def test_gradient_of_a_determinant(function: Callable[[Tensor], Any], transposed: bool) -> None:
    """It reads the factors, which are those of the transpose for a row-major matrix."""
    torch.manual_seed(0)
    x = torch.randn(5, 5)
    gradients: list[Tensor] = []
    for run in (compiled(function), function):
        operand = (x.mT if transposed else x).clone().requires_grad_()
        result = run(operand)
        (result if isinstance(result, Tensor) else result[1]).backward()
        assert operand.grad is not None
        gradients.append(operand.grad)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


def test_memory_format_of_unpooling() -> None:
    def function(x: Tensor, indices: Tensor) -> Tensor:
        return torch.nn.functional.max_unpool2d(x, indices, [2, 2])

    x = torch.randn(1, 2, 1, 3).to(memory_format=torch.channels_last)
    indices = torch.tensor([[[[0, 2, 4]], [[1, 3, 5]]]])
    ours, theirs = compiled(function)(x, indices), function(x, indices)
    torch.testing.assert_close(ours, theirs)
    assert ours.stride() == theirs.stride()


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_memory_format_of_shuffled_channels(memory_format: torch.memory_format) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.nn.functional.channel_shuffle(x, 2) + 1

    x = torch.randn(2, 4, 5, 6).contiguous(memory_format=memory_format)
    ours, theirs = compiled(function)(x), function(x)
    torch.testing.assert_close(ours, theirs)
    assert ours.stride() == theirs.stride()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        torch.nn.functional.rrelu,
        lambda x, training: torch.nn.functional.rrelu(x + 1, training=training, inplace=True),
        lambda x, training: torch.rrelu(input=x, training=training),
        lambda x, training: torch.nn.RReLU().train(training)(x),
    ],
    ids=["function", "in place", "torch", "module"],
)
def test_strides_of_randomized_leaky_relu(function: Callable[..., Tensor], training: bool) -> None:
    def results(run: Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
        torch.manual_seed(1)
        x = torch.linspace(-3, 3, 60).reshape(3, 4, 5).permute(2, 0, 1).requires_grad_()
        y = run(x, training=training)
        [gradient] = torch.autograd.grad((y * y).sum(), x)
        return y, gradient

    for ours, theirs in zip(results(compiled(function)), results(function), strict=True):
        torch.testing.assert_close(ours, theirs)
        assert ours.stride() == theirs.stride()


def test_operands_that_a_decomposition_does_not_take() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.nn.functional.adaptive_avg_pool2d(x, (2, 0))

    x = torch.randn(2, 3, 4, 5)
    torch.testing.assert_close(compiled(function)(x), function(x))


def test_results_of_another_dtype_than_the_fake_ones() -> None:
    def function(x: Tensor, mean: Tensor, variance: Tensor) -> Any:
        return torch.ops.aten._batch_norm_with_update(x, x[0, :, 0], x[0, :, 1], mean, variance, 0.5, 0.6)

    x, mean, variance = (
        tensor.bfloat16() for tensor in (torch.randn(2, 5, 3), torch.zeros(5), torch.ones(5))
    )
    changed = [mean.clone(), variance.clone()]
    torch.testing.assert_close(compiled(function)(x, *changed), function(x, mean, variance))
    torch.testing.assert_close(changed, [mean, variance])


def test_dtype_of_a_quotient_of_rank_0() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x // 2, torch.div(x, 2, rounding_mode="trunc")

    for x in (torch.tensor(7, dtype=torch.bfloat16), torch.ones(3, dtype=torch.float16)):
        torch.testing.assert_close(compiled(function)(x), function(x))


@pytest.mark.parametrize("function", [lambda x: x - (x > 0), lambda x: x[:0].max() * 2])
def test_errors_of_operators(function: Callable[[Tensor], Tensor]) -> None:
    for run in (function, compiled(function)):
        with pytest.raises(RuntimeError, match=r"Subtraction|Expected reduction dim"):
            run(torch.ones(3))


def add(x: Tensor) -> Tensor:
    return x.add_(1) * 2


def write_an_element(x: Tensor) -> Tensor:
    return x.index_copy_(0, torch.tensor([1]), x.sum(0, keepdim=True).sin()) * 2


@pytest.mark.parametrize("function", [add, write_an_element], ids=lambda function: function.__name__)
def test_version_of_an_updated_buffer(function: Callable[[Tensor], Tensor]) -> None:
    operands = [torch.ones(3), torch.ones(3)]
    results = [run(x) for run, x in zip((compiled(function), function), operands, strict=True)]
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*operands)
    assert operands[0]._version == operands[1]._version


def test_view_of_prims_aliases_its_operand() -> None:
    """``squeeze`` without an axis becomes ``prims.squeeze``, which a kernel made a copy."""

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y, y[0:1].squeeze()

    run = torch.compile(function, backend="kcache", options=_OPTIONS)
    y, view = run(torch.ones(2))
    y.fill_(7)
    assert view.item() == 7


@pytest.mark.parametrize(("view", "count"), [(torch.diagonal, 1), (lambda x: x.unfold(1, 2, 1), 2)])
def test_views_that_kernels_compute_as_copies(view: Callable[[Tensor], Tensor], count: int) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x * 2
        return y, view(y), view(y).sin() * 2

    x = torch.arange(12.0).view(3, 4)
    y, part, sines = compiled(function)(x)
    expected = function(x)
    torch.testing.assert_close((y, part, sines), expected)
    assert part.stride() == expected[1].stride()
    y.fill_(7)
    assert part.unique().tolist() == [7]
    assert kernels() == count


@pytest.mark.parametrize(
    "copy",
    [
        lambda x: torch.view_copy(x, (3, 4)),
        lambda x: torch.permute_copy(x, (0, 1)),
        lambda x: torch.narrow_copy(x, 0, 1, 2),
        lambda x: torch.roll(x, 0, 0),
    ],
)
def test_copies_that_decompositions_make_views(copy: Callable[[Tensor], Tensor]) -> None:
    def function(x: Tensor) -> Tensor:
        copied = copy(x)
        x.add_(1)
        return copied

    operands = [torch.arange(12.0).view(3, 4) for _ in range(2)]
    ours, theirs = (run(x) for run, x in zip((compiled(function), function), operands, strict=True))
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*operands)


def test_alias_across_a_graph_break() -> None:
    def function() -> Tensor:
        a = torch.tensor([1])[0:1]
        b = a.squeeze()
        a[0] = 0
        torch._dynamo.graph_break()
        a[0] = 2
        return b

    assert torch.compile(function, backend="kcache", options=_OPTIONS)().item() == 2


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.nn.functional.adaptive_avg_pool2d(x, 2),
        lambda x: torch.nn.functional.interpolate(x, size=5),
        lambda x: torch.nn.functional.interpolate(x, size=5, mode="bilinear"),
        lambda x: torch.nn.functional.interpolate(x, size=5, mode="bicubic"),
    ],
    ids=["adaptive average", "nearest", "bilinear", "bicubic"],
)
def test_memory_formats_of_resized_images(function: Callable[..., Any]) -> None:
    x = torch.randn(2, 3, 4, 6).contiguous(memory_format=torch.channels_last)
    expected, actual = function(x), compiled(function)(x)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    assert actual.stride() == expected.stride()
    assert kernels() == 1


def _attention(x: Tensor) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(x, x, x)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "function",
    [
        _attention,
        lambda x: _attention(x).transpose(1, 2).view(2, 9, 32) * 2,
        lambda x: torch.logcumsumexp(x, 1),
        lambda x: torch.nn.functional.adaptive_max_pool2d(x, 2),
    ],
    ids=["attention", "view of attention", "logcumsumexp", "adaptive maximum"],
)
def test_strides_of_results(function: Callable[..., Any]) -> None:
    results: list[list[Tensor]] = []
    for run in (function, compiled(function)):
        torch.manual_seed(0)
        x = torch.randn(2, 9, 4, 8).transpose(1, 2).requires_grad_()
        result = run(x)
        result.sin().sum().backward()
        assert x.grad is not None
        results.append([result, x.grad])
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)
    assert results[0][0].stride() == results[1][0].stride()
    assert kernels() >= 1


def test_strides_of_attention_of_dynamic_sizes() -> None:
    def function(x: Tensor) -> Tensor:
        return _attention(x).transpose(1, 2).view(x.shape[0], x.shape[2], 32) * 2

    run = compiled(function, dynamic=True)
    for batch, length in ((2, 9), (3, 5), (4, 7)):
        x = torch.randn(batch, length, 4, 8).transpose(1, 2)
        torch.testing.assert_close(run(x), function(x))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
