"""Texts of StableHLO from before its arrays of numbers became ``array`` attributes.

A window, a permutation or a stride was an elements attribute once, ``dense<[1, 0]> : tensor<2xi64>``.
Portable artifacts of that time are upgraded by the toolchain, texts are not.
"""

from __future__ import annotations

import re

_INTEGERS = (
    "base_dilations|broadcast_dimensions|broadcast_sizes|dimensions|edge_padding_high|edge_padding_low|fft_length|"
    "interior_padding|known_expanding_dimensions|known_nonexpanding_dimensions|lhs_dilation|limit_indices|"
    "permutation|rhs_dilation|slice_sizes|start_indices|strides|window_dilations|window_dimensions|window_strides"
)
_OLD = re.compile(
    rf"\b(?:(?P<name>{_INTEGERS}) = dense<(?P<given>[-\d\[\], ]*)> : tensor<(?P<count>\d+)xi64>"
    r"|window_reversal = dense<(?P<flags>(?:true|false|[\[\], ])*)> : tensor<(?P<many>\d+)xi1>)"
)
#: What the parser says of them.
_REFUSED = re.compile(r"failed to satisfy constraint: i(64|1) dense array attribute")
#: Axes that an attribute may have numbers for.
_MOST = 64


def upgraded(program: str, diagnostic: str) -> str:
    """``program`` with arrays of numbers as they are written today, or as it is.

    ``diagnostic`` is what the parser said of it. Lines keep their numbers.
    """
    return _OLD.sub(_array, program) if _REFUSED.search(diagnostic) else program


def _array(found: re.Match[str]) -> str:
    name, kind = (found["name"], "i64") if found["name"] else ("window_reversal", "i1")
    body, count = (found["given"] or found["flags"] or ""), int(found["count"] or found["many"])
    numbers = [one for one in re.split(r"[\[\], ]+", body) if one]
    if count > _MOST:
        return found[0]
    if "[" not in body:
        numbers *= count  # one number for all
    if len(numbers) != count:
        return found[0]
    return f"{name} = array<{kind}: {', '.join(numbers)}>" if numbers else f"{name} = array<{kind}>"
