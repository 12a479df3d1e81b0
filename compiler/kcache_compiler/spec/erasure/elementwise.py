"""Shape rules of constants, elementwise operations, broadcasts and other views, reductions."""

from __future__ import annotations

from kcache_compiler.spec.erasure.reshape_groups import only_ones_differ, reshape_groups
from kcache_compiler.spec.erasure.step import Dims, Step, pinned
from kcache_compiler.spec.graph.nodes import DYNAMIC


def elementwise(step: Step) -> None:
    """All operands that are no scalars have the result's shape."""
    (result,) = step.results
    loose = frozenset(range(len(result))) if step.plain else frozenset[int]()
    for dims, own in zip(step.operands, step.loose_in, strict=True):
        if len(dims) == len(result):
            step.match(dims, result)
            loose &= own
    step.loose_out = [loose]


def constant(step: Step) -> None:
    """A splat has the sizes of its use; the sizes of anything else are part of it."""
    (result,) = step.results
    empty = any(step.solver.size(dim) == 0 for dim in result)
    if step.plain and (empty or step.entry.splat):
        step.loose_out = [frozenset(range(len(result)))]
    else:
        step.pin(result)


def constant_like(step: Step) -> None:
    """A splat; of unknown sizes, those of the operand."""
    if any(step.solver.size(dim) == DYNAMIC for dim in step.operands[0]):
        step.match(step.operands[0], step.results[0])
        return
    step.loose_out = [frozenset(range(len(step.results[0])))]


def iota(step: Step) -> None:
    """Each index is the same along all dims but one, whose size is the result's."""
    if step.plain:
        (result,) = step.results
        along: int = step.attributes["iota_dimension"].value
        step.loose_out = [frozenset(d for d in range(len(result)) if d != along)]
    else:
        pinned(step)


def identity(step: Step) -> None:
    """Results are operands."""
    if len(step.operands) != len(step.results):
        pinned(step)
        return
    for dims, result in zip(step.operands, step.results, strict=True):
        step.match(dims, result)
    step.loose_out = list(step.loose_in)


def broadcast_in_dim(step: Step) -> None:
    """Each operand dim is a result dim, or of size 1 and repeated."""
    (operand,), (result,) = step.operands, step.results
    if not step.plain or any(step.solver.size(d) == DYNAMIC for d in operand):
        _broadcast_open(step, operand, result)
        return
    loose = set(range(len(result)))
    for d, target in enumerate(step.ints("broadcast_dimensions")):
        if step.solver.size(operand[d]) == step.solver.size(result[target]):
            step.same(operand[d], result[target])
            if d not in step.loose_in[0] and step.solver.size(operand[d]) != 1:
                loose.discard(target)
    step.loose_out = [frozenset(loose)]


def _broadcast_open(step: Step, operand: Dims, result: Dims) -> None:
    """A dim of unknown size may be 1 and repeated: it is not tied to the result's."""
    for d, target in enumerate(step.ints("broadcast_dimensions")):
        if DYNAMIC not in (size := (step.solver.size(operand[d]), step.solver.size(result[target]))) and (
            size[0] == size[1]
        ):
            step.same(operand[d], result[target])


def broadcast(step: Step) -> None:
    """New dims in front."""
    (operand,), (result,) = step.operands, step.results
    new = len(result) - len(operand)
    step.match(operand, result[new:])
    if step.plain:
        step.loose_out = [frozenset([*range(new), *(d + new for d in step.loose_in[0])])]


def implicit_broadcast(step: Step) -> None:
    """CHLO: trailing dims agree, or are 1 and repeated; ``broadcast_dimensions`` place the smaller one."""
    (result,) = step.results
    largest = max((len(dims) for dims in step.operands), default=0)
    where = step.ints("broadcast_dimensions")
    loose = set(range(len(result))) if step.plain else set[int]()
    for dims, own in zip(step.operands, step.loose_in, strict=True):
        targets = where if where and len(dims) < largest else range(len(result) - len(dims), len(result))
        if len(targets) != len(dims) or not set(targets) <= set(range(len(result))):
            return  # what reads the program refuses it, by name
        for d, target in enumerate(targets):
            if step.solver.size(dims[d]) == step.solver.size(result[target]) != DYNAMIC:
                step.same(dims[d], result[target])
                if d not in own and step.solver.size(dims[d]) != 1:
                    loose.discard(target)
            elif step.solver.size(dims[d]) != 1:
                step.pin(dims, result)
    step.loose_out = [frozenset(loose)]


def transpose(step: Step) -> None:
    """Dims change places."""
    (operand,), (result,) = step.operands, step.results
    permutation = step.ints("permutation")
    step.match(tuple(operand[p] for p in permutation), result)
    if step.plain:
        step.loose_out = [frozenset(i for i, p in enumerate(permutation) if p in step.loose_in[0])]


def reshape(step: Step) -> None:
    """Runs of dims with equal products: one dim for one, or a product."""
    (operand,), (result,) = step.operands, step.results
    solver = step.solver
    sizes = [[solver.size(d) for d in dims] for dims in (operand, result)]
    open_ = DYNAMIC in sizes[0] or DYNAMIC in sizes[1]
    # A product with an empty axis in it tells nothing of the others.
    empty = 0 in sizes[0] and not only_ones_differ(sizes[0], sizes[1])
    if not step.plain or open_ or empty:
        step.pin(operand, result)
        return
    loose = {d for d in range(len(result)) if sizes[1][d] == 1}
    for ins, outs in reshape_groups(sizes[0], sizes[1]):
        if len(ins) == 1 and len(outs) == 1:
            step.same(operand[ins[0]], result[outs[0]])
        else:
            solver.product([operand[d] for d in ins], [result[d] for d in outs])
        if all(d in step.loose_in[0] for d in ins):
            loose |= set(outs)
    step.loose_out = [frozenset(loose)]


def reduce(step: Step) -> None:
    """Kept dims are the result's, all inputs have one shape; initial values are scalars."""
    inputs = step.operands[: len(step.operands) // 2]
    reduced = set(step.ints("dimensions"))
    kept = [d for d in range(len(inputs[0])) if d not in reduced]
    loose = set(range(len(kept))) if step.plain else set[int]()
    for dims, own in zip(inputs, step.loose_in, strict=False):
        step.match(inputs[0], dims)
        loose &= {i for i, d in enumerate(kept) if d in own}
    for result in step.results:
        step.match(tuple(inputs[0][d] for d in kept), result)
    step.loose_out = [frozenset(loose)] * len(step.results)


def bitcast_convert(step: Step) -> None:
    """Dims agree; a dim that holds the parts of one element keeps its size."""
    (operand,), (result,) = step.operands, step.results
    common = min(len(operand), len(result))
    step.match(operand[:common], result[:common])
    step.pin(operand[common:], result[common:])
    if step.plain and len(operand) == len(result):
        step.loose_out = list(step.loose_in)
