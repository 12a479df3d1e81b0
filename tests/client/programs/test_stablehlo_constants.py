"""Large constants of StableHLO programs: what the client takes out, and what kernels then compute."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kcache_grpc as kcache
from kcache_compiler import canonicalize
from kcache_compiler.mlir.context import new_context, parse_module
from kcache_grpc.programs.onnx.weights import LIFT_BYTES
from kcache_grpc.programs.source import read_source
from kcache_grpc.programs.text_constants import lift_bytecode, lift_constants, written_by
from kcache_grpc.runtime.dtypes import numpy_dtypes
from tests.serving import ServerProcess

pytestmark = pytest.mark.issue(number=19, point=16)

Array = Any
ELEMENTS = {
    "f32": "f32", "f64": "f64", "bf16": "bf16", "f16": "f16", "i64": "i64", "i32": "i32", "i8": "i8",
    "ui8": "ui8", "i1": "i1", "complex<f32>": "c64",
}  # fmt: skip
#: A constant in each way that text has for one, and what the text ends with.
FORMS = {
    "pretty": ('stablehlo.constant dense<"0x{hex}"> : {type}', ""),
    "generic": ('"stablehlo.constant"() <{{value = dense<"0x{hex}"> : {type}}}> : () -> {type}', ""),
    "resource": (
        "stablehlo.constant dense_resource<weights> : {type}",
        '\n{{-#\n  dialect_resources: {{ builtin: {{ weights: "0x08000000{hex}" }} }}\n#-}}\n',
    ),
}


@pytest.fixture
def client(server: ServerProcess, tmp_path: Path) -> Iterator[kcache.Client]:
    with kcache.Client(server.address, cache_dir=tmp_path / "cache", strict=True, timeout=240) as connected:
        yield connected


def count(element: str) -> int:
    """Elements of a little more than the bytes that stay."""
    return LIFT_BYTES // numpy_dtypes()[ELEMENTS[element]].itemsize + 1000


def constant(element: str, seed: int = 0) -> Array:
    dtype = numpy_dtypes()[ELEMENTS[element]]
    drawn: Array = np.random.default_rng(seed).integers(0, 2 if element == "i1" else 100, count(element))
    array: Array = drawn.astype(dtype)
    return array * (1 + 1j) if element.startswith("complex") else array


def program(array: Array, element: str, form: str) -> str:
    """``x`` and the constant, side by side."""
    size, (literal, end) = array.size, FORMS[form]
    shape = f"tensor<{size}x{element}>"
    digits = array.tobytes().hex().upper()
    return (
        f"func.func @main(%x: {shape}) -> tensor<2x{size}x{element}> {{\n"
        f"  %c = {literal.format(hex=digits, type=shape)}\n"
        f"  %a = stablehlo.reshape %x : ({shape}) -> tensor<1x{size}x{element}>\n"
        f"  %b = stablehlo.reshape %c : ({shape}) -> tensor<1x{size}x{element}>\n"
        f"  %0 = stablehlo.concatenate %a, %b, dim = 0 : (tensor<1x{size}x{element}>, "
        f"tensor<1x{size}x{element}>) -> tensor<2x{size}x{element}>\n"
        f"  return %0 : tensor<2x{size}x{element}>\n}}\n{end.format(hex=digits)}"
    )


@pytest.mark.sampled(6)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("element", ELEMENTS)
def test_constants_are_taken_out(element: str, form: str) -> None:
    array = constant(element)
    source = read_source(program(array, element, form), None)
    assert source.arguments is not None
    (value,) = source.arguments.values
    assert value.dtype == array.dtype
    np.testing.assert_array_equal(value, array)
    assert len(source.program.body) < 1000
    other = read_source(program(constant(element, 1), element, form), None)
    assert other.program.digest == source.program.digest


@pytest.mark.parametrize("form", FORMS)
def test_kernels_have_their_constants(client: kcache.Client, form: str) -> None:
    x, array, other = constant("f32", 1), constant("f32", 2), constant("f32", 3)
    text, second = program(array, "f32", form), program(other, "f32", form)
    for source, expected in ((text, array), (second, other), (text, array), (text.encode(), array)):
        (result,) = client.compile(source)(x)
        np.testing.assert_array_equal(result, np.stack([x, expected]))


def test_lists_of_numbers() -> None:
    array = np.random.default_rng(1).normal(size=(600, 600)).astype(np.float32)
    text = (
        "func.func @main() -> tensor<600x600xf32> {\n"
        f"  %c = stablehlo.constant dense<{array.tolist()}> : tensor<600x600xf32>\n"
        "  return %c : tensor<600x600xf32>\n}\n"
    )
    lifted, arguments = lift_constants(text.encode())
    assert arguments is not None
    np.testing.assert_array_equal(arguments.values[0], array)
    assert len(lifted) < 500


def test_what_stays(client: kcache.Client) -> None:
    """One element that repeats, what is small, what a comment has, and what is no constant of its type."""
    size = count("f32")
    ones = np.ones(size, np.float32).tobytes().hex()
    cut = np.arange(size - 1, dtype=np.float32).tobytes().hex()
    shape = f"tensor<{size}xf32>"
    text = (
        f"func.func @main(%x: {shape}) -> {shape} {{\n"
        f'  %c = stablehlo.constant dense<"0x{ones}"> : {shape}\n'
        f"  %0 = stablehlo.add %x, %c : {shape}\n  return %0 : {shape}\n}}\n"
    )
    source = read_source(text, None)
    assert source.arguments is None
    assert len(source.program.body) < 1000
    (result,) = client.compile(text)(np.arange(size, dtype=np.float32))
    np.testing.assert_array_equal(result, np.arange(1, size + 1, dtype=np.float32))
    for unchanged in (text.replace("  %c", "  // %c"), text.replace(ones, cut)):
        assert lift_constants(unchanged.encode()) == (unchanged.encode(), None)


def test_jax_programs_that_close_over_arrays(client: kcache.Client) -> None:
    jax = pytest.importorskip("jax")
    exporting = pytest.importorskip("jax.export")
    rng = np.random.default_rng(1)
    scale = rng.normal(size=500_000).astype(np.float32)
    weights = [rng.normal(size=(700, 700)).astype(np.float32) for _ in range(3)]

    def exported(first: Array, second: Array, third: Array) -> Any:
        inner = jax.jit(lambda x: x @ first)

        def body(_: int, x: Array) -> Array:
            return jax.numpy.tanh(inner(x) @ second)

        def function(x: Array, y: Array) -> Any:
            return jax.lax.fori_loop(0, 3, body, x) + inner(y) @ third, y[0, 0] * scale

        return exporting.export(jax.jit(function))(x, y)

    x, y = (rng.normal(size=(4, 700)).astype(np.float32) * np.float32(0.1) for _ in range(2))
    program, other = exported(*weights), exported(weights[1], weights[0], weights[2])
    source = read_source(program, None)
    assert len(source.program.body) < 20_000
    assert source.program.digest == read_source(other, None).program.digest
    for case in (program, other):
        results, expected = client.compile(case)(x, y), case.call(x, y)
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_allclose(result, wanted, rtol=2e-4, atol=2e-4 * float(np.abs(wanted).max()))


@pytest.mark.parametrize("package", ["torch_mlir", "jax"])
@pytest.mark.parametrize("portable", [True, False], ids=["portable artifact", "bytecode"])
def test_bytecode_is_lifted_as_its_text_is(package: str, portable: bool) -> None:
    pytest.importorskip(package)
    array = constant("f32")
    text = program(array, "f32", "pretty").encode()
    body = written_by(package, "1.0.0", text) if portable else bytecode(text)
    lifted, arguments = lift_constants(written_by(package, "text", body))
    assert arguments is not None
    np.testing.assert_array_equal(arguments.values[0], array)
    spec = canonicalize(lifted, "stablehlo").spec_digest
    assert canonicalize(lift_constants(text)[0], "stablehlo").spec_digest == spec
    assert canonicalize(written_by(package, "1.0.0", lifted), "stablehlo").spec_digest == spec


def bytecode(text: bytes) -> bytes:
    written = io.BytesIO()
    parse_module(text.decode(), new_context()).operation.write_bytecode(written)
    return written.getvalue()


def test_kernels_of_bytecode_have_their_constants(client: kcache.Client) -> None:
    x, array = constant("f32", 1), constant("f32", 2)
    artifact = written_by("torch_mlir", "1.0.0", program(array, "f32", "pretty").encode())
    source = read_source(artifact, None)
    assert len(source.program.body) < 2000
    assert source.program.body.startswith(b"ML\xefR\rStableHLO_v1.0.0")
    (result,) = client.compile(artifact)(x)
    np.testing.assert_array_equal(result, np.stack([x, array]))


@pytest.mark.parametrize("form", ["pretty", "generic"])
def test_linalg_programs(client: kcache.Client, form: str) -> None:
    x, array, other = (constant("f32", seed) for seed in range(3))
    shape, literal = f"tensor<{x.size}xf32>", FORMS[form][0].replace("stablehlo", "arith")

    def text(values: Array) -> str:
        return (
            f"func.func private @more(%x: {shape}) -> {shape} {{\n"
            f"  %c = {literal.format(hex=values.tobytes().hex(), type=shape)}\n"
            f"  %e = tensor.empty() : {shape}\n"
            f"  %0 = linalg.add ins(%x, %c : {shape}, {shape}) outs(%e : {shape}) -> {shape}\n"
            f"  return %0 : {shape}\n}}\n"
            f"func.func @main(%x: {shape}) -> {shape} {{\n"
            f"  %0 = call @more(%x) : ({shape}) -> {shape}\n  return %0 : {shape}\n}}\n"
        )

    assert read_source(text(array), None).program.digest == read_source(text(other), None).program.digest
    for values in (array, other):
        (result,) = client.compile(text(values))(x)
        np.testing.assert_array_equal(result, x + values)


def test_bytecode_that_nobody_reads_is_sent_as_it_is() -> None:
    damaged = b"ML\xefR\rStableHLO_v1.0.0\0" + bytes(2 * LIFT_BYTES)
    assert lift_bytecode(damaged) == (damaged, None)


@pytest.mark.parametrize("attributes", ['backend_config = "1"', 'backend_config = "x"', ""])
def test_calls_that_no_client_writes(client: kcache.Client, attributes: str) -> None:
    text = (
        "func.func @main() -> tensor<4xf32> {\n"
        f"  %c = stablehlo.custom_call @kcache.argument() {{{attributes}}} : () -> tensor<4xf32>\n"
        "  return %c : tensor<4xf32>\n}\n"
    )
    with pytest.raises(kcache.InvalidProgram, match=r"kcache\.argument"):
        client.compile(text)
