"""One kernel for all sizes agrees with NumPy, and with kernels of given sizes bit for bit."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import pytest

from benchmarks.chains.programs import chain
from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.types import ArgSpec, Canonical, CompiledKernel, CompileOptions, TensorType
from tests.compiler.codegen_harness import Kernel, threaded_host
from tests.compiler.dynamic_programs import PROGRAMS, OpenProgram

TARGET = "x86-64-v2"
STRICT = CompileOptions(numerics="strict")
SIZES = (0, 1, 2, 3, 4, 5, 8, 13, 20)


def _canonical(program: OpenProgram, sizes: tuple[int, ...]) -> Canonical:
    return canonicalize(program.text(*sizes).encode(), "stablehlo", "strict")


def _compile(spec_text: str, args: tuple[TensorType, ...]) -> CompiledKernel:
    return compile_spec(spec_text, ArgSpec(args), TARGET, STRICT, lambda _: None)


@cache
def _open_kernel(program: OpenProgram) -> Kernel:
    canonical = _canonical(program, program.sizes)
    assert canonical.symbols, "some size is open"
    return Kernel(_compile(canonical.spec_text, canonical.symbolic_args))


def _fits(kernel: Kernel, arrays: list[Any]) -> bool:
    """The program at these sizes has the spec's axes of given size."""
    stated = [dim for kind in kernel.interface.inputs for dim in kind.dims]
    sizes = [size for array in arrays for size in array.shape]
    return all(dim == size for dim, size in zip(stated, sizes, strict=True) if isinstance(dim, int))


def _tuples(program: OpenProgram, count: int) -> list[tuple[int, ...]]:
    """Its own sizes, the smallest, all alike, and at random; of fixed axes their own."""
    generator = random.Random(program.name)
    kernel = _open_kernel(program)
    least = [size for size in SIZES if size >= program.least]

    def may_be(i: int, size: int) -> bool:
        return _fits(kernel, program.draw((*program.sizes[:i], size, *program.sizes[i + 1 :]), 0))

    free = [may_be(i, least[0]) and may_be(i, 8) for i in range(len(program.sizes))]
    drawn = [[least[0]] * len(free), [1] * len(free), [8] * len(free)]
    drawn += [generator.choices(least[:2], k=len(free)) for _ in range(3)]
    drawn += [generator.choices(least, k=len(free)) for _ in range(count)]
    tuples = [program.sizes]
    tuples += [
        tuple(size if open_ else own for size, open_, own in zip(sizes, free, program.sizes, strict=True))
        for sizes in drawn
    ]
    return list(dict.fromkeys(tuples))


def _agree(program: OpenProgram, count: int) -> None:
    kernel = _open_kernel(program)
    for seed, sizes in enumerate(_tuples(program, count)):
        arrays = program.draw(sizes, seed)
        (got,) = kernel(*arrays)
        with np.errstate(all="ignore"):
            expected = program.expected(*arrays)
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5, err_msg=f"at {sizes}")


@pytest.mark.sampled(24)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
@pytest.mark.filterwarnings("ignore:Degrees of freedom")
def test_a_kernel_of_all_sizes_agrees_with_numpy(program: OpenProgram) -> None:
    _agree(program, 30)


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
@pytest.mark.filterwarnings("ignore:Degrees of freedom")
def test_a_kernel_of_all_sizes_agrees_with_numpy_on_a_thousand(program: OpenProgram) -> None:
    _agree(program, 1000)


def _same_bits(program: OpenProgram, tuples: list[tuple[int, ...]]) -> int:
    compared = 0
    for seed, sizes in enumerate(tuples):
        canonical = _canonical(program, sizes)
        try:
            static = Kernel(_compile(canonical.spec_text, canonical.arg_spec.args))
        except UnsupportedOp:  # windows over nothing, for one
            continue
        arrays = program.draw(sizes, seed)
        (got,), (expected,) = _open_kernel(program)(*arrays), static(*arrays)
        assert got.shape == expected.shape
        assert got.tobytes() == expected.tobytes(), f"at {sizes}"
        compared += 1
    return compared


@pytest.mark.sampled(48)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_kernels_of_given_sizes_give_the_same_bits(program: OpenProgram) -> None:
    tuples = _tuples(program, 4)
    assert _same_bits(program, [tuples[0], tuples[2], tuples[-1]]) >= 2


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_kernels_of_twenty_given_sizes_give_the_same_bits(program: OpenProgram) -> None:
    tuples = _tuples(program, 20)[:20]  # fewer of one open axis
    assert _same_bits(program, tuples) >= 3 * len(tuples) // 4


def _named(name: str) -> OpenProgram:
    return next(program for program in PROGRAMS if program.name == name)


