"""What comparators say of order: NaN, the total order of floats, and keys.

A comparator may compare one key of each element, here an unsigned integer:
``F(a) < F(b)`` and ``F(a) > F(b)``, where ``F`` is any scalar code on the elements of one side, order
elements as the integers ``key(a)`` do. A sort by such integers needs no comparator.
"""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.mlir import operations as mlir

#: Bits of floats, and those of infinity.
FLOATS = {"f16": (16, 0x7C00), "bf16": (16, 0x7F80), "f32": (32, 0x7F800000), "f64": (64, 0x7FF << 52)}
_WIDTHS = (8, 16, 32, 64)


def in_total_order(op: mlir.Op) -> None:
    """Compare floats in total order by their bits, as sign and magnitude: the toolchain does not."""
    for compare in mlir.named(op, "stablehlo.compare"):
        element = str(mlir.element_type(compare.operands[0].type))
        if _stated(compare) != "TOTALORDER" or element not in FLOATS:
            continue
        write = _Bits(FLOATS[element][0])
        with mlir.before(compare):
            for number, operand in enumerate(list(compare.operands)):
                compare.operands[number] = write.total(write.bits_of(operand))
        compare.attributes["compare_type"] = mlir.attribute("#stablehlo<comparison_type SIGNED>")


def place_nan(sort: mlir.Op) -> None:
    """Put NaN where PyTorch and NumPy do: after all numbers by ``<``, before them by ``>``.

    Neither says anything of NaN, so StableHLO leaves the order open.
    """
    returned = mlir.last(mlir.block_of(sort))
    compare = mlir.defining(returned.operands[0])
    if compare is None or mlir.name_of(compare) != "stablehlo.compare":
        return
    a, b = compare.operands
    way = _way(compare)
    if (
        str(mlir.element_type(a.type)) not in FLOATS
        or _stated(compare) == "TOTALORDER"
        or way not in ("LT", "GT")
    ):
        return
    truth = compare.results[0].type
    with mlir.before(returned):
        unlike = _ask("GE" if way == "LT" else "LE", a, b)
        kept = mlir.value("stablehlo.not", [unlike], truth)
        number = a if way == "LT" else b
        returned.operands[0] = mlir.value("stablehlo.and", [kept, _ask("EQ", number, number)], truth)


def _way(compare: mlir.Op) -> str:
    return str(compare.attributes["comparison_direction"]).split()[-1].rstrip(">")


def _stated(compare: mlir.Op) -> str:
    """``TOTALORDER`` where it is asked for, else nothing."""
    stated = str(compare.attributes["compare_type"]) if "compare_type" in compare.attributes else ""
    return "TOTALORDER" if "TOTALORDER" in stated else ""


def _ask(direction: str, a: mlir.Value, b: mlir.Value) -> mlir.Value:
    attribute = mlir.attribute(f"#stablehlo<comparison_direction {direction}>")
    return mlir.value("stablehlo.compare", [a, b], mlir.type_of("tensor<i1>"), comparison_direction=attribute)


@dataclass(frozen=True)
class _Compared:
    """What a comparator says: ``F(x) < F(y)``, or ``>``; ``kind`` as StableHLO names comparisons."""

    side: mlir.Value
    descending: bool
    kind: str


@dataclass(frozen=True)
class Key:
    """A key of ``bits`` bits; ``kind`` is that of the comparison: ``TOTALORDER``, ``FLOAT``, ``SIGNED`` or
    ``UNSIGNED``.
    """

    bits: int
    kind: str
    descending: bool


def yield_key(sort: mlir.Op) -> Key | None:
    """Make the comparator of ``sort`` return its key, an integer; None if it has none."""
    result = _read(sort)
    if result is None:
        return None
    returned = mlir.last(mlir.block_of(sort))
    with mlir.before(returned):
        key, width = _key(result)
        returned.operands[0] = key
    return Key(width, result.kind, result.descending)


