"""Emulation of narrow types: bytes are moved, and values are computed in f32 and i8.

Each operation on narrow floats is computed in f32 and rounded to the type once, which is the correctly
rounded result, as f32 has more than twice the digits. Products and sums of a ``dot_general`` or a
convolution are rounded at the end only. Integers of 2 and 4 bits are computed in bytes, of which the low
bits count.
"""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.legalize.tuples import fold_tuples_and_static_shapes
from kcache_compiler.passes.narrow_types import codec
from kcache_compiler.passes.narrow_types.conversions import bitcast, constant_bytes, converted
from kcache_compiler.passes.narrow_types.formats import (
    FLOATS,
    FORMATS,
    INTEGERS,
    MENTION,
    POWERS,
    carrier,
    width,
)
from kcache_compiler.passes.narrow_types.operations import (
    ASSERTED,
    AT_ONCE,
    COMBINES,
    EXACT,
    FLOWS,
    MOVES,
    ON_BITS,
    ON_FLOATS,
    ON_INTEGERS,
    ON_LOW_BITS,
    PRODUCTS,
)
from kcache_compiler.passes.narrow_types.products import multiplied
from kcache_compiler.passes.narrow_types.values import (
    Values,
    apply,
    encoded,
    held,
    like,
    rounded,
    small,
    wrapped,
)
from kcache_compiler.passes.stage import NarrowBuffers


def emulate_narrow_types(module: mlir.Module, source: str) -> NarrowBuffers:
    """Rewrite ``main``; returns which of its buffers hold narrow elements."""
    if not MENTION.search(source):
        return NarrowBuffers()
    try:
        main = mlir.main_function(module)
    except ValueError:
        return NarrowBuffers()  # ``read_signature`` raises
    for function in mlir.operations(module.body):
        if function != main and any(mentions(op) for op in mlir.walk(function)):
            raise UnsupportedOp("func.func", "small elements outside of main", mlir.location_of(function))
    results = [op for op in mlir.walk(main) if mentions(op)]
    if not results or _is_native(main, results):
        return NarrowBuffers()
    fold_tuples_and_static_shapes(module)
    return _Rewriting().function(main)


def _is_native(main: mlir.Op, result: list[mlir.Op]) -> bool:
    """Integers of few bits inside of a program of another dialect are what LLVM has for them."""
    buffers = [*mlir.block_of(main).arguments, *mlir.last(mlir.block_of(main)).operands]
    ours = ("stablehlo.", "chlo.", "func.")
    return (
        not any(small(value.type) for value in buffers)
        and all(small(value.type) not in FLOATS for op in result for value in (*op.operands, *op.results))
        and any(not mlir.name_of(op).startswith(ours) for op in result)
    )


def mentions(op: mlir.Op) -> bool:
    """Some value of an operation has small elements."""
    blocks = mlir.blocks_of(op)
    return any(
        small(value.type)
        for value in (
            *op.operands,
            *op.results,
            *(argument for block in blocks for argument in block.arguments),
        )
    )


