"""Decompositions compared with eager mode: their strides, aliases, and operands that they do not take."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, cast

torch: Any = import_module("torch")

#: Operators whose decompositions give other strides than their kernels.
_OTHER_STRIDES = (
    *("linalg_qr", "linalg_solve", "linalg_solve_ex", "_linalg_solve_ex", "triangular_solve"),
    *("kthvalue", "median", "mode", "nanmedian", "slice_scatter", "topk"),
    *("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
    *("upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d"),
    *("upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d"),
    *("adaptive_max_pool2d", "channel_shuffle", "logcumsumexp", "baddbmm"),
)
#: Operators without decompositions here: those give another memory format than that of their operands, or
#: copies where the operators are views.
WHOLE = ("max_unpool2d", "max_unpool3d", "diagonal", "unfold")
#: Operators whose results share the storage of their operand, which their schemas do not say.
_UNSAFE_VIEWS = ("_unsafe_view", "unsafe_split", "unsafe_split_with_sizes")
#: Copies that are no copies of views.
_PLAIN_COPIES = ("_to_copy", "lift_fresh_copy", "_conj_copy", "_neg_view_copy", "alias_copy", "detach_copy")


def like_eager(operator: Any, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition whose results have the strides and aliases that ``operator`` gives.

    What takes care of them is made in the first call: a graph has few of the operators of a table.
    """
    function: Callable[..., Any] | None = None

    def decomposed(*args: Any, **kwargs: Any) -> Any:
        nonlocal function
        if function is None:
            function = whole_where_it_fails(keep_strides(operator, keep_copies(operator, decomposition)))
        return function(*args, **kwargs)

    return decomposed


def keep_strides(operator: Any, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition whose results have the strides that ``operator`` gives."""
    name = operator._schema.name.partition("::")[2]
    if name not in _OTHER_STRIDES and (not name.endswith("_copy") or name in _PLAIN_COPIES):
        return decomposition
    composite: Any = torch._C.DispatchKey.CompositeImplicitAutograd
    example: Any = _EXAMPLES.get(name, operator)
    if example is operator and torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), composite):
        # Only exports decompose such an operator by a table, which has those that it calls.
        return functools.partial(operator._op_dk, composite)

    @functools.wraps(decomposition)
    def with_strides(*args: Any, **kwargs: Any) -> Any:
        proxies: Any = import_module("torch.fx.experimental.proxy_tensor")
        results = decomposition(*args, **kwargs)
        if results is NotImplemented:
            return results
        with proxies.disable_proxy_modes_tracing():
            examples = example(*args, **kwargs)
        if isinstance(results, torch.Tensor):
            return with_strides_of(results, examples)
        if isinstance(examples, torch.Tensor):
            examples = (examples, *results[1:])
        pairs = zip(cast("Sequence[Any]", results), examples, strict=True)
        restrided = [with_strides_of(result, example) for result, example in pairs]
        return restrided if isinstance(results, list) else tuple(restrided)

    return with_strides


def _solved(matrix: Any, right: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    """The result of ``linalg_solve``, which is composed of an operator and its check for errors."""
    del check_errors
    return torch.ops.aten._linalg_solve_ex(matrix, right, left=left)[0]


def _shuffled(x: Any, groups: int) -> Any:
    """The memory format that ``channel_shuffle`` keeps; of fake tensors PyTorch's is always contiguous."""
    del groups
    memory_format = import_module("torch._prims_common").suggest_memory_format(x)
    return torch.empty_like(x, memory_format=memory_format)


#: Operator -> what gives results with its strides, where that is not the operator.
_EXAMPLES: dict[str, Callable[..., Any]] = {
    "linalg_solve": _solved,
    "linalg_solve_ex": _solved,
    "channel_shuffle": _shuffled,
}


def keep_copies(operator: Any, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition whose results are no views of operands, unless those of ``operator`` are."""
    returns = operator._schema.returns
    name = operator._schema.name.partition("::")[2]
    if name in _UNSAFE_VIEWS or any(each.alias_info is not None for each in returns):
        return decomposition
    pytree: Any = import_module("torch.utils._pytree")

    @functools.wraps(decomposition)
    def with_copies(*args: Any, **kwargs: Any) -> Any:
        operands = [each for each in pytree.tree_leaves(args) if _has_storage(each)]

        def copied(result: Any) -> Any:
            aliases = _has_storage(result) and any(
                torch._C._is_alias_of(result, operand) for operand in operands
            )
            return result.clone() if aliases else result

        results = decomposition(*args, **kwargs)
        return results if results is NotImplemented else pytree.tree_map_only(torch.Tensor, copied, results)

    return with_copies


def whole_where_it_fails(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition that leaves the operator whole where it does not take the operands."""

    @functools.wraps(decomposition)
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        try:
            return decomposition(*args, **kwargs)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return NotImplemented

    return decomposed


def _has_storage(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def with_strides_of(result: Any, example: Any) -> Any:
    """A tensor with the strides of another of its shape, if those are a permutation of row-major ones."""
    if not isinstance(result, torch.Tensor) or result.stride() == example.stride():
        return result
    order = sorted(range(example.dim()), key=lambda axis: (-example.stride(axis), axis))
    inverse = sorted(range(example.dim()), key=order.__getitem__)
    return result.permute(order).clone(memory_format=torch.contiguous_format).permute(inverse)
