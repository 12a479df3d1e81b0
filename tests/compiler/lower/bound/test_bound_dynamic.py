"""Kernels with bound arguments and dynamic sizes: beside the kernel without, and what is prepared."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.lower.bound.split import split
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.shapes.formula import evaluate_text
from kcache_compiler.shapes.monomial import evaluate
from kcache_compiler.spec.dynamic_graph import dynamic_graph, fixed_sizes, specialize
from kcache_compiler.spec.rendering.dynamic import extent_sizes, render_sample
from kcache_compiler.spec.shape_inference import infer_sizes
from kcache_compiler.spec.text import parse_spec
from kcache_compiler.types import ArgSpec, CompiledKernel, CompileOptions, TensorType
from tests.compiler.codegen_harness import NUMPY, aligned, kernel_of, load
from tests.compiler.dynamic_corpus import COMPILED, TARGET, case
from tests.compiler.passes.bound.convolutional import ProgramText

Array = Any
#: Graphs, and which of their symbols is dynamic.
QUICK = (("layer_norm", 0), ("conv_block", 0), ("gpt_logits", 0))
LAYERS = """
func.func @main(%x: tensor<?x64xf32>, %w: tensor<48x64xf32>, %b: tensor<48xf32>, %v: tensor<96x48xf32>)
    -> tensor<?x96xf32> {
  %two = stablehlo.constant dense<2.0> : tensor<48x64xf32>
  %scaled = stablehlo.multiply %w, %two : tensor<48x64xf32>
  %0 = stablehlo.dot_general %x, %scaled, contracting_dims = [1] x [1]
    : (tensor<?x64xf32>, tensor<48x64xf32>) -> tensor<?x48xf32>
  %rows = stablehlo.get_dimension_size %0, dim = 0 : (tensor<?x48xf32>) -> tensor<i32>
  %rows1 = stablehlo.reshape %rows : (tensor<i32>) -> tensor<1xi32>
  %columns = stablehlo.constant dense<48> : tensor<1xi32>
  %shape = stablehlo.concatenate %rows1, %columns, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %biases = stablehlo.dynamic_broadcast_in_dim %b, %shape, dims = [1]
    : (tensor<48xf32>, tensor<2xi32>) -> tensor<?x48xf32>
  %1 = stablehlo.add %0, %biases : tensor<?x48xf32>
  %2 = stablehlo.tanh %1 : tensor<?x48xf32>
  %3 = stablehlo.dot_general %2, %v, contracting_dims = [1] x [1]
    : (tensor<?x48xf32>, tensor<96x48xf32>) -> tensor<?x96xf32>
  return %3 : tensor<?x96xf32>
}"""


class Bound:
    """A kernel of dynamic sizes with bound arguments, prepared for arrays."""

    def __init__(self, compiled: CompiledKernel, arrays: list[Array]) -> None:
        self.interface = compiled.interface
        self.library = load(compiled.artifacts["so"])
        described = self.interface.bound
        assert described is not None
        self.bound = described.arguments
        self.prepared = aligned((max(1, described.prepared_bytes),), np.uint8)
        workspace = aligned((max(1, evaluate_text(described.workspace, {"workers": 1})),), np.uint8)
        values = [np.ascontiguousarray(arrays[index]) for index in self.bound]
        places = [ctypes.c_void_p(area.ctypes.data) for area in (self.prepared, workspace)]
        assert self.library.kcache_prepare(_pointers(values), None, *places, None) == 0
        self.prepared.flags.writeable = False

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        symbols = {each.name: arrays[each.arg].shape[each.axis] for each in self.interface.symbols}
        outputs = [
            aligned(tuple(evaluate_text(str(dim), symbols) for dim in kind.dims), NUMPY[kind.dtype])
            for kind in self.interface.outputs
        ]
        size = evaluate_text(self.interface.workspace, {**symbols, "workers": 1})
        workspace = aligned((max(1, size),), np.uint8)
        others = [np.ascontiguousarray(each) for index, each in enumerate(arrays) if index not in self.bound]
        dims = (ctypes.c_int64 * len(symbols))(*symbols.values())
        buffers = _pointers([*others, self.prepared, *outputs])
        assert self.library.kcache_run(buffers, dims, ctypes.c_void_p(workspace.ctypes.data), None) == 0
        return tuple(outputs)


def _pointers(arrays: list[Array]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def _agree(name: str, opened: int, values: tuple[int, ...]) -> bool:
    """Compare with the kernel without bound arguments: one symbol is dynamic, the others are fixed, and all
    arguments that do not have it are bound. Returns whether there are such.

    Sums along several axes may be in another order: the arguments are.
    """
    subject = case(name)
    fixed = next(sizes for sizes in subject.sizes(1) if min(sizes.values()) > 1)
    fixed = {symbol: size for symbol, size in fixed.items() if symbol != opened}
    types = subject.types(fixed)
    bound = tuple(n for n, kind in enumerate(types) if all(isinstance(dim, int) for dim in kind.dims))
    if not bound or len(bound) == len(types):
        return False
    options = CompileOptions("strict", bound=bound)
    compiled = compile_spec(subject.canonical.spec_text, ArgSpec(types), TARGET, options, lambda _: None)
    plain = subject.kernel_at(fixed)
    assert compiled.interface.inputs == plain.interface.inputs
    assert compiled.interface.symbols == plain.interface.symbols
    limits = dynamic_graph(subject.graph).sizes.limits
    for value in values:
        sizes = {**fixed, opened: value}
        if all(evaluate(least, sizes) <= evaluate(most, sizes) for least, most in limits):
            arrays = [*subject.arguments(sizes, value), *subject.constants]
            for result, expected in zip(Bound(compiled, arrays)(*arrays), plain(*arrays), strict=True):
                largest = np.max(np.abs(expected), initial=0, where=np.isfinite(expected))
                np.testing.assert_allclose(result, expected, 1e-5, 1e-5 * largest, err_msg=f"{name} {sizes}")
    return True


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("name", "opened"), QUICK)
def test_results_are_those_of_the_kernel_without_bound_arguments(name: str, opened: int):
    assert _agree(name, opened, (1, 2, 9, 33))


@pytest.mark.long
@pytest.mark.parametrize("name", COMPILED)
def test_results_of_the_corpus(name: str):
    symbols = range(len(case(name).canonical.symbols))
    compared = [_agree(name, opened, (1, 2, 3, 8, 9, 17, 64, 200)) for opened in symbols]
    if not any(compared):
        pytest.skip("each argument has all of its symbols")


def rows_are_dynamic() -> tuple[str, ArgSpec]:
    """The spec of ``LAYERS``, and its arguments."""
    canonical = canonicalize(LAYERS.encode(), "stablehlo", "strict")
    shapes: tuple[tuple[int | str, ...], ...] = (
        (canonical.symbolic_args[0].dims[0], 64),
        (48, 64),
        (48,),
        (96, 48),
    )
    return canonical.spec_text, ArgSpec(tuple(TensorType("f32", dims) for dims in shapes))


def test_values_of_static_shape_are_prepared():
    text, arguments = rows_are_dynamic()
    graph = parse_spec(text)
    sized = infer_sizes(dynamic_graph(specialize(graph, fixed_sizes(graph, arguments))))
    samples = sized.sizes.samples(3, 0)
    assert samples is not None
    first, *others = (render_sample(sized.graph, dict(enumerate(sample))) for sample in samples)
    with mlir.new_context(), mlir.unknown_location():
        parts = split(first, (1, 2, 3), others, len(extent_sizes(sized.graph)))
        # The scaled weight, the bias that is broadcast at each call, and the second weight.
        assert sorted(parts.shapes) == [(48,), (48, 64), (96, 48)]
        assert "stablehlo.multiply" not in parts.run_text()
        assert "stablehlo.multiply" in parts.prepare_text(parts.values)


def test_bound_arguments_have_static_sizes():
    text, arguments = rows_are_dynamic()
    with pytest.raises(UnsupportedOp, match="argument 0 has dynamic sizes"):
        compile_spec(text, arguments, TARGET, CompileOptions(bound=(0, 1)), lambda _: None)


def _network(batch: int) -> tuple[str, list[TensorType]]:
    """Convolutions of NCHW images, dense and padded, depthwise, and of one element; and the arguments."""
    program = ProgramText()
    x = program.argument(batch, 16, 9, 10)
    first = program.relu(program.convolution(x, 32, 3, padding=1))
    second = program.relu(program.convolution(first, 32, 3, padding=1, groups=32))
    result = program.relu(program.binary("add", program.convolution(second, 32), first))
    return program.text(result), [TensorType("f64", each.sizes) for each in program.arguments]


@pytest.mark.long
def test_convolutions_of_a_dynamic_batch_have_channels_last():
    text, kinds = _network(7)
    canonical = canonicalize(text.encode(), "stablehlo", "default")
    opened = replace(kinds[0], dims=(canonical.symbolic_args[0].dims[0], *kinds[0].dims[1:]))
    bound = tuple(range(1, len(kinds)))
    arguments, options = ArgSpec((opened, *kinds[1:])), CompileOptions(bound=bound)
    compiled = compile_spec(canonical.spec_text, arguments, TARGET, options, lambda _: None)
    assert b"_packed_in_place_run" in compiled.artifacts["llvm"]
    draw = np.random.default_rng(0)
    _, *weights = arrays = [draw.standard_normal(tuple(map(int, kind.dims))) for kind in kinds]
    dynamic = Bound(compiled, arrays)
    for batch in (1, 2, 5):
        x = draw.standard_normal((batch, *arrays[0].shape[1:]))
        expected = kernel_of(_network(batch)[0], TARGET)(x, *weights)
        np.testing.assert_allclose(dynamic(x, *weights)[0], expected[0], 1e-10, 1e-10)
