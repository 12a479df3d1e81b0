"""A node of an ONNX graph as its legalization sees it, and the registry of legalizations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.frontends.limits import check
from kcache_compiler.frontends.onnx.builder import Builder
from kcache_compiler.frontends.onnx.emitter import Array, Value

#: Outputs of a node; ``None`` for one that is not implemented, which is an error if something reads it.
LegalizationResult = Value | Sequence["Value | None"]


class OnnxNode:
    """Inputs, attributes and version of a node. ``version`` is the last opset that changed its operator."""

    def __init__(
        self,
        build: Builder,
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
        """Return an optional input, None if it is absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def all(self) -> list[Value]:
        """Return the inputs of a variadic operator."""
        return [self[i] for i in range(len(self.inputs))]

    def has_output(self, index: int) -> bool:
        """Return whether an output is named, so that something may read it."""
        return index < len(self.outputs) and bool(self.outputs[index])

    def int(self, name: str, default: int | None = None) -> int:
        """Return an integer attribute."""
        return int(self._attribute(name, default))

    def float(self, name: str, default: float | None = None) -> float:
        """Return a float attribute."""
        return float(self._attribute(name, default))

    def ints(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        """Return an attribute that is a list of integers."""
        return [int(number) for number in self._attribute(name, default)]

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string attribute."""
        value = self._attribute(name, default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

    def has(self, name: str) -> bool:
        """Return whether the attribute is present."""
        return name in self.attributes

    def _attribute(self, name: str, default: Any) -> Any:
        value = self.attributes.get(name, default)
        if value is None:
            self.invalid(f"it has no attribute {name!r}")
        return value

    def constant(self, index: int, description: str) -> Array:
        """Return the elements of an input that must be constant; ``description`` is for the error.

        Raises ``UnsupportedOp`` with the way to bind the input.
        """
        array = self[index].constant
        if array is None:
            name = self.b.arguments.get(self[index].name)
            source = "computes it from its inputs" if name is None else f"receives it as its input {name!r}"
            bound_name = "NAME" if name is None else name
            self.unsupported(
                f"it needs {description} as a constant, but the model {source}: bind the values when the "
                f'model is compiled, client.compile(model, bind={{"{bound_name}": values}})'
            )
        return array

    def numbers(self, index: int, description: str) -> list[int]:
        """Return the integers of an input that must be constant."""
        array = self.constant(index, description)
        check(f"numbers in {description} of {self.op}", array.size, self.b.limits.arguments)
        return [int(number) for number in array.reshape(-1)]

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis counted from 0."""
        if not -rank <= axis < rank:
            self.invalid(f"axis {axis} is out of range for rank {rank}")
        return axis % rank

    def axes(self, rank: int, index: int = 1) -> list[int] | None:
        """Return ascending axes, from an attribute in old opsets or an input in new ones; None if absent."""
        values: list[int] | None = None
        if self.has("axes"):
            values = self.ints("axes")
        elif self.get(index) is not None:
            values = self.numbers(index, "axes")
        if values is None:
            return None
        axes = sorted(self.axis(axis, rank) for axis in values)
        if len(set(axes)) != len(axes):
            self.invalid(f"axes {values} contain an axis twice")
        return axes

    def description(self) -> str:
        """Return the name of this node for messages."""
        return f'node "{self.name}"' if self.name else "a node without a name"

    def invalid(self, reason: str) -> NoReturn:
        """Raise ``InvalidProgram``."""
        raise InvalidProgram(f"{self.op} at {self.description()}: {reason}")

    def unsupported(self, reason: str) -> NoReturn:
        """Raise ``UnsupportedOp``."""
        raise UnsupportedOp(f"onnx.{self.op}", reason, self.description())


#: Returns the outputs, or ``None`` to use the function body that the standard defines.
Legalization = Callable[[OnnxNode], "LegalizationResult | None"]

#: Operator of the default domain -> (newest supported version, its legalization).
LEGALIZATIONS: dict[str, tuple[int, Legalization]] = {}


def legalize(**versions: int) -> Callable[[Legalization], Legalization]:
    """Register a legalization of operators, each with the newest opset version that it supports."""

    def register(function: Legalization) -> Legalization:
        for op, version in versions.items():
            assert op not in LEGALIZATIONS, op
            LEGALIZATIONS[op] = version, function
        return function

    return register
