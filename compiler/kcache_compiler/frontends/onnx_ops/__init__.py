"""Legalizations of ONNX's operators to StableHLO, registered in ``site.TABLE`` when imported."""

from kcache_compiler.frontends.onnx_ops import (
    activations,
    attention,
    constants,
    contractions,
    convolution,
    elementwise,
    indexing,
    normalization,
    quantized,
    recurrent,
    reductions,
    resize,
    shapes,
)
from kcache_compiler.frontends.onnx_ops.site import TABLE

__all__ = [
    "TABLE",
    "activations",
    "attention",
    "constants",
    "contractions",
    "convolution",
    "elementwise",
    "indexing",
    "normalization",
    "quantized",
    "recurrent",
    "reductions",
    "resize",
    "shapes",
]
