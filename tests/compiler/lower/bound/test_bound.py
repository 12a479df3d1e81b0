"""Kernels with bound arguments: what is prepared, bits beside the kernel without, packed operands."""

from __future__ import annotations

import ctypes
import mmap
import random
from pathlib import Path

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.bound import lower_bound
from kcache_compiler.compile import lower_module
from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.lower.bound.split import split
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.shapes.formula import evaluate_text
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import NUMPY, Host, Kernel, aligned, load
from tests.compiler.passes.bound.convolutional import ProgramText
from tests.compiler.random_programs import random_program

RANDOM = np.random.default_rng(20261129)
NORMALIZED = """
func.func @main(%x: tensor<8x16xf32>, %w: tensor<12x16xf32>, %b: tensor<12xf32>, %v: tensor<16xf32>)
    -> (tensor<8x12xf32>, tensor<16xf32>) {
  %epsilon = stablehlo.constant dense<1.0e-5> : tensor<16xf32>
  %variance = stablehlo.add %v, %epsilon : tensor<16xf32>
  %scale = stablehlo.rsqrt %variance : tensor<16xf32>
  %scales = stablehlo.broadcast_in_dim %scale, dims = [1] : (tensor<16xf32>) -> tensor<12x16xf32>
  %scaled = stablehlo.multiply %w, %scales : tensor<12x16xf32>
  %t = stablehlo.transpose %scaled, dims = [1, 0] : (tensor<12x16xf32>) -> tensor<16x12xf32>
  %product = stablehlo.dot_general %x, %t, contracting_dims = [1] x [0]
    : (tensor<8x16xf32>, tensor<16x12xf32>) -> tensor<8x12xf32>
  %biases = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<12xf32>) -> tensor<8x12xf32>
  %result = stablehlo.add %product, %biases : tensor<8x12xf32>
  return %result, %scale : tensor<8x12xf32>, tensor<16xf32>
}"""


class Bound:
    """A kernel with bound arguments, which NumPy arrays are bound to."""

    def __init__(
        self,
        text: str,
        inputs: int,
        bound: list[int],
        numerics: str,
        opt_level: int = 3,
        target: str = "x86-64-v2",
    ) -> None:
        options = CompileOptions(numerics, opt_level, bound=tuple(bound))
        self.compiled = lower_bound(text, inputs, target, options, lambda _: None)
        self.interface = self.compiled.interface
        self.library = load(self.compiled.artifacts["so"])

    def prepare(self, *arrays: np.ndarray, fill: int = 0) -> np.ndarray:
        described = self.interface.bound
        assert described is not None
        prepared = aligned((described.prepared_bytes,), np.uint8, fill)
        workspace = aligned((evaluate_text(described.workspace, {"workers": 1}),), np.uint8)
        pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        places = [ctypes.c_void_p(area.ctypes.data) for area in (prepared, workspace)]
        assert self.library.kcache_prepare(pointers, None, *places, None) == 0
        return prepared

    def run(
        self, prepared: np.ndarray, *arrays: np.ndarray, host: Host | None = None, fill: int = 0xA5
    ) -> list[np.ndarray]:
        """The outputs, whose bytes are ``fill`` before."""
        outputs = [aligned(tuple(map(int, o.dims)), NUMPY[o.dtype], fill) for o in self.interface.outputs]
        workers = 1 if host is None else host.workers
        workspace = aligned((evaluate_text(self.interface.workspace, {"workers": workers}),), np.uint8)
        addresses = [array.ctypes.data for array in (*arrays, prepared, *outputs)]
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        area, called = ctypes.c_void_p(workspace.ctypes.data), None if host is None else ctypes.byref(host)
        assert self.library.kcache_run(pointers, None, area, called) == 0
        return outputs


