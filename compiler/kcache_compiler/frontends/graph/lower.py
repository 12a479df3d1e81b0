"""Lowers a graph program, checked node by node, to the text of a StableHLO module, and parses it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kcache_compiler.errors import InvalidProgram, LimitExceeded, UnsupportedOp
from kcache_compiler.frontends.graph.arguments import check_attributes, check_operands, did_you_mean
from kcache_compiler.frontends.graph.emitter import Emitter
from kcache_compiler.frontends.graph.operations import FORMAT, OPS
from kcache_compiler.frontends.graph.ops.creation import constant
from kcache_compiler.frontends.graph.program import Dim, GraphNode, GraphProgram, GraphTensor, GraphType
from kcache_compiler.frontends.graph.size_expression import Size, symbol
from kcache_compiler.frontends.graph.values import SamplingUnsupported, StaticSizeRequired, Type, Value
from kcache_compiler.frontends.imported import Imported
from kcache_compiler.frontends.limits import Limits, check
from kcache_compiler.mlir import context as mlir
from kcache_compiler.types import PLAIN_DTYPES

if TYPE_CHECKING:
    from torch_mlir.ir import MLIRError

    from kcache_compiler.mlir.types import Module


_NAME = re.compile(r'loc\("((?:[^"\\]|\\.)*)"')


def read_graph(program: bytes | GraphProgram, limits: Limits) -> Module | Imported:
    """Return the StableHLO module of a graph; with dynamic dimensions one at sample sizes, and the others.

    Raises ``InvalidProgram``, ``UnsupportedOp`` or ``LimitExceeded``, naming the node.
    """
    if isinstance(program, bytes):
        raise InvalidProgram(
            "the compiler takes a graph as a GraphProgram: decode the message kcache.v1.Graph first "
            "(kcache_grpc.worker does)"
        )
    dims = dynamic_dims(program)
    if not dims:
        return _parse(lower_graph(program, limits))
    # Lowered with dynamic dimensions first, which reports every error of the graph.
    dynamic = lower_graph(program, limits)
    symbols = list(dict.fromkeys(dims.values()))
    samples = [dict(zip(symbols, _sample_sizes(program, number), strict=False)) for number in range(2)]
    try:
        first, second = (lower_graph(program, limits, sizes) for sizes in samples)
    except SamplingUnsupported:
        return _parse(dynamic)
    return Imported(
        _parse(first), dynamic_axes=dims, others=(lambda: _parse(second),), dynamic=lambda: _parse(dynamic)
    )


def _sample_sizes(program: GraphProgram, sample: int) -> Iterator[int]:
    """Yield sample sizes: distinct, not among the inputs' sizes, with many divisors."""
    static = set(_static_sizes(program))
    return (size for size in itertools.count(48 + 720 * sample, 24) if size not in static)


def _static_sizes(program: GraphProgram) -> Iterable[int]:
    for declared in program.inputs:
        yield from (dim for dim in declared.dims if isinstance(dim, int))
    yield from itertools.chain.from_iterable(declared.value.dims for declared in program.constants)


def _parse(text: str) -> Module:
    try:
        return mlir.parse_module(text, mlir.new_context())
    except mlir.mlir_error() as error:
        raise InvalidProgram(_describe_error(error)) from None


def _describe_error(error: MLIRError) -> str:
    """Return the verifier's first diagnostic, and the node that it concerns."""
    diagnostics = [(str(d.location), str(d.message).strip()) for d in error.error_diagnostics][:1]
    location, message = diagnostics[0] if diagnostics else ("", str(error))
    name = _NAME.search(location)
    node = f"the node that defines {name[1]!r}" if name else "the graph"
    return f"{node} is not valid StableHLO: {message[:1000]}"


_MAX_NAME = 256
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_ESCAPED = re.compile(r"[^\x20-\x7e]|[\"\\]")


