"""Functions whose graphs the writer and torch-mlir's importer write, by subject."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from kcache_grpc.programs.torch.decompositions import table

aten: Any = torch.ops.aten


class Case(NamedTuple):
    """A function, and the tensors that it takes."""

    function: Callable[..., Any]
    inputs: tuple[Any, ...]


def case(function: Callable[..., Any], *inputs: Any) -> Case:
    return Case(function, inputs)


def f32(*sizes: int) -> Any:
    return torch.ones(sizes)


def i64(*sizes: int) -> Any:
    return torch.ones(sizes, dtype=torch.int64)


def boolean(*sizes: int) -> Any:
    return torch.ones(sizes, dtype=torch.bool)


def of(dtype: torch.dtype, *sizes: int) -> Any:
    return torch.ones(sizes, dtype=dtype)


def gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradients of a function's sum for all inputs, so that their graph is that of a backward pass."""

    def backward(*inputs: Any) -> Any:
        leaves = [value.detach().requires_grad_() for value in inputs]
        return torch.autograd.grad(function(*leaves).square().sum(), leaves)

    return backward


def unary(x: Any) -> Any:
    functions = (
        "abs",
        "exp",
        "log",
        "sin",
        "cos",
        "tanh",
        "sqrt",
        "rsqrt",
        "sigmoid",
        "erf",
        "floor",
        "ceil",
    )
    functions += ("round", "trunc", "neg", "reciprocal", "sign", "log1p", "expm1", "atan", "relu", "isnan")
    return [getattr(torch, name)(x) for name in functions]


def activations(x: Any) -> Any:
    names = ("gelu", "silu", "elu", "leaky_relu", "hardtanh", "softplus", "hardswish", "hardsigmoid", "mish")
    tangents = functional.gelu(x, approximate="tanh")
    return [tangents, *(getattr(functional, name)(x) for name in names)]


def binary(x: Any, y: Any) -> Any:
    names = ("add", "sub", "mul", "div", "maximum", "minimum", "pow", "atan2", "fmod", "remainder")
    names += ("eq", "ne", "lt", "le", "gt", "ge")
    return [getattr(torch, name)(x, y) for name in names]


def scalars(x: Any) -> Any:
    return [
        x + 2,
        2 - x,
        x * 0.5,
        x / 3,
        1 / x,
        x**2,
        x**0.5,
        2**x,
        x % 3,
        x > 1,
        x == 2.5,
        torch.add(x, x, alpha=2),
    ]


def special_floats(x: Any) -> Any:
    return [x + math.inf, x * -math.inf, x + math.nan, x.clamp(min=-math.inf, max=1e-40), x + 1e300, x - 0.0]


