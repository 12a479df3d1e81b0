/* Coroutines, the order in which threads run, barriers, deadlocks. */
#define _GNU_SOURCE
#include "emu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { DEADLOCK_LINES = 6 };

Thread threads[MAX_THREADS];
Thread *self;
uint32_t thread_count;
uint32_t block_index[3], grid_size[3], block_size[3];
uint32_t epoch = 1, block_epoch = 1, launch_epoch = 1, warp_barriers;

static void (*body)(const uint64_t *params);
static const uint64_t *body_params;
static uint32_t ended;
/* Of each barrier: how many threads wait, and for how many the first of them does. */
static uint32_t arrived[MAX_BARRIERS], wanted[MAX_BARRIERS];

#if defined(__x86_64__)
static void *scheduler;
void emu_switch(void **save, void *load) __attribute__((visibility("hidden")));
__asm__(".text\n.globl emu_switch\n.hidden emu_switch\n.type emu_switch, @function\nemu_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size emu_switch, .-emu_switch\n");

static void thread_main(void);

static void prepare(Thread *thread) {
    uint64_t *top = (uint64_t *)((char *)thread->stack + STACK) - 1;
    top[0] = 0;  /* as after a call: the stack is 8 past a multiple of 16 */
    *--top = (uint64_t)thread_main;
    thread->sp = top - 6;
}
static void resume(Thread *thread) { emu_switch(&scheduler, thread->sp); }
static void suspend(void) { emu_switch(&self->sp, scheduler); }
#else
#include <ucontext.h>
static ucontext_t scheduler, contexts[MAX_THREADS];
static void thread_main(void);
static void prepare(Thread *thread) {
    ucontext_t *context = &contexts[thread->index];
    getcontext(context);
    context->uc_stack.ss_sp = thread->stack;
    context->uc_stack.ss_size = STACK;
    makecontext(context, thread_main, 0);
}
static void resume(Thread *thread) { swapcontext(&scheduler, &contexts[thread->index]); }
static void suspend(void) { swapcontext(&contexts[self->index], &scheduler); }
#endif

static void thread_main(void) {
    body(body_params);
    end_thread_copies();
    self->state = ENDED;
    ended++;
    suspend();
    abort();
}

void wait_here(void) {
    if (self->state != READY) suspend();
}

static uint64_t draw(uint64_t *seed) {
    *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
    return *seed;
}

static void arrange(uint32_t *order, uint32_t count, int kind, uint64_t *seed) {
    for (uint32_t i = 0; i < count; i++) order[i] = kind == 1 ? count - 1 - i : i;
    for (uint32_t i = count; kind == 2 && i > 1; i--) {
        uint32_t j = draw(seed) % i, kept = order[i - 1];
        order[i - 1] = order[j], order[j] = kept;
    }
}

static const char *doing(const Thread *thread, char *text, size_t room) {
    switch (thread->state) {
    case READY: return "can run";
    case ENDED: return "has ended";
    case AT_BARRIER: snprintf(text, room, "waits at barrier %u: @@%u", thread->barrier, thread->site); break;
    case IN_WARP: snprintf(text, room, "waits for the lanes %08x of its warp: @@%u", thread->mask, thread->site);
    }
    return text;
}

static void deadlock(void) {
    char report[4096], one[128];
    size_t used = 0;
    uint32_t lines = 0;
    for (uint32_t i = 0; i < thread_count && lines < DEADLOCK_LINES; i++) {
        const Thread *a = &threads[i], *b = i ? &threads[i - 1] : NULL;
        if (b && a->state == b->state && (a->state == ENDED || a->site == b->site)) continue;
        used += (size_t)snprintf(report + used, sizeof report - used, "\n  thread %u %s", i, doing(a, one, sizeof one));
        lines++;
    }
    fail("deadlock: no thread of block (%u, %u, %u) can go on%s", block_index[0], block_index[1], block_index[2], report);
}

