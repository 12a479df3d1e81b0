"""Rewrites of an ATen graph, in place, that keep what it computes."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from kcache_grpc.integrations.torch.dynamo.lowering.partition import is_view

torch: Any = import_module("torch")
aten: Any = torch.ops.aten
prims: Any = torch.ops.prims

#: Operators that take a scalar where another overload takes a tensor, and promote it in the same way.
_WITH_TENSORS = {
    aten.add.Tensor: aten.add.Tensor,
    aten.add.Scalar: aten.add.Tensor,
    aten.sub.Tensor: aten.sub.Tensor,
    aten.sub.Scalar: aten.sub.Tensor,
    aten.mul.Tensor: aten.mul.Tensor,
    aten.mul.Scalar: aten.mul.Tensor,
    aten.div.Tensor: aten.div.Tensor,
    aten.div.Scalar: aten.div.Tensor,
    aten.lt.Scalar: aten.lt.Tensor,
    aten.le.Scalar: aten.le.Tensor,
    aten.gt.Scalar: aten.gt.Tensor,
    aten.ge.Scalar: aten.ge.Tensor,
    aten.eq.Scalar: aten.eq.Tensor,
    aten.ne.Scalar: aten.ne.Tensor,
    aten.remainder.Scalar: aten.remainder.Tensor,
    aten.fmod.Scalar: aten.fmod.Tensor,
}

_PRIMS_VIEWS = {
    prims.squeeze.default: aten.squeeze.dims,
    prims.transpose.default: aten.permute.default,
    prims.view_of.default: aten.alias.default,
}
#: Ends of slices that mean the end of an axis.
_UNBOUNDED = (1 << 63) - 1


def drop_empty_operands(graph: Any) -> None:
    """Drop the operands of shape ``[0]`` that ``aten.cat`` ignores among those of another rank."""
    for node in graph.nodes:
        if node.op != "call_function" or node.target is not aten.cat.default:
            continue
        operands = list(node.args[0])
        ranks = [operand.meta["val"].dim() for operand in operands]
        kept = [
            operand
            for operand, rank in zip(operands, ranks, strict=True)
            if not (rank == 1 and max(ranks) > 1 and operand.meta["val"].shape[0] == 0)
        ]
        if len(kept) < len(operands):
            node.args = (kept, *node.args[1:])


#: Operators that create tensors -> arguments that are values of their elements; others are sizes of them.
_CREATING = {aten.arange.start: (0,), aten.arange.start_step: (0, 2), aten.full.default: (1,)}


def views_of_aten(graph: Any) -> None:
    """Write views of ``prims`` as those of ``aten``: autograd knows of the latter what they are views of."""
    for node in graph.nodes:
        target = _PRIMS_VIEWS.get(node.target) if node.op == "call_function" else None
        if target is not None:
            node.target = target


def diagonals_as_slices(graph: Any) -> None:
    """Write ``aten.diagonal`` of static sizes as a slice with a step, where only computations read it.

    Where it is a result, or another view is made of it, it stays: it has to alias its operand.
    """
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is aten.diagonal.default and _is_only_read(node):
            _write_slice(graph, node)


def _is_only_read(node: Any) -> bool:
    shape = node.args[0].meta["val"].shape
    computes = all(user.op == "call_function" and not is_view(user) for user in node.users)
    return computes and all(isinstance(size, int) for size in shape)


def _write_slice(graph: Any, node: Any) -> None:
    """Of the matrices as rows of their elements: neighbors on a diagonal are a row and an element apart."""
    matrices = node.args[0]
    offset, *dims = _argument_values(node, ("offset", "dim1", "dim2"))
    rank = matrices.meta["val"].dim()
    rows, columns = (dim % rank for dim in dims)
    *batch, height, width = order = [*(set(range(rank)) - {rows, columns}), rows, columns]
    shape = matrices.meta["val"].shape
    step = shape[width] + 1
    count = node.meta["val"].shape[-1]
    start = (offset if offset >= 0 else -offset * shape[width]) if count else 0
    elements = [*(shape[axis] for axis in batch), shape[height] * shape[width]]
    calls = (
        (aten.permute.default, (order,)),
        (aten.reshape.default, (elements,)),
        (aten.slice.Tensor, (len(batch), start, start + count * step - step + 1 if count else 0, step)),
    )
    value = matrices
    with graph.inserting_before(node):
        for target, arguments in calls:
            operand = value.meta["val"]
            value = graph.call_function(target, (value, *arguments))
            value.meta["val"] = target(operand, *arguments)
    node.replace_all_uses_with(value)
    graph.erase_node(node)


def bound_slices(graph: Any) -> None:
    """Bound the ends of ``aten.slice_scatter``: the gradient of ``x[1:]`` has 2^63 - 1 as its end.

    The compiler would count the indices up to there.
    """
    for node in graph.nodes:
        if node.op != "call_function" or node.target is not aten.slice_scatter.default:
            continue
        shape = node.args[0].meta["val"].shape
        dim, start, end, step = _argument_values(node, ("dim", "start", "end", "step"))
        size = shape[dim] if shape else 0
        start = 0 if start is None else start
        if isinstance(size, int) and all(bound is None or isinstance(bound, int) for bound in (start, end)):
            start, end, _ = slice(start, end).indices(size)
            end = max(start, end)
        elif isinstance(end, int) and end >= _UNBOUNDED:
            end = None
        node.args, node.kwargs = (*node.args[:2], dim, start, end, step), {}


def _argument_values(node: Any, names: Sequence[str]) -> list[Any]:
    """Arguments of a call by name, defaults included."""
    values: dict[str, Any] = {}
    for position, parameter in enumerate(node.target._schema.arguments):
        value = node.args[position] if position < len(node.args) else parameter.default_value
        values[parameter.name] = node.kwargs.get(parameter.name, value)
    return [values[name] for name in names]


def sizes_as_tensors(graph: Any, nodes: Sequence[Any]) -> list[Any]:
    """Make the symbolic sizes that ``nodes`` compute with operands: tensors of rank 0.

    A kernel for many sizes has no other way to get them. Returns the nodes that make the tensors, and those
    of ``nodes`` that create a tensor of such values.
    """
    tensors = [node for node in nodes if _creates_from_sizes(node)]
    for node in nodes:
        if node.op != "call_function" or node.target not in _WITH_TENSORS or len(node.args) < 2:
            continue
        scalar = node.args[1]
        value = getattr(scalar, "meta", {}).get("val")
        if not isinstance(value, (torch.SymInt, torch.SymFloat)) or len(node.args) > 2 or node.kwargs:
            continue
        dtype = _dtype_of_scalar(value, node.args[0].meta["val"])
        with graph.inserting_before(node):
            tensor = graph.call_function(aten.scalar_tensor.default, (scalar,), {"dtype": dtype})
        tensor.meta["val"] = node.args[0].meta["val"].new_empty((), dtype=dtype)
        node.target = _WITH_TENSORS[node.target]
        node.args = (node.args[0], tensor)
        tensors.append(tensor)
    return tensors


def _dtype_of_scalar(value: Any, operand: Any) -> Any:
    """The dtype of a tensor of rank 0 that promotes with ``operand`` as a number of Python does.

    Such a tensor counts as much as an operand that is of rank 0, too: it has that operand's dtype then.
    """
    floating = operand.dtype.is_floating_point or operand.dtype.is_complex
    if isinstance(value, torch.SymInt):
        return torch.int64 if floating or operand.dim() or operand.dtype is torch.bool else operand.dtype
    if not floating:
        return torch.get_default_dtype()
    return torch.float64 if operand.dim() else operand.dtype


def _creates_from_sizes(node: Any) -> bool:
    positions = _CREATING.get(node.target, ()) if node.op == "call_function" else ()
    arguments = [node.args[position] for position in positions if position < len(node.args)]
    return any(
        isinstance(getattr(argument, "meta", {}).get("val"), (torch.SymInt, torch.SymFloat))
        for argument in arguments
    )


def sizes_of_inputs(graph: Any) -> None:
    """Take sizes of results that are also sizes of inputs from the inputs, so that they need no kernel."""
    known: dict[Any, tuple[Any, int | None]] = {}
    for node in graph.nodes:
        if node.op != "placeholder":
            break
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            known.setdefault(value.node.expr, (node, None))
        elif isinstance(value, torch.Tensor):
            for axis, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt):
                    known.setdefault(size.node.expr, (node, axis))
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target is not aten.sym_size.int:
            continue
        value = node.meta.get("val")
        source, axis = (
            known.get(value.node.expr, (None, None)) if isinstance(value, torch.SymInt) else (None, None)
        )
        if source is not None and axis is None:
            node.replace_all_uses_with(source)
            graph.erase_node(node)
        elif source is not None and source is not node.args[0]:
            node.args = (source, axis)
