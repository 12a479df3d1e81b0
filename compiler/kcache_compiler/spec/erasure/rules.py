"""The shape rule of each operation: which dims of its operands and results are equal.

A rule is sound if it constrains no dims that may differ; an incomplete rule pins sizes, or keeps symbols
apart. An operation without a rule keeps its sizes (``pinned``). A result is *uniform* along a dim if its
elements are equal along it by construction (broadcasts, splat constants). Uniform dims belong to each use,
not to the value: two users of one broadcast constrain each other no more than users of two broadcasts.
"""

from __future__ import annotations

from kcache_compiler.spec.erasure.contractions import (
    batch_norm,
    cholesky,
    convolution,
    dot,
    dot_general,
    einsum,
    fft,
    reduce_window,
    select_and_scatter,
    triangular_solve,
)
from kcache_compiler.spec.erasure.elementwise import (
    bitcast_convert,
    broadcast,
    broadcast_in_dim,
    constant,
    constant_like,
    elementwise,
    identity,
    implicit_broadcast,
    iota,
    reduce,
    reshape,
    transpose,
)
from kcache_compiler.spec.erasure.indexing import (
    concatenate,
    dynamic_slice,
    dynamic_update_slice,
    gather,
    pad,
    reverse,
    scatter,
    slice,
)
from kcache_compiler.spec.erasure.operation_dims import OperationDims, Rule, pinned
from kcache_compiler.spec.graph.native import array, integer, string
from kcache_compiler.spec.graph.operations import ASSERTED, ELEMENTWISE, IDENTITY_CALLS, native_chlo


def sort(op: OperationDims) -> None:
    """Constrain all operands and results to one shape."""
    for dims in (*op.operands, *op.results):
        op.match(op.operands[0], dims)


def map_(op: OperationDims) -> None:
    """Constrain all operands and results to one shape."""
    sort(op)


def while_(op: OperationDims) -> None:
    """Constrain each carried value to one shape."""
    condition, body = op.blocks
    for i, result in enumerate(op.results):
        for dims in (op.operands[i], condition[1][i], body[1][i], body[2][i]):
            op.match(result, dims)


def branches(op: OperationDims) -> None:
    """Constrain what each branch returns to the shapes of the results."""
    for _, _, returned in op.blocks:
        for dims, result in zip(returned, op.results, strict=True):
            op.match(dims, result)


def rng_bit_generator(op: OperationDims) -> None:
    """Pin the state and the output, whose size is how many random numbers are drawn."""
    op.pin(op.operands[0], *op.results)


def get_dimension_size(op: OperationDims) -> None:
    """Pin the dim: its size is a value of the program."""
    dimension: int = integer(op.attributes, "dimension")
    op.pin((op.operands[0][dimension],))


def set_dimension_size(op: OperationDims) -> None:
    """Constrain all dims but the one whose size is set, which is pinned."""
    dimension: int = integer(op.attributes, "dimension")
    for d, (a, b) in enumerate(zip(op.operands[0], op.results[0], strict=True)):
        if d == dimension:
            op.pin((a, b))
        else:
            op.same(a, b)


def custom_call(op: OperationDims) -> None:
    """Apply the rule of the operation that a call stands for; pin the dims of other calls."""
    target: str = string(op.attributes, "call_target_name")
    if native_chlo(target) and len(op.results) == 1:
        elementwise(op)
    elif target in IDENTITY_CALLS:
        identity(op)
    elif target == ASSERTED and len(op.results) == 1:
        op.match(op.operands[0], op.results[0])
    else:
        pinned(op)


def linalg_generic(op: OperationDims) -> None:
    """Constrain dims that one loop indexes; pin dims that are indexed by an expression."""
    loops: dict[int, int] = {}
    shapes = [*op.operands]
    for dims, indexing_map in zip(shapes, array(op.attributes, "indexing_maps"), strict=False):
        for dim, expression in zip(dims, _loops(str(indexing_map)), strict=True):
            if expression is None:
                op.pin((dim,))
            else:
                op.same(loops.setdefault(expression, dim), dim)
    count = len(op.results)
    for init, result in zip(shapes[len(shapes) - count :], op.results, strict=True):
        op.match(init, result)


def _loops(text: str) -> list[int | None]:
    """Return the loop of each result of an affine map; None of a result that is no single loop."""
    results = (
        text[text.index("->") + 2 :].strip().removesuffix(">").strip().removeprefix("(").removesuffix(")")
    )
    parts = [part.strip() for part in results.split(",") if part.strip()]
    return [int(p[1:]) if p[:1] == "d" and p[1:].isdigit() else None for p in parts]


def linalg_empty(op: OperationDims) -> None:
    """Constrain nothing: the users determine the sizes."""


RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    "stablehlo.compare": elementwise,
    "stablehlo.constant": constant,
    "arith.constant": constant,
    "chlo.constant": constant,
    "chlo.constant_like": constant_like,
    "stablehlo.composite": elementwise,
    "stablehlo.bitcast_convert": bitcast_convert,
    "stablehlo.iota": iota,
    "stablehlo.broadcast_in_dim": broadcast_in_dim,
    "stablehlo.broadcast": broadcast,
    "stablehlo.transpose": transpose,
    "stablehlo.reshape": reshape,
    "stablehlo.reduce": reduce,
    "stablehlo.dot_general": dot_general,
    "stablehlo.dot": dot,
    "stablehlo.einsum": einsum,
    "stablehlo.unary_einsum": einsum,
    "stablehlo.concatenate": concatenate,
    "stablehlo.slice": slice,
    "stablehlo.dynamic_slice": dynamic_slice,
    "stablehlo.dynamic_update_slice": dynamic_update_slice,
    "stablehlo.pad": pad,
    "stablehlo.reverse": reverse,
    "stablehlo.gather": gather,
    "stablehlo.scatter": scatter,
    "stablehlo.convolution": convolution,
    "stablehlo.reduce_window": reduce_window,
    "stablehlo.select_and_scatter": select_and_scatter,
    "stablehlo.sort": sort,
    "stablehlo.map": map_,
    "stablehlo.while": while_,
    "stablehlo.case": branches,
    "stablehlo.if": branches,
    "stablehlo.cholesky": cholesky,
    "stablehlo.triangular_solve": triangular_solve,
    "stablehlo.fft": fft,
    "stablehlo.batch_norm_inference": batch_norm,
    "stablehlo.batch_norm_training": batch_norm,
    "stablehlo.batch_norm_grad": batch_norm,
    "stablehlo.rng": pinned,
    "stablehlo.rng_bit_generator": rng_bit_generator,
    "stablehlo.get_dimension_size": get_dimension_size,
    "stablehlo.set_dimension_size": set_dimension_size,
    "stablehlo.optimization_barrier": identity,
    "stablehlo.custom_call": custom_call,
    "linalg.generic": linalg_generic,
    "tensor.empty": linalg_empty,
}


def rule_of(name: str) -> Rule:
    """Return the rule of an operation, by native name."""
    if name.startswith("chlo.broadcast_"):
        return implicit_broadcast
    return RULES.get(name, pinned)
