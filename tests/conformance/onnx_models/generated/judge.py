"""What becomes of a model: our kernel beside ONNX's reference and ONNX Runtime."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import CompilerError, UnsupportedOp
from kcache_compiler.types import CompileOptions
from kcache_grpc.model.manifest import CountedOutput
from kcache_grpc.runtime.results import cut
from tests.compiler.codegen_harness import NUMPY, Kernel
from tests.conformance.onnx_models.generated.draw import Array, Made
from tests.conformance.onnx_models.node_tests import carried, narrow
from tests.ops.generated.judge import Verdict

#: Relative to the number, and to the result's largest number, by the bytes of the narrowest float that the
#: model's inputs and outputs have. Attributes are f32: operators that have some agree no better in f64.
_TOLERANCES = {1: (0.0, 0.0), 2: (2e-2, 1e-2), 4: (5e-5, 2e-5), 8: (1e-9, 1e-10)}
_OF_ATTRIBUTES = (2e-7, 2e-8)
#: Operators that the standard defines in f32, of terms around 1 that cancel each other.
_OF_TERMS = ("BlackmanWindow", "HammingWindow", "HannWindow")
_WITH_CONSTANTS = ("HardSwish", "Selu", "Gelu")
RUNTIME = importlib.util.find_spec("onnxruntime") is not None


def judge(draw: Made, answering: Made | None = None) -> Verdict:
    """Right is what agrees with one of the two, in shapes, types and numbers.

    Where the two differ from each other, what is right is open: the reason says with which it agrees.
    ``answering`` is compiled in the place of ``made``: how a wrong kernel is told.
    """
    try:
        got = kernel_results(answering or draw)
    except UnsupportedOp as error:
        return Verdict("rejected", str(error))
    except CompilerError as error:
        return _invalid(draw, error)
    answers = {"the reference": _reference(draw), "ONNX Runtime": _runtime(draw)}
    reasons: dict[str, str] = {}
    for name, results in answers.items():
        if not isinstance(results, str):
            tolerance = _tolerance(draw, results)
            results = [
                _declared(array, info) for array, info in zip(results, draw.model.graph.output, strict=True)
            ]
            narrowed = [narrow(x, y) for x, y in zip(got, results, strict=True)]
            least = 1.0 if draw.model.graph.node[0].op_type in _OF_TERMS else 0.0
            reasons[name] = apart(narrowed, results, tolerance, least)
    if not reasons:
        return Verdict("no-oracle", "; ".join(f"{name}: {why}" for name, why in answers.items()))
    right = [name for name, why in reasons.items() if not why]
    if right:
        others = [f"as {right[0]}, and {name}: {why}" for name, why in reasons.items() if why]
        return Verdict("right", "; ".join(others))
    return Verdict("wrong", "; ".join(f"{name}: {why}" for name, why in reasons.items()))


def _invalid(draw: Made, error: CompilerError) -> Verdict:
    """A model that no other takes either was drawn wrong."""
    others = [_reference(draw), _runtime(draw)]
    if all(isinstance(result, str) for result in others):
        return Verdict("no-oracle", f"rejected by all: {error}")
    return Verdict("error", f"{type(error).__name__}: {error}")


def kernel_results(draw: Made) -> list[Array]:
    """What the compiled model gives; raises what the compiler raises."""
    form = canonicalize(draw.model.SerializeToString(), "onnx")
    options = CompileOptions(opt_level=1)
    kernel = Kernel(compile_spec(form.spec_text, form.arg_spec, "x86-64-v3", options, lambda _: None))
    constants = [np.frombuffer(c.content, NUMPY[c.type.dtype]).reshape(c.type.dims) for c in form.constants]
    results = kernel(*map(carried, draw.arrays), *constants)
    if not form.counted_results:
        return list(results)
    return list(cut(results, [CountedOutput(*entry) for entry in form.counted_results]))


def _reference(draw: Made) -> list[Array] | str:
    names = [info.name for info in draw.model.graph.input]
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            evaluator = ReferenceEvaluator(draw.model)
            results: Any = evaluator.run(None, dict(zip(names, draw.arrays, strict=True)))
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:150]}"
    return [np.asarray(result) for result in results]


def _runtime(draw: Made) -> list[Array] | str:
    """ONNX Runtime's results; where it lacks the operator for other floats, those of f32."""
    if not RUNTIME:
        return "not installed"
    results = _session(draw)
    wide = _in_f32(draw) if isinstance(results, str) else None
    return results if wide is None else _session(wide)


