"""From program bytes to the canonical spec.

Importers of ONNX and Torch models fold sizes that the program computes, so a program with dynamic axes is
imported at several sample sizes. If the specs are equal, the axes are symbols of unknown size.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, cast

from kcache_compiler.errors import InvalidProgram, LimitExceeded, UnsupportedOp
from kcache_compiler.frontends.limits import Limits, check
from kcache_compiler.frontends.program import OnStage, Program, Source, ignore_stage, read_program
from kcache_compiler.frontends.quantized.element import Quantized
from kcache_compiler.mlir import context as mlir
from kcache_compiler.pause_gc import gc_paused
from kcache_compiler.shapes.monomial import evaluate, is_symbolic, size_text
from kcache_compiler.spec.erasure import Shapes
from kcache_compiler.spec.graph.builder import FinishedRegion
from kcache_compiler.spec.graph.nodes import DYNAMIC, Graph, ValueType
from kcache_compiler.spec.importers.linalg import LinalgImporter
from kcache_compiler.spec.importers.reimport import graph_to_reimport
from kcache_compiler.spec.importers.stablehlo import StablehloImporter
from kcache_compiler.spec.rendering.stablehlo import render_graph
from kcache_compiler.spec.text import write_spec
from kcache_compiler.types import (
    DTYPE_BYTES,
    NUMERICS,
    ArgSpec,
    Canonical,
    Dim,
    LiftedConstant,
    Quantization,
    Symbol,
    TensorType,
)

if TYPE_CHECKING:
    from torch_mlir import ir


_DEFAULT_LIMITS = Limits()

#: Most times that a graph is imported again.
_MAX_REIMPORTS = 3


@gc_paused()
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

    ``lifted`` is for a program that was rendered from a spec: the digests of the lifted constants that its
    last arguments stand for, by index. The result has no ``constants`` then, as their bytes are not in the
    program. Without ``erasing`` all sizes are static: the result of instantiation is compared with that.
    Raises ``InvalidProgram``, ``UnsupportedOp`` or ``LimitExceeded``.
    """
    if numerics not in NUMERICS:
        raise InvalidProgram(f"unknown numerics class {numerics!r}; known are {', '.join(NUMERICS)}")
    read = read_program(program, format, limits, on_stage)
    canonical = _canonical(read, numerics, limits, lifted, erasing)
    if not read.others or not erasing:
        return canonical
    try:
        result = canonical
        for read_other in read.others:
            other = read_other()
            if other is not None:
                at_other_sizes = _canonical(other, numerics, limits, lifted, erasing)
                result = with_dynamic_axes(canonical, at_other_sizes, read.dynamic_axes, format)
        return result
    except UnsupportedOp:
        if read.dynamic is None:
            raise
    return _canonical(read.dynamic(), numerics, limits, lifted, erasing)


def _canonical(
    read: Program, numerics: str, limits: Limits, lifted: Mapping[int, bytes] | None, erasing: bool
) -> Canonical:
    """Import a program and write its spec; ``erasing`` replaces static sizes by symbols."""
    # A bound weight is named by its index: the order of operands must not depend on its values.
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
        finished, shapes = _reimport(finished, shapes, numerics, limits)
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
    """The quantization of each buffer; empty if none is quantized."""
    return tuple(q and q.of_buffer for q in elements) if any(elements) else ()


def _reimport(
    finished: FinishedRegion, shapes: Shapes, numerics: str, limits: Limits
) -> tuple[FinishedRegion, Shapes]:
    """Import the graph again until it is consistent with its symbols and has no nodes that differ only in a
    pinned size.
    """
    for _ in range(_MAX_REIMPORTS):
        if DYNAMIC in shapes.values or not shapes.symbols:
            break
        graph = graph_to_reimport(
            Graph("stablehlo", numerics, finished.region), dict(enumerate(shapes.values))
        )
        if graph is None:
            break
        inputs = len(finished.region.params)
        digests = [bytes.fromhex(finished.builder.nodes[leaf].attributes) for leaf in finished.leaves]
        try:
            program = read_program(render_graph(graph).encode(), "stablehlo", limits)
        except LimitExceeded:
            break
        lifted = {inputs + i: digest for i, digest in enumerate(digests)}
        importer = StablehloImporter(program, limits, numerics, lifted)
        finished, _, _ = importer.run()
        shapes = importer.shapes
    return finished, shapes


