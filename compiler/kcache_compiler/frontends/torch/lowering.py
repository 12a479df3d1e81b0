"""Torch dialect to StableHLO, in place. Shared by the frontends that arrive at the Torch dialect."""

from __future__ import annotations

import contextlib
import re
from typing import NoReturn

from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.frontends.tidy import tidy
from kcache_compiler.frontends.torch.complex import refuse_complex
from kcache_compiler.frontends.torch.constants import hide_constants, show_constants
from kcache_compiler.frontends.torch.dimensions import settle_dims
from kcache_compiler.frontends.torch.extremes import choose_nan
from kcache_compiler.frontends.torch.operations import LOWERED, lower_ops
from kcache_compiler.frontends.torch.pooling import pad_behind
from kcache_compiler.frontends.torch.site import name_of, whole_numbers
from kcache_compiler.frontends.torch.variance import VARIANCES, decompose_variances
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

#: Raw import to the backend contract: values instead of mutation, composite ops in their parts. Variances
#: stay: torch-mlir would compute them in f64.
_TO_CONTRACT = (
    "builtin.module(func.func(torch-match-quantized-custom-ops),"
    "torchdynamo-export-to-torch-backend-pipeline{backend-legal-ops="
    + ",".join(sorted(name.removeprefix("torch.") for name in VARIANCES | LOWERED))
    + "})"
)
#: torch-mlir's own pipeline without what looks at sizes (canonicalization, CSE), and without the legalization
#: of CHLO, which would make polynomials of ``erf`` and its like.
_TO_STABLEHLO = (
    "builtin.module("
    "func.func(convert-torch-to-stablehlo,convert-torch-to-arith,trivial-dce),"
    "torch-func-backend-type-conversion-for-stablehlo,"
    "func.func(torch-finalizing-backend-type-conversion-for-stablehlo,trivial-dce))"
)

#: Dialects of what the pipeline makes.
_LOWERED = frozenset({"func", "stablehlo", "chlo", "arith", "tensor", "shape"})
#: Ops of the Torch dialect that make no tensor: never the reason why a program does not lower.
STRUCTURE = re.compile(
    r"torch\.(constant\.|prim\.ListConstruct|prim\.TupleConstruct|aten\.size|aten\.Int)|torch_c\."
)
_ILLEGAL = re.compile(r"failed to legalize operation '([\w.]+)'")
_RANDOM = re.compile(
    r"torch\.aten\.(rand|bernoulli|uniform|normal|multinomial|exponential\b|exponential_|cauchy|geometric|log_normal)"
)
#: Ops that draw random numbers in training -> the operand that says whether this is.
_TRAINING = {
    "torch.aten.dropout": 2,
    "torch.aten.native_dropout": 2,
    "torch.aten.feature_dropout": 2,
    "torch.aten.alpha_dropout": 2,
    "torch.aten.rrelu": 3,
    "torch.aten.rrelu_with_noise": 4,
    "torch.aten.rrelu_with_noise_functional": 4,
}
_EXTREMES = frozenset(
    f"torch.aten.{name}"
    for name in (
        *("max", "min", "amax", "amin", "max.dim", "min.dim", "argmax", "argmin", "aminmax", "max_pool1d"),
        *("max_pool2d", "max_pool3d", "max_pool2d_with_indices", "max_pool3d_with_indices"),
    )
)
#: On bytes they end the process.
_OF_BYTES = re.compile(r"torch\.aten\.((adaptive_)?max_pool[123]d|cumsum$|cumprod$)")
_UNSIGNED = re.compile(r",(i1|ui8)>$")
#: Of bytes they give bytes, and torch-mlir combines the bits.
_TRUTHS = frozenset(
    f"torch.aten.{name}" for name in ("any", "any.dim", "any.dims", "all", "all.dim", "all.dims")
)
_OPERATOR = re.compile(r'name = "([\w.]+)"')


def lower_torch_to_stablehlo(module: Native) -> None:
    """Lower the functions of ``module``, raw or in torch-mlir's backend contract, to StableHLO, in place.

    The caller owns the module; after an error it is in no defined state. Raises ``UnsupportedOp`` with the op
    of the Torch dialect that does not lower, and its location; ``InvalidProgram`` where no op is to blame.
    """
    _refuse(module)
    places, names = _places(module)
    settle_dims(module)
    pad_behind(module)
    hide_constants(module)
    lower_ops(module, registered=False)
    _run(module, _TO_CONTRACT, places, names)
    decompose_variances(module)
    lower_ops(module, registered=True)
    _run(module, _TO_STABLEHLO, places, names)
    for operation in mlir.all_operations(module.operation):
        if operation.name.partition(".")[0] not in _LOWERED:
            raise _unsupported(operation, places)
    show_constants(module)
    choose_nan(module)
    tidy(module)


def _places(module: Native) -> tuple[dict[str, str], dict[str, str]]:
    """Where each op first occurs, and what is computed at each place. Passes lose the locations of what they
    move, and name what they made of an op.
    """
    places: dict[str, str] = {}
    names: dict[str, str] = {}
    for operation in mlir.all_operations(module.operation):
        name, where = name_of(operation), mlir.describe_location(operation.location)
        places.setdefault(name, where)
        if where and name.startswith("torch.") and not STRUCTURE.match(name):
            names.setdefault(where, name)
    return places, names


