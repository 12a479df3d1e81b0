"""Attributes as canonical text.

The text of an attribute is MLIR's own, which has no aliases when one attribute is printed alone. What an
attribute says by being absent and what it says by holding the default are the same: defaults are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kcache_compiler.errors import InvalidProgram, LimitExceeded
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

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

#: attribute -> what its text matches when it says the same as its absence. Names mean one thing in all of
#: StableHLO.
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

#: Ops for which an attribute of this name has no default although another op's has.
_REQUIRED = {
    ("stablehlo.iota", "iota_dimension"),
    ("stablehlo.concatenate", "dimension"),
    ("stablehlo.triangular_solve", "lower"),
}

#: Attributes with a dialect prefix are annotations, except these, which say what a custom call does.
_MEANINGFUL = frozenset({"mhlo.attributes", "mhlo.backend_config"})


def canonical_attributes(
    name: str,
    attributes: Native,
    limit: int,
    skip: Iterable[str] = (),
    replaced: Mapping[str, str] | None = None,
) -> str:
    """Return ``key = text, ...`` in order of keys, without annotations, defaults and ``skip``.

    ``replaced`` gives texts instead of the attributes' own. Raises ``LimitExceeded`` past ``limit``
    characters.
    """
    texts = dict(replaced or {})
    for key in attributes:
        if key in skip or key in texts or ("." in key and key not in _MEANINGFUL):
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


def bounded_text(attribute: Native, limit: int) -> str:
    """Return MLIR's text of ``attribute``, refusing nests whose text is far larger than they are, and texts
    that name a resource instead of saying what it holds.
    """
    _measure(attribute, limit)
    text = str(attribute).replace("\n", "\\0A")
    if "dense_resource<" in text and "dense_resource<" in _STRINGS.sub("", text):
        raise InvalidProgram(f"the attribute {text[:200]} holds a resource: write it as dense<...>")
    return text


def _measure(attribute: Native, limit: int) -> None:
    """Count the leaves of arrays and dictionaries, shared ones as often as they would print."""
    native = mlir.native_ir()
    if not isinstance(attribute, (native.ArrayAttr, native.DictAttr)):
        return
    pending = [attribute]
    seen = 0
    while pending:
        here = pending.pop()
        seen += 1
        if seen > limit:
            raise LimitExceeded("characters of the attributes of an operation", seen, limit)
        if isinstance(here, native.ArrayAttr):
            pending.extend(here[i] for i in range(len(here)))
        elif isinstance(here, native.DictAttr):
            pending.extend(here[i].attr for i in range(len(here)))
