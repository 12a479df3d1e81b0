"""Builders of operations and blocks at the insertion point, and copies of bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import overload

from torch_mlir import ir

from kcache_compiler.mlir.attributes import attribute, int_of
from kcache_compiler.mlir.dialects import arith, func, linalg, llvm, scf, tensor
from kcache_compiler.mlir.types import (
    AffineExpr,
    Attribute,
    Block,
    InsertionPoint,
    Location,
    Module,
    Op,
    Type,
    Value,
    element_type,
    sizes_of,
    type_of,
)
from kcache_compiler.mlir.walkers import block_of, defining, has_regions, name_of, operations, walk


def before(operation: Op) -> InsertionPoint:
    return ir.InsertionPoint(operation)


def after(operation: Op) -> InsertionPoint:
    return ir.InsertionPoint.after(operation.operation)


def at_start(block: Block) -> InsertionPoint:
    return ir.InsertionPoint.at_block_begin(block)


def at_end(block: Block) -> InsertionPoint:
    return ir.InsertionPoint(block)


def at_location(operation: Op) -> Location:
    """A context in which new operations get the location of ``operation``."""
    return operation.location


def unknown_location() -> Location:
    return ir.Location.unknown()


def create(
    name: str,
    operands: Sequence[Value] = (),
    results: Sequence[Type] = (),
    attributes: Mapping[str, Attribute] | None = None,
    regions: int = 0,
    at: InsertionPoint | None = None,
) -> Op:
    """A new operation ``name`` at the insertion point ``at``; None stands for the current one."""
    return ir.Operation.create(
        name,
        results=list(results),
        operands=list(operands),
        attributes=dict(attributes or {}),
        regions=regions,
        ip=at,
    )


def value(name: str, operands: Sequence[Value], result: Type, **attributes: Attribute) -> Value:
    """The only result of a new operation at the current insertion point."""
    return create(name, operands, [result], attributes).results[0]


def constant(number: int, type: str = "i64") -> Value:
    """An integer or index constant at the current insertion point."""
    integer_type = ir.IndexType.get() if type == "index" else ir.IntegerType.get_signless(int(type[1:]))
    return arith.constant(integer_type, ir.IntegerAttr.get(integer_type, number))


def float_constant(number: float, type: Type) -> Value:
    """Create a float constant of type ``type`` at the current insertion point."""
    return arith.constant(type, ir.FloatAttr.get(type, float(number)))


def splat(operand: Value, type: Type) -> Value | None:
    """Create a constant vector of type ``type`` with elements ``operand``; None if that is not constant."""
    owner = defining(operand)
    if owner is None or owner.name != "arith.constant":
        return None
    return arith.constant(type, ir.DenseElementsAttr.get_splat(type, owner.attributes["value"]))


def splat_scalar(operation: Op) -> Value:
    """The repeated value of a splat constant as a tensor of rank 0."""
    tensor_type = ir.RankedTensorType.get([], element_type(operation.results[0].type))
    text = str(operation.attributes["value"])
    shape = text.rindex(" : tensor<")
    return value("stablehlo.constant", (), tensor_type, value=attribute(f"{text[:shape]} : {tensor_type}"))


def emit_affine(expression: AffineExpr) -> Value:
    """An affine expression over ``linalg.index`` at the current point, inside a generic's body."""
    if isinstance(expression, ir.AffineDimExpr):
        return linalg.index(expression.position)
    if isinstance(expression, ir.AffineConstantExpr):
        return constant(expression.value, "index")
    assert isinstance(expression, (ir.AffineAddExpr, ir.AffineMulExpr))
    left, right = emit_affine(expression.lhs), emit_affine(expression.rhs)
    return arith.addi(left, right) if isinstance(expression, ir.AffineAddExpr) else arith.muli(left, right)


def call(function: str, operands: Sequence[Value], result: Type) -> Value:
    """The result of a ``func.call``."""
    return func.CallOp([result], function, list(operands)).results[0]


@overload
def call_llvm(function: str, operands: Sequence[Value], result: str) -> Value: ...


@overload
def call_llvm(function: str, operands: Sequence[Value]) -> None: ...


def call_llvm(function: str, operands: Sequence[Value], result: str = "") -> Value | None:
    """Call an ``llvm.func``. Returns its result, whose type ``result`` names; None if it has no result."""
    call = llvm.CallOp(type_of(result) if result else None, operands, [], [], callee=function)
    return call.results[0] if result else None


def call_function(function: str, operands: Sequence[Value]) -> None:
    """Call a ``func.func`` without results."""
    func.CallOp([], function, list(operands))


def branch(condition: Value, taken: Block, other: Block) -> None:
    """End the current block by a conditional branch in the LLVM dialect to blocks without arguments."""
    llvm.cond_br(condition, [], [], taken, other)


def clone(operation: Op) -> Op:
    """A copy of ``operation`` at the current insertion point, with its operands unchanged."""
    return operation.operation.clone()


def add_block(before: Block) -> Block:
    """A new empty block after ``before``."""
    return before.create_after()


def new_block(operation: Op, region: int, types: Sequence[Type]) -> Block:
    """The first block of an empty region, with arguments of ``types``."""
    types = list(types)
    locations = [ir.Location.unknown()] * len(types)
    return ir.Block.create_at_start(operation.operation.regions[region], types, locations)


