"""Operations that take long to compile and repeat: each is compiled once, as a kernel inside of the kernel.

Definitions of transforms and factors are long, loops and branches are launches of their own, functions with
loops inside are long code. Where a program has many that say the same, up to what they are given, one becomes
a *part*: a module of its own that goes through the whole pipeline. In the program a marker stands for each,
and its launch calls the entry of the part. So a chain of them has the bits of one behind the other.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Iterator
from typing import Any

from kcache_compiler.codegen import mlir
from kcache_compiler.codegen.formula import evaluate
from kcache_compiler.codegen.launch import Outlined
from kcache_compiler.codegen.legalize.carried import noted, plain, replace
from kcache_compiler.codegen.legalize.elementwise import signless_tensor
from kcache_compiler.codegen.legalize.expansions import drawn
from kcache_compiler.codegen.legalize.expansions.text import Lines, Tensor
from kcache_compiler.codegen.part import Part
from kcache_compiler.codegen.shuffles.marker import Steps, build_marker, marked, nothing, seen
from kcache_compiler.codegen.stage import Stage, Unit, run
from kcache_compiler.errors import CompilerError
from kcache_compiler.package.target import Device
from kcache_compiler.types import DTYPE_BYTES

#: Equal operations from which on they are a part, and those that are made one with what is around them.
MANY, MORE = 32, 256
PART = "part"
_NAMES = (
    *("chlo.polygamma", "chlo.zeta"),
    *("stablehlo.case", "stablehlo.if", "stablehlo.while"),
    *("stablehlo.cholesky", "stablehlo.custom_call", "stablehlo.fft", "stablehlo.rng"),
    *("stablehlo.rng_bit_generator", "stablehlo.triangular_solve"),
)
_DRAW = re.compile(r"kcache\.draw = (\d+) : i64")
_FUSED = (
    *("stablehlo.batch_norm_grad", "stablehlo.batch_norm_training"),
    "stablehlo.select_and_scatter",
)
_COMPLEX = ("complex<f32>", "complex<f64>")


class _Piece:
    """An operation, and what it says up to the values that it is given, as a ``key``."""

    def __init__(self, op: mlir.Op) -> None:
        self.op = op
        every = self._every()
        places = {value: place for place, value in enumerate(dict.fromkeys(every))}
        owners = {place: mlir.defining(value) for value, place in places.items()}
        #: Constants are part of what it says, by their places among the values that it reads.
        self._constants = {place: owner for place, owner in owners.items() if _is_constant(owner)}
        self.key: tuple[Hashable, ...] = (
            mlir.local_text(op),
            tuple(places[value] for value in every),
            tuple((place, mlir.local_text(owner)) for place, owner in self._constants.items()),
        )

    def _every(self) -> list[mlir.Value]:
        outside = mlir.outside_values(self.op) if mlir.has_regions(self.op) else []
        return [*self.op.operands, *outside]

    def given(self) -> list[mlir.Value]:
        """What it is given now, as others become parts."""
        read = enumerate(dict.fromkeys(self._every()))
        return [value for place, value in read if place not in self._constants]

    def may_be_a_part(self) -> bool:
        """Whether all that comes and goes is elements in memory, of sizes that are known."""
        given, results = self.given(), list(self.op.results)
        return bool(given) and bool(results) and all(_is_plain(value.type) for value in [*given, *results])

    def text(self) -> str:
        """A module of it alone."""
        given, read = self.given(), list(dict.fromkeys(self._every()))
        kinds = [value.type for value in given]
        results = [result.type for result in self.op.results]
        arguments = ", ".join(f"%a{place}: {kind}" for place, kind in enumerate(kinds))
        names = ", ".join(f"%a{place}" for place in range(len(kinds)))
        made = ", ".join(f"%r#{place}" for place in range(len(results)))
        types = ", ".join(map(str, results))
        module = mlir.parse(
            f"func.func @main({arguments}) -> ({types}) {{\n"
            f'%r:{len(results)} = "builtin.unrealized_conversion_cast"({names}) : '
            f"({', '.join(map(str, kinds))}) -> ({types})\n"
            f"return {made} : {types}\n}}"
        )
        body = mlir.block_of(mlir.main_function(module))
        stands, values = mlir.operations(body)[0], dict(zip(given, body.arguments, strict=True))
        with mlir.before(stands):
            for place, owner in self._constants.items():
                values[read[place]] = mlir.clone(owner).results[0]
            copy = mlir.clone(self.op)
        for inner in mlir.walk(copy):
            for number, operand in enumerate(inner.operands):
                if operand in values:
                    inner.operands[number] = values[operand]
        replace(stands, list(copy.results))
        return mlir.whole_text(module)


class _Draw(_Piece):
    """A draw of random numbers: the state that its bits begin with, which tells it from others, is given."""

    def __init__(self, op: mlir.Op) -> None:
        super().__init__(op)
        said = mlir.local_text(op)
        self.key = (_DRAW.sub("", said), *self.key[1:])
        number = _DRAW.search(said)
        self._number = int(number[1]) if number else 0
        self._state: mlir.Value | None = None

    def given(self) -> list[mlir.Value]:
        if self._state is None:
            with mlir.before(self.op):
                kind, value = mlir.type_of(drawn.STATE.type), mlir.attribute(drawn.state_of(self._number))
                self._state = mlir.value("stablehlo.constant", (), kind, value=value)
        return [*super().given(), self._state]

    def text(self) -> str:
        given = self.given()
        tensors = [_tensor(f"%a{place}", value) for place, value in enumerate(given)]
        arguments = dict(zip(given, tensors, strict=True))
        lines = Lines()
        bounds = [self._bound(lines, value, arguments) for value in list(self.op.operands)[:2]]
        shape = _tensor("", self.op.results[0]).shape
        which = drawn.distribution_of(self.op)
        made = drawn.drawn(which, lines, bounds[0], bounds[1], shape, lambda: tensors[-1])
        taken = ", ".join(f"{one.name}: {one.type}" for one in tensors)
        body = "\n".join(lines.lines)
        return f"func.func @main({taken}) -> {made.type} {{\n{body}\nreturn {made.name} : {made.type}\n}}"

    def _bound(self, lines: Lines, value: mlir.Value, arguments: dict[mlir.Value, Tensor]) -> Tensor:
        if value in arguments:
            return arguments[value]
        owner = mlir.defining(value)
        assert owner is not None
        kind = _tensor("", value)
        return lines.line(f"stablehlo.constant {owner.attributes['value']}", kind.element, kind.shape)


def _tensor(name: str, value: mlir.Value) -> Tensor:
    kind = value.type
    return Tensor(name, str(kind.element_type), tuple(size or 0 for size in mlir.sizes_of(kind)))


def _is_constant(owner: mlir.Op | None) -> bool:
    return owner is not None and mlir.name_of(owner) == "stablehlo.constant"


def _is_plain(kind: mlir.Type) -> bool:
    if not mlir.is_tensor(kind):
        return False
    sizes, element = mlir.sizes_of(kind), str(kind.element_type)
    return None not in sizes and 0 not in sizes and (element in DTYPE_BYTES or element in _COMPLEX)


def cut_parts(unit: Unit, pipeline: tuple[Stage, ...]) -> None:
    """Put a note in place of each operation that is a part, and compile the parts by ``pipeline``."""
    if isinstance(unit.target, Device) or unit.given:
        return
    roots: list[mlir.Op] = (
        [mlir.main_function(unit.module)] if len(mlir.named(unit.module, *_NAMES, *_FUSED)) >= MANY else []
    )
    while roots:
        alike: dict[Hashable, list[_Piece]] = {}
        for op in [op for root in roots for op in _outermost(root)]:
            piece = _Draw(op) if mlir.name_of(op) == "stablehlo.rng" else _Piece(op)
            alike.setdefault(piece.key, []).append(piece)
        roots = []
        for pieces in alike.values():
            first = pieces[0]
            part = None
            enough = MORE if mlir.name_of(first.op) in _FUSED else MANY
            if len(pieces) >= enough and first.may_be_a_part():
                part = _compiled(unit, first.text(), len(first.given()), pipeline)
            if part is None:
                roots += [piece.op for piece in pieces if mlir.has_regions(piece.op)]
                continue
            for piece in pieces:
                _note(piece, part)


def _outermost(root: mlir.Op) -> Iterator[mlir.Op]:
    """Those below ``root`` that no other below it holds."""
    inside: set[Any] = set()
    for op in mlir.named(root, *_NAMES, *_FUSED):
        if op == root or op in inside:
            continue
        inside.update(mlir.walk(op)[1:])
        yield op


def _note(piece: _Piece, part: Part) -> None:
    op = piece.op
    with mlir.before(op):
        nothing = mlir.value("tensor.empty", (), mlir.type_of("tensor<1xi1>"))  # else it may seem no cast
        kinds = [result.type for result in op.results]
        made = noted(op, [*piece.given(), nothing], kinds, {"kind": PART, "name": part.name})
    replace(op, list(made.results))


def _compiled(unit: Unit, text: str, count: int, pipeline: tuple[Stage, ...]) -> Part | None:
    """The part of a module that takes ``count`` inputs; None where it is no kernel by itself."""
    name = f"kcache_part_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if name in unit.parts:
        return unit.parts[name]
    inner = Unit(text, count, unit.target, unit.options, unit.libraries)
    stages = [stage.name for stage in pipeline]
    end = stages.index("optimize")
    try:
        run(pipeline[:end], inner, lambda _: None)
        for entry in ("kcache_run", "kcache_abi"):
            inner.llvm_ir = inner.llvm_ir.replace(f"@{entry}(", f"@{name}{entry[6:].removeprefix('_run')}(")
        run(pipeline[end : stages.index("link")], inner, lambda _: None)
    except CompilerError:
        return None  # what cannot be compiled is refused where it stands
    fixed, one = (evaluate(inner.workspace, {"workers": workers}) for workers in (0, 1))
    if fixed % 64 or not inner.launches:
        return None
    widest = max(inner.launches, key=lambda one: int(one.extent) / max(1, int(one.grain)))
    ops = tuple(dict.fromkeys(op for launch in inner.launches for op in launch.ops))
    code = (inner.object_code, inner.assembly)
    part = Part(name, *code, fixed, one - fixed, ops, widest.extent, widest.grain, tuple(inner.gemm_forms))
    unit.parts.update(inner.parts)
    unit.parts[name] = part
    return part


def mark_part(made: mlir.Op, note: dict[str, Any]) -> list[mlir.Value]:
    """What it is given; its results, and a truth that asks for all it is given, so that all is read."""
    inputs = [plain(value) for value in list(made.operands)[:-1]]
    kinds = [*(signless_tensor(result.type) for result in made.results), mlir.type_of("tensor<1xi1>")]
    empty = [mlir.value("tensor.empty", (), kind) for kind in kinds]

    def read(scalars: list[mlir.Value]) -> list[mlir.Value]:
        truth = mlir.type_of("i1")
        asked = [seen(scalar) for scalar in scalars[: len(inputs)]]
        while len(asked) > 1:
            asked.append(mlir.value("arith.xori", [asked.pop(0), asked.pop(0)], truth))
        return [*(nothing(kind.element_type) for kind in kinds[:-1]), asked[0]]

    return list(build_marker(PART, note, inputs, empty, read).results)[:-1]


def lay_out_parts(unit: Unit) -> None:
    """What parts are given and what they make lies row by row in buffers of its own, as the ABI says."""
    for generic in mlir.named(mlir.main_function(unit.module), "linalg.generic"):
        found = marked(generic)
        if found is None or found[0] != PART:
            continue
        inputs = int(next(iter(generic.attributes["operandSegmentSizes"])))
        for number, operand in enumerate(list(generic.operands)):
            sizes, element = mlir.sizes_of(operand.type), operand.type.element_type
            kind = mlir.type_of(f"memref<{''.join(f'{size}x' for size in sizes)}{element}>")
            if operand.type == kind:
                continue
            with mlir.before(generic):
                none = {"operandSegmentSizes": mlir.attribute("array<i32: 0, 0>")}
                fresh = mlir.create("memref.alloc", (), [kind], none).results[0]
                if number < inputs:
                    mlir.create("memref.copy", [operand, fresh])
            if number >= inputs:
                with mlir.after(generic):
                    mlir.create("memref.copy", [fresh, operand])
            generic.operands[number] = fresh


def outline_part(unit: Unit, generic: mlir.Op, name: str) -> Outlined | None:
    """The launch of a part; None for other operations."""
    found = marked(generic)
    if found is None or found[0] != PART:
        return None
    part = unit.parts[found[1]["name"]]
    buffers = list(generic.operands)[:-1]
    launch = Outlined(name, Steps(1, 1, ()), part.ops, buffers, [], ["!llvm.ptr"] * len(buffers))
    launch.scratch, launch.shared, launch.part = part.scratch, part.fixed, part
    return launch
