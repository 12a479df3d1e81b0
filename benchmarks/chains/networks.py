"""Networks of equal layers with weights of their own: blocks of the corpus, convolutions, gradients."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.recognition import blocks
from tests.recognition.exports.corpus import read
from tests.recognition.mutations import edit

LAYERS = 48
#: Operations of gradients, whose layers have hundreds.
COUNT = 1000


def stacked(layer: str, one_behind_the_other: bool = True) -> str:
    """Copies of a graph of the corpus, each with arguments of its own."""
    return blocks(
        LAYERS * len(edit.everywhere(edit.parse(read(layer).texts[1]))), layer, one_behind_the_other
    )


def residual() -> str:
    """Blocks of two convolutions, each with a bias, with weights of their own."""
    value, weights, bias = "tensor<1x16x16x32xf32>", "tensor<3x3x32x32xf32>", "tensor<32xf32>"
    arguments, lines = [f"%v0: {value}"], [f"%z = stablehlo.constant dense<0.0> : {value}"]
    for n in range(LAYERS):
        for part, source in (("a", f"%v{n}"), ("b", f"%h{n}a")):
            own = f"{n}{part}"
            arguments += [f"%w{own}: {weights}", f"%b{own}: {bias}"]
            lines += [
                f"%c{own} = stablehlo.convolution({source}, %w{own}) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]"
                "->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} "
                "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} : "
                f"({value}, {weights}) -> {value}",
                f"%s{own} = stablehlo.broadcast_in_dim %b{own}, dims = [3] : ({bias}) -> {value}",
                f"%t{own} = stablehlo.add %c{own}, %s{own} : {value}",
            ]
            lines.append(f"%h{own} = stablehlo.maximum %t{own}, %z : {value}" if part == "a" else "")
        lines.append(f"%u{n} = stablehlo.add %t{n}b, %v{n} : {value}")
        lines.append(f"%v{n + 1} = stablehlo.maximum %u{n}, %z : {value}")
    body = "\n".join(lines)
    return f"func.func @main({', '.join(arguments)}) -> {value} {{\n{body}\nreturn %v{LAYERS} : {value}\n}}\n"


NETWORKS: dict[str, Callable[[], str]] = {
    "48 transformer blocks": lambda: stacked("transformer_block"),
    "3 gradients of transformer blocks": lambda: blocks(COUNT, "transformer_block_gradient", False),
    "48 residual blocks": residual,
    "48 ResNet blocks with norms": lambda: stacked("resnet_block"),
    "9 gradients of layer norms": lambda: blocks(COUNT, "layer_norm_gradient", True),
    "48 LSTM cells": lambda: stacked("lstm_cell"),
    "48 GRU cells": lambda: stacked("gru_cell"),
    "48 steps of Adam": lambda: stacked("adam", False),
}
