"""Attributes as canonical text.

The text of an attribute is MLIR's, which has no aliases if an attribute is printed alone. An absent
attribute and one with the default value mean the same, so defaults are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kcache_compiler.errors import InvalidProgram, LimitExceeded
from kcache_compiler.mlir import context as mlir

if TYPE_CHECKING:
    from torch_mlir import ir

_DEFAULT_PRECISION = re.compile(r"\[(#stablehlo<precision DEFAULT>(, )?)*\]\Z")
_ONES = re.compile(r"array<i64(: 1(, 1)*)?>\Z")
_ZEROS = re.compile(r"(array<i64(: 0(, 0)*)?>|dense<0> : tensor<\S*xi64>|dense<> : tensor<0x2xi64>)\Z")
_FALSES = re.compile(r"array<i1(: false(, false)*)?>\Z")
_FALSE = re.compile(r"false\Z")
_EMPTY = re.compile(r"(\[\]|\"\"|\{\})\Z")
_ORIGINAL_API = re.compile(r"1 : i32\Z")
_DEFAULT_ACCURACY = re.compile(
    r"#stablehlo\.result_accuracy<(mode = #stablehlo\.result_accuracy_mode<DEFAULT>)?>\Z"
)
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"')
_MINUS_ONE = re.compile(r"-1 : i64\Z")

#: Patterns of default values, by attribute; a name has one meaning in all of StableHLO.
_DEFAULTS: dict[str, re.Pattern[str]] = {
    "precision_config": _DEFAULT_PRECISION,
    "window_strides": _ONES,
    "lhs_dilation": _ONES,
    "rhs_dilation": _ONES,
    "base_dilations": _ONES,
    "window_dilations": _ONES,
    "padding": _ZEROS,
    "window_reversal": _FALSES,
    "indices_are_sorted": _FALSE,
    "unique_indices": _FALSE,
    "is_stable": _FALSE,
    "lower": _FALSE,
    "has_side_effect": _FALSE,
    "backend_config": _EMPTY,
    "mhlo.backend_config": _EMPTY,
    "called_computations": _EMPTY,
    "output_operand_aliases": _EMPTY,
    "api_version": _ORIGINAL_API,
    "result_accuracy": _DEFAULT_ACCURACY,
    "dimension": _MINUS_ONE,
}

#: Attributes without a default, of operations, although they have one in other operations.
_REQUIRED = {
    ("stablehlo.iota", "iota_dimension"),
    ("stablehlo.concatenate", "dimension"),
    ("stablehlo.triangular_solve", "lower"),
}

#: Attributes with a dialect prefix that are semantic; others are annotations.
_SEMANTIC = frozenset({"mhlo.attributes", "mhlo.backend_config"})


def canonical_attributes(
    name: str,
    attributes: ir.OpAttributeMap,
    limit: int,
    skip: Iterable[str] = (),
    replaced: Mapping[str, str] | None = None,
) -> str:
    """Return ``key = text, ...`` sorted by key, without annotations, defaults and ``skip``.

    ``replaced`` are texts of attributes to use instead. Raises ``LimitExceeded`` beyond ``limit`` characters.
    """
    texts = dict(replaced or {})
    for key in attributes:
        if key in skip or key in texts or ("." in key and key not in _SEMANTIC):
            continue
        text = bounded_text(attributes[key], limit)
        default = _DEFAULTS.get(key)
        if default is None or (name, key) in _REQUIRED or not default.match(text):
            texts[key] = text
    joined = ", ".join(f"{_key(key)} = {texts[key]}" for key in sorted(texts))
    if len(joined) > limit:
        raise LimitExceeded("characters of the attributes of an operation", len(joined), limit)
    return joined


def _key(key: str) -> str:
    return (
        key
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_$.]*", key)
        else '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
    )


def bounded_text(attribute: ir.Attribute, limit: int) -> str:
    """Return MLIR's text of an attribute.

    Raises ``LimitExceeded`` if nested attributes print more than ``limit`` leaves, and ``InvalidProgram`` if
    the text refers to a resource.
    """
    _measure(attribute, limit)
    text = str(attribute).replace("\n", "\\0A")
    if "dense_resource<" in text and "dense_resource<" in _STRINGS.sub("", text):
        raise InvalidProgram(f"the attribute {text[:200]} holds a resource: write it as dense<...>")
    return text


def _measure(attribute: ir.Attribute, limit: int) -> None:
    """Raise if arrays and dictionaries have more than ``limit`` leaves, shared ones counted as often as they
    print.
    """
    native = mlir.native_ir()
    if not isinstance(attribute, (native.ArrayAttr, native.DictAttr)):
        return
    pending: list[ir.Attribute] = [attribute]
    seen = 0
    while pending:
        nested = pending.pop()
        seen += 1
        if seen > limit:
            raise LimitExceeded("characters of the attributes of an operation", seen, limit)
        if isinstance(nested, native.ArrayAttr):
            pending.extend(nested)
        elif isinstance(nested, native.DictAttr):
            pending.extend(nested[i].attr for i in range(len(nested)))
