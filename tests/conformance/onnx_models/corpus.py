"""Models as exporters write them, small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.conformance.onnx_models.build import BOOL, F32, I64, Dims, ints, model, node, value, weight

Make = Callable[[], onnx.ModelProto]


def mlp(batch: int | str = 4) -> onnx.ModelProto:
    nodes = [
        node("Gemm", ["x", "w1", "b1"], ["h"], transB=1),
        node("Relu", ["h"], ["r"]),
        node("MatMul", ["r", "w2"], ["m"]),
        node("Add", ["m", "b2"], ["y"]),
    ]
    weights = {"w1": weight(16, 8), "b1": weight(16), "w2": weight(16, 3), "b2": weight(3)}
    return model(nodes, {"x": [batch, 8]}, ["y"], weights)


def convolutions(batch: int | str = 2) -> onnx.ModelProto:
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", ["c", "scale", "bias", "mean", "variance"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("Conv", ["r", "w2"], ["d"], pads=[1, 1, 1, 1], group=6),
        node("HardSwish", ["d"], ["h"]),
        node("MaxPool", ["h"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["p"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "w3", "b3"], ["y"], transB=1),
    ]
    weights = {"w1": weight(6, 3, 3, 3), "b1": weight(6), "w2": weight(6, 1, 3, 3)}
    weights |= {name: weight(6, seed=i) for i, name in enumerate(["scale", "bias", "mean"])}
    weights |= {"variance": np.abs(weight(6)) + 1, "w3": weight(5, 6), "b3": weight(5)}
    return model(nodes, {"x": [batch, 3, 12, 12]}, ["y"], weights)


def pools() -> onnx.ModelProto:
    nodes = [
        node("AveragePool", ["x"], ["a"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("AveragePool", ["x"], ["b"], kernel_shape=[3, 3], auto_pad="SAME_UPPER", count_include_pad=1),
        node("MaxPool", ["x"], ["c"], kernel_shape=[3, 2], ceil_mode=1, strides=[2, 2]),
        node("LpPool", ["x"], ["d"], kernel_shape=[2, 2]),
        node("GlobalMaxPool", ["x"], ["e"]),
    ]
    return model(nodes, {"x": [2, 3, 7, 8]}, list("abcde"))


def transposed_convolution() -> onnx.ModelProto:
    attributes: dict[str, Any] = {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}
    nodes = [node("ConvTranspose", ["x", "w", "b"], ["y"], **attributes)]
    return model(nodes, {"x": [1, 4, 5, 5]}, ["y"], {"w": weight(4, 3, 3, 3), "b": weight(3)})


def normalizations(batch: int | str = 4) -> onnx.ModelProto:
    nodes = [
        node("LayerNormalization", ["x", "g", "b"], ["l", "mean", "inverse"], axis=-1),
        node("RMSNormalization", ["x", "g"], ["r"], axis=-1),
        node("InstanceNormalization", ["i", "s", "t"], ["n"]),
        node("GroupNormalization", ["i", "s", "t"], ["o"], num_groups=2),
        node("LpNormalization", ["x"], ["p"], axis=1),
        node("LRN", ["j"], ["q"], size=3),
    ]
    weights = {"g": weight(8), "b": weight(8), "s": weight(6), "t": weight(6, seed=1)}
    inputs = {"x": [batch, 8], "i": [batch, 6, 5], "j": [6, 6, 2, 2]}
    return model(nodes, inputs, ["l", "mean", "inverse", "r", "n", "o", "p", "q"], weights, opset=23)


def attention_block(batch: int | str = 2, length: int | str = 5) -> onnx.ModelProto:
    """A transformer block as PyTorch's older exporter writes it: attention by its parts, erf by hand."""
    nodes = [
        node("LayerNormalization", ["x", "g", "b"], ["n"], axis=-1),
        node("MatMul", ["n", "wqkv"], ["qkv"]),
        node("Split", ["qkv"], ["q", "k", "v"], axis=-1, num_outputs=3),
    ]
    for name in "qkv":
        nodes += [
            node("Reshape", [name, "heads"], [f"{name}4"]),
            node("Transpose", [f"{name}4"], [f"{name}t"], perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]),
        ]
    nodes += [
        node("MatMul", ["qt", "kt"], ["scores"]),
        node("Div", ["scores", "root"], ["scaled"]),
        node("Softmax", ["scaled"], ["weights"], axis=-1),
        node("MatMul", ["weights", "vt"], ["mixed"]),
        node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "flat"], ["joined"]),
        node("MatMul", ["joined", "wo"], ["o"]),
        node("Add", ["x", "o"], ["h"]),
        node("MatMul", ["h", "wi"], ["u"]),
        node("Div", ["u", "two"], ["e"]),
        node("Erf", ["e"], ["f"]),
        node("Add", ["f", "one"], ["p"]),
        node("Mul", ["u", "p"], ["m"]),
        node("Mul", ["m", "half"], ["gelu"]),
        node("MatMul", ["gelu", "wf"], ["d"]),
        node("Add", ["h", "d"], ["y"]),
    ]
    weights = {
        "g": weight(12),
        "b": weight(12, seed=1),
        "wqkv": weight(12, 36),
        "heads": ints(0, 0, 3, 4),
        "flat": ints(0, 0, 12),
        "wo": weight(12, 12),
        "wi": weight(12, 24),
        "wf": weight(24, 12),
        "root": np.array(2, np.float32),
        "two": np.array(np.sqrt(2), np.float32),
        "one": np.array(1, np.float32),
        "half": np.array(0.5, np.float32),
    }
    return model(nodes, {"x": [batch, length, 12]}, ["y"], weights)


