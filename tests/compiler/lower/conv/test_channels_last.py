"""Convolutions of channels-last images: values over windows, padding and channels, weights bound or not."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.compile import lower_module
from kcache_compiler.shapes.formula import evaluate_text
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import NUMPY, Kernel, runs_here, threaded_host
from tests.compiler.lower.bound.test_bound import Bound, compare

RANDOM = np.random.default_rng(20261130)
TARGET = "x86-64-v4" if runs_here("x86-64-v4") else "x86-64-v3"


@dataclass(frozen=True)
class Layer:
    """A convolution with bias, clamped to 0 and 6; ``pads`` before and after rows and columns.

    The channels of a ``planar`` image are planes.
    """

    kind: str = "f32"
    batch: int = 1
    size: tuple[int, int] = (9, 13)
    inputs: int = 20
    outputs: int = 20
    groups: int = 20
    window: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    planar: bool = False

    @property
    def places(self) -> tuple[int, int]:
        sizes: list[int] = []
        for axis in (0, 1):
            reach = (self.window[axis] - 1) * self.dilation[axis] + 1
            padded = self.size[axis] + sum(self.pads[2 * axis :][:2])
            sizes.append(max(0, (padded - reach) // self.stride[axis] + 1))
        return sizes[0], sizes[1]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        window = (*self.window, self.inputs // self.groups, self.outputs)
        image = (self.inputs, *self.size) if self.planar else (*self.size, self.inputs)
        return (self.batch, *image), window, (self.outputs,)

    def body(self, x: str, names: str) -> str:
        """The operations, named after ``names``; their result is ``%NAMES_result``."""
        y = self.tensor((self.batch, *self.places, self.outputs))
        kinds = [self.tensor(shape) for shape in self.shapes]
        top, bottom, left, right = self.pads
        where = f"stride = {list(self.stride)}, pad = [[{top}, {bottom}], [{left}, {right}]]"
        return f"""
          %{names}_sum = stablehlo.convolution({x}, %{names}_w)
            dim_numbers = [{"b, f, 0, 1" if self.planar else "b, 0, 1, f"}]x[0, 1, i, o]->[b, 0, 1, f],
            window = {{{where}, rhs_dilate = {list(self.dilation)}}}
            {{batch_group_count = 1 : i64, feature_group_count = {self.groups} : i64}}
            : ({kinds[0]}, {kinds[1]}) -> {y}
          %{names}_bias = stablehlo.broadcast_in_dim %{names}_b, dims = [3] : ({kinds[2]}) -> {y}
          %{names}_biased = stablehlo.add %{names}_sum, %{names}_bias : {y}
          %{names}_low = stablehlo.constant dense<0.0> : {y}
          %{names}_high = stablehlo.constant dense<6.0> : {y}
          %{names}_result = stablehlo.clamp %{names}_low, %{names}_biased, %{names}_high : {y}"""

    @property
    def text(self) -> str:
        x, w, b = map(self.tensor, self.shapes)
        y = self.tensor((self.batch, *self.places, self.outputs))
        return f"""func.func @main(%x: {x}, %one_w: {w}, %one_b: {b}) -> {y} {{
          {self.body("%x", "one")}
          return %one_result : {y}
        }}"""

    def tensor(self, shape: tuple[int, ...]) -> str:
        return f"tensor<{'x'.join(map(str, (*shape, self.kind)))}>"

    def operands(self) -> list[np.ndarray]:
        scale = 1 / np.sqrt(np.prod(self.shapes[1][:3]))
        x, w, b = (RANDOM.standard_normal(shape) for shape in self.shapes)
        return [np.ascontiguousarray(each.astype(NUMPY[self.kind])) for each in (x, w * scale, b)]

    def expected(self, x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
        """In f64, from what the operations mean."""
        top, bottom, left, right = self.pads
        x = x.transpose(0, 2, 3, 1) if self.planar else x
        x, w = np.pad(x.astype("f8"), ((0, 0), (top, bottom), (left, right), (0, 0))), w.astype("f8")
        high, wide = self.places
        x = x.reshape(*x.shape[:3], self.groups, -1)
        w = w.reshape(*w.shape[:3], self.groups, -1)
        total = np.zeros((self.batch, high, wide, self.groups, self.outputs // self.groups))
        for tap in itertools.product(*map(range, self.window)):
            spans = [
                slice(at * step, at * step + (count - 1) * stride + 1, stride)
                for at, step, count, stride in zip(tap, self.dilation, (high, wide), self.stride, strict=True)
            ]
            total += np.einsum("bhwgi,igo->bhwgo", x[:, spans[0], spans[1]], w[tap])
        return np.clip(total.reshape(self.batch, high, wide, -1) + b.astype("f8"), 0, 6)


def _kernel(text: str, arguments: int, numerics: str = "default") -> Kernel:
    return Kernel(lower_module(text, arguments, TARGET, CompileOptions(numerics=numerics), lambda _: None))


def _check(layer: Layer, numerics: str = "default") -> Kernel:
    """Values on one thread and on three, and with bound weights the same bits."""
    close = {"f32": 1e-5, "f64": 1e-12, "f16": 4e-3, "bf16": 3e-2}[layer.kind]
    kernel, operands = _kernel(layer.text, 3, numerics), layer.operands()
    expected = layer.expected(*operands)
    for host in (None, threaded_host()):
        (got,) = kernel(*operands, host=host)
        np.testing.assert_allclose(got.astype("f8"), expected, rtol=close, atol=4 * close)
    return kernel


@st.composite
def _layers(draw: st.DrawFn) -> Layer:
    pick = lambda *values: draw(st.sampled_from(values))  # noqa: E731
    groups, deep = pick((20, 1), (33, 1), (3, 1), (1, 3), (1, 20), (1, 35), (2, 16))
    outputs = pick(groups) if deep == 1 else groups * pick(1, 7, 16, 24, 40)
    window = pick((1, 1), (3, 3), (5, 5), (1, 3), (7, 7))
    pads = tuple(pick(0, 1, 2, 3) for _ in range(4))
    return Layer(
        *(pick("f32", "f32", "f64", "bf16", "f16"), pick(1, 2), (pick(1, 7, 12), pick(5, 14, 29))),
        *(groups * deep, outputs, groups, window, (pick(1, 2), pick(1, 2)), (pick(1, 2), pick(1, 2, 3))),
        *((pads[0], pads[1], pads[2], pads[3]), pick(False, False, True)),
    )


@settings(max_examples=8, deadline=None, derandomize=True)
@given(layer=_layers())
def test_random_layers(layer: Layer) -> None:
    _check(layer if all(layer.places) else Layer())


CASES = [
    Layer(),
    Layer(batch=2, inputs=33, outputs=33, groups=33, pads=(0, 2, 1, 0), size=(5, 26)),
    Layer(kind="f64", inputs=5, outputs=5, groups=5, stride=(2, 2), window=(5, 5), pads=(2, 2, 2, 2)),
    Layer(dilation=(2, 3), pads=(2, 2, 3, 3), size=(7, 7)),
    Layer(inputs=3, outputs=16, groups=1, size=(15, 31), stride=(2, 2)),
    Layer(inputs=20, outputs=40, groups=1, window=(5, 5), pads=(2, 1, 2, 0)),
    Layer(inputs=3, outputs=16, groups=1, size=(15, 31), stride=(2, 2), planar=True),
    Layer(batch=2, inputs=4, outputs=33, groups=1, size=(2, 3), pads=(1, 1, 2, 2), planar=True),
]
#: Groups that vectors have several of, that vectors overlap in, of other inputs than outputs, of few pixels.
GROUPED = [
    Layer(inputs=24, outputs=24, groups=6),
    Layer(batch=2, inputs=48, outputs=48, groups=2, stride=(2, 2)),
    Layer(kind="f64", inputs=12, outputs=30, groups=3, window=(1, 5), pads=(0, 0, 2, 1)),
    Layer(inputs=16, outputs=88, groups=2, size=(5, 3)),
    Layer(inputs=40, outputs=40, groups=5, size=(7, 11), stride=(2, 2)),
    Layer(kind="f64", inputs=24, outputs=24, groups=12, window=(1, 3), pads=(0, 0, 2, 1), dilation=(1, 2)),
]


@pytest.mark.sampled(36)
@pytest.mark.parametrize("layer", [*CASES, *GROUPED], ids=str)
@pytest.mark.parametrize("numerics", ["strict", "default"])
def test_layers_whose_weights_are_bound(layer: Layer, numerics: str) -> None:
    compare(layer.text, layer.operands(), [1, 2], numerics)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("layer", [*CASES[:3], CASES[4], *CASES[6:]], ids=str)
def test_a_layer_is_one_launch(layer: Layer) -> None:
    launches = [launch.ops for launch in _check(layer).interface.launches]
    assert [ops[0] for ops in launches] == ["window"]
    assert "arith.addf" in launches[0]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("layer", GROUPED, ids=str)
def test_a_layer_of_groups_with_bound_weights_is_one_launch(layer: Layer) -> None:
    kernel, (x, *weights) = Bound(layer.text, 3, [1, 2], "default", target=TARGET), layer.operands()
    (launch,) = kernel.interface.launches
    assert launch.ops[0] == "window"
    assert "arith.addf" in launch.ops
    expected = layer.expected(x, *weights)
    for host in (None, threaded_host()):
        (result,) = kernel.run(kernel.prepare(*weights), x, host=host)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=4e-5)


@pytest.mark.parametrize(("numerics", "reordered"), [("strict", False), ("default", True)])
def test_weights_of_small_groups_are_reordered_where_sums_may_be(numerics: str, reordered: bool) -> None:
    """Each worker has a copy of the weights, unless the order of the program counts."""
    kernel, layer = Bound(GROUPED[0].text, 3, [1, 2], numerics, target=TARGET), GROUPED[0]
    one_worker, two_workers = (
        evaluate_text(kernel.interface.workspace, {"workers": workers}) for workers in (1, 2)
    )
    lanes = 16 if TARGET == "x86-64-v4" else 8
    vectors = -(-layer.outputs // lanes)
    assert two_workers - one_worker == reordered * vectors * 9 * 4 * lanes * 4


@pytest.mark.sampled(6)
@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize(("groups", "deep", "outputs"), [(2, 2, 8), (3, 1, 6), (4, 1, 64), (2, 3, 32)])
def test_groups_of_channels_have_their_own_weights(
    groups: int, deep: int, outputs: int, planar: bool
) -> None:
    """The groups of a single image are not taken for images."""
    _check(Layer(inputs=groups * deep, outputs=outputs, groups=groups, planar=planar))


def test_zeros_of_the_padding_are_multiplied() -> None:
    """An infinite weight makes NaN of a zero, at the edges as inside."""
    layer = Layer(size=(4, 5))
    x, w, b = layer.operands()
    w[0, 0, 0, ::3] = np.inf
    with np.errstate(invalid="ignore"):
        expected = layer.expected(x, w, b)
    (got,) = _kernel(layer.text, 3)(x, w, b)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))


def test_layers_of_a_network_read_each_other() -> None:
    """Results of a layer are the padded image of the next, and live until its end."""
    first = Layer(inputs=8, outputs=24, groups=1, window=(1, 1), pads=(0, 0, 0, 0), size=(14, 14))
    second = Layer(inputs=24, outputs=24, groups=24, size=(14, 14))
    third = replace(first, inputs=24, outputs=8)
    arguments: dict[str, str] = {"%x": first.tensor(first.shapes[0])}
    operands = first.operands()[:1]
    expected, body, source = operands[0], "", "%x"
    for name, layer in (("a", first), ("b", second), ("c", third), ("d", first), ("e", second), ("f", third)):
        _, w, b = layer.operands()
        operands += [w, b]
        arguments |= {f"%{name}_w": layer.tensor(w.shape), f"%{name}_b": layer.tensor(b.shape)}
        body, source = body + layer.body(source, name), f"%{name}_result"
        expected = layer.expected(expected, w, b)
    y = third.tensor((1, 14, 14, 8))
    given_arguments = ", ".join(f"{name}: {kind}" for name, kind in arguments.items())
    text = f"func.func @main({given_arguments}) -> {y} {{ {body} \n return {source} : {y} \n }}"
    kernel = _kernel(text, len(operands))
    assert len(kernel.interface.launches) == 6
    for host in (None, threaded_host()):
        np.testing.assert_allclose(kernel(*operands, host=host)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", [(9, 13), (1, 13), (1, 1)], ids=str)
@pytest.mark.parametrize("groups", [20, 1])
def test_consumers_of_a_single_image_are_in_its_launch(size: tuple[int, int], groups: int) -> None:
    """Canonical programs drop axes of size 1 from elementwise operations."""
    layer = Layer(size=size, groups=groups)
    canonical = canonicalize(layer.text.encode(), "stablehlo", "default")
    spec, options = canonical.spec_text, CompileOptions()
    kernel = Kernel(compile_spec(spec, canonical.arg_spec, TARGET, options, lambda _: None))
    fused = [launch for launch in kernel.interface.launches if "arith.addf" in launch.ops]
    assert size[0] == 1 or fused[0].ops[0] in ("window", "contraction")
    operands = layer.operands()
    np.testing.assert_allclose(kernel(*operands)[0], layer.expected(*operands), rtol=1e-5, atol=4e-5)
