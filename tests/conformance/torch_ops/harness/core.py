"""A call of each operation of ATen's core set that a kernel can have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.conformance.torch_ops.harness.mixed import DTYPES
from tests.conformance.torch_ops.harness.samples import Sample

#: Operations that no kernel has, each with why.
NONE = {
    **{f"aten.{name}.default": "random" for name in ("rand", "randn", "randperm")},
    **{f"aten.{name}": "not initialized" for name in ("empty.memory_format", "empty_strided.default")},
    "aten.nonzero.default": "a size that the elements decide",
    "aten._local_scalar_dense.default": "a number of Python, no tensor",
    **{f"aten.{name}": "it writes to its argument" for name in ("resize_.default", "atan2.out")},
    **{
        f"aten.sym_{name}": "a size, no tensor"
        for name in (
            "is_contiguous.default",
            "numel.default",
            "size.int",
            "storage_offset.default",
            "stride.int",
        )
    },
}

_UNARY = frozenset(
    {
        *(
            "_to_copy",
            "abs",
            "acos",
            "acosh",
            "alias",
            "amax",
            "amin",
            "any",
            "argmax",
            "argmin",
            "asin",
            "asinh",
        ),
        *("atan", "atanh", "ceil", "clone", "cos", "cosh", "elu", "erf", "exp", "expm1", "floor", "gelu"),
        *("hardtanh", "isinf", "isnan", "leaky_relu", "log", "log10", "log1p", "log2", "logical_not", "mean"),
        *("neg", "prod", "reciprocal", "relu", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt"),
        *("tan", "tanh", "trunc"),
    }
)


def _f(*dims: int) -> Any:
    return torch.linspace(0.1, 0.9, max(1, torch.Size(dims).numel())).reshape(dims)


def _i(*dims: int, below: int = 5) -> Any:
    return torch.arange(torch.Size(dims).numel()).remainder(below).reshape(dims)


def _pool(name: str) -> list[Any]:
    if "3d" in name:
        return [_f(1, 2, 4, 4, 4), [2, 2, 2]]
    return [_f(1, 2, 6), [2]] if "1d" in name else [_f(1, 2, 6, 6), [2, 2]]


def _norm() -> list[Any]:
    return [_f(2, 3, 4), _f(3), _f(3)]


def _indices() -> Any:
    return _i(2, 3, below=2)


_CALLS: dict[str, Callable[[], list[Any]]] = {
    "_adaptive_avg_pool2d.default": lambda: [_f(1, 2, 6, 6), [3, 2]],
    "_adaptive_avg_pool2d_backward.default": lambda: [_f(1, 2, 3, 3), _f(1, 2, 6, 6)],
    "_adaptive_avg_pool3d.default": lambda: [_f(1, 2, 4, 4, 4), [2, 2, 1]],
    "_cdist_forward.default": lambda: [_f(3, 4), _f(2, 4), 2.0, None],
    "_embedding_bag.default": lambda: [_f(5, 3), _i(6), torch.tensor([0, 2, 5])],  # its first result
    "_fft_c2r.default": lambda: [torch.fft.rfft(_f(2, 8)), [1], 2, 8],
    "_fft_r2c.default": lambda: [_f(2, 8), [1], 0, True],
    "_log_softmax.default": lambda: [_f(2, 5), 1, False],
    "_softmax.default": lambda: [_f(2, 5), 1, False],
    "_native_batch_norm_legit.default": lambda: [*_norm(), _f(3), _f(3), False, 0.1, 1e-5],
    "_native_batch_norm_legit.no_stats": lambda: [*_norm(), True, 0.1, 1e-5],
    "_native_batch_norm_legit_no_training.default": lambda: [*_norm(), _f(3), _f(3), 0.1, 1e-5],
    "_pdist_forward.default": lambda: [_f(4, 3), 2.0],
    "adaptive_avg_pool1d.default": lambda: [_f(1, 2, 6), [3]],
    "addmm.default": lambda: [_f(2, 3), _f(2, 4), _f(4, 3)],
    "any.dim": lambda: [_i(2, 3).bool(), 1],
    "any.dims": lambda: [_i(2, 3).bool(), [0, 1]],
    "arange.start_step": lambda: [0, 10, 3],
    "as_strided.default": lambda: [_f(12), [3, 2], [2, 5]],
    "avg_pool1d.default": lambda: _pool("1d"),
    "avg_pool2d.default": lambda: _pool("2d"),
    "avg_pool3d.default": lambda: _pool("3d"),
    "avg_pool2d_backward.default": lambda: [
        *(_f(1, 2, 3, 3), _f(1, 2, 6, 6), [2, 2], [2, 2], [0, 0], False, True, None)
    ],
    "bitwise_not.default": lambda: [_i(3, 4)],
    "bmm.default": lambda: [_f(2, 3, 4), _f(2, 4, 5)],
    "cat.default": lambda: [[_f(2, 3), _f(1, 3)]],
    "clamp.default": lambda: [_f(3, 4), 0.2, 0.7],
    "clamp.Tensor": lambda: [_f(3, 4), _f(4) * 0.5, _f(4)],
    "col2im.default": lambda: [_f(1, 8, 9), [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]],
    "constant_pad_nd.default": lambda: [_f(2, 3), [1, -1, 0, 2], 1.5],
    "convolution.default": lambda: [
        *(_f(1, 4, 6, 6), _f(2, 2, 3, 3), _f(2), [1, 2], [1, 0], [1, 1], False, [0, 0], 2)
    ],
    "convolution_backward.default": lambda: [
        *(_f(1, 2, 4, 4), _f(1, 2, 6, 6), _f(2, 2, 3, 3), [2], [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
        [True, True, True],
    ],
    "cumsum.default": lambda: [_f(3, 4), 1],
    "diagonal.default": lambda: [_f(3, 4)],
    "div.Tensor_mode": lambda: [_f(3, 4) * 9, _f(4)],
    "div.Scalar_mode": lambda: [_f(3, 4) * 9, 2.5],
    "embedding.default": lambda: [_f(5, 3), _i(2, 4)],
    "embedding_dense_backward.default": lambda: [_f(2, 4, 3), _i(2, 4), 5, -1, False],
    "expand.default": lambda: [_f(3, 1), [2, 3, 4]],
    "fill.Scalar": lambda: [_f(3), 2.0],
    "flip.default": lambda: [_f(3, 4), [0, 1]],
    "full.default": lambda: [[2, 3], 1.5],
    "full_like.default": lambda: [_f(2, 3), 1.5],
    "gather.default": lambda: [_f(3, 4), 0, _i(2, 4, below=3)],
    "grid_sampler_2d.default": lambda: [_f(1, 2, 4, 4), _f(1, 3, 3, 2) - 0.5, 0, 0, False],
    "index.Tensor": lambda: [_f(3, 4), [_i(2, below=3), _i(2)]],
    "index_put.default": lambda: [_f(3, 4), [_i(2, below=3)], _f(2, 4)],
    "index_select.default": lambda: [_f(3, 4), 1, _i(2)],
    "masked_scatter.default": lambda: [_f(3, 4), _i(3, 4).bool(), _f(12)],
    "max.dim": lambda: [_f(3, 4), 1],
    "min.dim": lambda: [_f(3, 4), 0, True],
    "max_pool2d_with_indices.default": lambda: _pool("2d"),
    "max_pool2d_with_indices_backward.default": lambda: [
        *(_f(1, 2, 3, 3), _f(1, 2, 6, 6), [2, 2], [2, 2], [0, 0], [1, 1], False),
        torch.nn.functional.max_pool2d(_f(1, 2, 6, 6), 2, return_indices=True)[1],
    ],
    "max_pool3d_with_indices.default": lambda: _pool("3d"),
    "mean.dim": lambda: [_f(3, 4), [1]],
    "mm.default": lambda: [_f(3, 4), _f(4, 2)],
    "native_dropout.default": lambda: [_f(3, 4), 0.5, False],
    "native_group_norm.default": lambda: [_f(2, 4, 6), _f(4), _f(4), 2, 4, 6, 2, 1e-5],
    "native_group_norm_backward.default": lambda: [
        *(_f(2, 4, 6), _f(2, 4, 6), _f(2, 2), _f(2, 2), _f(4), 2, 4, 6, 2, [True, True, True])
    ],
    "native_layer_norm.default": lambda: [_f(2, 3, 4), [4], _f(4), _f(4), 1e-5],
    "native_layer_norm_backward.default": lambda: [
        *(_f(2, 3, 4), _f(2, 3, 4), [4], _f(2, 3, 1), _f(2, 3, 1), _f(4), _f(4), [True, True, True])
    ],
    "permute.default": lambda: [_f(2, 3, 4), [2, 0, 1]],
    "pow.Scalar": lambda: [2.0, _f(3, 4)],
    "pow.Tensor_Scalar": lambda: [_f(3, 4), 2.5],
    "pow.Tensor_Tensor": lambda: [_f(3, 4), _f(4)],
    "prod.dim_int": lambda: [_f(3, 4), 1],
    "reflection_pad1d.default": lambda: [_f(2, 5), [2, 1]],
    "reflection_pad2d.default": lambda: [_f(1, 4, 5), [2, 1, 1, 3]],
    "reflection_pad3d.default": lambda: [_f(1, 2, 4, 4, 4), [1, 2, 1, 0, 2, 1]],
    "replication_pad2d.default": lambda: [_f(1, 4, 5), [2, 1, 1, 3]],
    "replication_pad3d.default": lambda: [_f(1, 2, 4, 4, 4), [1, 2, 1, 0, 2, 1]],
    "repeat.default": lambda: [_f(2, 3), [2, 1, 2]],
    "scalar_tensor.default": lambda: [2.5],
    "scatter.src": lambda: [_f(3, 4), 0, _indices(), _f(2, 3) * 9],
    "scatter.value": lambda: [_f(3, 4), 0, _indices(), 9.0],
    "scatter_add.default": lambda: [_f(3, 4), 0, _indices(), _f(2, 3)],
    "scatter_reduce.two": lambda: [_f(3, 4), 0, _indices(), _f(2, 3), "amax"],
    "select.int": lambda: [_f(3, 4), 1, -2],
    "select_scatter.default": lambda: [_f(3, 4), _f(3), 1, 2],
    "slice.Tensor": lambda: [_f(3, 9), 1, 1, 8, 3],
    "slice_scatter.default": lambda: [_f(3, 9), _f(3, 3), 1, 1, 8, 3],
    "sort.default": lambda: [-_f(3, 4), 1, True],
    "split_with_sizes.default": lambda: [_f(3, 6), [1, 2, 3], 1],
    "squeeze.dim": lambda: [_f(3, 1, 2), 1],
    "squeeze.dims": lambda: [_f(3, 1, 1), [1, 2]],
    "sum.dim_IntList": lambda: [_f(3, 4), [0]],
    "topk.default": lambda: [_f(3, 6), 2],
    "unsqueeze.default": lambda: [_f(3, 4), 1],
    "upsample_bilinear2d.vec": lambda: [_f(1, 2, 3, 4), [6, 7], False, None],
    "upsample_nearest2d.vec": lambda: [_f(1, 2, 3, 4), [6, 7], None],
    "var.correction": lambda: [_f(3, 4), [1]],
    "var.dim": lambda: [_f(3, 4), [1]],
    "view.default": lambda: [_f(3, 4), [2, 6]],
    "where.self": lambda: [_i(3, 4).bool(), _f(3, 4), _f(4)],
}


def _arguments(name: str) -> list[Any]:
    """Arguments of an operation, its name without ``aten.``."""
    if name in _CALLS:
        return _CALLS[name]()
    base, overload = name.split(".")
    numbers = _i(3, 4) + 1 if base.startswith("bitwise") else _f(3, 4)
    if base in _UNARY:
        return [_f(3, 4) + 1] if base == "acosh" else [numbers > 0.5] if base == "any" else [numbers]
    if overload == "Scalar":
        return [numbers, 2 if base.startswith("bitwise") else 0.5]
    return [numbers, numbers[1:2] + 1 if base.startswith("bitwise") else numbers[1:2]]


def names() -> list[str]:
    """Every operation that this PyTorch tags as one of the core set and a kernel can have."""
    operators: set[str] = set()
    for qualified in torch._C._dispatch_get_all_op_names():  # pyright: ignore[reportPrivateUsage]
        base, _, overload = qualified.removeprefix("aten::").partition(".")
        if not qualified.startswith("aten::"):
            continue
        operation = getattr(getattr(torch.ops.aten, base), overload or "default", None)
        if operation is not None and torch.Tag.core in operation.tags:
            operators.add(str(operation))
    return sorted(operators - set(NONE))


def pairs() -> list[tuple[str, str]]:
    """Operation and dtype."""
    return [(name, dtype) for name in names() for dtype in DTYPES]


def core_sample(name: str, dtype: str = "f32") -> Sample:
    """A call of ``aten.relu.default`` and its like: of the tensors among its arguments, in one dtype what is
    not an index or a mask.
    """
    kind = DTYPES[dtype]
    sample = _sample(name)
    return Sample(sample.function, tuple(_in_dtype(x, kind) for x in sample.tensors))


def _in_dtype(x: Any, dtype: Any) -> Any:
    """Fractions below 1 as numbers up to 9."""
    if not x.is_floating_point() or dtype.is_floating_point:
        return x.to(dtype) if x.is_floating_point() else x
    return x > 0.5 if dtype == torch.bool else (x * 10).to(dtype)


def _sample(name: str) -> Sample:
    short = name.removeprefix("aten.")
    base, overload = short.split(".")
    operation = getattr(getattr(torch.ops.aten, base), overload)
    if base == "_embedding_bag":
        return Sample.of(lambda *arguments: operation(*arguments)[0], _arguments(short), {})
    named = {"rounding_mode": "floor"} if overload.endswith("_mode") else {}
    return Sample.of(operation, _arguments(short), named)
