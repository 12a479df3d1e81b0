"""The one seam to the untyped MLIR bindings: contexts, builders of operations, walks.

The bindings carry no usable types, so this file names what the rest of the code generator
uses of them (``Any`` stays inside the functions) and nothing else imports ``torch_mlir``.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir._mlir_libs import _stablehlo
from torch_mlir.dialects import llvm as llvm_dialect
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.passmanager import PassManager

Op = Any
Value = Any
Type = Any
Block = Any
Module = Any

MLIRError: type[Exception] = ir.MLIRError


#: What stages create by name, or reach by passes; others load when a text holds them. Loading all that the
#: toolchain has costs a compile of a small kernel a tenth of its time.
_DIALECTS = (
    *("affine", "arith", "bufferization", "cf", "complex", "func", "index", "linalg", "llvm", "math"),
    *("memref", "scf", "shape", "tensor", "ub", "vector"),
)


@functools.cache
def _register_passes() -> None:
    _stablehlo.register_stablehlo_passes()


def new_context() -> Any:
    """A context with the dialects of the pipeline loaded, threads off and no unregistered operations."""
    _register_passes()
    context = ir.Context(load_on_create_dialects=_DIALECTS)
    context.enable_multithreading(False)
    _stablehlo.register_dialect(context)
    torch_dialect.register_dialect(context)
    with context, ir.Location.unknown():
        # CHLO has no registration of its own in the bindings; a pass that may create its ops loads it.
        run_passes(ir.Module.create(), "builtin.module(func.func(convert-torch-to-stablehlo))")
    return context


def parse(text: str | bytes) -> Module:
    """The module of ``text`` in the current context; raises ``MLIRError``."""
    return ir.Module.parse(text)


def run_passes(module: Module, pipeline: str, between: bool = True, verify: bool = True) -> None:
    """Run ``pipeline`` and verify between its passes; raises ``MLIRError`` with the diagnostics.

    Where not ``between``, only what comes out of it is verified, and nothing where not ``verify``: a look
    takes as long as most passes.
    """
    passes = PassManager.parse(pipeline)
    passes.enable_verifier(between and verify)
    passes.run(module.operation)
    if verify and not between:
        module.operation.verify()


def unknown_location() -> Any:
    return ir.Location.unknown()


#: What holds scalars, and what never stands among them: walks for that alone leave the bodies out, and
#: ``require_scalars`` refuses a body that has it before code is made of it.
_BODY = "linalg.generic"
_OF_STATEMENTS = frozenset(
    {
        *("linalg.generic", "linalg.fill", "tensor.empty", "bufferization.materialize_in_destination"),
        *("memref.alloc", "memref.cast", "memref.copy"),
    }
)


def walk(root: Op) -> list[Op]:
    """All operations below ``root``, itself included, outer before inner, in program order."""
    found: list[Op] = []
    add, on = found.append, ir.WalkResult.ADVANCE

    def visit(operation: Op) -> Any:
        add(operation)
        return on

    root.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def named(root: Op, *names: str) -> list[Op]:
    """The operations below ``root`` that have one of ``names``."""
    found: list[Op] = []
    add, on = found.append, ir.WalkResult.ADVANCE
    skips = root.operation.name != _BODY and all(name in _OF_STATEMENTS for name in names)
    skip = ir.WalkResult.SKIP if skips else on

    def visit(operation: Op) -> Any:
        name = operation.name
        if name in names:
            add(operation)
        return skip if name == _BODY else on

    root.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def names(root: Op) -> frozenset[str]:
    """The names of all operations below ``root``, itself included."""
    found: set[str] = set()
    add, on = found.add, ir.WalkResult.ADVANCE

    def visit(operation: Op) -> Any:
        add(operation.name)
        return on

    root.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return frozenset(found)


def among_statements(root: Op, *names: str) -> list[Op]:
    """The operations below ``root`` that have one of ``names`` and stand in no body of scalars."""
    found: list[Op] = []
    on, skip = ir.WalkResult.ADVANCE, ir.WalkResult.SKIP

    def visit(operation: Op) -> Any:
        name = operation.name
        if name in names:
            found.append(operation)
        return skip if name == _BODY else on

    root.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def require_scalars(inner: Sequence[Op]) -> None:
    """Raises ``ValueError`` where one of these operations of a body is what ``named`` does not see there."""
    for one in inner:
        if one.name in _OF_STATEMENTS:
            raise ValueError(f"{one.name} stands in the body of a {_BODY}, where it is not looked for")


def local_text(operation: Op) -> str:
    """Its text, the same wherever it stands: values from outside of it have no names, places are left out."""
    alone = operation.operation.clone(ip=False)  # names are given within what stands by itself
    text = alone.get_asm(print_generic_op_form=True, use_local_scope=True, assume_verified=True)
    alone.erase()
    return text


def whole_text(function: Op) -> str:
    """The text of a function without places."""
    return function.operation.get_asm(print_generic_op_form=True, use_local_scope=True, assume_verified=True)


def unknown_values(text: str) -> int:
    """How many operands in a ``local_text`` are values from outside."""
    return text.count("<<UNKNOWN SSA VALUE>>")


def outside_values(operation: Op) -> list[Value]:
    """What operations inside of it read from outside of it, in order of use."""
    inner = walk(operation)
    inside = set(inner)
    found: list[Value] = []
    for one in inner[1:]:
        for operand in one.operands:
            owner = defining(operand)
            if (block_owner(operand) if owner is None else owner) not in inside:
                found.append(operand)
    return found


def has_regions(operation: Op) -> bool:
    return len(operation.operation.regions) > 0


def name_of(operation: Op) -> str:
    return operation.operation.name


def location_of(operation: Op) -> str:
    return str(operation.location).removeprefix("loc(").removesuffix(")")


def diagnostics_of(error: Exception) -> list[tuple[str, str]]:
    """Location and first line of each diagnostic of an ``MLIRError``."""
    found = getattr(error, "error_diagnostics", [])
    return [
        (str(one.location).removeprefix("loc(").removesuffix(")"), one.message.split("\n")[0])
        for one in found
    ]


def create(
    name: str,
    operands: Sequence[Value] = (),
    results: Sequence[Type] = (),
    attributes: Mapping[str, Any] | None = None,
    regions: int = 0,
    at: Any = None,
) -> Op:
    """A new operation ``name`` at the insertion point ``at`` (the current one when None)."""
    return ir.Operation.create(
        name,
        results=list(results),
        operands=list(operands),
        attributes=dict(attributes or {}),
        regions=regions,
        ip=at,
    )


def branch(condition: Value, taken: Block, other: Block) -> None:
    """End the block at hand by a branch in the LLVM dialect, to blocks without arguments."""
    ir.Operation.create(
        "llvm.cond_br",
        operands=[condition],
        successors=[taken, other],
        attributes={"operandSegmentSizes": attribute("array<i32: 1, 0, 0>")},
    )


def add_block(before: Block) -> Block:
    """An empty block after another one."""
    return before.create_after()


def value(name: str, operands: Sequence[Value], result: Type, **attributes: Any) -> Value:
    """The only result of a new operation at the current insertion point."""
    return create(name, operands, [result], attributes).results[0]


def before(operation: Op) -> Any:
    return ir.InsertionPoint(operation)


def after(operation: Op) -> Any:
    return ir.InsertionPoint.after(operation.operation)


def at_start(block: Block) -> Any:
    return ir.InsertionPoint.at_block_begin(block)


def at_end(block: Block) -> Any:
    return ir.InsertionPoint(block)


def block_of(operation: Op, region: int = 0) -> Block:
    return operation.operation.regions[region].blocks[0]


def blocks_of(operation: Op) -> list[Block]:
    """The blocks of all regions of ``operation``."""
    return [block for region in operation.operation.regions for block in region.blocks]


def move_block(source: Op, target: Op, region: int) -> None:
    """Move the only block of a region of ``source`` to the same, empty, region of ``target``."""
    block_of(source, region).append_to(target.operation.regions[region])


def new_block(operation: Op, region: int, types: Sequence[Type]) -> Block:
    """The first block of an empty region, with arguments of ``types``."""
    types = list(types)
    where = [ir.Location.unknown()] * len(types)
    return ir.Block.create_at_start(operation.operation.regions[region], types, where)


def operations(block: Block) -> list[Op]:
    return [operation.operation for operation in block.operations]


def last(block: Block) -> Op:
    """The last operation of a block: of thousands, the others are not made objects of Python."""
    return block.operations[-1].operation


def main_function(module: Module) -> Op:
    """The function ``main``, or the only public one."""
    functions = [op for op in module.body.operations if op.operation.name == "func.func"]
    for function in functions:
        if ir.StringAttr(function.attributes["sym_name"]).value == "main":
            return function.operation
    if len(functions) == 1:
        return functions[0].operation
    raise ValueError("the module has no function named main")


def type_of(text: str) -> Type:
    return ir.Type.parse(text)


def attribute(text: str) -> Any:
    return ir.Attribute.parse(text)


def string_attr(text: str) -> Any:
    return ir.StringAttr.get(text)


def type_attr(wrapped: Type) -> Any:
    return ir.TypeAttr.get(wrapped)


def unit_attr() -> Any:
    return ir.UnitAttr.get()


def int_attr(number: int, kind: str = "i64") -> Any:
    return ir.IntegerAttr.get(type_of(kind), number)


def function_type(inputs: Sequence[Type], results: Sequence[Type]) -> Type:
    return ir.FunctionType.get(list(inputs), list(results))


def index_type() -> Type:
    return ir.IndexType.get()


def constant(number: int, kind: str = "i64") -> Value:
    """An integer or index constant at the current insertion point."""
    wanted = ir.IndexType.get() if kind == "index" else ir.IntegerType.get_signless(int(kind[1:]))
    literal = {"value": ir.IntegerAttr.get(wanted, number)}
    return ir.Operation.create("arith.constant", results=[wanted], attributes=literal).results[0]


def constant_int(operand: Value) -> int | None:
    """The integer of a value made by ``arith.constant``, else None."""
    owner = operand.owner
    if not isinstance(owner, (ir.Operation, ir.OpView)) or owner.operation.name != "arith.constant":
        return None
    literal = owner.operation.attributes["value"]
    return ir.IntegerAttr(literal).value if isinstance(literal, ir.IntegerAttr) else None


def constant_float(operand: Value) -> float | None:
    """The float of a value made by ``arith.constant``, or of all its elements; else None."""
    owner = operand.owner
    if not isinstance(owner, (ir.Operation, ir.OpView)) or owner.operation.name != "arith.constant":
        return None
    literal = owner.operation.attributes["value"]
    if isinstance(literal, ir.DenseFPElementsAttr) and literal.is_splat:
        literal = literal.get_splat_value()
    return ir.FloatAttr(literal).value if isinstance(literal, ir.FloatAttr) else None


def splat(operand: Value, kind: Type) -> Value | None:
    """The vector ``kind`` of elements ``operand``, where that is made by ``arith.constant``; else None."""
    owner = defining(operand)
    if owner is None or owner.name != "arith.constant":
        return None
    return value(
        "arith.constant", (), kind, value=ir.DenseElementsAttr.get_splat(kind, owner.attributes["value"])
    )


def attributes_of(operation: Op) -> dict[str, Any]:
    attributes = operation.operation.attributes
    return {name: attributes[name] for name in attributes}


def defining(operand: Value) -> Op | None:
    """The operation that makes ``operand``, or None for a block argument."""
    owner = operand.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def uses(operand: Value) -> Iterator[tuple[Op, int]]:
    for use in operand.uses:
        yield use.owner.operation, use.operand_number


def used_more_than_once(operand: Value) -> bool:
    """Whether it has two uses; of thousands the others are not looked at."""
    return len(list(itertools.islice(operand.uses, 2))) > 1


def is_memref(kind: Type) -> bool:
    return isinstance(kind, ir.MemRefType)


def is_tensor(kind: Type) -> bool:
    return isinstance(kind, ir.RankedTensorType)


def sizes_of(kind: Type) -> list[int | None]:
    """The dimensions of a shaped type, None where one is dynamic."""
    return [None if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis) for axis in range(kind.rank)]


def strides_of(memref: Type) -> tuple[list[int | None], int | None]:
    """Strides and offset of a strided memref type, None where one is dynamic."""
    strides, offset = memref.get_strides_and_offset()
    unknown = ir.MemRefType.get_dynamic_stride_or_offset()
    return [None if s == unknown else s for s in strides], None if offset == unknown else offset


def on_each(root: Op, table: Mapping[str, Callable[[Op], None]]) -> None:
    """Call the entry of ``table`` for every operation below ``root`` that has one, inner ones first.

    An entry may erase its operation, with all that is in it.
    """
    for operation in reversed(walk(root)):
        handler = table.get(operation.operation.name)
        if handler is not None:
            handler(operation)


def plain_dim(expression: Any) -> int | None:
    """The position of an affine expression that is just a dimension, else None."""
    return expression.position if isinstance(expression, ir.AffineDimExpr) else None


def int_of(literal: Any) -> int:
    return ir.IntegerAttr(literal).value


def block_owner(argument: Value) -> Op:
    """The operation whose region holds the block of this block argument."""
    return ir.BlockArgument(argument).owner.owner.operation


def clone(operation: Op) -> Op:
    """A copy of ``operation`` at the current insertion point, with its operands unchanged."""
    return operation.operation.clone()


def splice(module: Module, text: str, *declared: str) -> None:
    """Append the functions of the module ``text``, without those in ``declared``, which ``module`` has."""
    parsed = ir.Module.parse(text)
    last = list(module.body.operations)[-1].operation
    for operation in [operation.operation for operation in parsed.body.operations]:
        if ir.StringAttr(operation.attributes["sym_name"]).value not in declared:
            operation.move_after(last)
            last = operation


def call_llvm(function: str, operands: Sequence[Value], result: str = "") -> Value:
    """Call an ``llvm.func``; its result, of a type by name, or None where it returns nothing."""
    count = len(operands)
    made = create(
        "llvm.call",
        operands,
        [type_of(result)] if result else [],
        attributes={
            "callee": attribute(f"@{function}"),
            "operandSegmentSizes": attribute(f"array<i32: {count}, 0>"),
            "op_bundle_sizes": attribute("array<i32>"),
        },
    )
    return made.results[0] if result else None


def call(function: str, operands: Sequence[Value], result: Type) -> Value:
    """The result of a ``func.call``."""
    return value("func.call", operands, result, callee=attribute(f"@{function}"))


def at_location(operation: Op) -> Any:
    """A context in which new operations get the location of ``operation``."""
    return operation.location


def same_block(a: Op, b: Op) -> bool:
    return a.operation.block == b.operation.block


def comes_before(a: Op, b: Op) -> bool:
    """``a`` stands before ``b``, which is in the same block."""
    return a.operation.is_before_in_block(b.operation)


def within(operation: Op, parent: Op) -> bool:
    """``operation`` stands directly in a region of ``parent``."""
    return operation.operation.parent.operation == parent.operation


def within_block(operation: Op, block: Block) -> Op:
    """The operation of ``block`` that has ``operation`` in its regions, or is it."""
    inner = operation.operation
    while inner.block != block:
        inner = inner.parent.operation
    return inner


def element_of(kind: Type) -> Type:
    """The element type of a shaped type, or the type itself."""
    return kind.element_type if is_tensor(kind) or is_memref(kind) else kind


def is_identity(index_map: Any) -> bool:
    return index_map.n_dims == len(index_map.results) and all(
        plain_dim(result) == axis for axis, result in enumerate(index_map.results)
    )


def is_permutation(index_map: Any) -> bool:
    """Every dimension appears once: each element is read exactly once."""
    axes = [plain_dim(result) for result in index_map.results]
    return None not in axes and sorted(axis for axis in axes if axis is not None) == list(
        range(index_map.n_dims)
    )


def compose(outer: Any, inner: Any) -> Any:
    """The map ``outer(inner(dims))``."""
    return ir.AffineMap.get(inner.n_dims, 0, [result.compose(inner) for result in outer.results])


def map_attrs(maps: Sequence[Any]) -> Any:
    return ir.ArrayAttr.get([ir.AffineMapAttr.get(entry) for entry in maps])


def emit_affine(expression: Any) -> Value:
    """An affine expression over ``linalg.index`` at the current point, inside a generic's body."""
    if isinstance(expression, ir.AffineDimExpr):
        return value("linalg.index", (), index_type(), dim=int_attr(expression.position))
    if isinstance(expression, ir.AffineConstantExpr):
        return constant(expression.value, "index")
    kinds = {ir.AffineAddExpr: "arith.addi", ir.AffineMulExpr: "arith.muli"}
    left, right = emit_affine(expression.lhs), emit_affine(expression.rhs)
    return value(kinds[type(expression)], [left, right], index_type())


