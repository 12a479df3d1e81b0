"""The way into a kernel that CPython takes without a wrapper: a function of its own calling convention.

Each kernel brings ``kcache_cpython_call`` beside ``kcache_run``, as LLVM IR compiled once a process for each
triple at its baseline: a ``METH_FASTCALL`` function, which the client makes a Python object of. It compares
NumPy arrays with a table, fills the list of buffers, and calls the kernel without the interpreter's lock.
A small workspace is on its stack. What it reads of objects is laid out in docs/reference/c-abi.md; the client
tries that on arrays of its own before. It needs no name of Python's: all addresses are in the table, whose
order stays as it is under this name.
"""

from __future__ import annotations

import functools
import hashlib

from kcache_compiler.llvm.emission import emit_object, optimize
from kcache_compiler.llvm.target import Target, baseline

#: Arrays and constants of a call at most.
MOST_BUFFERS = 64

_TEXT = """
; Objects have another reference, as a caller of Python's gives what is returned back.
define internal ptr @given(ptr %table, i64 %word) nounwind alwaysinline {
  %place = getelementptr i64, ptr %table, i64 %word
  %object = load ptr, ptr %place
  %count = load i64, ptr %object
  %more = add i64 %count, 1
  store i64 %more, ptr %object
  ret ptr %object
}

; With unwind tables: CPython may end a thread inside the call that takes the lock back.
define ptr @kcache_cpython_call(ptr %self, ptr %arrays, i64 %count) uwtable {
entry:
  %buffers = alloca [$MOST$ x ptr], align 8
  %table.place = getelementptr i8, ptr %self, i64 16
  %table = load ptr, ptr %table.place
  %inputs.place = getelementptr i64, ptr %table, i64 0
  %inputs = load i64, ptr %inputs.place
  %wanted.place = getelementptr i64, ptr %table, i64 1
  %wanted = load i64, ptr %wanted.place
  %constants.place = getelementptr i64, ptr %table, i64 2
  %constants = load i64, ptr %constants.place
  %class.place = getelementptr i64, ptr %table, i64 3
  %class = load ptr, ptr %class.place
  %as.many = icmp eq i64 %count, %wanted
  br i1 %as.many, label %begin, label %refuse
begin:
  %pointers = getelementptr i64, ptr %table, i64 $HEAD$
  %first = getelementptr i64, ptr %pointers, i64 %constants
  %some = icmp sgt i64 %inputs, 0
  br i1 %some, label %input, label %rest
input:
  %index = phi i64 [ 0, %begin ], [ %index.next, %taken ]
  %spec = phi ptr [ %first, %begin ], [ %spec.next, %taken ]
  %array.place = getelementptr ptr, ptr %arrays, i64 %index
  %array = load ptr, ptr %array.place
  %its.class.place = getelementptr i8, ptr %array, i64 8
  %its.class = load ptr, ptr %its.class.place
  %of.class = icmp eq ptr %its.class, %class
  br i1 %of.class, label %kind, label %refuse
kind:
  %type.place = getelementptr i8, ptr %array, i64 56
  %type = load ptr, ptr %type.place
  %due.type = load ptr, ptr %spec
  %of.type = icmp eq ptr %type, %due.type
  %flags.place = getelementptr i8, ptr %array, i64 64
  %flags = load i32, ptr %flags.place
  %ready.flags = and i32 %flags, 257
  %ready = icmp eq i32 %ready.flags, 257
  %rank.place = getelementptr i8, ptr %array, i64 24
  %rank.short = load i32, ptr %rank.place
  %rank = sext i32 %rank.short to i64
  %due.rank.place = getelementptr i64, ptr %spec, i64 1
  %due.rank = load i64, ptr %due.rank.place
  %of.rank = icmp eq i64 %rank, %due.rank
  %both = and i1 %of.type, %ready
  %all = and i1 %both, %of.rank
  br i1 %all, label %sizes, label %refuse
sizes:
  %shape.place = getelementptr i8, ptr %array, i64 32
  %shape = load ptr, ptr %shape.place
  %due.shape = getelementptr i64, ptr %spec, i64 2
  br label %look
look:
  %axis = phi i64 [ 0, %sizes ], [ %axis.next, %size ]
  %more = icmp slt i64 %axis, %rank
  br i1 %more, label %size, label %taken
size:
  %size.place = getelementptr i64, ptr %shape, i64 %axis
  %its.size = load i64, ptr %size.place
  %due.size.place = getelementptr i64, ptr %due.shape, i64 %axis
  %due.size = load i64, ptr %due.size.place
  %axis.next = add i64 %axis, 1
  %of.size = icmp eq i64 %its.size, %due.size
  br i1 %of.size, label %look, label %refuse
taken:
  %data.place = getelementptr i8, ptr %array, i64 16
  %data = load ptr, ptr %data.place
  %buffer = getelementptr ptr, ptr %buffers, i64 %index
  store ptr %data, ptr %buffer
  %spec.next = getelementptr i64, ptr %due.shape, i64 %rank
  %index.next = add i64 %index, 1
  %again = icmp slt i64 %index.next, %inputs
  br i1 %again, label %input, label %rest
rest:
  %lifted = getelementptr ptr, ptr %buffers, i64 %inputs
  br label %constant
constant:
  %at = phi i64 [ 0, %rest ], [ %at.next, %copy ]
  %lacking = icmp slt i64 %at, %constants
  br i1 %lacking, label %copy, label %outputs
copy:
  %from = getelementptr ptr, ptr %pointers, i64 %at
  %pointer = load ptr, ptr %from
  %to = getelementptr ptr, ptr %lifted, i64 %at
  store ptr %pointer, ptr %to
  %at.next = add i64 %at, 1
  br label %constant
outputs:
  %after = getelementptr ptr, ptr %buffers, i64 %constants
  br label %output
output:
  %out = phi i64 [ %inputs, %outputs ], [ %out.next, %result ]
  %unfilled = icmp slt i64 %out, %count
  br i1 %unfilled, label %result, label %run
result:
  %result.place = getelementptr ptr, ptr %arrays, i64 %out
  %result.array = load ptr, ptr %result.place
  %result.data.place = getelementptr i8, ptr %result.array, i64 16
  %result.data = load ptr, ptr %result.data.place
  %result.buffer = getelementptr ptr, ptr %after, i64 %out
  store ptr %result.data, ptr %result.buffer
  %out.next = add i64 %out, 1
  br label %output
run:
  %kernel.place = getelementptr i64, ptr %table, i64 4
  %kernel = load ptr, ptr %kernel.place
  %dims.place = getelementptr i64, ptr %table, i64 5
  %dims = load ptr, ptr %dims.place
  %host.place = getelementptr i64, ptr %table, i64 6
  %host = load ptr, ptr %host.place
  %leave.place = getelementptr i64, ptr %table, i64 7
  %leave = load ptr, ptr %leave.place
  %enter.place = getelementptr i64, ptr %table, i64 8
  %enter = load ptr, ptr %enter.place
  %bytes.place = getelementptr i64, ptr %table, i64 11
  %bytes = load i64, ptr %bytes.place
  %workspace = alloca i8, i64 %bytes, align 64
  %thread = call ptr %leave()
  %code = call i32 %kernel(ptr %buffers, ptr %dims, ptr %workspace, ptr %host)
  call void %enter(ptr %thread)
  %well = icmp eq i32 %code, 0
  br i1 %well, label %done, label %refuse
done:
  %done.object = call ptr @given(ptr %table, i64 9)
  ret ptr %done.object
refuse:
  %refused.object = call ptr @given(ptr %table, i64 10)
  ret ptr %refused.object
}
"""
#: Words of the table before the constants.
_HEAD = 12


def caller_object(target: Target) -> bytes:
    """The function's object code for the triple of ``target``; the same bytes for all targets of a triple."""
    return _object(baseline(target))


def caller_text_digest() -> str:
    """What stands for the function in the toolchain."""
    return hashlib.sha256(caller_ir().encode()).hexdigest()[:16]


@functools.cache
def _object(target: Target) -> bytes:
    return emit_object(optimize(caller_ir(), target, 2), target, 2)


def caller_ir() -> str:
    """The function as LLVM IR."""
    return _TEXT.replace("$MOST$", str(MOST_BUFFERS)).replace("$HEAD$", str(_HEAD))