class _Rewriting:
    """Of one function; use once."""

    def __init__(self) -> None:
        self.buffers = NarrowBuffers()
        self.values = Values()
        self.dead: list[mlir.Op] = []
        #: Blocks whose first arguments, this many, have others behind them.
        self.blocks: list[tuple[mlir.Block, int]] = []

    def function(self, main: mlir.Op) -> NarrowBuffers:
        body = mlir.block_of(main)
        for position, argument in enumerate(body.arguments):
            if small(argument.type):
                self.buffers.inputs[position] = small(argument.type)
        self._arguments(body, bytes_of_callers=True)
        self._block(body)
        returned = mlir.last(body)
        with mlir.before(returned):
            for position, result in enumerate(list(returned.operands)):
                element = small(result.type)
                if element:
                    self.buffers.outputs[position] = element
                    returned.operands[position] = _given_back(self.values.bytes_of(result), element)
        for op in reversed(self.dead):
            op.erase()
        for block, count in self.blocks:
            for _ in range(count):
                block.erase_argument(0)
        inputs = [argument.type for argument in body.arguments]
        results = [operand.type for operand in returned.operands]
        main.attributes["function_type"] = mlir.type_attr(mlir.function_type(inputs, results))
        return self.buffers

    def _arguments(self, block: mlir.Block, wide: bool = False, bytes_of_callers: bool = False) -> None:
        """Give a block arguments without small elements."""
        old = list(block.arguments)
        if not any(small(argument.type) for argument in old):
            return
        self.blocks.append((block, len(old)))
        new = [block.add_argument(_form(argument.type, wide), mlir.unknown_location()) for argument in old]
        for before, after in zip(old, new, strict=True):
            element = small(before.type)
            if not element:
                before.replace_all_uses_with(after)
            elif wide and element in FLOATS:
                self.values.set_wide(before, after)
            elif bytes_of_callers:
                with mlir.at_start(block):
                    self.values.set_bytes(before, _received(after, element))
            else:
                self.values.set_bytes(before, after)

    def _block(self, block: mlir.Block) -> None:
        for op in mlir.operations(block):
            with mlir.before(op), mlir.at_location(op):
                self._operation(op)

    def _operation(self, op: mlir.Op) -> None:
        """Rewrite an operation with narrow elements as operations on bytes or wide elements."""
        name = mlir.name_of(op)
        if name in ("func.return", "stablehlo.return"):
            return
        elements = {small(value.type) for value in (*op.operands, *op.results)} - {""}
        if not elements:
            for block in mlir.blocks_of(op):
                self._region(block, wide=False)
        elif name in MOVES or name in FLOWS or _asserts(op):
            self._replaced(op, wide=False)
        elif name == "stablehlo.constant":
            self._made(op, constant_bytes(op))
        elif name == "stablehlo.convert":
            self._convert(op)
        elif name == "stablehlo.bitcast_convert":
            self._bitcast(op)
        elif name in ("stablehlo.iota", "stablehlo.dynamic_iota"):
            whole = mlir.create(name, list(op.operands), [like(op.results[0].type, "i32")], _named(op))
            self._made(op, converted(whole.results[0], small(op.results[0].type)))
        elif name in PRODUCTS:
            self._product(op)
        elif name == "stablehlo.reduce_precision" and _keeps_all(op):
            self._made(op, self.values.bytes_of(op.operands[0]))
        else:
            self._computed(op, name, elements)

    def _made(self, op: mlir.Op, held: mlir.Value) -> None:
        self.values.set_bytes(op.results[0], held)
        self.dead.append(op)

    def _convert(self, op: mlir.Op) -> None:
        source, result = op.operands[0], op.results[0]
        number = self.values.wide(source) if small(source.type) else source
        element = small(result.type)
        if element:
            self._made(op, converted(number, element))
            return
        same = number.type == result.type
        result.replace_all_uses_with(
            number if same else mlir.value("stablehlo.convert", [number], result.type)
        )
        self.dead.append(op)

    def _bitcast(self, op: mlir.Op) -> None:
        source, result = op.operands[0], op.results[0]
        raw = self.values.bytes_of(source) if small(source.type) else source
        output = bitcast(op, raw)
        if small(result.type):
            self._made(op, output)
            return
        result.replace_all_uses_with(output)
        self.dead.append(op)

    def _product(self, op: mlir.Op) -> None:
        result = op.results[0]
        operands = [self.values.wide(operand) if small(operand.type) else operand for operand in op.operands]
        output = multiplied(op, operands)
        element = small(result.type)
        if not element:
            result.replace_all_uses_with(output)
            self.dead.append(op)
        elif element in INTEGERS:
            self._made(op, wrapped(output, element))
        else:
            self._made(op, encoded(output, element, True))

    def _computed(self, op: mlir.Op, name: str, elements: set[str]) -> None:
        """Rewrite arithmetic on narrow elements.

        Raises ``UnsupportedOp`` for operations that these do not support.
        """
        if name in ON_BITS and elements <= INTEGERS.keys():
            self._on_bits(op, name)
            return
        if not (elements <= INTEGERS.keys() and name in ON_INTEGERS) and not (
            elements <= set(FLOATS) and name in ON_FLOATS
        ):
            raise UnsupportedOp(
                name, f"elements of {', '.join(sorted(elements))}: convert them first", mlir.location_of(op)
            )
        if name in ON_LOW_BITS and elements <= INTEGERS.keys():
            operands = [self.values.low(operand) for operand in op.operands]
            result = mlir.create(name, operands, [operands[0].type], _named(op))
            self.values.set_low(op.results[0], result.results[0])
            self.dead.append(op)
            return
        if name in AT_ONCE and elements <= set(FLOATS) and not mlir.among_scalars():
            operands = [self.values.wide(operand) for operand in op.operands]
            (element,) = elements
            facts = (element, AT_ONCE[name], _above_zero(name, element))
            result = apply(codec.computed, operands, "f32", *facts)
            self.values.set_wide(op.results[0], result)
            self.dead.append(op)
            return
        self._replaced(op, wide=True, exact=name in EXACT or _keeps(name, elements))

    def _on_bits(self, op: mlir.Op, name: str) -> None:
        """Operations for which the bits above those of the element must be zero."""
        element = small(op.results[0].type)
        operands = [self.values.bytes_of(operand) for operand in op.operands]
        kind = operands[0].type
        byte, bits = str(mlir.element_type(kind)), width(element)
        operands[0] = apply(codec.low_bits, operands[:1], byte, bits, byte)
        if name == "stablehlo.shift_right_arithmetic":
            self._made(op, _shifted(operands, self.values.bytes_of(op.operands[0]), element))
            return
        result = mlir.value(name, operands, kind)
        if name == "stablehlo.count_leading_zeros":
            result = apply(codec.less, [result], byte, 8 - bits, byte)
        self._made(op, wrapped(result, element))

    def _replaced(self, op: mlir.Op, wide: bool, exact: bool = True) -> None:
        """The same operation on another form of its values."""
        form = self.values.wide if wide else self.values.bytes_of
        operands = [form(operand) if small(operand.type) else operand for operand in op.operands]
        kinds = [_form(result.type, wide) for result in op.results]
        count = len(op.regions)
        output = mlir.create(mlir.name_of(op), operands, kinds, _named(op), count)
        for region in range(count):
            if not op.regions[region].blocks:
                continue
            mlir.move_block(op, output, region)
            self._region(mlir.block_of(output, region), wide)
        _check_combined(output)
        for before, after in zip(op.results, output.results, strict=True):
            element = small(before.type)
            if not element:
                before.replace_all_uses_with(after)
            elif not wide:
                self.values.set_bytes(before, after)
            elif element in INTEGERS:
                self.values.set_bytes(before, after if exact else wrapped(after, element))
            elif exact:
                self.values.set_wide(before, after)
            else:
                above_zero = _above_zero(mlir.name_of(op), element)
                self.values.set_wide(before, rounded(after, element, above_zero))
        self.dead.append(op)

    def _region(self, block: mlir.Block, wide: bool) -> None:
        self._arguments(block, wide)
        self._block(block)
        last = mlir.last(block)
        for position, value in enumerate(list(last.operands)):
            if small(value.type):
                form = self.values.wide if wide else self.values.bytes_of
                last.operands[position] = form(value)


