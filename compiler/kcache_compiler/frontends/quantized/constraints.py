"""Classes of operations by how they treat quantized values, and checks that operations that forward values
keep their quantization, which the verifier does not check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.quantized.element import Quantized, quantized
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from kcache_compiler.mlir.types import Op, Type, Value


#: Operations that compute on floats: operands are dequantized and results quantized.
COMPUTED = frozenset(
    f"stablehlo.{op}"
    for op in [
        *(
            "abs",
            "cbrt",
            "ceil",
            "cosine",
            "exponential",
            "exponential_minus_one",
            "floor",
            "is_finite",
            "log",
        ),
        *(
            "log_plus_one",
            "logistic",
            "negate",
            "reduce_precision",
            "round_nearest_afz",
            "round_nearest_even",
        ),
        *("rsqrt", "sign", "sine", "sqrt", "tan", "tanh"),
        *("add", "atan2", "divide", "maximum", "minimum", "multiply", "power", "remainder", "subtract"),
        *("clamp", "compare", "select", "dot", "dot_general", "convolution", "dynamic_conv"),
        *("batch_norm_grad", "batch_norm_inference", "batch_norm_training", "cholesky"),
        *("iota", "dynamic_iota"),
    ]
)
#: Operations that create or read quantized elements.
CONVERSIONS = frozenset(
    f"stablehlo.{op}" for op in ["uniform_quantize", "uniform_dequantize", "constant", "bitcast_convert"]
)
#: Operations of quantization itself.
QUANTIZE_OPS = frozenset({"stablehlo.uniform_quantize", "stablehlo.uniform_dequantize"})
#: Operations that combine elements by a region, whose parameters may have a wider type.
COMBINING = frozenset(
    f"stablehlo.{op}" for op in ["reduce", "reduce_window", "scatter", "select_and_scatter"]
)
#: Operations that forward elements unchanged, whatever their quantization.
FORWARDING = COMBINING | frozenset(
    [
        *(
            f"stablehlo.{op}"
            for op in [
                *("broadcast", "broadcast_in_dim", "case", "composite", "concatenate", "custom_call"),
                *("dynamic_broadcast_in_dim", "dynamic_gather", "dynamic_pad", "dynamic_reshape"),
                *(
                    "dynamic_slice",
                    "dynamic_update_slice",
                    "gather",
                    "get_dimension_size",
                    "get_tuple_element",
                ),
                *("if", "map", "optimization_barrier", "pad", "real_dynamic_slice", "reshape", "return"),
                *(
                    "reverse",
                    "set_dimension_size",
                    "slice",
                    "sort",
                    "torch_index_select",
                    "transpose",
                    "tuple",
                ),
                "while",
            ]
        ),
        *("func.call", "func.func", "func.return", "tensor.cast"),
    ]
)


#: A source, the value that receives its elements, and what the two are, for messages.
_Pair: TypeAlias = "tuple[Value, Value, str]"


def check_operation(operation: Op, values: Mapping[Value, Quantized]) -> None:
    """Raise ``InvalidProgram`` if forwarded elements have another quantization than their source."""
    for source, target, description in _forwarded_values(operation):
        if values.get(source) != values.get(target):
            raise _mismatch(operation, description, source.type, target.type)
    if operation.name == "stablehlo.get_tuple_element":
        member, result = (
            lazy.tuple_type(operation.operands[0]).get_type(_index(operation)),
            operation.results[0].type,
        )
        if quantized(member) != quantized(result):
            raise _mismatch(operation, "member and result", member, result)


def _mismatch(operation: Op, description: str, source_type: Type, target_type: Type) -> InvalidProgram:
    location = mlir.describe_location(operation.location)
    return InvalidProgram(
        f"{operation.name}{' at ' + location if location else ''}: {description} have the types "
        f"{source_type} and {target_type}, and must have the same quantization: convert one by "
        "stablehlo.uniform_quantize"
    )


def _index(operation: Op) -> int:
    return lazy.integer(operation.attributes["index"])


def _forwarded_values(operation: Op) -> Iterator[_Pair]:
    """Yield the pairs of values between which an operation forwards elements."""
    name = operation.name.removeprefix("stablehlo.")
    operands, results = list(operation.operands), list(operation.results)
    if name in ("sort", "while", "optimization_barrier"):
        yield from _paired(operands, results, "operands and results")
    if name == "while":
        for region in operation.regions:
            yield from _paired(operands, region.blocks[0].arguments, "operands and parameters")
        yield from _paired(
            _terminator_operands(operation, 1), results, "returned values of the body and results"
        )
    if name == "sort":
        parameters = list(operation.regions[0].blocks[0].arguments)
        doubled = [value for value in operands for _ in (0, 1)]
        yield from _paired(doubled, parameters, "operands and parameters")
    if name in ("if", "case"):
        for index in range(len(operation.regions)):
            yield from _paired(
                _terminator_operands(operation, index), results, "returned values of a branch and results"
            )
    if name == "map":
        parameters = operation.regions[0].blocks[0].arguments
        yield from _paired(operands, parameters, "operands and parameters")
        yield from _paired(
            _terminator_operands(operation, 0), results, "returned values of the function and results"
        )
    if name in ("reduce", "reduce_window", "scatter", "select_and_scatter"):
        last = len(operation.regions) - 1
        returned, parameters = (
            _terminator_operands(operation, last),
            operation.regions[last].blocks[0].arguments,
        )
        yield from _paired(returned, results, "returned values of the function and results")
        yield from _paired(returned, parameters, "returned values of the function and its parameters")
    if name == "select_and_scatter":
        yield from _paired(
            [operands[0]] * 2, operation.regions[0].blocks[0].arguments, "operand and parameters"
        )
    if name in ("tensor.cast", "torch_index_select"):
        yield from _paired(operands[:1], results, "operand and result")


def _paired(sources: list[Value], targets: Sequence[Value], description: str) -> Iterator[_Pair]:
    for source, target in zip(sources, targets, strict=False):
        yield source, target, description


def _terminator_operands(operation: Op, region: int) -> list[Value]:
    """Return the operands of the last operation of a region."""
    block = operation.regions[region].blocks[0]
    return list(list(block.operations)[-1].operands)