def compare(
    text: str,
    arrays: list[np.ndarray],
    bound: list[int],
    numerics: str,
    level: int = 2,
    target: str = "x86-64-v2",
) -> Bound:
    """Require equal bytes of the results with and without bound arguments."""
    options = CompileOptions(numerics, level)
    plain = Kernel(lower_module(text, len(arrays), target, options, lambda _: None))
    kernel = Bound(text, len(arrays), bound, numerics, level, target)
    prepared = kernel.prepare(*(arrays[index] for index in bound))
    prepared.flags.writeable = False
    others = [array for index, array in enumerate(arrays) if index not in bound]
    for result, expected in zip(kernel.run(prepared, *others), plain(*arrays), strict=True):
        assert result.tobytes() == expected.tobytes()
    return kernel


def normal(*shape: int, dtype: str = "f32") -> np.ndarray:
    return np.ascontiguousarray(RANDOM.standard_normal(shape).astype(NUMPY[dtype]))


def test_operations_on_bound_arguments_alone_are_prepared():
    with mlir.new_context(), mlir.unknown_location():
        parts = split(NORMALIZED, {1, 2, 3})
        prepare, run = parts.prepare_text(parts.values), parts.run_text()
        modules = mlir.parse(prepare), mlir.parse(run)
        bodies = [mlir.block_of(mlir.main_function(module)) for module in modules]
        names = [[mlir.name_of(op).partition(".")[2] for op in mlir.operations(body)] for body in bodies]
        types = [[str(argument.type) for argument in body.arguments] for body in bodies]
    assert names[0] == ["constant", "add", "rsqrt", "broadcast_in_dim", "multiply", "transpose", "return"]
    assert names[1] == ["dot_general", "broadcast_in_dim", "add", "return"]
    assert types[0] == ["tensor<12x16xf32>", "tensor<12xf32>", "tensor<16xf32>"]
    # A bias stays a vector: what is broadcast is larger than the arguments that it is made of.
    assert types[1] == ["tensor<8x16xf32>", "tensor<12xf32>", "tensor<16xf32>", "tensor<16x12xf32>"]


@pytest.mark.parametrize("numerics", ["strict", "default"])
def test_bits_are_those_of_the_kernel_without_bound_arguments(numerics: str):
    arrays = [normal(8, 16), normal(12, 16), normal(12), np.abs(normal(16))]
    compare(NORMALIZED, arrays, [1, 2, 3], numerics)


@pytest.mark.parametrize("bound", [[0], [0, 1, 2, 3]], ids=["an input that nothing is computed of", "all"])
def test_any_arguments_may_be_bound(bound: list[int]):
    arrays = [normal(8, 16), normal(12, 16), normal(12), np.abs(normal(16))]
    compare(NORMALIZED, arrays, bound, "strict", level=1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(3))
def test_random_programs_with_random_bound_arguments(seed: int):
    program = random_program(seed)
    draw, values = random.Random(seed), np.random.default_rng(seed)
    count = len(program.arguments)
    arrays = [
        np.asarray(values.integers(0, 2 if element == "i1" else 100, size=dims)).astype(NUMPY[element])
        for element, dims in program.arguments
    ]
    bound = sorted(draw.sample(range(count), draw.randint(1, count)))
    compare(program.text, arrays, bound, "strict", level=1)


def product(
    m: int | str, n: int, k: int, turned: bool, dtype: str, batch: str = "", shared: bool = True
) -> str:
    lhs, result = f"tensor<{batch}{m}x{k}x{dtype}>", f"tensor<{batch}{m}x{n}x{dtype}>"
    rhs = f"{n}x{k}" if turned else f"{k}x{n}"
    rhs = f"tensor<{rhs}x{dtype}>" if shared else f"tensor<{batch}{rhs}x{dtype}>"
    axes = f"[{2 if batch else 1}] x [{int(turned) + (not shared)}]"
    batching = "" if shared else "batching_dims = [0] x [0], "
    return f"""
func.func @main(%x: {lhs}, %w: {rhs}) -> {result} {{
  %0 = stablehlo.dot_general %x, %w, {batching}contracting_dims = {axes} : ({lhs}, {rhs}) -> {result}
  return %0 : {result}
}}"""


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("m", "n", "k", "turned", "dtype"),
    [
        (40, 50, 70, False, "f32"),
        (61, 67, 300, True, "f32"),
        (37, 515, 513, False, "f64"),
        (61, 67, 71, True, "bf16"),
    ],
)
@pytest.mark.parametrize("numerics", ["strict", "default"])
def test_right_operands_are_packed_when_they_are_bound(
    m: int, n: int, k: int, turned: bool, dtype: str, numerics: str
):
    weights = normal(n, k, dtype=dtype) if turned else normal(k, n, dtype=dtype)
    kernel = compare(product(m, n, k, turned, dtype), [normal(m, k, dtype=dtype), weights], [1], numerics)
    if dtype == "bf16" and numerics == "strict":
        return  # computed by loops: every sum is rounded
    assert b"_packed_run" in kernel.compiled.artifacts["llvm"]


