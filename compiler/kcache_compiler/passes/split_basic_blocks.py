"""Splits long sequences of launches into basic blocks: LLVM's time is quadratic in the length of a block."""

from __future__ import annotations

import itertools

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import llvm

#: Launches from which on blocks are cut, and launches of a block.
MANY, BLOCK = 128, 16


def split_basic_blocks(module: mlir.Module) -> None:
    """Return from the entry function after every ``BLOCK`` launches of a block if one of them failed."""
    names = ("kcache_run", "kcache_prepare")
    entry = next(op for op in mlir.named(module, "llvm.func") if mlir.symbol_of(op) in names)
    calls = [op for op in mlir.named(entry, "llvm.call") if _dispatches(op)]
    if len(calls) < MANY:
        return
    code = calls[0].operands[1]
    blocks = list(entry.operation.regions[0].blocks)
    done = mlir.add_block(blocks[-1])
    with mlir.at_end(done):
        llvm.return_(arg=_load(code))
    for block in blocks:
        _cut(block, code, done)


def _dispatches(call: mlir.Op) -> bool:
    callee = str(call.attributes["callee"]) if "callee" in call.attributes else ""
    return callee == "@kcache_dispatch" or (callee.startswith("@kcache_part_") and callee.endswith("_enter"))


def _load(code: mlir.Value) -> mlir.Value:
    return llvm.load(mlir.type_of("i32"), code)


def _cut(block: mlir.Block, code: mlir.Value, done: mlir.Block) -> None:
    every = mlir.operations(block)
    positions = [
        position
        for position, operation in enumerate(every)
        if mlir.name_of(operation) == "llvm.call" and _dispatches(operation)
    ]
    starts = [position + 1 for position in positions[BLOCK - 1 : -1 : BLOCK]]
    blocks = [block]
    for start, end in itertools.pairwise([*starts, None]):
        blocks.append(mlir.add_block(blocks[-1]))
        for member in every[start:end]:
            blocks[-1].append(member)
    for before, after in itertools.pairwise(blocks):
        with mlir.at_end(before):
            none = llvm.mlir_constant(mlir.int_attr(0, "i32"))
            failed = llvm.icmp(llvm.ICmpPredicate.ne, _load(code), none)
            mlir.branch(failed, done, after)
