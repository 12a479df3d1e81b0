"""One shape rule an operation: which dims of its operands and results are one size.

A rule may say less than holds, which pins sizes or keeps symbols apart, never more. What no rule mentions
keeps its sizes (``pinned``). ``loose`` dims of a result are those along which it is the same value by
construction (broadcasts, splat constants): they are of the use, not of the value, so that a broadcast that
two users share ties their sizes no more than two broadcasts would.
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
from kcache_compiler.spec.erasure.step import Rule, Step, pinned
from kcache_compiler.spec.graph.operations import ASSERTED, ELEMENTWISE, IDENTITY_CALLS, native_chlo


def sort(step: Step) -> None:
    """All operands and results have one shape."""
    for dims in (*step.operands, *step.results):
        step.match(step.operands[0], dims)


def map_(step: Step) -> None:
    """All operands and results have one shape."""
    sort(step)


def while_(step: Step) -> None:
    """What is carried keeps its shape."""
    condition, body = step.blocks
    for i, result in enumerate(step.results):
        for dims in (step.operands[i], condition[1][i], body[1][i], body[2][i]):
            step.match(result, dims)


def branches(step: Step) -> None:
    """Each branch returns what the results are."""
    for _, _, returned in step.blocks:
        for dims, result in zip(returned, step.results, strict=True):
            step.match(dims, result)


def rng_bit_generator(step: Step) -> None:
    """The state keeps its shape; the size of the output says how many numbers are drawn."""
    step.pin(step.operands[0], *step.results)


def get_dimension_size(step: Step) -> None:
    """The size that it gives is part of the program."""
    dimension: int = step.attributes["dimension"].value
    step.pin((step.operands[0][dimension],))


def set_dimension_size(step: Step) -> None:
    """Dims agree but the one whose size is set."""
    dimension: int = step.attributes["dimension"].value
    for d, (a, b) in enumerate(zip(step.operands[0], step.results[0], strict=True)):
        if d == dimension:
            step.pin((a, b))
        else:
            step.same(a, b)


def custom_call(step: Step) -> None:
    """Calls that are operations follow their rules; of others nothing is known."""
    target: str = step.attributes["call_target_name"].value
    if native_chlo(target) and len(step.results) == 1:
        elementwise(step)
    elif target in IDENTITY_CALLS:
        identity(step)
    elif target == ASSERTED and len(step.results) == 1:
        step.match(step.operands[0], step.results[0])
    else:
        pinned(step)


def linalg_generic(step: Step) -> None:
    """Dims that a map reads by one loop are that loop's size; the others keep theirs."""
    loops: dict[int, int] = {}
    maps = step.attributes["indexing_maps"]
    shapes = [*step.operands]
    for position in range(len(maps)):
        dims = shapes[position]
        for dim, expression in zip(dims, _loops(str(maps[position])), strict=True):
            if expression is None:
                step.pin((dim,))
            else:
                step.same(loops.setdefault(expression, dim), dim)
    count = len(step.results)
    for init, result in zip(shapes[len(shapes) - count :], step.results, strict=True):
        step.match(init, result)


def _loops(text: str) -> list[int | None]:
    """Return the loop that each result of an affine map is, None where it is something else."""
    inside = (
        text[text.index("->") + 2 :].strip().removesuffix(">").strip().removeprefix("(").removesuffix(")")
    )
    parts = [part.strip() for part in inside.split(",") if part.strip()]
    return [int(p[1:]) if p[:1] == "d" and p[1:].isdigit() else None for p in parts]


def linalg_empty(step: Step) -> None:
    """Its sizes are those of its use."""


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
