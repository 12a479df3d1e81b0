"""Programs that call LAPACK as JAX does on a CPU, and NumPy's word on what they give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import NUMPY, Kernel

LETTERS = {"f32": "s", "f64": "d", "c64": "c", "c128": "z"}
_MLIR = {"f32": "f32", "f64": "f64", "c64": "complex<f32>", "c128": "complex<f64>", "i32": "i32"}
#: What rounding may do to numbers of about 1, for matrices of these sizes.
CLOSE = {"f32": 2e-5, "f64": 2e-13, "c64": 2e-5, "c128": 2e-13}
Shape = tuple[int, ...]


def called(
    dtype: str,
    routine: str,
    arrays: Sequence[np.ndarray],
    results: Sequence[tuple[str, Shape]],
    letters: str = "",
) -> tuple[np.ndarray, ...]:
    """The results of ``lapack_<letter><routine>_ffi``; ``letters`` as ``uplo=L side=R``."""
    parameters = ", ".join(f"%a{place}: {_type(dtype, array.shape)}" for place, array in enumerate(arrays))
    names = ", ".join(f"%a{place}" for place in range(len(arrays)))
    kinds = ", ".join(_type(dtype, array.shape) for array in arrays)
    result_types = ", ".join(_type(*result) for result in results)
    out = ", ".join(f"%r#{place}" for place in range(len(results))) if len(results) > 1 else "%r"
    config = ", ".join(
        f"{name} = {ord(letter)} : ui8" for name, letter in (pair.split("=") for pair in letters.split())
    )
    count = f":{len(results)}" if len(results) > 1 else ""
    text = f"""func.func @main({parameters}) -> ({result_types}) {{
  %r{count} = stablehlo.custom_call @lapack_{LETTERS[dtype]}{routine}_ffi({names}) {{
    mhlo.backend_config = {{{config}}}}} : ({kinds}) -> ({result_types})
  return {out} : {result_types}
}}"""
    form = canonicalize(text.encode(), "stablehlo")
    options = CompileOptions(opt_level=1)
    compiled = compile_spec(form.spec_text, form.arg_spec, "x86-64-v3", options, lambda _: None)
    assert [NUMPY[kind.dtype] for kind in compiled.interface.outputs] == [
        NUMPY[element] for element, _ in results
    ]
    return Kernel(compiled)(*arrays)


def _type(dtype: str, shape: Shape) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{_MLIR[dtype]}>"


def random(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    """Normal numbers."""
    generator = np.random.default_rng([seed, *shape])
    numbers = generator.standard_normal(shape)
    if dtype.startswith("c"):
        numbers = numbers + 1j * generator.standard_normal(shape)
    return numbers.astype(NUMPY[dtype])


def adjoint(matrix: np.ndarray) -> np.ndarray:
    return np.conj(np.swapaxes(matrix, -1, -2))


def close(dtype: str, got: Any, expected: Any) -> None:
    """Equal up to rounding, of the largest number."""
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(got, expected, rtol=0, atol=CLOSE[dtype] * scale)
