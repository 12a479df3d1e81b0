/* cp.async: performed as late as the waits allow. */
#include "emu.h"

#include <stdlib.h>
#include <string.h>

static void issue(uint32_t site, void *to, const void *from, uint32_t bytes, uint32_t wanted) {
    if (wanted > bytes) fail("cp.async of %u bytes wants %u: %s: @@%u", bytes, wanted, where(), site);
    if (wanted) emu_access(from, wanted, bytes, READ, site);
    if ((uintptr_t)from % bytes) fail("misaligned: source of a cp.async of %u bytes: %s: @@%u", bytes, where(), site);
    emu_access(to, bytes, bytes, WRITE | PENDING, site);
    if (self->copy_count == self->copy_room) {
        self->copy_room = self->copy_room ? 2 * self->copy_room : 16;
        self->copies = realloc(self->copies, self->copy_room * sizeof(Copy));
        if (!self->copies) fail("no memory for %u copies", self->copy_room);
    }
    self->copies[self->copy_count++] = (Copy){to, from, bytes, wanted, self->group, site};
}

/* Performs the copies of the groups before ``end``. */
static void perform(uint32_t end) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < self->copy_count; i++) {
        Copy copy = self->copies[i];
        if (copy.group >= end) {
            self->copies[kept++] = copy;
            continue;
        }
        if (copy.wanted) emu_access(copy.from, copy.wanted, 1, READ, copy.site);
        emu_access(copy.to, copy.bytes, 1, WRITE, copy.site);
        memset(copy.to, 0, copy.bytes);
        memcpy(copy.to, copy.from, copy.wanted);
    }
    self->copy_count = kept;
}

void end_thread_copies(void) { perform(UINT32_MAX); }

#define COPY(name, bytes)                                                                                              \
    void emu_cp_async_##name##_shared_global_##bytes(uint32_t site, void *to, const void *from) {                      \
        issue(site, to, from, bytes, bytes);                                                                           \
    }                                                                                                                  \
    void emu_cp_async_##name##_shared_global_##bytes##_s(uint32_t site, void *to, const void *from, uint32_t wanted) { \
        issue(site, to, from, bytes, wanted);                                                                          \
    }
COPY(ca, 4)
COPY(ca, 8)
COPY(ca, 16)
COPY(cg, 16)

void emu_cp_async_commit_group(uint32_t site) { (void)site; self->group++; }
void emu_cp_async_wait_group(uint32_t site, uint32_t left) {
    (void)site;
    perform(self->group > left ? self->group - left : 0);
}
void emu_cp_async_wait_all(uint32_t site) { (void)site; self->group++; perform(self->group); }
