"""The thread pool that kernels bring along: ``parallel_for`` as native code, without a C toolchain.

The pool is LLVM IR text, compiled once a process for each triple at the triple's baseline, and linked
beside a kernel some launch of which may be split. A process uses the pool of one kernel for all
(docs/reference/c-abi.md). It needs five names of the C library and keeps no lock while a task runs but
``@busy``: whoever finds the pool busy, another thread or a task of the launch itself, runs alone.

``@gate`` is the whole protocol: generation (32 bits), room for more helpers (16), "the caller sleeps"
(1), helpers at work (15). A helper joins by one compare-and-swap that takes room and adds itself, so
it never joins a launch that was closed; the caller closes by clearing the room, and returns when no
helper is left. Helpers that nobody needs pause ``SPIN`` times and then sleep on the generation's half
of the gate, the caller on the other half.

``@owner`` is the process that the threads belong to, negative while they are started: a forked child
finds another number there and starts anew.
"""

from __future__ import annotations

import functools
import hashlib

from kcache_compiler.llvm.emission import emit_object, optimize
from kcache_compiler.llvm.target import Target, baseline
from kcache_compiler.types import Launch

#: Most workers of a pool, the calling thread included.
MOST_WORKERS = 1024
#: Pauses before a thread sleeps: 20 to 100 us, as long as a pause takes 10 to 50 ns.
SPIN = 2000
#: Ranges of a launch that are handed out apart, so that a worker comes back to the memory it had.
RANGES = 16
#: Slices of a range, where the grain allows: what is left when one worker is late.
SLICES = 4


def may_use_threads(launches: list[Launch]) -> bool:
    """Whether some launch may have two slices of its grain; known where both are numbers."""
    return any(_splits(launch.extent, launch.grain) for launch in launches)


def _splits(extent: str, grain: str) -> bool:
    if extent.lstrip("-").isdigit() and grain.lstrip("-").isdigit():
        return int(extent) >= 2 * max(int(grain), 1)
    return extent != "1"


def pool_object(target: Target) -> bytes:
    """The pool's object code for the triple of ``target``; the same bytes for all targets of a triple."""
    return _object(baseline(target))


def pool_text_digest() -> str:
    """What stands for the pool in the toolchain: changes with any text below."""
    return hashlib.sha256(repr((_TEXT, _MACHINES, SPIN, RANGES, SLICES)).encode()).hexdigest()[:16]


@functools.cache
def _object(target: Target) -> bytes:
    return emit_object(optimize(pool_ir(target), target, 2), target, 2)


def pool_ir(target: Target) -> str:
    """The pool as LLVM IR."""
    futex, pause, declared, reset = _MACHINES[target.triple.split("-", 1)[0]]
    values = {
        "FUTEX": futex,
        "PAUSE": pause,
        "DECLARED": declared,
        "RESET": reset,
        "SPIN": str(SPIN),
        "RANGES": str(RANGES),
        "SLICES": str(SLICES),
        "MOST": str(MOST_WORKERS),
        "HOSTS": str(MOST_WORKERS + 1),
    }
    text = _TEXT
    for name, value in values.items():
        text = text.replace(f"${name}$", value)
    return text


#: Architecture -> number of the futex call, a pause, and IEEE floating point for a new thread, which
#: inherits flush-to-zero from whoever starts it.
_MACHINES = {
    "x86_64": (
        "202",
        "call void @llvm.x86.sse2.pause()",
        "@mxcsr = internal constant i32 8064\n"
        "declare void @llvm.x86.sse2.pause()\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)",
        "call void @llvm.x86.sse.ldmxcsr(ptr @mxcsr)",
    ),
    "aarch64": (
        "98",
        "call void @llvm.aarch64.isb(i32 15)",
        "declare void @llvm.aarch64.isb(i32)\ndeclare void @llvm.aarch64.set.fpcr(i64)",
        "call void @llvm.aarch64.set.fpcr(i64 0)",
    ),
}