def attention(length: int | str = 5) -> onnx.ModelProto:
    """The operator: grouped heads, a causal mask, a float mask."""
    nodes = [node("Attention", ["q", "k", "v", "m"], ["y"], is_causal=1, softcap=4.0)]
    inputs = {"q": [2, 4, length, 8], "k": [2, 2, length, 8], "v": [2, 2, length, 6], "m": [length, length]}
    return model(nodes, inputs, ["y"], opset=23)


def embedding(length: int | str = 6) -> onnx.ModelProto:
    """Token and position rows; positions come from the shape of the tokens."""
    nodes = [
        node("Gather", ["table", "t"], ["e"]),
        node("Shape", ["t"], ["s"]),
        node("Gather", ["s", "last"], ["n"]),
        node("Range", ["zero", "n", "step"], ["r"]),
        node("Gather", ["places", "r"], ["p"]),
        node("Add", ["e", "p"], ["y"]),
    ]
    weights = {"table": weight(10, 4), "places": weight(128, 4)}
    weights |= {name: np.array(number) for name, number in [("last", 1), ("zero", 0), ("step", 1)]}
    return model(nodes, [value("t", [2, length], I64)], ["y"], weights)


def losses() -> onnx.ModelProto:
    nodes = [
        node("SoftmaxCrossEntropyLoss", ["x", "t"], ["c"]),
        node("Sub", ["x", "z"], ["d"]),
        node("Mul", ["d", "d"], ["q"]),
        node("ReduceMean", ["q"], ["m"], keepdims=0),
        node("LogSoftmax", ["x"], ["l"]),
    ]
    return model(nodes, [value("x", [4, 6]), value("z", [4, 6]), value("t", [4], I64)], ["c", "m", "l"])


def activations() -> onnx.ModelProto:
    """Every activation, added up one by one."""
    ops: list[tuple[str, dict[str, Any]]] = [
        ("Relu", {}),
        ("LeakyRelu", {"alpha": 0.2}),
        ("Elu", {"alpha": 1.5}),
        ("Selu", {}),
        ("Celu", {"alpha": 2.0}),
        ("Gelu", {}),
        ("Gelu", {"approximate": "tanh"}),
        ("HardSigmoid", {}),
        ("HardSwish", {}),
        ("Mish", {}),
        ("Softplus", {}),
        ("Softsign", {}),
        ("Sigmoid", {}),
        ("ThresholdedRelu", {"alpha": 0.3}),
        ("Shrink", {"lambd": 0.3, "bias": 0.1}),
        ("Hardmax", {}),
    ]
    nodes = [node(op, ["x"], [f"y{i}"], **attributes) for i, (op, attributes) in enumerate(ops)]
    return model(nodes, {"x": [3, 17]}, [f"y{i}" for i in range(len(ops))])


