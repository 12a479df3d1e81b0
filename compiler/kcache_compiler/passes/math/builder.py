"""A small typed expression builder for scalar functions, printed as MLIR text.

An algorithm is Python code over `Expr` values; running it records operations of `arith` and
`math` (fma, sqrt, floor and the like only) in a `Body`. The same text serves f32 and f64: an
expression knows its format, and Python numbers become constants of the other operand's type.
Equal operations are recorded once, and unused ones are not printed. Types are written
``@f32@`` in the record, so that one record prints for scalars and for vectors of any shape.
"""

from __future__ import annotations

import functools
import itertools
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Format:
    """An IEEE binary format: its name, its integer's, and where its fields lie."""

    name: str
    bits: int
    mantissa: int
    code: str
    int_code: str

    @property
    def int_type(self) -> str:
        return f"i{self.bits}"

    @property
    def bias(self) -> int:
        return (1 << (self.bits - self.mantissa - 2)) - 1

    @property
    def inf_bits(self) -> int:
        return ((2 << (self.bits - self.mantissa - 2)) - 1) << self.mantissa

    @property
    def magic(self) -> float:
        """1.5 * 2**mantissa: adding it rounds to an integer that stands in the low bits of the sum."""
        return 1.5 * 2.0**self.mantissa

    def bits_of(self, value: float) -> int:
        """The encoding of ``value`` rounded to this format (f32 and f64 only)."""
        if self.code == "f" and abs(value) != float("inf") and abs(value) >= 3.4028235677973366e38:
            value = float("inf") if value > 0 else float("-inf")
        return struct.unpack("<" + self.int_code, struct.pack("<" + self.code, value))[0]


F16 = Format("f16", 16, 10, "e", "H")
BF16 = Format("bf16", 16, 7, "", "")
F32 = Format("f32", 32, 23, "f", "I")
F64 = Format("f64", 64, 52, "d", "Q")
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}

_NAME = re.compile(r"%\w+")
_TYPE = re.compile(r"@(\w+)@")
_BOOL = re.compile(r"(constant (?:true|false)) : i1")
_DENSE = re.compile(r"@dense\(([^)]*)\)@")


@dataclass
class Line:
    """One recorded operation: its results, its text, and whether it holds regions."""

    results: tuple[str, ...]
    text: str


@dataclass
class Body:
    """Operations recorded so far in one block, and those of the blocks around it."""

    parent: Body | None = None
    lines: list[Line] = field(default_factory=list[Line])
    known: dict[str, Expr] = field(default_factory=dict[str, "Expr"])
    counter: list[int] = field(default_factory=lambda: [0])
    loops: bool = False
    #: The target scales floats by powers of two in one instruction.
    scales: bool = False
    #: Numerics are fast: results may be off by some units more.
    fast: bool = False

    def fresh(self) -> str:
        self.counter[0] += 1
        return f"%{self.counter[0]}"

    def find(self, text: str) -> Expr | None:
        body: Body | None = self
        while body is not None:
            if text in body.known:
                return body.known[text]
            body = body.parent
        return None

    def inner(self) -> Body:
        return Body(parent=self, counter=self.counter, scales=self.scales, fast=self.fast)


_CURRENT: list[Body] = []


def emit(text: str, type_: str) -> Expr:
    """The value of operation ``text``, recorded in the current body unless it is there already."""
    body = _CURRENT[-1]
    known = body.find(text)
    if known is not None:
        return known
    value = Expr(body.fresh(), type_)
    body.lines.append(Line((value.name,), text))
    body.known[text] = value
    return value


def scales() -> bool:
    """Whether the target of the function that is recorded has ``ldexp`` of f32."""
    return _CURRENT[-1].scales


def fast() -> bool:
    """Whether the function that is recorded is one of fast numerics."""
    return _CURRENT[-1].fast


Number = int | float


