"""Parses programs that are sent as MLIR text, bytecode or portable artifacts.

StableHLO text from before its integer arrays became ``array`` attributes is upgraded. A window, a permutation
or a stride was an elements attribute, ``dense<[1, 0]> : tensor<2xi64>``. The toolchain upgrades portable
artifacts of that time, but not texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.prescan import is_bytecode, is_portable_artifact
from kcache_compiler.mlir import context as mlir

if TYPE_CHECKING:
    from torch_mlir.ir import Context, DiagnosticInfo, MLIRError

    from kcache_compiler.mlir.types import Location, Module


_Result = TypeVar("_Result")

#: Format -> (dialects that its programs may use, name of the format in messages).
DIALECTS: dict[str, tuple[frozenset[str], str]] = {
    "stablehlo": (
        frozenset({"builtin", "func", "stablehlo", "chlo", "arith", "tensor", "shape"}),
        "StableHLO",
    ),
    "linalg": (
        frozenset(
            {"builtin", "func", "linalg", "tensor", "arith", "math", "complex", "affine", "scf", "index"}
        ),
        "linalg on tensors",
    ),
    "torch": (frozenset({"builtin", "func", "torch"}), "Torch dialect"),
}

#: A position in the parser's buffer, which it names ``-``.
_POSITION = re.compile(r'"-":(\d+):(\d+)')

#: The name of an operation of StableHLO or CHLO.
_OPERATION = re.compile(r"[\"']?((?:stablehlo|chlo)\.\w+)")

#: Start of the parser's messages about quantized types, which do not name an operation.
_QUANTIZED_TYPE = re.compile(
    r"scale \S+ out of expressed type range|illegal (scale|storage)|(quantized|expressed) "
)

#: The parser's message about an attribute, in bytecode, of a dialect that is not registered.
_UNREADABLE_ATTRIBUTE = re.compile(r"dialect '(\w+)' does not implement the bytecode interface")


def parse_mlir(program: bytes, format: str) -> Module:
    """Return the verified module of ``program``; portable artifacts and VHLO are converted to StableHLO.

    Raises ``InvalidProgram`` with the parser's diagnostics.
    """
    context = mlir.new_context()
    portable = is_portable_artifact(program)
    source = program if is_bytecode(program) else program.decode("utf-8")
    module = _translate_errors(lambda: _parse_or_upgrade(source, context), program, format)
    if portable:
        oldest, newest = mlir.artifact_versions()
        try:
            return mlir.upgrade_artifact(program, context)
        except ValueError:
            raise InvalidProgram(
                "the portable artifact does not convert to StableHLO: "
                f"this toolchain reads versions {oldest} to {newest}"
            ) from None
    if any(child.name.startswith("vhlo.") for child in mlir.child_operations(module.operation)):
        newest = mlir.artifact_versions()[1]
        passes = f"builtin.module(vhlo-to-version{{target={newest}}},vhlo-legalize-to-stablehlo)"
        _translate_errors(lambda: mlir.run_passes(module, passes), program, format)
    return module


def _parse_or_upgrade(source: str | bytes, context: Context) -> Module:
    """Parse a module; a text in an older StableHLO syntax is upgraded and parsed again."""
    try:
        return mlir.parse_module(source, context)
    except mlir.mlir_error() as error:
        if isinstance(source, bytes) or (newer := upgrade_legacy_text(source, str(error))) == source:
            raise
        return mlir.parse_module(newer, context)


def _translate_errors(step: Callable[[], _Result], program: bytes, format: str) -> _Result:
    """Run ``step``; raise its errors as ``InvalidProgram``."""
    try:
        result = step()
    except mlir.mlir_error() as error:
        raise InvalidProgram(_describe_error(error, format, program)) from None
    except RuntimeError:
        # The bindings cannot even decode the diagnostic, which quotes the program.
        raise InvalidProgram(
            f"the program is not valid {DIALECTS[format][1]}: it contains bytes that are not UTF-8"
        ) from None
    return result


def _describe_error(error: MLIRError, format: str, program: bytes) -> str:
    """Return the message for the diagnostics of the bindings' ``error``."""
    diagnostics = list(error.error_diagnostics)
    lines = [f"{_position(d.location)}{_message(d, program)}" for d in diagnostics[:3]] or [str(error)[:2000]]
    text = "; ".join(lines)[:4000]
    name = DIALECTS[format][1]
    unreadable = _UNREADABLE_ATTRIBUTE.search(text)
    if unreadable:
        notation = "sharding annotations, " if unreadable[1] == "sdy" else ""
        return (
            f"the program is not valid {name}: its bytecode contains {notation}attributes of the dialect "
            f"{unreadable[1]!r}, which only that dialect can read: send the program as text, or without them"
        )
    if "'sdy." in text:
        text += " (sdy spreads a program over several devices; a kernel runs on one)"
    elif "unregistered" in text or "not found for custom op" in text:
        text += f" (a {name} program may use only the dialects {', '.join(sorted(DIALECTS[format][0]))})"
    return f"the program is not valid {name}: {text}"


