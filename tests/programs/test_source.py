"""What counts as a program, and which format it has."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from kcache_grpc.errors import ArgumentError, InvalidProgram, NotFound, UnsupportedOp
from kcache_grpc.model.program import Program, ProgramFormat
from kcache_grpc.programs.jax.export import without_shardings
from kcache_grpc.programs.source import ProgramLike, read_one

STABLEHLO = "func.func @main(%a: tensor<f32>) -> tensor<f32> {\n  %0 = stablehlo.abs %a : tensor<f32>\n}\n"
LINALG = "func.func @main(%a: tensor<4xf32>) {\n  %0 = linalg.abs ins(%a : tensor<4xf32>)\n}\n"


def read(program: ProgramLike, format: str | None) -> Program:
    """The program alone, without the arguments that it brings."""
    return read_one(program, format).program


@pytest.mark.parametrize(
    ("text", "format"),
    [
        (STABLEHLO, ProgramFormat.STABLEHLO),
        (LINALG, ProgramFormat.LINALG),
        ('func.func @f() {\n  %0 = "stablehlo.abs"(%a) : (f32) -> f32\n}', ProgramFormat.STABLEHLO),
        ('func.func @f() {\n  %0 = linalg.fill {s = "= stablehlo.abs"}\n}', ProgramFormat.LINALG),
        ("func.func @f() {\n  %0 = tensor.empty() : tensor<2xf32>\n}", ProgramFormat.LINALG),
        ("func.func @f(%a: tensor<f32>) -> tensor<f32> {\n  return %a\n}", ProgramFormat.STABLEHLO),
        ("  %0 = linalg.abs\n  %1 = stablehlo.abs", ProgramFormat.STABLEHLO),
        ("func.func @f() {\n  %int1 = torch.constant.int 1\n}", ProgramFormat.TORCH),
    ],
)
def test_format_of_text_is_told_by_its_operations(text: str, format: ProgramFormat) -> None:
    assert read(text, None).format is format
    assert read(text.encode(), None).format is format


def test_stated_format_wins() -> None:
    assert read(STABLEHLO, "linalg").format is ProgramFormat.LINALG


def test_bytecode_is_told_by_its_magic() -> None:
    assert read(b"ML\xefR\x0dStableHLO_v1.0.0\0", None).format is ProgramFormat.STABLEHLO
    assert read(b"ML\xefR\x0dMLIR\0linalg\0generic", None).format is ProgramFormat.LINALG
    assert read(b"ML\xefR\x0dMLIR\0linalg_norm\0!torch.vtensor<[2],f32>", None).format is (
        ProgramFormat.TORCH
    )


def test_str_bytes_and_file_are_the_same_program(tmp_path: Path) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(STABLEHLO)
    digests = {read(form, None).digest for form in (STABLEHLO, STABLEHLO.encode(), path)}
    assert len(digests) == 1


def test_locations_are_not_part_of_the_digest() -> None:
    located = STABLEHLO.replace(": tensor<f32>\n", ': tensor<f32> loc("a.py":1:2)\n')
    assert located != STABLEHLO
    assert read(located, None).digest == read(STABLEHLO, None).digest


def test_a_str_that_names_a_file_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "no-suffix"
    path.write_text(STABLEHLO)
    for name in (str(path), "missing.mlir"):
        with pytest.raises(ArgumentError, match=r"pass pathlib\.Path\("):
            read(name, None)


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such file"):
        read(tmp_path / "missing.mlir", None)
    with pytest.raises(ArgumentError, match="cannot be read"):
        read(tmp_path, None)


@pytest.mark.parametrize("program", ["", b""])
def test_empty(program: object) -> None:
    with pytest.raises(InvalidProgram, match="empty"):
        read(program, None)


def test_lone_surrogate() -> None:
    with pytest.raises(InvalidProgram, match="Unicode"):
        read("module {\n}\ud800", None)


def test_unknown_format() -> None:
    with pytest.raises(ArgumentError, match="'stablehlo', 'linalg'"):
        read("x\n", "hlo")


def test_archives_are_told() -> None:
    with pytest.raises(ArgumentError, match=r"zip archive .* torch\.export\.load"):
        read(b"PK\x03\x04" + bytes(20), None)
    with pytest.raises(InvalidProgram, match="neither MLIR text nor MLIR bytecode"):
        read(b"\x08\x07\x12\x00onnx", None)


@pytest.mark.parametrize("program", [3, None, ["module {}"], zipfile])
def test_other_objects(program: object) -> None:
    with pytest.raises(ArgumentError, match="a program is a str, bytes, a path"):
        read(program, None)


def test_torch_objects() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ArgumentError, match=r"torch\..*Linear is no program yet: pass torch\.export\.export"):
        read(torch.nn.Linear(2, 2), None)


def test_jax_export_is_a_portable_artifact() -> None:
    jax = pytest.importorskip("jax")
    exported = jax.export.export(jax.jit(lambda x: x + 1))(jax.ShapeDtypeStruct((4,), "float32"))
    program = read(exported, None)
    assert program.format is ProgramFormat.STABLEHLO
    assert program.body.startswith(b"ML\xefR")


def test_jax_exports_from_different_lines_are_the_same_program() -> None:
    jax = pytest.importorskip("jax")

    def export(function: Any) -> Any:
        return jax.export.export(jax.jit(function))(jax.ShapeDtypeStruct((4,), "float32"))

    first = export(lambda x: jax.nn.relu(x) * 2)

    second = export(lambda y: jax.nn.relu(y) * 2)
    assert bytes(first.mlir_module_serialized) != bytes(second.mlir_module_serialized)
    assert read(first, None).digest == read(second, None).digest
    assert b".py" not in read(first, None).body


def test_jax_export_for_two_platforms_is_rejected() -> None:
    jax = pytest.importorskip("jax")
    exported = jax.export.export(jax.jit(lambda x: x + 1), platforms=("cpu", "cuda"))(
        jax.ShapeDtypeStruct((4,), "float32")
    )
    with pytest.raises(ArgumentError, match="one platform"):
        read(exported, None)


def test_jax_exports_lose_what_is_for_several_devices(capfd: pytest.CaptureFixture[str]) -> None:
    jax = pytest.importorskip("jax")
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("x",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    constrained = jax.jit(lambda x: jax.lax.with_sharding_constraint(x * 2, rows), in_shardings=rows)
    for function in (jax.jit(jax.numpy.linalg.cholesky), constrained):
        exported = jax.export.export(function)(jax.ShapeDtypeStruct((4, 4), "float32"))
        assert "sdy." in exported.mlir_module()
        body = read(exported, None).body
        assert body.startswith(b"ML\xefR")
        assert b"sdy" not in body
    assert capfd.readouterr().err == ""


MANUAL = """
sdy.mesh @mesh = <["x"=1]>
func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = sdy.manual_computation(%arg0) in_shardings=[<@mesh, [{"x"}]>] out_shardings=[<@mesh, [{"x"}]>]
      manual_axes={"x"} (%arg1: tensor<4xf32>) {
    sdy.return %arg1 : tensor<4xf32>
  } : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


def test_ops_that_need_several_devices_are_rejected() -> None:
    pytest.importorskip("jax")
    with pytest.raises(UnsupportedOp, match=r"sdy\.\w+ is for programs of several devices") as caught:
        without_shardings(MANUAL)
    assert caught.value.op == "sdy.manual_computation"
    assert without_shardings("not MLIR") == "not MLIR"