@pytest.mark.parametrize("shared", [True, False])
def test_batches_of_products(shared: bool):
    weights = normal(50, 70) if shared else normal(3, 50, 70)
    text = product(40, 50, 70, True, "f32", "3x", shared)
    kernel = compare(text, [normal(3, 40, 70), weights], [1], "strict")
    assert b"_packed_run" in kernel.compiled.artifacts["llvm"]


LEFT = """
func.func @main(%x: tensor<3x8x7x300xf32>, %w: tensor<3x300x50xf32>, %r: tensor<3x50x8x7xf32>)
    -> (tensor<3x50x8x7xf32>, tensor<8x3x50x7xf32>, tensor<3x8x7x50xf32>) {
  %0 = stablehlo.dot_general %w, %x, batching_dims = [0] x [0], contracting_dims = [1] x [3],
    precision = [DEFAULT, HIGHEST]
    : (tensor<3x300x50xf32>, tensor<3x8x7x300xf32>) -> tensor<3x50x8x7xf32>
  %1 = stablehlo.add %0, %r : tensor<3x50x8x7xf32>
  %2 = stablehlo.transpose %0, dims = [2, 0, 1, 3] : (tensor<3x50x8x7xf32>) -> tensor<8x3x50x7xf32>
  %3 = stablehlo.transpose %0, dims = [0, 2, 3, 1] : (tensor<3x50x8x7xf32>) -> tensor<3x8x7x50xf32>
  return %1, %2, %3 : tensor<3x50x8x7xf32>, tensor<8x3x50x7xf32>, tensor<3x8x7x50xf32>
}"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("numerics", ["strict", "default"])
def test_left_operands_are_packed_as_right_ones_when_they_are_bound(numerics: str):
    kernel = compare(LEFT, [normal(3, 8, 7, 300), normal(3, 300, 50), normal(3, 50, 8, 7)], [1], numerics)
    assert b"_packed_run" in kernel.compiled.artifacts["llvm"]


def test_operands_are_exchanged_where_the_left_one_alone_is_prepared():
    with mlir.new_context(), mlir.unknown_location():
        left, both, vector = (
            split(LEFT, {1}).run_text(),
            split(LEFT, {0, 1}).run_text(),
            split(product(40, 1, 70, False, "f32"), {0}).run_text(),
        )
    assert 'stablehlo.dot_general"(%arg0, %arg2)' in left
    assert "precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision DEFAULT>]" in left
    assert "array<i64: 1, 0, 3, 2>" in left  # a transposition of the transposed result
    assert left.count("stablehlo.transpose") == 2
    assert "stablehlo.dot_general" not in both
    assert 'stablehlo.dot_general"(%arg1, %arg0)' in vector


def test_an_operand_that_is_read_twice_is_not_packed():
    text = """
    func.func @main(%x: tensor<40x70xf32>, %w: tensor<70x50xf32>) -> (tensor<40x50xf32>, tensor<70x50xf32>) {
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<40x70xf32>, tensor<70x50xf32>) -> tensor<40x50xf32>
      %1 = stablehlo.tanh %w : tensor<70x50xf32>
      %2 = stablehlo.slice %x [0:1, 0:70] : (tensor<40x70xf32>) -> tensor<1x70xf32>
      %3 = stablehlo.reshape %2 : (tensor<1x70xf32>) -> tensor<70xf32>
      %4 = stablehlo.broadcast_in_dim %3, dims = [0] : (tensor<70xf32>) -> tensor<70x50xf32>
      %5 = stablehlo.multiply %w, %4 : tensor<70x50xf32>
      %6 = stablehlo.add %5, %1 : tensor<70x50xf32>
      return %0, %6 : tensor<40x50xf32>, tensor<70x50xf32>
    }"""
    kernel = compare(text, [normal(40, 70), normal(70, 50)], [1], "strict")
    assert b"_packed_run" not in kernel.compiled.artifacts["llvm"]


def test_prepared_bytes_depend_on_values_alone_and_may_be_mapped_read_only(tmp_path: Path):
    text = product(40, 50, 70, True, "f32")
    kernel = Bound(text, 2, [1], "default")
    x, weights = normal(40, 70), normal(50, 70)
    first, second = kernel.prepare(weights), kernel.prepare(weights.copy())
    assert first.tobytes() == second.tobytes()
    (expected,) = kernel.run(first, x)
    (tmp_path / "prepared").write_bytes(first.tobytes())
    first[:] = 0xFF
    with (tmp_path / "prepared").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    (result,) = kernel.run(np.frombuffer(mapped, np.uint8), x)
    assert result.tobytes() == expected.tobytes()


def test_layouts_and_scales_are_those_of_the_weights():
    program = ProgramText()
    value = program.relu(program.convolution(program.argument(1, 3, 13, 13), 16, 3, 2, 1))
    for groups in (1, 16):
        value = program.convolution(value, 16, 3, 1, 1, groups)
        scale = program.broadcast(program.argument(16), value.sizes, 1)
        value = program.relu(program.binary("multiply", value, scale))
    text = program.text(value).replace("f64", "f32")
    arrays = [normal(*argument.sizes) for argument in program.arguments]
    bound = list(range(1, len(arrays)))
    (expected,) = Kernel(
        lower_module(text, len(arrays), "x86-64-v2", CompileOptions("strict", 1), lambda _: None)
    )(*arrays)
    kernel = Bound(text, len(arrays), bound, "default", 1)
    (result,) = kernel.run(kernel.prepare(*arrays[1:]), arrays[0])
    np.testing.assert_allclose(result, expected, 1e-5, 1e-5 * np.abs(expected).max())


def test_kernels_with_bound_arguments_say_their_version():
    kernel = Bound(NORMALIZED, 4, [1], "default", opt_level=1)
    assert kernel.library.kcache_abi() == kernel.interface.abi == 2
    described = kernel.interface.bound
    assert described is not None
    assert described.arguments == (1,)


def test_constants_are_bound_with_the_arguments():
    values = RANDOM.standard_normal((64, 64)).astype(np.float32)
    text = f"""
    func.func @main(%x: tensor<40x64xf32>, %b: tensor<64xf32>) -> tensor<40x64xf32> {{
      %w = stablehlo.constant dense<"0x{values.tobytes().hex()}"> : tensor<64x64xf32>
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<40x64xf32>, tensor<64x64xf32>) -> tensor<40x64xf32>
      %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<64xf32>) -> tensor<40x64xf32>
      %2 = stablehlo.add %0, %1 : tensor<40x64xf32>
      return %2 : tensor<40x64xf32>
    }}"""
    graph = canonicalize(text.encode(), "stablehlo", "default")
    options = CompileOptions(bound=(1,))
    compiled = compile_spec(graph.spec_text, graph.arg_spec, "x86-64-v2", options, lambda _: None)
    assert compiled.interface.bound is not None
    assert compiled.interface.bound.arguments == (1, 2)
    assert len(compiled.interface.constants) == len(graph.constants) == 1


def test_what_cannot_be_bound_is_rejected():
    def lower(target: str, index: int) -> None:
        lower_bound(NORMALIZED, 4, target, CompileOptions(bound=(index,)), lambda _: None)

    with pytest.raises(InvalidProgram, match="bound argument 4 of a program with 4 inputs"):
        lower("x86-64-v2", 4)
    with pytest.raises(UnsupportedOp, match="GPU"):
        lower("sm_90", 0)
