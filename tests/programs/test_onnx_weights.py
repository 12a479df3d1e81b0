"""What the client takes out of large ONNX models, against the onnx package's own reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import kcache_grpc as kcache
from kcache_grpc.programs.onnx.tensors import read_tensor, tensor_array
from kcache_grpc.programs.source import Source, bound_program, read_source
from tests.conformance.onnx_models.build import model, node, value, weight

pytestmark = pytest.mark.issue(number=19, point=16)

TYPES = [
    number
    for name, number in TensorProto.DataType.items()
    if name not in ("UNDEFINED", "STRING", "FLOAT6E2M3", "FLOAT6E3M2")
]

UNSIGNED = (TensorProto.UINT4, TensorProto.UINT2, TensorProto.FLOAT8E8M0)


def expected(tensor: TensorProto) -> Any:
    """The elements as a kernel's argument has them: bits of narrow floats, numbers of narrow integers."""
    array: Any = numpy_helper.to_array(tensor)
    name = array.dtype.name
    if name.startswith(("float8", "float4")):
        return array.view(np.uint8)
    return (
        array.astype(np.uint8 if "uint" in name else np.int8)
        if name in ("int4", "uint4", "int2", "uint2")
        else array
    )


@pytest.mark.parametrize("data_type", TYPES, ids=TensorProto.DataType.Name)
@pytest.mark.parametrize("raw", [True, False], ids=["raw", "fields"])
def test_tensors_are_read_as_onnx_reads_them(data_type: int, raw: bool) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(data_type)
    low, high = (-2, 2) if data_type == TensorProto.INT2 else (-8, 8)
    if np.dtype(dtype).kind == "u" or data_type in UNSIGNED:
        low, high = 0, 4
    elif data_type == TensorProto.BOOL:
        low, high = 0, 2
    numbers = np.random.default_rng(data_type).integers(low, high, 35).astype(np.float32)
    array = numbers.astype(dtype).reshape(5, 7)
    if raw:
        tensor = numpy_helper.from_array(array, "w")
    else:
        tensor = helper.make_tensor("w", data_type, (5, 7), array.reshape(-1).tolist())
    read = read_tensor(memoryview(tensor.SerializeToString()))
    assert (read.name, read.dims, read.data_type) == ("w", (5, 7), data_type)
    decoded = tensor_array(read, None)
    wanted = expected(tensor)
    assert decoded.dtype == wanted.dtype
    np.testing.assert_array_equal(decoded, wanted)


