"""Lowers the Torch dialect to StableHLO, in place."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, NoReturn

from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.frontends.torch.complex import reject_complex
from kcache_compiler.frontends.torch.dimensions import normalize_dims
from kcache_compiler.frontends.torch.loops.grouped_mm import GROUPED_PRODUCTS
from kcache_compiler.frontends.torch.loops.recurrent import RECURRENT
from kcache_compiler.frontends.torch.lowerings import LOWERED_OPS, lower_ops
from kcache_compiler.frontends.torch.pooling import legalize_ceil_mode
from kcache_compiler.frontends.torch.simplify import simplify
from kcache_compiler.frontends.torch.torch_op import integer_constants, name_of
from kcache_compiler.frontends.torch.variance import VARIANCE_OPS, decompose_variances
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from torch_mlir.ir import MLIRError, OpView

    from kcache_compiler.mlir.types import Location, Module, Op, Type, Value


#: Pipeline from a raw import to the backend contract: value semantics, composite ops decomposed. Variances
#: stay, which torch-mlir would compute in f64.
_TO_CONTRACT = (
    "builtin.module(func.func(torch-match-quantized-custom-ops),"
    "torchdynamo-export-to-torch-backend-pipeline{backend-legal-ops="
    + ",".join(sorted(name.removeprefix("torch.") for name in VARIANCE_OPS | LOWERED_OPS))
    + "})"
)
#: torch-mlir's own pipeline without passes that depend on sizes (canonicalization, CSE), and without the
#: legalization of CHLO, which would expand ``erf`` and the like to polynomials: the lowering of operations,
#: and of what it leaves.
_TO_STABLEHLO = "builtin.module(func.func(convert-torch-to-stablehlo))"
_TO_BUILTIN_TYPES = (
    "builtin.module("
    "func.func(convert-torch-to-arith,trivial-dce),"
    "torch-func-backend-type-conversion-for-stablehlo,"
    "func.func(torch-finalizing-backend-type-conversion-for-stablehlo,trivial-dce))"
)

#: Dialects of the result.
_TARGET_DIALECTS = frozenset({"func", "stablehlo", "chlo", "arith", "tensor", "shape"})
#: Ops of the Torch dialect without tensor results, which are never the cause of a failure.
STRUCTURE = re.compile(
    r"torch\.(constant\.|prim\.ListConstruct|prim\.TupleConstruct|aten\.size|aten\.Int)|torch_c\."
)
_ILLEGAL = re.compile(r"failed to legalize operation '([\w.]+)'")
_RANDOM = re.compile(
    r"torch\.aten\.(rand|bernoulli|uniform|normal|multinomial|exponential\b|exponential_|cauchy|geometric|log_normal)"
)
#: Ops that draw random numbers in training -> index of the operand that is the training flag.
_TRAINING_FLAG = {
    "torch.aten.dropout": 2,
    "torch.aten.native_dropout": 2,
    "torch.aten.feature_dropout": 2,
    "torch.aten.alpha_dropout": 2,
    "torch.aten.rrelu": 3,
    "torch.aten.rrelu_with_noise": 4,
    "torch.aten.rrelu_with_noise_functional": 4,
}
_UNSIGNED_COMPARISONS = frozenset(
    f"torch.aten.{name}"
    for name in (
        *("max", "min", "amax", "amin", "max.dim", "min.dim", "argmax", "argmin", "aminmax", "max_pool1d"),
        *("max_pool2d", "max_pool3d", "max_pool2d_with_indices", "max_pool3d_with_indices"),
    )
)
#: Ops with which torch-mlir crashes on bytes.
_CRASH_ON_BYTES = re.compile(r"torch\.aten\.((adaptive_)?max_pool[123]d|cumsum$|cumprod$)")
_UNSIGNED = re.compile(r",(i1|ui8)>$")
#: Ops that return bytes for bytes, for which torch-mlir combines the bits.
_BOOLEAN_REDUCTIONS = frozenset(
    f"torch.aten.{name}" for name in ("any", "any.dim", "any.dims", "all", "all.dim", "all.dims")
)
_OPERATOR = re.compile(r'name = "([\w.]+)"')
_TENSOR = re.compile(r"!torch\.vtensor<\[([\d,]*)\],([^>]+)>")
#: Ops that torch-mlir folds when their operands are constants. It computes some incorrectly: its folders of
#: splats read an ``int`` among floats as bits or as unsigned (``ones == 1`` is false, ``ones + -1`` is
#: 2^64),
#: and compute C's remainders. Constants are hidden behind barriers, and folded after the lowering.
_FOLDED = re.compile(
    r"torch\.aten\.(eq|ne|lt|le|gt|ge|add|sub|mul|div|rsub|remainder|fmod|floor_divide|where)(\.|$)"
)
_BARRIER = "stablehlo.optimization_barrier"


def lower_torch_to_stablehlo(module: Module) -> None:
    """Lower the functions of ``module``, raw or in torch-mlir's backend contract, to StableHLO, in place.

    The caller owns the module, which is in an undefined state after an error. Raises ``UnsupportedOp`` with
    the op of the Torch dialect that does not lower and its location, or ``InvalidProgram`` if no op is the
    cause.
    """
    _reject_unsupported(module)
    locations, names = _locations(module)
    normalize_dims(module)
    legalize_ceil_mode(module)
    _insert_folding_barriers(module)
    lower_ops(module, registered=False)
    _run_pipeline(module, _TO_CONTRACT, locations, names)
    decompose_variances(module)
    lower_ops(module, registered=True)
    _run_pipeline(module, _TO_STABLEHLO, locations, names)
    _run_pipeline(module, _TO_BUILTIN_TYPES, locations, names, between=False)
    for operation in mlir.all_operations(module.operation):
        if operation.name.partition(".")[0] not in _TARGET_DIALECTS:
            raise _unsupported(operation, locations)
    _remove_folding_barriers(module)
    propagate_nan(module)
    simplify(module)


def _locations(module: Module) -> tuple[dict[str, str], dict[str, str]]:
    """Return the first location of each op, and the op at each location.

    Passes lose the locations of ops that they move, and report ops that they created.
    """
    locations: dict[str, str] = {}
    names: dict[str, str] = {}
    for operation in mlir.all_operations(module.operation):
        name, location = name_of(operation), mlir.describe_location(operation.location)
        locations.setdefault(name, location)
        if location and name.startswith("torch.") and not STRUCTURE.match(name):
            names.setdefault(location, name)
    return locations, names


def _run_pipeline(
    module: Module, pipeline: str, locations: dict[str, str], names: dict[str, str], between: bool = True
) -> None:
    try:
        mlir.run_passes(module, pipeline, between)
    except mlir.mlir_error() as error:
        _raise_for_failure(module, error, locations, names)


def _reject_unsupported(module: Module) -> None:
    """Raise for ops that have no definition in the program, draw random numbers, or lower incorrectly.

    A kernel would draw the same random numbers in every call.
    """
    complex_types: dict[Type, bool] = {}
    for operation in mlir.all_operations(module.operation):
        reason = _unsupported_reason(operation)
        if reason:
            raise UnsupportedOp(name_of(operation), reason, mlir.describe_location(operation.location))
        reject_complex(operation, complex_types)


def _unsupported_reason(operation: Op) -> str:
    """Return why an op cannot be lowered correctly, or an empty string."""
    name = name_of(operation)
    if _RANDOM.match(name) or _is_training(operation):
        return "it draws random numbers: draw them outside of the program, and pass them as an argument"
    if name in _UNSIGNED_COMPARISONS and _UNSIGNED.search(str(operation.operands[0].type)):
        return "torch-mlir treats booleans and bytes as signed integers here: convert them to i32 first"
    if operation.name == "torch.aten.slice.Tensor" and integer_constants(operation.operands[3]) == [0]:
        return "it ends at 0, which torch-mlir takes for the end of the axis: create an empty tensor instead"
    if _CRASH_ON_BYTES.match(name) and str(operation.results[0].type).endswith(("si8>", "ui8>")):
        return "torch-mlir does not initialize it for bytes: convert them to i32 first"
    if operation.name == "torch.aten.avg_pool3d" and not _is_none(operation.operands[6]):
        return "torch-mlir divides by the window's size instead: pool without a divisor, and scale"
    if name in _BOOLEAN_REDUCTIONS and str(operation.operands[0].type).endswith(",ui8>"):
        return "torch-mlir combines the bits of bytes here: compare them with 0 first"
    known = ("torch.aten.", "torch.prims.", "torch.prim.", "torch.onnx.", "onnx.")
    ours = name in RECURRENT or name in GROUPED_PRODUCTS
    if operation.name == "torch.operator" and not name.startswith(known) and not ours:
        return "a custom op whose definition is not in the program: write it with ATen ops"
    return ""


def _is_none(value: Value) -> bool:
    return getattr(value.owner, "name", "") == "torch.constant.none"


def _is_training(operation: Op) -> bool:
    """Return whether an op draws random numbers because its training flag may be set."""
    index = _TRAINING_FLAG.get(name_of(operation))
    if index is None:
        return False
    flag = lazy.definition(operation.operands[index])
    return getattr(flag, "name", "") != "torch.constant.bool" or lazy.boolean(flag.attributes["value"])


def _raise_for_failure(
    module: Module, error: MLIRError, locations: dict[str, str], names: dict[str, str]
) -> NoReturn:
    """Raise for a failed pipeline, with the op that it names or locates, or the first remaining op."""
    diagnostics = list(error.error_diagnostics)
    text = "; ".join(str(d.message).strip() for d in diagnostics) or str(error)
    illegal = _ILLEGAL.search(text)
    if illegal and not STRUCTURE.match(illegal[1]):
        operator = _OPERATOR.search(text) if illegal[1] == "torch.operator" else None
        location = _diagnostic_location(diagnostics[0].location) if diagnostics else ""
        name = operator[1] if operator else illegal[1]
        raise UnsupportedOp(name, _NO_LOWERING, location or locations.get(name, "")) from None
    for location in (_diagnostic_location(d.location) for d in diagnostics):
        if location in names:
            reason = f"torch-mlir does not lower it with these operands: {text[:500]}"
            raise UnsupportedOp(names[location], reason, location) from None
    for operation in mlir.all_operations(module.operation):
        if operation.name.startswith("torch.") and not STRUCTURE.match(operation.name):
            raise _unsupported(operation, locations) from None
    raise InvalidProgram(f"the Torch program does not lower to StableHLO: {text[:2000]}") from None


def _diagnostic_location(location: Location) -> str:
    """Return the location of a diagnostic, to which the bindings give no specific class."""
    native = mlir.native_ir()
    for location_class in (native.FileLineColLoc, native.NameLoc, native.CallSiteLoc, native.FusedLoc):
        with contextlib.suppress(ValueError):
            return mlir.describe_location(location_class(location))
    return ""


_NO_LOWERING = (
    "torch-mlir has no lowering of it to StableHLO, with these operands at least; decompose it before the "
    "export (ExportedProgram.run_decompositions), or write it with other ops"
)


def _unsupported(operation: Op, locations: dict[str, str]) -> UnsupportedOp:
    name = name_of(operation)
    location = mlir.describe_location(operation.location) or locations.get(name, "")
    return UnsupportedOp(name, _NO_LOWERING, location)


def _insert_folding_barriers(module: Module) -> None:
    """Insert barriers before operands of arithmetic that depend on no argument, in place."""
    with module.context:
        varying: dict[Value, bool] = {}
        for operation in mlir.all_operations(module.operation):
            varies = [_is_varying(operand, varying) for operand in operation.operands]
            for result in operation.results:
                varying[result] = any(varies)
            if _FOLDED.match(operation.name):
                for index, operand in enumerate(operation.operands):
                    if not varies[index]:
                        _insert_barrier(operation, index, operand)


def _remove_folding_barriers(module: Module) -> None:
    """Remove the barriers, in place."""
    for operation in mlir.all_operations(module.operation):
        if operation.name == _BARRIER:
            operation.results[0].replace_all_uses_with(operation.operands[0])
            operation.erase()


def _is_varying(value: Value, varying: dict[Value, bool]) -> bool:
    return varying.get(value, True)


def _insert_barrier(operation: Op, index: int, operand: Value) -> None:
    match = _TENSOR.fullmatch(str(operand.type))
    if match is None:
        return
    native = mlir.native_ir()
    dims = "".join(f"{size}x" for size in match[1].split(",") if size)
    type = f"tensor<{dims}{match[2].replace('si', 'i')}>"
    with native.InsertionPoint(operation), operation.location:
        builtin = _barrier_op("torch_c.to_builtin_tensor", operand, type)
        barrier = _barrier_op(_BARRIER, builtin, type)
        operation.operands[index] = _barrier_op("torch_c.from_builtin_tensor", barrier, str(operand.type))


def _barrier_op(name: str, operand: Value, type: str) -> Value:
    native = mlir.native_ir()
    return native.Operation.create(name, results=[native.Type.parse(type)], operands=[operand]).result


_REDUCER = ("compare", "select", "compare", "minimum", "select", "select", "return")
_DIRECTIONS = ("GE", "LE")


def propagate_nan(module: Module) -> None:
    """Rewrite torch-mlir's reducers of extremes with indices, in place, so that NaN wins, as in PyTorch.

    Its reducers select by ``a >= b``, and of equal elements the first index. The index of a row is that of
    its first NaN, that of a window its last one. Windows start with index 0, which is not among most of them.
    """
    with module.context:
        for operation in mlir.all_operations(module.operation):
            if operation.name in ("stablehlo.reduce", "stablehlo.reduce_window") and _is_extreme_reducer(
                operation
            ):
                is_window = operation.name == "stablehlo.reduce_window"
                if is_window:
                    _start_after_all_indices(operation)
                _compare_nan(list(operation.regions[0].blocks[0].operations), last=is_window)


def _is_extreme_reducer(operation: Op) -> bool:
    """Return whether the body is torch-mlir's selection of the larger or smaller of two elements."""
    if len(operation.operands) != 4:
        return False
    body = list(operation.regions[0].blocks[0].operations)
    if tuple(op.operation.name.removeprefix("stablehlo.") for op in body) != _REDUCER:
        return False
    return any(
        f"comparison_direction {direction}" in str(body[0].attributes["comparison_direction"])
        for direction in _DIRECTIONS
    )


