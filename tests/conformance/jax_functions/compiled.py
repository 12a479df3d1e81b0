"""A JAX export as a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.types import CompileOptions
from kcache_grpc.programs.jax.export import lifted_artifact
from tests.compiler.codegen_harness import NUMPY, Kernel

TARGET = "x86-64-v3"


class Compiled(NamedTuple):
    """A kernel, the arguments that the export kept, and the constants that were lifted."""

    kernel: Kernel
    kept: Sequence[int]
    constants: list[np.ndarray]

    def __call__(self, arguments: Sequence[Any]) -> tuple[np.ndarray, ...]:
        return self.kernel(*(arguments[index] for index in self.kept), *self.constants)


def compiled(exported: Any) -> Compiled:
    """As the client takes it. Raises what the compiler raises."""
    form = canonicalize(lifted_artifact(exported)[0], "stablehlo")
    compiled_kernel = compile_spec(form.spec_text, form.arg_spec, TARGET, CompileOptions(), lambda _: None)
    constants = [np.frombuffer(c.content, NUMPY[c.type.dtype]).reshape(c.type.dims) for c in form.constants]
    return Compiled(Kernel(compiled_kernel), exported.module_kept_var_idx, constants)