def test_arguments_share_the_symbols_of_the_spec() -> None:
    interface = _open_kernel(_named("matmul")).interface
    assert [str(kind) for kind in interface.inputs] == ["f32[s0,s1]", "f32[s1,s2]", "f32[s2]"]
    assert [str(kind) for kind in interface.outputs] == ["f32[s0,s2]"]
    assert [(s.name, s.arg, s.axis) for s in interface.symbols] == [("s0", 0, 0), ("s1", 0, 1), ("s2", 1, 1)]


def test_an_axis_may_be_a_product() -> None:
    interface = _open_kernel(_named("flat")).interface
    assert [str(kind) for kind in interface.inputs] == ["f32[s0,s1]", "f32[s0*s1]"]
    assert [str(kind) for kind in interface.outputs] == ["f32[s0*s1]"]


def test_some_sizes_may_be_given() -> None:
    program = _named("matmul")
    canonical = _canonical(program, program.sizes)
    args = (TensorType("f32", (4, "s1")), TensorType("f32", ("s1", 3)), TensorType("f32", (3,)))
    kernel = Kernel(_compile(canonical.spec_text, args))
    assert [str(kind) for kind in kernel.interface.inputs] == ["f32[4,s1]", "f32[s1,3]", "f32[3]"]
    assert [symbol.name for symbol in kernel.interface.symbols] == ["s1"]
    for inner in (0, 1, 6):
        arrays = program.draw((4, inner, 3), inner)
        np.testing.assert_allclose(kernel(*arrays)[0], program.expected(*arrays), rtol=1e-5, atol=1e-6)


def test_an_arg_spec_that_contradicts_the_spec_names_the_axis() -> None:
    program = _named("matmul")
    canonical = _canonical(program, program.sizes)
    args = (TensorType("f32", (4, 6)), TensorType("f32", (7, 3)), TensorType("f32", (3,)))
    with pytest.raises(InvalidProgram, match=r"argument 1 .*axis 0"):
        _compile(canonical.spec_text, args)


def test_a_product_is_given_with_the_sizes_that_it_is_made_of() -> None:
    program = _named("flat")
    canonical = _canonical(program, program.sizes)
    args = (TensorType("f32", ("s0", "s1")), TensorType("f32", (12,)))
    with pytest.raises(InvalidProgram, match=r"argument 1 has size 12 along axis 0, .* s0\*s1"):
        _compile(canonical.spec_text, args)


def test_a_row_of_nothing_is_an_error_code() -> None:
    kernel = _open_kernel(_named("row-of"))
    with pytest.raises(RuntimeError, match="sizes of the arguments do not fit"):
        kernel(np.zeros((0, 4), "f4"), np.int32(0))


def test_threads_share_launches_of_open_size() -> None:
    program = _named("matmul")
    arrays = program.draw((301, 33, 257), 0)
    kernel, host = _open_kernel(program), threaded_host(3)
    np.testing.assert_array_equal(kernel(*arrays, host=host)[0], kernel(*arrays)[0])
    assert any(n == 102 for n, _ in host.calls)  # panels of 6 rows, two blocks of columns


def test_equal_specs_give_equal_bytes() -> None:
    program = _named("softmax")
    canonical = _canonical(program, program.sizes)
    first, second = (_compile(canonical.spec_text, canonical.symbolic_args) for _ in range(2))
    assert first.artifacts == second.artifacts
    assert first.interface == second.interface


def test_the_module_says_at_which_sizes_it_is_shown() -> None:
    shown = _open_kernel(_named("softmax")).compiled.artifacts["mlir"]
    head, _, module = shown.decode().partition("\n")
    assert head.startswith("// One kernel for all sizes, shown at s0 = ")
    with mlir.new_context(), mlir.unknown_location():
        mlir.parse(module)


_OPEN = "tensor<?x?xf32>"
_LIKE = f"""func.func @main(%a: tensor<?xf32>, %b: {_OPEN}) -> {_OPEN} {{
  %m = stablehlo.get_dimension_size %b, dim = 0 : ({_OPEN}) -> tensor<i32>
  %n = stablehlo.get_dimension_size %b, dim = 1 : ({_OPEN}) -> tensor<i32>
  %mv = stablehlo.reshape %m : (tensor<i32>) -> tensor<1xi32>
  %nv = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %shape = stablehlo.concatenate %mv, %nv, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %w = stablehlo.dynamic_broadcast_in_dim %a, %shape, dims = [1] : (tensor<?xf32>, tensor<2xi32>) -> {_OPEN}
  %r = stablehlo.add %b, %w : {_OPEN}
  return %r : {_OPEN}
}}"""


