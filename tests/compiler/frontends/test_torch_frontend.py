"""Programs in the Torch dialect: as torch-mlir's importer writes them, and as nobody should."""

from __future__ import annotations

import re
import struct
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional

from kcache_compiler import InvalidProgram, UnsupportedOp, canonicalize
from kcache_compiler.frontends.torch.lowering import lower_torch_to_stablehlo
from kcache_compiler.frontends.torch.simplify import simplify
from kcache_compiler.frontends.torch.torch_op import TorchOp
from kcache_compiler.mlir import context as mlir
from tests.compiler.torch_modules import Function, Mlp, bytecode_of, text_of

X = torch.randn(4, 16)

SMALL = """
func.func @main(%a: !torch.vtensor<[4,16],f32>) -> !torch.vtensor<[4,16],f32> {
  %0 = torch.aten.relu %a : !torch.vtensor<[4,16],f32> -> !torch.vtensor<[4,16],f32>
  return %0 : !torch.vtensor<[4,16],f32>
}
"""


def lowered(program: bytes | str) -> str:
    """The StableHLO of a text."""
    module = mlir.parse_module(program, mlir.new_context())
    lower_torch_to_stablehlo(module)
    return str(module)


# What is read.


def test_a_torch_program_has_the_key_of_its_stablehlo() -> None:
    stablehlo = """
    func.func @main(%a: tensor<4x16xf32>) -> tensor<4x16xf32> {
      %zero = stablehlo.constant dense<0.0> : tensor<4x16xf32>
      %0 = stablehlo.maximum %a, %zero : tensor<4x16xf32>
      return %0 : tensor<4x16xf32>
    }"""
    ours = canonicalize(SMALL.encode(), "torch", "strict")
    assert ours.spec_digest == canonicalize(stablehlo.encode(), "stablehlo", "strict").spec_digest
    assert str(ours.arg_spec) == "f32[4,16]"


def test_raw_and_backend_form_text_and_bytecode_are_one_spec() -> None:
    module = Mlp()
    forms = [text_of(module, X), bytecode_of(module, X), text_of(module, X, output_type="torch")]
    assert forms[1].startswith(b"ML\xefR")
    assert len({canonicalize(form, "torch").spec_digest for form in forms}) == 1


def test_a_bias_is_not_multiplied_by_one() -> None:
    text = lowered(text_of(Mlp(), X))
    assert "stablehlo.multiply" not in text
    assert text.count("stablehlo.dot") == 2


def test_erf_stays_an_operation() -> None:
    assert "chlo.erf" in lowered(text_of(nn.GELU(), X))


def test_equal_sizes_do_not_make_two_masks_one() -> None:
    """Rows and columns of a square are numbered apart, so the key is that of every other rectangle."""
    mask = Function(lambda x: torch.tril(x))
    digests = {
        canonicalize(text_of(mask, torch.randn(*shape)), "torch").spec_digest
        for shape in [(8, 8), (4, 16), (16, 4)]
    }
    assert len(digests) == 1


# Precision.


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    "module",
    [
        nn.LayerNorm(16),
        nn.LayerNorm(16).bfloat16(),
        nn.GroupNorm(4, 16),
        nn.BatchNorm1d(16, track_running_stats=False),
        nn.BatchNorm1d(16).eval(),
        Function(lambda x: x.var(-1)),
        Function(lambda x: torch.var(x, correction=0)),
        Function(lambda x: x.std(0, keepdim=True)),
        Function(lambda x: torch.var_mean(x, (0, 1))),
        Function(lambda x: torch.std_mean(x, -1, correction=0)),
        Function(lambda x: functional.layer_norm(x, (4, 16))),
    ],
    ids=lambda module: type(module).__name__,
)
def test_variances_do_not_go_through_f64(module: nn.Module) -> None:
    x = X.to(next(module.parameters()).dtype) if list(module.parameters()) else X
    text = lowered(text_of(module, x))
    assert "f64" not in text
    assert "stablehlo.subtract" in text


def test_a_program_that_asks_for_f64_gets_it() -> None:
    text = lowered(text_of(Function(lambda x: x.double().var(-1).float()), X))
    assert "tensor<4x16xf64>" in text


