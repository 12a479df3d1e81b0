"""From program bytes to the canonical spec."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from kcache_compiler.canonical.builder import FinishedRegion
from kcache_compiler.canonical.graph import DYNAMIC, Graph, ValueType
from kcache_compiler.canonical.linalg_import import LinalgImporter
from kcache_compiler.canonical.spec_text import write_spec
from kcache_compiler.canonical.stablehlo_import import StablehloImporter
from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.frontends import Limits, Program, read_program
from kcache_compiler.frontends import context as mlir
from kcache_compiler.frontends.context import Native
from kcache_compiler.frontends.limits import check
from kcache_compiler.types import (
    DTYPE_BYTES,
    NUMERICS,
    ArgSpec,
    Canonical,
    LiftedConstant,
    Symbol,
    TensorType,
)

_DEFAULT_LIMITS = Limits()


def canonicalize(
    program: bytes,
    format: str,
    numerics: str = "default",
    limits: Limits = _DEFAULT_LIMITS,
    lifted: Mapping[int, bytes] | None = None,
) -> Canonical:
    """Return the canonical form of a program: a pure function of its arguments.

    ``lifted`` reads a *rendered* spec back: it gives, for each of the last arguments, by its index, the
    digest of
    the lifted constant that it stands for. Such a result has no ``constants``: their bytes are not in the
    program.
    Raises ``InvalidProgram``, ``UnsupportedOp`` or ``LimitExceeded``.
    """
    if numerics not in NUMERICS:
        raise InvalidProgram(f"unknown numerics class {numerics!r}; known are {', '.join(NUMERICS)}")
    read = read_program(program, format, limits)
    if format == "stablehlo":
        importer = StablehloImporter(read, limits, numerics, dict(lifted or {}))
    else:
        importer = LinalgImporter(read, limits, dict(lifted or {}))
    finished, results = importer.run()
    arguments = list(read.entry.regions[0].blocks[0].arguments)
    check("number of arguments", len(arguments), limits.arguments)
    check("number of results", len(results), limits.arguments)
    region = finished.region
    text = write_spec(Graph(format, numerics, region))
    args, symbols = _arguments(read, region.params)
    return Canonical(
        spec_text=text,
        spec_digest=hashlib.sha256(text.encode()).digest(),
        arg_spec=ArgSpec(args),
        results=tuple(_tensor(read, t, f"result {i}") for i, t in enumerate(results)),
        symbols=symbols,
        constants=_constants(finished, importer.contents),
        arg_names=_names(arguments[: len(region.params)]),
        operations=len(region.nodes),
    )


def _arguments(
    read: Program, params: Sequence[ValueType]
) -> tuple[tuple[TensorType, ...], tuple[Symbol, ...]]:
    symbols: list[Symbol] = []
    types: list[TensorType] = []
    for index, type in enumerate(params):
        tensor = _tensor(read, type, f"argument {index}")
        dims = list(tensor.dims)
        for axis, dim in enumerate(dims):
            if dim == "?":
                dims[axis] = f"s{len(symbols)}"
                symbols.append(Symbol(f"s{len(symbols)}", index, axis))
        types.append(TensorType(tensor.dtype, tuple(dims)))
    return tuple(types), tuple(symbols)


def _tensor(read: Program, type: ValueType, what: str) -> TensorType:
    if type.dims is None:
        raise UnsupportedOp(
            "func.func", f"{what} has type {type.element}: only tensors cross a kernel's boundary"
        )
    if type.element not in DTYPE_BYTES:
        element, encoded, encoding = type.element.partition(", #")
        if encoded:
            raise InvalidProgram(
                f"the type of {what} has the encoding #{encoding}, which a buffer does not have: "
                "give its dimensions as sizes or as ?"
            )
        raise UnsupportedOp("func.func", f"{what} has elements of type {element}, which no buffer has")
    return TensorType(type.element, tuple("?" if d == DYNAMIC else d for d in type.dims))


def _constants(finished: FinishedRegion, contents: Mapping[bytes, bytes]) -> tuple[LiftedConstant, ...]:
    lifted: list[LiftedConstant] = []
    for position, leaf in enumerate(finished.leaves):
        node = finished.builder.nodes[leaf]
        digest = bytes.fromhex(node.attributes)
        if digest not in contents:
            continue
        type = node.results[0]
        lifted.append(
            LiftedConstant(position, TensorType(type.element, type.dims or ()), digest, contents[digest])
        )
    return tuple(lifted)


def _names(arguments: Sequence[Native]) -> tuple[str, ...]:
    """Name arguments by their locations where these are distinct names, as JAX's are; else by position."""
    native = mlir.native_ir()
    names: list[str] = []
    for index, argument in enumerate(arguments):
        location = argument.location
        name = location.name_str if isinstance(location, native.NameLoc) else ""
        names.append(name or f"arg{index}")
    return tuple(names) if len(set(names)) == len(names) else tuple(f"arg{i}" for i in range(len(names)))
