/* The thread pool of CPU kernels: `parallel_for` of docs/reference/c-abi.md.
 *
 * The pool is linked beside a kernel some launch of which may be split; a process uses the pool of one kernel for all.
 * scripts/generate_thread_pool.py compiles this file to LLVM IR, which is part of the package: a server needs no C
 * compiler. The file includes no header and needs five functions of the C library.
 *
 * `gate` is the whole protocol. From its most significant bit: the generation of the launch (32 bits), the room for
 * more helpers (16), whether the caller sleeps (1), the number of helpers at work (15). A helper joins by one
 * compare-and-swap that takes room and adds the helper, so that it never joins a launch that was closed. The caller
 * closes a launch by clearing the room, and returns when no helper is left. Helpers without work pause SPINS times, then
 * sleep on the generation's half of the gate; the caller sleeps on the other half.
 *
 * No lock is held while a task runs but `busy`: a second caller, be it another thread or a task of the launch itself,
 * runs its launch alone.
 *
 * `owner` is the id of the process that the threads belong to, negative while they are started or stopped. A forked
 * child finds another id there and starts threads of its own.
 */

typedef __INT32_TYPE__ int32_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT64_TYPE__ uint64_t;

#define MAX_WORKERS 1024 /* The calling thread included. */
#define SPINS 2000       /* Pauses before a thread sleeps: 20 to 100 us, as a pause takes 10 to 50 ns. */
#define RANGES 16        /* Parts of a launch that are handed out apart: a worker gets the memory that it had before. */
#define SLICES 4         /* Slices of a range, if the grain allows them: what is left when one worker is late. */

#define ROOM_SHIFT 16
#define ROOM_MASK 0xFFFF0000u
#define CALLER_SLEEPS 0x8000u
#define HELPERS_MASK 0x7FFFu

#if defined(__x86_64__)
#define SYS_FUTEX 202
#define pause_thread() __builtin_ia32_pause()
/* IEEE floating point: a new thread inherits flush-to-zero from the thread that starts it. */
#define reset_floating_point() __builtin_ia32_ldmxcsr(0x1F80)
#elif defined(__aarch64__)
#define SYS_FUTEX 98
#define pause_thread() __builtin_arm_isb(15)
#define reset_floating_point() __builtin_arm_wsr64("fpcr", 0)
#else
#error "unknown architecture"
#endif
#define FUTEX_WAIT_PRIVATE 128
#define FUTEX_WAKE_PRIVATE 129
#define SIG_SETMASK 2

typedef int32_t (*kcache_task)(void *closure, int64_t begin, int64_t end, int64_t worker);

typedef struct {
    uint32_t size, abi;
    int64_t workers;
    void *ctx;
    int32_t (*parallel_for)(void *ctx, int64_t n, int64_t grain, kcache_task task, void *closure);
} kcache_host;

__attribute__((nothrow)) int32_t getpid(void);
__attribute__((nothrow)) long syscall(long number, ...);
__attribute__((nothrow)) int32_t pthread_create(uint64_t *thread, const void *attributes, void *(*start)(void *),
                                                void *argument);
__attribute__((nothrow)) int32_t pthread_join(uint64_t thread, void **result);
__attribute__((nothrow)) int32_t pthread_sigmask(int32_t how, const uint64_t *set, uint64_t *old);

/* On cache lines of their own: what many threads write. */
static _Alignas(64) uint64_t gate;
static _Alignas(64) int32_t busy;
static _Alignas(64) int32_t sleepers;
static _Alignas(64) int32_t code; /* The first code other than 0 that a slice returned. */

/* The launch. Written by the caller before it opens the gate. */
static _Alignas(64) struct {
    kcache_task task;
    void *closure;
    int64_t extent, step, range, ranges, limit;
} launch;

/* The first index of each range that was not handed out. */
static struct {
    _Alignas(64) int64_t index;
} next[RANGES];

static _Alignas(64) int32_t owner;
static int32_t stopping;
static int64_t started, wanted; /* Threads; workers, the calling thread included. */
static uint64_t threads[MAX_WORKERS];
static kcache_host hosts[MAX_WORKERS + 1];

/* All signals but those that a thread raises by its own fault: 4, 5, 7, 8 and 11. */
static const uint64_t signals[16] = {~0x4D8ull, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};

