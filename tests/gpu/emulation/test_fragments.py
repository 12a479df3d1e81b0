"""Which lane holds which element: the emulator's mma and ldmatrix against kernels that others made."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.codegen_harness import NUMPY
from tests.gpu.harness.emulate import INPUT, OUTPUT, Buffer, Pointer, Run, launch
from tests.gpu.harness.upstream import product


@pytest.mark.parametrize(
    ("el", "acc", "m", "k", "shared"),
    [
        ("f16", "f32", 16, 16, False),
        ("f16", "f32", 16, 16, True),
        ("f16", "f16", 16, 16, True),
        ("f32", "f32", 16, 8, False),
        ("f64", "f64", 8, 4, False),
    ],
    ids=["f16", "f16 by ldmatrix", "f16 sums by ldmatrix", "tf32", "f64"],
)
def test_fragments_lie_where_upstream_puts_them(el: str, acc: str, m: int, k: int, shared: bool) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, shape).astype(NUMPY[el]) for shape in ((m, k), (k, 8)))
    c = np.empty((m, 8), NUMPY[acc])
    buffers = [
        Buffer("a", INPUT, bytearray(a.tobytes())),
        Buffer("b", INPUT, bytearray(b.tobytes())),
        Buffer("c", OUTPUT, bytearray(c.nbytes)),
    ]
    run = Run("product", (1, 1, 1), (32, 1, 1), 0, (Pointer(0), Pointer(1), Pointer(2)))
    launch(product(el, acc, m, k, shared), buffers, [run])
    got = np.frombuffer(bytes(buffers[2].content), c.dtype).reshape(c.shape)
    np.testing.assert_array_equal(got, a.astype("f8") @ b.astype("f8"))
