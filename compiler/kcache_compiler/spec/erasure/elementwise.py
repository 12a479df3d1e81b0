"""Shape rules of constants, elementwise operations, broadcasts and other views, and reductions."""

from __future__ import annotations

from kcache_compiler.spec.erasure.operation_dims import Dims, OperationDims, pinned
from kcache_compiler.spec.graph.native import integer
from kcache_compiler.spec.graph.nodes import DYNAMIC
from kcache_compiler.spec.graph.reshape import only_ones_differ, reshape_groups


def elementwise(op: OperationDims) -> None:
    """Constrain operands that are no scalars to the result."""
    (result,) = op.results
    uniform = frozenset(range(len(result))) if op.plain else frozenset[int]()
    for dims, own in zip(op.operands, op.uniform_in, strict=True):
        if len(dims) == len(result):
            op.match(dims, result)
            uniform &= own
    op.uniform_out = [uniform]


def constant(op: OperationDims) -> None:
    """A splat is uniform along all dims; the sizes of other constants are pinned."""
    (result,) = op.results
    empty = any(op.size(dim) == 0 for dim in result)
    if op.plain and (empty or op.entry.splat):
        op.uniform_out = [frozenset(range(len(result)))]
    else:
        op.pin(result)


def constant_like(op: OperationDims) -> None:
    """A splat; constrain unknown sizes to the operand."""
    if any(op.size(dim) == DYNAMIC for dim in op.operands[0]):
        op.match(op.operands[0], op.results[0])
        return
    op.uniform_out = [frozenset(range(len(op.results[0])))]


def iota(op: OperationDims) -> None:
    """An iota is uniform along all dims but one."""
    if op.plain:
        (result,) = op.results
        axis: int = integer(op.attributes, "iota_dimension")
        op.uniform_out = [frozenset(d for d in range(len(result)) if d != axis)]
    else:
        pinned(op)


def identity(op: OperationDims) -> None:
    """Constrain results to operands."""
    if len(op.operands) != len(op.results):
        pinned(op)
        return
    for dims, result in zip(op.operands, op.results, strict=True):
        op.match(dims, result)
    op.uniform_out = list(op.uniform_in)


def broadcast_in_dim(op: OperationDims) -> None:
    """Constrain operand dims to result dims; those of size 1 are expanded."""
    (operand,), (result,) = op.operands, op.results
    if not op.plain or any(op.size(d) == DYNAMIC for d in operand):
        _broadcast_unknown(op, operand, result)
        return
    uniform = set(range(len(result)))
    for d, target in enumerate(op.ints("broadcast_dimensions")):
        if op.size(operand[d]) == op.size(result[target]):
            op.same(operand[d], result[target])
            if d not in op.uniform_in[0] and op.size(operand[d]) != 1:
                uniform.discard(target)
    op.uniform_out = [frozenset(uniform)]


def _broadcast_unknown(op: OperationDims, operand: Dims, result: Dims) -> None:
    """A dim of unknown size may be expanded: it is not constrained to the result's."""
    for d, target in enumerate(op.ints("broadcast_dimensions")):
        if DYNAMIC not in (size := (op.size(operand[d]), op.size(result[target]))) and (size[0] == size[1]):
            op.same(operand[d], result[target])


def broadcast(op: OperationDims) -> None:
    """Constrain trailing dims; leading dims are new."""
    (operand,), (result,) = op.operands, op.results
    new = len(result) - len(operand)
    op.match(operand, result[new:])
    if op.plain:
        op.uniform_out = [frozenset([*range(new), *(d + new for d in op.uniform_in[0])])]


def implicit_broadcast(op: OperationDims) -> None:
    """Constrain dims of CHLO's implicit broadcasts, which ``broadcast_dimensions`` may place."""
    (result,) = op.results
    largest = max((len(dims) for dims in op.operands), default=0)
    stated = op.ints("broadcast_dimensions")
    uniform = set(range(len(result))) if op.plain else set[int]()
    for dims, own in zip(op.operands, op.uniform_in, strict=True):
        targets = stated if stated and len(dims) < largest else range(len(result) - len(dims), len(result))
        if len(targets) != len(dims) or not set(targets) <= set(range(len(result))):
            return  # the importer rejects it
        for d, target in enumerate(targets):
            if op.size(dims[d]) == op.size(result[target]) != DYNAMIC:
                op.same(dims[d], result[target])
                if d not in own and op.size(dims[d]) != 1:
                    uniform.discard(target)
            elif op.size(dims[d]) != 1:
                op.pin(dims, result)
    op.uniform_out = [frozenset(uniform)]


def transpose(op: OperationDims) -> None:
    """Constrain permuted dims."""
    (operand,), (result,) = op.operands, op.results
    permutation = op.ints("permutation")
    op.match(tuple(operand[p] for p in permutation), result)
    if op.plain:
        op.uniform_out = [frozenset(i for i, p in enumerate(permutation) if p in op.uniform_in[0])]


def reshape(op: OperationDims) -> None:
    """Constrain groups of dims with equal products: pairs of dims, or a product equation."""
    (operand,), (result,) = op.operands, op.results
    solver = op.solver
    sizes = [[solver.size(d) for d in dims] for dims in (operand, result)]
    unknown = DYNAMIC in sizes[0] or DYNAMIC in sizes[1]
    # A product with an empty axis says nothing about the other axes.
    empty = 0 in sizes[0] and not only_ones_differ(sizes[0], sizes[1])
    if not op.plain or unknown or empty:
        op.pin(operand, result)
        return
    uniform = {d for d in range(len(result)) if sizes[1][d] == 1}
    for ins, outs in reshape_groups(sizes[0], sizes[1]):
        if len(ins) == 1 and len(outs) == 1:
            op.same(operand[ins[0]], result[outs[0]])
        else:
            solver.product([operand[d] for d in ins], [result[d] for d in outs])
        if all(d in op.uniform_in[0] for d in ins):
            uniform |= set(outs)
    op.uniform_out = [frozenset(uniform)]


def reduce(op: OperationDims) -> None:
    """Constrain inputs to one shape, and kept dims to the results."""
    inputs = op.operands[: len(op.operands) // 2]
    reduced = set(op.ints("dimensions"))
    kept = [d for d in range(len(inputs[0])) if d not in reduced]
    uniform = set(range(len(kept))) if op.plain else set[int]()
    for dims, own in zip(inputs, op.uniform_in, strict=False):
        op.match(inputs[0], dims)
        uniform &= {i for i, d in enumerate(kept) if d in own}
    for result in op.results:
        op.match(tuple(inputs[0][d] for d in kept), result)
    op.uniform_out = [frozenset(uniform)] * len(op.results)


def bitcast_convert(op: OperationDims) -> None:
    """Constrain common dims; pin a dim that holds the parts of one element."""
    (operand,), (result,) = op.operands, op.results
    common = min(len(operand), len(result))
    op.match(operand[:common], result[:common])
    op.pin(operand[common:], result[common:])
    if op.plain and len(operand) == len(result):
        op.uniform_out = list(op.uniform_in)
