"""The rule of each operation that computes sizes, takes them as operands, or relates them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kcache_compiler.spec.graph.nodes import Node, Ref
from kcache_compiler.spec.shape_inference import convolution, custom_calls, size_scalars, slices
from kcache_compiler.spec.shape_inference import dynamic_operations as dynamic
from kcache_compiler.spec.shape_inference.block import Block
from kcache_compiler.spec.shape_inference.broadcasts import PREFIX, infer_broadcasting
from kcache_compiler.spec.shape_inference.context import NodeContext
from kcache_compiler.spec.shape_inference.generic import infer_any, infer_constant

if TYPE_CHECKING:
    from kcache_compiler.spec.shape_inference.infer import Inference

Rule = Callable[[NodeContext], list[Ref]]

RULES: dict[str, Rule] = {
    "arith.addi": size_scalars.infer_arithmetic,
    "arith.cmpi": size_scalars.infer_cmpi,
    "arith.constant": size_scalars.infer_arith_constant,
    "arith.divsi": size_scalars.infer_arithmetic,
    "arith.extsi": size_scalars.infer_sign_preserving_cast,
    "arith.extui": size_scalars.infer_extui,
    "arith.floordivsi": size_scalars.infer_floordivsi,
    "arith.index_cast": size_scalars.infer_sign_preserving_cast,
    "arith.maxsi": size_scalars.infer_arithmetic,
    "arith.minsi": size_scalars.infer_arithmetic,
    "arith.muli": size_scalars.infer_arithmetic,
    "arith.remsi": size_scalars.infer_arithmetic,
    "arith.select": size_scalars.infer_arithmetic,
    "arith.subi": size_scalars.infer_arithmetic,
    "arith.trunci": size_scalars.infer_sign_preserving_cast,
    "concatenate": dynamic.infer_concatenate,
    "constant": infer_constant,
    "convolution": convolution.infer_convolution,
    "custom_call": custom_calls.infer_custom_call,
    "dynamic_broadcast_in_dim": dynamic.infer_dynamic_broadcast_in_dim,
    "dynamic_conv": convolution.infer_dynamic_conv,
    "dynamic_gather": dynamic.infer_dynamic_gather,
    "dynamic_iota": dynamic.infer_dynamic_iota,
    "dynamic_pad": dynamic.infer_dynamic_pad,
    "dynamic_reshape": dynamic.infer_dynamic_reshape,
    "dynamic_slice": slices.infer_dynamic_slice,
    "dynamic_update_slice": slices.infer_dynamic_update_slice,
    "einsum": dynamic.infer_einsum,
    "fft": dynamic.infer_fft,
    "get_dimension_size": dynamic.infer_get_dimension_size,
    "get_tuple_element": size_scalars.infer_get_tuple_element,
    "real_dynamic_slice": slices.infer_real_dynamic_slice,
    "reshape": dynamic.infer_reshape,
    "select_and_scatter": dynamic.infer_select_and_scatter,
    "set_dimension_size": slices.infer_set_dimension_size,
    "shape.shape_of": size_scalars.infer_shape_of,
    "slice": slices.infer_slice,
    "tensor.dim": size_scalars.infer_tensor_dim,
    "tensor.from_elements": size_scalars.infer_from_elements,
    "tuple": size_scalars.infer_tuple,
    "unary_einsum": dynamic.infer_einsum,
}


def infer_node(inference: Inference, block: Block, node: Node) -> list[Ref]:
    """Return the results of a node in the new region; raises ``UnresolvedSize``."""
    context = NodeContext(inference, block, node)
    default = infer_broadcasting if node.op.startswith(PREFIX) else infer_any
    results = RULES.get(node.op, default)(context)
    return slices.cut_to_stated_sizes(context, results)