@dataclass(frozen=True)
class Expr:
    """An SSA value of scalar type ``type`` (``f32``, ``i64``, ``i1``...)."""

    name: str
    type: str

    @property
    def fmt(self) -> Format:
        return FORMATS[self.type]

    @property
    def is_float(self) -> bool:
        return self.type in FORMATS

    def like(self, other: Expr | Number) -> Expr:
        return other if isinstance(other, Expr) else const(other, self.type)

    def _binary(self, float_op: str, int_op: str, other: Expr | Number, swap: bool = False) -> Expr:
        left, right = (self.like(other), self) if swap else (self, self.like(other))
        if left.type != right.type:
            raise TypeError(f"{float_op} of {left.type} and {right.type}")
        op = float_op if self.is_float else int_op
        return emit(f"arith.{op} {left.name}, {right.name} : @{left.type}@", left.type)

    def __add__(self, other: Expr | Number) -> Expr:
        return self._binary("addf", "addi", other)

    def __radd__(self, other: Number) -> Expr:
        return self._binary("addf", "addi", other, swap=True)

    def __sub__(self, other: Expr | Number) -> Expr:
        return self._binary("subf", "subi", other)

    def __rsub__(self, other: Number) -> Expr:
        return self._binary("subf", "subi", other, swap=True)

    def __mul__(self, other: Expr | Number) -> Expr:
        return self._binary("mulf", "muli", other)

    def __rmul__(self, other: Number) -> Expr:
        return self._binary("mulf", "muli", other, swap=True)

    def __truediv__(self, other: Expr | Number) -> Expr:
        return self._binary("divf", "", other)

    def __rtruediv__(self, other: Number) -> Expr:
        return self._binary("divf", "", other, swap=True)

    def __and__(self, other: Expr | Number) -> Expr:
        return self._binary("", "andi", other)

    def __or__(self, other: Expr | Number) -> Expr:
        return self._binary("", "ori", other)

    def __xor__(self, other: Expr | Number) -> Expr:
        return self._binary("", "xori", other)

    def __lshift__(self, other: Expr | Number) -> Expr:
        return self._binary("", "shli", other)

    def __rshift__(self, other: Expr | Number) -> Expr:
        return self._binary("", "shrsi", other)

    def lshr(self, other: Expr | Number) -> Expr:
        return self._binary("", "shrui", other)

    def urem(self, other: Expr | Number) -> Expr:
        return self._binary("", "remui", other)

    def __neg__(self) -> Expr:
        return emit(f"arith.negf {self.name} : @{self.type}@", self.type) if self.is_float else 0 - self

    def __invert__(self) -> Expr:
        return self ^ (1 if self.type == "i1" else -1)

    def _compare(self, float_op: str, int_op: str, other: Expr | Number) -> Expr:
        right = self.like(other)
        kind, op = ("cmpf", float_op) if self.is_float else ("cmpi", int_op)
        return emit(f"arith.{kind} {op}, {self.name}, {right.name} : @{self.type}@", "i1")

    def __lt__(self, other: Expr | Number) -> Expr:
        return self._compare("olt", "slt", other)

    def __le__(self, other: Expr | Number) -> Expr:
        return self._compare("ole", "sle", other)

    def __gt__(self, other: Expr | Number) -> Expr:
        return self._compare("ogt", "sgt", other)

    def __ge__(self, other: Expr | Number) -> Expr:
        return self._compare("oge", "sge", other)

    def eq(self, other: Expr | Number) -> Expr:
        """Ordered and equal."""
        return self._compare("oeq", "eq", other)

    def ne(self, other: Expr | Number) -> Expr:
        """Unordered or not equal."""
        return self._compare("une", "ne", other)

    def ult(self, other: Expr | Number) -> Expr:
        """Unsigned less than, of integers."""
        return self._compare("", "ult", other)

    def isnan(self) -> Expr:
        return emit(f"arith.cmpf uno, {self.name}, {self.name} : @{self.type}@", "i1")


def const(value: Number, type_: str) -> Expr:
    """A constant; a float is rounded to ``type_``."""
    if type_ in FORMATS:
        fmt = FORMATS[type_]
        literal = f"0x{fmt.bits_of(float(value)):0{fmt.bits // 4}X}"
    elif type_ == "i1":
        literal = "true" if value else "false"
    else:
        width = int(type_[1:])
        wrapped = int(value) & ((1 << width) - 1)
        literal = str(wrapped - (1 << width) if wrapped >> (width - 1) else wrapped)
    return emit(f"arith.constant @dense({literal})@ : @{type_}@", type_)


def fma(a: Expr, b: Expr | Number, c: Expr | Number) -> Expr:
    """a * b + c, rounded once."""
    right, addend = a.like(b), a.like(c)
    return emit(f"math.fma {a.name}, {right.name}, {addend.name} : @{a.type}@", a.type)


def select(condition: Expr, a: Expr | Number, b: Expr | Number) -> Expr:
    typed = a if isinstance(a, Expr) else b
    if not isinstance(typed, Expr):
        raise TypeError("select needs one expression")
    left, right = typed.like(a), typed.like(b)
    text = f"arith.select {condition.name}, {left.name}, {right.name} : @cond@@{typed.type}@"
    return emit(text, typed.type)


