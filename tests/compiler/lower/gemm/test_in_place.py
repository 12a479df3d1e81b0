"""Products with bound right operands whose rows of the left operand are read where they lie."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.llvm.cpus import GENERIC
from kcache_compiler.llvm.target import target_named
from kcache_compiler.lower.gemm.in_place.match import chunk_of
from kcache_compiler.lower.gemm.in_place.skipped import BLOCK_WORDS, block_words
from kcache_compiler.lower.gemm.match import GemmAxis, Groups
from kcache_compiler.lower.gemm.objects import compiled_library
from kcache_compiler.lower.gemm.packing import SHORT_RUN
from kcache_compiler.schedule.gemm_tiles import Form, form_for
from kcache_compiler.shapes.formula import evaluate_text
from kcache_compiler.types import ArgSpec, CompileOptions, TensorType
from tests.compiler.codegen_harness import guarded, runs_here, threaded_host
from tests.compiler.lower.bound.test_bound import Bound, compare, normal, product
from tests.compiler.lower.bound.test_bound_dynamic import Bound as DynamicBound
from tests.compiler.lower.conv.test_channels_last import Layer

TARGETS = [target for target in ("x86-64-v3", "x86-64-v4") if runs_here(target)]
UNPADDED = (0, 0, 0, 0)

LAYERS = [
    Layer(size=(14, 14), inputs=32, outputs=64, groups=1),
    Layer(size=(7, 7), batch=2, inputs=70, outputs=32, groups=1),
    Layer(size=(9, 13), inputs=20, outputs=32, groups=1, pads=(0, 2, 1, 0)),
    Layer(
        size=(12, 29),
        batch=3,
        inputs=16,
        outputs=32,
        groups=1,
        stride=(2, 2),
        window=(5, 5),
        pads=(2, 2, 2, 2),
    ),
    Layer(size=(21, 28), inputs=9, outputs=96, groups=1, dilation=(2, 3), pads=(2, 2, 3, 3)),
    Layer(
        size=(15, 28), batch=2, inputs=40, outputs=32, groups=1, window=(1, 1), stride=(2, 2), pads=UNPADDED
    ),
    Layer(size=(10, 21), inputs=24, outputs=32, groups=1, pads=UNPADDED),
    Layer(kind="f64", size=(9, 14), batch=2, inputs=12, outputs=16, groups=1),
    Layer(size=(70, 80), inputs=64, outputs=32, groups=1, window=(3, 1), pads=(1, 1, 0, 0)),
    Layer(size=(5, 40), inputs=16, outputs=32, groups=1, window=(1, 7), pads=(0, 0, 6, 0)),
    # A block of K is in one column of the window: rows at the left and right edge are left out.
    Layer(size=(7, 7), batch=2, inputs=256, outputs=48, groups=1),
    Layer(size=(3, 14), inputs=128, outputs=32, groups=1, window=(2, 2), pads=(1, 0, 0, 1)),
    Layer(size=(13, 28), inputs=256, outputs=32, groups=1, stride=(2, 2)),
    Layer(size=(2, 21), inputs=256, outputs=32, groups=1, dilation=(3, 2), pads=(3, 3, 2, 2)),
]


def _check(layer: Layer, target: str) -> Bound:
    """The bits without bound arguments, on one thread and on three; values near those of f64."""
    operands = layer.operands()
    kernel = compare(layer.text, operands, [1, 2], "default", target=target)
    assert b"_in_place_run" in kernel.compiled.artifacts["llvm"]
    prepared = kernel.prepare(*operands[1:])
    (alone,) = kernel.run(prepared, operands[0])
    (shared,) = kernel.run(prepared, operands[0], host=threaded_host())
    assert alone.tobytes() == shared.tobytes()
    close = {"f32": 1e-5, "f64": 1e-13}[layer.kind]
    np.testing.assert_allclose(alone, layer.expected(*operands), rtol=close, atol=4 * close)
    return kernel


@pytest.mark.sampled(36)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_layers(layer: Layer, target: str) -> None:
    _check(layer, target)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("layer", [replace(LAYERS[0], inputs=256), *LAYERS[-4:]], ids=str)
def test_results_of_zeros_that_are_not_multiplied_are_stored(layer: Layer) -> None:
    """In memory that held NaN, with a bias and a maximum that tiles compute after the last block of K."""
    text = layer.text.replace("clamp %one_low, %one_biased, %one_high", "maximum %one_low, %one_biased")
    operands = layer.operands()
    kernel = Bound(text, 3, [1, 2], "default", target=TARGETS[-1])
    (result,) = kernel.run(kernel.prepare(*operands[1:]), operands[0], fill=0xFF)
    np.testing.assert_allclose(np.minimum(result, 6), layer.expected(*operands), rtol=1e-5, atol=4e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_pixels_of_a_long_sequence_are_copied_with_their_padding_by_chunk(target: str) -> None:
    """Not the whole sequence for each panel of rows."""
    layer = Layer(size=(1, 2200), inputs=32, outputs=32, groups=1, window=(1, 3), pads=(0, 0, 2, 1))
    workspace = evaluate_text(_check(layer, target).interface.workspace, {"workers": 1})
    assert workspace < 2200 * 32 * 4


@pytest.mark.sampled(6)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("kind", "outputs"), [("f32", 8), ("f32", 24), ("f32", 72), ("f64", 20)])
def test_the_last_vectors_of_columns_are_a_narrower_tile(kind: str, outputs: int, target: str) -> None:
    _check(replace(LAYERS[0], kind=kind, size=(13, 13), outputs=outputs), target)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("outputs", [7, 24, 40, 600])
def test_any_number_of_columns_where_stores_are_masked(outputs: int) -> None:
    if "x86-64-v4" not in TARGETS:
        pytest.skip("needs AVX-512")
    _check(Layer(size=(6, 14), inputs=16, outputs=outputs, groups=1), "x86-64-v4")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("batch", "channels", "size", "window", "stride", "pad"),
    [(1, 3, (30, 28), 7, 2, 3), (2, 3, (9, 21), 5, 1, 2), (1, 5, (4, 50), 7, 3, 4)],
)
def test_images_with_channels_first(
    batch: int, channels: int, size: tuple[int, int], window: int, stride: int, pad: int
) -> None:
    """Each row of pixels is copied as the rows of its channels."""
    height, width = ((extent + 2 * pad - window) // stride + 1 for extent in size)
    x, w = (batch, channels, *size), (window, window, channels, 32)
    y = (batch, height, width, 32)
    kinds = [f"tensor<{'x'.join(map(str, shape))}xf32>" for shape in (x, w, y)]
    text = f"""
    func.func @main(%x: {kinds[0]}, %w: {kinds[1]}) -> {kinds[2]} {{
      %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[0, 1, i, o]->[b, 0, 1, f],
        window = {{stride = {[stride] * 2}, pad = {[[pad] * 2] * 2}}}
        {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
        : ({kinds[0]}, {kinds[1]}) -> {kinds[2]}
      return %0 : {kinds[2]}
    }}"""
    arrays = [normal(*x), normal(*w)]
    kernel = compare(text, arrays, [1], "default", target=TARGETS[-1])
    assert b"_in_place_run" in kernel.compiled.artifacts["llvm"]
    assert [launch.ops[0] for launch in kernel.interface.launches] == ["contraction"]
    (result,) = kernel.run(kernel.prepare(arrays[1]), guarded(arrays[0]), host=threaded_host())
    padded = np.pad(arrays[0].astype("f8"), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (window, window), (2, 3))
    expected = np.einsum("bchwij,ijco->bhwo", views[:, :, ::stride, ::stride], arrays[1].astype("f8"))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_the_table_of_runs_has_room_for_blocks_that_begin_within_a_run(target: str) -> None:
    """Such as the second of four blocks of 255 steps, of 85 channels first and a window of 3 x 4."""
    form = form_for(target_named(target), GENERIC, ("f32", "f32", "f32"), "f32", exact=False)
    for begin in range(SHORT_RUN):
        runs = (begin + form.depth - 1) // SHORT_RUN + 1
        assert BLOCK_WORDS + 2 * runs <= block_words(form)


def test_padding_is_part_of_the_launch() -> None:
    kernel = _check(Layer(size=(14, 14), inputs=32, outputs=64, groups=1), TARGETS[-1])
    assert [launch.ops[0] for launch in kernel.interface.launches] == ["contraction"]
    assert "arith.addf" in kernel.interface.launches[0].ops


@pytest.mark.sampled(4)
@pytest.mark.parametrize("rows", [14, 15, 27, 49, 2100])
def test_products(rows: int) -> None:
    """Partial panels, and several chunks of rows."""
    target = TARGETS[-1]
    arrays = [normal(rows, 300), normal(300, 64)]
    kernel = compare(product(rows, 64, 300, False, "f32"), arrays, [1], "default", target=target)
    in_place = b"_in_place_run" in kernel.compiled.artifacts["llvm"]
    # B of two tiles of rows is read where it lies.
    assert in_place == (rows > (24 if target == "x86-64-v4" else 12))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("rows", [118, 125, 128, 130, 144, 197])
def test_products_of_lower_panels(rows: int) -> None:
    """Panels of 13 rows, and the rows that are left."""
    if "x86-64-v4" not in TARGETS:
        pytest.skip("needs AVX-512")
    arrays = [normal(rows, 260), normal(260, 72)]
    kernel = compare(product(rows, 72, 260, False, "f32"), arrays, [1], "default", target="x86-64-v4")
    assert kernel.interface.launches[-1].extent == str(-(-rows // 13))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("columns", [64, 40])
@pytest.mark.parametrize("rows", [49, 50, 51, 52, 53, 101])
def test_panels_that_share_a_panel_of_b(rows: int, columns: int) -> None:
    """Eight of 6 rows; the rows that are left are one tile, whatever their number."""
    arrays = [normal(rows, 259), normal(259, columns)]
    kernel = compare(product(rows, columns, 259, False, "f32"), arrays, [1], "default", target="x86-64-v3")
    assert b"_in_place_run" in kernel.compiled.artifacts["llvm"]


@pytest.mark.parametrize("in_place", [False, True])
def test_iterations_of_four_steps_of_k_stay_in_registers(in_place: bool) -> None:
    target = target_named("x86-64-v3")
    form = form_for(target, GENERIC, ("f32", "f32", "f32"), "f32", exact=False)
    form = replace(form, prepacked=True, in_place=in_place)
    assembly = compiled_library(form, target).assembly
    tile = assembly.partition(f"\n{form.name}_tile_6:")[2].partition(".Lfunc_end")[0]
    loops = re.findall(r"(\.LBB\w+):\n((?:(?!\.LBB).)*?)\tj\w+\t\1\n", tile, re.DOTALL)
    products = [body.count("vfmadd231ps") for _, body in loops]
    assert sorted(filter(None, products)) == [12, 48]
    assert all("(%rsp)" not in body for _, body in loops if "vfmadd231ps" in body)


def test_rows_that_displace_each_other_are_packed() -> None:
    arrays = [normal(60, 1024), normal(1024, 64)]
    kernel = compare(product(60, 64, 1024, False, "f32"), arrays, [1], "default", target=TARGETS[-1])
    assert b"_in_place_run" in kernel.compiled.artifacts["llvm"]


def test_strict_sums_are_those_of_packed_rows() -> None:
    layer = LAYERS[0]
    kernel = compare(layer.text, layer.operands(), [1, 2], "strict", target=TARGETS[-1])
    assert b"_in_place_run" not in kernel.compiled.artifacts["llvm"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("layer", [*LAYERS[:3], LAYERS[5]], ids=str)
def test_nothing_is_read_beyond_the_image(layer: Layer) -> None:
    operands = layer.operands()
    kernel = Bound(layer.text, 3, [1, 2], "default", target=TARGETS[-1])
    (result,) = kernel.run(kernel.prepare(*operands[1:]), guarded(operands[0]))
    np.testing.assert_allclose(result, layer.expected(*operands), rtol=1e-5, atol=4e-5)


@pytest.mark.parametrize("inputs", [16, 256])
def test_zeros_of_the_padding_are_multiplied(inputs: int) -> None:
    """An infinite weight makes NaN of a zero, at the edges as inside."""
    layer = replace(LAYERS[0], inputs=inputs, size=(5, 14))
    x, w, b = layer.operands()
    w[0, 0, 0, ::3], w[2, 2, 5, 1] = np.inf, np.nan
    kernel = Bound(layer.text, 3, [1, 2], "default", target=TARGETS[-1])
    with np.errstate(invalid="ignore"):
        expected = layer.expected(x, w, b)
    (result,) = kernel.run(kernel.prepare(w, b), x)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))


def _consumed(m: int, n: int, k: int, body: str) -> str:
    """A product ``%p`` of ``x`` and ``w`` with a bias ``%bias``, ``%r`` of its shape; ``body`` is ``%y``."""
    y = f"tensor<{m}x{n}xf32>"
    return f"""
    func.func @main(%x: tensor<{m}x{k}xf32>, %w: tensor<{k}x{n}xf32>, %b: tensor<{n}xf32>, %r: {y}) -> {y} {{
      %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>) -> {y}
      %bias = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<{n}xf32>) -> {y}
      %zero = stablehlo.constant dense<0.0> : {y}
      %one = stablehlo.constant dense<1.0> : {y}
      {body.replace("TYPE", y)}
      return %y : {y}
    }}"""


_BIASED = "%0 = stablehlo.add %p, %bias : TYPE\n"
CONSUMERS = {
    "bias": "%y = stablehlo.add %p, %bias : TYPE",
    "maximum": "%y = stablehlo.maximum %p, %zero : TYPE",
    "bias and maximum": _BIASED + "%y = stablehlo.maximum %zero, %0 : TYPE",
    "all": _BIASED + "%1 = stablehlo.add %r, %0 : TYPE\n%y = stablehlo.maximum %1, %zero : TYPE",
    "another maximum": _BIASED + "%y = stablehlo.maximum %0, %one : TYPE",
    "another order": "%0 = stablehlo.add %p, %r : TYPE\n%1 = stablehlo.add %0, %bias : TYPE\n"
    "%y = stablehlo.maximum %1, %zero : TYPE",
    "twice": _BIASED + "%1 = stablehlo.add %0, %0 : TYPE\n%y = stablehlo.add %1, %bias : TYPE",
    "minimum": _BIASED + "%y = stablehlo.minimum %0, %zero : TYPE",
    "product": _BIASED + "%y = stablehlo.multiply %0, %r : TYPE",
    "function": _BIASED + "%1 = stablehlo.tanh %0 : TYPE\n%y = stablehlo.add %1, %r : TYPE",
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("body", CONSUMERS.values(), ids=CONSUMERS)
def test_consumers(body: str) -> None:
    """Whether they are computed in registers or by an epilogue, bits are those without bound arguments."""
    m, n, k = 61, 64 if TARGETS[-1] == "x86-64-v3" else 70, 600
    arrays = [normal(m, k), normal(k, n), normal(n), normal(m, n)]
    arrays[0][7:9] = 0  # sums that are zero
    arrays[0][20, 5], arrays[1][:, 3] = np.nan, 0
    kernel = compare(_consumed(m, n, k, body), arrays, [1, 2], "default", target=TARGETS[-1])
    assert b"_in_place_run" in kernel.compiled.artifacts["llvm"]


@pytest.mark.parametrize(
    ("target", "rows"),
    [*(("x86-64-v3", rows) for rows in (55, 56)), *(("x86-64-v4", rows) for rows in range(29, 34))],
)
def test_tiles_of_few_rows_cover_several_panels(target: str, rows: int) -> None:
    """The last rows of a product, with columns that are not whole groups of panels."""
    if target not in TARGETS:
        pytest.skip(f"needs {target}")
    n, k = 312, 600
    arrays = [normal(rows, k), normal(k, n), normal(n), normal(rows, n)]
    compare(_consumed(rows, n, k, CONSUMERS["all"]), arrays, [1, 2], "default", target=target)


@pytest.mark.parametrize("target", TARGETS)
def test_bits_of_a_row_do_not_depend_on_the_number_of_rows(target: str) -> None:
    """Of a dynamic number: few rows are computed by other tiles than more of them."""
    n, k = 312, 600
    canonical = canonicalize(product("?", n, k, False, "f32").encode(), "stablehlo", "default")
    shapes = ((canonical.symbolic_args[0].dims[0], k), (k, n))
    arguments = ArgSpec(tuple(TensorType("f32", dims) for dims in shapes))
    compiled = compile_spec(
        canonical.spec_text, arguments, target, CompileOptions(bound=(1,)), lambda _: None
    )
    assert b"_in_place_run" in compiled.artifacts["llvm"]
    x, weights = normal(9, k), normal(k, n)
    kernel = DynamicBound(compiled, [x, weights])
    (whole,) = kernel(x, weights)
    np.testing.assert_allclose(whole, x.astype("f8") @ weights, rtol=1e-4, atol=1e-4)
    for rows in range(1, 9):
        (result,) = kernel(guarded(x[:rows]), weights)
        assert result.tobytes() == whole[:rows].tobytes()


@pytest.mark.parametrize("name", ["bias", "maximum", "bias and maximum", "all", "another maximum", "product"])
def test_what_tiles_compute_needs_no_epilogue(name: str) -> None:
    """Also where the number of a maximum is a literal; others are computed by a function after the tiles."""
    kernel = Bound(_consumed(61, 64, 600, CONSUMERS[name]), 4, [1, 2], "default", target=TARGETS[-1])
    calls = re.findall(rb"call void @\w+_in_place_run\(.*, ptr (\S+)\)", kernel.compiled.artifacts["llvm"])
    assert [call == b"null" for call in calls] == [name not in ("another maximum", "product")]


def test_maxima_with_zero_are_two_instructions() -> None:
    target = target_named("x86-64-v3")
    form = form_for(target, GENERIC, ("f32", "f32", "f32"), "f32", exact=False)
    form = replace(form, prepacked=True, in_place=True)
    assembly = compiled_library(form, target).assembly
    tile = assembly.partition(f"\n{form.name}_tile_6:")[2].partition(".Lfunc_end")[0]
    assert tile.count("vcmpnleps") == 12
    assert not re.search("vmaxps|vcmpunordps|vblendvps", tile)


def test_consumers_of_equal_products_may_differ() -> None:
    """Equal launches share their code, whatever their constants are."""
    m, n, k = 30, 64, 64
    y = f"tensor<{m}x{n}xf32>"
    body = "".join(
        f"%s{number} = stablehlo.dot_general {source}, %w{number}, contracting_dims = [1] x [0]"
        f" : ({y}, tensor<{n}x{n}xf32>) -> {y}\n"
        f"%c{number} = stablehlo.constant dense<{least}> : {y}\n"
        f"%y{number} = stablehlo.maximum %s{number}, %c{number} : {y}\n"
        for number, source, least in ((0, "%x", "0.0"), (1, "%y0", "0.5"), (2, "%y1", "-0.0"))
    )
    weights = ", ".join(f"%w{number}: tensor<{n}x{n}xf32>" for number in range(3))
    text = f"func.func @main(%x: {y}, {weights}) -> {y} {{ {body} return %y2 : {y} }}"
    arrays = [normal(m, k), *(normal(n, n) for _ in range(3))]
    kernel = compare(text, arrays, [1, 2, 3], "default", target=TARGETS[-1])
    assert b"_in_place_run" in kernel.compiled.artifacts["llvm"]
    expected = arrays[0].astype("f8")
    for weight, least in zip(arrays[1:], (0, 0.5, 0), strict=True):
        expected = np.maximum(expected @ weight, least)
    (result,) = kernel.run(kernel.prepare(*arrays[1:]), arrays[0])
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("layer", "cells", "grain"),
    [
        (Layer(size=(14, 14), inputs=256, outputs=256, groups=1), 14, 7),
        # One slice each where rows are few: every slice reads all of B.
        (Layer(size=(7, 7), inputs=256, outputs=512, groups=1), 8, 4),
        (Layer(size=(7, 7), batch=2, inputs=64, outputs=48, groups=1), 7, 3),
        (Layer(size=(28, 28), inputs=128, outputs=128, groups=1), 56, 14),
        (Layer(size=(14, 17), inputs=64, outputs=128, groups=1), 17, 8),
        # Panels of 13 rows instead of 14: 65 and 63 rows, not 70 and 58, and 104 and 93, not 112 and 85.
        (Layer(size=(8, 16), inputs=64, outputs=512, groups=1, window=(1, 1), pads=UNPADDED), 10, 5),
        (Layer(size=(197, 1), inputs=256, outputs=256, groups=1, window=(1, 1), pads=UNPADDED), 16, 4),
    ],
    ids=str,
)
def test_two_workers_get_equal_shares(layer: Layer, cells: int, grain: int) -> None:
    """Rows of a panel times blocks of columns are cells; few rows have two blocks. An odd number of cells is
    shared too: a host gives no more workers than cells divided by the grain.
    """
    if "x86-64-v4" not in TARGETS:
        pytest.skip("needs AVX-512")
    operands = layer.operands()
    kernel = Bound(layer.text, 3, [1, 2], "default", target="x86-64-v4")
    prepared, host = kernel.prepare(*operands[1:]), threaded_host(workers=2)
    (result,) = kernel.run(prepared, operands[0], host=host)
    assert host.calls == [(cells, grain)]
    np.testing.assert_allclose(result, layer.expected(*operands), rtol=1e-5, atol=4e-5)


def test_chunks_fit_their_scratch() -> None:
    """No chunk, wherever it begins, reads more rows of pixels than its scratch holds."""
    form = Form("f32", "f32", "f32", "f32", 16, 14, 2, 512, True, True, False, prepacked=True, in_place=True)
    draw = random.Random(20261129)
    for _ in range(40):
        images, rows, columns, channels = (draw.randint(1, most) for most in (3, 40, 40, 300))
        window, stride, dilation = draw.randint(1, 5), draw.randint(1, 3), draw.randint(1, 2)
        reach = (window - 1) * dilation + 1
        high, wide = rows + reach - 1, columns + reach - 1
        pitch, results = wide * channels, ((high - reach) // stride + 1, (wide - reach) // stride + 1)
        strides = (high * pitch, stride * pitch, stride * channels)
        m = [GemmAxis(size, a, 0, 0, ()) for size, a in zip((images, *results), strides, strict=True)]
        k = [(window, dilation * pitch), (window, dilation * channels), (channels, 1)]
        groups = Groups((), tuple(m), (), tuple(GemmAxis(size, a, 0, 0, ()) for size, a in k))
        chunk = chunk_of(form, groups, pitch)
        assert chunk is not None
        count, last = chunk[0], sum((size - 1) * a for size, a in k)
        points = np.indices((images, *results)).reshape(3, -1)
        offsets = points.T @ np.array(strides)
        assert len(offsets) == math.prod((images, *results))
        for first in range(0, len(offsets), form.rows):
            end = offsets[min(first + count, len(offsets)) - 1]
            lines = (end + last) // pitch + 1 - offsets[first] // pitch
            assert lines * pitch * 4 <= chunk[1]
