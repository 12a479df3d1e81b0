"""Copying the bodies of structured operations."""

from __future__ import annotations

from collections.abc import Callable

from kcache_compiler.mlir import operations as mlir


def inline_body(
    body: mlir.Block, mapping: dict[mlir.Value, mlir.Value], index: Callable[[int], mlir.Value] | None
) -> list[mlir.Value]:
    """Copy ``body`` to the current point under ``mapping``; the mapped operands of its yield.

    ``index`` gives the value of ``linalg.index`` by dimension; None keeps those operations.
    """
    for operation in mlir.operations(body):
        if mlir.name_of(operation) == "linalg.yield":
            return [mapping.get(operand, operand) for operand in operation.operands]
        if index is not None and mlir.name_of(operation) == "linalg.index":
            mapping[operation.results[0]] = index(mlir.int_of(operation.attributes["dim"]))
            continue
        copy = mlir.clone(operation)
        every = mlir.walk(copy) if mlir.has_regions(copy) else [copy]
        for inner in every:
            operands = inner.operands
            for number, operand in enumerate(operands):
                if operand in mapping:
                    operands[number] = mapping[operand]
        for inner in every[1:]:
            if index is not None and mlir.name_of(inner) == "linalg.index":
                with mlir.before(inner):
                    inner.results[0].replace_all_uses_with(index(mlir.int_of(inner.attributes["dim"])))
                inner.erase()
        mapping.update(zip(operation.results, copy.results, strict=True))
    raise AssertionError("a body without a yield")


def move_body(body: mlir.Block, target: mlir.Block, mapping: dict[mlir.Value, mlir.Value]) -> None:
    """Move all of ``body``, its yield too, to the end of ``target``; ``mapping`` is of its arguments."""
    for argument, becomes in mapping.items():
        argument.replace_all_uses_with(becomes)
    for operation in mlir.operations(body):
        target.append(operation)