def lower_graph(program: GraphProgram, limits: Limits, samples: Mapping[str, int] | None = None) -> str:
    """Return the text of the module.

    ``samples`` are sizes for the symbols of ``dynamic_dims``; without them these dimensions stay dynamic.
    Raises ``InvalidProgram``, ``UnsupportedOp`` or ``LimitExceeded``, naming the node, and
    ``SamplingUnsupported`` if the graph cannot be lowered at sample sizes.
    """
    if program.format != FORMAT:
        raise InvalidProgram(
            f"the graph's format is {program.format[:64]!r}, and this version reads {FORMAT!r}"
        )
    check("number of operations", len(program.nodes), limits.operations)
    check("number of arguments", len(program.inputs), limits.arguments)
    check("number of results", len(program.outputs), limits.arguments)
    check("bytes of all constants", _constant_bytes(program), limits.constant_bytes)
    return _GraphLowering(program, limits, samples).module()


def dynamic_dims(program: GraphProgram) -> dict[tuple[int, int], str]:
    """Return the dynamic dimensions: (input, axis) -> symbol, a fresh one for unnamed dimensions."""
    return {
        (index, axis): dim or _unnamed_symbol(index, axis)
        for index, type in enumerate(program.inputs)
        for axis, dim in enumerate(type.dims)
        if not isinstance(dim, int)
    }


def _constant_bytes(program: GraphProgram) -> int:
    total = sum(len(constant.value.content) for constant in program.constants)
    for node in program.nodes:
        for _, value in node.attributes:
            if isinstance(value, GraphTensor):
                total += len(value.content)
    return total


class _GraphLowering:
    """Lowers one program; used once."""

    def __init__(self, program: GraphProgram, limits: Limits, samples: Mapping[str, int] | None) -> None:
        self._program = program
        self._limits = limits
        self._emitter = Emitter(limits, samples)
        self._values: dict[str, Value] = {}
        self._definitions: dict[str, str] = {}

    def module(self) -> str:
        arguments = [self._input(index, declared) for index, declared in enumerate(self._program.inputs)]
        for index, graph_constant in enumerate(self._program.constants):
            with self._error_context(f"constant {index} {_quoted(graph_constant.name)}", graph_constant.name):
                _check_dtype(graph_constant.value.dtype)
                value = constant(self._emitter, value=graph_constant.value)
                self._define(graph_constant.name, value, f"constant {index}")
        for index, node in enumerate(self._program.nodes):
            self._node(index, node)
        results = self._results()
        self._check_expected()
        types = ", ".join(self._emitter.type_text(value.type) for value in results)
        names = ", ".join(value.ssa for value in results)
        lines = [
            "module {",
            f"func.func public @main({', '.join(arguments)}) -> ({types}) {{",
            *self._emitter.lines,
            f'"func.return"({names}) : ({types}) -> ()',
            "}",
            "}",
        ]
        return "\n".join(lines) + "\n"

    def _input(self, index: int, declared: GraphType) -> str:
        with self._error_context(f"input {index} {_quoted(declared.name)}", declared.name):
            _check_dtype(declared.dtype)
            check("rank of a tensor", len(declared.dims), self._limits.rank)
            dims = tuple(_input_size(index, axis, dim) for axis, dim in enumerate(declared.dims))
            value = Value(f"%a{index}", Type(declared.dtype, dims))
            for axis, dim in enumerate(declared.dims):
                if not isinstance(dim, int):
                    self._emitter.bind_symbol(dim or _unnamed_symbol(index, axis), value, axis)
            self._emitter.check(value.type)
            self._define(declared.name, value, f"input {index}")
        return f"{value.ssa}: {self._emitter.type_text(value.type)}{_location(declared.name)}"

    def _node(self, index: int, node: GraphNode) -> None:
        name = node.results[0] if node.results else ""
        with self._error_context(f"node {index} {_quoted(name)} ({node.op[:64]})", name):
            op = OPS.get(node.op)
            if op is None:
                raise InvalidProgram(f"there is no operation {node.op[:64]!r}{did_you_mean(node.op, OPS)}")
            operands = check_operands(op, [self._value(operand) for operand in node.operands])
            attributes = check_attributes(op, node.attributes)
            if len(node.results) != len(op.results):
                raise InvalidProgram(
                    f"{op.name} has the results {', '.join(op.results)}, but the node names "
                    f"{len(node.results)}"
                )
            value = op.build(self._emitter, *operands, **attributes)
            built = value if isinstance(value, tuple) else (value,)
            for result, value in zip(node.results, built, strict=True):
                self._define(result, value, f"node {index} ({op.name})")

    def _value(self, name: str) -> Value | None:
        if not name:
            return None
        value = self._values.get(name)
        if value is not None:
            return value
        for index, node in enumerate(self._program.nodes):
            if name in node.results:
                raise InvalidProgram(
                    f"its operand {_quoted(name)} is a result of node {index} ({node.op[:64]}), which is not "
                    "before it: nodes must follow the nodes that they use, and graphs have no cycles"
                )
        raise InvalidProgram(f"nothing defines its operand {_quoted(name)}{did_you_mean(name, self._values)}")

    def _define(self, name: str, value: Value, definition: str) -> None:
        if not name:
            raise InvalidProgram("it has no name")
        if len(name.encode()) > _MAX_NAME:
            raise InvalidProgram(f"its name has {len(name.encode())} bytes, above the limit of {_MAX_NAME}")
        if name in self._values:
            raise InvalidProgram(f"the name {_quoted(name)} is already defined by {self._definitions[name]}")
        self._values[name] = Value(value.ssa, value.type, name)
        self._definitions[name] = definition

    def _results(self) -> list[Value]:
        if not self._program.outputs:
            raise InvalidProgram("the graph has no outputs: name at least one value")
        for index, name in enumerate(self._program.outputs):
            if name not in self._values:
                hint = did_you_mean(name, self._values)
                raise InvalidProgram(f"nothing defines output {index}, {_quoted(name)}{hint}")
        return [self._values[name] for name in self._program.outputs]

    def _check_expected(self) -> None:
        for expected in self._program.expected:
            value = self._values.get(expected.name)
            if value is None:
                raise InvalidProgram(
                    f"a type is expected for {_quoted(expected.name)}, which nothing defines"
                )
            if expected.dtype != value.dtype or not _matches(expected.dims, value.dims):
                text = f"[{','.join('?' if dim is None else str(dim) for dim in expected.dims)}]"
                raise InvalidProgram(
                    f"{_quoted(expected.name)}, {self._definitions[expected.name]}, has the type "
                    f"{value.type}; expected {expected.dtype}{text}"
                )

    @contextmanager
    def _error_context(self, node: str, name: str) -> Generator[None]:
        """Add ``node`` to every error that is raised in this context."""
        self._emitter.location = _location(name)
        try:
            yield
        except StaticSizeRequired as error:
            raise UnsupportedOp(f"graph.{node.rpartition('(')[2].rstrip(')')}", str(error), node) from None
        except InvalidProgram as error:
            raise InvalidProgram(f"{node}: {error}") from None
        except LimitExceeded as error:
            quantity = error.what if error.what == "number of operations" else f"{error.what} at {node}"
            raise LimitExceeded(quantity, error.actual, error.limit) from None


