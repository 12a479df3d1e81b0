"""Exported programs with dynamic sizes, as programs at sample sizes.

The service erases sizes from programs: one at sample sizes has the key of all. That a program is the same at
all sizes is not taken for granted: it is written at two samples, and the service wants one key of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from kcache_grpc.errors import ArgumentError, UnsupportedOp

#: Samples are primes from here on: no constant of a usual program, and no product of others.
_FIRST_SAMPLE = 11
#: The second samples are above all numbers of the program up to this: a program may compare a size with one.
_LARGEST_NUMBER = 1 << 16
#: PyTorch exports for sizes from 2 on.
_LEAST = 2

#: Functions of sizes that samples say nothing about: they may be one at both, and another elsewhere.
_CHOOSING = frozenset({"Max", "Min", "Piecewise", "Where"})
_STEPPING = frozenset(
    {
        "CeilDiv",
        "CeilToInt",
        "FloorDiv",
        "FloorToInt",
        "LShift",
        "Mod",
        "ModularIndexing",
        "PythonMod",
        "RShift",
        "RoundDecimal",
        "RoundToInt",
        "TruncToInt",
        "ceiling",
        "floor",
    }
)


class OpenAxis(NamedTuple):
    """A dynamic axis of an argument; equal names are equal sizes."""

    argument: int
    axis: int
    name: str


@dataclass(frozen=True)
class Symbol:
    """A dynamic size of an export, and its bounds."""

    name: str
    low: int
    high: int | None


def open_axes(inputs: list[Any]) -> list[OpenAxis]:
    """The dynamic axes of the inputs of a program. ``inputs`` are its placeholders."""
    axes: list[OpenAxis] = []
    names: dict[str, str] = {}
    for position, node in enumerate(inputs):
        for axis, size in enumerate(node.meta["val"].shape):
            if not isinstance(size, int):
                name = names.setdefault(str(size.node.expr), f"axis {axis} of input {position}")
                axes.append(OpenAxis(position, axis, name))
    return axes


def symbols_of(program: Any) -> dict[str, Symbol]:
    """The dynamic sizes of a program's placeholders, by name."""
    bounds = {str(name): limits for name, limits in program.range_constraints.items()}
    symbols: dict[str, Symbol] = {}
    for node in program.graph.nodes:
        if node.op != "placeholder":
            continue
        for size in getattr(node.meta.get("val"), "shape", ()):
            names = () if isinstance(size, int) else size.node.expr.free_symbols
            for name in sorted(map(str, names)):
                symbols.setdefault(name, _symbol(name, bounds.get(name)))
    return symbols


def _symbol(name: str, limits: Any) -> Symbol:
    if limits is None:
        return Symbol(name, _LEAST, None)
    # What is not an integer is infinite.
    low = int(limits.lower) if limits.lower.is_Integer else _LEAST
    high = int(limits.upper) if limits.upper.is_Integer else None
    return Symbol(name, max(_LEAST, low), high)


def reject_counted(graph: Any) -> None:
    """Raise ``UnsupportedOp`` where elements decide the size of a tensor."""
    shapes: Any = import_module("torch.fx.experimental.symbolic_shapes")
    for node in graph.nodes:
        sizes = getattr(_value(node), "shape", ())
        if node.op == "call_function" and any(shapes.free_unbacked_symbols(size) for size in sizes):
            op = f"torch.{node.target}".removesuffix(".default")
            reason = "the elements decide how many there are: use a mask (torch.where) of all of them"
            raise UnsupportedOp(f"unsupported op {op}: {reason}", op=op)


