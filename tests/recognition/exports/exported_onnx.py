"""The corpus's ONNX graphs, as functions of their sizes: StableHLO as the ``onnx`` format makes it."""

from __future__ import annotations

import onnx

from kcache_compiler.frontends.limits import Limits
from kcache_compiler.frontends.program import read_program
from tests.conformance.onnx_models import corpus

Sizes = dict[str, int]


def text_of(model: onnx.ModelProto) -> str:
    return read_program(model.SerializeToString(), "onnx", Limits()).module.operation.get_asm()


def onnx_mlp(s: Sizes) -> str:
    return text_of(corpus.mlp(s["batch"]))


def onnx_convolutions(s: Sizes) -> str:
    return text_of(corpus.convolutions(s["batch"]))


def onnx_normalizations(s: Sizes) -> str:
    return text_of(corpus.normalizations(s["batch"]))


def onnx_attention_block(s: Sizes) -> str:
    return text_of(corpus.attention_block(s["batch"], s["time"]))