def layers(seed: int = 0, wide: int = 700) -> onnx.ModelProto:
    """A model with 1.96 MB of weights: initializers, a constant, a branch, and tensors that are sizes."""
    bias = numpy_helper.from_array(weight(wide, seed=seed + 1), "")
    branch = helper.make_graph(
        [node("Add", ["h", "inner"], ["t"])],
        "then",
        [],
        [value("t", ["rows", wide])],
        [numpy_helper.from_array(weight(wide, seed=seed + 2), "inner")],
    )
    other = helper.make_graph([node("Neg", ["h"], ["e"])], "else", [], [value("e", ["rows", wide])])
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("Constant", [], ["b"], value=bias),
        node("Add", ["m", "b"], ["a"]),
        node("Reshape", ["a", "shape"], ["r"]),
        node("Reshape", ["r", "back"], ["h"]),
        node("If", ["c"], ["y"], then_branch=branch, else_branch=other),
    ]
    nodes[0].doc_string = f"stack trace of export {seed}"
    weights = {
        "w": weight(wide, wide, seed=seed),
        "shape": np.array([-1, 2, wide // 2], np.int64),
        "back": np.array([-1, wide], np.int64),
    }
    inputs = [value("x", [3, wide]), value("c", [], TensorProto.BOOL)]
    return model(nodes, inputs, [value("y", [3, wide])], weights)


def arguments(source: Source) -> dict[str, Any]:
    assert source.arguments is not None
    count = len(source.arguments.given)
    return dict(zip(source.arguments.names[count:], source.arguments.values, strict=True))


def test_weights_are_arguments_and_sizes_stay() -> None:
    proto = layers()
    source = read_source(proto, None)
    assert source.arguments is not None
    assert source.arguments.given == ("x", "c")
    assert list(arguments(source)) == ["w", "b", "inner"]
    np.testing.assert_array_equal(arguments(source)["w"], weight(700, 700))
    lifted = onnx.load_from_string(source.program.body)
    onnx.checker.check_model(lifted)
    assert [info.name for info in lifted.graph.input] == ["x", "c", "w", "b", "inner"]
    assert [tensor.name for tensor in lifted.graph.initializer] == ["shape", "back"]
    assert len(source.program.body) < 2000


def test_variants_and_all_forms_are_one_program(tmp_path: Path) -> None:
    plain, external = tmp_path / "plain.onnx", tmp_path / "external.onnx"
    onnx.save(layers(), plain)
    onnx.save(layers(9), external, save_as_external_data=True, location="w.bin", size_threshold=0)
    body = layers(5).SerializeToString()
    forms: list[Any] = [layers(), layers(5), plain, body, bytearray(body), external]
    sources = [read_source(form, None) for form in forms]
    assert len({source.program.digest for source in sources}) == 1
    np.testing.assert_array_equal(arguments(sources[3])["b"], weight(700, seed=6))
    np.testing.assert_array_equal(arguments(sources[5])["w"], weight(700, 700, seed=9))


def test_small_models_stay_as_they_are() -> None:
    proto = layers(wide=10)
    source = read_source(proto, None)
    assert source.arguments is None
    assert source.program.body == proto.SerializeToString(deterministic=True)


def test_an_object_is_copied_when_it_is_read() -> None:
    proto = layers()
    source = read_source(proto, None)
    proto.graph.initializer[0].raw_data = bytes(4 * 700 * 700)
    np.testing.assert_array_equal(arguments(source)["w"], weight(700, 700))


def test_weights_that_old_models_list_as_inputs() -> None:
    proto = layers()
    proto.ir_version = 3
    proto.graph.input.extend(
        helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in proto.graph.initializer
    )
    source = read_source(proto, None)
    assert source.arguments is not None
    assert source.arguments.given == ("x", "c")
    lifted = onnx.load_from_string(source.program.body)
    assert [info.name for info in lifted.graph.input] == ["x", "c", "shape", "back", "w", "b", "inner"]


def test_defaults_of_inputs_are_the_callers() -> None:
    proto = layers()
    proto.graph.input.append(value("w", [700, 700]))
    proto.graph.initializer.append(numpy_helper.from_array(weight(700, 500), "w2"))
    proto.graph.node.append(node("MatMul", ["a", "w2"], ["y2"]))
    source = read_source(proto, None)
    assert source.arguments is not None
    assert source.arguments.given == ("x", "c", "w")
    assert len(source.program.body) < 2000


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "../w.bin"}, "outside of the model's directory"),
        ({"location": "/etc/passwd"}, "outside of the model's directory"),
        ({"location": "missing.bin"}, "no file"),
        ({"location": "w.bin", "offset": "100"}, "cut off"),
        ({"location": "w.bin", "length": "40"}, "10 elements"),
        ({"location": "w.bin", "length": "x"}, "in which file"),
        ({}, "in which file"),
    ],
)
def test_external_data_that_is_not_there(tmp_path: Path, entries: dict[str, str], message: str) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[700, 700])
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in ({"length": str(4 * 700 * 700)} | entries if entries else {}).items():
        tensor.external_data.add(key=key, value=text)
    proto = model([node("MatMul", ["x", "w"], ["y"])], {"x": [2, 700]}, ["y"])
    proto.graph.initializer.append(tensor)
    (tmp_path / "w.bin").write_bytes(bytes(4 * 700 * 700))
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(kcache.InvalidProgram, match=message):
        read_source(path, None)


def test_links_that_lead_out_of_the_directory_are_not_followed(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside.bin", tmp_path / "models"
    outside.write_bytes(bytes(4 * 700 * 700))
    inside.mkdir()
    (inside / "w.bin").symlink_to(outside)
    path = inside / "m.onnx"
    onnx.save(layers(), path, save_as_external_data=True, location="v.bin")
    path.write_bytes(path.read_bytes().replace(b"v.bin", b"w.bin"))
    with pytest.raises(kcache.InvalidProgram, match="outside"):
        read_source(path, None)


def test_a_bound_input_and_external_data(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(layers(), path, save_as_external_data=True, location="w.bin")
    source = read_source(bound_program(path, None, {"c": True}), None)
    assert source.arguments is not None
    assert source.arguments.given == ("x",)
    assert list(arguments(source)) == ["w", "b", "inner"]
