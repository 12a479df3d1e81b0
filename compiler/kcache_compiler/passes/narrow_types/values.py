"""Values of small elements in two forms: bytes that hold them, and f32 where they are floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.legalize.elementwise import cast, elementwise, empty_like, signless_tensor
from kcache_compiler.passes.narrow_types import codec
from kcache_compiler.passes.narrow_types.formats import FLOATS, INTEGERS, carrier
from kcache_compiler.passes.narrow_types.integer_emitter import Emitter, Scalars, Tensors

Code = Callable[..., mlir.Value]


def small(kind: mlir.Type) -> str:
    """The small element of a tensor type, or nothing."""
    if not mlir.is_tensor(kind):
        return ""
    element = str(mlir.element_type(kind))
    return element if element in INTEGERS or element in FLOATS else ""


def like(kind: mlir.Type, element: str) -> mlir.Type:
    """The tensor type with another element."""
    sizes = "".join(f"{'?' if size is None else size}x" for size in mlir.sizes_of(kind))
    return mlir.type_of(f"tensor<{sizes}{element}>")


def held(kind: mlir.Type) -> mlir.Type:
    """The type of the bytes that hold elements of ``kind``."""
    return like(kind, carrier(small(kind)))


class Values:
    """The two forms of every value of the old module that has small elements; each is made where it is first
    asked for, right behind the other one.
    """

    def __init__(self) -> None:
        self._bytes: dict[mlir.Value, mlir.Value] = {}
        self._wide: dict[mlir.Value, mlir.Value] = {}
        self._low: dict[mlir.Value, mlir.Value] = {}

    def set_bytes(self, old: mlir.Value, new: mlir.Value) -> None:
        self._bytes[old] = new

    def set_wide(self, old: mlir.Value, new: mlir.Value) -> None:
        self._wide[old] = new

    def set_low(self, old: mlir.Value, new: mlir.Value) -> None:
        """Of integers: bytes whose other bits say nothing."""
        self._low[old] = new

    def low(self, old: mlir.Value) -> mlir.Value:
        """Integers as bytes of which only the low bits count."""
        return self._low[old] if old in self._low else self.bytes_of(old)

    def bytes_of(self, old: mlir.Value) -> mlir.Value:
        if old not in self._bytes and old in self._low:
            with _behind(self._low[old]):
                self._bytes[old] = wrapped(self._low[old], small(old.type))
        if old not in self._bytes:
            wide = self._wide[old]
            with _behind(wide):
                self._bytes[old] = encoded(wide, small(old.type))
        return self._bytes[old]

    def wide(self, old: mlir.Value) -> mlir.Value:
        """Floats as f32; integers are computed with as they are."""
        element = small(old.type)
        if element in INTEGERS:
            return self.bytes_of(old)
        if old not in self._wide:
            held = self._bytes[old]
            with _behind(held):
                self._wide[old] = apply(codec.decode, [held], "f32", element)
        return self._wide[old]


def _behind(result: mlir.Value) -> mlir.InsertionPoint:
    owner = mlir.defining(result)
    return mlir.at_start(mlir.owner_block(result)) if owner is None else mlir.after(owner)


def encoded(wide: mlir.Value, element: str, computed: bool = False) -> mlir.Value:
    """The codes nearest to floats."""
    width = 64 if str(mlir.element_type(wide.type)) == "f64" else 32
    return apply(codec.encode, [wide], "i8", element, computed, width=width)


def rounded(wide: mlir.Value, element: str, above_zero: bool = False) -> mlir.Value:
    """The numbers of the small type nearest to f32, as f32; ``above_zero``: 0 is what f32 cannot hold."""
    return apply(codec.rounded, [wide], "f32", element, above_zero)


def wrapped(number: mlir.Value, element: str) -> mlir.Value:
    """The small integers in the low bits of bytes."""
    return apply(codec.wrap, [number], carrier(element), element)


def apply(code: Code, operands: list[mlir.Value], result: str, *facts: Any, width: int = 32) -> mlir.Value:
    """``code`` of each element, of type ``made``: a generic, or StableHLO inside of a region of scalars."""
    kind = like(operands[0].type, result)
    if mlir.among_scalars():
        emitter: Emitter = Tensors(width)
        return code(emitter, *operands, *facts)
    plain = [cast(operand, signless_tensor(operand.type)) for operand in operands]
    output = empty_like(plain[0], signless_tensor(kind))
    known = elementwise(plain, output, lambda scalars: code(Scalars(width), *scalars, *facts))
    return cast(known, kind)
