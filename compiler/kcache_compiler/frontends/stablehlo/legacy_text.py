"""Upgrades StableHLO text from before its integer arrays became ``array`` attributes.

A window, a permutation or a stride was an elements attribute, ``dense<[1, 0]> : tensor<2xi64>``. The
toolchain upgrades portable artifacts of that time, but not texts.
"""

from __future__ import annotations

import re

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
