/* Warp collectives: shuffles, votes, warp barriers, redux. */
#include "emu.h"

#include <string.h>

void warp_collective(uint32_t site, uint32_t mask, int aligned, uint32_t detail, const void *in, void *out, Resolve resolve) {
    uint32_t warp = self->warp;
    if (!(mask >> self->lane & 1)) fail("lane %u is not in the mask %08x of its own collective: %s: @@%u", self->lane, mask, where(), site);
    self->state = IN_WARP, self->site = site, self->mask = mask, self->aligned = aligned, self->detail = detail;
    self->in = in, self->out = out, self->resolve = resolve;
    for (uint32_t lane = 0; lane < WARP; lane++) {
        const Thread *other = &threads[warp * WARP + lane];
        if (!(mask >> lane & 1)) continue;
        if (other->index / WARP != warp || warp * WARP + lane >= thread_count)
            fail("the mask %08x names lane %u, which this block does not have: %s: @@%u", mask, lane, where(), site);
        if (other->state == ENDED)
            fail("partial warp: the mask %08x names lane %u, which has ended: %s: @@%u", mask, lane, where(), site);
        if (other->state != IN_WARP) { wait_here(); return; }
        if (other->resolve != resolve || other->mask != mask || other->detail != detail || (aligned && other->site != site))
            fail("partial warp: %s is at @@%u, lane %u of the same mask at @@%u", where(), site, lane, other->site);
    }
    resolve(warp, mask);
    for (uint32_t lane = 0; lane < WARP; lane++)
        if (mask >> lane & 1) threads[warp * WARP + lane].state = READY;
}

typedef struct { uint32_t value, lane, clamp; } Shuffle;
typedef struct { uint32_t value; uint8_t inside; } Shuffled;
enum { UP, DOWN, BFLY, IDX };

static void resolve_shuffle(uint32_t warp, uint32_t mask) {
    for (uint32_t lane = 0; lane < WARP; lane++) {
        if (!(mask >> lane & 1)) continue;
        const Thread *thread = &threads[warp * WARP + lane];
        const Shuffle *asked = thread->in;
        Shuffled *got = thread->out;
        int b = asked->lane & 31, clamp = asked->clamp & 31, segment = asked->clamp >> 8 & 31, at = (int)lane;
        int most = (at & segment) | (clamp & ~segment), least = at & segment, from = at, inside = 0;
        switch (thread->detail) {
        case UP: from = at - b, inside = from >= most; break;
        case DOWN: from = at + b, inside = from <= most; break;
        case BFLY: from = at ^ b, inside = from <= most; break;
        case IDX: from = least | (b & ~segment), inside = from <= most; break;
        }
        if (!inside) from = at;
        if (!(mask >> from & 1))
            fail("shuffle: thread %u takes from lane %d, which is not in the mask %08x: @@%u", thread->index, from, mask, thread->site);
        got->value = ((const Shuffle *)threads[warp * WARP + (uint32_t)from].in)->value;
        got->inside = (uint8_t)inside;
    }
}

static Shuffled shuffle(uint32_t site, int kind, uint32_t mask, uint32_t value, uint32_t lane, uint32_t clamp) {
    Shuffle asked = {value, lane, clamp};
    Shuffled got = {0, 0};
    warp_collective(site, mask, 0, (uint32_t)kind, &asked, &got, resolve_shuffle);
    return got;
}

static uint32_t bits_of(float value) { uint32_t bits; memcpy(&bits, &value, 4); return bits; }
static float float_of(uint32_t bits) { float value; memcpy(&value, &bits, 4); return value; }

typedef struct { uint32_t mask, value, lane, clamp; } Packed;

#define SHUFFLE(name, kind)                                                                                             \
    uint32_t emu_shfl_sync_##name##_i32(uint32_t site, uint32_t mask, uint32_t value, uint32_t lane, uint32_t clamp) {  \
        return shuffle(site, kind, mask, value, lane, clamp).value;                                                     \
    }                                                                                                                   \
    float emu_shfl_sync_##name##_f32(uint32_t site, uint32_t mask, float value, uint32_t lane, uint32_t clamp) {        \
        return float_of(shuffle(site, kind, mask, bits_of(value), lane, clamp).value);                                  \
    }                                                                                                                   \
    void emu_shfl_sync_##name##_i32p(uint32_t site, const Packed *in, Shuffled *out) {                                  \
        *out = shuffle(site, kind, in->mask, in->value, in->lane, in->clamp);                                           \
    }                                                                                                                   \
    void emu_shfl_sync_##name##_f32p(uint32_t site, const Packed *in, Shuffled *out) {                                  \
        *out = shuffle(site, kind, in->mask, in->value, in->lane, in->clamp);                                           \
    }