def _start_after_all_indices(operation: Op) -> None:
    """Set the initial index of windows to the largest value: of equal elements the first index wins."""
    native = mlir.native_ir()
    with native.InsertionPoint(operation), operation.location:
        type = operation.operands[3].type
        bits = int(str(type).removeprefix("tensor<i").removesuffix(">"))
        largest = native.Attribute.parse(f"dense<{2 ** (bits - 1) - 1}> : {type}")
        constant = native.Operation.create(
            "stablehlo.constant", results=[type], attributes={"value": largest}
        )
        operation.operands[3] = constant.result


def _compare_nan(body: list[OpView], last: bool) -> None:
    """Extend both comparisons to NaN; ``last`` selects the last of two NaNs."""
    comparison, _, equal, first_index, _, selected_index, _ = (op.operation for op in body)
    if "FLOAT" not in str(comparison.attributes["compare_type"]):
        return
    native = mlir.native_ir()
    with native.InsertionPoint(body[1]), comparison.location:
        left_is_nan, right_is_nan = (_is_nan(comparison, value) for value in comparison.operands)
        comparison_or_nan = _boolean("or", comparison.result, left_is_nan)
    with native.InsertionPoint(body[3]), equal.location:
        both_nan = _boolean("and", left_is_nan, right_is_nan)
        equal_or_nan = _boolean("or", equal.result, both_nan)
    for old, new in ((comparison, comparison_or_nan), (equal, equal_or_nan)):
        for operation in body:
            for index, operand in enumerate(operation.operation.operands):
                if operand == old.result:
                    operation.operation.operands[index] = new
    if last:
        with native.InsertionPoint(selected_index), selected_index.location:
            last_index = _create("maximum", first_index.result.type, *first_index.operands)
            selected_index.operands[1] = _create(
                "select", first_index.result.type, both_nan, last_index, first_index.result
            )


def _is_nan(like: Op, value: Value) -> Value:
    """Return whether a value is NaN, compared like ``like``."""
    attributes = {
        "comparison_direction": mlir.native_ir().Attribute.parse("#stablehlo<comparison_direction NE>"),
        "compare_type": like.attributes["compare_type"],
    }
    comparison = mlir.native_ir().Operation.create(
        like.name, results=[like.result.type], operands=[value, value], attributes=attributes
    )
    return comparison.result


def _boolean(name: str, left: Value, right: Value) -> Value:
    return _create(name, left.type, left, right)


def _create(name: str, type: Type, *operands: Value) -> Value:
    native = mlir.native_ir()
    return native.Operation.create(f"stablehlo.{name}", results=[type], operands=list(operands)).result
