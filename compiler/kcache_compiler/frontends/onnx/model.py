"""Reads ONNX models as StableHLO: weights become bound arguments, dynamic dimensions get sample sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from kcache_compiler.errors import CompilerError, InvalidProgram, LimitExceeded
from kcache_compiler.frontends.graph.program import GraphProgram
from kcache_compiler.frontends.imported import Imported
from kcache_compiler.frontends.limits import INLINE_CONSTANT_BYTES, Limits, check
from kcache_compiler.frontends.onnx.builder import Builder
from kcache_compiler.frontends.onnx.checks import graphs, parse, tensor_type
from kcache_compiler.frontends.onnx.emitter import (
    ELEMENT_BY_DTYPE,
    STORAGE_TYPES,
    Array,
    Value,
    buffer_bytes,
    constant_value,
    quoted,
)
from kcache_compiler.frontends.onnx.proto import Proto, tensor_array
from kcache_compiler.frontends.onnx.size_samples import (
    further_sizes,
    main_sizes,
    prime_sizes,
    splittable_sizes,
)
from kcache_compiler.frontends.onnx.translate import Scope, Translator
from kcache_compiler.mlir import context as mlir

if TYPE_CHECKING:
    from kcache_compiler.mlir.types import Module

#: From this IR version on, an initializer named like an input is its default value; callers pass the input.
_INITIALIZERS_ARE_DEFAULTS = 4

#: Operator -> inputs that sizes depend on, whatever their element type.
_SIZE_INPUTS = {"Resize": (1, 2, 3), "Upsample": (1,), "OneHot": (1,), "Compress": (1,), "Range": (0, 1, 2)}

#: Element types whose initializers are always weights; wider integers may be shapes.
_WEIGHT_ELEMENTS = frozenset(
    {"f16", "bf16", "f32", "f64", "complex<f32>", "complex<f64>", "i8", "ui8", "i16", "ui16", *STORAGE_TYPES}
)


@dataclass(frozen=True)
class Translation:
    """The StableHLO of a model.

    ``bound``: argument index -> content of a weight, little-endian and row-major; these arguments are the
    last. ``dynamic_axes``: (argument, axis) of a dynamic dim -> its name in the model, equal for equal sizes;
    ``text`` has a sample size in its place. ``counted_results``: (result, axis, result that holds the size)
    of results with a data-dependent size.
    """

    text: str
    bound: dict[int, bytes] = field(repr=False)
    dynamic_axes: dict[tuple[int, int], str]
    counted_results: tuple[tuple[int, int, int], ...] = ()


def read_onnx(program: bytes | GraphProgram, limits: Limits) -> Imported:
    """Return a model as a verified module, with its weights and the ways to import it at other sizes.

    Raises ``InvalidProgram``, ``UnsupportedOp`` or ``LimitExceeded``.
    """
    if not isinstance(program, bytes):
        raise InvalidProgram("a GraphProgram has the format 'graph', and was sent as 'onnx'")
    check("program size in bytes", len(program), limits.program_bytes)
    model = parse(program)
    check("number of arguments", len(model.graph.input) + len(model.graph.initializer), limits.arguments)

    def translate_at(sizes: Iterator[int]) -> Translation:
        return _ModelTranslation(model, limits, sizes).translation()

    first = translate_at(main_sizes(model))
    if not first.dynamic_axes:
        return Imported(_parse_module(first.text), first.bound, counted_results=first.counted_results)

    def second() -> Module:
        try:
            return _parse_module(translate_at(prime_sizes(model)).text)
        except InvalidProgram:
            return _parse_module(translate_at(splittable_sizes(model)).text)

    def try_sizes(sizes: Iterator[int]) -> Module | None:
        try:
            return _parse_module(translate_at(sizes).text)
        except CompilerError:
            return None  # the model is invalid at these sizes

    def first_valid(choices: Sequence[Iterator[int]]) -> Module | None:
        return next((module for module in map(try_sizes, choices) if module is not None), None)

    others = [second, *(partial(first_valid, choices) for choices in further_sizes(model))]
    module = _parse_module(first.text)
    return Imported(
        module, first.bound, first.dynamic_axes, tuple(others), counted_results=first.counted_results
    )


def _append_sizes(results: list[Value]) -> tuple[list[Value], tuple[tuple[int, int, int], ...]]:
    """Return results followed by their data-dependent sizes, and their ``counted_results``."""
    positions: dict[str, int] = {}
    returned, counted_results = list(results), list[tuple[int, int, int]]()
    for index, value in enumerate(results):
        for axis, size in value.data_dependent_dims:
            if size.name not in positions:
                positions[size.name] = len(returned)
                returned.append(size)
            counted_results.append((index, axis, positions[size.name]))
    return returned, tuple(counted_results)


def _parse_module(text: str) -> Module:
    try:
        return mlir.parse_module(text, mlir.new_context())
    except mlir.mlir_error() as error:
        raise InvalidProgram(
            f"the model does not translate to valid StableHLO: {str(error)[:2000]}"
        ) from None


class _ModelTranslation:
    """Translates one model at one choice of sizes."""

    def __init__(self, model: Proto, limits: Limits, sizes: Iterator[int]) -> None:
        self.model = model
        self.sample_sizes = sizes
        self.limits = limits
        self.build = Builder(limits)
        self.signature: list[str] = []
        self.dynamic_axes: dict[tuple[int, int], str] = {}
        self.sizes: dict[str, int] = {}

    def translation(self) -> Translation:
        graph, build = self.model.graph, self.build
        opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in self.model.opset_import}
        scope = Scope(opsets, {})
        initializers = {tensor.name: tensor for tensor in graph.initializer}
        input_names = {info.name for info in graph.input}
        are_defaults = self.model.ir_version >= _INITIALIZERS_ARE_DEFAULTS
        for info in graph.input:
            if are_defaults or info.name not in initializers:
                scope.values[info.name] = self._input(info)
        tensors = {name: t for name, t in initializers.items() if not (are_defaults and name in input_names)}
        bound = self._initializers(scope, {**tensors, **_constant_nodes(graph)})
        results, counted_results = _append_sizes([build.named(value) for value in self._results(scope)])
        build.emit_many("func.return", results, [])
        types = ", ".join(value.type for value in results)
        text = (
            f"module {{\nfunc.func public @main({', '.join(self.signature)}) -> ({types}) {{\n"
            f"{build.text()}\n}}\n}}\n"
        )
        return Translation(text, bound, self.dynamic_axes, counted_results)

    def _results(self, scope: Scope) -> list[Value]:
        try:
            return Translator(self.build, self.limits, self.model.functions).graph(self.model.graph, scope)
        except InvalidProgram as error:
            if not self.sizes:
                raise
            chosen = ", ".join(f"{name} = {size}" for name, size in self.sizes.items())
            raise InvalidProgram(
                f"{error} (the model has dynamic dimensions and was translated with {chosen}: pass the "
                f"sizes that it needs)"
            ) from None

    def _argument(self, name: str, element: str, dims: tuple[int, ...]) -> Value:
        value = self.build.parameter(element, dims)
        self.build.arguments[value.name] = name
        self.signature.append(f"{value.name}: {value.type} loc({quoted(name)})")
        return value

    def _input(self, info: Proto) -> Value:
        element, dims = tensor_type(info, self.limits)
        index = len(self.signature)
        sizes: list[int] = []
        for axis, dim in enumerate(dims):
            if isinstance(dim, int):
                sizes.append(dim)
                continue
            name = dim or f"{info.name}.{axis}"
            self.dynamic_axes[index, axis] = name
            if name not in self.sizes:
                self.sizes[name] = next(self.sample_sizes)
            sizes.append(self.sizes[name])
        return self._argument(info.name, element, tuple(sizes))

    def _initializers(self, scope: Scope, tensors: Mapping[str, Proto]) -> dict[int, bytes]:
        """Bind weights as arguments; initializers that may be shapes stay constants."""
        size_names = _size_names(self.model)
        bound: dict[int, bytes] = {}
        total_bytes = 0
        for name, tensor in tensors.items():
            array = tensor_array(tensor, f"the initializer {name!r}")
            total_bytes += array.nbytes
            if total_bytes > self.limits.constant_bytes:
                raise LimitExceeded("bytes of constants", total_bytes, self.limits.constant_bytes)
            if name not in size_names and _is_weight(array):
                bound[len(self.signature)] = buffer_bytes(array)
                value = self._argument(name, ELEMENT_BY_DTYPE[array.dtype.name], array.shape)
            else:
                value = constant_value(array)
            scope.values[name] = value
        return bound


def _constant_nodes(graph: Proto) -> dict[str, Proto]:
    """Return the tensors of a graph's ``Constant`` nodes, in which some exporters store weights."""
    return {
        node.output[0]: attribute.t
        for node in graph.node
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx") and len(node.output)
        for attribute in node.attribute
        if attribute.name == "value"
    }


def _is_weight(array: Array) -> bool:
    return array.size > 1 and (
        ELEMENT_BY_DTYPE[array.dtype.name] in _WEIGHT_ELEMENTS or array.nbytes > INLINE_CONSTANT_BYTES
    )


def _size_names(model: Proto) -> set[str]:
    """Return the names of values that sizes are read from."""
    names: set[str] = set()
    for graph in graphs(model):
        for node in graph.node:
            for index in _SIZE_INPUTS.get(node.op_type, ()):
                if index < len(node.input):
                    names.add(node.input[index])
    return names