@pytest.mark.sampled(4)
@pytest.mark.parametrize("number", [0.1, 1e-5, 1 / 3, 3.4e38, 1e-42])
def test_numbers_are_rounded_once(number: float) -> None:
    text = lowered(text_of(Function(lambda x: x + number), X))
    (literal,) = re.findall(r"constant dense<([^>]+)> : tensor<f32>", text)
    expected = torch.tensor(number, dtype=torch.float32)
    assert torch.tensor(float(literal), dtype=torch.float32) == expected


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("function", "op"),
    [
        (lambda x: x**2, "stablehlo.multiply"),
        (lambda x: x**3, "stablehlo.multiply"),
        (lambda x: x**0.5, "stablehlo.sqrt"),
        (lambda x: x**-0.5, "stablehlo.rsqrt"),
        (lambda x: x**1.7, "stablehlo.power"),
    ],
)
def test_powers_are_what_pytorch_computes(function: Any, op: str) -> None:
    text = lowered(text_of(Function(function), X))
    assert op in text
    assert ("power" in text) == (op == "stablehlo.power")


def tidied(body: str, result: str = "%1") -> str:
    module = mlir.parse_module(
        f"func.func @main(%a: tensor<4xf32>, %i: tensor<4xi64>) -> tensor<4xf32> {{\n{body}\n"
        f"  return {result} : tensor<4xf32>\n}}",
        mlir.new_context(),
    )
    simplify(module)
    return str(module)


def test_what_changes_a_value_is_not_dropped() -> None:
    """``x + 0.0`` turns -0.0 into 0.0, ``0.0 - x`` is no ``x``; ``x * 1.0`` is ``x``."""
    zero = "  %0 = stablehlo.constant dense<0.0> : tensor<4xf32>\n"
    constant = "  %0 = stablehlo.constant dense<1.0> : tensor<4xf32>\n"
    for op in ("add %a, %0", "subtract %0, %a", "subtract %a, %0"):
        assert f"stablehlo.{op.split()[0]}" in tidied(zero + f"  %1 = stablehlo.{op} : tensor<4xf32>")
    for op in ("divide %0, %a", "power %0, %a"):
        assert f"stablehlo.{op.split()[0]}" in tidied(constant + f"  %1 = stablehlo.{op} : tensor<4xf32>")
    for op in ("multiply %a, %0", "multiply %0, %a", "divide %a, %0", "power %a, %0"):
        assert "stablehlo" not in tidied(constant + f"  %1 = stablehlo.{op} : tensor<4xf32>")


def test_integers_that_overflow_are_not_folded() -> None:
    big = "  %0 = stablehlo.constant dense<9223372036854775807> : tensor<4xi64>\n"
    text = tidied(
        big + "  %s = stablehlo.add %0, %0 : tensor<4xi64>\n"
        "  %1 = stablehlo.convert %s : (tensor<4xi64>) -> tensor<4xf32>"
    )
    assert "stablehlo.add" in text


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("size", "rounded"),
    [
        (2**60 + 2**36 + 1, 2**60 + 2**37),  # f64 has 2^60 + 2^36 for it, a midpoint of f32
        (2**60 + 2**36, 2**60),
        (2**60 + 2**36 - 1, 2**60),
        (2**60 + 3 * 2**36 - 1, 2**60 + 2**37),  # f64 has the midpoint above
        (2**63 - 1, 2**63),
        (2**24 + 1, 2**24),
    ],
)
def test_integers_that_f64_has_not_are_rounded_once(size: int, rounded: int, sign: int) -> None:
    text = tidied(
        f"  %0 = stablehlo.constant dense<{sign * size}> : tensor<4xi64>\n"
        "  %1 = stablehlo.convert %0 : (tensor<4xi64>) -> tensor<4xf32>"
    )
    (literal,) = re.findall(r"constant dense<([^>]+)> : tensor<4xf32>", text)
    bits = bytes.fromhex(literal[2:]) if literal.startswith("0x") else struct.pack(">f", float(literal))
    assert "convert" not in text
    assert struct.unpack(">f", bits) == (sign * rounded,)


# Open sizes.


