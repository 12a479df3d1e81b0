"""What is often computed of a product, in registers: a bias and another tensor added, the maximum with zero.

An epilogue would load the results again and store them a second time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from kcache_compiler.lower.gemm.match import Contraction
from kcache_compiler.lower.gemm.micro_kernel import add_to_sums, masked_load, store_vectors
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.schedule.gemm_tiles import BYTES, Form

#: Arguments of a tile: bits of what is computed, the bias of its columns, and what is added to its rows,
#: which are as far apart as those of C. Pointers that no bit asks for are not read.
ENDS = (("ends", "i64"), ("bias", "!llvm.ptr"), ("other", "!llvm.ptr"))
BIAS, OTHER, POSITIVE = 1, 2, 4


@dataclass(frozen=True)
class Ends:
    """The ``result`` of a consumer and its operands, by bit: that of ``POSITIVE``, a literal or in memory, is
    to be zero.
    """

    operands: dict[int, mlir.Value]
    result: mlir.Value

    @property
    def bits(self) -> int:
        return sum(self.operands)


def write_results(
    code: Code, form: Form, addresses: list[Name], columns: list[int], sums: list[Name], masks: list[Name]
) -> None:
    """Emit the end of a tile: ``sums``, with those in C if ``%load``, what is computed of them, stores."""
    zero = code.const("dense<0.0>", form.vector)

    def loaded(base: Name, column: int) -> Name:
        address = code.at(base, columns[column], form.wide)
        if masks:
            return masked_load(code, form, address, masks[column], zero)
        return code.load(address, form.vector, BYTES[form.wide])

    def biased(sums: list[Name]) -> list[Name]:
        bias = [loaded("%bias", column) for column in range(len(columns))]
        return [_add(code, form, value, bias[number % len(columns)]) for number, value in enumerate(sums)]

    def added(sums: list[Name]) -> list[Name]:
        results: list[Name] = []
        for number, value in enumerate(sums):
            row, column = divmod(number, len(columns))
            start = code.at("%other", code.mul("%ldc", row), form.wide)
            results.append(_add(code, form, value, loaded(start, column)))
        return results

    def positive(sums: list[Name]) -> list[Name]:
        return [_maximum_with_zero(code, form, value, zero) for value in sums]

    sums = add_to_sums(code, form, addresses, masks, sums)
    for bit, build in ((BIAS, biased), (OTHER, added), (POSITIVE, positive)):
        sums = _where(code, form, bit, sums, build)
    store_vectors(code, form, addresses, sums, masks)


def _maximum_with_zero(code: Code, form: Form, value: Name, zero: Name) -> Name:
    """The bits of ``arith.maximumf`` with 0, also for NaN and -0: x86 has two instructions, not three."""
    greater = code.op(f"arith.cmpf ugt, {value}, {zero} : {form.vector}")
    kinds = f"vector<{form.lanes}xi1>, {form.vector}"
    return code.op(f"arith.select {greater}, {value}, {zero} : {kinds}")


def _add(code: Code, form: Form, left: Name, right: Name) -> Name:
    return code.op(f"arith.addf {left}, {right} : {form.vector}")


def _where(
    code: Code, form: Form, bit: int, sums: list[Name], build: Callable[[list[Name]], list[Name]]
) -> list[Name]:
    """What ``build`` makes of ``sums`` if ``%ends`` has the ``bit``."""
    kinds = ", ".join([form.vector] * len(sums))
    result, asked = code.fresh(), code.compare("ne", code.bits("%ends", bit), 0)
    code.do(f"{result}:{len(sums)} = scf.if {asked} -> ({kinds}) {{")
    code.do(f"scf.yield {', '.join(build(sums))} : {kinds}")
    code.do("} else {")
    code.do(f"scf.yield {', '.join(sums)} : {kinds}")
    code.do("}")
    return [f"{result}#{number}" for number in range(len(sums))]


def read_ends(
    contraction: Contraction, generic: mlir.Op, followers: list[mlir.Op], shapes: Shapes
) -> Ends | None:
    """The only consumer of ``generic`` if it is written over the sums and is a chain of these operations: the
    sum of results, a bias and a tensor of their shape, and its maximum with a number. None for others.
    """
    n = contraction.groups.n
    if contraction.in_place is None or contraction.groups.batch or contraction.offsets[2] != 0:
        return None
    if len(n) != 1 or len(n[0].sources) != 1:
        return None
    if len(followers) != 1 or followers[0].operands[-1] != generic.operands[2]:
        return None
    op, result = followers[0], generic.operands[2]
    loop = _contiguous_loop(op, result, n[0].size, shapes)
    if loop is None or mlir.input_count(op) != len(list(op.operands)) - 1:
        return None
    kinds = _kinds_of_operands(op, result, loop, shapes)
    start = [number for number, operand in enumerate(list(op.operands)[:-1]) if operand == result]
    body = mlir.block_of(op)
    if len(start) != 1 or kinds is None:
        return None
    value, operands = list(body.arguments)[start[0]], dict[int, mlir.Value]()
    for inner in mlir.operations(body)[:-1]:
        step = _step(inner, value, list(body.arguments), kinds)
        if step is None or step[0] <= max(operands, default=0):
            return None
        operands[step[0]] = op.operands[step[1]]
        value = inner.results[0]
    return Ends(operands, result) if operands and mlir.last(body).operands[0] == value else None


def _contiguous_loop(op: mlir.Op, result: mlir.Value, size: object, shapes: Shapes) -> int | None:
    """The loop of ``op`` along the axis of adjacent results, of this many columns."""
    maps, operands = mlir.indexing_maps(op), list(op.operands)
    if not mlir.is_permutation(maps[-1]) or maps[operands.index(result)] != maps[-1]:
        return None
    dims = [mlir.plain_dim(each) for each in maps[-1].results]
    steps, sizes = shapes.strides(result), shapes.sizes(result)
    loops = [
        dim for dim, step, extent in zip(dims, steps, sizes, strict=True) if step == 1 and extent == size
    ]
    return loops[0] if len(loops) == 1 else None


def _kinds_of_operands(op: mlir.Op, result: mlir.Value, loop: int, shapes: Shapes) -> dict[int, int] | None:
    """The bit of each operand but the results: how it is indexed; None if one is none of these."""
    kinds: dict[int, int] = {}
    maps, element = mlir.indexing_maps(op), mlir.element_type(result.type)
    for number, operand in enumerate(list(op.operands)[:-1]):
        if _is_zero(operand):
            kinds[number] = POSITIVE
            continue
        if not mlir.is_memref(operand.type) or mlir.element_type(operand.type) != element:
            return None
        dims, steps = [mlir.plain_dim(each) for each in maps[number].results], shapes.strides(operand)
        if not dims:
            kinds[number] = POSITIVE
        elif dims == [loop] and steps == [1]:
            kinds[number] = BIAS
        elif maps[number] == maps[-1] and steps == shapes.strides(result):
            kinds[number] = OTHER
        else:
            return None
    return kinds


def _is_zero(operand: mlir.Value) -> bool:
    """Whether an operand is a literal 0, not -0."""
    number = None if mlir.is_memref(operand.type) else mlir.constant_float(operand)
    return number == 0 and math.copysign(1, number) > 0


def _step(
    op: mlir.Op, value: mlir.Value, arguments: list[mlir.Value], kinds: dict[int, int]
) -> tuple[int, int] | None:
    """The bit of ``op`` if it combines ``value`` with an operand, and the number of that; None for others."""
    operands = list(op.operands)
    if len(operands) != 2 or operands.count(value) != 1 or len(list(op.results)) != 1:
        return None
    other = operands[1 - operands.index(value)]
    if other not in arguments or arguments.index(other) not in kinds:
        return None
    number = arguments.index(other)
    bit = kinds[number]
    expected = "arith.maximumf" if bit == POSITIVE else "arith.addf"
    return (bit, number) if mlir.name_of(op) == expected else None
