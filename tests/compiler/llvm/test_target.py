"""Instructions that targets have."""

from __future__ import annotations

import pytest

from kcache_compiler.llvm.target import target_named


@pytest.mark.parametrize(
    ("name", "has_fma", "converts_f16"),
    [
        ("x86-64-v2", False, False),
        ("x86-64-v3", True, True),
        ("znver5", True, True),
        ("aarch64", True, True),
        ("neoverse-v1", True, True),
        ("sm_90", True, True),
    ],
)
def test_fused_multiply_adds_and_conversions_of_f16(name: str, has_fma: bool, converts_f16: bool) -> None:
    target = target_named(name)
    assert (target.has_fma, target.converts_f16) == (has_fma, converts_f16)