def test_a_program_that_computes_its_sizes_keeps_them_open() -> None:
    canonical = canonicalize(_LIKE.encode(), "stablehlo", "strict")
    kernel = Kernel(_compile(canonical.spec_text, canonical.arg_spec.args))
    generator = np.random.default_rng(0)
    for rows, columns in ((3, 4), (1, 1), (0, 5), (5, 0), (7, 1)):
        b = generator.standard_normal((rows, columns)).astype("f4")
        for a in (generator.standard_normal(columns).astype("f4"), np.ones(1, "f4")):
            np.testing.assert_array_equal(kernel(a, b)[0], a + b)
    with pytest.raises(RuntimeError, match="sizes of the arguments do not fit"):
        kernel(np.ones(3, "f4"), np.ones((2, 4), "f4"))


def test_a_number_next_to_computed_sizes_is_rejected_by_name() -> None:
    """The spec repeats it as a view, which has no form where sizes are computed."""
    clamped = """
  %low = stablehlo.constant dense<-2.0> : tensor<f32>
  %high = stablehlo.constant dense<2.0> : tensor<f32>
  %v = stablehlo.clamp %low, %w, %high : (tensor<f32>, KIND, tensor<f32>) -> KIND
  %r = stablehlo.add %b, %v"""
    text = _LIKE.replace("\n  %r = stablehlo.add %b, %w", clamped.replace("KIND", _OPEN))
    canonical = canonicalize(text.encode(), "stablehlo", "strict")
    with pytest.raises(UnsupportedOp, match="a broadcast next to dynamic sizes"):
        _compile(canonical.spec_text, canonical.arg_spec.args)


def test_open_axes_that_must_agree_are_one_symbol() -> None:
    text = f"""func.func @main(%a: {_OPEN}, %b: {_OPEN}) -> {_OPEN} {{
      %r = stablehlo.add %a, %b : {_OPEN}
      return %r : {_OPEN}
    }}"""
    canonical = canonicalize(text.encode(), "stablehlo", "strict")
    kernel = Kernel(_compile(canonical.spec_text, canonical.arg_spec.args))
    assert [symbol.name for symbol in kernel.interface.symbols] == ["s0", "s1"]
    a = np.arange(6, dtype="f4").reshape(2, 3)
    np.testing.assert_array_equal(kernel(a, a)[0], 2 * a)


def test_sizes_are_followed_through_long_programs() -> None:
    """Each size is that of the value before."""
    value = np.tile(np.array([1, -1], np.float32), (5, 4))
    others = [value, np.zeros((3, 8, 8), np.float32), np.zeros(8, np.int32), np.int32(0), np.int32(1)]
    canonical = canonicalize(chain("dynamic_broadcast_in_dim ?", 400).encode(), "stablehlo", "strict")
    kernel = Kernel(_compile(canonical.spec_text, canonical.arg_spec.args))
    result = kernel(value, *others)[0]
    assert result.shape == (5, 8)
    assert not result.any()


def test_a_tensor_of_open_size_that_repeats_a_complex_number_is_filled() -> None:
    """A scatter reads it from memory, which data of a sample's size would be in."""
    text = """func.func @main(%u: tensor<5xcomplex<f32>>, %i: tensor<5x1xi32>, %x: tensor<7xcomplex<f32>>)
    -> (tensor<7xcomplex<f32>>, tensor<7xcomplex<f32>>) {
%c = stablehlo.constant dense<(1.0, -2.0)> : tensor<complex<f32>>
%b = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<complex<f32>>) -> tensor<7xcomplex<f32>>
%s = "stablehlo.scatter"(%b, %i, %u) ({
^bb0(%p: tensor<complex<f32>>, %q: tensor<complex<f32>>):
%t = stablehlo.add %p, %q : tensor<complex<f32>>
stablehlo.return %t : tensor<complex<f32>>
}) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
scatter_dims_to_operand_dims = [0], index_vector_dim = 1>} :
(tensor<7xcomplex<f32>>, tensor<5x1xi32>, tensor<5xcomplex<f32>>) -> tensor<7xcomplex<f32>>
%r = stablehlo.multiply %s, %x : tensor<7xcomplex<f32>>
return %s, %r : tensor<7xcomplex<f32>>, tensor<7xcomplex<f32>>
}"""
    canonical = canonicalize(text.encode(), "stablehlo", "strict")
    kernel = Kernel(_compile(canonical.spec_text, canonical.symbolic_args))
    for updates, size in ((0, 0), (3, 1), (5, 7), (40, 9)):
        generator = np.random.default_rng(size)
        values = generator.integers(-9, 9, (updates, 2)).astype("f4").view("c8")[:, 0]
        places = generator.integers(-1, size + 2, (updates, 1), dtype="i4")
        ones = np.ones(size, "c8")
        expected = np.full(size, 1 - 2j, "c8")
        for place, value in zip(places[:, 0], values, strict=True):
            if 0 <= place < size:
                expected[place] += value
        got, same = kernel(values, places, ones)
        np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(same, expected)