def _arguments(
    read: Program, stated: Sequence[ValueType], params: Sequence[ValueType], values: Sequence[int]
) -> tuple[TensorType, ...]:
    """The types of the arguments as the program states them; a dynamic axis is named by its symbol, or has
    the size that the program states elsewhere.
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
    """A type with its erased sizes as formulas over the symbols."""
    return TensorType(type.element, tuple(size_text(d) if is_symbolic(d) else d for d in type.dims or ()))


def _tensor(read: Program, type: ValueType, label: str) -> TensorType:
    if type.dims is None:
        raise UnsupportedOp(
            "func.func", f"{label} has type {type.element}: only tensors cross a kernel's boundary"
        )
    if type.element not in DTYPE_BYTES:
        element, encoded, encoding = type.element.partition(", #")
        if encoded:
            raise InvalidProgram(
                f"the type of {label} has the encoding #{encoding}, which buffers do not support: "
                "write its dimensions as sizes or ?"
            )
        raise UnsupportedOp(
            "func.func", f"{label} has elements of type {element}, which buffers do not support"
        )
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


class _Located(Protocol):
    @property
    def location(self) -> ir.Location: ...


def _names(arguments: Sequence[ir.Value]) -> tuple[str, ...]:
    """Names of arguments: those of their locations if they are distinct, as JAX's are, else by position."""
    native = mlir.native_ir()
    names: list[str] = []
    for index, argument in enumerate(arguments):
        location = cast("_Located", argument).location
        name = location.name_str if isinstance(location, native.NameLoc) else ""
        names.append(name or f"arg{index}")
    return tuple(names) if len(set(names)) == len(names) else tuple(f"arg{i}" for i in range(len(names)))


_SYMBOL = re.compile(r"s(\d+)")


def with_dynamic_axes(
    canonical: Canonical, other: Canonical, axes: Mapping[tuple[int, int], str], format: str
) -> Canonical:
    """Return ``canonical`` with symbols of unknown size for ``axes``, which are named by (argument, axis).

    ``other`` is the same program, of ``format``, at other sizes of the axes. Raises ``UnsupportedOp`` if the
    spec depends on one.
    """
    for (arg, axis), name in axes.items():
        if isinstance(canonical.symbolic_args[arg].dims[axis], int):
            raise _fixed_axes([name], format)
    if canonical.spec_text != other.spec_text:
        raise _fixed_axes(sorted(set(axes.values())), format)
    unknown: set[int] = set()
    args: list[TensorType] = []
    for arg, (kind, erased) in enumerate(zip(canonical.arg_spec.args, canonical.symbolic_args, strict=True)):
        dims: list[Dim] = list(kind.dims)
        for axis, dim in enumerate(erased.dims):
            if (arg, axis) in axes:
                dims[axis] = dim
                unknown.update(int(index) for index in _SYMBOL.findall(str(dim)))
        args.append(TensorType(kind.dtype, tuple(dims)))
    values = tuple(-1 if i in unknown else value for i, value in enumerate(canonical.symbol_values))
    results = tuple(_common_type(a, b) for a, b in zip(canonical.results, other.results, strict=True))
    return replace(canonical, arg_spec=ArgSpec(tuple(args)), symbol_values=values, results=results)


def _common_type(first: TensorType, second: TensorType) -> TensorType:
    """A result type with ``?`` for sizes that depend on a dynamic axis."""
    dims = tuple(a if a == b else "?" for a, b in zip(first.dims, second.dims, strict=True))
    return TensorType(first.dtype, dims)


#: Format -> the name of a dynamic axis there, and how to make it static.
_ADVICE = {
    "graph": ("kcache.v1.Graph", "give the axis a size"),
    "onnx": ("onnx.dim_param", "give the model a size for it, as onnx.tools.update_model_dims does"),
    "torch": ("torch.sym_size", "export it without dynamic_shapes, once for each size"),
}


def _fixed_axes(names: list[str], format: str) -> UnsupportedOp:
    dims = ", ".join(map(repr, names))
    op, advice = _ADVICE[format]
    reason = f"the program computes with the size of {dims}, or requires a static size, of a dynamic axis"
    return UnsupportedOp(op, f"{reason}: {advice}")