def integers(x: Any, y: Any) -> Any:
    names = (
        "add",
        "sub",
        "mul",
        "remainder",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "maximum",
        "eq",
        "lt",
    )
    shifts = [x << 2, x >> 1, torch.bitwise_not(x), x // 3, torch.div(x, y, rounding_mode="trunc"), x / y]
    return [*(getattr(torch, name)(x, y) for name in names), *shifts]


def booleans(x: Any, y: Any) -> Any:
    both = [x & y, x | y, x ^ y, ~x, torch.logical_and(x, y), torch.logical_not(x), x == y]
    return [*both, x.any(), x.all(), x.any(1), x.all(0, keepdim=True), x.sum(1), x.int(), x.float() * 2]


def conversions(x: Any) -> Any:
    dtypes = (torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int32, torch.int64, torch.uint8)
    return [x.to(dtype) for dtype in (*dtypes, torch.bool)]


def reductions(x: Any) -> Any:
    whole = [x.sum(), x.mean(), x.amax(), x.amin(), x.prod()]
    along = [
        x.sum(1),
        x.mean((0, 2), keepdim=True),
        x.amax(-1),
        x.var(1),
        x.std(1),
        x.argmax(1),
        x.argmin(-1, True),
    ]
    return [*whole, *along, *x.max(1), *x.min(2), torch.logsumexp(x, 1), x.norm(dim=1), *torch.var_mean(x, 2)]


def shapes(x: Any) -> Any:
    views = [
        x.view(6, 4),
        x.reshape(-1),
        x.permute(2, 0, 1),
        x.transpose(0, 1),
        x.unsqueeze(1),
        x[:, 1:, ::2],
    ]
    more = [
        x.flatten(1),
        x[0],
        x.select(1, 1),
        x.expand(2, 2, 3, 4),
        x.flip(1),
        x.roll(1, 0),
        x.repeat(1, 2, 1),
    ]
    pads = [functional.pad(x, (1, 2, 0, 1), value=-1.0), x.squeeze(), x.contiguous(), x.clone(), x.tile(2)]
    return [torch.neg(value) for value in (*views, *more, *pads)]


def lists(x: Any, y: Any) -> Any:
    joined = [torch.cat([x, y]), torch.cat([x, y, x], 1), torch.stack([x, y]), torch.hstack([x, y])]
    parts = [*x.split(2), *x.chunk(2, 1), *x.unbind(0), *torch.split(x, [1, 3], 0), *torch.tensor_split(x, 2)]
    return [*joined, *(part * 2 for part in parts)]


def creation(x: Any) -> Any:
    like = [
        torch.zeros_like(x),
        torch.ones_like(x),
        torch.full_like(x, 2.5),
        x.new_zeros(3),
        x.new_full((2,), 7),
    ]
    filled = [torch.zeros(3), torch.ones(2, 3, dtype=torch.int64), torch.full((2,), math.inf), torch.eye(3)]
    ranges = [torch.arange(5), torch.arange(1.0, 4.0, 0.5), torch.arange(2, 9, 3), torch.scalar_tensor(2.5)]
    return [x + 1, *like, *filled, *ranges, torch.full((2,), True), torch.tril(x), torch.triu(x, 1)]


def masks(x: Any, mask: Any) -> Any:
    filled = [x.masked_fill(mask, -math.inf), x.masked_fill(mask, 0), torch.where(mask, x, 0.0)]
    return [
        *filled,
        torch.where(mask, x, -x),
        torch.where(x > 0, x, x.exp()),
        x.clamp(0, 1),
        x.clamp_min(0.5),
    ]


def products(x: Any, y: Any, batch: Any) -> Any:
    sums = [torch.addmm(y[0], x, y), torch.baddbmm(batch, batch, batch, alpha=0.5), torch.mv(x, y[:, 0])]
    return [
        x @ y,
        torch.mm(x, y),
        torch.bmm(batch, batch),
        batch @ y,
        functional.linear(x, y),
        *sums,
        torch.dot(x[0], y[0]),
    ]


def convolutions(x: Any, weight: Any, bias: Any) -> Any:
    plain = functional.conv2d(x, weight, bias)
    strided = functional.conv2d(x, weight, None, stride=2, padding=1, dilation=2)
    grouped = functional.conv2d(x, weight[:, :1], bias, padding="same", groups=4)
    return [plain, strided, grouped, functional.conv_transpose2d(x, weight, stride=2, output_padding=1)]


def convolutions_1d(x: Any, weight: Any) -> Any:
    return [functional.conv1d(x, weight, padding=1), functional.conv_transpose1d(x, weight)]


def norms(x: Any, weight: Any, bias: Any) -> Any:
    batch = aten._native_batch_norm_legit_no_training(x, weight, bias, bias, weight.square(), 0.1, 1e-5)[0]
    group = functional.group_norm(x, 2, weight, bias)
    layer = functional.layer_norm(x.movedim(1, -1), (4,), weight, bias, 1e-6)
    return [
        batch,
        group,
        layer,
        functional.rms_norm(x.movedim(1, -1), (4,), weight),
    ]


def softmaxes(x: Any) -> Any:
    return [
        torch.softmax(x, -1),
        torch.log_softmax(x, 1),
        functional.softmin(x, 0),
        torch.softmax(x, 1, torch.float64),
    ]


def losses(x: Any, y: Any) -> Any:
    regression = [
        functional.mse_loss(x, y),
        functional.l1_loss(x, y, reduction="sum"),
        functional.smooth_l1_loss(x, y),
    ]
    entropy = functional.binary_cross_entropy_with_logits(x, torch.sigmoid(y))
    return [
        *regression,
        entropy,
        functional.kl_div(torch.log_softmax(x, 1), torch.softmax(y, 1), reduction="batchmean"),
    ]


def attention(query: Any, key: Any, value: Any, mask: Any) -> Any:
    product = functional.scaled_dot_product_attention
    return [
        product(query, key, value),
        product(query, key, value, is_causal=True),
        product(query, key, value, attn_mask=mask, scale=0.3),
        product(query, key, value, attn_mask=mask > 0),
    ]


def indexing(x: Any, index: Any) -> Any:
    gathered = [
        x[index],
        x[:, index],
        x[index, index],
        x.index_select(1, index),
        torch.take_along_dim(x[:3], index[:, None], 1),
    ]
    return [
        *gathered,
        x.gather(0, index[:, None]),
        functional.embedding(index, x),
        functional.one_hot(index, 4),
    ]


def scatters(x: Any, index: Any, source: Any) -> Any:
    rows = index[:, None].expand(3, 4)
    added = [
        x.scatter_add(0, rows, source),
        x.index_add(0, index, source),
        x.index_put((index,), source, accumulate=True),
    ]
    return [
        *added,
        x.scatter(0, rows, source),
        x.scatter(0, rows, 2.5),
        x.index_put((index, index), source[:, 0]),
    ]


def slices(x: Any, y: Any) -> Any:
    return [
        x.slice_scatter(y, 0, 1, 3),
        x.select_scatter(y[0], 0, 2),
        torch.diagonal(x).neg(),
        x.diagonal_scatter(y[0]),
    ]


def pools(x: Any) -> Any:
    averages = [
        functional.avg_pool2d(x, 2),
        functional.adaptive_avg_pool2d(x, 1),
        functional.adaptive_avg_pool2d(x, (2, 4)),
    ]
    most = [functional.max_pool2d(x, 3, 2, 1), *functional.max_pool2d(x, 2, return_indices=True)]
    return [*averages, *most, functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False)]