def unary(op: str, x: Expr) -> Expr:
    """A `math` operation that is one IEEE instruction or a bit operation on every target."""
    return emit(f"math.{op} {x.name} : @{x.type}@", x.type)


def sqrt(x: Expr) -> Expr:
    return unary("sqrt", x)


def floor(x: Expr) -> Expr:
    return unary("floor", x)


def trunc(x: Expr) -> Expr:
    return unary("trunc", x)


def nearest(x: Expr) -> Expr:
    """Round to an integer, ties to even."""
    return unary("roundeven", x)


def cast(op: str, x: Expr, type_: str) -> Expr:
    """`arith` conversion ``op`` (extf, truncf, extui, extsi, trunci, sitofp, uitofp, fptosi, bitcast)."""
    return emit(f"arith.{op} {x.name} : @{x.type}@ to @{type_}@", type_)


def bits(x: Expr) -> Expr:
    return cast("bitcast", x, x.fmt.int_type)


def from_bits(i: Expr, fmt: Format) -> Expr:
    return cast("bitcast", i, fmt.name)


def widen(x: Expr) -> Expr:
    """f32 as f64."""
    return cast("extf", x, "f64")


def narrow(x: Expr, type_: str = "f32") -> Expr:
    return cast("truncf", x, type_)


def to_float(i: Expr, fmt: Format) -> Expr:
    """A signed integer of at most 32 bits' value as a float; the path that every target has as a vector."""
    small = cast("trunci", i, "i32") if i.type == "i64" else i
    return cast("sitofp", small, fmt.name)


def ldexp(x: Expr, exponent: Expr) -> Expr:
    """x 2**exponent for an i32, rounded once. Only where the target ``scales``: a library call elsewhere."""
    text = f"llvm.intr.ldexp({x.name}, {exponent.name}) : (@{x.type}@, @{exponent.type}@) -> @{x.type}@"
    return emit(text, x.type)


def copysign(magnitude: Expr, sign: Expr) -> Expr:
    """By integer operations: a copysign that is rounded to a narrower type afterwards makes LLVM round
    the sign's operand too, with a library call where a narrow float is concerned.
    """
    fmt = magnitude.fmt
    top = -1 << (fmt.bits - 1)
    return from_bits((bits(magnitude) & ~top) | (bits(sign) & top), fmt)


def minimum(limit: Expr | Number, x: Expr) -> Expr:
    """The smaller; NaN when ``x`` is NaN. One instruction on x86-64."""
    bound = x.like(limit)
    return select(bound < x, bound, x)


def maximum(limit: Expr | Number, x: Expr) -> Expr:
    """The larger; NaN when ``x`` is NaN."""
    bound = x.like(limit)
    return select(bound > x, bound, x)


def clamp(x: Expr, low: Number, high: Number) -> Expr:
    return minimum(high, maximum(low, x))


def horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    """sum coefficients[i] * x**i, by Horner's rule with fused operations."""
    result = const(coefficients[-1], x.type)
    for coefficient in reversed(coefficients[:-1]):
        result = fma(result, x, coefficient)
    return result


def estrin(x: Expr, coefficients: Sequence[float]) -> Expr:
    """The same sum as a tree: less latency, slightly more rounding; for the small terms of a function."""
    terms = [const(c, x.type) for c in coefficients]
    power = x
    while len(terms) > 1:
        paired = [fma(terms[i + 1], power, terms[i]) for i in range(0, len(terms) - 1, 2)]
        terms = paired + ([terms[-1]] if len(terms) % 2 else [])
        power = power * power if len(terms) > 1 else power
    return terms[0]


def _print_lines(body: Body, indent: str) -> list[str]:
    return [f"{indent}{', '.join(line.results)} = {line.text}" for line in body.lines]