_TEXT = """
%host = type { i32, i32, i64, ptr, ptr }

@gate = internal global i64 0, align 64
@busy = internal global i32 0, align 64
@sleepers = internal global i32 0, align 64
@code = internal global i32 0, align 64
@task = internal global ptr null, align 64
@closure = internal global ptr null
@extent = internal global i64 0
@step = internal global i64 0
@range = internal global i64 0
@ranges = internal global i64 0
@limit = internal global i64 0
@next = internal global [$RANGES$ x [8 x i64]] zeroinitializer, align 64
@owner = internal global i32 0, align 64
@stopping = internal global i32 0
@started = internal global i64 0
@wanted = internal global i64 0
@threads = internal global [$MOST$ x i64] zeroinitializer, align 64
@hosts = internal global [$HOSTS$ x %host] zeroinitializer, align 64
; all signals but those that a thread raises by its own fault: 4, 5, 7, 8 and 11
@signals = internal constant [16 x i64] [i64 -1241, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1,
  i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1]

declare i32 @getpid()
declare i64 @syscall(i64, ...)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
$DECLARED$

; 128 waits while the word has the value, 129 wakes so many that wait; in this process only.
define internal i64 @futex(ptr %word, i64 %operation, i64 %value) nounwind {
  %result = call i64 (i64, ...) @syscall(i64 $FUTEX$, ptr %word, i64 %operation, i64 %value, ptr null)
  ret i64 %result
}

; Take slices until none is left or one failed; the worker's own range first.
define internal void @work(i64 %worker) nounwind {
entry:
  %task = load ptr, ptr @task
  %closure = load ptr, ptr @closure
  %extent = load i64, ptr @extent
  %step = load i64, ptr @step
  %range = load i64, ptr @range
  %ranges = load i64, ptr @ranges
  %first = srem i64 %worker, %ranges
  br label %each
each:
  %tried = phi i64 [ 0, %entry ], [ %tried.next, %over ]
  %at = phi i64 [ %first, %entry ], [ %at.next, %over ]
  %begin = mul i64 %at, %range
  %end.all = add i64 %begin, %range
  %end = call i64 @llvm.smin.i64(i64 %end.all, i64 %extent)
  %counter = getelementptr [8 x i64], ptr @next, i64 %at
  br label %look
look:
  %failed = load atomic i32, ptr @code monotonic, align 4
  %stop = icmp ne i32 %failed, 0
  %seen = load atomic i64, ptr %counter monotonic, align 8
  %left = icmp slt i64 %seen, %end
  br i1 %stop, label %done, label %look2
look2:
  br i1 %left, label %take, label %over
take:
  %from = atomicrmw add ptr %counter, i64 %step monotonic, align 8
  %got = icmp slt i64 %from, %end
  br i1 %got, label %run, label %over
run:
  %to.all = add i64 %from, %step
  %to = call i64 @llvm.smin.i64(i64 %to.all, i64 %end)
  %result = call i32 %task(ptr %closure, i64 %from, i64 %to, i64 %worker)
  %bad = icmp ne i32 %result, 0
  br i1 %bad, label %fail, label %look
fail:
  %was = cmpxchg ptr @code, i32 0, i32 %result monotonic monotonic, align 4
  br label %done
over:
  %at.more = add i64 %at, 1
  %wrap = icmp eq i64 %at.more, %ranges
  %at.next = select i1 %wrap, i64 0, i64 %at.more
  %tried.next = add i64 %tried, 1
  %all = icmp eq i64 %tried.next, %ranges
  br i1 %all, label %done, label %each
done:
  ret void
}

; A thread of the pool: wait for a generation not seen yet, join it if there is room, work, leave.
define internal ptr @serve(ptr %nothing) nounwind {
entry:
  $RESET$
  br label %wait
wait:
  %known = phi i32 [ 0, %entry ], [ %generation, %check ]
  br label %spin
spin:
  %spins = phi i32 [ 0, %wait ], [ %spins.next, %pause ], [ 0, %sleep ]
  %gate = load atomic i64, ptr @gate acquire, align 8
  %high = lshr i64 %gate, 32
  %generation = trunc i64 %high to i32
  %new = icmp ne i32 %generation, %known
  br i1 %new, label %join, label %idle
idle:
  %spins.next = add i32 %spins, 1
  %tired = icmp eq i32 %spins.next, $SPIN$
  br i1 %tired, label %sleep, label %pause
pause:
  $PAUSE$
  br label %spin
sleep:
  %asleep = atomicrmw add ptr @sleepers, i32 1 seq_cst, align 4
  %word = getelementptr i8, ptr @gate, i64 4
  %known.wide = zext i32 %known to i64
  %slept = call i64 @futex(ptr %word, i64 128, i64 %known.wide)
  %awake = atomicrmw sub ptr @sleepers, i32 1 seq_cst, align 4
  br label %spin
join:
  %open = phi i64 [ %gate, %spin ], [ %open.now, %again ]
  %room.shifted = lshr i64 %open, 16
  %room = and i64 %room.shifted, 65535
  %full = icmp eq i64 %room, 0
  br i1 %full, label %check, label %enter
enter:
  %taken = add i64 %open, -65535
  %swap = cmpxchg ptr @gate, i64 %open, i64 %taken acq_rel acquire, align 8
  %in = extractvalue { i64, i1 } %swap, 1
  %open.now = extractvalue { i64, i1 } %swap, 0
  br i1 %in, label %help, label %again
again:
  %high.now = lshr i64 %open.now, 32
  %generation.now = trunc i64 %high.now to i32
  %same = icmp eq i32 %generation.now, %generation
  br i1 %same, label %join, label %check
help:
  %limit = load i64, ptr @limit
  %worker = sub i64 %limit, %room
  call void @work(i64 %worker)
  %before = atomicrmw sub ptr @gate, i64 1 acq_rel, align 8
  %low = and i64 %before, 4294967295
  %last = icmp eq i64 %low, 32769
  br i1 %last, label %wake, label %check
wake:
  %woken = call i64 @futex(ptr @gate, i64 129, i64 1)
  br label %check
check:
  %stopping = load atomic i32, ptr @stopping acquire, align 4
  %end = icmp ne i32 %stopping, 0
  br i1 %end, label %out, label %wait
out:
  ret ptr null
}

; Start threads until there are so many workers with the caller, or the system has no more. After a fork
; from nothing.
define internal void @ensure(i64 %workers) nounwind noinline {
entry:
  %old = alloca [16 x i64], align 8
  %pid = call i32 @getpid()
  %mine = sub i32 0, %pid
  br label %look
look:
  %owner = load atomic i32, ptr @owner acquire, align 4
  %ready = icmp eq i32 %owner, %pid
  br i1 %ready, label %enough, label %other
enough:
  %have = load atomic i64, ptr @wanted monotonic, align 8
  %done = icmp sge i64 %have, %workers
  br i1 %done, label %out, label %claim
other:
  %starting = icmp eq i32 %owner, %mine
  br i1 %starting, label %pause, label %claim
pause:
  $PAUSE$
  br label %look
claim:
  %swap = cmpxchg ptr @owner, i32 %owner, i32 %mine acq_rel acquire, align 4
  %won = extractvalue { i32, i1 } %swap, 1
  br i1 %won, label %claimed, label %pause
claimed:
  br i1 %ready, label %start, label %renew
renew:
  store atomic i64 0, ptr @gate monotonic, align 8
  store atomic i32 0, ptr @busy monotonic, align 4
  store atomic i32 0, ptr @sleepers monotonic, align 4
  store atomic i32 0, ptr @stopping monotonic, align 4
  store atomic i64 0, ptr @started monotonic, align 8
  br label %start
start:
  %before = load atomic i64, ptr @wanted monotonic, align 8
  %goal = call i64 @llvm.smax.i64(i64 %before, i64 %workers)
  store atomic i64 %goal, ptr @wanted monotonic, align 8
  %masked = call i32 @pthread_sigmask(i32 2, ptr @signals, ptr %old)
  br label %more
more:
  %count = load atomic i64, ptr @started monotonic, align 8
  %count.next = add i64 %count, 1
  %missing = icmp slt i64 %count.next, %goal
  br i1 %missing, label %create, label %publish
create:
  %slot = getelementptr i64, ptr @threads, i64 %count
  %error = call i32 @pthread_create(ptr %slot, ptr null, ptr @serve, ptr null)
  %refused = icmp ne i32 %error, 0
  br i1 %refused, label %publish, label %created
created:
  store atomic i64 %count.next, ptr @started monotonic, align 8
  br label %more
publish:
  %restored = call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  store atomic i32 %pid, ptr @owner release, align 4
  br label %out
out:
  ret void
}

; A long slice to a multiple of 64 elements, so that those after it begin where a cache line does.
define internal i64 @even(i64 %count) nounwind alwaysinline {
  %long = icmp sge i64 %count, 4096
  %up = add i64 %count, 63
  %rounded = and i64 %up, -64
  %chosen = select i1 %long, i64 %rounded, i64 %count
  ret i64 %chosen
}

; The host's function: ctx is the number of workers. The caller works too, and waits for those that joined.
define internal i32 @parallel_for(ptr %ctx, i64 %n, i64 %grain.any, ptr %task, ptr %closure) nounwind {
entry:
  %empty = icmp slt i64 %n, 1
  br i1 %empty, label %nothing, label %some
nothing:
  ret i32 0
some:
  %limit = ptrtoint ptr %ctx to i64
  %grain = call i64 @llvm.smax.i64(i64 %grain.any, i64 1)
  %slices = sdiv i64 %n, %grain
  %workers = call i64 @llvm.smin.i64(i64 %slices, i64 %limit)
  %few = icmp slt i64 %workers, 2
  br i1 %few, label %alone, label %threads
threads:
  %pid = call i32 @getpid()
  %owner = load atomic i32, ptr @owner acquire, align 4
  %ours = icmp eq i32 %owner, %pid
  br i1 %ours, label %claim, label %child
child:
  call void @ensure(i64 0)
  br label %claim
claim:
  %swap = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic, align 4
  %won = extractvalue { i32, i1 } %swap, 1
  br i1 %won, label %open, label %alone
alone:
  %single = call i32 %task(ptr %closure, i64 0, i64 %n, i64 0)
  ret i32 %single
open:
  %ranges = call i64 @llvm.smin.i64(i64 %workers, i64 $RANGES$)
  %n.up = add i64 %n, -1
  %n.less = add i64 %n.up, %ranges
  %range.exact = sdiv i64 %n.less, %ranges
  %range = call i64 @even(i64 %range.exact)
  %fit = sdiv i64 %range, %grain
  %workers.less = add i64 %workers, -1
  %workers.up = add i64 %workers.less, %ranges
  %sharing = sdiv i64 %workers.up, %ranges
  %slices.most = mul i64 %sharing, $SLICES$
  %fit.most = call i64 @llvm.smin.i64(i64 %fit, i64 %slices.most)
  %pieces = call i64 @llvm.smax.i64(i64 %fit.most, i64 1)
  %range.up = add i64 %range, -1
  %range.less = add i64 %range.up, %pieces
  %step.exact = sdiv i64 %range.less, %pieces
  %step = call i64 @even(i64 %step.exact)
  store ptr %task, ptr @task
  store ptr %closure, ptr @closure
  store i64 %n, ptr @extent
  store i64 %step, ptr @step
  store i64 %range, ptr @range
  store i64 %ranges, ptr @ranges
  store i64 %workers, ptr @limit
  store atomic i32 0, ptr @code monotonic, align 4
  br label %counters
counters:
  %index = phi i64 [ 0, %open ], [ %index.next, %counters ]
  %counter = getelementptr [8 x i64], ptr @next, i64 %index
  %begin = mul i64 %index, %range
  store atomic i64 %begin, ptr %counter monotonic, align 8
  %index.next = add i64 %index, 1
  %more = icmp slt i64 %index.next, %ranges
  br i1 %more, label %counters, label %go
go:
  %helpers = add i64 %workers, -1
  %old = load atomic i64, ptr @gate monotonic, align 8
  %generation = lshr i64 %old, 32
  %generation.next = add i64 %generation, 1
  %generation.high = shl i64 %generation.next, 32
  %room = shl i64 %helpers, 16
  %gate.new = or i64 %generation.high, %room
  %replaced = atomicrmw xchg ptr @gate, i64 %gate.new seq_cst, align 8
  %asleep.all = load atomic i32, ptr @sleepers seq_cst, align 4
  %asleep = sext i32 %asleep.all to i64
  %started = load atomic i64, ptr @started monotonic, align 8
  %awake = sub i64 %started, %asleep
  %lacking = sub i64 %helpers, %awake
  %lack = icmp sgt i64 %lacking, 0
  %sleeping = icmp sgt i64 %asleep, 0
  %call = and i1 %lack, %sleeping
  br i1 %call, label %wake, label %mine
wake:
  %word = getelementptr i8, ptr @gate, i64 4
  %woken = call i64 @futex(ptr %word, i64 129, i64 %lacking)
  br label %mine
mine:
  call void @work(i64 0)
  %closed = atomicrmw and ptr @gate, i64 -4294901761 acq_rel, align 8
  br label %rest
rest:
  %spins = phi i32 [ 0, %mine ], [ %spins.next, %pause ]
  %now = load atomic i64, ptr @gate acquire, align 8
  %active = and i64 %now, 32767
  %finished = icmp eq i64 %active, 0
  br i1 %finished, label %end, label %unfinished
unfinished:
  %spins.next = add i32 %spins, 1
  %tired = icmp eq i32 %spins.next, $SPIN$
  br i1 %tired, label %doze, label %pause
pause:
  $PAUSE$
  br label %rest
doze:
  %late = load atomic i64, ptr @gate acquire, align 8
  %late.active = and i64 %late, 32767
  %late.finished = icmp eq i64 %late.active, 0
  br i1 %late.finished, label %end, label %mark
mark:
  %marked = or i64 %late, 32768
  %marking = cmpxchg ptr @gate, i64 %late, i64 %marked acq_rel acquire, align 8
  %is.marked = extractvalue { i64, i1 } %marking, 1
  br i1 %is.marked, label %sleep, label %doze
sleep:
  %expected = and i64 %marked, 4294967295
  %slept = call i64 @futex(ptr @gate, i64 128, i64 %expected)
  br label %doze
end:
  %result = load atomic i32, ptr @code monotonic, align 4
  store atomic i32 0, ptr @busy release, align 4
  ret i32 %result
}

define ptr @kcache_pool_start(i64 %workers.any) nounwind {
entry:
  %atleast = call i64 @llvm.smax.i64(i64 %workers.any, i64 1)
  %workers = call i64 @llvm.smin.i64(i64 %atleast, i64 $MOST$)
  call void @ensure(i64 %workers)
  %host = getelementptr %host, ptr @hosts, i64 %workers
  %abi = getelementptr %host, ptr %host, i64 0, i32 1
  %count = getelementptr %host, ptr %host, i64 0, i32 2
  %context = getelementptr %host, ptr %host, i64 0, i32 3
  %function = getelementptr %host, ptr %host, i64 0, i32 4
  %limit = inttoptr i64 %workers to ptr
  store i32 32, ptr %host
  store i32 1, ptr %abi
  store i64 %workers, ptr %count
  store ptr %limit, ptr %context
  store ptr @parallel_for, ptr %function
  ret ptr %host
}

; Waits for the threads' end. Launches meanwhile, and after it, run on their callers alone.
define void @kcache_pool_stop() nounwind {
entry:
  %pid = call i32 @getpid()
  %mine = sub i32 0, %pid
  %swap = cmpxchg ptr @owner, i32 %pid, i32 %mine acq_rel acquire, align 4
  %won = extractvalue { i32, i1 } %swap, 1
  br i1 %won, label %stop, label %out
stop:
  store atomic i32 1, ptr @stopping seq_cst, align 4
  %old = atomicrmw add ptr @gate, i64 4294967296 seq_cst, align 8
  %word = getelementptr i8, ptr @gate, i64 4
  %woken = call i64 @futex(ptr %word, i64 129, i64 2147483647)
  %count = load atomic i64, ptr @started monotonic, align 8
  br label %each
each:
  %index = phi i64 [ 0, %stop ], [ %index.next, %join ]
  %left = icmp slt i64 %index, %count
  br i1 %left, label %join, label %ended
join:
  %slot = getelementptr i64, ptr @threads, i64 %index
  %thread = load i64, ptr %slot
  %joined = call i32 @pthread_join(i64 %thread, ptr null)
  %index.next = add i64 %index, 1
  br label %each
ended:
  store atomic i64 0, ptr @started monotonic, align 8
  store atomic i64 0, ptr @wanted monotonic, align 8
  store atomic i32 0, ptr @stopping monotonic, align 4
  store atomic i32 %pid, ptr @owner release, align 4
  br label %out
out:
  ret void
}
"""
