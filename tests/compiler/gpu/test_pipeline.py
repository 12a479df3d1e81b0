"""Programs become PTX: launches that say how they are run, and code that states what the GPU must have."""

from __future__ import annotations

import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.errors import CompileFailed
from kcache_compiler.types import CompiledKernel, CompileOptions
from tests.compiler.gpu.programs import LOOP, POINTWISE, PRODUCT, SOFTMAX

TARGETS = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")


def compiled(text: str, inputs: int, target: str = "sm_90", numerics: str = "default") -> CompiledKernel:
    return lower_module(text, inputs, target, CompileOptions(numerics=numerics), lambda _: None)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", TARGETS)
def test_ptx_is_the_oldest_that_has_the_architecture(target: str) -> None:
    ptx = compiled(POINTWISE, 2, target).artifacts["ptx"].decode()
    version = {"sm_75": "6.3", "sm_80": "7.0", "sm_90": "7.8", "sm_100": "8.6", "sm_120": "8.7"}[target]
    assert f".version {version}" in ptx
    assert f".target {target}" in ptx


def test_each_launch_is_an_entry_with_its_parameters() -> None:
    kernel = compiled(PRODUCT, 2)
    ptx = kernel.artifacts["ptx"].decode()
    for launch in kernel.interface.gpu_launches:
        head = ptx[ptx.index(f".entry {launch.entry}(") :]
        assert head[: head.index(")")].count(".param .u64") == len(launch.params)
        assert ".reqntid {}, {}, {}".format(*launch.block) in head[: head.index("{")]
    named = {param for launch in kernel.interface.gpu_launches for param in launch.params}
    assert {"buffer:0", "buffer:1", "buffer:2", "i64:s0"} <= named


def test_roots_are_exact_and_products_are_not_fused_where_strict() -> None:
    assert "sqrt.rn.f32" in compiled(POINTWISE, 2).artifacts["ptx"].decode()
    strict = compiled(PRODUCT, 2, numerics="strict").artifacts["ptx"].decode()
    assert "fma.rn.f32" not in strict
    assert "fma.rn.f32" in compiled(PRODUCT, 2).artifacts["ptx"].decode()


def test_a_row_is_read_by_a_block_whose_sums_meet() -> None:
    kernel = compiled(SOFTMAX, 1)
    (launch,) = kernel.interface.gpu_launches
    ptx = kernel.artifacts["ptx"].decode()
    assert (launch.grid[0], launch.block) == ("128", (256, 1, 1))
    assert ptx.count("shfl.sync.bfly") == 10
    assert "ld.global.nc" in ptx


def test_sums_in_order_stay_in_one_thread_where_strict() -> None:
    assert "shfl.sync" not in compiled(SOFTMAX, 1, numerics="strict").artifacts["ptx"].decode()


def test_equal_programs_give_equal_bytes() -> None:
    assert compiled(SOFTMAX, 1).artifacts == compiled(SOFTMAX, 1).artifacts


def test_a_loop_that_data_ends_is_one_thread_where_its_values_are_numbers() -> None:
    *_, launch = compiled(LOOP, 1).interface.gpu_launches
    assert (launch.ops[0], launch.block, launch.grid) == ("while", (1, 1, 1), ("1", "1", "1"))


def test_an_unknown_architecture_is_rejected() -> None:
    with pytest.raises(CompileFailed, match="sm_130"):
        compiled(POINTWISE, 2, "sm_130")


def test_neighbors_are_read_and_written_sixteen_bytes_at_a_time() -> None:
    for text, inputs, loads in ((POINTWISE, 2, 2), (SOFTMAX, 1, 2)):
        ptx = compiled(text, inputs).artifacts["ptx"].decode()
        assert ptx.count("ld.global.nc.v4.b32") >= loads
        assert "st.global.v4.b32" in ptx


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("length", "chunks"), [(256, 2), (1024, 2), (4096, 4), (16384, 4)])
def test_a_row_is_read_once_and_written_once(length: int, chunks: int) -> None:
    """Threads keep their elements of a softmax in registers."""
    ptx = compiled(SOFTMAX.replace("2000", str(length)), 1).artifacts["ptx"].decode()
    assert ptx.count("ld.global.nc.v4.b32") == chunks
    assert ptx.count("st.global.v4.b32") == chunks
    assert ptx.count("ld.global") == chunks
    assert ptx.count("st.global") == chunks


def test_rows_of_odd_lengths_are_read_one_by_one() -> None:
    ptx = compiled(SOFTMAX.replace("2000", "2001"), 1).artifacts["ptx"].decode()
    assert "ld.global.nc.b32" in ptx
    assert ".v4" not in ptx


def test_a_transposition_goes_through_shared_memory() -> None:
    text = """
module { func.func @main(%a: tensor<1000x700xf32>) -> tensor<700x1000xf32> {
  %r = stablehlo.transpose %a, dims = [1, 0] : (tensor<1000x700xf32>) -> tensor<700x1000xf32>
  return %r : tensor<700x1000xf32>
} }
"""
    kernel = compiled(text, 1)
    (launch,) = kernel.interface.gpu_launches
    ptx = kernel.artifacts["ptx"].decode()
    assert launch.grid[0] == str(32 * 22)
    assert "st.shared.b32" in ptx
    assert "bar.sync" in ptx
