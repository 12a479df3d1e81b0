"""Kernels for AMD's GPUs in the emulator: the IR that AMD's back end gets, in waves of two warps."""

from __future__ import annotations

import dataclasses
import importlib.util
import re

import numpy as np
import pytest

from kcache_compiler import compile_spec
from kcache_compiler.codegen.gpu import lower_gpu
from kcache_compiler.types import ArgSpec, CompiledKernel, CompileOptions
from tests.compiler.codegen_harness import NUMPY
from tests.compiler.open_corpus import COMPILED, case
from tests.gpu.emulate import ORDERS
from tests.gpu.programs import TEMPLATES, TOLERANCE, Template, narrow_attention
from tests.gpu.run import run_gpu
from tests.gpu.test_control import LOOP
from tests.recognition.eager.close import largest_share

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="no ziglang, which brings ld.lld"
)
TARGET = "gfx942"
TEMPLATE = {one.name: one for one in TEMPLATES}


def compiled(text: str, arguments: int, target: str = TARGET) -> CompiledKernel:
    return lower_gpu(text, arguments, target, CompileOptions(), lambda _: None)


def _check(template: Template, dtype: str, sizes: tuple[int, ...], order: str) -> None:
    arguments = template.arguments(dtype, sizes)
    (got,) = run_gpu(compiled(template.text(dtype, *sizes), len(arguments)), arguments, order=order)
    template.check(dtype, arguments, got)


@pytest.mark.parametrize("name", TEMPLATE)
def test_a_template_agrees_with_numpy(name: str) -> None:
    _check(TEMPLATE[name], "f32", TEMPLATE[name].sizes[-1], "random")


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
@pytest.mark.parametrize("name", TEMPLATE)
def test_a_template_agrees_with_numpy_at_every_size(name: str, dtype: str) -> None:
    for at, sizes in enumerate(TEMPLATE[name].sizes):
        _check(TEMPLATE[name], dtype, sizes, ORDERS[at % 3])


@pytest.mark.parametrize("element", ["f32", pytest.param("bf16", marks=pytest.mark.long)])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_right(element: str, causal: bool) -> None:
    rng = np.random.default_rng(3)
    queries, keys, depth = 37, 75, 40
    text = narrow_attention(1, 2, queries, keys, depth, element, causal)
    q, k, v = (
        rng.standard_normal((1, 2, rows, depth)).astype(NUMPY[element]) for rows in (queries, keys, keys)
    )
    (got,) = run_gpu(compiled(text, 3), [q, k, v], order="random")
    scores = q.astype("f8") @ k.astype("f8").swapaxes(2, 3) * depth**-0.5
    if causal:
        scores = np.where(np.tri(queries, keys, dtype=bool), scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = powers / powers.sum(-1, keepdims=True) @ v.astype("f8")
    np.testing.assert_allclose(got.astype("f8"), wanted, rtol=0, atol=4 * TOLERANCE[element])


def test_control_flow_is_that_of_other_gpus() -> None:
    x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(6, 4)
    inputs = [x, np.int32(2).reshape(())]
    results = [run_gpu(compiled(LOOP, 2, target), inputs) for target in (TARGET, "sm_90")]
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("static", [False, True], ids=["all sizes", "given sizes"])
@pytest.mark.parametrize("name", COMPILED)
def test_a_graph_of_the_corpus_agrees_with_the_cpu(name: str, static: bool) -> None:
    one = case(name, "default")
    sizes = next(iter(one.sizes(0)))
    args = ArgSpec(one.types(sizes) if static else one.canonical.symbolic_args)
    kernel = compile_spec(one.canonical.spec_text, args, "gfx90a", one.options, lambda _: None)
    arguments = one.arguments(sizes, 0)
    got = run_gpu(kernel, arguments, one.constants, "random")
    exact = [
        array.astype("f8") if array.dtype.kind == "f" else array
        for array in one.kernel(*arguments, *one.constants)
    ]
    assert largest_share(got, exact) <= 1


_ROWS = TEMPLATE["softmax"].text("f32", 3, 2000)


@pytest.mark.parametrize(
    ("line", "instead", "reason"),
    [
        (r"call void @llvm\.amdgcn\.s\.barrier\(\)", "", "race|uninitialized"),
        (r"%other = xor i32 %lane, %bits", "%other = xor i32 %lane, 32", "the other half of its wave"),
        (r"call i32 @llvm\.amdgcn\.mbcnt\.hi\(i32 -1, i32 %low\)", "add i32 %low, 0", "softmax f32 .* error"),
    ],
    ids=["barrier", "shuffle", "lane"],
)
def test_what_is_wrong_in_a_wave_is_noticed(line: str, instead: str, reason: str) -> None:
    kernel = compiled(_ROWS, 1)
    ir, count = re.subn(line, instead, kernel.artifacts["llvm"].decode())
    assert count == 1
    broken = dataclasses.replace(kernel, artifacts={**kernel.artifacts, "llvm": ir.encode()})
    arguments = TEMPLATE["softmax"].arguments("f32", (3, 2000))
    with pytest.raises(AssertionError, match=reason):
        TEMPLATE["softmax"].check("f32", arguments, run_gpu(broken, arguments, order="random")[0])