def opened(axes: str, other: str = "5") -> bytes:
    body = """(%a: !torch.vtensor<[{0},16],f32>) -> !torch.vtensor<[{0},16],f32> {{
      %0 = torch.aten.relu %a : !torch.vtensor<[{0},16],f32> -> !torch.vtensor<[{0},16],f32>
      return %0 : !torch.vtensor<[{0},16],f32>
    }}"""
    return (
        f"module attributes {{kcache.open_axes = {axes}}} {{\n"
        f"func.func @main{body.format('3')}\nfunc.func @main_at_other_sizes{body.format(other)}\n}}"
    ).encode()


def test_open_axes_are_symbols_of_unknown_size() -> None:
    open_one = canonicalize(opened('[[0, 0, "rows"]]'), "torch")
    assert str(open_one.arg_spec) == "f32[s0,16]"
    assert open_one.symbol_values == (-1, 16)
    assert open_one.spec_digest == canonicalize(SMALL.encode(), "torch").spec_digest


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        ('[[0, 1, "columns"]]', "has the size 16 in both"),
        ('[[0, 2, "z"]]', "with axes of"),
        ('[[7, 0, "z"]]', "with axes of"),
        ('[[-1, 0, "z"]]', "from 0"),
        ("[0, 0]", "must be a list of"),
        ('"rows"', "must be a list of"),
        ('[["x", 0, "z"]]', "must be a list of"),
    ],
)
def test_open_axes_that_cannot_be(axes: str, says: str) -> None:
    with pytest.raises(InvalidProgram, match=says):
        canonicalize(opened(axes), "torch")


def test_open_axes_need_both_programs() -> None:
    alone = SMALL.replace("func.func", "module attributes {kcache.open_axes = []} {\nfunc.func") + "}"
    with pytest.raises(InvalidProgram, match="@main and @main_at_other_sizes"):
        canonicalize(alone.encode(), "torch")


def test_a_program_that_differs_between_its_sizes_is_rejected() -> None:
    different = opened('[[0, 0, "rows"]]').decode()
    head, tail = different.rsplit("torch.aten.relu", 1)
    with pytest.raises(UnsupportedOp, match="computes with the size of 'rows'"):
        canonicalize(f"{head}torch.aten.sigmoid{tail}".encode(), "torch")


# What is rejected.


