"""MLIR text by small calls: fresh value names, constants at the function's head, loops and branches.

The functions of a contraction are long and regular; as text they are parsed in one go.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

#: A value's name in the text.
Name = str


@dataclass
class Loop:
    """A loop being written: its counter, what it carries, and after its end what that became."""

    counter: Name
    carried: list[Name]
    results: list[Name]
    following: list[Name]


class Code:
    """One ``llvm.func``; where it is not ``small``, LLVM may unroll and vectorize its loops."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[tuple[str, str]],
        result: str = "",
        linkage: str = "internal",
        small: bool = True,
    ) -> None:
        size = ', "optsize"' if small else ""
        self._head = (
            f"llvm.func {linkage} @{name}("
            + ", ".join(f"%{argument}: {kind}" for argument, kind in arguments)
            + ")"
            + (f" -> {result}" if result else "")
            + f' attributes {{passthrough = ["noinline", "nounwind"{size}]}} {{'
        )
        self._constants: dict[tuple[str, str], Name] = {}
        self._lines: list[str] = []
        self._count = 0

    def text(self, returned: str = "") -> str:
        """The whole function; ``returned`` is a value and its type."""
        head = [
            f"  {name} = arith.constant {literal} : {kind}"
            for (literal, kind), name in self._constants.items()
        ]
        body = "\n".join([*head, *self._lines])
        return f"{self._head}\n{body}\n  llvm.return {returned}\n}}\n"

    def fresh(self) -> Name:
        self._count += 1
        return f"%v{self._count}"

    def do(self, text: str) -> None:
        self._lines.append(f"  {text}")

    def op(self, text: str) -> Name:
        name = self.fresh()
        self.do(f"{name} = {text}")
        return name

    def const(self, literal: int | str, kind: str = "i64") -> Name:
        key = (str(literal), kind)
        if key not in self._constants:
            self._constants[key] = self.fresh()
        return self._constants[key]

    def _binary(self, operation: str, a: Name, b: Name | int, kind: str = "i64") -> Name:
        right = self.const(b) if isinstance(b, int) else b
        return self.op(f"arith.{operation} {a}, {right} : {kind}")

    def add(self, a: Name, b: Name | int) -> Name:
        return self._binary("addi", a, b)

    def sub(self, a: Name, b: Name | int) -> Name:
        return self._binary("subi", a, b)

    def mul(self, a: Name, b: Name | int) -> Name:
        return self._binary("muli", a, b)

    def div(self, a: Name, b: Name | int) -> Name:
        return self._binary("divui", a, b)

    def rem(self, a: Name, b: Name | int) -> Name:
        return self._binary("remui", a, b)

    def min(self, a: Name, b: Name | int) -> Name:
        return self._binary("minsi", a, b)

    def max(self, a: Name, b: Name | int) -> Name:
        return self._binary("maxsi", a, b)

    def bits(self, a: Name, b: Name | int) -> Name:
        return self._binary("andi", a, b)

    def both(self, a: Name, b: Name) -> Name:
        return self._binary("andi", a, b, "i1")

    def either(self, a: Name, b: Name) -> Name:
        return self._binary("ori", a, b, "i1")

    def ceildiv(self, a: Name, b: Name | int) -> Name:
        """For a divisor above 0 and sizes that do not wrap."""
        return self.div(self.add(a, self.sub(self.const(b) if isinstance(b, int) else b, 1)), b)

    def roundup(self, a: Name, b: int) -> Name:
        return self.mul(self.ceildiv(a, b), b)

    def compare(self, predicate: str, a: Name, b: Name | int) -> Name:
        return self._binary(f"cmpi {predicate},", a, b)

    def choose(self, condition: Name, a: Name, b: Name, kind: str = "i64") -> Name:
        return self.op(f"arith.select {condition}, {a}, {b} : {kind}")

    def at(self, base: Name, index: Name | int, element: str) -> Name:
        """The address of element ``index``."""
        if isinstance(index, int):
            return self.op(f"llvm.getelementptr {base}[{index}] : (!llvm.ptr) -> !llvm.ptr, {element}")
        return self.op(f"llvm.getelementptr {base}[{index}] : (!llvm.ptr, i64) -> !llvm.ptr, {element}")

    def load(self, address: Name, kind: str = "i64", alignment: int = 8) -> Name:
        return self.op(f"llvm.load {address} {{alignment = {alignment} : i64}} : !llvm.ptr -> {kind}")

    def store(self, value: Name, address: Name, kind: str = "i64", alignment: int = 8) -> None:
        self.do(f"llvm.store {value}, {address} {{alignment = {alignment} : i64}} : {kind}, !llvm.ptr")

    def prefetch(self, address: Name, level: int = 1) -> None:
        """Ask for the line of ``address``, which need not exist, into the cache of ``level``."""
        attributes = f"<{{cache = 1 : i32, hint = {4 - level} : i32, rw = 0 : i32}}>"
        self.do(f'"llvm.intr.prefetch"({address}) {attributes} : (!llvm.ptr) -> ()')

    def stack(self, count: int, element: str) -> Name:
        size = self.const(count)
        return self.op(f"llvm.alloca {size} x {element} {{alignment = 64 : i64}} : (i64) -> !llvm.ptr")

    def call(self, function: str, *arguments: tuple[Name, str]) -> None:
        names = ", ".join(name for name, _ in arguments)
        kinds = ", ".join(kind for _, kind in arguments)
        self.do(f"llvm.call @{function}({names}) : ({kinds}) -> ()")

    @contextmanager
    def loop(
        self,
        low: Name | int,
        high: Name | int,
        step: int = 1,
        carried: Sequence[tuple[Name, str]] = (),
    ) -> Generator[Loop, None, None]:
        """``for``; values in ``carried`` go round: the body sets ``following``, ``results`` hold after it."""
        bounds = [self.const(bound) if isinstance(bound, int) else bound for bound in (low, high)]
        counter, result = self.fresh(), self.fresh()
        names = [self.fresh() for _ in carried]
        kinds = ", ".join(kind for _, kind in carried)
        head = f"scf.for {counter} = {bounds[0]} to {bounds[1]} step {self.const(step)}"
        if carried:
            starts = ", ".join(f"{n} = {start}" for n, (start, _) in zip(names, carried, strict=True))
            head = f"{result}:{len(carried)} = {head} iter_args({starts}) -> ({kinds})"
        self.do(f"{head} : i64 {{")
        loop = Loop(counter, names, [f"{result}#{k}" for k in range(len(carried))], [])
        yield loop
        if carried:
            self.do(f"scf.yield {', '.join(loop.following)} : {kinds}")
        self.do("}")

    @contextmanager
    def when(self, condition: Name) -> Generator[None, None, None]:
        self.do(f"scf.if {condition} {{")
        yield
        self.do("}")

    @contextmanager
    def otherwise(self) -> Generator[None, None, None]:
        """What follows a ``when`` directly: runs if its condition did not hold."""
        assert self._lines[-1] == "  }"
        self._lines[-1] = "  } else {"
        yield
        self.do("}")