def float_constant(number: float, kind: Type) -> Value:
    """A float constant of type ``kind`` at the current insertion point."""
    return value("arith.constant", (), kind, value=ir.FloatAttr.get(kind, float(number)))


def kernel_spatial_dimensions(convolution: Op) -> list[int]:
    numbers = _stablehlo.ConvDimensionNumbers(convolution.attributes["dimension_numbers"])
    return list(numbers.kernel_spatial_dimensions)


Dimensions = dict[str, Any]


def convolution_dimensions(convolution: Op) -> Dimensions:
    """The dimension numbers of a convolution by name."""
    numbers = _stablehlo.ConvDimensionNumbers(convolution.attributes["dimension_numbers"])
    return {
        "input_batch": int(numbers.input_batch_dimension),
        "input_feature": int(numbers.input_feature_dimension),
        "input_spatial": list(numbers.input_spatial_dimensions),
        "kernel_input_feature": int(numbers.kernel_input_feature_dimension),
        "kernel_output_feature": int(numbers.kernel_output_feature_dimension),
        "kernel_spatial": list(numbers.kernel_spatial_dimensions),
        "output_batch": int(numbers.output_batch_dimension),
        "output_feature": int(numbers.output_feature_dimension),
        "output_spatial": list(numbers.output_spatial_dimensions),
    }