def _run(module: Native, pipeline: str, places: dict[str, str], names: dict[str, str]) -> None:
    try:
        mlir.run_passes(module, pipeline)
    except mlir.mlir_error() as error:
        _explain(module, error, places, names)


def _refuse(module: Native) -> None:
    """Raise for the ops of extensions of PyTorch: of what they compute, the program says nothing; and for
    those that draw random numbers: a kernel would draw the same in each call.
    """
    for operation in mlir.all_operations(module.operation):
        if _RANDOM.match(name_of(operation)) or _trains(operation):
            reason = "it draws random numbers: draw them outside of the program, and pass them as an argument"
            raise UnsupportedOp(name_of(operation), reason, mlir.describe_location(operation.location))
        if name_of(operation) in _EXTREMES and _UNSIGNED.search(str(operation.operands[0].type)):
            reason = (
                "torch-mlir takes truth values and bytes for signed numbers here: convert them to i32 first"
            )
            raise UnsupportedOp(name_of(operation), reason, mlir.describe_location(operation.location))
        refuse_complex(operation)
        if operation.name == "torch.aten.slice.Tensor" and whole_numbers(operation.operands[3]) == [0]:
            reason = "it ends at 0, which torch-mlir takes for the end of the axis: make an empty tensor"
            raise UnsupportedOp(name_of(operation), reason, mlir.describe_location(operation.location))
        if _OF_BYTES.match(name_of(operation)) and str(operation.results[0].type).endswith(("si8>", "ui8>")):
            reason = "torch-mlir does not begin it in bytes: convert them to i32 first"
            raise UnsupportedOp(name_of(operation), reason, mlir.describe_location(operation.location))
        if operation.name == "torch.aten.avg_pool3d" and not _is_none(operation.operands[6]):
            reason = "torch-mlir divides by the window's size instead: pool without a divisor, and scale"
            raise UnsupportedOp(name_of(operation), reason, mlir.describe_location(operation.location))
        if name_of(operation) in _TRUTHS and str(operation.operands[0].type).endswith(",ui8>"):
            reason = "torch-mlir combines the bits of bytes here: compare them with 0 first"
            raise UnsupportedOp(name_of(operation), reason, mlir.describe_location(operation.location))
        if operation.name == "torch.operator":
            name = operation.attributes["name"].value
            if not name.startswith(("torch.aten.", "torch.prims.", "torch.prim.", "torch.onnx.", "onnx.")):
                reason = "a custom op, and the program does not hold its definition; write it with ATen ops"
                raise UnsupportedOp(name, reason, mlir.describe_location(operation.location))


def _is_none(value: Native) -> bool:
    return getattr(value.owner, "name", "") == "torch.constant.none"


def _trains(operation: Native) -> bool:
    """Whether an op draws random numbers because it is one of training."""
    position = _TRAINING.get(name_of(operation))
    if position is None:
        return False
    flag = operation.operands[position].owner
    return getattr(flag, "name", "") != "torch.constant.bool" or flag.attributes["value"].value


def _explain(module: Native, error: Exception, places: dict[str, str], names: dict[str, str]) -> NoReturn:
    """Raise for a pipeline that failed: the op that it named, or is at the place that it named, or else the
    first one that is left.
    """
    native: Native = error
    diagnostics = list(native.error_diagnostics)
    text = "; ".join(str(d.message).strip() for d in diagnostics) or str(error)
    illegal = _ILLEGAL.search(text)
    if illegal and not STRUCTURE.match(illegal[1]):
        operator = _OPERATOR.search(text) if illegal[1] == "torch.operator" else None
        where = _place(diagnostics[0].location) if diagnostics else ""
        name = operator[1] if operator else illegal[1]
        raise UnsupportedOp(name, _NO_LOWERING, where or places.get(name, "")) from None
    for where in (_place(d.location) for d in diagnostics):
        if where in names:
            reason = f"torch-mlir does not lower it with these operands: {text[:500]}"
            raise UnsupportedOp(names[where], reason, where) from None
    for operation in mlir.all_operations(module.operation):
        if operation.name.startswith("torch.") and not STRUCTURE.match(operation.name):
            raise _unsupported(operation, places) from None
    raise InvalidProgram(f"the Torch program does not lower to StableHLO: {text[:2000]}") from None


def _place(location: Native) -> str:
    """Where a diagnostic is; the bindings give its location as one of no kind."""
    native = mlir.native_ir()
    for kind in (native.FileLineColLoc, native.NameLoc, native.CallSiteLoc, native.FusedLoc):
        with contextlib.suppress(ValueError):
            return mlir.describe_location(kind(location))
    return ""


_NO_LOWERING = (
    "torch-mlir has no lowering of it to StableHLO, with these operands at least; decompose it before the "
    "export (ExportedProgram.run_decompositions), or write it with other ops"
)


def _unsupported(operation: Native, places: dict[str, str]) -> UnsupportedOp:
    name = name_of(operation)
    where = mlir.describe_location(operation.location) or places.get(name, "")
    return UnsupportedOp(name, _NO_LOWERING, where)