def _matches(expected: Sequence[Dim], dims: Sequence[Size]) -> bool:
    """Return whether sizes are as expected; an unset dimension matches any dynamic size."""

    def fits(dim: Dim, size: Size) -> bool:
        if dim is None:
            return not isinstance(size, int)
        return size == (symbol(dim) if isinstance(dim, str) else dim)

    return len(expected) == len(dims) and all(map(fits, expected, dims))


def _input_size(index: int, axis: int, dim: Dim) -> Size:
    if dim is None:
        return symbol(_unnamed_symbol(index, axis))
    if isinstance(dim, str):
        if not _SYMBOL.fullmatch(dim):
            raise InvalidProgram(
                f"axis {axis} has the symbol {dim[:80]!r}: use a word of letters, digits and _"
            )
        return symbol(dim)
    if dim < 0:
        raise InvalidProgram(
            f"axis {axis} has the size {dim}: sizes are at least 0, and dynamic dimensions have none"
        )
    return dim


def _unnamed_symbol(index: int, axis: int) -> str:
    return f"?{index}.{axis}"


def _check_dtype(dtype: str) -> None:
    if dtype not in PLAIN_DTYPES:
        raise InvalidProgram(f"it has the dtype {dtype[:64]!r}: use one of {', '.join(PLAIN_DTYPES)}")


def _quoted(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:77]}...")


def _location(name: str) -> str:
    """Return the MLIR location with that name."""
    if not name:
        return ""
    escape: Callable[[re.Match[str]], str] = lambda m: "".join(f"\\{b:02X}" for b in m[0].encode())  # noqa: E731
    return f' loc("{_ESCAPED.sub(escape, name[:_MAX_NAME])}")'