def _above_zero(name: str, element: str) -> bool:
    """Whether what is 0 in f32 is not: products and quotients of powers of two go further down."""
    return element == POWERS and name in ("stablehlo.multiply", "stablehlo.divide")


def _shifted(operands: list[mlir.Value], byte: mlir.Value, element: str) -> mlir.Value:
    """Shifted by the bit that would be a sign, which bytes of unsigned elements do not repeat."""
    signed = wrapped(byte, element.removeprefix("u"))
    count = apply(codec.low_bits, operands[1:], "i8", 8, "i8")
    moved = mlir.value("stablehlo.shift_right_arithmetic", [signed, count], signed.type)
    kind = like(moved.type, carrier(element))
    return wrapped(moved if moved.type == kind else mlir.value("stablehlo.convert", [moved], kind), element)


def _received(value: mlir.Value, element: str) -> mlir.Value:
    """Of a byte of a caller only the bits of the element are read."""
    if element in INTEGERS:
        return wrapped(value, element)
    bits = width(element)
    return value if bits == 8 else apply(codec.low_bits, [value], "i8", bits, "i8")


def _given_back(result: mlir.Value, element: str) -> mlir.Value:
    """The other bits of a byte are zero."""
    if not element.startswith("i"):
        return result
    return apply(codec.low_bits, [result], "i8", width(element), "i8")


def _form(kind: mlir.Type, wide: bool) -> mlir.Type:
    element = small(kind)
    if not element:
        return kind
    return like(kind, "f32") if wide and element in FLOATS else held(kind)


def _keeps(name: str, elements: set[str]) -> bool:
    """Changing the sign stays within the type; where there is one zero, it has no sign."""
    signed = all(element in FORMATS and not FORMATS[element].unsigned_zero for element in elements)
    return signed and name in ("stablehlo.abs", "stablehlo.negate")


def _asserts(op: mlir.Op) -> bool:
    """Whether ``op`` is an assertion: a value, and a condition on sizes under which it is defined."""
    return (
        mlir.name_of(op) == "stablehlo.custom_call"
        and mlir.string_of(op.attributes["call_target_name"]) == ASSERTED
    )


def _keeps_all(op: mlir.Op) -> bool:
    """The bits that a ``reduce_precision`` keeps are those that the type has."""
    form = FORMATS.get(small(op.results[0].type))
    if form is None:
        return False
    exponent = form.bits - 1 - form.mantissa
    kept = [mlir.int_of(op.attributes[name]) for name in ("exponent_bits", "mantissa_bits")]
    return kept[0] >= exponent and kept[1] >= form.mantissa


def _named(op: mlir.Op) -> dict[str, mlir.Attribute]:
    return mlir.attributes_of(op)


def _check_combined(op: mlir.Op) -> None:
    """Reject a body that computes in another type than its operands have."""
    if mlir.name_of(op) not in COMBINES:
        return
    operands: Sequence[mlir.Value] = list(op.operands)
    results = [str(mlir.element_type(result.type)) for result in op.results]
    for block in mlir.blocks_of(op):
        arguments = [argument.type for argument in block.arguments if not small(argument.type)]
        elements = {str(mlir.element_type(kind)) for kind in arguments}
        if not elements <= {*results, *(str(mlir.element_type(operand.type)) for operand in operands)}:
            raise UnsupportedOp(
                mlir.name_of(op), "a body of another type than its operands", mlir.location_of(op)
            )
