"""``chlo.scan`` where sizes are open, as a loop that takes a slice and puts one a turn.

The toolchain's own legalization writes reshapes to open sizes, which StableHLO has not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.frontends.stablehlo.signatures import Text
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native


def define_open_scans(module: Native, operations: list[Native]) -> None:
    """Make each scan with open sizes a call of a function that loops."""
    native = mlir.native_ir()
    with module.context, native.Location.unknown():
        for number, operation in enumerate(operations):
            values = (*operation.operands, *operation.results)
            if all(value.type.has_static_shape for value in values):
                continue
            scan = _Scan.read(operation, Text(f"kcache.scan.{number}", operation))
            made = native.Module.parse(scan.written())
            module.body.append(next(iter(made.body.operations)).operation.clone())
            _outline(native, module, operation, scan.step)
            callee = {"callee": native.FlatSymbolRefAttr.get(scan.text.name)}
            kinds = [one.type for one in operation.results]
            with native.InsertionPoint(operation):
                called = native.Operation.create("func.call", kinds, list(operation.operands), callee)
            for before, after in zip(operation.results, called.results, strict=True):
                before.replace_all_uses_with(after)
            operation.erase()


def _outline(native: Native, module: Native, operation: Native, name: str) -> None:
    """Make the region of a scan a function."""
    block = operation.regions[0].blocks[0]
    returned = list(block.operations)[-1]
    results = list(returned.operands)
    kinds = [argument.type for argument in block.arguments], [one.type for one in results]
    attributes = {
        "sym_name": native.StringAttr.get(name),
        "function_type": native.TypeAttr.get(native.FunctionType.get(*kinds)),
        "sym_visibility": native.StringAttr.get("private"),
    }
    function = native.Operation.create("func.func", attributes=attributes, regions=1)
    with native.InsertionPoint(returned):
        native.Operation.create("func.return", operands=results)
    returned.operation.erase()
    block.append_to(function.regions[0])
    module.body.append(function)


def _zero(element: str) -> str:
    if element == "i1":
        return "false"
    if element.startswith("complex"):
        return "(0.0, 0.0)"
    return "0" if element.startswith(("i", "ui")) else "0.0"


@dataclass
class _Scan:
    """A scan of ``inputs`` arguments along ``axis``; the others are carried."""

    text: Text
    step: str
    arguments: list[Native]
    results: list[Native]
    #: Types of what the step takes and gives.
    given: list[Native]
    made: list[Native]
    inputs: int
    axis: int
    reverse: bool
    #: What slices are taken of.
    sources: list[str] = field(default_factory=list[str])

    @staticmethod
    def read(operation: Native, text: Text) -> _Scan:
        """What an operation says."""
        native = mlir.native_ir()
        attributes = operation.attributes
        inputs: int = next(iter(attributes["operandSegmentSizes"]))
        axis = native.IntegerAttr(attributes["dimension"]).value
        block = operation.regions[0].blocks[0]
        reverse = "is_reverse" in attributes and attributes["is_reverse"].value
        if not inputs:
            where = mlir.describe_location(operation.location)
            raise UnsupportedOp("chlo.scan", "no inputs, and open sizes", where)
        arguments = [one.type for one in operation.operands]
        results = [one.type for one in operation.results]
        given = [one.type for one in block.arguments]
        made = [one.type for one in list(block.operations)[-1].operands]
        step = f"{text.name}.step"
        return _Scan(text, step, arguments, results, given, made, inputs, axis, bool(reverse))

    def written(self) -> str:
        """The module of the function, and of the declaration of its step."""
        text, count = self.text, self.inputs
        sizes = [text.sizes(text.names[place], self.arguments[place], "i32") for place in range(count)]
        carried = len(self.arguments) - count
        stacked = self.results[: len(self.results) - carried]
        shapes = [self._shape(kind, sizes) for kind in stacked]
        zero, one = text.number(0, "i32"), text.number(1, "i32")
        total = sizes[0][self.axis]
        longer = text.line(f"stablehlo.add {total}, {one} : tensor<i32>")[0] if self._open else total
        for shape in shapes:
            shape[self.axis] = longer
        outs = [self._zeros(kind, shape) for kind, shape in zip(stacked, shapes, strict=True)]
        self.sources = [self._longer(place) for place in range(count)]
        last = text.line(f"stablehlo.subtract {total}, {one} : tensor<i32>")[0]
        kinds = ["tensor<i32>", *map(str, stacked), *map(str, self.arguments[count:])]
        names = [f"%l{place}" for place in range(len(kinds))]
        head = ", ".join(f"{name}: {kind}" for name, kind in zip(names, kinds, strict=True))
        with text.inner() as lines:
            place = names[0]
            if self.reverse:
                place = text.line(f"stablehlo.subtract {last}, {place} : tensor<i32>")[0]
            slices = [self._taken(number, sizes[number], place, zero, one) for number in range(count)]
            made = self._called([*slices, *names[1 + len(stacked) :]])
            puts = [
                self._put(out, kind, shape, value, str(part), place, zero, one)
                for out, kind, shape, value, part in zip(
                    names[1:], stacked, shapes, made, self.made, strict=False
                )
            ]
            turn = text.line(f"stablehlo.add {names[0]}, {one} : tensor<i32>")[0]
            returned = ", ".join([turn, *puts, *made[len(stacked) :]])
            text.end(f"stablehlo.return {returned} : {', '.join(kinds)}")
        body = "\n".join(lines)
        compared = (
            f"%go = stablehlo.compare LT, {names[0]}, {total} : (tensor<i32>, tensor<i32>) -> tensor<i1>"
        )
        condition = f"^bb0({head}):\n{compared}\nstablehlo.return %go : tensor<i1>"
        start = ", ".join([zero, *outs, *text.names[count:]])
        listed = ", ".join(kinds)
        found = text.line(
            f'"stablehlo.while"({start}) ({{\n{condition}\n}}, {{\n^bb0({head}):\n{body}\n}}) : '
            f"({listed}) -> ({listed})",
            len(kinds),
        )
        results = found[1:]
        for place, (kind, shape) in enumerate(zip(stacked, shapes, strict=True) if self._open else ()):
            first = [total if axis == self.axis else size for axis, size in enumerate(shape)]
            results[place] = text.first(results[place], str(kind), first, str(kind))
        return text.function(results)

    @property
    def _open(self) -> bool:
        """Whether there may be no turn: arrays are then longer by one, which slices of one need."""
        return self.arguments[0].shape[self.axis] < 0

    def _longer(self, number: int) -> str:
        if not self._open:
            return self.text.names[number]
        kind = self.arguments[number]
        element = str(kind.element_type)
        filler = self.text.line(f"stablehlo.constant dense<{_zero(element)}> : tensor<{element}>")[0]
        none, high = [0] * kind.rank, [int(axis == self.axis) for axis in range(kind.rank)]
        edges = f"low = {none}, high = {high}, interior = {none}"
        given = f"({kind}, tensor<{element}>) -> {kind}"
        return self.text.line(f"stablehlo.pad {self.text.names[number]}, {filler}, {edges} : {given}")[0]

    def _shape(self, kind: Native, sizes: list[list[str]]) -> list[str]:
        """The sizes of a result, each a number of the program or the size of an input there."""
        found: list[str] = []
        for axis, size in enumerate(kind.shape):
            like = (
                one[axis]
                for one, given in zip(sizes, self.arguments, strict=False)
                if given.rank == kind.rank and given.shape[axis] < 0
            )
            known = sizes[0][self.axis] if axis == self.axis else next(like, "")
            if size < 0 and not known:
                raise UnsupportedOp("chlo.scan", "a size of its result that no input has")
            found.append(known if size < 0 else self.text.number(size, "i32"))
        return found

    def _zeros(self, kind: Native, shape: list[str]) -> str:
        element = str(kind.element_type)
        zero = self.text.line(f"stablehlo.constant dense<{_zero(element)}> : tensor<{element}>")[0]
        sizes = self.text.vector(shape)
        given = f"(tensor<{element}>, tensor<{len(shape)}xi32>) -> {kind}"
        return self.text.line(f"stablehlo.dynamic_broadcast_in_dim {zero}, {sizes}, dims = [] : {given}")[0]

    def _taken(self, number: int, sizes: list[str], place: str, zero: str, one: str) -> str:
        """The slice of an input at a place."""
        text, kind = self.text, self.arguments[number]
        starts = text.vector([place if axis == self.axis else zero for axis in range(kind.rank)])
        shape = text.vector([one if axis == self.axis else size for axis, size in enumerate(sizes)])
        whole = f"tensor<{kind.rank}xi32>"
        limits = text.line(f"stablehlo.add {starts}, {shape} : {whole}")[0]
        steps = text.line(f"stablehlo.constant dense<1> : {whole}")[0]
        part = [1 if axis == self.axis else size for axis, size in enumerate(kind.shape)]
        cut = text.type(str(kind.element_type), part)
        operands = f"{self.sources[number]}, {starts}, {limits}, {steps}"
        given = f"({kind}, {whole}, {whole}, {whole}) -> {cut}"
        (made,) = text.line(f'"stablehlo.real_dynamic_slice"({operands}) : {given}')
        rest = [size for axis, size in enumerate(sizes) if axis != self.axis]
        return self._shaped(made, cut, self.given[number], rest)

    def _shaped(self, value: str, kind: str, made: Native, sizes: list[str]) -> str:
        if made.has_static_shape:
            return self.text.line(f"stablehlo.reshape {value} : ({kind}) -> {made}")[0]
        shape = self.text.vector(sizes)
        given = f"({kind}, tensor<{len(sizes)}xi32>) -> {made}"
        return self.text.line(f"stablehlo.dynamic_reshape {value}, {shape} : {given}")[0]

    def _called(self, operands: list[str]) -> list[str]:
        given, made = ", ".join(map(str, self.given)), ", ".join(map(str, self.made))
        self.text.declare(f'func.func private @"{self.step}"({given}) -> ({made})')
        call = f'func.call @"{self.step}"({", ".join(operands)}) : ({given}) -> ({made})'
        return self.text.line(call, len(self.made))

    def _put(
        self, out: str, kind: Native, shape: list[str], value: str, part: str, place: str, zero: str, one: str
    ) -> str:
        """A result with a slice at a place."""
        native = mlir.native_ir()
        sizes = [1 if axis == self.axis else size for axis, size in enumerate(kind.shape)]
        wide = native.RankedTensorType(native.Type.parse(self.text.type(str(kind.element_type), sizes)))
        known = [one if axis == self.axis else size for axis, size in enumerate(shape)]
        made = self._shaped(value, part, wide, known)
        places = [place if axis == self.axis else zero for axis in range(kind.rank)]
        given = ", ".join([str(kind), str(wide), *["tensor<i32>"] * kind.rank])
        operands = ", ".join([out, made, *places])
        return self.text.line(f'"stablehlo.dynamic_update_slice"({operands}) : ({given}) -> {kind}')[0]