def integer_pairs(operation: Op, name: str) -> list[tuple[int, int]]:
    """An attribute of rows of two integers; none where it is not there."""
    if name not in operation.attributes:
        return []
    literal = operation.attributes[name]
    numbers = [int(number) for number in ir.DenseIntElementsAttr(literal)]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def groups_of(view: Op) -> list[list[int]]:
    """The axes that a reshaping view makes one, group by group."""
    return [[int_of(axis) for axis in group] for group in view.attributes["reassociation"]]


def scatter_dimensions(operation: Op) -> dict[str, Any]:
    """The dimension numbers of a scatter by name."""
    numbers = _stablehlo.ScatterDimensionNumbers(operation.attributes["scatter_dimension_numbers"])
    return {
        "update_window_dims": list(numbers.update_window_dims),
        "inserted_window_dims": list(numbers.inserted_window_dims),
        "input_batching_dims": list(numbers.input_batching_dims),
        "scatter_indices_batching_dims": list(numbers.scatter_indices_batching_dims),
        "scatter_dims_to_operand_dims": list(numbers.scattered_dims_to_operand_dims),
        "index_vector_dim": int(numbers.index_vector_dim),
    }


def gather_dimensions(operation: Op) -> dict[str, Any]:
    """The dimension numbers of a gather by name."""
    numbers = _stablehlo.GatherDimensionNumbers(operation.attributes["dimension_numbers"])
    return {
        "offset_dims": list(numbers.offset_dims),
        "collapsed_slice_dims": list(numbers.collapsed_slice_dims),
        "operand_batching_dims": list(numbers.operand_batching_dims),
        "start_indices_batching_dims": list(numbers.start_indices_batching_dims),
        "start_index_map": list(numbers.start_index_map),
        "index_vector_dim": int(numbers.index_vector_dim),
    }


