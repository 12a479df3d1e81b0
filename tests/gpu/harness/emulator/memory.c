/* Bounds, alignment, uninitialized bytes and races, byte by byte.
 *
 * A record says who touched a byte last: the epoch (barriers of the block passed, never reused), the number of
 * warp barriers, the thread; of readers also whether there were several, of several warps, of several blocks. Two accesses of which one writes are in order if a barrier of all threads, a warp
 * barrier of one warp or the end of a launch lies between. Barriers of some threads are taken to order all: that
 * misses races and invents none.
 */
#define _GNU_SOURCE
#include "emu.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

typedef struct {
    uint32_t epoch;
    uint16_t wepoch, thread : 10, many : 1, warps : 1, blocks : 1, atomic : 1, pending : 1, invariant : 1;
} Record;

typedef struct Shadow {
    Record write, read;
} Shadow;
_Static_assert(sizeof(Shadow) == 16 && MAX_REGIONS <= 256, "records without padding, regions that a byte counts");

Region regions[MAX_REGIONS];
uint32_t region_count;

/* What every access of the kernel executes. */
#define HOT static inline __attribute__((always_inline))
#define COLD __attribute__((cold, noinline))

static const char *ACTS[] = {"", "read", "write", "read and write"};

const char *where(void) {
    static char text[160];
    if (!self) return "before the launch";
    snprintf(text, sizeof text, "thread %u (%u, %u, %u) of block (%u, %u, %u)", self->index, self->tid[0], self->tid[1],
             self->tid[2], block_index[0], block_index[1], block_index[2]);
    return text;
}

/* A place in the kernel accesses one region, as a rule: the one of its last access is tried first. */
HOT Region *find(const uint8_t *at, uint32_t site) {
    static uint8_t last[1 << 12];
    uint8_t *hint = &last[site % sizeof last];
    Region *one = &regions[*hint];
    if (*hint < region_count && (uint64_t)(at - one->base) < one->size) return one;
    for (uint32_t i = 0; i < region_count; i++)
        if ((uint64_t)(at - regions[i].base) < regions[i].size) return *hint = (uint8_t)i, &regions[i];
    return NULL;
}

static const Region *nearest(const uint8_t *at) {
    const Region *best = NULL;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < region_count; i++) {
        const Region *one = &regions[i];
        uint64_t away = at < one->base ? (uint64_t)(one->base - at) : (uint64_t)(at - one->base) - one->size;
        if (away < least) least = away, best = one;
    }
    return best;
}

COLD static void outside(const uint8_t *at, uint64_t bytes, const char *act, uint32_t site) {
    const Region *one = nearest(at);
    if (!one) fail("out of bounds: %s of %llu bytes at %p, %s: @@%u", act, (unsigned long long)bytes, (const void *)at, where(), site);
    fail("out of bounds: %s of %llu bytes at byte %lld of %s, which has %llu: %s: @@%u", act, (unsigned long long)bytes,
         (long long)(at - one->base), one->name, (unsigned long long)one->size, where(), site);
}

COLD static void race(const char *act, const char *other, Record by, const Region *region, uint64_t byte, uint32_t site) {
    if (by.epoch < block_epoch)
        fail("race: %s of byte %llu of %s by %s and %s by another block: @@%u", act, (unsigned long long)byte, region->name,
             where(), other, site);
    fail("race: %s of byte %llu of %s by %s and %s by thread %u, no barrier between: @@%u", act, (unsigned long long)byte,
         region->name, where(), other, by.thread, site);
}

/* Whether what ``by`` did is sure to be seen by, or over before, what this thread does now. */
HOT int ordered(Record by, int shared) {
    if (by.epoch < (shared ? block_epoch : launch_epoch)) return 1;
    if (by.epoch < block_epoch) return 0;
    if (by.blocks) return 0;
    if (by.epoch != self->epoch || (by.thread == self->index && !by.many)) return 1;
    if (by.warps) return 0;
    return by.thread / WARP == self->warp && by.wepoch < self->wepoch;
}

