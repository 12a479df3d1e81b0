"""Models that are rejected, each with an error that says what is wrong and where."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from kcache_compiler import Limits, canonicalize
from kcache_compiler.errors import CompilerError, InvalidProgram, LimitExceeded, UnsupportedOp
from tests.conformance.onnx_models.build import F32, ints, model, node, value, weight
from tests.conformance.onnx_models.corpus import CORPUS, attention_block, mlp

DEFAULT = Limits()


def reject(kind: type[CompilerError], program: onnx.ModelProto | bytes, limits: Limits = DEFAULT) -> str:
    body = program if isinstance(program, bytes) else program.SerializeToString()
    with pytest.raises(kind) as caught:
        canonicalize(body, "onnx", limits=limits)
    assert len(str(caught.value)) < 4000
    return str(caught.value)


def single_node(
    op: str, attributes: dict[str, Any] | None = None, dims: tuple[int, ...] = (4, 6)
) -> onnx.ModelProto:
    return model([node(op, ["x"], ["y"], name="here", **(attributes or {}))], {"x": dims}, ["y"])


def external() -> onnx.ModelProto:
    program = mlp()
    tensor = program.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    return program


def external_constant() -> onnx.ModelProto:
    tensor = TensorProto(name="t", data_type=F32, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="weights.bin")
    return model([node("Constant", [], ["y"], value=tensor)], {"x": [2]}, ["y"])


def changed(
    change: Callable[[onnx.ModelProto], object], program: onnx.ModelProto | None = None
) -> onnx.ModelProto:
    program = copy.deepcopy(mlp() if program is None else program)
    change(program)
    return program


def recursive() -> onnx.ModelProto:
    opset = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    body = [node("F", ["a"], ["b"], domain="local")]
    function = helper.make_function("local", "F", ["a"], ["b"], body, opset)
    return model(
        [node("F", ["x"], ["y"], domain="local")], {"x": [2]}, ["y"], functions=[function], domains=["local"]
    )


@pytest.mark.parametrize(
    ("make", "kind", "said"),
    [
        (external, InvalidProgram, ("'w1'", "another file", "onnx.load")),
        (external_constant, InvalidProgram, ("another file",)),
        (
            lambda: changed(lambda m: setattr(m, "ir_version", 99)),
            InvalidProgram,
            ("99", str(onnx.IR_VERSION)),
        ),
        (
            lambda: changed(lambda m: setattr(m.opset_import[0], "version", 999)),
            InvalidProgram,
            ("999", str(onnx.defs.onnx_opset_version()), "version_converter"),
        ),
        (lambda: changed(lambda m: setattr(m.opset_import[0], "version", 0)), InvalidProgram, ("opset 0",)),
        (lambda: changed(lambda m: setattr(m.opset_import[0], "domain", "d")), InvalidProgram, ("no opset",)),
        (
            lambda: model(
                [node("Fancy", ["x"], ["y"], domain="com.a", name="here")],
                {"x": [2]},
                ["y"],
                domains=["com.a"],
            ),
            UnsupportedOp,
            ("com.a.Fancy", "here"),
        ),
        (lambda: single_node("Fancy"), InvalidProgram, ("Fancy",)),
        (lambda: single_node("RandomNormalLike"), UnsupportedOp, ("draws random numbers",)),
        (lambda: single_node("Transpose", {"perm": [0, 0]}), InvalidProgram, ("here", "permutation")),
        (lambda: single_node("Softmax", {"axis": 5}), InvalidProgram, ("here", "axis 5")),
        (lambda: single_node("Flatten", {"axis": 7}), InvalidProgram, ("axis 7",)),
        (lambda: single_node("Concat"), InvalidProgram, ("axis",)),
        (lambda: single_node("MaxPool", {"kernel_shape": [2, 2]}), InvalidProgram, ("kernel_shape",)),
        (lambda: single_node("Cast", {"to": TensorProto.STRING}), UnsupportedOp, ("STRING",)),
        (lambda: single_node("Cast", {"to": 12345}), UnsupportedOp, ("12345",)),
        (lambda: single_node("Einsum", {"equation": "ij->ik"}), InvalidProgram, ("ij->ik",)),
        (
            lambda: model([node("Add", ["x", "z"], ["y"])], {"x": [4], "z": [3]}, ["y"]),
            InvalidProgram,
            ("[4] and [3] do not broadcast",),
        ),
        (
            lambda: model(
                [node("MatMul", ["x", "w"], ["y"], name="here")], {"x": [4, 5]}, ["y"], {"w": weight(6, 2)}
            ),
            InvalidProgram,
            ("5 and 6",),
        ),
        (
            lambda: model([node("Reshape", ["x", "s"], ["y"])], {"x": [4, 6]}, ["y"], {"s": ints(5, -1)}),
            InvalidProgram,
            ("[4, 6]", "[5, -1]"),
        ),
        (
            lambda: model(
                [node("Reshape", ["x", "s"], ["y"], name="here")],
                [value("x", [4, 6]), value("s", [2], 7)],
                ["y"],
            ),
            UnsupportedOp,
            ("here", "shape as a constant"),
        ),
        (lambda: model([node("Relu", ["gone"], ["y"])], {"x": [2]}, ["y"]), InvalidProgram, ("gone",)),
        (lambda: model([node("Relu", ["x"], ["z"])], {"x": [2]}, ["y"]), InvalidProgram, ("y",)),
        (
            lambda: changed(lambda m: m.graph.input[0].type.tensor_type.ClearField("shape")),
            InvalidProgram,
            ("shape",),
        ),
        (lambda: model([], [value("x", [2], TensorProto.STRING)], ["x"]), UnsupportedOp, ("'x'", "STRING")),
        (lambda: changed(lambda m: m.graph.initializer[0].dims.append(7)), InvalidProgram, ("w1",)),
        (recursive, InvalidProgram, ("F",)),
    ],
)
def test_bad_models(
    make: Callable[[], onnx.ModelProto], kind: type[CompilerError], said: tuple[str, ...]
) -> None:
    message = reject(kind, make())
    for words in said:
        assert words in message


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (b"", "no graph"),
        (b"\0" * 40, "not an onnx.ModelProto"),
        (b"func.func @main() { return }", "text: send MLIR with format 'stablehlo'"),
        (b"ML\xefR\x0d", "MLIR bytecode"),
        (b"PK\x03\x04" + bytes(40), "zip archive"),
        (b"\x0a\x0fkcache.graph.v1", "not an onnx.ModelProto"),
    ],
)
def test_other_formats_sent_as_onnx(program: bytes, said: str) -> None:
    assert said in reject(InvalidProgram, program)


def test_models_sent_as_other_formats() -> None:
    for format in ("stablehlo", "linalg", "torch"):
        with pytest.raises(InvalidProgram):
            canonicalize(mlp().SerializeToString(), format)


def test_truncated_models() -> None:
    body = mlp().SerializeToString()
    for end in range(0, len(body) - 1, 37):
        reject(InvalidProgram, body[:end])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(3))
def test_damaged_models_end_in_a_typed_error_or_in_a_spec(seed: int) -> None:
    rng = random.Random(seed)
    bodies = [CORPUS[name]().SerializeToString() for name in ("mlp", "shapes", "control", "pools")]
    outcomes = {"spec": 0, "rejected": 0}
    for body in bodies * 20:
        damaged = bytearray(body)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            canonicalize(bytes(damaged), "onnx")
            outcomes["spec"] += 1
        except CompilerError:
            outcomes["rejected"] += 1
    assert min(outcomes.values()) > 0


def test_limits() -> None:
    program = attention_block()
    size = len(program.SerializeToString())
    assert "program size" in reject(LimitExceeded, program, Limits(program_bytes=size - 1))
    assert "operations" in reject(LimitExceeded, program, Limits(operations=20))
    assert "constants" in reject(LimitExceeded, program, Limits(constant_bytes=1000))
    assert "arguments" in reject(LimitExceeded, program, Limits(arguments=3))
    assert "rank" in reject(LimitExceeded, program, Limits(rank=2))
    huge = model([node("Expand", ["x", "s"], ["y"])], {"x": [1]}, ["y"], {"s": ints(2**31, 2**31)})
    assert "elements" in reject(LimitExceeded, huge)
    resize = [node("Resize", ["x", "", "s"], ["y"], mode="linear")]
    wide = model(resize, {"x": [1, 1, 4]}, ["y"], {"s": np.array([1, 1, 1e9], np.float32)})
    assert "constants" in reject(LimitExceeded, wide)
    edge = model([node("Pad", ["x", "p"], ["y"], mode="edge")], {"x": [4]}, ["y"], {"p": ints(2**40, 0)})
    reject(LimitExceeded, edge)


def test_nested_graphs_reach_their_limit() -> None:
    graph = helper.make_graph([node("Identity", ["x"], ["y"])], "then", [], [value("y", [2])])
    other = helper.make_graph([node("Neg", ["x"], ["y"])], "else", [], [value("y", [2])])
    for _ in range(12):
        branch = node("If", ["c"], ["y"], then_branch=graph, else_branch=other)
        graph = helper.make_graph([branch], "then", [], [value("y", [2])])
    inputs = [value("x", [2]), value("c", [], TensorProto.BOOL)]
    program = model(list(graph.node), inputs, [value("y", [2])])
    assert canonicalize(program.SerializeToString(), "onnx").spec_text.count("negate") == 12
    assert "nesting" in reject(LimitExceeded, program, Limits(region_depth=8))