def scans(x: Any) -> Any:
    return [x.cumsum(1), x.cumprod(0), torch.cumsum(x, 0, dtype=torch.float64), torch.logcumsumexp(x, 1)]


def sorts(x: Any) -> Any:
    return [*x.sort(1), *x.sort(0, descending=True), *x.topk(2), *x.topk(1, 0, largest=False), x.argsort(1)]


def complexes(x: Any, y: Any) -> Any:
    parts = [torch.view_as_real(x) * 2, x.abs(), x.real + 1.0, x.imag * 3]
    return [x + y, x * y, x / y, *parts, torch.complex(x.real, y.imag)]


def resized(x: Any) -> Any:
    resize = functional.interpolate
    return [
        resize(x, scale_factor=2),
        resize(x, size=(5, 7), mode="bilinear"),
        resize(x, scale_factor=2.0, mode="bicubic"),
    ]


def grid(x: Any, points: Any) -> Any:
    return functional.grid_sample(x, points, align_corners=False)


def encoder(x: Any, weight: Any, bias: Any, attend: Any = functional.scaled_dot_product_attention) -> Any:
    query, key, value = functional.linear(x, weight, bias).chunk(3, -1)
    heads = [part.unflatten(-1, (2, 4)).transpose(1, 2) for part in (query, key, value)]
    joined = attend(*heads, is_causal=True).transpose(1, 2).flatten(2)
    return functional.gelu(functional.layer_norm(x + joined, (8,)))


def differentiable_encoder(x: Any, weight: Any, bias: Any) -> Any:
    """The encoder with attention written out: the gradient of PyTorch's operator is not decomposed."""
    return encoder(x, weight, bias, table.attention)


def results(x: Any) -> Any:
    """Inputs as results, a result twice, views of an input."""
    doubled = x * 2
    return [x, doubled, doubled, x.t(), x.view(-1)]


