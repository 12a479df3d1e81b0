"""Convolutions whose windows are read where they lie: values over layouts, strides and types, to the bit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.compile import lower_module
from kcache_compiler.types import ArgSpec, CompileOptions
from kcache_grpc.model.target import host_target
from tests.compiler.codegen_harness import NUMPY, Kernel, guarded, threaded_host
from tests.ops.harness.reference import ReferenceInterpreter

RANDOM = np.random.default_rng(20261122)
#: Image and kernel as StableHLO names their axes.
LAYOUTS = {"first": ("b, f, 0, 1", "o, i, 0, 1"), "last": ("b, 0, 1, f", "0, 1, i, o")}


@dataclass(frozen=True)
class Convolution:
    """``groups`` of ``inputs`` channels that give ``outputs`` each."""

    kind: str = "f32"
    layout: str = "first"
    batch: int = 2
    groups: int = 3
    inputs: int = 1
    outputs: int = 1
    size: tuple[int, int] = (9, 21)
    window: tuple[int, int] = (3, 3)
    stride: int = 1
    dilation: int = 1
    padding: int = 1

    def shape(self, channels: int, places: tuple[int, ...]) -> tuple[int, ...]:
        return (self.batch, channels, *places) if self.layout == "first" else (self.batch, *places, channels)

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        count = self.groups * self.outputs
        reach = [(size - 1) * self.dilation + 1 for size in self.window]
        places = [
            max(0, (size + 2 * self.padding - far) // self.stride + 1)
            for size, far in zip(self.size, reach, strict=True)
        ]
        kernel = (count, self.inputs, *self.window)
        if self.layout == "last":
            kernel = (*self.window, self.inputs, count)
        image = self.shape(self.groups * self.inputs, self.size)
        return image, kernel, self.shape(count, tuple(places))

    @property
    def text(self) -> str:
        x, w, y = (f"tensor<{'x'.join(map(str, (*shape, self.kind)))}>" for shape in self.shapes)
        image, kernel = LAYOUTS[self.layout]
        pads, steps = [[self.padding] * 2] * 2, [self.stride] * 2
        return f"""func.func @main(%x: {x}, %w: {w}) -> {y} {{
          %0 = stablehlo.convolution(%x, %w) dim_numbers = [{image}]x[{kernel}]->[{image}],
            window = {{stride = {steps}, pad = {pads}, rhs_dilate = {[self.dilation] * 2}}}
            {{batch_group_count = 1 : i64, feature_group_count = {self.groups} : i64}} : ({x}, {w}) -> {y}
          return %0 : {y}
        }}"""

    def operands(self) -> tuple[np.ndarray, np.ndarray]:
        x, w = (RANDOM.standard_normal(shape).astype(NUMPY[self.kind]) for shape in self.shapes[:2])
        return x, w

    def expected(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        """In f64, from what the operation means."""
        wide_x, wide_w = x.astype("f8"), w.astype("f8")
        if self.layout == "last":
            wide_x, wide_w = np.moveaxis(wide_x, -1, 1), np.transpose(wide_w, (3, 2, 0, 1))
        pad = [(0, 0), (0, 0), *[(self.padding, self.padding)] * 2]
        padded = np.pad(wide_x, pad).reshape(
            self.batch, self.groups, self.inputs, *np.pad(wide_x, pad).shape[2:]
        )
        wide_w = wide_w.reshape(self.groups, self.outputs, self.inputs, *self.window)
        shape = self.shapes[2]
        high, wide = shape[2:] if self.layout == "first" else shape[1:3]
        total = np.zeros((self.batch, self.groups, self.outputs, high, wide))
        for i, j in itertools.product(*map(range, self.window)):
            rows = slice(i * self.dilation, i * self.dilation + (high - 1) * self.stride + 1, self.stride)
            columns = slice(j * self.dilation, j * self.dilation + (wide - 1) * self.stride + 1, self.stride)
            total += np.einsum("bgiyx,goi->bgoyx", padded[..., rows, columns], wide_w[..., i, j])
        total = total.reshape(self.batch, -1, high, wide)
        return total if self.layout == "first" else np.moveaxis(total, 1, -1)


def _kernel(convolution: Convolution, target: str = "x86-64-v3", numerics: str = "default") -> Kernel:
    return Kernel(
        lower_module(convolution.text, 2, target, CompileOptions(numerics=numerics), lambda _: None)
    )


def _is_window(kernel: Kernel) -> bool:
    return ("window",) in [launch.ops for launch in kernel.interface.launches]


@st.composite
def _convolutions(draw: st.DrawFn) -> Convolution:
    pick = lambda *values: draw(st.sampled_from(values))  # noqa: E731
    return Convolution(
        *(pick("f32", "f32", "f64", "bf16"), pick("first", "last"), pick(1, 2), pick(1, 2, 5), pick(1, 3)),
        *(pick(1, 2, 3), (pick(1, 6, 9), pick(3, 7, 18, 33)), (pick(1, 2, 3, 5), pick(1, 3))),
        *(pick(1, 2), pick(1, 2), pick(0, 1, 2)),
    )


@settings(max_examples=10, deadline=None, derandomize=True)
@given(convolution=_convolutions())
def test_random_convolutions(convolution: Convolution) -> None:
    if 0 in convolution.shapes[2]:
        convolution = Convolution()
    x, w = convolution.operands()
    kernel = _kernel(convolution)
    close = 3e-2 if convolution.kind == "bf16" else 1e-5
    for host in (None, threaded_host()):
        (got,) = kernel(x, w, host=host)
        np.testing.assert_allclose(got.astype("f8"), convolution.expected(x, w), rtol=close, atol=close * 10)


CASES = [
    Convolution(),
    Convolution(layout="last", groups=20),
    Convolution(size=(11, 35), stride=2),
    Convolution(dilation=2, padding=2),
    Convolution(groups=2, inputs=4, outputs=3),
    Convolution(window=(7, 7), padding=3),
    Convolution(kind="f64", size=(1, 5), window=(1, 3), padding=0),
]


@pytest.fixture(scope="module")
def reference() -> Iterator[ReferenceInterpreter]:
    interpreter = ReferenceInterpreter()
    yield interpreter
    interpreter.close()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("convolution", CASES, ids=str)
def test_strict_windows_are_the_interpreters_to_the_bit(
    convolution: Convolution, reference: ReferenceInterpreter
) -> None:
    kernel = _kernel(convolution, numerics="strict")
    assert _is_window(kernel)
    x, w = convolution.operands()
    x.flat[::17], x.flat[3::29], x.flat[5::31] = np.nan, np.inf, -0.0
    (expected,) = reference.evaluate(convolution.text, [x.tobytes(), w.tobytes()])
    (got,) = kernel(x, w)
    wanted = np.frombuffer(expected, got.dtype).reshape(got.shape)
    if convolution.inputs > 1:  # the interpreter adds channels in an order of its own
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
        return
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(wanted[wanted == 0]))


def test_dilated_windows_of_batch_groups_touch_no_more_than_their_taps(
    reference: ReferenceInterpreter,
) -> None:
    """Zeros between the taps would make NaN of infinities that no tap reads."""
    x, w = (RANDOM.standard_normal(shape).astype("f4") for shape in ((4, 4, 5, 3), (3, 3, 3, 4)))
    x.flat[::7] = np.inf
    text = """func.func @main(%x: tensor<4x4x5x3xf32>, %w: tensor<3x3x3x4xf32>) -> tensor<2x4x7x4xf32> {
      %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {pad = [[2, 2], [2, 2]], rhs_dilate = [2, 1]}
        {batch_group_count = 2 : i64, feature_group_count = 1 : i64}
        : (tensor<4x4x5x3xf32>, tensor<3x3x3x4xf32>) -> tensor<2x4x7x4xf32>
      return %0 : tensor<2x4x7x4xf32>
    }"""
    kernel = Kernel(lower_module(text, 2, "x86-64-v3", CompileOptions(numerics="strict"), lambda _: None))
    (expected,) = reference.evaluate(text, [x.tobytes(), w.tobytes()])
    (got,) = kernel(x, w)
    wanted = np.frombuffer(expected, got.dtype).reshape(got.shape)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("width", [5, 18, 34])
def test_nothing_is_read_beyond_the_operands(width: int, stride: int) -> None:
    convolution = Convolution(size=(7, width), padding=0, stride=stride)
    kernel = _kernel(convolution)
    assert _is_window(kernel)
    x, w = (guarded(operand) for operand in convolution.operands())
    np.testing.assert_allclose(kernel(x, w)[0], convolution.expected(x, w), rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(2)
@pytest.mark.skipif(host_target().isa != "x86-64-v4", reason="blocks are vectors of AVX-512")
@pytest.mark.parametrize("width", [7, 8, 17, 28, 33, 65])
@pytest.mark.parametrize(
    "one",
    [
        Convolution(groups=2, inputs=4, outputs=4),
        Convolution(kind="f64", groups=2, inputs=2, outputs=3),
        Convolution(groups=3, window=(7, 7), padding=3, batch=1),
    ],
    ids=str,
)
def test_blocks_of_vectors_have_the_bits_of_a_target_without_masks(one: Convolution, width: int) -> None:
    one = replace(one, size=(6, width))
    kernel, narrow = (_kernel(one, target, "strict") for target in ("x86-64-v4", "x86-64-v3"))
    assert _is_window(kernel)
    x, w = (guarded(operand) for operand in one.operands())
    (wanted,) = narrow(x, w)
    assert np.array_equal(kernel(x, w)[0], wanted)
    assert np.array_equal(kernel(x, w, host=threaded_host())[0], wanted)
    near = 1e-4 if one.kind == "f32" else 1e-12
    np.testing.assert_allclose(wanted, one.expected(x, w), rtol=near, atol=near)


def test_open_sizes_give_the_bits_of_given_ones() -> None:
    text = Convolution(groups=4, inputs=2, outputs=2).text
    canonical = canonicalize(text.encode(), "stablehlo", "strict")
    options = CompileOptions(numerics="strict")
    arguments = ArgSpec(canonical.symbolic_args)
    opened = Kernel(compile_spec(canonical.spec_text, arguments, "x86-64-v3", options, lambda _: None))
    assert _is_window(opened)
    assert opened.interface.symbols
    for size in ((9, 21), (4, 40), (1, 1)):
        convolution = Convolution(groups=4, inputs=2, outputs=2, size=size)
        x, w = convolution.operands()
        np.testing.assert_array_equal(opened(x, w)[0], _kernel(convolution, numerics="strict")(x, w)[0])


def test_bf16_is_rounded_once() -> None:
    convolution = Convolution(kind="bf16")
    x, w = convolution.operands()
    expected = convolution.expected(x, w).astype(ml_dtypes.bfloat16).astype("f8")
    np.testing.assert_allclose(_kernel(convolution)(x, w)[0].astype("f8"), expected, rtol=1e-2)
