"""ONNX models: their specs, the weights that are bound to them, and what their kernels compute."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.frontends.onnx.control_flow import CONTROL_FLOW
from kcache_compiler.frontends.onnx.ops import LEGALIZATIONS
from kcache_compiler.spec.canonicalize import canonicalize as canonicalize_at
from kcache_compiler.spec.instantiate import instantiate
from kcache_compiler.spec.text import parse_spec, write_spec
from kcache_compiler.types import Canonical, CompileOptions
from tests.compiler.codegen_harness import NUMPY, Kernel
from tests.conformance.onnx_models.build import (
    Array,
    arrays_for,
    assert_close,
    ints,
    model,
    node,
    reference,
    reweighted,
    weight,
)
from tests.conformance.onnx_models.corpus import CORPUS, OPEN, attention_block, mlp


def canonical(proto: onnx.ModelProto, numerics: str = "default") -> Canonical:
    return canonicalize(proto.SerializeToString(), "onnx", numerics)


def run(form: Canonical, arrays: list[Array]) -> tuple[Array, ...]:
    """The kernel of a spec at the sizes of these inputs."""
    at_sizes = form.arg_spec.args
    assert all(isinstance(d, int) for arg in at_sizes for d in arg.dims)
    kernel = Kernel(
        compile_spec(form.spec_text, form.arg_spec, "x86-64-v3", CompileOptions(), lambda _: None)
    )
    constants = [np.frombuffer(c.content, NUMPY[c.type.dtype]).reshape(c.type.dims) for c in form.constants]
    return kernel(*arrays, *constants)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", CORPUS)
def test_kernels_compute_what_the_reference_does(name: str) -> None:
    proto = CORPUS[name]()
    arrays = arrays_for(proto)
    assert_close(run(canonical(proto), arrays), reference(proto, arrays))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CORPUS)
def test_other_weights_have_the_same_spec(name: str) -> None:
    proto = CORPUS[name]()
    other = reweighted(proto)
    assert canonical(proto).spec_text == canonical(other).spec_text
    assert other == proto or [c.digest for c in canonical(other).constants] != [
        c.digest for c in canonical(proto).constants
    ]


def test_weights_of_one_content_stay_apart() -> None:
    proto, zeroed = mlp(), reweighted(mlp(), np.zeros_like)
    assert canonical(zeroed).spec_text == canonical(proto).spec_text
    same = reweighted(proto, lambda array: np.full_like(array, 0.5))
    arrays = arrays_for(same)
    assert_close(run(canonical(same), arrays), reference(same, arrays))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CORPUS)
def test_the_spec_at_the_models_sizes_is_its_static_graph(name: str) -> None:
    for proto in (CORPUS[name](), reweighted(CORPUS[name](), np.zeros_like)):
        form = canonical(proto)
        sizes = dict(enumerate(form.symbol_values))
        graph = instantiate(parse_spec(form.spec_text), sizes, [c.digest for c in form.constants])
        fixed = canonicalize_at(proto.SerializeToString(), "onnx", erasing=False)
        assert write_spec(graph) == fixed.spec_text


def test_weights_are_bound_with_their_bytes() -> None:
    proto = mlp()
    form = canonical(proto)
    contents = {numpy_helper.to_array(tensor).tobytes() for tensor in proto.graph.initializer}
    assert {constant.content for constant in form.constants} == contents
    assert [constant.position for constant in form.constants] == [0, 1, 2, 3]
    assert form.arg_names == ("x",)
    assert [str(arg) for arg in form.arg_spec.args] == ["f32[4,8]"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OPEN)
def test_open_dims_are_symbols_of_the_spec_of_any_size(name: str) -> None:
    make, names, sizes = OPEN[name]
    opened = canonical(make(*names))
    assert -1 in opened.symbol_values
    large = [at for at in sizes if min(at.values()) > 1]
    for at in large:
        fixed = canonical(make(*(at[n] for n in names)))
        assert fixed.spec_text == opened.spec_text
        assert fixed.symbolic_args == opened.symbolic_args
        assert -1 not in fixed.symbol_values


def test_one_name_is_one_symbol() -> None:
    nodes = [node("Mul", ["x", "z"], ["y"])]
    same = canonical(model(nodes, {"x": ["N", 3], "z": ["N", 3]}, ["y"]))
    assert len({str(arg.dims[0]) for arg in same.symbolic_args}) == 1
    assert same.symbol_values[0] == -1
    products = [node("MatMul", ["x", "z"], ["y"])]
    apart = canonical(model(products, {"x": ["N", "K"], "z": ["K", "M"]}, ["y"]))
    assert [str(arg) for arg in apart.symbolic_args] == ["f32[s0,s1]", "f32[s1,s2]"]


def test_a_size_that_the_graph_fixes_cannot_be_open() -> None:
    nodes = [node("Slice", ["x", "a", "b"], ["y"])]
    with pytest.raises(UnsupportedOp, match=r"'N'.*update_model_dims"):
        canonical(model(nodes, {"x": ["N", 3]}, ["y"], {"a": ints(-2), "b": ints(9999)}))


def test_a_graph_that_pads_to_a_multiple_is_not_one_for_all_sizes() -> None:
    """At sizes that are multiples already it would be."""
    nodes = [
        node("Shape", ["x"], ["s"], start=0, end=1),
        node("Mod", ["s", "eight"], ["over"]),
        node("Sub", ["eight", "over"], ["short"]),
        node("Mod", ["short", "eight"], ["missing"]),
        node("Concat", ["zeros", "missing", "zero"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["y"]),
    ]
    weights = {"eight": ints(8), "zeros": ints(0, 0), "zero": ints(0)}
    with pytest.raises(UnsupportedOp, match="'N'"):
        canonical(model(nodes, {"x": ["N", 3]}, ["y"], weights))


def test_a_split_of_an_open_size_is_rejected_by_its_name() -> None:
    halves = model([node("Reshape", ["x", "s"], ["y"])], {"x": ["N", 3]}, ["y"], {"s": ints(-1, 2, 3)})
    with pytest.raises(UnsupportedOp, match="'N'"):
        canonical(halves)


def test_names_and_order_do_not_matter() -> None:
    proto = attention_block()
    other = onnx.ModelProto()
    other.CopyFrom(proto)
    other.producer_name = "another"
    other.graph.name = "renamed"
    for i, n in enumerate(other.graph.node):
        n.name = f"node {i}"
        for names in (n.input, n.output):
            for j, name in enumerate(names):
                names[j] = name and f"renamed_{name}"
    for item in (*other.graph.initializer, *other.graph.input, *other.graph.output):
        item.name = f"renamed_{item.name}"
    tensors = list(other.graph.initializer)
    random.Random(5).shuffle(tensors)
    del other.graph.initializer[:]
    other.graph.initializer.extend(tensors)
    assert canonical(other).spec_text == canonical(proto).spec_text


def test_nothing_goes_through_f64() -> None:
    for name in ("normalizations", "attention_block", "losses", "activations"):
        assert "f64" not in canonical(CORPUS[name]()).spec_text


def test_an_operator_means_what_its_parts_mean() -> None:
    whole = model([node("Softmax", ["x"], ["y"])], {"x": [4, 7]}, ["y"])
    parts = [
        node("ReduceMax", ["x", "axis"], ["m"]),
        node("Sub", ["x", "m"], ["d"]),
        node("Exp", ["d"], ["e"]),
        node("ReduceSum", ["e", "axis"], ["s"]),
        node("Div", ["e", "s"], ["y"]),
    ]
    written = model(parts, {"x": [4, 7]}, ["y"], {"axis": ints(-1)})
    for numerics in ("strict", "default"):
        assert canonical(whole, numerics).spec_text == canonical(written, numerics).spec_text


def test_specs_meet_those_of_stablehlo() -> None:
    text = b"""func.func @main(
        %x: tensor<4x8xf32>, %w: tensor<8x3xf32>, %b: tensor<3xf32>) -> tensor<4x3xf32> {
      %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
      %c = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<3xf32>) -> tensor<4x3xf32>
      %s = stablehlo.add %p, %c : tensor<4x3xf32>
      %z = stablehlo.constant dense<0.0> : tensor<4x3xf32>
      %r = stablehlo.maximum %s, %z : tensor<4x3xf32>
      return %r : tensor<4x3xf32> }"""
    nodes = [node("Gemm", ["x", "w", "b"], ["h"]), node("Relu", ["h"], ["y"])]
    proto = model(nodes, {"x": [4, 8], "w": [8, 3], "b": [3]}, ["y"])
    assert canonical(proto, "strict").spec_text == canonicalize(text, "stablehlo", "strict").spec_text


def test_weights_in_constant_nodes_are_weights() -> None:
    def weighted(seed: int) -> onnx.ModelProto:
        constant = node("Constant", [], ["w"], value=numpy_helper.from_array(weight(8, 3, seed=seed)))
        return model([constant, node("MatMul", ["x", "w"], ["y"])], {"x": [4, 8]}, ["y"])

    assert canonical(weighted(1)).spec_text == canonical(weighted(2)).spec_text
    assert [str(c.type) for c in canonical(weighted(1)).constants] == ["f32[8,3]"]


def test_initializers_that_are_inputs_are_the_callers_since_ir_4() -> None:
    nodes = [node("Add", ["x", "w"], ["y"])]
    proto = model(nodes, {"x": [4, 3], "w": [4, 3]}, ["y"], {"w": weight(4, 3)})
    form = canonical(proto)
    assert (len(form.arg_spec.args), len(form.constants)) == (2, 0)
    proto.ir_version = 3
    old = canonical(proto)
    assert (len(old.arg_spec.args), len(old.constants)) == (1, 1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("opset", [7, 9, 11, 13, 17, 21, 24])
def test_opsets(opset: int) -> None:
    """Axes and limits were attributes before they were inputs."""
    weights = {"shape": ints(2, 6), "axes": ints(1), "low": np.array(-0.5, np.float32)}
    reduce = (
        node("ReduceSum", ["c", "axes"], ["r"]) if opset >= 13 else node("ReduceSum", ["c"], ["r"], axes=[1])
    )
    clip = node("Clip", ["x", "low"], ["c"]) if opset >= 11 else node("Clip", ["x"], ["c"], min=-0.5)
    nodes = [clip, reduce, node("Softmax", ["c"], ["s"], axis=1), node("Reshape", ["s", "shape"], ["y"])]
    used = {name: array for name, array in weights.items() if any(name in n.input for n in nodes)}
    proto = model(nodes, {"x": [3, 4]}, ["r", "y"], used, opset=opset)
    proto.ir_version = 8
    arrays = arrays_for(proto)
    assert_close(run(canonical(proto), arrays), reference(proto, arrays))


def test_the_documentation_lists_the_operators() -> None:
    text = (Path(__file__).parents[4] / "docs" / "guide" / "onnx.md").read_text()
    listed = re.search(r"(?s) implements these operators:\n\n(.*?)\.\n", text)
    assert listed is not None
    random_ops = {op for op in LEGALIZATIONS if op.startswith("Random")} | {"Bernoulli", "Multinomial"}
    assert set(re.findall(r"`(\w+)`", listed[1])) == (set(LEGALIZATIONS) - random_ops) | set(CONTROL_FLOW)


def _of_the_size(*nodes: onnx.NodeProto, **weights: Array) -> onnx.ModelProto:
    """A model that computes ``q`` of ``d``, the size of its open axis, and adds it to the input."""
    steps = [
        node("Shape", ["x"], ["d"], start=0, end=1),
        *nodes,
        node("Cast", ["q"], ["f"], to=1),
        node("Add", ["x", "f"], ["y"]),
    ]
    return model(steps, {"x": ["N", 3]}, ["y"], weights)


@pytest.mark.parametrize(
    "proto",
    [
        _of_the_size(node("Div", ["d", "k"], ["q"]), k=ints(1000)),
        _of_the_size(node("Mod", ["d", "k"], ["q"]), k=ints(5)),
        _of_the_size(node("Greater", ["d", "k"], ["q"]), k=ints(20)),
        _of_the_size(node("Less", ["d", "k"], ["q"]), k=ints(300)),
        model(
            [node("Slice", ["x", "a", "b"], ["y"])], {"x": ["N", 3]}, ["y"], {"a": ints(0), "b": ints(512)}
        ),
        model(
            [node("Slice", ["x", "a", "b"], ["y"])], {"x": ["N", 3]}, ["y"], {"a": ints(-99), "b": ints(9999)}
        ),
    ],
    ids=["quotient", "remainder", "above", "below", "head", "tail"],
)
def test_a_size_that_the_graph_holds_against_a_number_cannot_be_open(proto: onnx.ModelProto) -> None:
    """It is one program on one side of the number, and another on the other."""
    with pytest.raises(UnsupportedOp, match="'N'"):
        canonical(proto)


def test_numbers_that_no_size_meets_do_not_matter() -> None:
    whole = model(
        [node("Slice", ["x", "a", "b"], ["y"])], {"x": ["N", 3]}, ["y"], {"a": ints(0), "b": ints(2**62)}
    )
    same = model([node("Identity", ["x"], ["y"])], {"x": ["N", 3]}, ["y"])
    assert canonical(whole).spec_text == canonical(same).spec_text
