"""Legalizations of ONNX operators to StableHLO; importing a module registers its own in ``LEGALIZATIONS``."""

from kcache_compiler.frontends.onnx.node import LEGALIZATIONS
from kcache_compiler.frontends.onnx.ops import (
    activations,
    attention,
    constants,
    elementwise,
    indexing,
    linear_algebra,
    normalization,
    quantized,
    reductions,
    selections,
    shapes,
)
from kcache_compiler.frontends.onnx.ops.sequence import fourier, ngrams, recurrent
from kcache_compiler.frontends.onnx.ops.vision import non_max_suppression as nms_module
from kcache_compiler.frontends.onnx.ops.vision import regions, resize, sampling, windows

__all__ = [
    "LEGALIZATIONS",
    "activations",
    "attention",
    "constants",
    "elementwise",
    "fourier",
    "indexing",
    "linear_algebra",
    "ngrams",
    "nms_module",
    "normalization",
    "quantized",
    "recurrent",
    "reductions",
    "regions",
    "resize",
    "sampling",
    "selections",
    "shapes",
    "windows",
]
