/* C ABI of a CPU kernel of kcache, versions 1 and 2: what a shared object of `kcache compile --emit so` exports.
 *
 * The directory of this file: python -m kcache_grpc --include
 * What buffers, dims and workspace are, and what to check before a call: docs/reference/c-abi.md.
 *
 * Link with the shared object, or load it with dlopen and take its functions as the kcache_*_function types:
 *
 *     void *library = dlopen("./kernel.so", RTLD_NOW | RTLD_LOCAL);
 *     kcache_run_function *run = (kcache_run_function *)dlsym(library, "kcache_run");
 */
#ifndef KCACHE_H
#define KCACHE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What kcache_abi() of a kernel returns that this file describes: KCACHE_ABI, or, of a kernel with bound
 * arguments, KCACHE_BOUND_ABI. kcache_host has the abi KCACHE_ABI for both. */
#define KCACHE_ABI 1
#define KCACHE_BOUND_ABI 2

/* What kcache_run returns when sizes that the program has equal are not, or do not fit the program. */
#define KCACHE_SIZES_DISAGREE 1

/* Bytes to which outputs and the workspace are aligned; inputs need the alignment of their element. */
#define KCACHE_ALIGNMENT 64

/* One slice [begin, end) of a launch. worker < workers; never two at once on one id. Returns 0 or an error
 * code. */
typedef int32_t (*kcache_task)(void *closure, int64_t begin, int64_t end, int64_t worker);

/* Covers [0, n) with slices of at least `grain`, waits for all, returns 0 or the first error. */
typedef int32_t (*kcache_parallel_for)(void *ctx, int64_t n, int64_t grain, kcache_task task, void *closure);

/* Threads that a caller lends to a kernel. */
typedef struct kcache_host {
    uint32_t size;   /* sizeof(kcache_host) */
    uint32_t abi;    /* KCACHE_ABI */
    int64_t workers; /* how many ids parallel_for uses */
    void *ctx;       /* given back to parallel_for */
    kcache_parallel_for parallel_for;
} kcache_host;

/* Runs the kernel. Returns 0 or an error code, then outputs are undefined.
 *
 * buffers: inputs, constants, outputs, in the order of the manifest, row major and contiguous.
 * dims: sizes of the manifest's symbols, in its order; NULL when there are none.
 * workspace: as many bytes as the manifest says; may be NULL when that is 0.
 * host: NULL for the calling thread alone. */
typedef int32_t kcache_run_function(void *const *buffers, const int64_t *dims, void *workspace,
                                    const kcache_host *host);
kcache_run_function kcache_run;

/* Kernels with bound arguments only: computes the prepared buffer, which kcache_run of such a kernel takes: its
 * buffers are the inputs that are not bound, the prepared buffer, outputs. Returns 0 or an error code, then
 * the prepared buffer is undefined.
 *
 * bound: the bound arguments, in the order of the manifest, row major and contiguous.
 * prepared: as many bytes as the manifest says, aligned to KCACHE_ALIGNMENT. Holds no pointers: it may be
 *           copied, stored and mapped read-only. Bytes between its values are not written.
 * dims, workspace, host: as kcache_run; the workspace is as large as the manifest says of kcache_prepare. */
typedef int32_t kcache_prepare_function(void *const *bound, const int64_t *dims, void *prepared, void *workspace,
                                        const kcache_host *host);
kcache_prepare_function kcache_prepare;

/* Version of the ABI of a kernel. */
typedef uint32_t kcache_abi_function(void);
kcache_abi_function kcache_abi;

/* Kernels with a launch that may be split only: a host of so many workers, 1 to 1024, the calling thread
 * included; other numbers count as the nearest of these. */
typedef const kcache_host *kcache_pool_start_function(int64_t workers);
kcache_pool_start_function kcache_pool_start;

/* Ends the threads of kcache_pool_start and waits for them: call it before dlclose. */
typedef void kcache_pool_stop_function(void);
kcache_pool_stop_function kcache_pool_stop;

#ifdef __cplusplus
}
#endif

#endif
