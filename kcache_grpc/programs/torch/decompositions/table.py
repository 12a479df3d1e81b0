"""Which composite operations of PyTorch are taken apart before a program is sent, and how."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from kcache_grpc.errors import UnsupportedOp
from kcache_grpc.programs.torch.decompositions import (
    convolution_gradients,
    core_operations,
    element_types,
    functions,
    incomplete_gamma,
    linalg,
    pooling,
    resize,
    scatter,
    sorting,
)
from kcache_grpc.programs.torch.decompositions.base import (
    autograd_decompositions,
    base_decompositions,
    core_decompositions,
)

#: Ops that the service lowers better whole: products without a detour over flattened axes.
_KEPT = ("linear.default", "matmul.default")
#: Ops that the service cannot lower, and that PyTorch takes apart.
_ADDED = (
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
)


@functools.cache
def decompositions() -> dict[Any, Any]:
    """torch-mlir's table, with our own rows for what it takes apart badly."""
    return _changed(core_decompositions())


@functools.cache
def decompositions_of_autograd() -> dict[Any, Any]:
    """The same for a trace that begins with autograd, without the rows that it needs none of."""
    return _changed(autograd_decompositions())


def _changed(core: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the decompositions by overload: those of PyTorch, without those that are kept, and our own."""
    aten: Any = import_module("torch").ops.aten
    decomp: Any = import_module("torch._decomp")
    kept = {_overload(aten, name) for name in _KEPT}
    table = {op: how for op, how in base_decompositions(core).items() if op not in kept}
    table.update(decomp.get_decompositions([getattr(aten, name) for name in _ADDED]))
    table.update({op: how for op, how in core.items() if _is_added(str(op))})
    table[aten.roll.default] = _roll
    table[aten.diagonal.default] = _diagonal
    table[aten.native_group_norm.default] = _group_norm
    table[aten._native_batch_norm_legit_no_training.default] = _batch_norm
    table[aten.scaled_dot_product_attention.default] = attention
    table[aten.cumprod.default] = _cumprod
    for overload in (aten.embedding_bag.default, aten.embedding_bag.padding_idx, aten._embedding_bag.default):
        table[overload] = embedding_bag
    table[aten._embedding_bag_forward_only.default] = embedding_bag
    for packet in (aten.upsample_bilinear2d, aten.upsample_bicubic2d):
        for overload in (packet.default, packet.vec):
            if overload in table:
                table[overload] = element_types.not_of_bytes(table[overload])
    for module in (
        *(functions, pooling, convolution_gradients, scatter, sorting),
        *(element_types, core_operations, resize, linalg, incomplete_gamma),
    ):
        for operation, own in module.decompositions().items():
            table[operation] = element_types.first_of(own, table[operation]) if operation in table else own
    return table


def checked(table: dict[Any, Any]) -> dict[Any, Any]:
    """``table`` where PyTorch runs what no kernel computes: with its checks, which raise."""
    return table | linalg.checked_rows(table)


def _is_added(name: str) -> bool:
    return name.startswith(
        ("aten.fft_", "aten.linalg_norm.", "aten.norm.", "aten.stft.")
    ) and not name.endswith("out")


def reject_bag_places(graph: Any) -> None:
    """Raise ``UnsupportedOp`` where more than the first result of an embedding bag is used."""
    for node in graph.nodes:
        source = node.args[0] if node.op == "call_function" and len(node.args) == 2 else None
        name = str(getattr(source, "target", ""))
        bag = name.startswith(("aten.embedding_bag", "aten._embedding_bag"))
        if bag and str(getattr(node.target, "__name__", "")) == "getitem" and node.args[1] and node.users:
            reason = "only its first result is computed: compute offsets and sizes of bags with other ops"
            raise UnsupportedOp(f"unsupported op torch.{name}: {reason}", op=f"torch.{name}")


def _overload(aten: Any, name: str) -> Any:
    packet, overload = name.split(".")
    return getattr(getattr(aten, packet), overload)


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """``aten.scaled_dot_product_attention`` as it is written out."""
    torch: Any = import_module("torch")
    if enable_gqa:
        key, value = (_repeat_heads(x, query.shape[-3]) for x in (key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = _batched_product(query, key.transpose(-2, -1)) * factor
    if is_causal:
        rows = torch.arange(query.shape[-2], device=query.device).unsqueeze(1)
        columns = torch.arange(key.shape[-2], device=query.device)
        scores = torch.where(columns <= rows, scores, -math.inf)
    if attn_mask is None:
        weights = torch.softmax(scores, -1)
    else:
        # A row that is masked as a whole gives zeros.
        boolean = attn_mask.dtype == torch.bool
        scores = torch.where(attn_mask, scores, -math.inf) if boolean else scores + attn_mask
        weights = torch.ops.aten._safe_softmax(scores, -1)
    return _batched_product(torch.dropout(weights, dropout_p, True) if dropout_p else weights, value)


def _batched_product(left: Any, right: Any) -> Any:
    """``torch.matmul``, without its ``expand`` of operands whose static batch dimensions are equal."""
    torch: Any = import_module("torch")
    batch = left.shape[:-2]
    static = all(isinstance(size, int) for size in (*batch, *right.shape[:-2]))
    if len(batch) < 2 or not static or batch != right.shape[:-2]:
        return torch.matmul(left, right)
    return torch.bmm(left.flatten(0, -3), right.flatten(0, -3)).unflatten(0, batch)


def _repeat_heads(x: Any, heads: int) -> Any:
    """Each head of keys or values next to itself, until there are as many as of queries."""
    groups = x.shape[-3]
    spread = x.unsqueeze(-3).expand(*x.shape[:-3], groups, heads // groups, *x.shape[-2:])
    return spread.reshape(*x.shape[:-3], heads, *x.shape[-2:])


def _roll(x: Any, shifts: Any, dims: Any = ()) -> Any:
    """``aten.roll`` in slices."""
    torch: Any = import_module("torch")
    if not dims:
        return _roll(x.flatten(), shifts, [0]).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        size = x.shape[dim]
        first = -shift % size if size else 0
        if first:
            x = torch.cat([x.narrow(dim, first, size - first), x.narrow(dim, 0, first)], dim)
    return x


def _diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """``aten.diagonal`` as elements at equal indices."""
    torch: Any = import_module("torch")
    rows = x.movedim((dim1, dim2), (0, 1))
    above, below = max(offset, 0), max(-offset, 0)
    count = max(min(rows.shape[0] - below, rows.shape[1] - above), 0)
    index = torch.arange(count, device=x.device)
    return rows[index + below, index + above].movedim(0, -1)


def _computed_in(x: Any) -> Any:
    """The dtype that PyTorch computes a norm of ``x`` in."""
    torch: Any = import_module("torch")
    return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype


def _group_norm(
    x: Any, weight: Any, bias: Any, n: int, channels: int, spatial: int, groups: int, eps: float
) -> tuple[Any, Any, Any]:
    """``aten.native_group_norm``, without the gathers of PyTorch's own decomposition."""
    torch: Any = import_module("torch")
    wide = x.to(_computed_in(x)).reshape(n, groups, channels // groups, spatial)
    variance, mean = torch.var_mean(wide, dim=(2, 3), correction=0, keepdim=True)
    scale = torch.rsqrt(variance + eps)
    result = ((wide - mean) * scale).reshape(x.shape)
    shape = (1, channels) + (1,) * (x.dim() - 2)
    if weight is not None:
        result = result * weight.reshape(shape)
    if bias is not None:
        result = result + bias.reshape(shape)
    small = x.dtype
    return result.to(small), mean.reshape(n, groups).to(small), scale.reshape(n, groups).to(small)


def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> tuple[Any, Any, Any]:
    """``aten._native_batch_norm_legit_no_training``: centered, times ``rsqrt(variance + eps)``, affine."""
    torch: Any = import_module("torch")
    wide = _computed_in(x)
    shape = (1, x.shape[1]) + (1,) * (x.dim() - 2)

    def in_wide(value: Any) -> Any:  # a conversion to the same type is dispatched, too
        return value if value.dtype == wide else value.to(wide)

    scale = torch.rsqrt(in_wide(variance) + eps)
    result = (in_wide(x) - in_wide(mean).view(shape)) * scale.view(shape)
    if weight is not None:
        result = result * in_wide(weight).view(shape)
    if bias is not None:
        result = result + in_wide(bias).view(shape)
    result = result if result.dtype == x.dtype else result.to(x.dtype)
    return result, x.new_empty((0,)), x.new_empty((0,))


def _cumprod(x: Any, dim: int, *, dtype: Any = None) -> Any:
    """``aten.cumprod`` in steps of doubled distance, each a product with what lies that far before."""
    torch: Any = import_module("torch")
    if x.dim() and not isinstance(x.shape[dim], int):
        return NotImplemented  # a dynamic size: how many steps it takes is not known
    if dtype is None and not (x.is_floating_point() or x.is_complex()):
        dtype = torch.int64
    x = x.to(dtype) if dtype is not None else x
    if not x.dim():
        return x.clone()
    size, distance = x.shape[dim], 1
    while distance < size:
        kept, ahead = x.narrow(dim, 0, distance), x.narrow(dim, distance, size - distance)
        x = torch.cat([kept, ahead * x.narrow(dim, 0, size - distance)], dim)
        distance *= 2
    return x


def embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = -1,
) -> Any:
    """``aten.embedding_bag``: rows added up by bag, for sums and means; only its first result."""
    torch: Any = import_module("torch")
    if mode not in (0, 1):
        return NotImplemented
    starts = offsets[:-1] if include_last_offset else offsets
    places = torch.arange(indices.shape[0], device=indices.device)
    bag = (starts.unsqueeze(0) <= places.unsqueeze(1)).sum(1) - 1
    rows = torch.embedding(weight, indices)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    counted = torch.ones_like(indices)
    if padding_idx is not None and padding_idx != -1:
        padding = indices == padding_idx % weight.shape[0]
        rows = torch.where(padding.unsqueeze(-1), torch.zeros_like(rows), rows)
        counted = torch.where(padding, 0, counted)
    total = rows.new_zeros((starts.shape[0], weight.shape[1])).index_add(0, bag, rows)
    if mode == 1:
        count = counted.new_zeros((starts.shape[0],)).index_add(0, bag, counted)
        total = total / count.clamp(min=1).unsqueeze(-1).to(total.dtype)
    empty = indices.new_empty((0,))
    return total, empty, empty, empty