HOT void note_read(Shadow *shadow, const Region *region, uint64_t byte, uint32_t flags, Record now, uint32_t site) {
    Record write = shadow->write, read = shadow->read;
    int shared = region->kind == SHARED;
    if (write.epoch < (shared ? block_epoch : 1))
        fail("read of uninitialized byte %llu of %s by %s: @@%u", (unsigned long long)byte, region->name, where(), site);
    if (write.pending)
        fail("read of byte %llu of %s by %s, which a cp.async of thread %u may not have written yet: @@%u",
             (unsigned long long)byte, region->name, where(), write.thread, site);
    if (!ordered(write, shared)) race("read", "write", write, region, byte, site);
    if (flags & INVARIANT && write.epoch >= launch_epoch && !shared)
        fail("byte %llu of %s is read as if nothing wrote it (ld.global.nc), and this launch did: %s: @@%u",
             (unsigned long long)byte, region->name, where(), site);
    int apart = read.epoch >= launch_epoch && read.epoch < block_epoch;
    now.blocks = (read.epoch >= launch_epoch && read.blocks) || (apart && !shared);
    now.many = !now.blocks && read.epoch >= block_epoch && !ordered(read, shared);
    now.warps = now.many && (read.warps || read.thread / WARP != self->warp);
    now.invariant = (flags & INVARIANT) || (read.epoch >= launch_epoch && read.invariant);
    shadow->read = now;
}

HOT void note_write(Shadow *shadow, const Region *region, uint64_t byte, uint32_t flags, Record now, uint32_t site) {
    Record write = shadow->write, read = shadow->read;
    int shared = region->kind == SHARED;
    now.atomic = (flags & ATOMIC) != 0, now.pending = (flags & PENDING) != 0;
    if (!(write.atomic && now.atomic) && !ordered(write, shared)) race("write", "write", write, region, byte, site);
    if (!ordered(read, shared)) race("write", "read", read, region, byte, site);
    if (read.invariant && read.epoch >= launch_epoch && !shared)
        fail("byte %llu of %s is written, and this launch read it as if nothing did (ld.global.nc): %s: @@%u",
             (unsigned long long)byte, region->name, where(), site);
    shadow->write = now;
}

/* Memory comes as it is touched: of a buffer that a machine has no room for, a few blocks may run. */
COLD static void make_shadow(Region *region) {
    uint64_t size = (region->base == kernel.dynamic ? *kernel.dynamic_room : region->size) * sizeof(Shadow);
    region->shadow = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region->shadow == MAP_FAILED) fail("no memory for the shadow of %s", region->name);
}

/* What each of these bytes is checked for depends on its records alone. */
HOT int alike(const Shadow *shadow, uint64_t bytes) {
    uint64_t first[2], one[2], unlike = 0;
    memcpy(first, shadow, sizeof first);
    for (uint64_t i = 1; i < bytes; i++) {
        memcpy(one, &shadow[i], sizeof one);
        unlike |= (one[0] ^ first[0]) | (one[1] ^ first[1]);
    }
    return !unlike;
}

HOT void note(Shadow *shadow, const Region *region, uint64_t byte, uint32_t flags, Record now, uint32_t site) {
    /* Atomic reads go with the atomic write that they belong to. */
    uint32_t since = region->kind == SHARED ? block_epoch : 1;
    if (flags & ATOMIC && flags & READ && shadow->write.epoch < since)
        fail("read of uninitialized byte %llu of %s by %s: @@%u", (unsigned long long)byte, region->name, where(), site);
    if (flags & READ && !(flags & ATOMIC)) note_read(shadow, region, byte, flags, now, site);
    if (flags & WRITE) note_write(shadow, region, byte, flags, now, site);
}

/* A local array: a variable of the thread, whose bytes are uninitialized. */
void emu_local(uint8_t *address, uint64_t bytes) {
    uint32_t place = 0;
    while (place < self->local_count && self->locals[place].base != address) place++;
    if (place == MAX_LOCALS) fail("more than %d local arrays", MAX_LOCALS);
    if (place == self->local_count) self->local_count++;
    self->locals[place].base = address, self->locals[place].size = bytes;
    memset(address, 0xFF, bytes);
    memset(self->written + (address - (const uint8_t *)self->stack), 0, bytes);
}

