"""The text of a function that has the operands and results of an operation, with open sizes among them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from kcache_compiler.mlir.context import Native


class Text:
    """A function on its way. ``names`` and ``types`` are of its arguments."""

    def __init__(self, name: str, operation: Native) -> None:
        self.name = name
        self.types = [str(value.type) for value in operation.operands]
        self.names = [f"%a{place}" for place in range(len(self.types))]
        self._results = [str(value.type) for value in operation.results]
        self._lines: list[str] = []
        self._made = 0
        self._declared: list[str] = []
        #: The type of sizes.
        self._size = "i32"

    def function(self, made: Sequence[str]) -> str:
        """The module: the function that returns these, and what it calls."""
        given = ", ".join(f"{name}: {kind}" for name, kind in zip(self.names, self.types, strict=True))
        body = "\n".join(self._lines)
        results = ", ".join(self._results)
        returned = f"return {', '.join(made)} : {results}" if made else "return"
        head = f'func.func private @"{self.name}"({given}) -> ({results})'
        return "\n".join([f"{head} {{\n{body}\n{returned}\n}}", *self._declared])

    def line(self, text: str, count: int = 1) -> list[str]:
        """Add an operation; the names of its results."""
        name = f"%v{self._made}"
        self._made += 1
        self._lines.append(f"{name}:{count} = {text}")
        return [f"{name}#{place}" for place in range(count)]

    def end(self, text: str) -> None:
        """Add an operation without results."""
        self._lines.append(text)

    def declare(self, text: str) -> None:
        """Add a function that the program has."""
        self._declared.append(text)

    @contextmanager
    def inner(self) -> Generator[list[str], None, None]:
        """Operations that are added meanwhile go into this list: a region."""
        outer, self._lines = self._lines, []
        yield self._lines
        self._lines = outer

    def calling(self, function: str, given: Sequence[str], made: Sequence[str]) -> str:
        """The region that calls a function of the program."""
        kinds, results = ", ".join(given), ", ".join(made)
        self.declare(f'func.func private @"{function}"({kinds}) -> ({results})')
        names = [f"%p{place}" for place in range(len(given))]
        arguments = ", ".join(f"{name}: {kind}" for name, kind in zip(names, given, strict=True))
        returned = ", ".join(f"%r#{place}" for place in range(len(made)))
        return (
            f"\n^bb0({arguments}):\n"
            f'%r:{len(made)} = func.call @"{function}"({", ".join(names)}) : ({kinds}) -> ({results})\n'
            f"stablehlo.return {returned} : {results}\n"
        )

    @staticmethod
    def type(element: str, shape: Sequence[int]) -> str:
        """A tensor type; sizes below 0 are open."""
        return f"tensor<{''.join(f'{size}x' if size >= 0 else '?x' for size in shape)}{element}>"

    def number(self, number: int, element: str) -> str:
        """A scalar."""
        self._size = element
        return self.line(f"stablehlo.constant dense<{number}> : tensor<{element}>")[0]

    def sizes(self, name: str, kind: Native, element: str) -> list[str]:
        """The sizes of a value, each a scalar of ``element``."""
        return [self._size_of(name, kind, axis, element) for axis in range(kind.rank)]

    def _size_of(self, name: str, kind: Native, axis: int, element: str) -> str:
        self._size = element
        if kind.shape[axis] >= 0:
            return self.number(kind.shape[axis], element)
        text = f"stablehlo.get_dimension_size {name}, dim = {axis} : ({kind}) -> tensor<i32>"
        (found,) = self.line(text)
        if element == "i32":
            return found
        return self.line(f"stablehlo.convert {found} : (tensor<i32>) -> tensor<{element}>")[0]

    def vector(self, scalars: Sequence[str]) -> str:
        """Sizes side by side."""
        if not scalars:
            return self.line(f"stablehlo.constant dense<> : tensor<0x{self._size}>")[0]
        one, whole = f"tensor<1x{self._size}>", f"tensor<{len(scalars)}x{self._size}>"
        parts = [
            self.line(f"stablehlo.reshape {scalar} : (tensor<{self._size}>) -> {one}")[0]
            for scalar in scalars
        ]
        kinds = ", ".join([one] * len(parts))
        return self.line(f"stablehlo.concatenate {', '.join(parts)}, dim = 0 : ({kinds}) -> {whole}")[0]

    def iota(self, sizes: Sequence[str], kind: Native, axis: int, element: str) -> str:
        """Places along an axis of a value of type ``kind``."""
        made = self.type(element, list(kind.shape))
        if kind.has_static_shape:
            return self.line(f"stablehlo.iota dim = {axis} : {made}")[0]
        shape = self.vector(sizes)
        given = f"(tensor<{len(sizes)}x{self._size}>) -> {made}"
        return self.line(f"stablehlo.dynamic_iota {shape}, dim = {axis} : {given}")[0]

    def first(self, value: str, kind: str, sizes: Sequence[str], made: str) -> str:
        """The first elements of a value of type ``kind``: as many along each axis as ``sizes`` say."""
        whole = f"tensor<{len(sizes)}x{self._size}>"
        zeros, ones = (self.line(f"stablehlo.constant dense<{n}> : {whole}")[0] for n in (0, 1))
        limits = self.vector(sizes)
        numbers = f"({kind}, {whole}, {whole}, {whole}) -> {made}"
        return self.line(f'"stablehlo.real_dynamic_slice"({value}, {zeros}, {limits}, {ones}) : {numbers}')[0]