CASES: dict[str, Case] = {
    "unary": case(unary, f32(2, 3)),
    "unary f16": case(unary, of(torch.float16, 2, 3)),
    "unary bf16": case(unary, of(torch.bfloat16, 5)),
    "unary f64": case(unary, of(torch.float64, 2, 3)),
    "activations": case(activations, f32(2, 3)),
    "binary": case(binary, f32(2, 3), f32(2, 3)),
    "binary, broadcast": case(binary, f32(4, 1, 3), f32(2, 1)),
    "binary, mixed dtypes": case(binary, of(torch.bfloat16, 2, 3), f32(3)),
    "binary, integer and float": case(binary, i64(2, 3), f32(3)),
    "scalars": case(scalars, f32(2, 3)),
    "scalars f16": case(scalars, of(torch.float16, 3)),
    "scalars f64": case(scalars, of(torch.float64, 3)),
    "scalars i64": case(lambda x: [x + 2, 2 - x, x * 3, x * 0.5, x % 3, x > 1, x / 2], i64(2, 3)),
    "special floats": case(special_floats, f32(2, 3)),
    "integers": case(integers, i64(2, 3), i64(2, 3)),
    "integers i32": case(integers, of(torch.int32, 4), of(torch.int32, 4)),
    "integers u8": case(lambda x, y: [x + y, x * y, x & y, x // 2], of(torch.uint8, 4), of(torch.uint8, 4)),
    "integers i8 i16": case(lambda x, y: [x + y, x * y, x < y], of(torch.int8, 4), of(torch.int16, 4)),
    "booleans": case(booleans, boolean(2, 3), boolean(2, 3)),
    "conversions": case(conversions, f32(2, 3)),
    "conversions of integers": case(conversions, of(torch.int32, 2, 3)),
    "conversions of booleans": case(conversions, boolean(2, 3)),
    "device and layout": case(
        lambda x: aten._to_copy.default(
            x,
            dtype=torch.float64,
            device=torch.device("cpu"),
            layout=torch.strided,
            memory_format=torch.contiguous_format,
        ),
        f32(2, 3),
    ),
    "reductions": case(reductions, f32(2, 3, 4)),
    "reductions f64": case(reductions, of(torch.float64, 2, 3, 4)),
    "shapes": case(shapes, f32(2, 3, 4)),
    "lists": case(lists, f32(4, 3), f32(4, 3)),
    "creation": case(creation, f32(3, 3)),
    "masks": case(masks, f32(2, 3), boolean(2, 3)),
    "products": case(products, f32(4, 4), f32(4, 4), f32(2, 4, 4)),
    "products bf16": case(products, *(of(torch.bfloat16, *sizes) for sizes in ((4, 4), (4, 4), (2, 4, 4)))),
    "convolutions": case(convolutions, f32(2, 4, 8, 8), f32(4, 4, 3, 3), f32(4)),
    "convolutions, one dimension": case(convolutions_1d, f32(2, 4, 8), f32(4, 4, 3)),
    "norms": case(norms, f32(2, 4, 5, 5), f32(4), f32(4)),
    "norms f16": case(norms, *(of(torch.float16, *sizes) for sizes in ((2, 4, 5, 5), (4,), (4,)))),
    "softmaxes": case(softmaxes, f32(3, 4)),
    "losses": case(losses, f32(3, 4), f32(3, 4)),
    "cross entropy": case(functional.cross_entropy, f32(3, 4), i64(3)),
    "attention": case(attention, *(f32(2, 2, 5, 4) for _ in range(3)), f32(5, 5)),
    "indexing": case(indexing, f32(4, 4), i64(3)),
    "scatters": case(scatters, f32(5, 4), i64(3), f32(3, 4)),
    "slices": case(slices, f32(4, 4), f32(2, 4)),
    "pools": case(pools, f32(1, 2, 8, 8)),
    "scans": case(scans, f32(3, 4)),
    "sorts": case(sorts, f32(3, 4)),
    "complexes": case(complexes, of(torch.complex64, 2, 3), of(torch.complex64, 2, 3)),
    "complexes c128": case(complexes, of(torch.complex128, 2, 3), of(torch.complex128, 2, 3)),
    "resized": case(resized, f32(1, 2, 4, 4)),
    "grid": case(grid, f32(1, 2, 4, 4), f32(1, 3, 3, 2)),
    "encoder": case(encoder, f32(2, 5, 8), f32(24, 8), f32(24)),
    "results": case(results, f32(2, 3)),
    "scalar tensors": case(lambda x, y: [x + y, x * 2, x.sum(), x.exp()], f32(), f32()),
    "no elements": case(lambda x: [x + 1, x.sum(), x.sum(1)], f32(0, 3)),
    "gradients, elementwise": case(
        gradients(lambda x, y: torch.tanh(x * y) + torch.sigmoid(x) / y), f32(2, 3), f32(3)
    ),
    "gradients, activations": case(gradients(lambda x: sum(activations(x))), f32(2, 3)),
    "gradients, norms": case(
        gradients(lambda *values: functional.layer_norm(values[0], (4,), *values[1:])),
        f32(3, 4),
        f32(4),
        f32(4),
    ),
    "gradients, group norm": case(
        gradients(lambda x, w: functional.group_norm(x, 2, w)), f32(2, 4, 3, 3), f32(4)
    ),
    "gradients, convolution": case(gradients(functional.conv2d), f32(2, 3, 6, 6), f32(4, 3, 3, 3), f32(4)),
    "gradients, encoder": case(gradients(differentiable_encoder), f32(2, 5, 8), f32(24, 8), f32(24)),
    "gradients, embedding": case(
        lambda index, table: gradients(lambda weight: functional.embedding(index, weight))(table),
        i64(3),
        f32(5, 4),
    ),
    "gradients, pools": case(
        gradients(lambda x: functional.max_pool2d(x, 2) + functional.avg_pool2d(x, 2)), f32(1, 2, 4, 4)
    ),
    "gradients, indexing": case(
        gradients(lambda x: x[torch.arange(3), :2].cumsum(0) * x.sort(1)[0][:3, :2]), f32(4, 4)
    ),
}

#: Cases that the service rejects, for the same operation in either text.
REJECTED: dict[str, Case] = {
    "complex and scalar": case(lambda x: x * 2, of(torch.complex64, 2)),
    "complex function": case(torch.exp, of(torch.complex64, 2)),
}
