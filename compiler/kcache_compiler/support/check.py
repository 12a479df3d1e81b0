"""The search for everything that is refused."""

from __future__ import annotations

from collections.abc import Callable

from kcache_compiler.compile import compile_spec
from kcache_compiler.errors import CompilerError, InvalidProgram, UnsupportedOp
from kcache_compiler.frontends import Limits, read_program
from kcache_compiler.frontends.program import Source
from kcache_compiler.spec.canonicalize import canonicalize
from kcache_compiler.support.onnx_nodes import OnnxNodes
from kcache_compiler.support.report import Found, Report
from kcache_compiler.support.torch_ops import TorchOps
from kcache_compiler.support.units import Units
from kcache_compiler.types import CompileOptions

#: Operations that are taken away one after the other, each for a new attempt.
_ATTEMPTS = 500
#: What errors of arguments and results name.
_BOUNDARY = frozenset({"func.func", "onnx.TypeProto"})
_MORE = "the program was not looked at beyond this: there may be more"
_UNSEEN = "whether the rest compiles without these operations could not be seen"


class Whole:
    """A program without parts that can be taken away."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.operations = 0
        self.note = ""

    def take_away(self, error: UnsupportedOp) -> bool:
        """Say that nothing can."""
        return False


Parts = Whole | OnnxNodes | TorchOps


class _Attempts:
    """Compiles for one target; keeps nothing."""

    def __init__(
        self, target: str, options: CompileOptions, limits: Limits, on_stage: Callable[[str], None]
    ) -> None:
        self.target = target
        self.options = options
        self.limits = limits
        self.on_stage = on_stage

    def __call__(self, source: Source, format: str) -> CompilerError | None:
        """Why the program is refused."""
        try:
            made = canonicalize(source, format, self.options.numerics, self.limits)
            compile_spec(made.spec_text, made.arg_spec, self.target, self.options, self.on_stage)
        except CompilerError as error:
            return error
        return None


def check(
    program: Source,
    format: str,
    target: str,
    options: CompileOptions,
    limits: Limits,
    on_stage: Callable[[str], None],
) -> Report:
    """What of the program would be refused for a target. ``on_stage`` hears what is looked at.

    Raises ``InvalidProgram`` where it is no program of its format.
    """
    refused, found = _Attempts(target, options, limits, on_stage), Found()
    parts = _parts(program, format, limits)
    error = refused(parts.source, format)
    if isinstance(error, InvalidProgram):
        raise error
    for _ in range(_ATTEMPTS):
        if not isinstance(error, UnsupportedOp) or not parts.take_away(error):
            break
        found.add(error.op, error.reason, error.location)
        on_stage(error.op)
        error = refused(parts.source, format)
    units = _units(parts, format, limits)
    operations = parts.operations or (units.count if units else 0)
    if error is None or isinstance(error, InvalidProgram):
        unseen = "" if error is None else _UNSEEN
        return Report(operations, found.refusals(), "; ".join(filter(None, (parts.note, unseen))))
    note = _of_units(units, refused, found, error) if units else _MORE
    if not units:
        _add_whole(found, error)
    return Report(operations, found.refusals(), "; ".join(filter(None, (parts.note, note))))


def _parts(program: Source, format: str, limits: Limits) -> Parts:
    if format == "onnx" and isinstance(program, bytes):
        return OnnxNodes(program)
    if format == "torch" and isinstance(program, bytes):
        return TorchOps(program, limits)
    return Whole(program)


def _units(parts: Parts, format: str, limits: Limits) -> Units | None:
    """The operations of what the importer makes; None where it makes no StableHLO."""
    try:
        read = read_program(parts.source, format, limits)
    except CompilerError:
        return None
    return Units(read) if read.format == "stablehlo" else None


def _of_units(units: Units, refused: _Attempts, found: Found, error: CompilerError) -> str:
    """Look at each operation alone, then at the rest without those that are refused; what is left unsaid."""
    apart = units.refused(lambda text: refused(text.encode(), "stablehlo"), refused.on_stage)
    for one in apart:
        found.add(one.op, one.reason, one.where)
    if not apart:
        _add_whole(found, error)
        return _MORE
    rest = units.without(apart)
    left = error if rest is None else refused(rest.encode(), "stablehlo")
    if left is None:
        return ""
    if rest is not None and not isinstance(left, InvalidProgram):
        _add_whole(found, left)
        return _MORE
    return _UNSEEN


def _add_whole(found: Found, error: CompilerError) -> None:
    if isinstance(error, UnsupportedOp):
        found.add("" if error.op in _BOUNDARY else error.op, error.reason, "")
    else:
        found.add("", str(error), "")
