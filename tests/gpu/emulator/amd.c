/* What AMD's GPUs have in the place of NVIDIA's special registers and collectives: waves of 64 lanes, of which
 * each half is a warp here. What lanes of one half do together, all of them must do; of the other half nothing is
 * known.
 */
#include "emu.h"

enum { WAVE = 64 };

#define REGISTER(name, value) uint32_t emu_amdgcn_##name(uint32_t site) { (void)site; return value; }
REGISTER(workitem_id_x, self->tid[0])
REGISTER(workitem_id_y, self->tid[1])
REGISTER(workitem_id_z, self->tid[2])
REGISTER(workgroup_id_x, block_index[0])
REGISTER(workgroup_id_y, block_index[1])
REGISTER(workgroup_id_z, block_index[2])

/* How many of the lanes before this one are in the mask of one half. */
static uint32_t before(uint32_t mask, uint32_t base, uint32_t first) {
    uint32_t lane = self->index % WAVE, lanes = lane <= first ? 0 : lane - first;
    return base + (uint32_t)__builtin_popcount(lanes >= WARP ? mask : mask & ((1u << lanes) - 1));
}
uint32_t emu_amdgcn_mbcnt_lo(uint32_t site, uint32_t mask, uint32_t base) { (void)site; return before(mask, base, 0); }
uint32_t emu_amdgcn_mbcnt_hi(uint32_t site, uint32_t mask, uint32_t base) { (void)site; return before(mask, base, WARP); }

void emu_barrier0(uint32_t site);
void emu_bar_warp_sync(uint32_t site, uint32_t mask);
void emu_amdgcn_s_barrier(uint32_t site) { emu_barrier0(site); }
void emu_amdgcn_wave_barrier(uint32_t site) { emu_bar_warp_sync(site, ~0u); }

typedef struct { uint32_t place, value; } Asked;

static void resolve_bpermute(uint32_t warp, uint32_t mask) {
    (void)mask;
    for (uint32_t lane = 0; lane < WARP; lane++) {
        const Thread *thread = &threads[warp * WARP + lane];
        uint32_t from = ((const Asked *)thread->in)->place / 4 % WAVE;
        if (from / WARP != warp % 2)
            fail("shuffle: thread %u takes from lane %u of the other half of its wave: @@%u", thread->index, from, thread->site);
        *(uint32_t *)thread->out = ((const Asked *)threads[warp * WARP + from % WARP].in)->value;
    }
}
uint32_t emu_amdgcn_ds_bpermute(uint32_t site, uint32_t place, uint32_t value) {
    Asked asked = {place, value};
    uint32_t got = 0;
    warp_collective(site, ~0u, 0, 0, &asked, &got, resolve_bpermute);
    return got;
}

static void resolve_ballot(uint32_t warp, uint32_t mask) {
    uint64_t found = 0;
    (void)mask;
    for (uint32_t lane = 0; lane < WARP; lane++)
        if (*(const uint32_t *)threads[warp * WARP + lane].in) found |= 1ull << lane;
    found = warp % 2 ? found << WARP | 0xFFFFFFFFull : found | 0xFFFFFFFFull << WARP;
    for (uint32_t lane = 0; lane < WARP; lane++) *(uint64_t *)threads[warp * WARP + lane].out = found;
}
uint64_t emu_amdgcn_ballot_i64(uint32_t site, uint32_t here) {
    uint32_t in = here & 1;
    uint64_t out = 0;
    warp_collective(site, ~0u, 0, 0, &in, &out, resolve_ballot);
    return out;
}
