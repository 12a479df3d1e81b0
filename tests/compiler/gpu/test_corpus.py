"""Every graph of the corpus and of the demo has kernels for GPUs, of fixed sizes and of all sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.llvm.ptxas import find_ptxas
from kcache_compiler.types import ArgSpec, CompiledKernel, CompileOptions
from tests.recognition.exports.corpus import NAMES, read

ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
#: Compiled on every change; all of them in the long run.
QUICK = (("softmax", "sm_90"), ("layer_norm", "sm_80"), ("gelu_mlp", "sm_120"), ("rotary", "sm_100"))
DEMO = sorted((Path(__file__).parents[3] / "examples").glob("*/*.mlir"))


def _compiled(text: bytes, target: str, is_open: bool) -> CompiledKernel:
    canonical = canonicalize(text, "stablehlo", "default")
    args = ArgSpec(canonical.symbolic_args) if is_open else canonical.arg_spec
    return compile_spec(canonical.spec_text, args, target, CompileOptions(), lambda _: None)


def _check(kernel: CompiledKernel, target: str) -> None:
    ptx = kernel.artifacts["ptx"].decode()
    launches = kernel.interface.gpu_launches
    assert f".target {target}" in ptx
    assert ptx.count(".entry ") == len(launches) > 0
    if find_ptxas() is not None:
        assert [launch.resources.spill_bytes for launch in launches if launch.resources] == [0] * len(
            launches
        )


@pytest.mark.sampled(36)
@pytest.mark.parametrize(
    ("name", "target"),
    [
        pytest.param(name, target, marks=[pytest.mark.long] * ((name, target) not in QUICK))
        for name in NAMES
        for target in ARCHITECTURES
    ],
)
def test_a_graph_of_the_corpus_has_a_kernel(name: str, target: str) -> None:
    _check(_compiled(read(name).texts[1].encode(), target, is_open=False), target)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name != "softmax")) for name in NAMES]
)
def test_a_graph_of_the_corpus_has_a_kernel_of_all_sizes(name: str) -> None:
    _check(_compiled(read(name).texts[1].encode(), "sm_90", is_open=True), "sm_90")


def test_the_demo_has_graphs() -> None:
    assert DEMO


@pytest.mark.long
@pytest.mark.parametrize("target", ARCHITECTURES)
@pytest.mark.parametrize("path", DEMO, ids=lambda path: path.stem)
def test_a_graph_of_the_demo_has_a_kernel(path: Path, target: str) -> None:
    _check(_compiled(path.read_bytes(), target, is_open=False), target)