def equal_axes(product: Op) -> list[tuple[int, int]]:
    """The pairs of axes of the operands of a ``dot_general`` that are of one size."""
    numbers = _stablehlo.DotDimensionNumbers(product.attributes["dot_dimension_numbers"])
    left = [*numbers.lhs_batching_dimensions, *numbers.lhs_contracting_dimensions]
    right = [*numbers.rhs_batching_dimensions, *numbers.rhs_contracting_dimensions]
    return list(zip(left, right, strict=True))


def symbol_of(operation: Op) -> str:
    return ir.StringAttr(operation.attributes["sym_name"]).value


def integers_of(operation: Op) -> list[int]:
    """The elements of a constant of integers."""
    return [int(number) for number in ir.DenseIntElementsAttr(operation.attributes["value"])]


def computes_scalars(operation: Op) -> bool:
    """The operation stands in the body of a reduction or the like, not among tensors."""
    parent = name_of(operation.operation.parent)
    return parent not in ("func.func", "stablehlo.while", "stablehlo.if", "stablehlo.case")


def among_scalars() -> bool:
    """The current point stands in the body of a reduction or the like, not among tensors."""
    parent = name_of(ir.InsertionPoint.current.block.owner)
    return parent not in ("func.func", "stablehlo.while", "stablehlo.if", "stablehlo.case")