def move_block(source: Op, target: Op, region: int) -> None:
    """Move the only block of a region of ``source`` to the same, empty, region of ``target``."""
    block_of(source, region).append_to(target.operation.regions[region])


def for_loop(
    bounds: tuple[Value, Value],
    step: Value,
    carried: Sequence[Value] = (),
    annotation: Attribute | None = None,
) -> Op:
    """An ``scf.for`` without a terminator; its block has the counter and the carried values as arguments."""
    loop = scf.ForOp(*bounds, step, carried).operation
    if annotation is not None:
        loop.attributes["loop_annotation"] = annotation
    return loop


def if_else(condition: Value, results: Sequence[Type] = ()) -> Op:
    """An ``scf.if`` with two empty blocks, without terminators."""
    return scf.IfOp(condition, results, has_else=True).operation


def private_function(
    module: Module,
    name: str,
    inputs: Sequence[Type],
    results: Sequence[Type],
    argument_attributes: Sequence[str],
) -> tuple[Op, Block]:
    """A new private function with internal linkage at the end of ``module``, and its empty entry block.

    ``argument_attributes`` are attribute dictionaries as text, one per input.
    """
    function_type = ir.FunctionType.get(list(inputs), list(results))
    function = func.FuncOp(name, function_type, visibility="private", ip=at_end(module.body)).operation
    function.attributes["arg_attrs"] = attribute("[" + ", ".join(argument_attributes) + "]")
    function.attributes["llvm.linkage"] = attribute("#llvm.linkage<internal>")
    return function, new_block(function, 0, inputs)


def constant_table(module: Module, name: str, words: Sequence[int]) -> None:
    """An array of ``words``, of 64 bits each, as a constant of internal linkage at the end of ``module``."""
    count = len(words)
    signed = ", ".join(str((word + (1 << 63)) % (1 << 64) - (1 << 63)) for word in words)
    llvm.GlobalOp(
        type_of(f"!llvm.array<{count} x i64>"),
        name,
        attribute("#llvm.linkage<internal>"),
        constant=True,
        value=attribute(f"dense<[{signed}]> : tensor<{count}xi64>"),
        alignment=8,
        ip=at_end(module.body),
    )


def stack_array(element: Type, count: int, alignment: int) -> Value:
    """The address of ``count`` elements on the stack, aligned to ``alignment`` bytes."""
    return llvm.alloca(type_of("!llvm.ptr"), constant(count), element, alignment=alignment)


def address_of_symbol(name: str, pointer: str = "!llvm.ptr") -> Value:
    """The address of a function or global variable in the LLVM dialect."""
    return llvm.mlir_addressof(type_of(pointer), name)


def empty_tensor(type: Type, dynamic_sizes: Sequence[Value] = ()) -> Value:
    """A ``tensor.empty`` of type ``type``, which takes its dynamic dimensions from ``dynamic_sizes``."""
    dynamic = iter(dynamic_sizes)
    sizes = [next(dynamic) if size is None else size for size in sizes_of(type)]
    encoding = type.encoding if isinstance(type, ir.RankedTensorType) else None
    return tensor.empty(sizes, element_type(type), encoding=encoding)


def insert_slice(part: Value, into: Value, offsets: Sequence[int]) -> Value:
    """``into`` with the elements at ``offsets`` replaced by ``part``, a tensor of static sizes."""
    sizes = [size or 0 for size in sizes_of(part.type)]
    steps = [1] * len(sizes)
    return tensor.insert_slice(part, into, [], [], [], list(offsets), sizes, steps)


def tensor_size(operand: Value, axis: int) -> Value:
    """The size of an axis of a tensor, a ``tensor.dim``."""
    return tensor.dim(operand, constant(axis, "index"))


def inline_body(
    body: Block, mapping: dict[Value, Value], index: Callable[[int], Value] | None
) -> list[Value]:
    """Copy ``body`` to the insertion point with operands replaced by ``mapping``.

    Returns the operands of its yield, replaced likewise. ``index`` returns the value of ``linalg.index`` of a
    dimension; None keeps these operations.
    """
    for operation in operations(body):
        if name_of(operation) == "linalg.yield":
            return [mapping.get(operand, operand) for operand in operation.operands]
        if index is not None and name_of(operation) == "linalg.index":
            mapping[operation.results[0]] = index(int_of(operation.attributes["dim"]))
            continue
        copy = clone(operation)
        every = walk(copy) if has_regions(copy) else [copy]
        for inner in every:
            operands = inner.operands
            for number, operand in enumerate(operands):
                if operand in mapping:
                    operands[number] = mapping[operand]
        for inner in every[1:]:
            if index is not None and name_of(inner) == "linalg.index":
                with before(inner):
                    inner.results[0].replace_all_uses_with(index(int_of(inner.attributes["dim"])))
                inner.erase()
        mapping.update(zip(operation.results, copy.results, strict=True))
    raise AssertionError("a body without a yield")


def move_body(body: Block, target: Block, mapping: dict[Value, Value]) -> None:
    """Move ``body``, with its yield, to the end of ``target``; ``mapping`` replaces its arguments."""
    for argument, becomes in mapping.items():
        argument.replace_all_uses_with(becomes)
    for operation in operations(body):
        target.append(operation)
