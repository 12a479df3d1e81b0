/* A block emulator: one CUDA block at a time, each of its threads a coroutine on one host thread.
 *
 * A thread runs until it must wait for others, at a barrier or a warp collective. Everything a kernel reads and
 * writes goes through emu_access, which knows the bounds of every buffer and, byte by byte, who touched it last.
 */
#ifndef EMU_H
#define EMU_H

#include <stdint.h>

/* Of this library; the kernel calls what is not declared here, and emu_access. */
void emu_access(const void *address, uint64_t bytes, uint32_t align, uint32_t flags, uint32_t site);
void emu_local(uint8_t *address, uint64_t bytes);
#pragma GCC visibility push(hidden)

enum { MAX_THREADS = 1024, WARP = 32, MAX_BARRIERS = 16, MAX_REGIONS = 128, MAX_PARAMS = 64, MAX_LOCALS = 16, STACK = 1 << 18 };

enum State { READY, AT_BARRIER, IN_WARP, ENDED };

typedef void (*Resolve)(uint32_t warp, uint32_t mask);

/* A cp.async that has been issued and not performed. */
typedef struct {
    uint8_t *to;
    const uint8_t *from;
    uint32_t bytes, wanted, group, site;
} Copy;

typedef struct {
    void *sp;
    void *stack;
    uint32_t tid[3];
    uint32_t index, lane, warp;
    enum State state;
    uint32_t epoch, wepoch;     /* barriers passed, of the block and of the warp: numbers that never come again */
    uint32_t site;              /* where it waits: an index of the table that the translation keeps */
    uint32_t barrier, count;    /* AT_BARRIER */
    Resolve resolve;            /* IN_WARP: what runs once all lanes of mask are there */
    uint32_t mask;
    int aligned;
    uint32_t detail;            /* what lanes must agree on besides, such as the kind of a shuffle */
    const void *in;
    void *out;
    Copy *copies;
    uint32_t copy_count, copy_room, group;
    uint8_t *written;           /* of each byte of the stack, whether it is of a local array and was written */
    struct { const uint8_t *base; uint64_t size; } locals[MAX_LOCALS];
    uint32_t local_count;
} Thread;

typedef struct {
    const char *name;
    uint8_t *base;
    uint64_t size;
    int kind;
    struct Shadow *shadow;
} Region;

enum Kind { INPUT, CONSTANT, OUTPUT, WORKSPACE, SHARED };
enum { READ = 1, WRITE = 2, ATOMIC = 4, INVARIANT = 8, PENDING = 16 };

typedef struct {
    char name[128];
    uint64_t grid[3], block[3], shared_bytes, count;
    uint64_t first, blocks;     /* which blocks run; 0 of them: all */
    struct { uint64_t is_pointer, region, value; } params[MAX_PARAMS];
} Launch;

extern Thread threads[MAX_THREADS];
extern Thread *self;
extern uint32_t thread_count;
extern uint32_t block_index[3], grid_size[3], block_size[3];
extern uint32_t epoch, block_epoch, launch_epoch, warp_barriers;
extern Region regions[MAX_REGIONS];
extern uint32_t region_count;

/* Of the translated kernel: what its shared object exports as emu_entries, emu_globals and so on. */
typedef struct { const char *name; void (*call)(const uint64_t *params); } Entry;
typedef struct { const char *name; uint8_t *base; uint64_t size; int kind; } Global;
typedef struct {
    const Entry *entries;
    const Global *globals;
    uint8_t *dynamic;
    const uint64_t *dynamic_room;
} Kernel;
extern Kernel kernel;

/* Ends the process with status 3; "@@N" in a message stands for a line of the kernel. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn, cold));
const char *where(void);

void run_block(void (*call)(const uint64_t *params), const uint64_t *params, int order, uint64_t *seed);
void wait_here(void);
void warp_collective(uint32_t site, uint32_t mask, int aligned, uint32_t detail, const void *in, void *out, Resolve resolve);

void begin_block_memory(uint64_t dynamic_bytes);
void check_outputs_written(void);
void end_thread_copies(void);

#pragma GCC visibility pop

/* Runs the launches of the request in the file ``path``, which is changed in place. */
void emulate(const Kernel *emulated, const char *path);

#endif
