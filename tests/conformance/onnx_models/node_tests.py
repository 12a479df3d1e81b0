"""ONNX's own test of each operator: models, inputs and outputs that the ``onnx`` package ships.

``python -m tests.conformance.onnx_models.node_tests`` runs all of them and says how they end; ``--part I/N``
the I-th of
N parts. The share is of the cases in ONNX's own domain whose inputs and outputs are numeric tensors.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import CompilerError, UnsupportedOp
from kcache_compiler.types import Canonical, CompileOptions
from kcache_grpc.model.manifest import CountedOutput
from kcache_grpc.runtime.results import cut
from tests.compiler.codegen_harness import NUMPY, Kernel

#: Cases whose own outputs were rounded on the way, in f16 or in sums of f32: ours are out of tolerance.
ROUNDED = frozenset(
    [
        *("test_attention_4d_causal_fp16", "test_attention_4d_gqa_causal_nonpad_decode_fp16"),
        *("test_dft_inverse", "test_dft_inverse_opset19"),
    ]
)

#: Inputs that may become initializers where an operator needs a constant: no larger than shapes are.
_SMALL = 16

#: Operators whose first input is a size, too.
_OF_SIZES = frozenset(
    ["BlackmanWindow", "ConstantOfShape", "HammingWindow", "HannWindow", "Loop", "MelWeightMatrix", "Range"]
)

_INTEGERS = ("int4", "uint4", "int2", "uint2")


class Outcome(NamedTuple):
    """``how``: ok, rounded, rejected (a typed error), not compiled (it has a spec), wrong, or other values.

    ``rounded`` is out of the case's own tolerance, and no farther from what its model gives in f64 than the
    case's own outputs are, which were rounded on the way, or two units in the last place.
    """

    name: str
    op: str
    domain: str
    how: str
    why: str


def outcomes(part: int = 1, of: int = 1, within: str = "") -> Iterator[Outcome]:
    """Run every case but the expanded ones, which are the same cases by other operators."""
    cases = [case for case in collect_testcases(None) if "expanded" not in case.name and within in case.name]
    for case in cases[part - 1 :: of]:
        yield outcome(case)


def outcome(case: Any) -> Outcome:
    node = case.model.graph.node[-1]
    name, op, domain = case.name, node.op_type, "" if node.domain == "ai.onnx" else node.domain
    inputs, outputs = ([_array(x) for x in side] for side in case.data_sets[0])
    if any(x is None for x in (*inputs, *outputs)):
        return Outcome(name, op, domain, "other values", "sequences, optionals or strings")
    proto = _sized(case.model, inputs)
    try:
        form, inputs = _canonical(proto, inputs)
    except CompilerError as error:
        return Outcome(name, op, domain, "rejected", str(error))
    try:
        kernel = Kernel(
            compile_spec(form.spec_text, form.arg_spec, "x86-64-v3", CompileOptions(), lambda _: None)
        )
    except UnsupportedOp as error:
        return Outcome(name, op, domain, "not compiled", str(error))
    constants = [np.frombuffer(c.content, NUMPY[c.type.dtype]).reshape(c.type.dims) for c in form.constants]
    got = kernel(*map(carried, inputs), *constants)
    if form.counted_results:
        got = cut(got, [CountedOutput(*entry) for entry in form.counted_results])
    shown = [narrow(a, b) for a, b in zip(got, outputs, strict=True)]
    why = _difference(shown, outputs, case.rtol, case.atol)
    if why and _is_rounded(proto, inputs, shown, outputs):
        return Outcome(name, op, domain, "rounded", why)
    return Outcome(name, op, domain, "wrong" if why else "ok", why)


def _array(value: Any) -> np.ndarray | None:
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    if not isinstance(value, np.ndarray | np.generic):
        return None
    array = np.asarray(value)
    return None if array.dtype.kind in "OUS" else array


def carried(array: Any) -> Any:
    """What a buffer has of elements below 16 bits: bits of floats, numbers of integers, a byte each."""
    name = np.asarray(array).dtype.name
    if name.startswith(("float8", "float4")):
        return np.asarray(array).view(np.uint8)
    return np.asarray(array).astype(np.int8 if name[0] == "i" else np.uint8) if name in _INTEGERS else array


def narrow(got: Any, like: Any) -> Any:
    """A result as the numbers that its bytes stand for."""
    name = like.dtype.name
    if name.startswith(("float8", "float4")) and got.dtype == np.uint8:
        return got.view(like.dtype)
    fits = name in _INTEGERS and got.dtype == (np.int8 if name[0] == "i" else np.uint8)
    return got.astype(like.dtype) if fits else got


def _sized(proto: onnx.ModelProto, inputs: Sequence[Any]) -> onnx.ModelProto:
    proto = copy.deepcopy(proto)
    for info, array in zip(proto.graph.input, inputs, strict=True):
        for dim, size in zip(info.type.tensor_type.shape.dim, np.shape(array), strict=False):
            dim.dim_value = size
    return proto


def _canonical(proto: onnx.ModelProto, inputs: list[Any]) -> tuple[Canonical, list[Any]]:
    """The spec; inputs that an operator needs as constants become initializers."""
    try:
        return canonicalize(proto.SerializeToString(), "onnx"), inputs
    except UnsupportedOp as error:
        if "as a constant" not in str(error):
            raise
    first = 0 if proto.graph.node[-1].op_type in _OF_SIZES else 1
    kept, rest = [], []
    for i, (info, array) in enumerate(zip(proto.graph.input, inputs, strict=True)):
        small = array.size <= _SMALL and (array.dtype.kind in "iubV" or array.size == 1)
        if (i >= first and small) or info.name in ("scales", "roi"):
            proto.graph.initializer.append(numpy_helper.from_array(array, info.name))
        else:
            kept.append(info)
            rest.append(array)
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    return canonicalize(proto.SerializeToString(), "onnx"), rest


def _difference(got: Sequence[Any], want: Sequence[Any], rtol: float, atol: float) -> str:
    """How results differ; of bf16 two units in the last place are none, as the package's runner has it."""
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {i} is {a.dtype}{list(a.shape)} and should be {b.dtype}{list(b.shape)}"
        if b.dtype.kind in "iub" or b.dtype.itemsize == 1:
            if not np.array_equal(a.astype("f4"), b.astype("f4"), equal_nan=True) or (
                b.dtype.kind in "iub" and (a != b).any()
            ):
                return f"output {i} differs: {a.reshape(-1)[:8]} should be {b.reshape(-1)[:8]}"
            continue
        wide = np.complex128 if b.dtype.kind == "c" else np.float64
        x, y = a.astype(wide), b.astype(wide)
        relative = max(rtol, 2**-6) if b.dtype.name == "bfloat16" else rtol
        if not np.allclose(x, y, rtol=relative, atol=atol, equal_nan=True):
            return f"output {i} differs by {np.nanmax(np.abs(x - y))}"
    return ""


