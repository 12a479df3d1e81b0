"""ONNX's own test of each operator: models, inputs and outputs that the ``onnx`` package ships.

``python -m tests.onnx_models.node_tests`` runs all of them and says how they end.
"""

from __future__ import annotations

import copy
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import CompilerError, UnsupportedOp
from kcache_compiler.types import Canonical, CompileOptions
from tests.compiler.codegen_harness import NUMPY, Kernel

#: Inputs that may become initializers where an operator needs a constant: no larger than shapes are.
_SMALL = 16


class Outcome(NamedTuple):
    """``how``: ok, refused (a typed error), not compiled (it has a spec), wrong, or other values."""

    name: str
    op: str
    how: str
    why: str


def outcomes() -> Iterator[Outcome]:
    """Run every case but the expanded ones, which are the same cases by other operators."""
    for case in collect_testcases(None):
        if "expanded" not in case.name:
            yield outcome(case)


def outcome(case: Any) -> Outcome:
    name, op = case.name, case.model.graph.node[-1].op_type
    inputs, outputs = ([_array(x) for x in side] for side in case.data_sets[0])
    if any(x is None for x in (*inputs, *outputs)):
        return Outcome(name, op, "other values", "sequences, optionals or strings")
    made = _sized(case.model, inputs)
    try:
        found, inputs = _canonical(made, inputs)
    except CompilerError as error:
        return Outcome(name, op, "refused", str(error))
    try:
        kernel = Kernel(
            compile_spec(found.spec_text, found.arg_spec, "x86-64-v3", CompileOptions(), lambda _: None)
        )
    except UnsupportedOp as error:
        return Outcome(name, op, "not compiled", str(error))
    constants = [np.frombuffer(c.content, NUMPY[c.type.dtype]).reshape(c.type.dims) for c in found.constants]
    got = kernel(*inputs, *constants)
    why = _difference(got, outputs, case)
    return Outcome(name, op, "wrong" if why else "ok", why)


def _array(given: Any) -> np.ndarray | None:
    if isinstance(given, onnx.TensorProto):
        given = numpy_helper.to_array(given)
    if not isinstance(given, np.ndarray | np.generic):
        return None
    array = np.asarray(given)
    return None if array.dtype.kind in "OUS" else array


def _sized(made: onnx.ModelProto, inputs: Sequence[Any]) -> onnx.ModelProto:
    made = copy.deepcopy(made)
    for info, array in zip(made.graph.input, inputs, strict=True):
        for dim, size in zip(info.type.tensor_type.shape.dim, np.shape(array), strict=False):
            dim.dim_value = size
    return made


def _canonical(made: onnx.ModelProto, inputs: list[Any]) -> tuple[Canonical, list[Any]]:
    """The spec; inputs that an operator needs as constants become initializers."""
    try:
        return canonicalize(made.SerializeToString(), "onnx"), inputs
    except UnsupportedOp as error:
        if "as a constant" not in str(error):
            raise
    first = 0 if made.graph.node[-1].op_type in ("ConstantOfShape", "Range", "BlackmanWindow") else 1
    kept, rest = [], []
    for i, (info, array) in enumerate(zip(made.graph.input, inputs, strict=True)):
        small = array.size <= _SMALL and (array.dtype.kind in "iub" or array.size == 1)
        if (i >= first and small) or info.name in ("scales", "roi"):
            made.graph.initializer.append(numpy_helper.from_array(array, info.name))
        else:
            kept.append(info)
            rest.append(array)
    del made.graph.input[:]
    made.graph.input.extend(kept)
    return canonicalize(made.SerializeToString(), "onnx"), rest


def _difference(got: Sequence[Any], want: Sequence[Any], case: Any) -> str:
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {i} is {a.dtype}{list(a.shape)} and should be {b.dtype}{list(b.shape)}"
        if b.dtype.kind in "iub":
            if not np.array_equal(a, b):
                return f"output {i} differs"
            continue
        wide = np.complex128 if b.dtype.kind == "c" else np.float64
        narrow = b.dtype.itemsize == 2
        rtol, atol = (2e-2, 2e-2) if narrow else (max(case.rtol, 1e-4), max(case.atol, 1e-5))
        x, y = a.astype(wide), b.astype(wide)
        if not np.allclose(x, y, rtol=rtol, atol=atol, equal_nan=True):
            return f"output {i} differs by {np.nanmax(np.abs(x - y))}"
    return ""


if __name__ == "__main__":
    counts: Counter[str] = Counter()
    for found in outcomes():
        counts[found.how] += 1
        if found.how != "ok":
            sys.stdout.write(f"{found.how}: {found.name} ({found.op}): {found.why[:150]}\n")
    sys.stdout.write(f"{dict(counts)}\n")
