"""Classes of operations by how they treat quantized values."""

from __future__ import annotations

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