def elementwise() -> onnx.ModelProto:
    unary = ["Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Neg", "Round", "Sign", "Sin", "Tanh", "Atan"]
    nodes = [node(op, ["x"], [f"u{op}"]) for op in unary]
    binary = ["Add", "Sub", "Mul", "Div", "Max", "Min"]
    nodes += [node(op, ["x", "z"], [f"b{op}"]) for op in binary]
    nodes += [
        node("Abs", ["x"], ["a"]),
        node("Pow", ["a", "c"], ["power"]),
        node("Sqrt", ["a"], ["root"]),
        node("Clip", ["x", "", "c"], ["clipped"]),
        node("Greater", ["x", "z"], ["more"]),
        node("Where", ["more", "x", "z"], ["chosen"]),
        node("Mod", ["i", "j"], ["rest"]),
    ]
    weights = {"c": np.array(0.5, np.float32), "j": ints(3)}
    inputs = [value("x", [4, 5]), value("z", [5]), value("i", [6], I64)]
    outputs = [
        *(f"u{op}" for op in unary),
        *(f"b{op}" for op in binary),
        "power",
        "root",
        "clipped",
        "chosen",
    ]
    more = [
        helper.make_tensor_value_info("rest", I64, None),
        helper.make_tensor_value_info("more", BOOL, None),
    ]
    return model(nodes, inputs, [*outputs, *more], weights)


