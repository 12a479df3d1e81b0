"""The search for all rejected operations of a program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kcache_compiler.compile import compile_spec
from kcache_compiler.errors import CompilerError, InvalidProgram, UnsupportedOp
from kcache_compiler.frontends.limits import Limits
from kcache_compiler.frontends.program import Source, read_program
from kcache_compiler.spec.canonicalize import canonicalize
from kcache_compiler.support.onnx_nodes import OnnxNodes
from kcache_compiler.support.operations import StablehloOperations
from kcache_compiler.support.torch_ops import TorchOps
from kcache_compiler.types import CompileOptions

#: Most locations of one rejection; its count covers all. ``torch.compile`` leaves out what they name.
_MAX_LOCATIONS = 500


@dataclass(frozen=True)
class Rejection:
    """An operation that is rejected ``count`` times; ``where`` are the first locations, as far as known.

    ``op`` is empty if the program as a whole is rejected.
    """

    op: str
    reason: str
    count: int
    where: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """``operations`` is the number of operations of the program in its own format, 0 if they were not
    counted.

    ``note`` says what was not checked.
    """

    operations: int
    rejections: tuple[Rejection, ...]
    note: str = ""

    @property
    def supported(self) -> int:
        """The number of operations that are not rejected."""
        return max(self.operations - sum(rejection.count for rejection in self.rejections if rejection.op), 0)


class RejectionCounts:
    """Collects rejections; those of one operation and reason are counted."""

    def __init__(self) -> None:
        self._locations: dict[tuple[str, str], list[str]] = {}

    def add(self, op: str, reason: str, where: str) -> None:
        """Add a rejection at a location, which may be empty."""
        self._locations.setdefault((op, reason), []).append(where)

    def rejections(self) -> tuple[Rejection, ...]:
        """Return the rejections in the order of their first occurrence."""
        return tuple(
            Rejection(op, reason, len(where), tuple(dict.fromkeys(filter(None, where)))[:_MAX_LOCATIONS])
            for (op, reason), where in self._locations.items()
        )


#: Most operations that are removed one after the other, each for a new compile.
_MAX_REMOVALS = 500
#: The ``op`` of errors about arguments and results.
_BOUNDARY = frozenset({"func.func", "onnx.TypeProto"})
_INCOMPLETE = "the rest of the program was not checked and may contain more"
_REST_UNKNOWN = "whether the rest compiles without these operations is unknown"


class Reducible(Protocol):
    """A program from which operations can be removed.

    ``operations`` is their number, 0 if unknown; ``note`` says what removal left unchecked.
    """

    @property
    def source(self) -> Source: ...
    @property
    def operations(self) -> int: ...
    @property
    def note(self) -> str: ...

    def remove(self, error: UnsupportedOp) -> bool:
        """Remove the operation of an error from ``source``; False if it cannot be identified."""
        ...


class _Irreducible:
    """A program of a format without removal."""

    def __init__(self, source: Source) -> None:
        self.source: Source = source
        self.operations = 0
        self.note = ""

    def remove(self, error: UnsupportedOp) -> bool:
        return False


class _Compiler:
    """Compiles programs for one target and discards the kernels."""

    def __init__(
        self, target: str, options: CompileOptions, limits: Limits, on_stage: Callable[[str], None]
    ) -> None:
        self.target = target
        self.options = options
        self.limits = limits
        self.on_stage = on_stage

    def error(self, source: Source, format: str) -> CompilerError | None:
        """Return the error of compiling a program, if any."""
        try:
            canonical = canonicalize(source, format, self.options.numerics, self.limits)
            compile_spec(canonical.spec_text, canonical.arg_spec, self.target, self.options, self.on_stage)
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
    """Return the operations of a program that are rejected for a target.

    ``on_stage`` is called with the operations and stages as they are tried. Raises ``InvalidProgram`` if the
    bytes are no program of the format.
    """
    compiler, counts = _Compiler(target, options, limits, on_stage), RejectionCounts()
    reducible = _reducible(program, format, limits)
    error = compiler.error(reducible.source, format)
    if isinstance(error, InvalidProgram):
        raise error
    for _ in range(_MAX_REMOVALS):
        if not isinstance(error, UnsupportedOp) or not reducible.remove(error):
            break
        counts.add(error.op, error.reason, error.location)
        on_stage(error.op)
        error = compiler.error(reducible.source, format)
    operations = _stablehlo_operations(reducible, format, limits)
    count = reducible.operations or (operations.count if operations else 0)
    if error is None or isinstance(error, InvalidProgram):
        note = "" if error is None else _REST_UNKNOWN
    elif operations:
        note = _check_each(operations, compiler, counts, error)
    else:
        note = _INCOMPLETE
        _add_program(counts, error)
    return Report(count, counts.rejections(), "; ".join(filter(None, (reducible.note, note))))


def _reducible(program: Source, format: str, limits: Limits) -> Reducible:
    if format == "onnx" and isinstance(program, bytes):
        return OnnxNodes(program)
    if format == "torch" and isinstance(program, bytes):
        return TorchOps(program, limits)
    return _Irreducible(program)


def _stablehlo_operations(reducible: Reducible, format: str, limits: Limits) -> StablehloOperations | None:
    """The operations of the imported program; None if it is not imported to StableHLO."""
    try:
        program = read_program(reducible.source, format, limits)
    except CompilerError:
        return None
    return StablehloOperations(program) if program.format == "stablehlo" else None


def _check_each(
    operations: StablehloOperations, compiler: _Compiler, counts: RejectionCounts, error: CompilerError
) -> str:
    """Compile each operation separately, then the program without the rejected ones; return the note."""
    rejected = operations.rejected(lambda text: compiler.error(text.encode(), "stablehlo"), compiler.on_stage)
    for operation in rejected:
        counts.add(operation.op, operation.reason, operation.where)
    if not rejected:
        _add_program(counts, error)
        return _INCOMPLETE
    remaining = operations.without(rejected)
    remaining_error = error if remaining is None else compiler.error(remaining.encode(), "stablehlo")
    if remaining_error is None:
        return ""
    if remaining is not None and not isinstance(remaining_error, InvalidProgram):
        _add_program(counts, remaining_error)
        return _INCOMPLETE
    return _REST_UNKNOWN


def _add_program(counts: RejectionCounts, error: CompilerError) -> None:
    """Add an error of the program as a whole."""
    if isinstance(error, UnsupportedOp):
        counts.add("" if error.op in _BOUNDARY else error.op, error.reason, "")
    else:
        counts.add("", str(error), "")
