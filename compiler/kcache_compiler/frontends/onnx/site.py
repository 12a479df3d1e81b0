"""One node of an ONNX graph as its legalization sees it, and the table of legalizations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.frontends.limits import check
from kcache_compiler.frontends.onnx.builder import Build
from kcache_compiler.frontends.onnx.emitter import Array, Value

#: ``None`` for an output that this version does not make; it raises where something reads it.
Results = Value | Sequence["Value | None"]


class Site:
    """Inputs, attributes and version of one node. ``version`` is the opset that its op last changed in."""

    def __init__(
        self,
        build: Build,
        name: str,
        op: str,
        version: int,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Any],
        outputs: Sequence[str],
    ) -> None:
        self.b = build
        self.name = name
        self.op = op
        self.version = version
        self.inputs = inputs
        self.attributes = attributes
        self.outputs = outputs

    def __getitem__(self, index: int) -> Value:
        """Return a required input."""
        value = self.get(index)
        if value is None:
            self.invalid(f"it has no input {index}")
        return value

    def get(self, index: int) -> Value | None:
        """Return an optional input."""
        return self.inputs[index] if index < len(self.inputs) else None

    def all(self) -> list[Value]:
        """Return the inputs of a variadic op."""
        return [self[i] for i in range(len(self.inputs))]

    def wants(self, index: int) -> bool:
        """Whether something may read this output."""
        return index < len(self.outputs) and bool(self.outputs[index])

    # -- attributes

    def int(self, name: str, default: int | None = None) -> int:
        """Return an integer attribute."""
        return int(self._attribute(name, default))

    def float(self, name: str, default: float | None = None) -> float:
        """Return a float attribute."""
        return float(self._attribute(name, default))

    def ints(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        """Return an attribute of integers."""
        return [int(number) for number in self._attribute(name, default)]

    def text(self, name: str, default: str | None = None) -> str:
        """Return an attribute of characters."""
        value = self._attribute(name, default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

    def has(self, name: str) -> bool:
        """Whether the attribute is given."""
        return name in self.attributes

    def _attribute(self, name: str, default: Any) -> Any:
        value = self.attributes.get(name, default)
        if value is None:
            self.invalid(f"it has no attribute {name!r}")
        return value

    # -- what must be known

    def known(self, index: int, what: str) -> Array:
        """Return the elements of an input that must be constant."""
        array = self[index].known
        if array is None:
            name = self.b.arguments.get(self[index].name)
            source = "computes this from its inputs" if name is None else f"takes this as its input {name!r}"
            bound = "NAME" if name is None else name
            self.unsupported(
                f"it needs {what} as a constant, and the model {source}: give the values when the model is "
                f'compiled, client.compile(model, bind={{"{bound}": values}})'
            )
        return array

    def numbers(self, index: int, what: str) -> list[int]:
        """Return the integers of an input that must be constant."""
        array = self.known(index, what)
        check(f"numbers in {what} of {self.op}", array.size, self.b.limits.arguments)
        return [int(number) for number in array.reshape(-1)]

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis counted from the front."""
        if not -rank <= axis < rank:
            self.invalid(f"axis {axis} is not one of rank {rank}")
        return axis % rank

    def axes(self, rank: int, index: int = 1) -> list[int] | None:
        """Return the axes, an attribute in old opsets and an input in new ones; None where not given."""
        given: list[int] | None = None
        if self.has("axes"):
            given = self.ints("axes")
        elif self.get(index) is not None:
            given = self.numbers(index, "axes")
        if given is None:
            return None
        axes = sorted(self.axis(axis, rank) for axis in given)
        if len(set(axes)) != len(axes):
            self.invalid(f"axes {given} name one twice")
        return axes

    # -- errors

    def where(self) -> str:
        """Say which node this is."""
        return f'node "{self.name}"' if self.name else "a node without a name"

    def invalid(self, reason: str) -> NoReturn:
        """Raise ``InvalidProgram``."""
        raise InvalidProgram(f"{self.op} at {self.where()}: {reason}")

    def unsupported(self, reason: str) -> NoReturn:
        """Raise ``UnsupportedOp``."""
        raise UnsupportedOp(f"onnx.{self.op}", reason, self.where())


#: ``None``: by the definition that the standard gives the operator.
Legalization = Callable[[Site], "Results | None"]

#: op of the default domain -> (newest version that is known here, its legalization).
TABLE: dict[str, tuple[int, Legalization]] = {}


def legalizes(**versions: int) -> Callable[[Legalization], Legalization]:
    """Register a function for ops, each with the newest opset that changed it and is known here."""

    def register(function: Legalization) -> Legalization:
        for op, version in versions.items():
            assert op not in TABLE, op
            TABLE[op] = version, function
        return function

    return register
