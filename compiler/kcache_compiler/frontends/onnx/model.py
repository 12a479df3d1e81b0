"""ONNX models as StableHLO: weights become bound arguments, open dims take a size to be translated at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from kcache_compiler.errors import CompilerError, InvalidProgram, LimitExceeded
from kcache_compiler.frontends.graph.program import GraphProgram
from kcache_compiler.frontends.imported import Imported
from kcache_compiler.frontends.limits import INLINE_CONSTANT_BYTES, Limits, check
from kcache_compiler.frontends.onnx.builder import Build
from kcache_compiler.frontends.onnx.checks import graphs, parse, tensor_type
from kcache_compiler.frontends.onnx.emitter import CARRIERS, ELEMENTS, Array, Value, content_of, known, quoted
from kcache_compiler.frontends.onnx.proto import Proto, tensor_array
from kcache_compiler.frontends.onnx.size_samples import (
    further_sizes,
    main_sizes,
    prime_sizes,
    splittable_sizes,
)
from kcache_compiler.frontends.onnx.translate import Scope, Translator
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

#: Before this IR version every initializer had to be an input too; since then such an input is the caller's.
_INITIALIZERS_ALONE = 4

#: Initializers that sizes depend on, though they are floats: op -> inputs.
_SHAPE_LIKE = {"Resize": (1, 2, 3), "Upsample": (1,), "OneHot": (1,), "Compress": (1,), "Range": (0, 1, 2)}

#: Elements whose initializers are weights whatever their size; wider integers may be shapes.
_WEIGHTS = frozenset(
    {"f16", "bf16", "f32", "f64", "complex<f32>", "complex<f64>", "i8", "ui8", "i16", "ui16", *CARRIERS}
)


@dataclass(frozen=True)
class Translation:
    """StableHLO of a model.

    ``bound``: argument index -> content of a weight, little-endian and row-major; these are the last
    arguments. ``open_axes``: (argument, axis) whose size the model leaves open -> its name there, the same
    for sizes that are equal; ``text`` has a size in its place. ``counted``: (result, axis, result that
    counts) of results whose size depends on data.
    """

    text: str
    bound: dict[int, bytes] = field(repr=False)
    open_axes: dict[tuple[int, int], str]
    counted: tuple[tuple[int, int, int], ...] = ()


def read_onnx(program: bytes | GraphProgram, limits: Limits) -> Imported:
    """Return a model as a verified module.

    Raises ``InvalidProgram``, ``UnsupportedOp`` or ``LimitExceeded``.
    """
    if not isinstance(program, bytes):
        raise InvalidProgram("a GraphProgram has the format 'graph', and was sent as 'onnx'")
    check("program size in bytes", len(program), limits.program_bytes)
    model = parse(program)
    check("number of arguments", len(model.graph.input) + len(model.graph.initializer), limits.arguments)

    def at(sizes: Iterator[int]) -> Translation:
        return _Main(model, limits, sizes).translation()

    found = at(main_sizes(model))
    if not found.open_axes:
        return Imported(_module(found.text), found.bound, counted_results=found.counted)

    def second() -> Native:
        try:
            return _module(at(prime_sizes(model)).text)
        except InvalidProgram:
            return _module(at(splittable_sizes(model)).text)

    def tried(sizes: Iterator[int]) -> Native | None:
        try:
            return _module(at(sizes).text)
        except CompilerError:
            return None  # nothing that has these sizes

    def further(choices: Sequence[Iterator[int]]) -> Native | None:
        return next((module for module in map(tried, choices) if module is not None), None)

    others = [second, *(partial(further, choices) for choices in further_sizes(model))]
    module = _module(found.text)
    return Imported(module, found.bound, found.open_axes, tuple(others), counted_results=found.counted)


def _with_counts(results: list[Value]) -> tuple[list[Value], tuple[tuple[int, int, int], ...]]:
    """The results and, behind them, the counts of their axes; (result, axis, result that counts)."""
    counts: dict[str, int] = {}
    returned, counted = list(results), list[tuple[int, int, int]]()
    for index, value in enumerate(results):
        for axis, count in value.counted:
            if count.name not in counts:
                counts[count.name] = len(returned)
                returned.append(count)
            counted.append((index, axis, counts[count.name]))
    return returned, tuple(counted)


def _module(text: str) -> Native:
    try:
        return mlir.parse_module(text, mlir.new_context())
    except mlir.mlir_error() as error:
        raise InvalidProgram(f"the model does not make valid StableHLO: {str(error)[:2000]}") from None


class _Main:
    def __init__(self, model: Proto, limits: Limits, sizes: Iterator[int]) -> None:
        self.model = model
        self.fresh = sizes
        self.limits = limits
        self.build = Build(limits)
        self.signature: list[str] = []
        self.open_axes: dict[tuple[int, int], str] = {}
        self.sizes: dict[str, int] = {}

    def translation(self) -> Translation:
        graph, build = self.model.graph, self.build
        opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in self.model.opset_import}
        scope = Scope(opsets, {})
        initializers = {tensor.name: tensor for tensor in graph.initializer}
        declared = {info.name for info in graph.input}
        lone = self.model.ir_version >= _INITIALIZERS_ALONE
        for info in graph.input:
            if lone or info.name not in initializers:
                scope.values[info.name] = self._input(info)
        tensors = {name: t for name, t in initializers.items() if not (lone and name in declared)}
        bound = self._initializers(scope, {**tensors, **_constants(graph)})
        results, counted = _with_counts([build.named(value) for value in self._results(scope)])
        build.emit_many("func.return", results, [])
        types = ", ".join(value.type for value in results)
        text = (
            f"module {{\nfunc.func public @main({', '.join(self.signature)}) -> ({types}) {{\n"
            f"{build.text()}\n}}\n}}\n"
        )
        return Translation(text, bound, self.open_axes, counted)

    def _results(self, scope: Scope) -> list[Value]:
        try:
            return Translator(self.build, self.limits, self.model.functions).graph(self.model.graph, scope)
        except InvalidProgram as error:
            if not self.sizes:
                raise
            chosen = ", ".join(f"{name} = {size}" for name, size in self.sizes.items())
            raise InvalidProgram(
                f"{error} (the model leaves sizes open, and was read with {chosen}: state those it needs)"
            ) from None

    def _argument(self, name: str, element: str, dims: tuple[int, ...]) -> Value:
        value = self.build.parameter(element, dims)
        self.build.arguments[value.name] = name
        self.signature.append(f"{value.name}: {value.type} loc({quoted(name)})")
        return value

    def _input(self, info: Proto) -> Value:
        element, dims = tensor_type(info, self.limits)
        index = len(self.signature)
        fixed: list[int] = []
        for axis, dim in enumerate(dims):
            if isinstance(dim, int):
                fixed.append(dim)
                continue
            name = dim or f"{info.name}.{axis}"
            self.open_axes[index, axis] = name
            if name not in self.sizes:
                self.sizes[name] = next(self.fresh)
            fixed.append(self.sizes[name])
        return self._argument(info.name, element, tuple(fixed))

    def _initializers(self, scope: Scope, tensors: Mapping[str, Proto]) -> dict[int, bytes]:
        """Bind weights as arguments; what may be a shape stays a constant."""
        shapes = _shape_like(self.model)
        bound: dict[int, bytes] = {}
        total = 0
        for name, tensor in tensors.items():
            array = tensor_array(tensor, f"the initializer {name!r}")
            total += array.nbytes
            if total > self.limits.constant_bytes:
                raise LimitExceeded("bytes of constants", total, self.limits.constant_bytes)
            if name not in shapes and _is_weight(array):
                bound[len(self.signature)] = content_of(array)
                value = self._argument(name, ELEMENTS[array.dtype.name], array.shape)
            else:
                value = known(array)
            scope.values[name] = value
        return bound


def _constants(graph: Proto) -> dict[str, Proto]:
    """Return the tensors of a graph's ``Constant`` nodes: some exporters keep weights there."""
    return {
        node.output[0]: attribute.t
        for node in graph.node
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx") and len(node.output)
        for attribute in node.attribute
        if attribute.name == "value"
    }


def _is_weight(array: Array) -> bool:
    return array.size > 1 and (ELEMENTS[array.dtype.name] in _WEIGHTS or array.nbytes > INLINE_CONSTANT_BYTES)


def _shape_like(model: Proto) -> set[str]:
    """Return the names that sizes are read from, whatever their element."""
    names: set[str] = set()
    for graph in graphs(model):
        for node in graph.node:
            for index in _SHAPE_LIKE.get(node.op_type, ()):
                if index < len(node.input):
                    names.add(node.input[index])
    return names
