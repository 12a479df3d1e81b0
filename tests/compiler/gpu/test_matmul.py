"""Contractions are tiles with what follows them in one launch; matrix instructions where the GPU has them."""

from __future__ import annotations

import re

import pytest

from kcache_compiler.types import CompiledKernel
from tests.compiler.gpu.programs import matmul
from tests.compiler.gpu.test_pipeline import compiled


def ptx_of(kernel: CompiledKernel) -> str:
    return kernel.artifacts["ptx"].decode()


@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_narrow_products_use_matrix_instructions(element: str) -> None:
    kernel = compiled(matmul(256, 256, 256, element), 3)
    (launch,) = kernel.interface.gpu_launches
    ptx = ptx_of(kernel)
    assert f"mma.sync.aligned.m16n8k16.row.col.f32.{element}.{element}.f32" in ptx
    assert "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16" in ptx
    assert "cp.async.cg.shared.global" in ptx
    assert re.search(r"cp\.async\.wait_group\s+2;", ptx)
    assert (launch.grid[0], launch.block, kernel.interface.workspace) == ("16", (128, 1, 1), "0")


def test_large_products_take_large_tiles() -> None:
    (launch,) = compiled(matmul(4096, 256, 4096, "bf16"), 3).interface.gpu_launches
    assert (launch.grid[0], launch.block) == ("1024", (256, 1, 1))
    assert int(launch.shared_bytes) > 48 << 10


def test_f32_is_never_rounded_to_tf32() -> None:
    """Not under ``fast`` either, whose bounds are those of f32."""
    assert "mma.sync" not in ptx_of(compiled(matmul(256, 256, 256, "f32"), 3, numerics="fast"))


def test_an_older_gpu_and_f32_multiply_and_add() -> None:
    for kernel in (
        compiled(matmul(256, 256, 256, "f32"), 3),
        compiled(matmul(256, 256, 256, "f16"), 3, "sm_75"),
    ):
        assert "mma.sync" not in ptx_of(kernel)
        assert "fma.rn.f32" in ptx_of(kernel)
        assert len(kernel.interface.gpu_launches) == 1


def test_sums_stay_in_order_where_strict() -> None:
    kernel = compiled(matmul(256, 256, 256, "f32"), 3, numerics="strict")
    assert "bar.sync" not in ptx_of(kernel)
    assert "fma.rn.f32" not in ptx_of(kernel)


def test_a_narrow_result_is_rounded_once_in_the_same_launch() -> None:
    kernel = compiled(matmul(256, 256, 256, "f16", "f16"), 3)
    assert len(kernel.interface.gpu_launches) == 1
    assert "mma.sync" in ptx_of(kernel)


def test_many_products_of_f32_take_large_tiles() -> None:
    (launch,) = compiled(matmul(2048, 64, 2048, "f32"), 3).interface.gpu_launches
    assert launch.grid[0] == "256"


def test_a_convolution_in_f16_is_a_product_by_matrix_instructions() -> None:
    image, taps, result = "tensor<2x14x14x64xf16>", "tensor<3x3x64x32xf16>", "tensor<2x12x12x32xf32>"
    text = f"""
module {{ func.func @main(%x: {image}, %w: {taps}) -> {result} {{
  %r = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {{}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
    : ({image}, {taps}) -> {result}
  return %r : {result}
}} }}
"""
    ptx = ptx_of(compiled(text, 2))
    assert "mma.sync" in ptx
    assert "cp.async.cg.shared.global" in ptx


def test_an_operand_with_no_neighbors_along_its_indices_is_loaded_one_by_one() -> None:
    """A convolution by single pixels in steps of two: neither K nor the rows run along memory."""
    image, taps, result = "tensor<1x16x28x28xf32>", "tensor<32x16x1x1xf32>", "tensor<1x32x14x14xf32>"
    text = f"""
module {{ func.func @main(%x: {image}, %w: {taps}) -> {result} {{
  %r = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
    window = {{stride = [2, 2]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
    : ({image}, {taps}) -> {result}
  return %r : {result}
}} }}
"""
    kernel = compiled(text, 2)
    (launch,) = kernel.interface.gpu_launches
    assert launch.block == (256, 1, 1)
    assert "bar.sync" in ptx_of(kernel)