def loop(
    state: Sequence[Expr],
    condition: Callable[[Sequence[Expr]], Expr],
    step: Callable[[Sequence[Expr]], Sequence[Expr]],
) -> list[Expr]:
    """While ``condition(state)``: ``state = step(state)``. Such functions are not vectorized."""
    outer = _CURRENT[-1]
    before, after = outer.inner(), outer.inner()
    first = [Expr(outer.fresh(), v.type) for v in state]
    second = [Expr(outer.fresh(), v.type) for v in state]
    _CURRENT.append(before)
    proceed = condition(first)
    _CURRENT[-1] = after
    stepped = step(second)
    _CURRENT.pop()
    types = ", ".join(f"@{v.type}@" for v in state)
    names = ", ".join(v.name for v in first)
    starts = ", ".join(f"{a.name} = {b.name}" for a, b in zip(first, state, strict=True))
    blocks = ", ".join(f"{v.name}: @{v.type}@" for v in second)
    text = [f"scf.while ({starts}) : ({types}) -> ({types}) {{"]
    text += _print_lines(before, "  ")
    text += [f"  scf.condition({proceed.name}) {names} : {types}", "} do {", f"^bb0({blocks}):"]
    text += _print_lines(after, "  ")
    text += [f"  scf.yield {', '.join(v.name for v in stepped)} : {types}", "}"]
    root: Body | None = outer
    while root is not None:
        root.loops, root = True, root.parent
    base = outer.fresh()
    count = len(state)
    results = [Expr(f"{base}#{i}" if count > 1 else base, v.type) for i, v in enumerate(state)]
    outer.lines.append(Line((f"{base}:{count}" if count > 1 else base,), "\n".join(text)))
    return results


@dataclass(frozen=True)
class Function:
    """A recorded scalar function; ``text`` prints it for a scalar (shape None) or a vector shape."""

    name: str
    arguments: tuple[str, ...]
    result: str
    lines: tuple[str, ...]
    value: str
    loops: bool

    def text(self, symbol: str, shape: str | None = None) -> str:
        """``func.func private @symbol``; ``shape`` is like ``16x`` for vectors of 16."""
        inputs = ", ".join(f"%a{i}: @{t}@" for i, t in enumerate(self.arguments))
        lines, value = (
            (self._by_element(shape), "%whole") if shape and self.loops else (self.lines, self.value)
        )
        header = f"func.func private @{symbol}({inputs}) -> @{self.result}@ {{"
        text = "\n".join([header, *lines, f"  return {value} : @{self.result}@", "}"])
        return _scalar(text) if shape is None else _vector(text, shape)

    def _by_element(self, shape: str) -> list[str]:
        """Loops take one element at a time."""
        dims = [int(d) for d in shape.split("x") if d]
        lines: list[str] = []
        total = f"%start = ub.poison : @{self.result}@"
        name = "%start"
        lines.append(total)
        indices = list(itertools.product(*map(range, dims)))
        for count, index in enumerate(indices):
            at = ", ".join(map(str, index))
            for i, t in enumerate(self.arguments):
                lines.append(f"%e{count}a{i} = vector.extract %a{i}[{at}] : {t} from @{t}@")
            body = _scalar("\n".join(self.lines))
            rename = functools.partial(re.sub, r"(%|\^)(\w+)", rf"\1e{count}\2")
            lines.append(rename(body))
            following = "%whole" if count == len(indices) - 1 else f"%w{count}"
            element = rename(self.value)
            lines.append(
                f"{following} = vector.insert {element}, {name} [{at}] : {self.result} into @{self.result}@"
            )
            name = following
        return lines


def _scalar(text: str) -> str:
    plain = _DENSE.sub(r"\1", _TYPE.sub(r"\1", text.replace("@cond@", "")))
    return _BOOL.sub(r"\1", plain)


def _vector(text: str, shape: str) -> str:
    text = text.replace("@cond@", f"vector<{shape}i1>, ")
    return _DENSE.sub(r"dense<\1>", _TYPE.sub(rf"vector<{shape}\1>", text))


def record(
    name: str,
    arguments: Sequence[str],
    algorithm: Callable[..., Expr],
    scales: bool = False,
    fast: bool = False,
) -> Function:
    """Run ``algorithm`` on arguments of the given types and keep the operations that its result needs.

    ``scales`` says that the target has one instruction for x 2**k of f32, ``fast`` that numerics are.
    """
    body = Body(scales=scales, fast=fast)
    _CURRENT.append(body)
    try:
        value = algorithm(*(Expr(f"%a{i}", t) for i, t in enumerate(arguments)))
    finally:
        _CURRENT.pop()
    needed = {value.name.split("#")[0]}
    kept: list[Line] = []
    for line in reversed(body.lines):
        if {r.split(":")[0] for r in line.results} & needed:
            kept.append(line)
            needed |= set(_NAME.findall(line.text))
    lines = tuple(f"  {', '.join(line.results)} = {line.text}" for line in reversed(kept))
    return Function(name, tuple(arguments), value.type, lines, value.name, body.loops)
