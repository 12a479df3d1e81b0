"""Results are computed directly in the caller's buffers where no other operation can observe it.

Bufferization computes every result in its own buffer and copies it to the caller's at the end of
``main``. Upstream's ``eliminate-empty-tensors`` avoids the copy before bufferization, but its analysis does
not see that the copies write: the value of one result in a buffer that another live value uses is lost. On
buffers, as here, the condition is simple.
"""

from __future__ import annotations

import itertools

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import memref
from kcache_compiler.passes.stage import Signature
from kcache_compiler.shapes.formula import Formula


def forward_results(module: mlir.Module, signature: Signature, size_arguments: tuple[Formula, ...]) -> None:
    """Replace an allocation by the output buffer that it is copied to, and drop the copy.

    Sound because that buffer has no other use, every allocation starts undefined, all copies to outputs
    stand at the end of ``main``, and outputs overlap nothing. Types are equal, or differ by groups of axes
    that are one; so is the layout.
    """
    main = mlir.main_function(module)
    body = mlir.block_of(main)
    count = len(signature.inputs) + len(signature.constants) + len(size_arguments)
    outputs = list(body.arguments)[count:]
    ending: set[mlir.Op] | None = None
    for output in outputs:
        results = [owner for owner, _ in mlir.uses(output)]
        if len(results) == 1 and mlir.name_of(results[0]) == "memref.copy":
            ending = _ending(body) if ending is None else ending
            if results[0] in ending and _forward(body, results[0], output):
                ending = None


def _forward(body: mlir.Block, copy: mlir.Op, output: mlir.Value) -> bool:
    """Compute ``source`` of ``copy`` in ``output`` and erase the copy, if that is valid.

    Returns whether operations before the copy were erased too, so that more copies may end ``main``.
    """
    source, target = copy.operands
    views: list[mlir.Op] = []
    root, owner = source, mlir.defining(source)
    while owner is not None and mlir.name_of(owner) in _RESHAPES:
        views.append(owner)
        root = owner.operands[0]
        owner = mlir.defining(root)
    if target != output or owner is None or mlir.name_of(owner) != "memref.alloc":
        return False
    if source.type != output.type or not mlir.same_block(owner, copy):
        return False
    if views and not all(_plain(value.type) for view in views for value in (view.operands[0], output)):
        return False
    copy.erase()
    with mlir.at_start(body):
        for view in views:
            output = _reversed(view, output)
    root.replace_all_uses_with(output)
    owner.erase()
    for view in views:
        if not list(view.results[0].uses):
            view.erase()
    return bool(views)


_RESHAPES = ("memref.expand_shape", "memref.collapse_shape")


def _plain(kind: mlir.Type) -> bool:
    """Whether a type has static sizes and a row-major layout."""
    return None not in mlir.sizes_of(kind) and "strided" not in str(kind)


def _reversed(view: mlir.Op, shaped: mlir.Value) -> mlir.Value:
    """``shaped``, which has the type of the result of ``view``, reshaped to the type of its operand."""
    expected, reassociation = view.operands[0].type, view.attributes["reassociation"]
    if mlir.name_of(view) == "memref.expand_shape":
        return memref.collapse_shape(expected, shaped, reassociation)
    sizes = [size for size in mlir.sizes_of(expected) if size is not None]
    return memref.expand_shape(expected, shaped, reassociation, [], sizes)


def _ending(body: mlir.Block) -> set[mlir.Op]:
    """The operations at the end of ``main``: copies, deallocations, sizes and the return."""
    quiet = ("memref.copy", "memref.dealloc", "memref.dim", "func.return")
    return set(itertools.takewhile(lambda op: mlir.name_of(op) in quiet, reversed(mlir.operations(body))))
