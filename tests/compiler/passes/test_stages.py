"""What stages give each other: IR that was verified, before a pass of the toolchain gets it."""

from __future__ import annotations

import itertools

import pytest

from kcache_compiler.errors import CompileFailed
from kcache_compiler.llvm.target import target_named
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.stage import (
    Pass,
    Stage,
    Unit,
    UpstreamPasses,
    missing_inputs,
    run,
    verified_after,
)
from kcache_compiler.pipelines import cpu, nvidia
from kcache_compiler.types import CompileOptions

MODULE = "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> { return %a : tensor<2xf32> }"


def _unit() -> Unit:
    unit = Unit(MODULE, 1, target_named("x86-64-v3"), CompileOptions())
    unit.module = mlir.parse(MODULE)
    return unit


def _spoil(unit: Unit) -> None:
    """Return nothing from a function that says it returns a tensor."""
    returned = mlir.named(unit.module, "func.return")[0]
    with mlir.before(returned):
        mlir.create("func.return")
    returned.erase()


def test_what_a_rewrite_spoils_reaches_no_pass() -> None:
    pipeline: tuple[Stage, ...] = (
        Pass("spoils", _spoil),
        Pass("looks", lambda: None),
        UpstreamPasses("passes", "canonicalize"),
    )
    begun: list[str] = []
    with mlir.new_context(), mlir.unknown_location(), pytest.raises(CompileFailed, match="looks"):
        run(pipeline, _unit(), begun.append)
    assert begun == ["spoils", "looks"]


def test_every_pass_and_the_translation_get_what_was_verified() -> None:
    verified = verified_after(cpu())
    for before, after in itertools.pairwise(cpu()):
        checked = isinstance(before, UpstreamPasses) or before.name in verified or not before.verify
        goes_on = isinstance(after, Pass) and after.verify
        assert checked or goes_on, f"{before.name} before {after.name}"
    assert "blocks" in verified
    assert "parse" not in verified


def test_the_last_stage_of_a_part_of_the_pipeline_is_verified() -> None:
    names = [stage.name for stage in cpu()]
    assert "static-shapes" in verified_after(cpu()[: names.index("select-and-scatter")])


def test_what_walks_do_not_look_for_in_bodies_is_rejected_there() -> None:
    text = """func.func @main(%a: memref<4xf32>, %b: memref<4xf32>) {
      linalg.generic {indexing_maps = [affine_map<(d) -> (d)>, affine_map<(d) -> (d)>],
          iterator_types = ["parallel"]} ins(%a : memref<4xf32>) outs(%b : memref<4xf32>) {
      ^bb0(%x: f32, %y: f32):
        %own = memref.alloc() : memref<f32>
        memref.store %x, %own[] : memref<f32>
        %z = memref.load %own[] : memref<f32>
        linalg.yield %z : f32
      }
      return
    }"""
    with mlir.new_context(), mlir.unknown_location():
        module = mlir.parse(text)
        (generic,) = mlir.named(module, "linalg.generic")
        assert not mlir.named(module, "memref.alloc")
        inner = mlir.walk(generic)[1:]
        mlir.require_scalars(inner[1:])
        with pytest.raises(ValueError, match=r"memref\.alloc stands in the body of a linalg\.generic"):
            mlir.require_scalars(inner)


def test_every_pass_reads_what_earlier_passes_make() -> None:
    for pipeline in (cpu(), nvidia()):
        assert missing_inputs(pipeline) == []
    without = tuple(stage for stage in cpu() if stage.name != "signature")
    assert "destinations: signature" in missing_inputs(without)