#define load(object, order) __atomic_load_n(object, __ATOMIC_##order)
#define store(object, value, order) __atomic_store_n(object, value, __ATOMIC_##order)
#define swap_if(object, expected, value, order, failed) \
    __atomic_compare_exchange_n(object, expected, value, 0, __ATOMIC_##order, __ATOMIC_##failed)

static int64_t
smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t
larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The two halves of the gate that threads sleep on; both architectures are little-endian. */
static uint32_t *
caller_word(void)
{
    return (uint32_t *)&gate;
}

static uint32_t *
generation_word(void)
{
    return (uint32_t *)&gate + 1;
}

static uint32_t
generation_of(uint64_t value)
{
    return value >> 32;
}

/* Sleep while `word` has the value. */
static void
wait_while(uint32_t *word, uint32_t value)
{
    syscall(SYS_FUTEX, word, (long)FUTEX_WAIT_PRIVATE, (long)value, (void *)0);
}

static void
wake(uint32_t *word, int64_t count)
{
    syscall(SYS_FUTEX, word, (long)FUTEX_WAKE_PRIVATE, (long)count, (void *)0);
}

/* Run slices until none is left or one failed; those of the worker's own range first. */
static void
work(int64_t worker)
{
    int64_t ranges = launch.ranges, at = worker % ranges;
    for (int64_t tried = 0; tried < ranges; tried++) {
        int64_t *index = &next[at].index;
        int64_t end = smaller(at * launch.range + launch.range, launch.extent);
        for (;;) {
            if (load(&code, RELAXED) != 0)
                return;
            if (load(index, RELAXED) >= end)
                break;
            int64_t begin = __atomic_fetch_add(index, launch.step, __ATOMIC_RELAXED);
            if (begin >= end)
                break;
            int32_t result = launch.task(launch.closure, begin, smaller(begin + launch.step, end), worker);
            if (result != 0) {
                int32_t none = 0;
                swap_if(&code, &none, result, RELAXED, RELAXED);
                return;
            }
        }
        at = at + 1 == ranges ? 0 : at + 1;
    }
}

/* The gate as soon as its generation is not `known`. */
static uint64_t
next_generation(uint32_t known)
{
    uint32_t spins = 0;
    for (;;) {
        uint64_t value = load(&gate, ACQUIRE);
        if (generation_of(value) != known)
            return value;
        if (++spins == SPINS) {
            __atomic_fetch_add(&sleepers, 1, __ATOMIC_SEQ_CST);
            wait_while(generation_word(), known);
            __atomic_fetch_sub(&sleepers, 1, __ATOMIC_SEQ_CST);
            spins = 0;
        } else {
            pause_thread();
        }
    }
}

/* Work on the launch of the gate's value `open`, if it has room. */
static void
join(uint64_t open)
{
    uint32_t generation = generation_of(open);
    while (generation_of(open) == generation && (open & ROOM_MASK) != 0) {
        int64_t room = (open & ROOM_MASK) >> ROOM_SHIFT;
        if (!swap_if(&gate, &open, open - (1u << ROOM_SHIFT) + 1, ACQ_REL, ACQUIRE))
            continue;
        work(launch.limit - room);
        uint64_t before = __atomic_fetch_sub(&gate, 1, __ATOMIC_ACQ_REL);
        if ((uint32_t)before == (CALLER_SLEEPS | 1)) /* the last helper of a launch without room */
            wake(caller_word(), 1);
        return;
    }
}

/* A thread of the pool. */
static void *
serve(void *unused)
{
    uint32_t known = 0;
    (void)unused;
    reset_floating_point();
    do {
        uint64_t open = next_generation(known);
        known = generation_of(open);
        join(open);
    } while (load(&stopping, ACQUIRE) == 0);
    return 0;
}

/* Make this thread the one that starts threads, unless there are workers enough. Returns whether it is. */
static int32_t
claim(int32_t pid, int64_t workers, int32_t *before)
{
    for (;;) {
        int32_t expected = *before = load(&owner, ACQUIRE);
        if (expected == pid && load(&wanted, RELAXED) >= workers)
            return 0;
        if (expected != -pid && swap_if(&owner, &expected, -pid, ACQ_REL, ACQUIRE))
            return 1;
        pause_thread();
    }
}

/* Start threads until there are so many workers with the caller, or the system has no more. After a fork from nothing. */
static __attribute__((noinline)) void
ensure(int64_t workers)
{
    uint64_t mask[16];
    int32_t pid = getpid(), before;
    if (!claim(pid, workers, &before))
        return;
    if (before != pid) {
        store(&gate, 0, RELAXED);
        store(&busy, 0, RELAXED);
        store(&sleepers, 0, RELAXED);
        store(&stopping, 0, RELAXED);
        store(&started, 0, RELAXED);
    }
    int64_t goal = larger(load(&wanted, RELAXED), workers);
    store(&wanted, goal, RELAXED);
    pthread_sigmask(SIG_SETMASK, signals, mask);
    for (int64_t count = load(&started, RELAXED); count + 1 < goal; count++) {
        if (pthread_create(&threads[count], (void *)0, serve, (void *)0) != 0)
            break;
        store(&started, count + 1, RELAXED);
    }
    pthread_sigmask(SIG_SETMASK, mask, (void *)0);
    store(&owner, pid, RELEASE);
}

/* A long slice to a multiple of 64 elements, so that those after it begin where a cache line does. */
static int64_t
whole_lines(int64_t count)
{
    return count >= 4096 ? (count + 63) & -64 : count;
}

/* Describe the launch, without opening the gate. */
static void
describe(int64_t workers, int64_t n, int64_t grain, kcache_task task, void *closure)
{
    int64_t ranges = smaller(workers, RANGES);
    int64_t range = whole_lines((n - 1 + ranges) / ranges);
    int64_t sharing = (workers - 1 + ranges) / ranges; /* Workers of a range. */
    int64_t pieces = larger(smaller(range / grain, sharing * SLICES), 1);
    launch.task = task;
    launch.closure = closure;
    launch.extent = n;
    launch.step = whole_lines((range - 1 + pieces) / pieces);
    launch.range = range;
    launch.ranges = ranges;
    launch.limit = workers;
    store(&code, 0, RELAXED);
    for (int64_t i = 0; i < ranges; i++)
        store(&next[i].index, i * range, RELAXED);
}

/* Open the gate for so many helpers; wake as many as sleep and are needed. */
static void
open_gate(int64_t helpers)
{
    uint64_t generation = (uint64_t)generation_of(load(&gate, RELAXED)) + 1;
    __atomic_exchange_n(&gate, generation << 32 | (uint64_t)helpers << ROOM_SHIFT, __ATOMIC_SEQ_CST);
    int64_t asleep = load(&sleepers, SEQ_CST);
    int64_t lacking = helpers - (load(&started, RELAXED) - asleep);
    if (lacking > 0 && asleep > 0)
        wake(generation_word(), lacking);
}

/* Close the gate, and wait for the helpers that joined. */
static void
close_gate(void)
{
    __atomic_fetch_and(&gate, ~(uint64_t)ROOM_MASK, __ATOMIC_ACQ_REL);
    for (uint32_t spins = 1; (load(&gate, ACQUIRE) & HELPERS_MASK) != 0; spins++) {
        if (spins == SPINS)
            break;
        pause_thread();
    }
    for (;;) {
        uint64_t value = load(&gate, ACQUIRE);
        if ((value & HELPERS_MASK) == 0)
            return;
        if (swap_if(&gate, &value, value | CALLER_SLEEPS, ACQ_REL, ACQUIRE))
            wait_while(caller_word(), (uint32_t)(value | CALLER_SLEEPS));
    }
}

/* `parallel_for` of the hosts; ctx is the number of workers. The caller works too. */
static int32_t
parallel_for(void *ctx, int64_t n, int64_t grain, kcache_task task, void *closure)
{
    if (n < 1)
        return 0;
    grain = larger(grain, 1);
    int64_t workers = smaller(n / grain, (int64_t)ctx);
    if (workers < 2)
        return task(closure, 0, n, 0);
    if (load(&owner, ACQUIRE) != getpid())
        ensure(0);
    int32_t idle = 0;
    if (!swap_if(&busy, &idle, 1, ACQUIRE, RELAXED))
        return task(closure, 0, n, 0);
    describe(workers, n, grain, task, closure);
    open_gate(workers - 1);
    work(0);
    close_gate();
    int32_t result = load(&code, RELAXED);
    store(&busy, 0, RELEASE);
    return result;
}

/* A host of so many workers, 1 to MAX_WORKERS. */
const kcache_host *
kcache_pool_start(int64_t workers)
{
    workers = smaller(larger(workers, 1), MAX_WORKERS);
    ensure(workers);
    kcache_host *host = &hosts[workers];
    /* Several threads may store the same values at once. */
    store(&host->size, sizeof(kcache_host), RELAXED);
    store(&host->abi, 1, RELAXED);
    store(&host->workers, workers, RELAXED);
    store(&host->ctx, (void *)workers, RELAXED);
    store(&host->parallel_for, parallel_for, RELAXED);
    return host;
}

/* End the threads and wait for them. Launches meanwhile, and later ones, run on their callers alone. */
void
kcache_pool_stop(void)
{
    int32_t pid = getpid(), expected = pid;
    if (!swap_if(&owner, &expected, -pid, ACQ_REL, ACQUIRE))
        return;
    store(&stopping, 1, SEQ_CST);
    __atomic_fetch_add(&gate, (uint64_t)1 << 32, __ATOMIC_SEQ_CST);
    wake(generation_word(), 0x7FFFFFFF);
    int64_t count = load(&started, RELAXED);
    for (int64_t i = 0; i < count; i++)
        pthread_join(threads[i], (void *)0);
    store(&started, 0, RELAXED);
    store(&wanted, 0, RELAXED);
    store(&stopping, 0, RELAXED);
    store(&owner, pid, RELEASE);
}