def test_truncated_text_names_the_line() -> None:
    text = text_of(Mlp(), X)
    for cut in (len(text) // 2, len(text) - 3, 40):
        with pytest.raises(InvalidProgram, match="line "):
            canonicalize(text[:cut], "torch")


def test_one_format_sent_as_another() -> None:
    stablehlo = b"""func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.abs %a : tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""
    with pytest.raises(InvalidProgram, match="format 'torch', and was sent as 'stablehlo'"):
        canonicalize(SMALL.encode(), "stablehlo")
    with pytest.raises(
        InvalidProgram, match=r"stablehlo\.abs at .*format 'stablehlo', and was sent as 'torch'"
    ):
        canonicalize(stablehlo, "torch")
    with pytest.raises(InvalidProgram, match="format 'torch', and was sent as 'linalg'"):
        canonicalize(SMALL.encode(), "linalg")


CUSTOM = """
func.func @main(%a: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
  %0 = torch.operator "torch.mylib.fast_relu"(%a) : (!torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32>
  return %0 : !torch.vtensor<[4],f32>
}
"""


def test_custom_ops_are_named_with_their_place() -> None:
    with pytest.raises(UnsupportedOp, match="custom op") as caught:
        canonicalize(CUSTOM.encode(), "torch")
    assert caught.value.op == "torch.mylib.fast_relu"
    assert caught.value.location == "-:3:8"


def test_ops_without_a_lowering_are_named_with_their_place() -> None:
    with pytest.raises(UnsupportedOp, match="no lowering of it to StableHLO") as caught:
        canonicalize(text_of(Function(lambda x: x.cumprod(0)), X), "torch")
    assert caught.value.op == "torch.aten.cumprod"
    assert re.fullmatch(r"-:\d+:\d+", caught.value.location)


def test_ops_that_do_not_exist_are_named() -> None:
    with pytest.raises(InvalidProgram, match=r"line 3.*torch\.aten\.relux"):
        canonicalize(SMALL.replace("aten.relu ", "aten.relux ").encode(), "torch")


def test_arguments_that_can_be_written_to_are_rejected() -> None:
    text = SMALL.replace("!torch.vtensor", "!torch.tensor")
    with pytest.raises(UnsupportedOp, match="which is mutable") as caught:
        canonicalize(text.encode(), "torch")
    assert caught.value.op == "torch.overwrite.tensor.contents"


def test_open_dims_in_types_are_read() -> None:
    form = canonicalize(SMALL.replace("[4,16]", "[?,16]").encode(), "torch")
    assert form.symbol_values[0] == -1


# Where torch-mlir's lowering has another meaning.


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("size", "window", "stride", "padding"), [(6, 3, 2, 1), (5, 2, 2, 0), (6, 3, 2, 0)])
def test_a_pool_that_rounds_up_is_padded_behind(size: int, window: int, stride: int, padding: int) -> None:
    pool = nn.MaxPool2d(window, stride, padding, ceil_mode=True)
    x = torch.randn(1, 2, size, size)
    count = pool(x).shape[-1]
    behind = (count - 1) * stride + window - size - padding
    around = (padding, behind, padding, behind)
    written = Function(
        lambda x: functional.max_pool2d(functional.pad(x, around, value=-torch.inf), window, stride)
    )
    ours, theirs = (canonicalize(text_of(f, x), "torch", "strict") for f in (pool, written))
    assert ours.spec_text == theirs.spec_text


def test_a_pool_that_has_nothing_to_round_is_the_plain_one() -> None:
    x = torch.randn(1, 2, 7, 7)
    forms = [text_of(nn.MaxPool2d(3, 2, 1, ceil_mode=ceiling), x) for ceiling in (False, True)]
    assert len({canonicalize(form, "torch").spec_digest for form in forms}) == 1


def test_a_mean_that_rounds_up_is_rejected() -> None:
    with pytest.raises(UnsupportedOp, match=r"avg_pool2d.*ceil_mode"):
        canonicalize(text_of(nn.AvgPool2d(2, 2, ceil_mode=True), torch.randn(1, 2, 5, 5)), "torch")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + torch.rand(4, 16),
        lambda x: functional.dropout(x, 0.5, training=True),
        lambda x: functional.rrelu(x, training=True),
    ],
)
def test_random_numbers_are_rejected(function: Any) -> None:
    with pytest.raises(UnsupportedOp, match="random numbers"):
        canonicalize(text_of(Function(function), X), "torch")


def test_what_is_random_in_training_only_is_read() -> None:
    plain = canonicalize(text_of(Function(lambda x: functional.rrelu(x)), X), "torch")
    dropped = Function(lambda x: functional.rrelu(functional.dropout(x, 0.5, training=False)))
    assert canonicalize(text_of(dropped, X), "torch").spec_text == plain.spec_text


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("function", "plain"),
    [
        (lambda x: torch.where(torch.ones(4, 16) == 1, x, 0), lambda x: x),
        (lambda x: torch.where(torch.zeros(4, 16) <= 0, x, 0), lambda x: x),
        (lambda x: x * (torch.ones(4, 16) + -1 + 2), lambda x: x * 2),
        (lambda x: x + torch.where(torch.ones(4, 16) > 0, 1.5, 2), lambda x: x + 1.5),
    ],
    ids=["equal", "less or equal", "negative", "where"],
)
def test_constants_are_computed_as_pytorch_does(function: Any, plain: Any) -> None:
    specs = {canonicalize(text_of(Function(f), X), "torch", "strict").spec_text for f in (function, plain)}
    assert len(specs) == 1


def test_the_element_type_is_restored_when_a_lowering_in_f32_raises() -> None:
    module = mlir.parse_module(SMALL.replace("f32", "f16"), mlir.new_context())
    op = TorchOp(module.body.operations[0].regions[0].blocks[0].operations[0].operation)
    assert op.element == "f16"

    def lower_in_f32() -> None:
        with op.half_as_f32():
            assert op.element == "f32"
            raise UnsupportedOp("torch.aten.relu", "the reason")

    with pytest.raises(UnsupportedOp):
        lower_in_f32()
    assert op.element == "f16"
