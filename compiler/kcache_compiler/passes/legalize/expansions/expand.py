"""Operations that become calls of their definitions."""

from __future__ import annotations

import math
from collections.abc import Callable

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.llvm.target import Target
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import func
from kcache_compiler.passes.legalize.concatenate import split_concatenations
from kcache_compiler.passes.legalize.elementwise import cast, signless_tensor
from kcache_compiler.passes.legalize.expansions import batch_norm as norms
from kcache_compiler.passes.legalize.expansions import bitcast_complex as recast
from kcache_compiler.passes.legalize.expansions import fourier, rng
from kcache_compiler.passes.legalize.expansions import rng as drawn
from kcache_compiler.passes.legalize.expansions import triangular as triangles
from kcache_compiler.passes.legalize.expansions import unary_einsum as einsums
from kcache_compiler.passes.legalize.expansions.function_text import Lines, Tensor
from kcache_compiler.passes.legalize.expansions.lapack import is_lapack, is_open_routine, lapack
from kcache_compiler.passes.stage import Sizes
from kcache_compiler.shapes.formula import Formula

Definition = Callable[[mlir.Op, Lines, list[Tensor]], list[Tensor]]


def expand_definitions(
    module: mlir.Module, target: Target, argument_sizes: Sizes, size_arguments: tuple[Formula, ...]
) -> None:
    """Make each operation of the table a call of a function that says what it is. Before inlining."""
    output: dict[str, str] = {}
    for op in mlir.named(module, "stablehlo.einsum"):
        einsums.split_einsum(op)
    split_concatenations(module, target, argument_sizes)
    for op in mlir.named(module, *_TABLE):
        name = mlir.name_of(op)
        kinds = [value.type for value in (*op.operands, *op.results)]
        if name == "stablehlo.bitcast_convert" and not _widths_differ(kinds):
            continue
        if name == "stablehlo.custom_call" and not is_lapack(op):
            continue
        if any(None in mlir.sizes_of(kind) for kind in kinds) or (argument_sizes and not _is_open(op, name)):
            raise UnsupportedOp(name, "dynamic sizes: give all sizes", mlir.location_of(op))
        if any(0 in mlir.sizes_of(kind) for kind in kinds) and name not in _OF_NOTHING:
            _nothing(op)
            continue
        text = f"{name} {mlir.attributes_text(op)} {' '.join(map(str, kinds))}"
        zero = _zero(module, size_arguments, op) if argument_sizes and name in _COUNTING else None
        if text not in output:
            output[text] = f"kcache_definition_{len(output)}"
            mlir.splice(module, _function(op, output[text], zero is not None))
        with mlir.before(op):
            types = [result.type for result in op.results]
            operands = [*op.operands, *([] if zero is None else [zero])]
            called = func.CallOp(types, output[text], operands)
        for before, after in zip(op.results, called.results, strict=True):
            before.replace_all_uses_with(after)
        op.erase()


def _is_open(op: mlir.Op, name: str) -> bool:
    """Whether a definition says the same at all sizes."""
    return is_open_routine(op) if name == "stablehlo.custom_call" else name in _OPEN


def _widths_differ(kinds: list[mlir.Type]) -> bool:
    """Whether complex numbers become others of another width."""
    return all(str(mlir.element_type(kind)).startswith("complex") for kind in kinds) and kinds[0] != kinds[1]


def _zero(module: mlir.Module, size_arguments: tuple[Formula, ...], op: mlir.Op) -> mlir.Value:
    """The argument of ``main`` that is 0, which code does not know before it runs."""
    main = mlir.main_function(module)
    if 0 not in size_arguments or mlir.name_of(mlir.parent_of(op)) != "func.func":
        raise UnsupportedOp(mlir.name_of(op), "dynamic sizes inside a region", mlir.location_of(op))
    arguments = list(mlir.block_of(main).arguments)
    return arguments[len(arguments) - len(size_arguments) + size_arguments.index(0)]


def _nothing(op: mlir.Op) -> None:
    """Of no elements come none, and a call of LAPACK counts no failure."""
    with mlir.before(op):
        for result in op.results:
            if 0 not in mlir.sizes_of(result.type):
                if (
                    mlir.name_of(op) != "stablehlo.custom_call"
                    or str(mlir.element_type(result.type)) != "i32"
                ):
                    raise UnsupportedOp(mlir.name_of(op), "no elements", mlir.location_of(op))
                zeros = mlir.attribute(f"dense<0> : {result.type}")
                result.replace_all_uses_with(mlir.value("stablehlo.constant", (), result.type, value=zeros))
                continue
            nothing = mlir.empty_tensor(signless_tensor(result.type))
            result.replace_all_uses_with(cast(nothing, result.type))
    op.erase()


def _tensor(name: str, kind: mlir.Type) -> Tensor:
    return Tensor(name, str(mlir.element_type(kind)), tuple(size or 0 for size in mlir.sizes_of(kind)))


def _function(op: mlir.Op, name: str, counts: bool) -> str:
    """The definition as a function; one that ``counts`` elements takes a 0 to count from."""
    arguments = [_tensor(f"%a{position}", operand.type) for position, operand in enumerate(op.operands)]
    results = [_tensor("", result.type) for result in op.results]
    lines = Lines(zero=Tensor("%zero", "i64", ()) if counts else None)
    kept = mlir.name_of(op) in _AS_THEY_ARE
    wide = arguments if kept else [lines.convert(argument, _wide(argument.element)) for argument in arguments]
    output = _TABLE[mlir.name_of(op)](op, lines, wide)
    output = [lines.convert(value, result.element) for value, result in zip(output, results, strict=True)]
    types = ", ".join(value.type for value in output)
    arguments += [] if lines.zero is None else [lines.zero]
    parameters = ", ".join(f"{argument.name}: {argument.type}" for argument in arguments)
    names = ", ".join(value.name for value in output)
    body = "\n".join(lines.lines)
    return f"func.func private @{name}({parameters}) -> ({types}) {{\n{body}\nreturn {names} : {types}\n}}"


