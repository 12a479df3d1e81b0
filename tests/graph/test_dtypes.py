"""Every operation is valid StableHLO in every dtype that its entry lists, and rejects every other one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.graph.lower import read_graph
from kcache_compiler.frontends.graph.operations import OPS
from kcache_compiler.frontends.graph.program import GraphNode, GraphProgram, GraphType
from kcache_compiler.frontends.graph.table import REQUIRED, Op
from kcache_compiler.types import PLAIN_DTYPES
from tests.graph.running import LIMITS

#: How MLIR writes the dtypes that have other names there.
ELEMENTS = {"c64": "complex<f32>", "c128": "complex<f64>"}
#: What operations of fixed form need besides operands of one shape.
ATTRIBUTES = {
    "compare": (("direction", "eq"),),
    "reduce_precision": (("exponent_bits", 5), ("mantissa_bits", 3)),
    "expand_dims": (("axes", (0,)),),
    "reverse": (("axes", (0,)),),
    "tile": (("repeats", (2, 1)),),
    "pad": (("low", (1, 0)), ("high", (0, 1))),
    "slice": (("starts", (0, 1)), ("limits", (2, 2))),
    "reduce_window": (("kind", "sum"), ("window", (2, 1))),
    "max_pool": (("window", (2,)),),
    "avg_pool": (("window", (2,)),),
    "dot_general": (("lhs_contracting", (1,)), ("rhs_contracting", (0,))),
    "top_k": (("k", 1),),
    "scalar_like": (("value", 1),),
    "size": (("axis", 0),),
    "one_hot": (("depth", 3),),
}
UNIFORM = [
    op
    for op in OPS.values()
    if op.operands
    and all(operand.dtypes == op.operands[0].dtypes for operand in op.operands if not operand.optional)
    and (op.name in ATTRIBUTES or not any(a.default is REQUIRED for a in op.attributes))
    and op.name not in ("batch_norm_inference", "take", "gather")
]


def program(op: Op, dtype: str) -> GraphProgram:
    """The operation on values f[2,2]."""
    names = [f"x{index}" for index, operand in enumerate(op.operands) if not operand.optional]
    node = GraphNode(op.name, tuple(names), ATTRIBUTES.get(op.name, ()), op.results)
    inputs = tuple(GraphType(name, dtype, (2, 2)) for name in names)
    return GraphProgram("kcache.graph.v1", inputs, (), (node,), op.results)


def test_most_operations_are_of_one_dtype():
    assert len(UNIFORM) > 105


@pytest.mark.sampled(12)
@pytest.mark.parametrize("op", UNIFORM, ids=lambda op: op.name)
def test_what_is_documented_is_valid(op: Op):
    for dtype in op.operands[0].dtypes:
        graph = program(op, dtype)
        module: Any = read_graph(graph, LIMITS)
        assert module.operation.verify()
        operand = f"tensor<2x2x{ELEMENTS.get(dtype, dtype)}>"
        (signature,) = re.findall(r"@main\((.*?)\) ->", str(module))
        assert [each.partition(": ")[2] for each in signature.split(", ")] == [operand] * len(graph.inputs)


@pytest.mark.parametrize("op", UNIFORM, ids=lambda op: op.name)
def test_what_is_not_documented_is_rejected(op: Op):
    for dtype in set(PLAIN_DTYPES) - set(op.operands[0].dtypes):
        with pytest.raises(InvalidProgram, match=rf"^node 0 '{op.results[0]}' \({op.name}\): the operand"):
            read_graph(program(op, dtype), LIMITS)
