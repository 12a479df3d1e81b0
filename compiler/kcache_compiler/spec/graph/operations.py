"""Classes of StableHLO and CHLO operations: tables for the importers and renderers.

Node names are StableHLO's without the prefix; operations of other dialects keep theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kcache_compiler.frontends.stablehlo.legalize_chlo import NATIVE_CHLO
from kcache_compiler.spec.graph.nodes import Node, ValueType

_UNARY = [
    "abs",
    "cbrt",
    "ceil",
    "convert",
    "cosine",
    "count_leading_zeros",
    "exponential",
    "exponential_minus_one",
    "floor",
    "imag",
    "is_finite",
    "log",
    "log_plus_one",
    "logistic",
    "negate",
    "not",
    "popcnt",
    "real",
    "reduce_precision",
    "round_nearest_afz",
    "round_nearest_even",
    "rsqrt",
    "sign",
    "sine",
    "sqrt",
    "tan",
    "tanh",
]
_BINARY = [
    "add",
    "and",
    "atan2",
    "compare",
    "complex",
    "divide",
    "maximum",
    "minimum",
    "multiply",
    "or",
    "power",
    "remainder",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "subtract",
    "xor",
]
_TERNARY = ["select", "clamp"]

#: Node names of elementwise operations, by native name.
ELEMENTWISE: dict[str, str] = {
    **{f"stablehlo.{op}": op for op in (*_UNARY, *_BINARY, *_TERNARY)},
    **{f"chlo.{op}": f"chlo.{op}" for op in NATIVE_CHLO},
    "chlo.tan": "tan",
}

#: Combiners by which a reduction is named, without a region.
COMBINERS = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})

#: Operations with side effects, or that need other devices, and the reason why they are rejected.
SIDE_EFFECTS: dict[str, str] = {
    **dict.fromkeys(
        ("stablehlo.infeed", "stablehlo.outfeed", "stablehlo.send", "stablehlo.recv"),
        "it exchanges data with the host while the kernel runs",
    ),
    **dict.fromkeys(
        ("stablehlo.after_all", "stablehlo.create_token"),
        "it orders side effects, which kernels do not have",
    ),
    **dict.fromkeys(
        (
            "stablehlo.all_gather",
            "stablehlo.all_reduce",
            "stablehlo.all_to_all",
            "stablehlo.collective_broadcast",
            "stablehlo.collective_permute",
            "stablehlo.collective_reduce",
            "stablehlo.reduce_scatter",
            "stablehlo.partition_id",
            "stablehlo.replica_id",
            "stablehlo.async_start",
            "stablehlo.async_done",
        ),
        "it communicates between devices; a kernel runs on one",
    ),
}

#: Custom calls that annotate a value without changing it.
IDENTITY_CALLS = frozenset({"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"})

#: Target of a custom call that returns its first operand if the second, a condition on sizes, is true.
ASSERTED = "kcache.asserted"

TERMINATORS = frozenset(
    {
        "func.return",
        "stablehlo.return",
        "shape.assuming_yield",
        "tensor.yield",
        "linalg.yield",
        "scf.yield",
        "scf.condition",
    }
)


def terminator_of(op: str, region: int) -> str:
    """Return the terminator of a region, by the name of the node."""
    if op == "scf.while" and region == 0:
        return "scf.condition"
    dialect = op.partition(".")[0] if "." in op else "stablehlo"
    return {
        "tensor": "tensor.yield",
        "linalg": "linalg.yield",
        "scf": "scf.yield",
        "shape": "shape.assuming_yield",
    }.get(dialect, "stablehlo.return")


def native_chlo(target: str) -> str | None:
    """Return the node name of a CHLO op for a call or composite of its name (``mhlo.erf``, ``chlo.erf``);
    None for other names.
    """
    prefix, _, op = target.partition(".")
    if prefix in ("mhlo", "chlo") and op in NATIVE_CHLO:
        return ELEMENTWISE[f"chlo.{op}"]
    return None


_BINARY_CHLO = frozenset({"chlo.mulhi", "chlo.next_after", "chlo.polygamma", "chlo.zeta"})


def fits(op: str, operands: Sequence[ValueType], results: Sequence[ValueType]) -> bool:
    """Return whether operands and results are those of a CHLO op: of one shape and element, ``i1`` for
    predicates.
    """
    if len(operands) != (2 if op in _BINARY_CHLO else 1) or len(results) != 1:
        return False
    (result,) = results
    if any(t.dims is None or t.dims != result.dims or t.element != operands[0].element for t in operands):
        return False
    return result.element == ("i1" if op.startswith("chlo.is_") else operands[0].element)


_ELEMENTWISE_NODES = frozenset(ELEMENTWISE.values()) | {"bitcast_convert"}


def is_elementwise(node: Node) -> bool:
    """Return whether a node is elementwise over its own axes."""
    dims = node.results[0].dims if node.results else None
    if node.op not in _ELEMENTWISE_NODES or node.regions or dims is None:
        return False
    return all(len(ref.view) == len(dims) for ref in node.operands)


def is_structured(node: Node) -> bool:
    """Return whether a node reduces over a labeled index space, rather than being an opaque operation."""
    return node.op in ("reduce", "dot_general") and "dimensions = [" in node.attributes


#: Most views between an iota or constant and a use that are duplicated for the use.
MAX_DUPLICATED_VIEWS = 8


def is_duplicated(node: Node, node_at: Callable[[int], Node]) -> bool:
    """Return whether the tape has an operation once for each use (``importers/flatten.py``).

    That is a constant, an iota, or a few conversions and reshapes of an iota or of a constant of one element.
    ``node_at`` returns the node of an operand.
    """
    steps = 0
    while node.op in ("convert", "reshape") and steps < MAX_DUPLICATED_VIEWS - 1:
        node = node_at(node.operands[0].node)
        steps += 1
    if node.op == "iota":
        return not node.operands
    return node.op in ("constant", "arith.constant") and (
        not steps or {0, 1}.issuperset(node.results[0].dims or ())
    )
