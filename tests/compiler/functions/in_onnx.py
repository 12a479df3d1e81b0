"""The functions as ONNX operators, through torch-mlir's importer to StableHLO."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch_mlir import ir
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.extras import onnx_importer
from torch_mlir.passmanager import PassManager

X, ROW, SCALAR = (6, 10), (10,), ()
HEADS, IMAGE, CHANNEL = (2, 3, 6, 8), (2, 5, 6, 8), (5,)

CONSTANTS = {
    "last": np.array([-1]),
    **{
        name: np.float32(value)
        for name, value in {
            "epsilon": 1e-5,
            "one": 1,
            "two": 2,
            "three": 3,
            "half": 0.5,
            "root2": 2**0.5,
            "root8": 8**0.5,
            "cubic": 0.044715,
            "root2pi": (2 / np.pi) ** 0.5,
            "b1": 0.9,
            "c1": 1 - 0.9,
            "b2": 0.999,
            "c2": 1 - 0.999,
            "tiny": 1e-8,
            "rate": 1e-3,
        }.items()
    },
}

#: name -> (arguments, lines ``results = Operator inputs key=value ...``, results)
CASES: dict[str, tuple[dict[str, tuple[int, ...]], str, dict[str, tuple[int, ...]]]] = {
    "bias_relu": ({"x": X, "b": ROW}, "s = Add x b; r = Relu s", {"r": X}),
    "matmul_bias_relu": (
        {"x": X, "w": (10, 14), "b": (14,)},
        "m = MatMul x w; s = Add m b; r = Relu s",
        {"r": (6, 14)},
    ),
    "matmul_bias_relu.gemm": (
        {"x": X, "w": (10, 14), "b": (14,)},
        "s = Gemm x w b; r = Relu s",
        {"r": (6, 14)},
    ),
    "softmax": ({"x": X}, "r = Softmax x", {"r": X}),
    "sigmoid_gate": ({"x": X, "g": X}, "s = Sigmoid g; r = Mul x s", {"r": X}),
    "silu": ({"x": X}, "s = Sigmoid x; r = Mul x s", {"r": X}),
    "residual_add": ({"x": X, "y": X}, "s = Relu y; r = Add x s", {"r": X}),
    "attention_scores": (
        {"q": HEADS, "k": HEADS},
        "t = Transpose k perm=[0,1,3,2]; m = MatMul q t; d = Div m root8; r = Softmax d",
        {"r": (2, 3, 6, 6)},
    ),
    "mean_squared_error": (
        {"x": X, "y": X},
        "d = Sub x y; s = Mul d d; r = ReduceMean s keepdims=0",
        {"r": SCALAR},
    ),
    "mean_squared_error.pow": (
        {"x": X, "y": X},
        "d = Sub x y; s = Pow d two; r = ReduceMean s keepdims=0",
        {"r": SCALAR},
    ),
    "rms_norm_root": (
        {"x": X, "g": ROW},
        "s = Mul x x; m = ReduceMean s last; v = Add m epsilon; q = Sqrt v; i = Reciprocal q; n = Mul x i; "
        "r = Mul n g",
        {"r": X},
    ),
    "gelu_tanh": ({"x": X}, 'r = Gelu x approximate="tanh"', {"r": X}),
    "gelu_tanh.written": (
        {"x": X},
        "c = Pow x three; k = Mul c cubic; u = Add x k; v = Mul u root2pi; t = Tanh v; a = Add t one; "
        "h = Mul x half; r = Mul h a",
        {"r": X},
    ),
    "gelu_erf": ({"x": X}, "r = Gelu x", {"r": X}),
    "gelu_erf.written": (
        {"x": X},
        "d = Div x root2; e = Erf d; a = Add e one; m = Mul x a; r = Mul m half",
        {"r": X},
    ),
    "layer_norm": (
        {"x": X, "g": ROW, "b": ROW},
        "r = LayerNormalization x g b epsilon=1e-5",
        {"r": X},
    ),
    "layer_norm.written": (
        {"x": X, "g": ROW, "b": ROW},
        "m = ReduceMean x last; d = Sub x m; s = Pow d two; v = ReduceMean s last; e = Add v epsilon; "
        "q = Sqrt e; n = Div d q; t = Mul n g; r = Add t b",
        {"r": X},
    ),
    "variance": (
        {"x": X},
        "m = ReduceMean x last; d = Sub x m; s = Mul d d; r = ReduceMean s last keepdims=0",
        {"r": (6,)},
    ),
    "batch_norm": (
        {"x": IMAGE, "g": CHANNEL, "b": CHANNEL, "m": CHANNEL, "v": CHANNEL},
        "r = BatchNormalization x g b m v epsilon=1e-5",
        {"r": IMAGE},
    ),
    "log_softmax": ({"x": X}, "r = LogSoftmax x", {"r": X}),
    "cross_entropy": (
        {"x": X, "t": X},
        "l = LogSoftmax x; m = Mul t l; s = ReduceSum m last keepdims=0; e = ReduceMean s keepdims=0; "
        "r = Neg e",
        {"r": SCALAR},
    ),
    "cross_entropy_labels": ({"x": X, "labels": (6,)}, "r = SoftmaxCrossEntropyLoss x labels", {"r": SCALAR}),
    "adam": (
        {"p": X, "g": X, "m": X, "v": X, "t": SCALAR},
        "a = Mul m b1; b = Mul g c1; m1 = Add a b; gg = Mul g g; d = Mul v b2; e = Mul gg c2; v1 = Add d e; "
        "p1 = Pow b1 t; n1 = Sub one p1; p2 = Pow b2 t; n2 = Sub one p2; mh = Div m1 n1; vh = Div v1 n2; "
        "s = Sqrt vh; q = Add s tiny; u = Div mh q; w = Mul u rate; r = Sub p w",
        {"r": X, "m1": X, "v1": X},
    ),
}


def _node(line: str) -> onnx.NodeProto:
    result, _, call = line.partition(" = ")
    operator, *words = call.split()
    attributes = dict(word.split("=", 1) for word in words if "=" in word)
    values: dict[str, Any] = {key: onnx_value(text) for key, text in attributes.items()}
    return helper.make_node(operator, [word for word in words if "=" not in word], [result], **values)


def onnx_value(text: str) -> Any:
    if text.startswith('"'):
        return text.strip('"')
    if text.startswith("["):
        return [int(part) for part in text.strip("[]").split(",")]
    return float(text) if "." in text or "e" in text else int(text)


def model(name: str) -> onnx.ModelProto:
    arguments, lines, results = CASES[name]
    nodes = [_node(line.strip()) for line in lines.split(";")]
    used = {word for node in nodes for word in node.input}

    def value(name: str, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
        element = TensorProto.INT64 if name == "labels" else TensorProto.FLOAT
        return helper.make_tensor_value_info(name, element, shape)

    inputs = [value(key, shape) for key, shape in arguments.items()]
    outputs = [value(key, shape) for key, shape in results.items()]
    constants = [
        numpy_helper.from_array(np.asarray(number), key)
        for key, number in CONSTANTS.items()
        if key in used and key not in arguments
    ]
    graph = helper.make_graph(nodes, "main", inputs, outputs, constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def text_of(name: str) -> str:
    context = ir.Context()
    torch_dialect.register_dialect(context)
    about = onnx_importer.ModelInfo(onnx.shape_inference.infer_shapes(model(name), data_prop=True))
    module = about.create_module(context=context).operation
    onnx_importer.NodeImporter.define_function(about.main_graph, module).import_all()
    with context:
        for pipeline in (
            "torch-onnx-to-torch-backend-pipeline",
            "torch-backend-to-stablehlo-backend-pipeline",
        ):
            PassManager.parse(f"builtin.module({pipeline})").run(module)
    return str(module)


def texts() -> dict[str, str]:
    return {name: text_of(name) for name in CASES}
