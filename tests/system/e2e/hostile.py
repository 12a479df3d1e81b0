"""Programs that nobody should send, and the error that each must get."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from dataclasses import dataclass

import kcache_grpc as kcache
from kcache_compiler.mlir.context import all_operations, native_ir, new_context, parse_module
from tests.system.e2e.programs import scale_and_shift

Errors = tuple[type[kcache.KcacheError], ...]


@dataclass(frozen=True)
class Hostile:
    """``make`` gives the program; one of ``errors`` must come, and say one of ``words``."""

    name: str
    make: Callable[[], str | bytes]
    errors: Errors
    words: tuple[str, ...] = ()
    format: str | None = "stablehlo"


_INVALID: Errors = (kcache.InvalidProgram,)
_BOTH: Errors = (kcache.InvalidProgram, kcache.ResourceExhausted)
_LIMIT: Errors = (kcache.ResourceExhausted,)
_REJECTED: Errors = (kcache.UnsupportedOp, kcache.InvalidProgram)


def _function(body: str, arguments: str = "%x: tensor<4xf32>", result: str = "tensor<4xf32>") -> str:
    return f"func.func @main({arguments}) -> {result} {{\n{body}\n}}\n"


def _nested_regions(depth: int) -> str:
    inner = "stablehlo.return %x : tensor<4xf32>"
    for level in range(depth):
        inner = (
            f'%r{level} = "stablehlo.if"(%p) ({{ {inner} }}, {{ stablehlo.return %x : tensor<4xf32> }})'
            f" : (tensor<i1>) -> tensor<4xf32>\n stablehlo.return %r{level} : tensor<4xf32>"
        )
    body = inner.rsplit("stablehlo.return", 1)[0] + f"return %r{depth - 1} : tensor<4xf32>"
    return _function(body, "%p: tensor<i1>, %x: tensor<4xf32>")


def _many_operations(count: int) -> str:
    lines = ["%0 = stablehlo.add %x, %x : tensor<4xf32>"]
    lines += [f"%{i} = stablehlo.add %{i - 1}, %x : tensor<4xf32>" for i in range(1, count)]
    return _function("\n".join(lines) + f"\nreturn %{count - 1} : tensor<4xf32>")


def _random_bytes() -> bytes:
    return random.Random(3).randbytes(5000)


def _damaged(seed: int) -> str:
    rng = random.Random(seed)
    text = list(scale_and_shift(1))
    for _ in range(8):
        text[rng.randrange(len(text))] = rng.choice('<>(){}%@#:x0-"\\\0\n')
    return "".join(text)


_RECURSIVE = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @again(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @again(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @again(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
_EFFECT = _function(
    "%0 = stablehlo.custom_call @launch_missiles(%x) {has_side_effect = true} "
    ": (tensor<4xf32>) -> tensor<4xf32>\n"
    "return %0 : tensor<4xf32>"
)
_HUGE = _function(
    "%0 = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<4xf32>) -> tensor<4x1073741824x268435456xf32>\n"
    "return %0 : tensor<4x1073741824x268435456xf32>",
    result="tensor<4x1073741824x268435456xf32>",
)


def _fatal_bytecode() -> bytes:
    """With an attribute for which the native verifier ends the process; of a text, that is seen before."""
    body = "%r = chlo.broadcast_add %x, %y {broadcast_dimensions = array<i64: 1>}"
    types = "(tensor<4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>"
    text = _function(
        f"{body} : {types}\nreturn %r : tensor<2x4xf32>",
        "%x: tensor<4xf32>, %y: tensor<2x4xf32>",
        "tensor<2x4xf32>",
    )
    module = parse_module(text, new_context())
    operation = next(
        candidate for candidate in all_operations(module.operation) if candidate.name == "chlo.broadcast_add"
    )
    operation.attributes["broadcast_dimensions"] = native_ir().Attribute.parse(
        "array<i64: -1>", module.context
    )
    out = io.BytesIO()
    module.operation.write_bytecode(out)
    return out.getvalue()


_HUGE_ARGUMENT = _function(
    "return %x : tensor<1152921504606846976xf32>",
    "%x: tensor<1152921504606846976xf32>",
    "tensor<1152921504606846976xf32>",
)
_OVERFLOW = _function(
    "return %x : tensor<4294967296x4294967296x4294967296xf32>",
    "%x: tensor<4294967296x4294967296x4294967296xf32>",
    "tensor<4294967296x4294967296x4294967296xf32>",
)
_ALIEN = _function('%0 = "evil.op"(%x) : (tensor<4xf32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>')
_NO_MAIN = scale_and_shift(1).replace("func.func @main", "func.func private @helper")
_WRONG_TYPES = _function("%0 = stablehlo.add %x, %y : tensor<4xf32>\nreturn %0 : tensor<4xf32>")
_LINALG = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %0 = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""

HOSTILE: tuple[Hostile, ...] = (
    Hostile("empty", lambda: b"", _INVALID, ("empty",)),
    Hostile("truncated", lambda: scale_and_shift(1)[:200], _INVALID),
    Hostile("random-bytes", _random_bytes, _INVALID),
    Hostile("bytecode-cut", lambda: b"ML\xefR\x0dStableHLO_v1.0.0\0" + bytes(40), _INVALID),
    Hostile("bytecode-fatal", _fatal_bytecode, (kcache.CompileFailed,), ("the worker died in stage",)),
    Hostile("nul-bytes", lambda: bytes(1000), _INVALID),
    Hostile("brackets", lambda: "(" * 1_000_000, _BOTH),
    Hostile(
        "angle-brackets",
        lambda: "module attributes {a = " + "[" * 200_000,
        (kcache.InvalidProgram, kcache.ResourceExhausted),
    ),
    Hostile("nested-regions", lambda: _nested_regions(500), _LIMIT, ("nest", "depth")),
    Hostile("a-million-operations", lambda: _many_operations(1_000_000), _LIMIT, ("operation", "bytes")),
    Hostile("2^60-elements", lambda: _HUGE, _LIMIT, ("elements",)),
    Hostile("2^60-element-argument", lambda: _HUGE_ARGUMENT, _LIMIT, ("elements",)),
    Hostile("2^96-elements", lambda: _OVERFLOW, (kcache.ResourceExhausted, kcache.InvalidProgram)),
    Hostile("recursive", lambda: _RECURSIVE, _INVALID, ("recurs",)),
    Hostile("side-effect", lambda: _EFFECT, _REJECTED, ("side effect", "side-effect", "custom_call")),
    Hostile("unregistered-dialect", lambda: _ALIEN, _INVALID, ("evil",)),
    Hostile("no-main", lambda: _NO_MAIN, _INVALID, ("main", "public")),
    Hostile("undefined-value", lambda: _WRONG_TYPES, _INVALID, ("line 2",)),
    Hostile("linalg-as-stablehlo", lambda: _LINALG, _INVALID, ("linalg",)),
    Hostile("stablehlo-as-linalg", lambda: scale_and_shift(1), _INVALID, ("stablehlo",), "linalg"),
    Hostile("100-megabytes", lambda: b"x" * 100_000_000, _LIMIT, ("bytes",)),
    *(Hostile(f"damaged-{seed}", lambda seed=seed: _damaged(seed), _INVALID + _LIMIT) for seed in range(6)),
)
