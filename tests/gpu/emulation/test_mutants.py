"""One thing made wrong in a kernel that was right: the emulator, or a comparison, notices in every order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tests.gpu.harness.emulate import ORDERS, EmulationError
from tests.gpu.harness.reference import (
    COLUMN_SUMS,
    LOCAL_ROWS,
    MATMUL,
    SOFTMAX,
    TRANSPOSE,
    VECTOR_ADD,
    WARP_ROWS,
    Reference,
)
from tests.gpu.harness.run import run_gpu

_BARRIER = "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0) ;"
_SHUFFLE = "call float @llvm.nvvm.shfl.sync.bfly.f32("


@dataclass(frozen=True)
class Mutant:
    """``old`` becomes ``new``, once or everywhere; it fails with ``reason``, or computes wrong numbers."""

    name: str
    reference: Reference
    old: str
    new: str
    reason: str
    everywhere: bool = False


MUTANTS = (
    Mutant(
        "guard dropped",
        VECTOR_ADD,
        "br i1 %inside, label %do, label %end",
        "br label %do",
        "out of bounds: read",
    ),
    Mutant(
        "guard off by one", VECTOR_ADD, "icmp slt i64 %i, %n", "icmp sle i64 %i, %n", "out of bounds: read"
    ),
    Mutant(
        "index off by one",
        VECTOR_ADD,
        "mul i64 %blk, 256",
        "mul nsw i64 %blk, 257",
        "out of bounds|never written",
    ),
    Mutant(
        "blocks overlap", VECTOR_ADD, "mul i64 %blk, 256", "mul i64 %blk, 255", "race: write .* another block"
    ),
    Mutant(
        "writes an input", VECTOR_ADD, "store float %sum, ptr %pc", "store float %sum, ptr %pa", "read only"
    ),
    Mutant(
        "too wide",
        VECTOR_ADD,
        "load float, ptr %pb, align 4",
        "load float, ptr %pb, align 16",
        "misaligned: read",
    ),
    Mutant("first barrier removed", SOFTMAX, _BARRIER + " first", "; first", "race: |uninitialized"),
    Mutant("second barrier removed", SOFTMAX, _BARRIER + " second", "; second", "race: |uninitialized"),
    Mutant(
        "barrier of some", SOFTMAX, "%slot = getele", _BARRIER + "\n %slot = getele", "divergent|deadlock"
    ),
    Mutant("half of a mask", SOFTMAX, _SHUFFLE + "i32 -1", _SHUFFLE + "i32 65535", "not in the mask"),
    Mutant("wrong distance", SOFTMAX, "i32 16, i32 31", "i32 8, i32 31", "", everywhere=True),
    Mutant(
        "some lanes shuffle",
        SOFTMAX,
        "br i1 %more, label %max_body, label %max_end",
        "",
        "partial warp|deadlock",
    ),
    Mutant(
        "shared index", SOFTMAX, "@maxima, i64 %warp", "@maxima, i64 %t", "out of bounds: write .* of maxima"
    ),
    Mutant(
        "all lanes store",
        SOFTMAX,
        "br i1 %first, label %max_store, label %max_join",
        "br label %max_store",
        "race: ",
    ),
    Mutant(
        "slots used twice", SOFTMAX, "@sums, i64 %warp", "@maxima, i64 %warp", "race: write .* and read by"
    ),
    Mutant(
        "wide shared load", SOFTMAX, "@sums, align 4\n  %q0", "@sums, align 16\n  %q0", "misaligned: read"
    ),
    Mutant("barrier removed", TRANSPOSE, _BARRIER + " first", "; first", "race: |uninitialized"),
    Mutant(
        "rows not guarded",
        TRANSPOSE,
        "and i1 %row_in, %column_in",
        "and i1 true, %column_in",
        "out of bounds: read",
    ),
    Mutant(
        "columns not guarded",
        TRANSPOSE,
        "and i1 %out_row_in, %out_column_in",
        "and i1 %out_row_in, true",
        "unini|race",
    ),
    Mutant("turned twice", TRANSPOSE, "i64 %tx, i64 %j", "i64 %j, i64 %tx", "uninitialized|race"),
    Mutant(
        "waits for too little",
        MATMUL,
        "wait.group(i32 1)\n",
        "wait.group(i32 2)\n",
        "may not have written yet",
    ),
    Mutant(
        "does not wait",
        MATMUL,
        "call void @llvm.nvvm.cp.async.wait.group(i32 1)\n",
        "",
        "may not have written yet",
    ),
    Mutant("barrier removed", MATMUL, _BARRIER + " first", "; first", "race: |may not have written"),
    Mutant("one stage too few", MATMUL, "urem i64 %s, 3", "urem i64 %s, 2", "race: |may not have written"),
    Mutant(
        "copies not guarded",
        MATMUL,
        "br i1 %of_b, label %fetch_b, label %done",
        "br label %fetch_b",
        "out of bounds|race",
    ),
    Mutant(
        "copy misaligned",
        MATMUL,
        "%place = mul i64 %t, 16",
        "%place = mul i64 %t, 8",
        "misaligned: write of 16",
    ),
    Mutant(
        "ldmatrix misaligned", MATMUL, "mul i64 %row_a, 32", "mul i64 %row_a, 24", "misaligned: read of 16"
    ),
    Mutant(
        "steps past the end",
        MATMUL,
        "icmp slt i64 %s, %steps",
        "icmp sle i64 %s, %steps",
        "out of bounds: read",
    ),
    Mutant("not transposed", MATMUL, "x2.trans.b16.p3(", "x2.b16.p3(", "", everywhere=True),
    Mutant(
        "fragments swapped", MATMUL, "<2 x half> %a1, <2 x half> %a2", "<2 x half> %a2, <2 x half> %a1", ""
    ),
    Mutant(
        "sum not atomic",
        COLUMN_SUMS,
        "%old = atomicrmw fadd ptr %to, float %value",
        "",
        "race: .* another block",
    ),
    Mutant("not cleared", COLUMN_SUMS, "store float 0.0, ptr %p, align 4", "", "uninitialized"),
    Mutant(
        "first removed", WARP_ROWS, "call void @llvm.nvvm.bar.warp.sync(i32 -1) ; first", "", "race: |uninit"
    ),
    Mutant("second removed", WARP_ROWS, "call void @llvm.nvvm.bar.warp.sync(i32 -1) ; second", "", "race: "),
    Mutant(
        "row of another warp",
        WARP_ROWS,
        "@rows, i64 0, i64 %warp, i64 0",
        "@rows, i64 0, i64 0, i64 0",
        "race|uni",
    ),
    Mutant(
        "one element more",
        LOCAL_ROWS,
        "sub i64 3, %i",
        "sub i64 4, %i",
        "out of bounds: write of 4 bytes in no",
    ),
    Mutant("an element less", LOCAL_ROWS, "%next, 4", "%next, 3", "read of uninitialized local memory"),
    Mutant(
        "a vector at any place",
        LOCAL_ROWS,
        "%row = load <4 x float>, ptr %array, align 16",
        "%second = getelementptr float, ptr %array, i64 1\n"
        "  %pair = load <2 x float>, ptr %second, align 8\n"
        "  %row = shufflevector <2 x float> %pair, <2 x float> %pair, <4 x i32> <i32 0, i32 1, i32 2, i32 3>",
        "misaligned: read of 8 bytes of a local array",
    ),
    Mutant(
        "dynamic memory is aligned to 16 bytes",
        MATMUL,
        "  %to = getelementptr i8, ptr addrspace(3) @stages",
        "  %early = load <8 x float>, ptr addrspace(3) @stages, align 32\n"
        "  %to = getelementptr i8, ptr addrspace(3) @stages",
        "misaligned: read of 32 bytes at byte 0 of dynamic shared memory, 32 are needed",
    ),
)
_PLAIN_SUM = """%was = load float, ptr %to, align 4
  %now = fadd float %was, %value
  store float %now, ptr %to, align 4
;"""


def _mutated(mutant: Mutant) -> str:
    ir = mutant.reference.ir
    assert mutant.old in ir
    if mutant.name == "sum not atomic":
        return ir.replace(mutant.old, _PLAIN_SUM)
    if mutant.name == "some lanes shuffle":
        early = "br i1 %more, label %max_body, label %max_test\n\nmax_test:\n  %low = icmp ult i64 %t, 70\n"
        return ir.replace(mutant.old, early + "  br i1 %low, label %max_end, label %end")
    return ir.replace(mutant.old, mutant.new, -1 if mutant.everywhere else 1)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.reference.name}: {mutant.name}")
def test_a_mutant_is_caught(mutant: Mutant, order: str) -> None:
    arrays = mutant.reference.arrays(np.random.default_rng(1))
    kernel = mutant.reference.kernel(_mutated(mutant))
    if not mutant.reason:
        (output,) = run_gpu(kernel, arrays, order=order)
        with pytest.raises(AssertionError, match="Not equal to tolerance"):
            mutant.reference.check(arrays, output)
        return
    with pytest.raises(EmulationError, match=mutant.reason):
        run_gpu(kernel, arrays, order=order)
