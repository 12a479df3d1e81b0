"""Operations that may become subkernels: their key, their inputs, and a module that contains only them."""

from __future__ import annotations

import re
from collections.abc import Hashable

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.legalize.expansions import rng as drawn
from kcache_compiler.passes.legalize.expansions.function_text import Lines, Tensor
from kcache_compiler.passes.legalize.stand_ins import replace
from kcache_compiler.types import DTYPE_BYTES

_DRAW = re.compile(r"kcache\.draw = (\d+) : i64")
_COMPLEX = ("complex<f32>", "complex<f64>")


def candidate_of(op: mlir.Op) -> Candidate:
    return Draw(op) if mlir.name_of(op) == "stablehlo.rng" else Candidate(op)


class Candidate:
    """An operation with a ``key`` that is equal for operations that differ only in their inputs."""

    def __init__(self, op: mlir.Op) -> None:
        self.op = op
        values = self._every()
        places = {value: place for place, value in enumerate(dict.fromkeys(values))}
        owners = {
            place: owner for value, place in places.items() if (owner := mlir.defining(value)) is not None
        }
        #: Constants are part of the key, by their position among the operands.
        self._constants = {place: owner for place, owner in owners.items() if _is_constant(owner)}
        self.key: tuple[Hashable, ...] = (
            mlir.local_text(op),
            tuple(places[value] for value in values),
            tuple((place, mlir.local_text(owner)) for place, owner in self._constants.items()),
        )

    def _every(self) -> list[mlir.Value]:
        captured = mlir.outside_values(self.op) if mlir.has_regions(self.op) else []
        return [*self.op.operands, *captured]

    def given(self) -> list[mlir.Value]:
        """The current inputs, which change as other operations become subkernels."""
        values = enumerate(dict.fromkeys(self._every()))
        return [value for place, value in values if place not in self._constants]

    def elements(self) -> tuple[str, ...]:
        """The elements of its constants, as text."""
        owners = self._constants.values()
        # From the text, since the bindings cannot read attributes of complex numbers.
        values = (mlir.local_text(owner).partition("value = ")[2] for owner in owners)
        return tuple(value.partition(" : tensor<")[0] for value in values)

    def may_be_subkernel(self) -> bool:
        """Whether all inputs and results are tensors of static size."""
        inputs, results = self.given(), list(self.op.results)
        if mlir.name_of(self.op) == "stablehlo.sort" and not _is_whole(self.op):
            return False
        return bool(inputs) and bool(results) and all(_is_plain(value.type) for value in [*inputs, *results])

    def text(self) -> str:
        """A module that contains only this operation."""
        inputs, all_values = self.given(), list(dict.fromkeys(self._every()))
        kinds = [value.type for value in inputs]
        results = [result.type for result in self.op.results]
        arguments = ", ".join(f"%a{place}: {kind}" for place, kind in enumerate(kinds))
        names = ", ".join(f"%a{place}" for place in range(len(kinds)))
        result_names = ", ".join(f"%r#{place}" for place in range(len(results)))
        types = ", ".join(map(str, results))
        module = mlir.parse(
            f"func.func @main({arguments}) -> ({types}) {{\n"
            f'%r:{len(results)} = "builtin.unrealized_conversion_cast"({names}) : '
            f"({', '.join(map(str, kinds))}) -> ({types})\n"
            f"return {result_names} : {types}\n}}"
        )
        body = mlir.block_of(mlir.main_function(module))
        placeholder, values = mlir.operations(body)[0], dict(zip(inputs, body.arguments, strict=True))
        with mlir.before(placeholder):
            for place, owner in self._constants.items():
                values[all_values[place]] = mlir.clone(owner).results[0]
            copy = mlir.clone(self.op)
        for inner in mlir.walk(copy):
            for number, operand in enumerate(inner.operands):
                if operand in values:
                    inner.operands[number] = values[operand]
        replace(placeholder, list(copy.results))
        return mlir.whole_text(module)


class Draw(Candidate):
    """A draw of random numbers: the initial state of its bits, which distinguishes draws, is an input."""

    def __init__(self, op: mlir.Op) -> None:
        super().__init__(op)
        text = mlir.local_text(op)
        self.key = (_DRAW.sub("", text), *self.key[1:])
        number = _DRAW.search(text)
        self._number = int(number[1]) if number else 0
        self._state: mlir.Value | None = None

    def given(self) -> list[mlir.Value]:
        if self._state is None:
            with mlir.before(self.op):
                kind, value = mlir.type_of(drawn.STATE.type), mlir.attribute(drawn.state_of(self._number))
                self._state = mlir.value("stablehlo.constant", (), kind, value=value)
        return [*super().given(), self._state]

    def text(self) -> str:
        inputs = self.given()
        tensors = [_tensor(f"%a{place}", value) for place, value in enumerate(inputs)]
        arguments = dict(zip(inputs, tensors, strict=True))
        lines = Lines()
        bounds = [self._bound(lines, value, arguments) for value in list(self.op.operands)[:2]]
        shape = _tensor("", self.op.results[0]).shape
        distribution = drawn.distribution_of(self.op)
        draw = drawn.drawn(distribution, lines, bounds[0], bounds[1], shape, lambda: tensors[-1])
        parameters = ", ".join(f"{tensor.name}: {tensor.type}" for tensor in tensors)
        body = "\n".join(lines.lines)
        return (
            f"func.func @main({parameters}) -> {draw.type} {{\n{body}\nreturn {draw.name} : {draw.type}\n}}"
        )

    def _bound(self, lines: Lines, value: mlir.Value, arguments: dict[mlir.Value, Tensor]) -> Tensor:
        if value in arguments:
            return arguments[value]
        owner = mlir.defining(value)
        assert owner is not None
        kind = _tensor("", value)
        return lines.line(f"stablehlo.constant {owner.attributes['value']}", kind.element, kind.shape)


def _tensor(name: str, value: mlir.Value) -> Tensor:
    kind = value.type
    return Tensor(name, str(mlir.element_type(kind)), tuple(size or 0 for size in mlir.sizes_of(kind)))


def _is_constant(owner: mlir.Op | None) -> bool:
    return owner is not None and mlir.name_of(owner) == "stablehlo.constant"


def _is_whole(sort: mlir.Op) -> bool:
    """Whether the code of a sort does not depend on its producers and consumers."""
    counts = {"stablehlo.iota", "stablehlo.broadcast_in_dim"}
    owners = [mlir.defining(operand) for operand in sort.operands]
    if len(owners) > 1 and any(owner is not None and mlir.name_of(owner) in counts for owner in owners):
        return False
    readers = [[mlir.name_of(user) for user, _ in mlir.uses(result)] for result in sort.results]
    return all(names and "stablehlo.slice" not in names for names in readers)


def _is_plain(kind: mlir.Type) -> bool:
    if not mlir.is_tensor(kind):
        return False
    sizes, element = mlir.sizes_of(kind), str(mlir.element_type(kind))
    return None not in sizes and 0 not in sizes and (element in DTYPE_BYTES or element in _COMPLEX)
