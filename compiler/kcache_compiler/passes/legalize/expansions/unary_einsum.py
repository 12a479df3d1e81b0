"""``unary_einsum`` of one operand: diagonals of letters that come twice, sums over those that the result has
not, and a transposition. ``einsum`` of two whose letters do so is made of these.
"""

from __future__ import annotations

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.legalize.expansions.function_text import Lines, Tensor, tensor


def terms_of(op: mlir.Op) -> tuple[list[str], str]:
    """The letters of each operand, and of the result."""
    config = mlir.string_of(op.attributes["einsum_config"]).replace(" ", "")
    operands, _, result = config.partition("->")
    terms = operands.split(",")
    if not all(letter.isascii() and letter.isalpha() for letter in "".join([*terms, result])):
        raise UnsupportedOp(mlir.name_of(op), f'the form "{config}"', mlir.location_of(op))
    return terms, result


def unary(lines: Lines, value: Tensor, term: str, result: str) -> Tensor:
    """``value`` with the axes ``given`` as one with the axes ``result``."""
    letters = list(term)
    for letter in dict.fromkeys(term):
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            value = _diagonal(lines, value, first, second)
            del letters[second]
    summed = [axis for axis, letter in enumerate(letters) if letter not in result]
    element = value.element
    if summed:
        wide = "f32" if element in ("f16", "bf16") else element
        value = lines.convert(lines.total(lines.convert(value, wide), summed), element)
    letters = [letter for letter in letters if letter in result]
    return lines.transpose(value, [letters.index(letter) for letter in result])


def _diagonal(lines: Lines, value: Tensor, first: int, second: int) -> Tensor:
    """Where the two axes have the same place, which is at the first."""
    rank, size = len(value.shape), value.shape[first]
    kept = [axis for axis in range(rank) if axis != second]
    shape = tuple(value.shape[axis] for axis in kept)
    if size == 0:  # no slice of one element is inside
        return lines.zeros(value.element, shape)
    positions = lines.iota("i32", (size, 2), 0)
    slices = [1 if axis in (first, second) else size for axis, size in enumerate(value.shape)]
    offsets = [position for position, axis in enumerate(kept) if axis != first]
    numbers = (
        f"offset_dims = {offsets}, collapsed_slice_dims = [{first}, {second}], "
        f"start_index_map = [{first}, {second}], index_vector_dim = 1"
    )
    text = (
        f'"stablehlo.gather"({value.name}, {positions.name}) '
        f"<{{dimension_numbers = #stablehlo.gather<{numbers}>, "
        f"slice_sizes = array<i64: {', '.join(map(str, slices))}>, indices_are_sorted = true}}> : "
        f"({value.type}, {positions.type}) -> {tensor(value.element, shape)}"
    )
    return lines.line(text, value.element, shape)


def split_einsum(op: mlir.Op) -> None:
    """Take diagonals and sums over letters of one operand first, each an operation of its own."""
    terms, result = terms_of(op)
    if len(terms) != 2:
        return
    simple: list[str] = []
    for position, (term, other) in enumerate(zip(terms, terms[::-1], strict=True)):
        kept = "".join(letter for letter in dict.fromkeys(term) if letter in other or letter in result)
        simple.append(kept)
        if kept != term:
            operand = op.operands[position]
            sizes = dict(zip(term, mlir.sizes_of(operand.type), strict=True))
            dims = "".join(f"{'?' if sizes[letter] is None else sizes[letter]}x" for letter in kept)
            kind = mlir.type_of(f"tensor<{dims}{mlir.element_type(operand.type)}>")
            config = mlir.attribute(f'"{term}->{kept}"')
            with mlir.before(op):
                op.operands[position] = mlir.value(
                    "stablehlo.unary_einsum", [operand], kind, einsum_config=config
                )
    op.attributes["einsum_config"] = mlir.attribute(f'"{",".join(simple)}->{result}"')
