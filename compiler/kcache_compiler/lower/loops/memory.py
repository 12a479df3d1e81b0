"""Pointers, element loads and stores, and scalar arguments of launches, as IR.

A buffer is addressed by pointer, element offset and element strides. In memory, an i1 is a byte that is
nonzero for true; a complex number is two interleaved floats. Half-precision floats are integers in memory,
as loop-carried values and as arguments: LLVM would call a runtime library for them on targets without
half-precision instructions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, llvm
from kcache_compiler.mlir.dialects import complex as complex_dialect
from kcache_compiler.shapes.formula import Formula

_NO_WRAP = "#arith.overflow<nsw>"
VIEWS = (
    "memref.subview",
    "memref.cast",
    "memref.collapse_shape",
    "memref.expand_shape",
    "memref.reinterpret_cast",
    "memref.transpose",
)
_EMIT = {
    "+": arith.addi,
    "-": arith.subi,
    "*": arith.muli,
    "%": arith.remsi,
    "ceildiv": arith.ceildivsi,
    "min": arith.minsi,
    "max": arith.maxsi,
}
#: The constant index of ``llvm.getelementptr`` that stands for a dynamic index.
DYNAMIC_INDEX = -(2**31)


@dataclass(frozen=True)
class Pointer:
    """A buffer inside a slice function: base pointer, element type and stride values."""

    base: mlir.Value
    element: mlir.Type
    steps: list[mlir.Value]


def i64() -> mlir.Type:
    return mlir.type_of("i64")


def pointer_type() -> mlir.Type:
    return mlir.type_of("!llvm.ptr")


def plus(a: mlir.Value, b: mlir.Value) -> mlir.Value:
    if mlir.constant_int(a) == 0:
        return b
    return arith.addi(a, b, overflow_flags=mlir.attribute(_NO_WRAP))


def times(a: mlir.Value, b: mlir.Value) -> mlir.Value:
    if mlir.constant_int(b) == 1:
        return a
    return arith.muli(a, b, overflow_flags=mlir.attribute(_NO_WRAP))


def wide(number: mlir.Value) -> mlir.Value:
    """An unsigned integer as i64."""
    return number if number.type == i64() else arith.extui(i64(), number)


def narrow(number: mlir.Value, kind: mlir.Type) -> mlir.Value:
    """An i64 as an integer of ``kind``."""
    return number if number.type == kind else arith.trunci(kind, number)


def emit_formula(formula: Formula, dims: mlir.Value | None, cache: dict[Formula, mlir.Value]) -> mlir.Value:
    """The i64 of ``formula``; symbol ``sN`` is element N of ``dims``."""
    if formula in cache:
        return cache[formula]
    if isinstance(formula, int):
        result = mlir.constant(formula)
    elif isinstance(formula, str):
        assert dims is not None, "symbols without a table of sizes are in the cache"
        address = advance(dims, i64(), mlir.constant(int(formula[1:])))
        result = llvm.load(i64(), address)
    else:
        operator, left, right = formula
        a, b = emit_formula(left, dims, cache), emit_formula(right, dims, cache)
        if operator in ("%", "ceildiv", "roundup") and not isinstance(right, int):
            # A runtime check rejects divisors below 1, but runs later: the division must not trap.
            b = arith.maxsi(b, mlir.constant(1))
        if operator == "roundup":
            chunks = arith.ceildivsi(a, b)
            result = arith.muli(chunks, b)
        else:
            result = _EMIT[operator](a, b)
    cache[formula] = result
    return result


def advance(base: mlir.Value, element: mlir.Type, offset: mlir.Value) -> mlir.Value:
    """``base + offset`` elements."""
    if mlir.constant_int(offset) == 0:
        return base
    no_flags = llvm.GEPNoWrapFlags.none
    return llvm.getelementptr(pointer_type(), base, [offset], [DYNAMIC_INDEX], element, no_flags)


def stored_type(element: mlir.Type) -> mlir.Type:
    """The type of an element in memory."""
    text = str(element)
    if text.startswith("complex"):
        part = mlir.element_type(element)
        return mlir.type_of(f"!llvm.struct<({part}, {part})>")
    stored = stored_name(text)
    return element if stored == text else mlir.type_of(stored)


def stored_name(element: str) -> str:
    """``stored_type`` for names of scalar types."""
    return {"i1": "i8", "index": "i64", "f16": "i16", "bf16": "i16"}.get(element, element)


def element_bytes(element: mlir.Type) -> int:
    text = str(element)
    if text.startswith("complex"):
        return 2 * element_bytes(mlir.element_type(element))
    if text == "index":
        return 8
    digits = "".join(filter(str.isdigit, text))
    return max(1, int(digits) // 8)


def load(pointer: Pointer, offset: mlir.Value) -> mlir.Value:
    """The element at ``offset``."""
    element, memory = pointer.element, stored_type(pointer.element)
    address = advance(pointer.base, memory, offset)
    if str(element).startswith("complex"):
        part = mlir.element_type(element)
        real = llvm.load(part, address)
        imaginary = llvm.load(part, advance(address, part, mlir.constant(1)))
        return complex_dialect.create_(element, real, imaginary)
    return from_memory(llvm.load(memory, address), element)


def from_memory(raw: mlir.Value, element: mlir.Type) -> mlir.Value:
    if str(element) == "i1":
        return arith.cmpi(arith.CmpIPredicate.ne, raw, mlir.constant(0, "i8"))
    if str(element) == "index":
        return arith.index_cast(element, raw)
    if str(element) in ("f16", "bf16"):
        return arith.bitcast(element, raw)
    return raw


def to_memory(number: mlir.Value) -> mlir.Value:
    if str(number.type) == "i1":
        return arith.extui(mlir.type_of("i8"), number)
    if str(number.type) == "index":
        return arith.index_cast(i64(), number)
    if str(number.type) in ("f16", "bf16"):
        return arith.bitcast(mlir.type_of("i16"), number)
    return number


def to_carried(number: mlir.Value) -> mlir.Value:
    """``number`` in the type of a loop-carried value."""
    return to_memory(number) if str(number.type) in ("f16", "bf16") else number


def from_carried(raw: mlir.Value, kind: mlir.Type) -> mlir.Value:
    return from_memory(raw, kind) if str(kind) in ("f16", "bf16") else raw


def store(pointer: Pointer, offset: mlir.Value, number: mlir.Value) -> None:
    address = advance(pointer.base, stored_type(pointer.element), offset)
    if str(pointer.element).startswith("complex"):
        part = mlir.element_type(pointer.element)
        real = complex_dialect.re(number)
        imaginary = complex_dialect.im(number)
        llvm.store(real, address)
        llvm.store(imaginary, advance(address, part, mlir.constant(1)))
        return
    llvm.store(to_memory(number), address)


def shift(pointer: Pointer, offset: mlir.Value) -> mlir.Value:
    """The base pointer moved by ``offset`` elements."""
    return advance(pointer.base, stored_type(pointer.element), offset)


def stack(size: int) -> mlir.Value:
    """``size`` bytes of stack; call it outside of loops."""
    return mlir.stack_array(mlir.type_of("i8"), max(1, size), 64)


def passed_types(scalar: mlir.Type) -> list[mlir.Type]:
    """The argument types by which a scalar is passed to a slice function."""
    if str(scalar).startswith("complex"):
        return [mlir.element_type(scalar)] * 2
    return [stored_type(scalar)]


def pass_scalar(scalar: mlir.Value) -> list[mlir.Value]:
    if str(scalar.type).startswith("complex"):
        return [complex_dialect.re(scalar), complex_dialect.im(scalar)]
    return [to_memory(scalar)]


def receive(scalar: mlir.Type, arguments: Iterator[mlir.Value]) -> mlir.Value:
    """Rebuild a scalar of type ``scalar`` from the next arguments."""
    if str(scalar).startswith("complex"):
        return complex_dialect.create_(scalar, next(arguments), next(arguments))
    return from_memory(next(arguments), scalar)


def root_of(buffer: mlir.Value) -> mlir.Value:
    """The buffer underlying a chain of views."""
    owner = mlir.defining(buffer)
    while owner is not None and mlir.name_of(owner) in VIEWS:
        buffer = owner.operands[0]
        owner = mlir.defining(buffer)
    return buffer


def known_not_to_alias(
    buffer: mlir.Value, others: list[mlir.Value], written: set[mlir.Value], static: bool = False
) -> bool:
    """Whether no write through one of ``others`` can modify ``buffer``, nor the reverse.

    ``static``: sizes and offsets of the module are those of every call, not those of a sample.
    """
    for other in others:
        if other == buffer or not (buffer in written or other in written):
            continue
        root, other_root = root_of(buffer), root_of(other)
        if static and root == other_root and are_apart(buffer, other):
            continue
        if root == other_root or not (is_unaliased(root) and is_unaliased(other_root)):
            return False
    return True


def are_apart(buffer: mlir.Value, other: mlir.Value) -> bool:
    """Whether both are parts of one buffer, at known places, that have no element in common."""
    (root, begins, sizes), (other_root, other_begins, other_sizes) = _part(buffer), _part(other)
    if root != other_root or None in sizes or None in other_sizes:
        return False
    axes = zip(begins, sizes, other_begins, other_sizes, strict=True)
    return any(
        first + (size or 0) <= second or second + (length or 0) <= first
        for first, size, second, length in axes
    )


def _part(buffer: mlir.Value) -> tuple[mlir.Value, list[int], list[int | None]]:
    """The buffer that ``buffer`` is a part of, as far as that is known; its first elements, and its sizes."""
    sizes = mlir.sizes_of(buffer.type)
    begins = [0] * len(sizes)
    while (owner := mlir.defining(buffer)) is not None and mlir.name_of(owner) == "memref.subview":
        offsets = mlir.integers(owner.attributes["static_offsets"])
        steps = mlir.integers(owner.attributes["static_strides"])
        if min(offsets, default=0) < 0 or set(steps) != {1} or len(offsets) != len(sizes):
            break
        begins = [begin + offset for begin, offset in zip(begins, offsets, strict=True)]
        buffer = owner.operands[0]
    return buffer, begins, sizes


def is_unaliased(root: mlir.Value) -> bool:
    """Whether no other pointer aliases ``root``, a buffer that is not a view."""
    owner = mlir.defining(root)
    return (
        is_argument(root) if owner is None else mlir.name_of(owner) in ("memref.alloc", "memref.get_global")
    )


def is_argument(root: mlir.Value) -> bool:
    """Whether ``root`` is a buffer of the caller."""
    return mlir.defining(root) is None and mlir.name_of(mlir.block_owner(root)) == "func.func"


def clone_body(
    body: mlir.Block,
    mapping: dict[mlir.Value, mlir.Value],
    pointers: dict[mlir.Value, Pointer],
    indices: dict[int, mlir.Value],
) -> list[mlir.Value]:
    """Clone a generic's body at the insertion point under ``mapping``; returns the mapped yielded values.

    Reads of captured buffers become loads through ``pointers``; ``linalg.index`` becomes the loop counter.
    """
    for operation in mlir.operations(body):
        if mlir.name_of(operation) == "linalg.yield":
            return [_mapped(operand, mapping) for operand in operation.operands]
        copy = mlir.clone(operation)
        results = list(copy.results)
        parts = mlir.walk(copy) if mlir.has_regions(copy) else [copy]
        for inner in parts:
            _remap(inner, copy, mapping)
        for inner in parts:
            replaced = _replacement(inner, pointers, indices)
            if replaced is not None:
                inner.results[0].replace_all_uses_with(replaced)
                if inner == copy:
                    results = [replaced]
                inner.erase()
        mapping.update(zip(operation.results, results, strict=True))
    raise AssertionError("a body without a yield")


def _mapped(operand: mlir.Value, mapping: dict[mlir.Value, mlir.Value]) -> mlir.Value:
    if operand not in mapping:
        owner = mlir.defining(operand)
        if owner is None or mlir.name_of(owner) != "arith.constant":
            return operand
        mapping[operand] = mlir.clone(owner).results[0]
    return mapping[operand]


def _remap(inner: mlir.Op, copy: mlir.Op, mapping: dict[mlir.Value, mlir.Value]) -> None:
    for number, operand in enumerate(inner.operands):
        if operand in mapping:
            inner.operands[number] = mapping[operand]
            continue
        owner = mlir.defining(operand)
        outer_constant = (
            owner is not None and mlir.name_of(owner) == "arith.constant" and not _within(owner, copy)
        )
        if outer_constant:
            with mlir.before(copy):
                inner.operands[number] = _mapped(operand, mapping)


def _within(operation: mlir.Op, ancestor: mlir.Op) -> bool:
    parent = operation.operation.parent
    while parent is not None:
        if parent.operation == ancestor.operation:
            return True
        parent = parent.operation.parent
    return False


def _replacement(
    inner: mlir.Op, pointers: dict[mlir.Value, Pointer], indices: dict[int, mlir.Value]
) -> mlir.Value | None:
    name = mlir.name_of(inner)
    if name == "linalg.index":
        axis = mlir.int_of(inner.attributes["dim"])
        with mlir.before(inner):
            if axis not in indices:
                return mlir.constant(0, "index")
            return arith.index_cast(mlir.index_type(), indices[axis])
    if name == "memref.load" and inner.operands[0] in pointers:
        pointer = pointers[inner.operands[0]]
        with mlir.before(inner):
            offset = mlir.constant(0)
            for index, step in zip(list(inner.operands)[1:], pointer.steps, strict=True):
                position = arith.index_cast(i64(), index)
                offset = plus(offset, times(position, step))
            return load(pointer, offset)
    return None
