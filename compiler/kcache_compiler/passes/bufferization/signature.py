"""What goes in and out of a program: read from its function, then turned into caller's buffers."""

from __future__ import annotations

from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.llvm.target import Target
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import bufferization, func
from kcache_compiler.passes.bufferization.split_long_chains import distinguish_readers
from kcache_compiler.passes.stage import NarrowBuffers, Signature, Sizes
from kcache_compiler.shapes.formula import Formula, monomial_text, text
from kcache_compiler.types import DTYPE_BYTES, Dim, Symbol, TensorType

_COMPLEX = {"complex<f32>": "c64", "complex<f64>": "c128"}


def dtype_of(element: mlir.Type) -> str:
    """The dtype name of an element type; raises ``UnsupportedOp`` for one that buffers cannot hold."""
    name = _COMPLEX.get(str(element), str(element))
    if name not in DTYPE_BYTES:
        raise UnsupportedOp("tensor type", f"element type {element} is not supported")
    return name


def signless(element: mlir.Type) -> mlir.Type:
    text = str(element)
    return mlir.type_of(text[1:]) if text.startswith("ui") else element


def read_signature(
    module: mlir.Module,
    n_inputs: int,
    narrow_buffers: NarrowBuffers,
    argument_sizes: Sizes,
    size_arguments: tuple[Formula, ...],
) -> Signature:
    """The types of inputs, constants and results of ``main``; every dynamic axis is a symbol."""
    try:
        main = mlir.main_function(module)
    except ValueError as error:
        raise InvalidProgram(str(error)) from None
    if len(main.regions[0].blocks) != 1:
        raise UnsupportedOp("func.func", "a body of several blocks", mlir.location_of(main))
    for call in mlir.named(main, "func.call"):
        raise UnsupportedOp("func.call", "a recursive or external function", mlir.location_of(call))
    symbols: list[Symbol] = []
    types: list[TensorType] = []
    for position, argument in enumerate(mlir.block_of(main).arguments):
        dims: list[Dim] = []
        for axis, size in enumerate(_sizes(argument.type)):
            if argument_sizes:
                dims.append(stated(argument_sizes[position][axis]))
                continue
            if size is None:
                symbols.append(Symbol(f"s{len(symbols)}", position, axis))
            dims.append(symbols[-1].name if size is None else size)
        dtype = narrow_buffers.inputs.get(position) or dtype_of(mlir.element_type(argument.type))
        types.append(TensorType(dtype, tuple(dims)))
    buffers = len(types) - len(size_arguments)
    returned = mlir.last(mlir.block_of(main))
    outputs = tuple(
        TensorType(
            narrow_buffers.outputs.get(position) or dtype_of(mlir.element_type(operand.type)),
            tuple(-1 if size is None else size for size in _sizes(operand.type)),
        )
        for position, operand in enumerate(returned.operands)
    )
    inputs, constants = tuple(types[:n_inputs]), tuple(types[n_inputs:buffers])
    return Signature(inputs, constants, outputs, tuple(symbols))


def stated(size: Formula) -> Dim:
    """A size as interfaces say it."""
    return size if isinstance(size, int) else monomial_text(size) or text(size)


def _sizes(kind: mlir.Type) -> list[int | None]:
    if not mlir.is_tensor(kind):
        raise UnsupportedOp("func.func", f"an argument or result of type {kind}")
    return mlir.sizes_of(kind)


def pass_destinations(module: mlir.Module, target: Target, signature: Signature) -> None:
    """Make ``main`` take buffers, inputs then outputs, and return sizes: those of dynamic output axes,
    then the pairs that must fit each other.
    """
    main = mlir.main_function(module)
    body = mlir.block_of(main)
    for argument in list(body.arguments):
        _take_buffer(body, argument)
    returned = mlir.last(body)
    operands = list(returned.operands)
    results, required = operands[: len(signature.outputs)], operands[len(signature.outputs) :]
    sizes: list[mlir.Value] = []
    for result in results:
        kind = result.type
        buffer = body.add_argument(_buffer_type(kind), mlir.unknown_location())
        with mlir.before(returned):
            for axis, size in enumerate(mlir.sizes_of(kind)):
                if size is None:
                    sizes.append(mlir.tensor_size(result, axis))
            bufferization.MaterializeInDestinationOp(None, result, buffer, restrict=True, writable=True)
    with mlir.before(returned):
        func.return_([*sizes, *required])
    returned.erase()
    inputs = [argument.type for argument in body.arguments]
    kind = mlir.function_type(inputs, [mlir.index_type()] * (len(sizes) + len(required)))
    main.attributes["function_type"] = mlir.type_attr(kind)
    for name in ("arg_attrs", "res_attrs"):
        if name in main.attributes:
            del main.attributes[name]
    distinguish_readers(module, target)


def _buffer_type(tensor: mlir.Type) -> mlir.Type:
    dims = "".join(f"{'?' if size is None else size}x" for size in mlir.sizes_of(tensor))
    return mlir.type_of(f"memref<{dims}{mlir.element_type(tensor)}>")


def _take_buffer(body: mlir.Block, argument: mlir.Value) -> None:
    tensor = argument.type
    with mlir.at_start(body):
        read = bufferization.to_tensor(tensor, argument, restrict=True)
    argument.replace_all_uses_except(read, mlir.definition(read))
    argument.set_type(_buffer_type(tensor))