/* Runs all threads until none can; greedy: a warp goes on as long as one of its lanes can. */
static int pass(int kind, uint64_t *seed) {
    uint32_t warps = (thread_count + WARP - 1) / WARP, order[WARP], lanes[WARP];
    int any = 0;
    arrange(order, warps, kind, seed);
    for (uint32_t w = 0; w < warps; w++) {
        for (int moved = 1; moved;) {
            moved = 0;
            arrange(lanes, WARP, kind, seed);
            for (uint32_t l = 0; l < WARP; l++) {
                uint32_t index = order[w] * WARP + lanes[l];
                if (index >= thread_count || threads[index].state != READY) continue;
                self = &threads[index];
                resume(self);
                moved = any = 1;
            }
            if (kind == 2) break;
        }
    }
    return any;
}

void run_block(void (*call)(const uint64_t *params), const uint64_t *params, int order, uint64_t *seed) {
    static char *stacks;
    if (!stacks) {  /* each followed by what says which of its bytes were written */
        stacks = mmap(NULL, (size_t)MAX_THREADS * 2 * STACK, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED) fail("no memory for the stacks of %d threads", MAX_THREADS);
    }
    body = call, body_params = params, ended = 0, warp_barriers = 0;
    block_epoch = ++epoch;
    memset(arrived, 0, sizeof arrived);
    for (uint32_t i = 0; i < thread_count; i++) {
        Thread *thread = &threads[i];
        Copy *copies = thread->copies;
        uint32_t room = thread->copy_room;
        char *stack = stacks + (size_t)i * 2 * STACK;
        *thread = (Thread){.stack = stack, .written = (uint8_t *)stack + STACK, .index = i, .lane = i % WARP, .warp = i / WARP,
                           .tid = {i % block_size[0], i / block_size[0] % block_size[1], i / block_size[0] / block_size[1]},
                           .epoch = epoch, .copies = copies, .copy_room = room};
        prepare(thread);
    }
    while (ended < thread_count)
        if (!pass(order, seed)) deadlock();
}

/* All lanes of a warp stand at one instruction: what `.aligned` says they must. */
static void check_aligned(uint32_t barrier) {
    for (uint32_t i = 0; i < thread_count; i++) {
        const Thread *a = &threads[i], *first = &threads[a->warp * WARP];
        if (a->state != AT_BARRIER || a->barrier != barrier || !a->aligned) continue;
        if (first->state != AT_BARRIER || first->barrier != barrier || first->site != a->site)
            fail("divergent barrier: lanes of warp %u come from different places: thread %u at @@%u, thread %u at @@%u",
                 a->warp, first->index, first->site, a->index, a->site);
    }
}

static void differ(uint32_t id, uint32_t count, uint32_t site) {
    uint32_t i = 0;
    while (threads[i].state != AT_BARRIER || threads[i].barrier != id || threads[i].count == count) i++;
    fail("threads %u and %u wait at barrier %u for different counts: @@%u", i, self->index, id, site);
}

static void barrier(uint32_t site, uint32_t id, uint32_t count, int aligned) {
    if (id >= MAX_BARRIERS) fail("barrier %u: there are %d, %s @@%u", id, MAX_BARRIERS, where(), site);
    if (count % WARP) fail("a barrier of %u threads: not whole warps, %s @@%u", count, where(), site);
    uint32_t all = (thread_count + WARP - 1) / WARP * WARP;
    uint32_t expected = count && count < all ? count : thread_count;
    self->state = AT_BARRIER, self->site = site, self->barrier = id, self->count = count, self->aligned = aligned;
    if (!arrived[id]) wanted[id] = count;
    if (wanted[id] != count) differ(id, count, site);
    if (++arrived[id] == expected) {
        check_aligned(id);
        arrived[id] = 0, epoch++;
        for (uint32_t i = 0; i < thread_count; i++)
            if (threads[i].state == AT_BARRIER && threads[i].barrier == id) threads[i].state = READY, threads[i].epoch = epoch;
    }
    wait_here();
}

void emu_barrier0(uint32_t site) { barrier(site, 0, 0, 1); }
void emu_barrier_cta_sync_aligned_all(uint32_t site, uint32_t id) { barrier(site, id, 0, 1); }
void emu_barrier_cta_sync_all(uint32_t site, uint32_t id) { barrier(site, id, 0, 0); }
void emu_barrier_cta_sync_aligned_count(uint32_t site, uint32_t id, uint32_t count) { barrier(site, id, count, 1); }
void emu_barrier_cta_sync_count(uint32_t site, uint32_t id, uint32_t count) { barrier(site, id, count, 0); }
