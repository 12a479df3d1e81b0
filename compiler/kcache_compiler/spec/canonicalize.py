"""From program bytes to the canonical spec."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from kcache_compiler.collector import collector_paused
from kcache_compiler.errors import InvalidProgram, LimitExceeded, UnsupportedOp
from kcache_compiler.frontends import Limits, Program, read_program
from kcache_compiler.frontends.limits import check
from kcache_compiler.frontends.program import OnStage, Source, ignore_stage
from kcache_compiler.frontends.quantized.element import Quantized
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native
from kcache_compiler.shapes.monomial import evaluate, is_symbolic, size_text
from kcache_compiler.spec.erasure import Shapes
from kcache_compiler.spec.graph.builder import FinishedRegion
from kcache_compiler.spec.graph.nodes import DYNAMIC, Graph, ValueType
from kcache_compiler.spec.importers.linalg import LinalgImporter
from kcache_compiler.spec.importers.refine_shapes import settled
from kcache_compiler.spec.importers.stablehlo import StablehloImporter
from kcache_compiler.spec.rendering.render import render_graph
from kcache_compiler.spec.resized_imports import opened
from kcache_compiler.spec.text import write_spec
from kcache_compiler.types import (
    DTYPE_BYTES,
    NUMERICS,
    ArgSpec,
    Canonical,
    LiftedConstant,
    Quantization,
    Symbol,
    TensorType,
)

_DEFAULT_LIMITS = Limits()

#: Most times that a graph is imported again.
_ROUNDS = 3


@collector_paused()
def canonicalize(
    program: Source,
    format: str,
    numerics: str = "default",
    limits: Limits = _DEFAULT_LIMITS,
    lifted: Mapping[int, bytes] | None = None,
    erasing: bool = True,
    on_stage: OnStage = ignore_stage,
) -> Canonical:
    """Return the canonical form of a program: a pure function of its arguments.

    ``lifted`` reads a *rendered* spec back: it gives, for each of the last arguments, by its index, the
    digest of the lifted constant that it stands for. Such a result has no ``constants``: their bytes are not
    in the program. Without ``erasing`` every size stays in the spec: what instantiation is compared with.
    Raises ``InvalidProgram``, ``UnsupportedOp`` or ``LimitExceeded``.
    """
    if numerics not in NUMERICS:
        raise InvalidProgram(f"unknown numerics class {numerics!r}; known are {', '.join(NUMERICS)}")
    read = read_program(program, format, limits, on_stage)
    made = _canonical(read, numerics, limits, lifted, erasing)
    if not read.others or not erasing:
        return made
    try:
        found = made
        for again in read.others:
            other = again()
            if other is not None:
                there = _canonical(other, numerics, limits, lifted, erasing)
                found = opened(made, there, read.open_axes, format)
        return found
    except UnsupportedOp:
        if read.dynamic is None:
            raise
    return _canonical(read.dynamic(), numerics, limits, lifted, erasing)


def _canonical(
    read: Program, numerics: str, limits: Limits, lifted: Mapping[int, bytes] | None, erasing: bool
) -> Canonical:
    # A bound weight is named by its place: other weights leave every order as it is.
    names = {index: hashlib.sha256(b"bound %d" % index).digest() for index in read.bound}
    lifted = {**names, **(lifted or {})}
    if read.format == "stablehlo":
        importer = StablehloImporter(read, limits, numerics, lifted)
    else:
        importer = LinalgImporter(read, limits, lifted)
    importer.contents.update({name: read.bound[index] for index, name in names.items()})
    finished, inputs, results = importer.run(erasing)
    shapes = importer.shapes
    if erasing and read.format == "stablehlo":
        finished, shapes = _settled(finished, shapes, numerics, limits)
    arguments = list(read.entry.regions[0].blocks[0].arguments)
    check("number of arguments", len(arguments), limits.arguments)
    check("number of results", len(results), limits.arguments)
    region = finished.region
    text = write_spec(Graph(read.format, numerics, region))
    return Canonical(
        spec_text=text,
        spec_digest=hashlib.sha256(text.encode()).digest(),
        arg_spec=ArgSpec(_arguments(read, inputs, region.params, shapes.values)),
        results=tuple(_tensor(read, t, f"result {i}") for i, t in enumerate(results)),
        symbols=tuple(Symbol(f"s{i}", arg, axis) for i, (arg, axis) in enumerate(shapes.symbols)),
        constants=_constants(finished, importer.contents),
        arg_names=_names(arguments[: len(region.params)]),
        operations=len(region.nodes),
        symbol_values=tuple(shapes.values),
        symbolic_args=tuple(_erased(type) for type in region.params),
        quantized_args=_quantized(read.boundary.arguments if read.boundary else ()),
        quantized_results=_quantized(read.boundary.results if read.boundary else ()),
        size_arguments=read.size_arguments,
        counted_results=read.counted_results,
    )


def _quantized(elements: Sequence[Quantized | None]) -> tuple[Quantization | None, ...]:
    """What callers must know of buffers; nothing where none is quantized."""
    return tuple(q and q.of_buffer for q in elements) if any(elements) else ()


def _settled(
    finished: FinishedRegion, shapes: Shapes, numerics: str, limits: Limits
) -> tuple[FinishedRegion, Shapes]:
    """Import again what building the graph changed, until it changes nothing."""
    for _ in range(_ROUNDS):
        if DYNAMIC in shapes.values or not shapes.symbols:
            break
        written = settled(Graph("stablehlo", numerics, finished.region), dict(enumerate(shapes.values)))
        if written is None:
            break
        inputs = len(finished.region.params)
        digests = [bytes.fromhex(finished.builder.nodes[leaf].attributes) for leaf in finished.leaves]
        try:
            read = read_program(render_graph(written).encode(), "stablehlo", limits)
        except LimitExceeded:
            break
        again = StablehloImporter(read, limits, numerics, {inputs + i: d for i, d in enumerate(digests)})
        finished, _, _ = again.run()
        shapes = again.shapes
    return finished, shapes


def _arguments(
    read: Program, stated: Sequence[ValueType], params: Sequence[ValueType], values: Sequence[int]
) -> tuple[TensorType, ...]:
    """Return the arguments as the program states them. An axis that it leaves open is named by its symbol,
    or has the size that the program states elsewhere.
    """
    known = {index: value for index, value in enumerate(values) if value != DYNAMIC}
    types: list[TensorType] = []
    for index, (type, param) in enumerate(zip(stated, params, strict=False)):
        tensor = _tensor(read, type, f"argument {index}")
        erased = _erased(ValueType(param.element, tuple(evaluate(d, known) for d in param.dims or ())))
        dims = tuple(e if d == "?" else d for d, e in zip(tensor.dims, erased.dims, strict=True))
        types.append(TensorType(tensor.dtype, dims))
    return tuple(types)


def _erased(type: ValueType) -> TensorType:
    """Return a type with its erased sizes as formulas over the symbols."""
    return TensorType(type.element, tuple(size_text(d) if is_symbolic(d) else d for d in type.dims or ()))


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
        content = contents[digest]
        digest = hashlib.sha256(content).digest()
        lifted.append(LiftedConstant(position, TensorType(type.element, type.dims or ()), digest, content))
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
