"""Legalizations of ONNX operators to StableHLO; importing a module registers its own in ``LEGALIZATIONS``."""

from kcache_compiler.frontends.onnx.node import LEGALIZATIONS
from kcache_compiler.frontends.onnx.ops import (
    activations,
    attention,
    constants,
    contractions,
    determinants,
    elementwise,
    indexing,
    normalization,
    quantized,
    reductions,
    selections,
    shapes,
)
from kcache_compiler.frontends.onnx.ops.sequence import fourier, ngrams, recurrent
from kcache_compiler.frontends.onnx.ops.vision import col2im as col2im_module
from kcache_compiler.frontends.onnx.ops.vision import convolution, regions, resize, sampling
from kcache_compiler.frontends.onnx.ops.vision import max_pool as max_pool_module
from kcache_compiler.frontends.onnx.ops.vision import non_max_suppression as nms_module

__all__ = [
    "LEGALIZATIONS",
    "activations",
    "attention",
    "col2im_module",
    "constants",
    "contractions",
    "convolution",
    "determinants",
    "elementwise",
    "fourier",
    "indexing",
    "max_pool_module",
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
]
