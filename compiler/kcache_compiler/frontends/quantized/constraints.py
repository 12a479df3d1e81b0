"""Constraints that the toolchain's verifier leaves open: values that are passed on stay quantized alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends.quantized.element import Quantized, quantized
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

#: A value that is passed on, and who takes it as what.
_Pair = tuple[Native, Native, str]


def check_operation(operation: Native, values: Mapping[Native, Quantized]) -> None:
    """Raise ``InvalidProgram`` where an element changes what it stands for as it is passed on."""
    for given, taken, what in _pairs(operation):
        if values.get(given) != values.get(taken):
            raise _unlike(operation, what, given.type, taken.type)
    if operation.name == "stablehlo.get_tuple_element":
        member, result = operation.operands[0].type.get_type(_index(operation)), operation.results[0].type
        if quantized(member) != quantized(result):
            raise _unlike(operation, "member and result", member, result)


def _unlike(operation: Native, what: str, before: Native, after: Native) -> InvalidProgram:
    where = mlir.describe_location(operation.location)
    return InvalidProgram(
        f"{operation.name}{' at ' + where if where else ''}: {what} have the types {before} and "
        f"{after}, and must be quantized alike: convert one by stablehlo.uniform_quantize"
    )


def _index(operation: Native) -> int:
    return operation.attributes["index"].value


def _pairs(operation: Native) -> Iterator[_Pair]:
    name = operation.name.removeprefix("stablehlo.")
    operands, results = list(operation.operands), list(operation.results)
    if name in ("sort", "while", "optimization_barrier"):
        yield from _matched(operands, results, "operands and results")
    if name == "while":
        for region in operation.regions:
            yield from _matched(operands, region.blocks[0].arguments, "operands and parameters")
        yield from _matched(_returned(operation, 1), results, "what the body returns and results")
    if name == "sort":
        parameters = list(operation.regions[0].blocks[0].arguments)
        doubled = [value for value in operands for _ in (0, 1)]
        yield from _matched(doubled, parameters, "operands and parameters")
    if name in ("if", "case"):
        for index in range(len(operation.regions)):
            yield from _matched(_returned(operation, index), results, "what a branch returns and results")
    if name == "map":
        parameters = operation.regions[0].blocks[0].arguments
        yield from _matched(operands, parameters, "operands and parameters")
        yield from _matched(_returned(operation, 0), results, "what the function returns and results")
    if name in ("reduce", "reduce_window", "scatter", "select_and_scatter"):
        last = len(operation.regions) - 1
        returned, parameters = _returned(operation, last), operation.regions[last].blocks[0].arguments
        yield from _matched(returned, results, "what the function returns and results")
        yield from _matched(returned, parameters, "what the function returns and its parameters")
    if name == "select_and_scatter":
        yield from _matched(
            [operands[0]] * 2, operation.regions[0].blocks[0].arguments, "operand and parameters"
        )
    if name in ("tensor.cast", "torch_index_select"):
        yield from _matched(operands[:1], results, "operand and result")


def _matched(given: list[Native], taken: Native, what: str) -> Iterator[_Pair]:
    for one, other in zip(given, taken, strict=False):
        yield one, other, what


def _returned(operation: Native, region: int) -> list[Native]:
    """The operands of a region's last operation."""
    inside = mlir.native_ir().Block
    block: inside = operation.regions[region].blocks[0]
    return list(list(block.operations)[-1].operands)
