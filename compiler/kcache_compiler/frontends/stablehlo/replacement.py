"""Replaces operations: by others of the same signature, or by calls of functions that are written as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcache_compiler.mlir import context as mlir

if TYPE_CHECKING:
    from kcache_compiler.mlir.types import Attribute, Module, Op


def replace_operation(operation: Op, name: str, attributes: dict[str, Attribute]) -> None:
    """Replace an operation by one called ``name`` with the same operands and result types."""
    native = mlir.native_ir()
    new = native.Operation.create(
        name,
        results=[result.type for result in operation.results],
        operands=list(operation.operands),
        attributes=attributes,
        loc=operation.location,
        ip=native.InsertionPoint(operation),
    )
    _replace_results(operation, new)


def replace_by_call(module: Module, operation: Op, name: str, definition: str) -> None:
    """Replace an operation by a call of the function ``name``, the first one in the text ``definition``.

    The current context and location must be set. The function is appended to ``module``.
    """
    native = mlir.native_ir()
    parsed = native.Module.parse(definition)
    module.body.append(next(iter(parsed.body.operations)).operation.clone())
    types = [result.type for result in operation.results]
    with native.InsertionPoint(operation):
        call = mlir.native_func().CallOp(types, name, list(operation.operands)).operation
    _replace_results(operation, call)


def _replace_results(operation: Op, new: Op) -> None:
    for old_result, new_result in zip(operation.results, new.results, strict=True):
        old_result.replace_all_uses_with(new_result)
    operation.erase()