def _is_rounded(
    model: onnx.ModelProto, inputs: Sequence[Any], got: Sequence[Any], want: Sequence[Any]
) -> bool:
    """Whether results are as near to the model's in f64 as the case's own, or two units in the last place."""
    if any(array.dtype.name not in ("float16", "float32") for array in want):
        return False
    wide = [array.astype(np.float64) if array.dtype.kind == "f" else array for array in inputs]
    feeds = {info.name: array for info, array in zip(model.graph.input, wide, strict=True)}
    exact = ReferenceEvaluator(model).run(None, feeds)
    for ours, theirs, truth in zip(got, want, map(np.asarray, exact), strict=True):
        units = np.abs(ours - truth) / np.spacing(np.abs(truth).astype(theirs.dtype)).astype(np.float64)
        nearer = np.abs(ours - truth).max() <= np.abs(theirs - truth).max()
        if not (nearer or units.max() <= 2):  # NaN is neither
            return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.onnx_models.node_tests")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--within", default="", help="cases with this in their name")
    options = parser.parse_args()
    part, of = map(int, options.part.split("/"))
    counts: Counter[str] = Counter()
    own: Counter[str] = Counter()
    for result in outcomes(part, of, options.within):
        counts[result.how] += 1
        if not result.domain and result.how != "other values":
            own[result.how] += 1
        if result.how != "ok":
            sys.stdout.write(f"{result.how}: {result.name} ({result.op}): {result.why[:150]}\n")
    share = own["ok"] / max(1, own.total())
    sys.stdout.write(f"{dict(counts)}; of numeric tensors in ONNX's own domain {dict(own)}, {share:.1%}\n")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