def _wide(element: str) -> str:
    """Narrow floats are computed in f32."""
    return "f32" if element in ("f16", "bf16") else element


def _flag(op: mlir.Op, name: str) -> bool:
    return name in op.attributes and str(op.attributes[name]) == "true"


def _norm(definition: Callable[[Lines, list[Tensor], int, float], list[Tensor]]) -> Definition:
    def define(op: mlir.Op, lines: Lines, operands: list[Tensor]) -> list[Tensor]:
        feature, epsilon = (
            mlir.int_of(op.attributes["feature_index"]),
            mlir.float_of(op.attributes["epsilon"]),
        )
        return definition(lines, operands, feature, epsilon)

    return define


def _cholesky(op: mlir.Op, lines: Lines, operands: list[Tensor]) -> list[Tensor]:
    return [triangles.cholesky(lines, operands[0], _flag(op, "lower"))]


def _solve(op: mlir.Op, lines: Lines, operands: list[Tensor]) -> list[Tensor]:
    turn = str(op.attributes["transpose_a"]).rstrip(">").split()[-1]
    left, lower, unit = (_flag(op, name) for name in ("left_side", "lower", "unit_diagonal"))
    return [triangles.triangular_solve(lines, operands[0], operands[1], left, lower, unit, turn)]


def _random(op: mlir.Op, lines: Lines, operands: list[Tensor]) -> list[Tensor]:
    algorithm = str(op.attributes["rng_algorithm"]).rstrip(">").split()[-1]
    state, result = operands[0], _tensor("", op.results[1].type)
    sizes = ((2,),) if algorithm == "THREE_FRY" else ((2,), (3,))
    if state.element != "ui64" or state.shape not in sizes:
        reason = f"a state {state.type}: {algorithm} takes a key and a counter in ui64"
        raise UnsupportedOp(mlir.name_of(op), reason, mlir.location_of(op))
    if 0 in result.shape:
        return [state, lines.zeros(result.element, result.shape)]
    return rng.random_bits(lines, state, algorithm, result)


def _fft(op: mlir.Op, lines: Lines, operands: list[Tensor]) -> list[Tensor]:
    kind = str(op.attributes["fft_type"]).rstrip(">").split()[-1]
    lengths = mlir.integers(op.attributes["fft_length"])
    largest = max((max(fourier.factors(size), default=1) for size in lengths), default=1)
    if largest > fourier.LARGEST_PRIME or math.prod(lengths) >= 2**31:
        reason = f"a length with the prime factor {largest}, above {fourier.LARGEST_PRIME}"
        raise UnsupportedOp(mlir.name_of(op), reason, mlir.location_of(op))
    return [fourier.transform(lines, operands[0], kind, lengths)]


def _recast(op: mlir.Op, lines: Lines, operands: list[Tensor]) -> list[Tensor]:
    return [recast.recast(lines, operands[0], _tensor("", op.results[0].type))]


def _lapack(op: mlir.Op, lines: Lines, operands: list[Tensor]) -> list[Tensor]:
    return lapack(op, lines, operands, [_tensor("", result.type) for result in op.results])


def _unary_einsum(op: mlir.Op, lines: Lines, operands: list[Tensor]) -> list[Tensor]:
    (letters, *_), result = einsums.terms_of(op)
    return [einsums.unary(lines, operands[0], letters, result)]


def _draw(op: mlir.Op, lines: Lines, operands: list[Tensor]) -> list[Tensor]:
    number = mlir.int_of(op.attributes["kcache.draw"]) if "kcache.draw" in op.attributes else 0

    def state() -> Tensor:
        text = f"stablehlo.constant {drawn.state_of(number)}"
        return lines.line(text, drawn.STATE.element, drawn.STATE.shape)

    shape = _tensor("", op.results[0].type).shape
    return [drawn.drawn(drawn.distribution_of(op), lines, operands[0], operands[1], shape, state)]


_TABLE: dict[str, Definition] = {
    "stablehlo.batch_norm_grad": _norm(norms.gradient),
    "stablehlo.batch_norm_inference": _norm(norms.inference),
    "stablehlo.batch_norm_training": _norm(norms.training),
    "stablehlo.bitcast_convert": _recast,
    "stablehlo.cholesky": _cholesky,
    "stablehlo.custom_call": _lapack,
    "stablehlo.fft": _fft,
    "stablehlo.rng": _draw,
    "stablehlo.rng_bit_generator": _random,
    "stablehlo.triangular_solve": _solve,
    "stablehlo.unary_einsum": _unary_einsum,
}

#: Those that give something where there are no elements: a new state, sums that are 0.
_OF_NOTHING = frozenset(
    {
        *("stablehlo.batch_norm_grad", "stablehlo.batch_norm_training", "stablehlo.rng"),
        *("stablehlo.rng_bit_generator", "stablehlo.unary_einsum"),
    }
)

#: Those that see narrow floats themselves.
_AS_THEY_ARE = frozenset({"stablehlo.rng", "stablehlo.unary_einsum"})

#: Those that say the same at all sizes, and those among them that divide by a number of elements.
_OPEN = frozenset(_TABLE) - {
    "stablehlo.custom_call",
    "stablehlo.rng",
    "stablehlo.rng_bit_generator",
}
_COUNTING = frozenset({"stablehlo.batch_norm_grad", "stablehlo.batch_norm_training"})
