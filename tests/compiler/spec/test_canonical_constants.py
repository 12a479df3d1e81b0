"""Constants: resources by content, empty tensors, types that no buffer has."""

# ruff: noqa: E501  (MLIR reads best unbroken)
from __future__ import annotations

import pytest

from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.spec import canonicalize
from kcache_compiler.spec.rendering.stablehlo import render

ONE_TWO, ONE_THREE = "0000803F00000040", "0000803F00004040"


def resource(blob: str, op: str, name: str = "r", type: str = "tensor<2xf32>") -> bytes:
    return f"""func.func @main(%x: {type}) -> {type} {{
      %k = {op.replace("VALUE", f"dense_resource<{name}>")} : {type}
      %r = arith.addf %x, %k : {type}
      return %r : {type} }}
    {{-# dialect_resources: {{builtin: {{{name}: "0x04000000{blob}"}}}} #-}}""".encode()


def stablehlo(blob: str, op: str, name: str = "r") -> bytes:
    return resource(blob, op, name).replace(b"arith.addf", b"stablehlo.add")


FORMS = [
    pytest.param("linalg", "arith.constant VALUE", resource, id="linalg"),
    pytest.param("stablehlo", "arith.constant VALUE", stablehlo, id="arith"),
    pytest.param("stablehlo", "stablehlo.constant VALUE", stablehlo, id="stablehlo"),
]


@pytest.mark.parametrize(("format", "op", "make"), FORMS)
def test_resources_are_their_content(format: str, op: str, make: type[bytes]) -> None:
    form = canonicalize(make(ONE_TWO, op), format)  # pyright: ignore
    other = canonicalize(make(ONE_THREE, op), format)  # pyright: ignore
    renamed = canonicalize(make(ONE_TWO, op, "weights"), format)  # pyright: ignore
    written = canonicalize(
        make("", op.replace("VALUE", "dense<[1.0, 2.0]>")).partition(b"{-#")[0],  # pyright: ignore
        format,
    )
    assert form.spec_digest != other.spec_digest
    assert form.spec_text == renamed.spec_text == written.spec_text
    assert canonicalize(render(form.spec_text, form.arg_spec).encode(), format).spec_text == form.spec_text


def test_a_constant_is_one_whatever_dialect_writes_it() -> None:
    texts = {
        canonicalize(stablehlo(ONE_TWO, op), "stablehlo").spec_text
        for op in ("arith.constant VALUE", "stablehlo.constant VALUE")
    }
    assert len(texts) == 1


@pytest.mark.parametrize(("format", "op", "make"), FORMS)
@pytest.mark.parametrize("blob", ["0000803F", ONE_TWO + "00", ONE_TWO * 2, ""])
def test_resources_of_another_size_are_rejected(format: str, op: str, make: type[bytes], blob: str) -> None:
    with pytest.raises(InvalidProgram, match=r"resource r.* 8|resource r of a constant is missing"):
        canonicalize(make(blob, op), format)  # pyright: ignore


def test_attributes_that_name_a_resource_are_rejected() -> None:
    text = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %r = stablehlo.custom_call @scaled(%x) {api_version = 4 : i32, backend_config = {w = dense_resource<r> : tensor<2xf32>}} : (tensor<2xf32>) -> tensor<2xf32>
      return %r : tensor<2xf32> }
    {-# dialect_resources: {builtin: {r: "0x040000000000803F00000040"}} #-}"""
    with pytest.raises(InvalidProgram, match="holds a resource"):
        canonicalize(text.encode(), "stablehlo")
    plain = text.replace("{w = dense_resource<r> : tensor<2xf32>}", '{w = "dense_resource<r>"}')
    canonicalize(plain.encode(), "stablehlo")


EMPTY = """func.func @main(%x: tensor<0x7xi1>) -> tensor<7xi1> {{
  %k = {} : tensor<0x7xi1>
  %n = stablehlo.not %k : tensor<0x7xi1>
  %o = stablehlo.and %n, %x : tensor<0x7xi1>
  %z = stablehlo.constant dense<true> : tensor<i1>
  %s = stablehlo.reduce(%n init: %z) applies stablehlo.and across dimensions = [0] : (tensor<0x7xi1>, tensor<i1>) -> tensor<7xi1>
  %r = stablehlo.reduce(%o init: %z) applies stablehlo.and across dimensions = [0] : (tensor<0x7xi1>, tensor<i1>) -> tensor<7xi1>
  %q = stablehlo.or %r, %s : tensor<7xi1>
  return %q : tensor<7xi1> }}"""


@pytest.mark.parametrize(
    "constant",
    ["stablehlo.constant dense<>", "stablehlo.constant dense<true>", "stablehlo.constant dense<false>"],
)
def test_empty_constants_read_back(constant: str) -> None:
    form = canonicalize(EMPTY.format(constant).encode(), "stablehlo")
    again = render(form.spec_text, form.arg_spec)
    assert canonicalize(again.encode(), "stablehlo").spec_text == form.spec_text


@pytest.mark.parametrize("element", ["f32", "i32", "ui8", "i1", "complex<f32>", "bf16", "f8E4M3FN", "i4"])
def test_empty_constants_of_every_element_read_back(element: str) -> None:
    type = f"tensor<0x{element}>"
    text = f"""func.func @main() -> tensor<0xi1> {{
      %k = stablehlo.constant dense<> : {type}
      %r = stablehlo.compare EQ, %k, %k : ({type}, {type}) -> tensor<0xi1>
      return %r : tensor<0xi1> }}"""
    form = canonicalize(text.encode(), "stablehlo")
    again = render(form.spec_text, form.arg_spec)
    assert canonicalize(again.encode(), "stablehlo").spec_text == form.spec_text


@pytest.mark.parametrize(
    ("type", "error", "words"),
    [
        ("tensor<*xf32>", InvalidProgram, "is unranked"),
        ("tensor<?xf32, #stablehlo.bounds<8>>", InvalidProgram, "encoding #stablehlo.bounds<8>"),
        ("tensor<3xf80>", UnsupportedOp, "elements of type f80"),
        ("f32", UnsupportedOp, "only tensors"),
    ],
)
def test_arguments_that_no_buffer_holds(type: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        canonicalize(f"func.func @main(%x: {type}) -> {type} {{ return %x : {type} }}".encode(), "stablehlo")


@pytest.mark.parametrize(
    ("literal", "type"),
    [
        ("true", "tensor<i1>"),
        ("[true, false]", "tensor<2xi1>"),
        ("1.5", "tensor<bf16>"),
        ("7", "tensor<3xui8>"),
        ("(1.0, 2.0)", "tensor<complex<f32>>"),
    ],
)
@pytest.mark.parametrize("note", ['"jax.value = 2"', '"}> : "', "3 : i32", '"dense_resource<a>"'])
def test_annotations_of_constants_are_not_read(literal: str, type: str, note: str) -> None:
    def text(annotation: str) -> bytes:
        return f"""func.func @main() -> {type} {{
          %c = stablehlo.constant {annotation} dense<{literal}> : {type}
          return %c : {type} }}""".encode()

    plain = canonicalize(text(""), "stablehlo")
    assert canonicalize(text(f"{{a.note = {note}}}"), "stablehlo").spec_text == plain.spec_text