COLD static void access_local(const uint8_t *at, uint64_t bytes, uint32_t align, uint32_t flags, uint32_t site) {
    const char *act = ACTS[flags & 3];
    uint8_t *written = self->written + (at - (const uint8_t *)self->stack);
    uint32_t place = 0;
    while (place < self->local_count && (uint64_t)(at - self->locals[place].base) >= self->locals[place].size) place++;
    if (place == self->local_count || bytes > self->locals[place].size - (uint64_t)(at - self->locals[place].base))
        fail("out of bounds: %s of %llu bytes in no local array of %s: @@%u", act, (unsigned long long)bytes, where(), site);
    if ((uintptr_t)at % align)
        fail("misaligned: %s of %llu bytes of a local array, %u are needed: %s: @@%u", act, (unsigned long long)bytes, align,
             where(), site);
    if (flags & READ && memchr(written, 0, bytes)) fail("read of uninitialized local memory by %s: @@%u", where(), site);
    if (flags & WRITE) memset(written, 1, bytes);
}

void emu_access(const void *address, uint64_t bytes, uint32_t align, uint32_t flags, uint32_t site) {
    const uint8_t *at = address;
    const uint8_t *stack = self->stack;
    if (at >= stack && at < stack + STACK) {
        access_local(at, bytes, align, flags, site);
        return;
    }
    const char *act = ACTS[flags & 3];
    Region *region = find(at, site);
    if (!region || bytes > region->size - (uint64_t)(at - region->base)) outside(at, bytes, act, site);
    if ((uintptr_t)at % align) fail("misaligned: %s of %llu bytes at byte %llu of %s, %u are needed: %s: @@%u", act,
                                    (unsigned long long)bytes, (unsigned long long)(at - region->base), region->name, align,
                                    where(), site);
    if (flags & WRITE && (region->kind == INPUT || region->kind == CONSTANT))
        fail("write to %s, which is read only: %s: @@%u", region->name, where(), site);
    if (region->kind == INPUT || region->kind == CONSTANT) return;  /* nothing writes it: reads race with nothing */
    if (!region->shadow) make_shadow(region);
    Record now = {.epoch = self->epoch, .wepoch = (uint16_t)self->wepoch, .thread = (uint16_t)self->index};
    uint64_t first = (uint64_t)(at - region->base);
    Shadow *shadow = &region->shadow[first];
    uint64_t checked = alike(shadow, bytes) && bytes ? 1 : bytes;
    for (uint64_t i = 0; i < checked; i++) note(&shadow[i], region, first + i, flags, now, site);
    for (uint64_t i = checked; i < bytes; i++) shadow[i] = shadow[0];
}

void emu_memcpy(uint32_t site, void *to, const void *from, uint64_t bytes) {
    if (!bytes) return;
    emu_access(from, bytes, 1, READ, site);
    emu_access(to, bytes, 1, WRITE, site);
    memmove(to, from, bytes);
}

void emu_memset(uint32_t site, void *to, uint8_t value, uint64_t bytes) {
    if (!bytes) return;
    emu_access(to, bytes, 1, WRITE, site);
    memset(to, value, bytes);
}

/* Shared memory of a new block: poison, and the dynamic part as long as this launch says. */
void begin_block_memory(uint64_t dynamic_bytes) {
    for (uint32_t i = 0; i < region_count; i++) {
        if (regions[i].kind != SHARED) continue;
        if (regions[i].base == kernel.dynamic) regions[i].size = dynamic_bytes;
        memset(regions[i].base, 0xFF, regions[i].size);
    }
}

void check_outputs_written(void) {
    for (uint32_t i = 0; i < region_count; i++) {
        const Region *one = &regions[i];
        uint64_t missing = 0, first = 0;
        for (uint64_t byte = 0; one->kind == OUTPUT && byte < one->size; byte++)
            if (!one->shadow || !one->shadow[byte].write.epoch)
                if (!missing++) first = byte;
        if (missing) fail("%llu bytes of %s were never written, the first is byte %llu", (unsigned long long)missing, one->name,
                          (unsigned long long)first);
    }
}
