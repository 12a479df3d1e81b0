"""Operations that repeat share code: a program of many layers takes what one layer takes, and calls."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from benchmarks.chains.programs import chain
from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.compile import lower_module, lower_until
from kcache_compiler.dynamic import Request, sample_unit
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.inline_math_functions import PREFIX
from kcache_compiler.passes.stage import run
from kcache_compiler.pipelines import cpu
from kcache_compiler.shapes.recovery import RecoveredSizes
from kcache_compiler.spec.dynamic_graph import dynamic_graph, with_stated_sizes
from kcache_compiler.spec.text import parse_spec
from kcache_compiler.types import CompiledKernel, CompileOptions
from kcache_grpc.model.target import host_target
from tests.compiler.codegen_harness import Kernel, kernel_of

FEW, MANY = 15, 45
#: Kinds whose operations are launches of their own, by the bytes of code that one more may take.
REPEATED = {
    "convolution": 384,
    "gather": 128,
    "reduce_window": 384,
    "sort": 256,
}


def _compiled(kind: str, count: int) -> CompiledKernel:
    canonical = canonicalize(chain(kind, count).encode(), "stablehlo", "strict")
    options = CompileOptions(numerics="strict")
    return compile_spec(canonical.spec_text, canonical.arg_spec, "x86-64-v3", options, lambda _: None)


def _functions(kernel: CompiledKernel) -> int:
    return kernel.artifacts["llvm"].count(b"\ndefine ")


@pytest.mark.sampled(36)
@pytest.mark.parametrize("kind", REPEATED)
def test_operations_that_repeat_take_calls_only(kind: str) -> None:
    few, many = _compiled(kind, FEW), _compiled(kind, MANY)
    assert len(many.interface.launches) > 2 * len(few.interface.launches)
    assert _functions(many) <= _functions(few) + 4
    grown = len(many.artifacts["so"]) - len(few.artifacts["so"])
    assert grown <= (MANY - FEW) * REPEATED[kind] + 4096  # a page


@pytest.mark.sampled(9)
@pytest.mark.parametrize("kind", ["concatenate", "dot_general ?", "sort ?"])
def test_code_of_launches_is_written_once(kind: str) -> None:
    """Not written for each and found equal afterwards: writing takes longer than all else."""
    assert _written(kind, MANY) <= _written(kind, FEW) + 2


def _written(kind: str, count: int) -> int:
    """Functions of a module as its launches are made, before equal ones are one."""
    canonical = canonicalize(chain(kind, count).encode(), "stablehlo", "strict")
    sized = with_stated_sizes(dynamic_graph(parse_spec(canonical.spec_text)))
    samples = sized.sizes.samples(3, 0) or [[]]
    options = CompileOptions(numerics="strict")
    request = Request(len(canonical.arg_spec.args), "x86-64-v3", options, lambda _: None)
    units = [sample_unit(sized, sample, request) for sample in samples]
    place = [stage.name for stage in cpu()].index("launches")
    with mlir.new_context(), mlir.unknown_location():
        for unit in units:
            run(cpu()[:place], unit, lambda _: None)
        texts = [unit.module.operation.get_asm() for unit in units]
        units[0].codes = RecoveredSizes(samples, texts) if len(units) > 1 else RecoveredSizes()
        run(cpu()[place : place + 1], units[0], lambda _: None)
        return len(mlir.named(units[0].module, "func.func"))


def test_powers_of_integers_are_calls_until_launches_are_known() -> None:
    """A power is some 160 operations."""
    options = CompileOptions(numerics="strict")
    with lower_until(chain("power i32", 150), 6, "x86-64-v3", "late-math", options) as module:
        functions = [
            function for function in mlir.named(module, "func.func") if PREFIX not in mlir.symbol_of(function)
        ]
        launches = [function for function in functions if mlir.symbol_of(function) != "kcache_run"]
        calls = [call for call in mlir.named(module, "func.call") if PREFIX in str(call.attributes["callee"])]
        assert len(launches) <= 3
        assert len(calls) <= 64
        assert len(mlir.walk(module)) < 150 * 160


def test_bodies_of_quantized_operations_repeat() -> None:
    """Each is eleven operations of floats and integers, in an order of operands that is the spec's own."""
    few, many = _compiled("add quantized", MANY), _compiled("add quantized", 2 * MANY)
    assert len(many.interface.launches) > len(few.interface.launches)
    assert _functions(many) <= _functions(few) + 2
    assert len(many.artifacts["so"]) <= len(few.artifacts["so"]) + 3 * 4096