def reductions() -> onnx.ModelProto:
    ops = ["L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]
    nodes = [node(f"Reduce{op}", ["x", "axes"], [op], keepdims=i % 2) for i, op in enumerate(ops)]
    nodes += [
        node("ArgMax", ["x"], ["top"], axis=2),
        node("ArgMin", ["x"], ["low"], axis=1, keepdims=0),
        node("CumSum", ["x", "axis"], ["run"], reverse=1),
    ]
    more = [helper.make_tensor_value_info(n, I64, None) for n in ("top", "low")]
    weights = {"axes": ints(0, 2), "axis": np.array(1)}
    return model(nodes, {"x": [3, 4, 5]}, [*ops, "run", *more], weights)


def shapes() -> onnx.ModelProto:
    nodes = [
        node("Reshape", ["x", "s"], ["a"]),
        node("Slice", ["x", "starts", "ends", "axes", "steps"], ["b"]),
        node("Concat", ["x", "x"], ["c"], axis=2),
        node("Pad", ["x", "pads"], ["d"], mode="reflect"),
        node("Tile", ["x", "repeats"], ["e"]),
        node("Expand", ["v", "to"], ["f"]),
        node("Unsqueeze", ["v", "one"], ["g"]),
        node("Trilu", ["x"], ["h"], upper=0),
        node("DepthToSpace", ["deep"], ["i"], blocksize=2),
        node("Split", ["x", "parts"], ["j", "k"], axis=1),
        node("GatherElements", ["x", "where"], ["l"], axis=2),
        node("GatherND", ["x", "places"], ["m"]),
        node("ConstantOfShape", ["to"], ["n"]),
    ]
    weights = {
        "s": ints(3, -1),
        "starts": ints(-1, 4),
        "ends": ints(-9, 1),
        "axes": ints(0, 2),
        "steps": ints(-1, -2),
        "pads": ints(0, 1, 2, 0, 2, 1),
        "repeats": ints(2, 1, 3),
        "to": ints(3, 4),
        "one": ints(1),
        "parts": ints(1, 3),
        "where": np.array([[[0, 4]] * 4, [[-1, 2]] * 4]),
        "places": np.array([[0, 1], [1, 3]]),
    }
    inputs = {"x": [2, 4, 6], "v": [3, 1], "deep": [1, 8, 2, 3]}
    return model(nodes, inputs, list("abcdefghijklmn"), weights)


def resizes() -> onnx.ModelProto:
    linear: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    nodes = [
        node("Resize", ["x", "", "scales"], ["a"], mode="nearest"),
        node("Resize", ["x", "", "", "sizes"], ["b"], **linear),
        node("Resize", ["x", "", "scales"], ["c"], mode="cubic"),
    ]
    weights = {"scales": np.array([1, 1, 2, 2], np.float32), "sizes": ints(1, 2, 7, 3)}
    return model(nodes, {"x": [1, 2, 4, 5]}, ["a", "b", "c"], weights)


def recurrent() -> onnx.ModelProto:
    nodes = [
        node("LSTM", ["x", "w4", "r4", "b4"], ["y", "h", "c"], hidden_size=3, direction="bidirectional"),
        node("GRU", ["x", "w3", "r3"], ["z"], hidden_size=3, linear_before_reset=1),
    ]
    weights = {"w4": weight(2, 12, 5), "r4": weight(2, 12, 3), "b4": weight(2, 24)}
    weights |= {"w3": weight(1, 9, 5), "r3": weight(1, 9, 3)}
    return model(nodes, {"x": [4, 2, 5]}, ["y", "h", "c", "z"], weights)


def control() -> onnx.ModelProto:
    """A branch that depends on data, and a loop that counts."""
    scalar = helper.make_tensor_value_info
    then = helper.make_graph([node("Exp", ["x"], ["t"])], "then", [], [scalar("t", F32, None)])
    other = helper.make_graph([node("Neg", ["x"], ["u"])], "else", [], [scalar("u", F32, None)])
    body = helper.make_graph(
        [
            node("Identity", ["go"], ["on"]),
            node("Mul", ["s", "w"], ["next"]),
            node("Identity", ["next"], ["row"]),
        ],
        "body",
        [scalar("i", I64, []), scalar("go", BOOL, []), scalar("s", F32, [3])],
        [scalar("on", BOOL, []), scalar("next", F32, [3]), scalar("row", F32, [3])],
    )
    nodes = [
        node("ReduceSum", ["x"], ["total"], keepdims=0),
        node("Greater", ["total", "zero"], ["positive"]),
        node("If", ["positive"], ["y"], then_branch=then, else_branch=other),
        node("Loop", ["count", "true", "y"], ["last", "rows"], body=body),
    ]
    weights = {"zero": np.array(0, np.float32), "count": np.array(4), "true": np.array(True), "w": weight(3)}
    return model(nodes, {"x": [3]}, ["y", "last", "rows"], weights)


def quantized() -> onnx.ModelProto:
    nodes = [
        node("QuantizeLinear", ["x", "sx", "zx"], ["q"]),
        node("QLinearMatMul", ["q", "sx", "zx", "w", "sw", "zw", "sy", "zy"], ["p"]),
        node("DequantizeLinear", ["p", "sy", "zy"], ["y"]),
    ]
    scales = {name: np.array(s, np.float32) for name, s in [("sx", 0.05), ("sw", 0.1), ("sy", 0.2)]}
    zeros = {"zx": np.array(3, np.int8), "zw": np.array(0, np.int8), "zy": np.array(-2, np.int8)}
    rows = np.random.default_rng(0).integers(-9, 9, (8, 3)).astype(np.int8)
    return model(nodes, {"x": [4, 8]}, ["y"], {**scales, **zeros, "w": rows})


def einsum() -> onnx.ModelProto:
    nodes = [
        node("Einsum", ["x", "z"], ["a"], equation="bij,bkj->bik"),
        node("Einsum", ["x"], ["b"], equation="...ij->...ji"),
        node("Einsum", ["x", "z", "w"], ["c"], equation="bij,bkj,jl->bl"),
    ]
    return model(nodes, {"x": [2, 3, 4], "z": [2, 5, 4]}, ["a", "b", "c"], {"w": weight(4, 6)})


def function() -> onnx.ModelProto:
    """A function of the model's own, with an attribute."""
    body = [
        node("Constant", [], ["half"], value_float=0.5),
        node("LeakyRelu", ["a"], ["r"]),
        node("Mul", ["r", "half"], ["b"]),
    ]
    body[1].attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    local = helper.make_function(
        "local", "Halved", ["a"], ["b"], body, [helper.make_opsetid("", 21)], attributes=["slope"]
    )
    nodes = [node("Halved", ["x"], ["y"], domain="local", slope=0.25)]
    return model(nodes, {"x": [4, 5]}, ["y"], functions=[local], domains=["local"])


CORPUS: dict[str, Make] = {
    make.__name__: make
    for make in [
        mlp,
        convolutions,
        pools,
        transposed_convolution,
        normalizations,
        attention_block,
        attention,
        embedding,
        losses,
        activations,
        elementwise,
        reductions,
        shapes,
        resizes,
        recurrent,
        control,
        quantized,
        einsum,
        function,
    ]
}

#: Models that take sizes by name -> the dims to leave open, and sizes to run at.
OPEN: dict[str, tuple[Callable[..., onnx.ModelProto], tuple[str, ...], list[dict[str, int]]]] = {
    "mlp": (mlp, ("N",), [{"N": 1}, {"N": 4}, {"N": 9}]),
    "convolutions": (convolutions, ("N",), [{"N": 1}, {"N": 3}]),
    "normalizations": (normalizations, ("N",), [{"N": 2}, {"N": 5}]),
    "attention_block": (attention_block, ("B", "T"), [{"B": 2, "T": 5}, {"B": 1, "T": 8}, {"B": 3, "T": 3}]),
    "attention": (attention, ("T",), [{"T": 5}, {"T": 2}]),
    "embedding": (embedding, ("T",), [{"T": 6}, {"T": 11}]),
}

__all__ = ["CORPUS", "OPEN", "Dims"]