def owner_block(argument: Value) -> Block:
    """The block that has this argument."""
    return ir.BlockArgument(argument).owner


def affine_parts(expression: Any) -> tuple[Any, ...]:
    """``("constant", n)``, ``("dim", axis)``, ``("add" | "mul", left, right)``, or ``()`` for other kinds."""
    if isinstance(expression, ir.AffineConstantExpr):
        return ("constant", expression.value)
    if isinstance(expression, ir.AffineDimExpr):
        return ("dim", expression.position)
    if isinstance(expression, ir.AffineAddExpr):
        return ("add", expression.lhs, expression.rhs)
    if isinstance(expression, ir.AffineMulExpr):
        return ("mul", expression.lhs, expression.rhs)
    return ()


def to_llvm_text(module: Module) -> str:
    """LLVM IR text of a module that is all LLVM dialect; on anything else the process crashes."""
    return llvm_dialect.translate_module_to_llvmir(module.operation)


def constant_extent(operation: Op) -> tuple[bool, int]:
    """Whether a constant repeats one value, and about how many bytes its elements take."""
    if str(operation.results[0].type.element_type).startswith("complex"):
        return False, 0  # the bindings cannot read such an attribute
    elements = 8
    for size in operation.results[0].type.shape:
        elements *= size
    text = str(operation.attributes["value"])
    return text.startswith("dense<") and not text.startswith(("dense<[", 'dense<"', "dense<>")), elements


def splat_scalar(operation: Op) -> Value:
    """The repeated value of a splat constant as a tensor of rank 0."""
    kind = ir.RankedTensorType.get([], operation.results[0].type.element_type)
    text = str(operation.attributes["value"])
    shape = text.rindex(" : tensor<")
    return value("stablehlo.constant", (), kind, value=attribute(f"{text[:shape]} : {kind}"))


def string_of(literal: Any) -> str:
    return ir.StringAttr(literal).value


def float_of(literal: Any) -> float:
    return ir.FloatAttr(literal).value


def attributes_text(operation: Op) -> str:
    """All attributes, comparable between operations."""
    named = operation.operation.attributes
    return ", ".join(f"{named[place].name} = {named[place].attr}" for place in range(len(named)))
