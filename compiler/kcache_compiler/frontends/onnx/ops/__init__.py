"""Legalizations of ONNX's operators to StableHLO, registered in ``site.TABLE`` when imported."""

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
from kcache_compiler.frontends.onnx.ops.vision import affine_grid as grids
from kcache_compiler.frontends.onnx.ops.vision import col2im as blocks
from kcache_compiler.frontends.onnx.ops.vision import convolution, regions, resize, sampling
from kcache_compiler.frontends.onnx.ops.vision import max_pool as pooled
from kcache_compiler.frontends.onnx.ops.vision import non_max_suppression as suppression
from kcache_compiler.frontends.onnx.site import TABLE

__all__ = [
    "TABLE",
    "activations",
    "attention",
    "blocks",
    "constants",
    "contractions",
    "convolution",
    "determinants",
    "elementwise",
    "fourier",
    "grids",
    "indexing",
    "ngrams",
    "normalization",
    "pooled",
    "quantized",
    "recurrent",
    "reductions",
    "regions",
    "resize",
    "sampling",
    "selections",
    "shapes",
    "suppression",
]