def _message(diagnostic: DiagnosticInfo, program: bytes) -> str:
    """Return the message of a diagnostic, preceded by the operation at its position if it names none."""
    message = str(diagnostic.message).strip()
    if _QUANTIZED_TYPE.match(message):
        return f"quant.uniform: {message}"
    position = _POSITION.search(str(diagnostic.location))
    if position is None or is_bytecode(program) or _OPERATION.search(message):
        return message
    number, column = int(position[1]), int(position[2])
    lines = program.split(b"\n", number)
    text = lines[number - 1][:2000] if 0 < number <= len(lines) else b""
    operation = _OPERATION.match(text.decode(errors="replace"), max(column - 1, 0))
    return f"{operation[1]}: {message}" if operation else message


def _position(location: Location) -> str:
    """Return line and column of a location for messages, empty if it has none."""
    match = _POSITION.search(str(location))
    return f"line {match[1]}, column {match[2]}: " if match and match[1] != "0" else ""


_INTEGERS = (
    "base_dilations|broadcast_dimensions|broadcast_sizes|dimensions|edge_padding_high|edge_padding_low|fft_length|"
    "interior_padding|known_expanding_dimensions|known_nonexpanding_dimensions|lhs_dilation|limit_indices|"
    "permutation|rhs_dilation|slice_sizes|start_indices|strides|window_dilations|window_dimensions|window_strides"
)
_LEGACY_ARRAY = re.compile(
    rf"\b(?:(?P<name>{_INTEGERS}) = dense<(?P<integers>[-\d\[\], ]*)> : tensor<(?P<count>\d+)xi64>"
    r"|window_reversal = dense<(?P<flags>(?:true|false|[\[\], ])*)> : tensor<(?P<flag_count>\d+)xi1>)"
)
#: The parser's diagnostic for such attributes.
_LEGACY_DIAGNOSTIC = re.compile(r"failed to satisfy constraint: i(64|1) dense array attribute")
#: Largest number of elements of such an attribute.
_MAX_ELEMENTS = 64


def upgrade_legacy_text(program: str, diagnostic: str) -> str:
    """Return ``program`` in today's syntax; unchanged unless ``diagnostic``, the parser's, asks for it.

    Line numbers stay the same.
    """
    return _LEGACY_ARRAY.sub(_to_array, program) if _LEGACY_DIAGNOSTIC.search(diagnostic) else program


def _to_array(match: re.Match[str]) -> str:
    """Return the attribute as an array; unchanged if it is malformed or too long."""
    name, element = (match["name"], "i64") if match["name"] else ("window_reversal", "i1")
    body, count = (match["integers"] or match["flags"] or ""), int(match["count"] or match["flag_count"])
    elements = [text for text in re.split(r"[\[\], ]+", body) if text]
    if count > _MAX_ELEMENTS:
        return match[0]
    if "[" not in body:
        elements *= count  # a splat
    if len(elements) != count:
        return match[0]
    return f"{name} = array<{element}: {', '.join(elements)}>" if elements else f"{name} = array<{element}>"