SHUFFLE(up, UP)
SHUFFLE(down, DOWN)
SHUFFLE(bfly, BFLY)
SHUFFLE(idx, IDX)

enum { BALLOT, ALL, ANY, UNI, ADD, LEAST, MOST, ULEAST, UMOST, AND, OR, XOR };

static void resolve_vote(uint32_t warp, uint32_t mask) {
    uint32_t ballot = 0, kind = threads[warp * WARP + (uint32_t)__builtin_ctz(mask)].detail;
    for (uint32_t lane = 0; lane < WARP; lane++)
        if (mask >> lane & 1 && *(const uint32_t *)threads[warp * WARP + lane].in) ballot |= 1u << lane;
    uint32_t all = ballot == mask, result = ballot;
    if (kind == ALL) result = all;
    if (kind == ANY) result = ballot != 0;
    if (kind == UNI) result = all || !ballot;
    for (uint32_t lane = 0; lane < WARP; lane++)
        if (mask >> lane & 1) *(uint32_t *)threads[warp * WARP + lane].out = result;
}

static uint32_t vote(uint32_t site, uint32_t kind, uint32_t mask, uint32_t value) {
    uint32_t in = value & 1, out = 0;
    warp_collective(site, mask, 0, kind, &in, &out, resolve_vote);
    return out;
}
uint32_t emu_vote_ballot_sync(uint32_t site, uint32_t mask, uint32_t value) { return vote(site, BALLOT, mask, value); }
_Bool emu_vote_all_sync(uint32_t site, uint32_t mask, uint32_t value) { return vote(site, ALL, mask, value); }
_Bool emu_vote_any_sync(uint32_t site, uint32_t mask, uint32_t value) { return vote(site, ANY, mask, value); }
_Bool emu_vote_uni_sync(uint32_t site, uint32_t mask, uint32_t value) { return vote(site, UNI, mask, value); }

static uint32_t combine(uint32_t kind, uint32_t a, uint32_t b) {
    switch (kind) {
    case ADD: return a + b;
    case LEAST: return (int32_t)a < (int32_t)b ? a : b;
    case MOST: return (int32_t)a > (int32_t)b ? a : b;
    case ULEAST: return a < b ? a : b;
    case UMOST: return a > b ? a : b;
    case AND: return a & b;
    case OR: return a | b;
    default: return a ^ b;
    }
}

static void resolve_redux(uint32_t warp, uint32_t mask) {
    uint32_t first = (uint32_t)__builtin_ctz(mask), kind = threads[warp * WARP + first].detail;
    uint32_t result = *(const uint32_t *)threads[warp * WARP + first].in;
    for (uint32_t lane = first + 1; lane < WARP; lane++)
        if (mask >> lane & 1) result = combine(kind, result, *(const uint32_t *)threads[warp * WARP + lane].in);
    for (uint32_t lane = 0; lane < WARP; lane++)
        if (mask >> lane & 1) *(uint32_t *)threads[warp * WARP + lane].out = result;
}

#define REDUX(name, kind)                                                                  \
    uint32_t emu_redux_sync_##name(uint32_t site, uint32_t value, uint32_t mask) {         \
        uint32_t out = 0;                                                                  \
        warp_collective(site, mask, 0, kind, &value, &out, resolve_redux);                 \
        return out;                                                                        \
    }
REDUX(add, ADD)
REDUX(min, LEAST)
REDUX(max, MOST)
REDUX(umin, ULEAST)
REDUX(umax, UMOST)
REDUX(and, AND)
REDUX(or, OR)
REDUX(xor, XOR)

static void resolve_warp_barrier(uint32_t warp, uint32_t mask) {
    warp_barriers++;
    for (uint32_t lane = 0; lane < WARP; lane++)
        if (mask >> lane & 1) threads[warp * WARP + lane].wepoch = warp_barriers;
}
void emu_bar_warp_sync(uint32_t site, uint32_t mask) { warp_collective(site, mask, 0, 0, 0, 0, resolve_warp_barrier); }
