"""Navigation: operations by name, blocks, def-use chains and their text."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from torch_mlir import ir

from kcache_compiler.mlir.types import Block, Module, Op, Value

#: The operation whose body holds scalars, and operations that never stand in such a body: walks that look for
#: the latter only skip the bodies, and ``require_scalars`` rejects a body that has one before it is lowered.
_BODY = "linalg.generic"
_OF_STATEMENTS = frozenset(
    {
        *("linalg.generic", "linalg.fill", "tensor.empty", "bufferization.materialize_in_destination"),
        *("memref.alloc", "memref.cast", "memref.copy"),
    }
)


def walk(root: Op | Module) -> list[Op]:
    """All operations below ``root``, itself included, outer before inner, in program order."""
    visited: list[Op] = []
    add, on = visited.append, ir.WalkResult.ADVANCE

    def visit(operation: Op) -> ir.WalkResult:
        add(operation)
        return on

    root.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return visited


def named(root: Op | Module, *names: str) -> list[Op]:
    """The operations below ``root`` that have one of ``names``."""
    matches: list[Op] = []
    add, on = matches.append, ir.WalkResult.ADVANCE
    skips = root.operation.name != _BODY and all(name in _OF_STATEMENTS for name in names)
    skip = ir.WalkResult.SKIP if skips else on

    def visit(operation: Op) -> ir.WalkResult:
        name = operation.name
        if name in names:
            add(operation)
        return skip if name == _BODY else on

    root.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return matches


def names(root: Op | Module) -> frozenset[str]:
    """The names of all operations below ``root``, itself included."""
    seen: set[str] = set()
    add, on = seen.add, ir.WalkResult.ADVANCE

    def visit(operation: Op) -> ir.WalkResult:
        add(operation.name)
        return on

    root.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return frozenset(seen)


def among_statements(root: Op | Module, *names: str) -> list[Op]:
    """The operations below ``root`` that have one of ``names``, outside the bodies of ``linalg.generic``."""
    matches: list[Op] = []
    on, skip = ir.WalkResult.ADVANCE, ir.WalkResult.SKIP

    def visit(operation: Op) -> ir.WalkResult:
        name = operation.name
        if name in names:
            matches.append(operation)
        return skip if name == _BODY else on

    root.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return matches


def require_scalars(inner: Sequence[Op]) -> None:
    """Raise ``ValueError`` if an operation of a scalar body is one that ``named`` does not look for there."""
    for operation in inner:
        if operation.name in _OF_STATEMENTS:
            raise ValueError(f"{operation.name} stands in the body of a {_BODY}, where it is not looked for")


def on_each(root: Op | Module, table: Mapping[str, Callable[[Op], None]]) -> None:
    """Call the entry of ``table`` for every operation below ``root`` that has one, inner ones first.

    An entry may erase its operation, with all that is in it.
    """
    for operation in reversed(walk(root)):
        handler = table.get(operation.operation.name)
        if handler is not None:
            handler(operation)


def name_of(operation: Op) -> str:
    return operation.operation.name


def location_of(operation: Op) -> str:
    return str(operation.location).removeprefix("loc(").removesuffix(")")


def source_lines(operation: Op, budget: int = 64) -> set[int]:
    """The lines of the parsed text that an operation comes from; ``budget`` bounds the steps, as nested
    locations may be exponential.
    """
    lines: set[int] = set()
    pending = [operation.location]
    while pending and budget:
        budget -= 1
        here = pending.pop()
        if isinstance(here, ir.FileLineColLoc):
            lines.add(here.start_line)
        elif isinstance(here, ir.NameLoc):
            pending.append(here.child_loc)
        elif isinstance(here, ir.CallSiteLoc):
            pending.extend((here.caller, here.callee))
        elif isinstance(here, ir.FusedLoc):
            pending.extend(here.locations[:budget])
    return lines


def has_regions(operation: Op) -> bool:
    return len(operation.operation.regions) > 0


def operations(block: Block) -> list[Op]:
    """The operations directly in ``block``.

    Iteration over a block looks for a Python module of the dialect of each operation; a walk does not.
    """
    owner = block.owner.operation
    direct: list[Op] = []
    add, on, skip = direct.append, ir.WalkResult.ADVANCE, ir.WalkResult.SKIP
    regions = owner.regions
    if len(regions) == 1 and len(regions[0].blocks) == 1:

        def visit_only(operation: Op) -> ir.WalkResult:
            add(operation)
            return skip if len(direct) > 1 else on

        owner.walk(visit_only, ir.WalkOrder.PRE_ORDER)
        return direct[1:]  # after the owner

    def visit(operation: Op) -> ir.WalkResult:
        if operation == owner or operation.block != block:
            return on
        add(operation)
        return skip

    owner.walk(visit, ir.WalkOrder.PRE_ORDER)
    return direct


def last(block: Block) -> Op:
    """The last operation of a block, without Python objects of the others, which may be thousands."""
    return block.operations[-1].operation


def block_of(operation: Op, region: int = 0) -> Block:
    return operation.operation.regions[region].blocks[0]


def blocks_of(operation: Op) -> list[Block]:
    """The blocks of all regions of ``operation``."""
    return [block for region in operation.operation.regions for block in region.blocks]


def main_function(module: Module) -> Op:
    """The function ``main``, or the only public one."""
    functions = [op for op in module.body.operations if op.operation.name == "func.func"]
    for function in functions:
        if ir.StringAttr(function.attributes["sym_name"]).value == "main":
            return function.operation
    if len(functions) == 1:
        return functions[0].operation
    raise ValueError("the module has no function named main")


def parent_of(operation: Op) -> Op:
    """The operation whose region holds ``operation``, which is not a module at the top."""
    parent = operation.operation.parent
    assert parent is not None
    return parent.operation


def defining(operand: Value) -> Op | None:
    """The operation that defines ``operand``, or None for a block argument."""
    owner = operand.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def definition(operand: Value) -> Op:
    """The operation that defines ``operand``, which is not a block argument."""
    operation = defining(operand)
    assert operation is not None
    return operation


def uses(operand: Value) -> Iterator[tuple[Op, int]]:
    for use in operand.uses:
        yield use.owner.operation, use.operand_number


def used_more_than_once(operand: Value) -> bool:
    """Whether ``operand`` has at least two uses; the others, which may be thousands, are not visited."""
    return len(list(itertools.islice(operand.uses, 2))) > 1


def constant_int(operand: Value) -> int | None:
    """The integer that ``arith.constant`` defines ``operand`` as, else None."""
    owner = operand.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "arith.constant":
        return None
    literal = owner.operation.attributes["value"]
    return ir.IntegerAttr(literal).value if isinstance(literal, ir.IntegerAttr) else None


def constant_float(operand: Value) -> float | None:
    """The float that ``arith.constant`` defines ``operand`` or all its elements as; else None."""
    owner = operand.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "arith.constant":
        return None
    literal = owner.operation.attributes["value"]
    if isinstance(literal, ir.DenseFPElementsAttr) and literal.is_splat:
        literal = literal.get_splat_value()
    return ir.FloatAttr(literal).value if isinstance(literal, ir.FloatAttr) else None


def block_owner(argument: Value) -> Op:
    """The operation whose region holds the block of this block argument."""
    return ir.BlockArgument(argument).owner.owner.operation


def argument_number(argument: Value) -> int:
    """The position of an argument in its block."""
    return ir.BlockArgument(argument).arg_number


def owner_block(argument: Value) -> Block:
    """The block that has this argument."""
    return ir.BlockArgument(argument).owner


def outside_values(operation: Op) -> list[Value]:
    """The values from outside that operations in the regions of ``operation`` use, in order of use."""
    inner = walk(operation)
    inside = set(inner)
    captured: list[Value] = []
    for reader in inner[1:]:
        for operand in reader.operands:
            owner = defining(operand)
            if (block_owner(operand) if owner is None else owner) not in inside:
                captured.append(operand)
    return captured


def same_block(a: Op, b: Op) -> bool:
    return a.operation.block == b.operation.block


def comes_before(a: Op, b: Op) -> bool:
    """Whether ``a`` precedes ``b``, which is in the same block."""
    return a.operation.is_before_in_block(b.operation)


def within(operation: Op, parent: Op) -> bool:
    """Whether ``operation`` is directly in a region of ``parent``."""
    return parent_of(operation) == parent.operation


def within_block(operation: Op, block: Block) -> Op:
    """The operation of ``block`` that is ``operation`` or contains it."""
    inner = operation.operation
    while inner.block != block:
        inner = parent_of(inner)
    return inner


def computes_scalars(operation: Op) -> bool:
    """Whether ``operation`` is in the scalar body of a reduction or similar operation, not among tensors."""
    parent = name_of(parent_of(operation))
    return parent not in ("func.func", "stablehlo.while", "stablehlo.if", "stablehlo.case")


def among_scalars() -> bool:
    """Whether the insertion point is in the scalar body of a reduction or similar operation."""
    parent = ir.InsertionPoint.current.block.owner.operation.name
    return parent not in ("func.func", "stablehlo.while", "stablehlo.if", "stablehlo.case")


def local_text(operation: Op) -> str:
    """The text of ``operation`` without its context: captured values have no names, locations are omitted."""
    copy = operation.operation.clone(ip=False)  # values are named within the detached copy
    text = copy.get_asm(print_generic_op_form=True, use_local_scope=True, assume_verified=True)
    copy.erase()
    return text


def whole_text(function: Op | Module) -> str:
    """The text of a function without locations."""
    return function.operation.get_asm(print_generic_op_form=True, use_local_scope=True, assume_verified=True)


def unknown_values(text: str) -> int:
    """The number of operands in a ``local_text`` that are captured values."""
    return text.count("<<UNKNOWN SSA VALUE>>")