def _session(draw: Made) -> list[Array] | str:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = onnx.ModelProto()
    model.CopyFrom(draw.model)
    model.ir_version = 10
    names = [info.name for info in model.graph.input]
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        results: Any = session.run(None, dict(zip(names, draw.arrays, strict=True)))
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:150]}"
    return [np.asarray(result) for result in results]


def _in_f32(draw: Made) -> Made | None:
    """The model with f32 in the place of other floats; None where it has none."""
    others = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE)
    model = onnx.ModelProto()
    model.CopyFrom(draw.model)
    changed = False
    for info in (*model.graph.input, *model.graph.output):
        if info.type.tensor_type.elem_type in others:
            info.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
            changed = True
    for tensor in model.graph.initializer:
        if tensor.data_type in others:
            wide = onnx.numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(wide, tensor.name))
            changed = True
    arrays = [x.astype(np.float32) if _is_float(x.dtype) and x.itemsize > 1 else x for x in draw.arrays]
    return Made(model, arrays) if changed else None


def _declared(array: Array, info: onnx.ValueInfoProto) -> Array:
    """A result in the type that the schema gives it, which the reference does not always have.

    It sums integers in 64 bits, as NumPy does, and has masks of truth values in each version.
    """
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type))
    floats = (_is_float(array.dtype) or array.dtype.kind == "b") and _is_float(dtype)
    integers = array.dtype in (np.int64, np.uint64) and array.dtype.kind == dtype.kind
    return array.astype(dtype) if floats or integers else array


def _is_float(dtype: Any) -> bool:
    return dtype.kind == "f" or dtype.name == "bfloat16"


def _tolerance(draw: Made, results: Sequence[Array]) -> tuple[float, float]:
    (node,) = draw.model.graph.node
    types = [info.type.tensor_type.elem_type for info in draw.model.graph.input]
    types += [tensor.data_type for tensor in draw.model.graph.initializer]
    dtypes = [np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element_type)) for element_type in types]
    sizes = [d.itemsize for d in (*dtypes, *(array.dtype for array in results)) if _is_float(d)]
    stages = [4] if node.op_type in _OF_TERMS else _stages(draw)
    narrowest = min([*sizes, *stages], default=4)
    floats = any(a.type in (onnx.AttributeProto.FLOAT, onnx.AttributeProto.FLOATS) for a in node.attribute)
    if narrowest == 8 and (floats or node.op_type in _WITH_CONSTANTS):
        return _OF_ATTRIBUTES
    return _TOLERANCES[narrowest]


def _stages(draw: Made) -> list[int]:
    """Bytes of the floats in which means and variances are computed, of operators whose attribute says so."""
    (node,) = draw.model.graph.node
    (opset,) = draw.model.opset_import
    if "stash_type" not in onnx.defs.get_schema(node.op_type, opset.version, "").attributes:
        return []
    stage = next((a.i for a in node.attribute if a.name == "stash_type"), onnx.TensorProto.FLOAT)
    return [np.dtype(onnx.helper.tensor_dtype_to_np_dtype(stage)).itemsize]


def apart(
    got: Sequence[Array], want: Sequence[Array], tolerance: tuple[float, float], least: float = 0.0
) -> str:
    """What the first result that differs has, and should have; nothing where all agree.

    ``least`` counts as a number of the result, whose largest one says how far all may be off.
    """
    return next((why for x, y in zip(got, want, strict=True) if (why := _apart(x, y, tolerance, least))), "")


def _apart(got: Array, want: Array, tolerance: tuple[float, float], least: float) -> str:
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)} should be {want.dtype}{list(want.shape)}"
    off = got != want if want.dtype.kind in "iub" else _far(got, want, *tolerance, least)
    if not np.any(off):
        return ""
    at = int(np.flatnonzero(off)[0])
    return f"{np.count_nonzero(off)} of {off.size} differ: {got.flat[at]} at {at} should be {want.flat[at]}"


def _far(got: Array, want: Array, relative: float, of_largest: float, least: float) -> Array:
    if want.dtype.itemsize == 1:
        relative, of_largest = _TOLERANCES[1]
    x, y = got.astype(np.float64), want.astype(np.float64)
    finite = np.abs(y[np.isfinite(y)])
    largest = max(least, float(finite.max()) if finite.size else 0.0)
    with np.errstate(all="ignore"):
        return ~np.isclose(x, y, rtol=relative, atol=of_largest * min(largest, 1e3), equal_nan=True)