@pytest.mark.long
def test_sums_of_small_floats_repeat() -> None:
    """Each is rounded at once; in what order a sum has its operands is the spec's own."""
    few, many = _compiled("add f8", 260), _compiled("add f8", 520)
    assert len(many.interface.launches) > len(few.interface.launches) + 8
    assert _functions(many) <= _functions(few) + 2
    random = np.random.default_rng(3)
    x, w = (random.uniform(-4, 4, (8, 8)).astype(ml_dtypes.float8_e4m3fn) for _ in range(2))
    others = _others(random)
    part = Kernel(_compiled("add f8", 65))
    expected = x
    for _ in range(4):
        expected = part(expected, w, *others)[0]
    assert Kernel(few)(x, w, *others)[0].tobytes() == expected.tobytes()


def test_operations_between_products_repeat() -> None:
    """No chain is long enough to be cut, as a product ends each; operands are in one order there too."""
    few, many = _compiled("dot_general quantized", MANY), _compiled("dot_general quantized", 2 * MANY)
    assert len(many.interface.launches) > len(few.interface.launches) + MANY
    assert _functions(many) <= _functions(few) + 2
    assert _functions(many) < MANY // 2


@pytest.mark.long
@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", ["add quantized", "dot_general quantized"])
def test_a_long_quantized_chain_computes_what_its_parts_do(kind: str) -> None:
    random = np.random.default_rng(13)
    x, w = (random.integers(-128, 128, (8, 8)).astype(np.int8) for _ in range(2))
    once, part = (Kernel(_compiled(kind, count)) for count in (40, 20))
    others: list[np.ndarray | np.int32] = _others(random)
    if kind != "add quantized":
        others.append(random.integers(-4, 5, (8, 8)).astype(np.int8))
    expected = part(part(x, w, *others)[0], w, *others)[0]
    assert len(np.unique(expected)) > 2
    assert once(x, w, *others)[0].tobytes() == expected.tobytes()


def test_a_place_may_be_turned_around_any_number_of_times() -> None:
    kernel = Kernel(_compiled("reverse", 1001))
    random = np.random.default_rng(17)
    x, w = (random.normal(size=(8, 8)).astype(np.float32) for _ in range(2))
    result = kernel(x, w, *_others(random))[0]
    assert result.tobytes() == Kernel(_compiled("reverse", 1))(x, w, *_others(random))[0].tobytes()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", ["cosine", "remainder"])
def test_code_grows_no_faster_than_a_chain(kind: str) -> None:
    few, many = _compiled(kind, FEW), _compiled(kind, 4 * FEW)
    for artifact in ("so", "llvm"):
        assert len(many.artifacts[artifact]) <= 1.2 * 4 * len(few.artifacts[artifact])


def test_launches_that_share_code_keep_their_names_and_buffers() -> None:
    lines = "\n".join(
        f"%p{n} = stablehlo.dot_general %v{n}, %w{n % 2}, contracting_dims = [1] x [0] : "
        f"(tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>\n"
        f"%v{n + 1} = stablehlo.maximum %p{n}, %b{n % 2} : tensor<64x64xf32>"
        for n in range(6)
    )
    kind = "tensor<64x64xf32>"
    parameters = ", ".join(f"%{name}: {kind}" for name in ("v0", "w0", "w1", "b0", "b1"))
    text = f"func.func @main({parameters}) -> {kind} {{\n{lines}\nreturn %v6 : {kind}\n}}"
    random = np.random.default_rng(7)
    value, w0, w1, b0, b1 = (random.uniform(-0.2, 0.2, (64, 64)).astype(np.float32) for _ in range(5))
    result = kernel_of(text)(value, w0, w1, b0, b1)[0]
    for n in range(6):
        value = np.maximum(value.astype(np.float64) @ (w0, w1)[n % 2], (b0, b1)[n % 2]).astype(np.float32)
    np.testing.assert_allclose(result, value, rtol=1e-4, atol=1e-5)


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("kind", "whole", "parts"), [("tanh", 260, 2), ("scatter", 144, 3), ("scatter", 260, 4)]
)
def test_a_long_chain_computes_what_its_parts_do(kind: str, whole: int, parts: int) -> None:
    random = np.random.default_rng(11)
    x, w = (random.uniform(-1, 1, (8, 8)).astype(np.float32) for _ in range(2))
    others = _others(random)
    once, part = (_kernel(kind, count) for count in (whole, whole // parts))
    expected = x
    for _ in range(parts):
        expected = part(expected, w, *others)[0]
    result = once(x, w, *others)[0]
    assert np.isfinite(result).all()
    assert result.tobytes() == expected.tobytes()


def _others(random: np.random.Generator) -> list[np.ndarray | np.int32]:
    """What all chains take beside the two values."""
    places = random.integers(0, 8, 8).astype(np.int32)
    return [np.zeros((3, 8, 8), np.float32), places, np.int32(0), np.int32(1)]


def _kernel(kind: str, count: int) -> Kernel:
    text, options = chain(kind, count), CompileOptions(numerics="strict")
    return Kernel(lower_module(text, 6, host_target().isa, options, lambda _: None))