def _read(sort: mlir.Op) -> _Compared | None:
    block = mlir.block_of(sort)
    compare = mlir.defining(mlir.last(block).operands[0])
    if compare is None or mlir.name_of(compare) != "stablehlo.compare":
        return None
    way = _way(compare)
    left, right = compare.operands
    element = str(mlir.element_type(left.type))
    if way not in ("LT", "GT") or not (element in FLOATS or _integer_bits(element)):
        return None
    parities = _mirrored(block, left, right)
    if parities is None or len(parities) != 1:
        return None
    kind = _stated(compare) or "FLOAT"
    if element not in FLOATS:
        kind = "UNSIGNED" if element.startswith("ui") or element == "i1" else "SIGNED"
    return _Compared(left, (way == "GT") != (parities == {1}), kind)


def _integer_bits(element: str) -> int:
    if element == "i1":
        return 8
    digits = element.removeprefix("u").removeprefix("i")
    return int(digits) if digits.isdigit() and int(digits) in _WIDTHS else 0


def _mirrored(block: mlir.Block, left: mlir.Value, right: mlir.Value) -> set[int] | None:
    """Which sides ``left`` reads (0: first of pairs, 1: second), when ``right`` is the same of the other."""
    positions = {argument: number for number, argument in enumerate(block.arguments)}
    if left in positions or right in positions:
        if left in positions and right in positions and positions[left] ^ 1 == positions[right]:
            return {positions[left] % 2}
        return None
    first, other = mlir.defining(left), mlir.defining(right)
    if first is None or other is None or mlir.name_of(first) != mlir.name_of(other):
        return None
    same = mlir.attributes_text(first) == mlir.attributes_text(other)
    single = len(first.results) == len(other.results) == 1 and len(first.operands) == len(other.operands)
    if not same or not single or mlir.blocks_of(first) or left.type != right.type:
        return None
    results: set[int] = set()
    for a, b in zip(first.operands, other.operands, strict=True):
        below = _mirrored(block, a, b)
        if below is None:
            return None
        results |= below
    return results


def _key(compared: _Compared) -> tuple[mlir.Value, int]:
    element = str(mlir.element_type(compared.side.type))
    if element in FLOATS:
        width, infinity = FLOATS[element]
        write = _Bits(width)
        bits = write.bits_of(compared.side)
        key = write.total(bits) if compared.kind == "TOTALORDER" else write.number(bits, infinity)
    else:
        width = _integer_bits(element)
        write = _Bits(width)
        key = write.widened(compared.side) if element == "i1" else write.bits_of(compared.side)
    if compared.kind != "UNSIGNED":
        key = write.binary("xor", key, write.constant(write.least))
    return write.binary("xor", key, write.constant(-1)) if compared.descending else key, width


class _Bits:
    """Scalar code on integers of ``width`` bits."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.kind = mlir.type_of(f"tensor<i{width}>")
        self.least, self.most = -(1 << (width - 1)), (1 << (width - 1)) - 1

    def constant(self, number: int) -> mlir.Value:
        value = mlir.attribute(f"dense<{number}> : {self.kind}")
        return mlir.value("stablehlo.constant", (), self.kind, value=value)

    def binary(self, name: str, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return mlir.value(f"stablehlo.{name}", [a, b], self.kind)

    def bits_of(self, value: mlir.Value) -> mlir.Value:
        if value.type == self.kind:
            return value
        return mlir.value("stablehlo.bitcast_convert", [value], self.kind)

    def widened(self, value: mlir.Value) -> mlir.Value:
        return mlir.value("stablehlo.convert", [value], self.kind)

    def _sign(self, bits: mlir.Value) -> mlir.Value:
        return self.binary("shift_right_arithmetic", bits, self.constant(self.width - 1))

    def total(self, bits: mlir.Value) -> mlir.Value:
        """The order of IEEE 754 by the bits: sign and magnitude as two's complement."""
        rest = self.binary("and", self._sign(bits), self.constant(self.most))
        return self.binary("xor", bits, rest)

    def number(self, bits: mlir.Value, infinity: int) -> mlir.Value:
        """The order of numbers, in which both zeros are equal, then NaNs, which are all equal."""
        sign = self._sign(bits)
        magnitude = self.binary("and", bits, self.constant(self.most))
        signed = self.binary("subtract", self.binary("xor", magnitude, sign), sign)
        nan = _ask("GT", magnitude, self.constant(infinity))
        return mlir.value("stablehlo.select", [nan, self.constant(self.most), signed], self.kind)