def reject_steps(graph: Any) -> None:
    """Raise ``UnsupportedOp`` where remainders, quotients or bounds of dynamic sizes are computed with."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if hasattr(value, "shape"):
            for size in value.shape:
                _reject(node, size, _CHOOSING)
        elif any(hasattr(_value(user), "shape") for user in node.users):
            _reject(node, value, _CHOOSING | _STEPPING)


def _value(node: Any) -> Any:
    value = node.meta.get("val")
    return value[0] if isinstance(value, (list, tuple)) and value else value  # pyright: ignore[reportUnknownVariableType]


def _reject(node: Any, size: Any, functions: frozenset[str]) -> None:
    formula = getattr(getattr(size, "node", None), "expr", None)
    if formula is None or isinstance(size, (int, float)):
        return
    relational = getattr(formula, "is_Relational", False) or getattr(formula, "is_Boolean", False)
    if relational or any(type(part).__name__ in functions for part in _parts(formula)):
        raise UnsupportedOp(
            f"unsupported op torch.sym_size: {node.name} computes {formula} of sizes that the program leaves "
            "open: export it without dynamic_shapes, once for each size",
            op="torch.sym_size",
        )


def _parts(formula: Any) -> Iterator[Any]:
    yield formula
    for part in formula.args:
        yield from _parts(part)


def samples_of(graph: Any, symbols: Mapping[str, Symbol]) -> tuple[dict[str, int], dict[str, int]]:
    """Two sizes for each symbol, all different, and none a number of the program: a small and a large one."""
    taken = set(_numbers(graph))
    large = max((number for number in taken if number <= _LARGEST_NUMBER), default=0)
    first: dict[str, int] = {}
    second: dict[str, int] = {}
    for symbol in symbols.values():
        for sizes, least in ((first, _FIRST_SAMPLE), (second, max(_FIRST_SAMPLE, large))):
            size = _sample(symbol, taken, least)
            taken.add(size)
            sizes[symbol.name] = size
    return first, second


def _sample(symbol: Symbol, taken: set[int], least: int) -> int:
    high = symbol.high if symbol.high is not None else 1 << 20
    start = max(symbol.low, min(least, high))
    below = range(start, max(symbol.low, start - 4096) - 1, -1)
    for size in (*range(start, min(high, start + 4096) + 1), *below):
        if size not in taken and _is_prime(size):
            return size
    for size in range(symbol.low, min(high, symbol.low + 4096) + 1):
        if size not in taken:
            return size
    raise ArgumentError(
        f"the program's size {symbol.name} has no two values from {symbol.low} to {symbol.high} that are not "
        "numbers of the program: export it without dynamic_shapes"
    )


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def _numbers(graph: Any) -> Iterator[int]:
    """The numbers that stand in a program: its constants and stated sizes."""
    for node in graph.nodes:
        for value in _leaves([node.args, list(node.kwargs.values())]):
            if isinstance(value, (int, float)) and value == value and abs(value) < 1 << 60:
                yield int(value)
        for size in getattr(node.meta.get("val"), "shape", ()):
            if isinstance(size, int):
                yield size


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        items: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        for item in items:
            yield from _leaves(item)
    else:
        yield value


def at_sizes(program: Any, sizes: Mapping[str, int]) -> Any:
    """A copy of a program's graph in which every size is a number. Raises ``ArgumentError``."""
    fx: Any = import_module("torch.fx")
    fake: Any = import_module("torch._subclasses.fake_tensor")
    graph = fx.Graph()
    output = graph.graph_copy(program.graph, {}, return_output_node=True)
    graph.output(output[0] if isinstance(output, tuple) else output)
    run = _Run(program, fx, fake.FakeTensorMode(allow_non_fake_inputs=True), sizes)
    try:
        for node in list(graph.nodes):
            run.visit(node)
    except ArgumentError:
        raise
    except Exception as error:  # code of another project
        at = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        raise ArgumentError(
            f"the program does not run at {at}, which its dynamic_shapes allow: {error}"
        ) from error
    for node in reversed(list(graph.nodes)):
        if node in run.numbers:
            graph.erase_node(node)
    return graph


class _Run:
    """Runs a graph over tensors without data."""

    def __init__(self, program: Any, fx: Any, mode: Any, sizes: Mapping[str, int]) -> None:
        self._module = program.graph_module
        self._map: Any = fx.node.map_arg
        self._mode = mode
        self._sizes = sizes
        self._values: dict[Any, Any] = {}
        #: Nodes that are no tensors once sizes are known; nothing refers to them any more.
        self.numbers: dict[Any, Any] = {}

    def visit(self, node: Any) -> None:
        """Give ``node`` its value, and to its arguments numbers instead of sizes."""
        if node.op == "placeholder":
            value = self._placeholder(node.meta.get("val"))
        elif node.op == "get_attr":
            value = getattr(self._module, node.target)
        else:
            node.args = self._map(node.args, self._number)
            node.kwargs = self._map(node.kwargs, self._number)
            if node.op == "output":
                return
            value = self._called(node)
            if value is None or isinstance(value, (bool, int, float)):
                self.numbers[node] = value
        self._values[node] = value
        kept = {name: node.meta[name] for name in ("stack_trace", "nn_module_stack") if name in node.meta}
        node.meta = {"val": value, **kept}

    def _number(self, node: Any) -> Any:
        return self.numbers.get(node, node)

    def _placeholder(self, value: Any) -> Any:
        torch: Any = import_module("torch")
        if not isinstance(value, torch.Tensor):
            return value
        shape = [size if isinstance(size, int) else self._size(size.node.expr) for size in value.shape]
        with self._mode:
            return torch.empty(shape, dtype=value.dtype, device=value.device)

    def _size(self, formula: Any) -> int:
        return int(formula.subs({symbol: self._sizes[str(symbol)] for symbol in formula.free_symbols}))

    def _called(self, node: Any) -> Any:
        args, kwargs = self._map((node.args, node.kwargs), self._values.__getitem__)
        with self._mode:
            return node.target(*args, **kwargs)
