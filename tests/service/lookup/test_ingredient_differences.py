"""Ingredients that differ, in words: of requests and kernels that no server has to make."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kcache_grpc.model.identity import Toolchain, Toolchains
from kcache_grpc.model.manifest import SymbolSpec, TensorSpec
from kcache_grpc.model.variants import SpecSizes
from kcache_grpc.service.explain.explanations import step_of
from kcache_grpc.service.explain.ingredient_differences import Asked, differences
from kcache_grpc.storage.contract.nearby import WEIGHTS, NearKernel
from kcache_grpc.storage.records import KernelRecord, Namespace

TOOLCHAIN = Toolchain((("llvmlite", "0.50.0"), ("llvm", "22.1"), ("pipeline", "a" * 64), ("code", "3")))
TOOLCHAINS = Toolchains(TOOLCHAIN, Toolchain((("llvm", "22.1"), ("ptxas", "13.0"))))
OPTIONS = "numerics=default opt_level=3 tuning=generic"
RECORD = KernelRecord(b"k" * 32, 1, "f32[8,128];f32[128]", "", "x86-64-v4", OPTIONS, TOOLCHAIN.digest)
SIZES = SpecSizes(
    (SymbolSpec("s0", 0, 0), SymbolSpec("s1", 0, 1)),
    (TensorSpec("f32", ("s0", "s1")), TensorSpec("f32", ("s1",))),
    {"s0": 8, "s1": 128},
)
ASKED = Asked(Namespace(1, "default", 2), RECORD, SIZES, TOOLCHAINS)


def near(distance: int = 0, epoch: int = 2, versions: dict[str, str] | None = None, **changes) -> NearKernel:
    theirs = dict(TOOLCHAIN.ingredients) | (versions or {})
    ingredients = tuple((f"toolchain.{name}", value) for name, value in theirs.items())
    return NearKernel(5, replace(RECORD, **changes), ingredients, epoch, 1, distance)


def said(kernel: NearKernel, **more) -> list[str]:
    return [difference.sentence for difference in differences(ASKED, kernel, **more)]


def test_the_same_kernel_does_not_differ():
    assert differences(ASKED, near()) == ()


@pytest.mark.parametrize(
    ("kernel", "sentence"),
    [
        (near(target="x86-64-v3"), "compiled for x86-64-v3, you asked for x86-64-v4"),
        (
            near(options=OPTIONS.replace("3", "1")),
            "compiled with opt_level 1, you asked for opt_level 3",
        ),
        (near(epoch=1), "it belongs to epoch 1, which was disowned: the namespace is in epoch 2"),
        (
            near(toolchain=b"o" * 32, versions={"llvmlite": "0.49.0"}),
            "the toolchain differs: llvmlite 0.50.0 here, 0.49.0 there",
        ),
        (
            near(toolchain=b"o" * 32, versions={"pipeline": "b" * 64}),
            f"the toolchain differs: the text of its pipeline is another ({'a' * 12} here, {'b' * 12} there)",
        ),
        (
            near(toolchain=b"o" * 32, versions={"ptxas": "12.8"}),
            "the toolchain differs: ptxas unknown here, 12.8 there",
        ),
        (
            near(arg_spec="f32[4,128];f32[128]"),
            "sizes differ: argument 0 is f32[8,128] here and f32[4,128] there",
        ),
        (
            near(arg_spec="f32[s0,128];f32[128]"),
            "it is one kernel for all sizes of s0, and takes yours; you asked for one for "
            'f32[8,128];f32[128] only (dynamic="auto" uses what is there)',
        ),
        (
            near(arg_spec="odd"),
            "sizes differ: argument 0 is f32[8,128] here and odd there, "
            "argument 1 is f32[128] here and nothing there",
        ),
        (near(guard="s0 % 4 == 0", arg_spec="f32[s0,128];f32[128]"), "it is for sizes with s0 % 4 == 0 only"),
        (
            near(guard="s0 % 16 == 0", arg_spec="f32[s0,128];f32[128]"),
            "its guard does not hold: s0 % 16 == 0, and s0 (axis 0 of argument 0) is 8 here",
        ),
    ],
)  # fmt: skip
def test_each_ingredient_in_words(kernel, sentence):
    assert sentence in said(kernel)


def test_ingredients_that_were_not_stored():
    kernel = replace(near(toolchain=b"o" * 32), ingredients=(("spec", "x"),))
    (sentence,) = said(kernel)
    digests = f"{TOOLCHAIN.digest.hex()[:12]} here, {'6f' * 6} there"
    assert sentence == f"the toolchain differs: {digests}; its ingredients are not stored"


def test_the_heaviest_comes_first_and_sizes_only_within_a_spec():
    kernel = near(epoch=1, target="aarch64", toolchain=b"o" * 32, versions={"llvm": "1"}, arg_spec="f32[1]")
    names = [difference.name for difference in differences(ASKED, kernel)]
    assert names == ["epoch", "target", "toolchain.llvm", "arg_spec"]
    assert [difference.name for difference in differences(ASKED, kernel, sizes=False)] == names[:-1]


def test_kernels_for_gpus_are_compared_with_what_compiles_for_gpus_here():
    digest = TOOLCHAINS.gpu.digest
    ingredients = tuple((f"toolchain.{name}", value) for name, value in TOOLCHAINS.gpu.ingredients)
    ours = replace(near(target="sm_90", toolchain=digest), ingredients=ingredients)
    assert said(ours) == ["compiled for sm_90, you asked for x86-64-v4"]
    older = (("toolchain.llvm", "22.1"), ("toolchain.ptxas", "12.8"))
    theirs = replace(near(target="sm_90", toolchain=b"o" * 32), ingredients=older)
    assert said(theirs)[1:] == ["the toolchain differs: ptxas 13.0 here, 12.8 there"]


def test_long_values_are_cut():
    many = ";".join(["f32[8]"] * 1000)
    (difference,) = differences(ASKED, near(arg_spec=many))
    assert len(difference.theirs) < 2100
    assert "and 997 more" in difference.sentence


@pytest.mark.parametrize("name", ["epoch", "toolchain", "target", "options"])
def test_the_step_is_the_heaviest_ingredient_of_the_nearest(name):
    step, summary = step_of(ASKED, [near(distance=WEIGHTS[name] + WEIGHTS["guard"])])
    assert step == name.upper()
    assert name.rstrip("s") in summary


def test_steps_of_sizes_and_guards():
    assert step_of(ASKED, [])[0] == "NO_KERNEL"
    assert step_of(ASKED, [near(distance=0)])[0] == "BYTES_LOST"
    assert step_of(ASKED, [near(distance=2, arg_spec="f32[4,128];f32[128]")])[0] == "SIZES"
    guarded = near(distance=3, arg_spec="f32[s0,128];f32[128]", guard="s0 % 16 == 0")
    assert step_of(ASKED, [guarded])[0] == "GUARD"
    assert step_of(ASKED, [near(distance=1, guard="s0 % 4 == 0")])[0] == "GUARD"
