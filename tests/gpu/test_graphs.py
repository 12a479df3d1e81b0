"""Whole programs for GPUs against the same for this CPU: every op and type, every graph of the corpus."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.types import ArgSpec, CompiledKernel, CompileOptions, TensorType
from kcache_grpc.model.target import host_target
from tests.compiler.codegen_harness import NUMPY
from tests.compiler.dynamic_corpus import COMPILED, case
from tests.gpu.harness.emulate import ORDERS
from tests.gpu.harness.run import run_gpu
from tests.ops.harness.compare import difference
from tests.ops.harness.native import run
from tests.ops.harness.programs import OpProgram, all_programs
from tests.ops.harness.rejected import REJECTED
from tests.recognition.eager.close import largest_share

TARGET = "sm_90"
OPS = [program for program in all_programs() if program.id not in REJECTED]
#: Of the ops one in so many, and the quick graphs, on every change; all of them in the long run.
STEP = 80
QUICK = ("softmax", "layer_norm", "gpt_logits")


def _array(content: bytes, kind: TensorType) -> np.ndarray:
    return np.frombuffer(content, NUMPY[kind.dtype]).reshape([int(dim) for dim in kind.dims])


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(operation, marks=[pytest.mark.long] * (at % STEP != 0), id=operation.id)
        for at, operation in enumerate(OPS)
    ],
)
def test_an_op_gives_the_bits_of_the_cpu(program: OpProgram) -> None:
    canonical = canonicalize(program.text.encode(), "stablehlo", "strict")
    options = CompileOptions(numerics="strict")

    def compiled(target: str) -> CompiledKernel:
        return compile_spec(canonical.spec_text, canonical.arg_spec, target, options, lambda _: None)

    kernel = compiled(TARGET)
    inputs = [_array(*pair) for pair in zip(program.inputs, kernel.interface.inputs, strict=True)]
    constants = [_array(constant.content, constant.type) for constant in canonical.constants]
    got = run_gpu(kernel, inputs, constants, order="random")
    contents = [constant.content for constant in canonical.constants]
    wanted = run(compiled(host_target().isa), program.inputs, contents)
    for dtype, actual, other in zip(program.result_dtypes, got, wanted, strict=True):
        assert not difference(dtype, actual.tobytes(), other, 0.0), program.text


def _check_graph(name: str, numerics: str, count: int, static: bool) -> None:
    dynamic = case(name, numerics)
    kernel = None
    for seed, sizes in enumerate(islice(dynamic.sizes(0), count)):
        if static or kernel is None:
            args = ArgSpec(dynamic.types(sizes) if static else dynamic.canonical.symbolic_args)
            kernel = compile_spec(dynamic.canonical.spec_text, args, TARGET, dynamic.options, lambda _: None)
        arguments = dynamic.arguments(sizes, seed)
        wanted = dynamic.kernel(*arguments, *dynamic.constants)
        got = run_gpu(kernel, arguments, dynamic.constants, ORDERS[seed % 3], seed + 1)
        exact = [array.astype("f8") if array.dtype.kind == "f" else array for array in wanted]
        assert largest_share(got, exact) <= 1, f"{name} at {sizes}, {numerics}, static {static}"


@pytest.mark.sampled(36)
@pytest.mark.parametrize("name", QUICK)
def test_a_graph_agrees_with_the_cpu(name: str) -> None:
    _check_graph(name, "default", 3, static=False)
    _check_graph(name, "default", 1, static=True)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("static", [False, True], ids=["all sizes", "given sizes"])
@pytest.mark.parametrize("numerics", ["strict", "default", "fast"])
@pytest.mark.parametrize("name", COMPILED)
def test_every_graph_agrees_with_the_cpu(name: str, numerics: str, static: bool) -> None:
    _check_graph(name, numerics, 2 if static else 5, static)
