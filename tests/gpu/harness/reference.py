"""Kernels written by hand in LLVM IR: what the emulator must run rightly, and what mutants are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kcache_compiler.types import CompiledKernel, GpuLaunch, KernelInterface, Symbol, TensorType

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Reference:
    """A kernel, its arguments and its result; a launch is entry, grid, block, shared bytes, parameters."""

    name: str
    symbols: tuple[Symbol, ...]
    inputs: tuple[TensorType, ...]
    output: TensorType
    launches: tuple[tuple[str, tuple[str, str, str], tuple[int, int, int], str, tuple[str, ...]], ...]
    arrays: Callable[[np.random.Generator], list[Array]]
    expected: Callable[..., Array]
    atol: float = 0.0

    @property
    def ir(self) -> str:
        return (Path(__file__).parent / "kernels" / f"{self.name}.ll").read_text()

    def kernel(self, ir: str | None = None) -> CompiledKernel:
        launches = tuple(
            GpuLaunch(entry, (), entry, "", grid, block, shared, params)
            for entry, grid, block, shared, params in self.launches
        )
        interface = KernelInterface(
            self.inputs,
            (),
            (self.output,),
            self.symbols,
            "0",
            (),
            "nvptx64-nvidia-cuda",
            (),
            {},
            gpu_launches=launches,
        )
        return CompiledKernel({"llvm": (self.ir if ir is None else ir).encode()}, interface, {})

    def check(self, arrays: list[Array], output: Array) -> None:
        np.testing.assert_allclose(output, self.expected(*arrays), rtol=0, atol=self.atol)


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _normal(*shapes: tuple[int, ...], dtype: str = "f4") -> Callable[[np.random.Generator], list[Array]]:
    return lambda rng: [rng.standard_normal(shape).astype(dtype) for shape in shapes]


VECTOR_ADD = Reference(
    "vector_add",
    (Symbol("n", 0, 0),),
    (TensorType("f32", ("n",)), TensorType("f32", ("n",))),
    TensorType("f32", ("n",)),
    (
        (
            "vector_add",
            ("ceildiv(n,256)", "1", "1"),
            (256, 1, 1),
            "0",
            ("buffer:0", "buffer:1", "buffer:2", "i64:n"),
        ),
    ),
    _normal((1000,), (1000,)),
    np.add,
)
SOFTMAX = Reference(
    "softmax",
    (Symbol("m", 0, 0), Symbol("n", 0, 1)),
    (TensorType("f32", ("m", "n")),),
    TensorType("f32", ("m", "n")),
    (("softmax", ("m", "1", "1"), (128, 1, 1), "0", ("buffer:0", "buffer:1", "i64:n")),),
    _normal((5, 300)),
    _softmax,
    1e-6,
)
TRANSPOSE = Reference(
    "transpose",
    (Symbol("m", 0, 0), Symbol("n", 0, 1)),
    (TensorType("f32", ("m", "n")),),
    TensorType("f32", ("n", "m")),
    (
        (
            "transpose",
            ("ceildiv(n,32)", "ceildiv(m,32)", "1"),
            (32, 8, 1),
            "0",
            ("buffer:0", "buffer:1", "i64:m", "i64:n"),
        ),
    ),
    _normal((45, 70)),
    np.transpose,
)
MATMUL = Reference(
    "matmul",
    (Symbol("m", 0, 0), Symbol("k", 0, 1), Symbol("n", 1, 1)),
    (TensorType("f16", ("m", "k")), TensorType("f16", ("k", "n"))),
    TensorType("f32", ("m", "n")),
    (
        (
            "matmul",
            ("ceildiv(n,8)", "ceildiv(m,32)", "1"),
            (64, 1, 1),
            "3840",
            ("buffer:0", "buffer:1", "buffer:2", "i64:n", "i64:k"),
        ),
    ),
    _normal((64, 80), (80, 24), dtype="f2"),
    lambda a, b: a.astype("f4") @ b.astype("f4"),
    1e-4,
)
COLUMN_SUMS = Reference(
    "column_sums",
    (Symbol("m", 0, 0), Symbol("n", 0, 1)),
    (TensorType("f32", ("m", "n")),),
    TensorType("f32", ("n",)),
    (
        ("clear", ("1", "1", "1"), (64, 1, 1), "0", ("buffer:1",)),
        ("column_sums", ("m", "1", "1"), (64, 1, 1), "0", ("buffer:0", "buffer:1", "i64:n")),
    ),
    _normal((9, 64)),
    lambda x: x.sum(0),
    1e-5,
)
WARP_ROWS = Reference(
    "warp_rows",
    (Symbol("m", 0, 0),),
    (TensorType("f32", ("m", 32)),),
    TensorType("f32", ("m", 32)),
    (("warp_rows", ("ceildiv(m,4)", "1", "1"), (128, 1, 1), "0", ("buffer:0", "buffer:1")),),
    _normal((8, 32)),
    lambda x: np.roll(x, -1, 1) + x[:, :1],
)
LOCAL_ROWS = Reference(
    "local_rows",
    (Symbol("m", 0, 0),),
    (TensorType("f32", (64, 4)),),
    TensorType("f32", (64, 4)),
    (("local_rows", ("1", "1", "1"), (64, 1, 1), "0", ("buffer:0", "buffer:1")),),
    _normal((64, 4)),
    lambda x: x[:, ::-1],
)
REFERENCES = (VECTOR_ADD, SOFTMAX, TRANSPOSE, MATMUL, COLUMN_SUMS, WARP_ROWS, LOCAL_ROWS)
