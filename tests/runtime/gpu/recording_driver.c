/* A recording driver: a shared library in the place of libcuda.so.1 that runs nothing. It writes each call with its
 * arguments to $RECORDER_LOG, so that tests see in which order kernels call the driver. Device memory is the
 * process's own. What the "GPU" is comes from $RECORDER_*. No claim about hardware rests on it. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { char name[64]; int params; int dynamic; } function;
typedef struct { char *image; } module;
/* Work that was captured, and a moment on the GPU's clock: in microseconds, one for each block of a launch. */
typedef struct { double cost; } work;

static __thread void *stack[16];
static __thread int depth;
static int devices[8]; /* addresses are contexts */
static FILE *log_file;
static __thread work *captured;
static double now;

static long setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

static int said(int result, const char *format, ...) {
    const char *path = getenv("RECORDER_LOG");
    va_list arguments;
    if (log_file == NULL && path != NULL) log_file = fopen(path, "a");
    if (log_file == NULL) return result;
    flockfile(log_file); // A line is whole, whichever threads write.
    va_start(arguments, format);
    vfprintf(log_file, format, arguments);
    va_end(arguments);
    fputc('\n', log_file);
    fflush(log_file);
    funlockfile(log_file);
    return result;
}

int cuInit(unsigned flags) { return (void)flags, said((int)setting("RECORDER_INIT", 0), "cuInit"); }

int cuDriverGetVersion(int *version) { return *version = (int)setting("RECORDER_VERSION", 13000), 0; }

int cuDeviceGetCount(int *count) { return *count = (int)setting("RECORDER_DEVICES", 1), 0; }

int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, 0; }

int cuDeviceGetAttribute(int *value, int which, int device) {
    long capability = setting("RECORDER_CAPABILITY", 90);
    (void)device;
    switch (which) {
        case 8: return *value = 48 << 10, 0;
        case 75: return *value = (int)(capability / 10), 0;
        case 76: return *value = (int)(capability % 10), 0;
        case 97: return *value = (int)setting("RECORDER_SHARED", 227 << 10), 0;
        default: return 1;
    }
}

int cuDeviceGetName(char *name, int size, int device) {
    (void)device;
    return snprintf(name, (size_t)size, "Recorded GPU"), 0;
}

int cuCtxSynchronize(void) { return said(0, "cuCtxSynchronize"); }

int cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = &devices[device];
    return said(0, "cuDevicePrimaryCtxRetain device=%d", device);
}

int cuCtxGetCurrent(void **context) { return *context = depth ? stack[depth - 1] : NULL, 0; }

int cuCtxPushCurrent(void *context) {
    stack[depth++] = context;
    return said(0, "cuCtxPushCurrent device=%d", (int)((int *)context - devices));
}

int cuCtxPopCurrent(void **context) {
    if (depth == 0) return 201;
    *context = stack[--depth];
    return said(0, "cuCtxPopCurrent");
}

int cuCtxPushCurrent_v2(void *context) { return cuCtxPushCurrent(context); }

int cuCtxPopCurrent_v2(void **context) { return cuCtxPopCurrent(context); }

int cuModuleLoadDataEx(void **result, const void *image, unsigned count, int *names, void **values) {
    int elf = memcmp(image, "\177ELF", 4) == 0;
    module *made = malloc(sizeof *made);
    if (depth == 0) return 201;
    if (!elf && strstr(image, "REJECTED") != NULL) {
        for (unsigned i = 0; i < count; i++)
            if (names[i] == 5) strcpy(values[i], "ptxas error: REJECTED is not PTX");
        return said(218, "cuModuleLoadDataEx rejected");
    }
    made->image = elf ? strdup("") : strdup(image);
    *result = made;
    return said(0, "cuModuleLoadDataEx %s", elf ? "cubin" : "ptx");
}

int cuModuleGetFunction(function **result, module *from, const char *name) {
    char wanted[160];
    function *made = calloc(1, sizeof *made);
    snprintf(wanted, sizeof wanted, ".entry %s(", name);
    if (*from->image && strstr(from->image, wanted) == NULL) return 500;
    snprintf(made->name, sizeof made->name, "%s", name);
    do snprintf(wanted, sizeof wanted, "%s_param_%d", name, made->params++);
    while (strstr(from->image, wanted) != NULL);
    made->params--;
    *result = made;
    return said(0, "cuModuleGetFunction %s", name);
}

int cuFuncGetAttribute(int *value, int which, function *of) {
    (void)of;
    long most = setting("RECORDER_MOST_THREADS", 1024);
    return *value = (int)(which == 0 ? most : setting("RECORDER_STATIC_SHARED", 0)), 0;
}

int cuFuncSetAttribute(function *of, int which, int value) {
    if (which == 8) of->dynamic = value;
    return said(0, "cuFuncSetAttribute %s %d=%d", of->name, which, value);
}

int cuMemAlloc(uint64_t *address, size_t size) {
    *address = (uint64_t)(uintptr_t)aligned_alloc(256, (size + 255) / 256 * 256);
    return said(0, "cuMemAlloc %zu", size);
}

int cuMemFree(uint64_t address) { return free((void *)(uintptr_t)address), said(0, "cuMemFree"); }

int cuModuleUnload(module *of) { return free(of->image), free(of), said(0, "cuModuleUnload"); }

int cuMemcpyDtoDAsync(uint64_t to, uint64_t from, size_t size, void *stream) {
    memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, size);
    return said(0, "cuMemcpyDtoDAsync %zu stream=%zu", size, (size_t)stream);
}

int cuMemcpyHtoD(uint64_t to, const void *from, size_t size) {
    memcpy((void *)(uintptr_t)to, from, size);
    return said(0, "cuMemcpyHtoD %zu", size);
}

int cuMemcpyDtoH(void *to, uint64_t from, size_t size) {
    memcpy(to, (void *)(uintptr_t)from, size);
    return said(0, "cuMemcpyDtoH %zu", size);
}

int cuMemAllocAsync(uint64_t *address, size_t size, void *stream) {
    if (setting("RECORDER_FULL", 0)) return 2;
    *address = (uint64_t)(uintptr_t)aligned_alloc(256, (size + 255) / 256 * 256);
    memset((void *)(uintptr_t)*address, 0, size);
    return said(0, "cuMemAllocAsync %zu stream=%zu", size, (size_t)stream);
}

int cuMemFreeAsync(uint64_t address, void *stream) {
    free((void *)(uintptr_t)address);
    return said(0, "cuMemFreeAsync stream=%zu", (size_t)stream);
}

int cuStreamIsCapturing(void *stream, int *status) {
    (void)stream;
    return *status = (int)setting("RECORDER_CAPTURING", 0), 0;
}

int cuEventCreate(work **event, unsigned flags) {
    return *event = calloc(1, sizeof **event), said(0, "cuEventCreate flags=%u", flags);
}

int cuEventRecord(work *event, void *stream) {
    return event->cost = now, said(0, "cuEventRecord stream=%zu", (size_t)stream);
}

int cuEventSynchronize(void *event) { return (void)event, said(0, "cuEventSynchronize"); }

int cuEventElapsedTime(float *milliseconds, const work *from, const work *to) {
    return *milliseconds = (float)((to->cost - from->cost) / 1e3), 0;
}

int cuStreamCreate(void **stream, unsigned flags) {
    return *stream = malloc(1), said(0, "cuStreamCreate flags=%u", flags);
}

int cuStreamDestroy(void *stream) { return free(stream), said(0, "cuStreamDestroy"); }

int cuStreamBeginCapture(void *stream, int mode) {
    if (stream == NULL || captured != NULL) return 1;
    return captured = calloc(1, sizeof *captured), said(0, "cuStreamBeginCapture mode=%d", mode);
}

int cuStreamEndCapture(void *stream, work **graph) {
    (void)stream;
    return *graph = captured, captured = NULL, said(0, "cuStreamEndCapture");
}

int cuGraphInstantiateWithFlags(work **made, const work *graph, uint64_t flags) {
    *made = malloc(sizeof **made);
    **made = *graph;
    return said(0, "cuGraphInstantiate flags=%lu", (unsigned long)flags);
}

int cuGraphDestroy(work *graph) { return free(graph), said(0, "cuGraphDestroy"); }

int cuGraphExecDestroy(work *graph) { return free(graph), said(0, "cuGraphExecDestroy"); }

int cuGraphLaunch(const work *graph, void *stream) {
    (void)stream;
    return now += graph->cost, said(0, "cuGraphLaunch");
}

int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    return (void)event, (void)flags, said(0, "cuStreamWaitEvent stream=%zu", (size_t)stream);
}

int cuEventDestroy(void *event) { return free(event), said(0, "cuEventDestroy"); }

int cuLaunchKernel(function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **params, void **extra) {
    char text[4096] = "";
    (void)extra;
    if (depth == 0) return 201;
    if (captured != NULL) captured->cost += (double)gx * gy * gz;
    if (shared > (48u << 10) && (int)shared > f->dynamic) return 1;
    for (int i = 0, used = 0; i < f->params; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, " %lu", (unsigned long)*(uint64_t *)params[i]);
    return said(0, "cuLaunchKernel %s grid=%u,%u,%u block=%u,%u,%u shared=%u stream=%zu params=%s", f->name, gx, gy, gz,
                bx, by, bz, shared, (size_t)stream, text);
}

int cuGetErrorName(int error, const char **name) {
    switch (error) {
        case 2: return *name = "CUDA_ERROR_OUT_OF_MEMORY", 0;
        case 201: return *name = "CUDA_ERROR_INVALID_CONTEXT", 0;
        case 218: return *name = "CUDA_ERROR_INVALID_PTX", 0;
        case 500: return *name = "CUDA_ERROR_NOT_FOUND", 0;
        default: return *name = "CUDA_ERROR_INVALID_VALUE", 0;
    }
}

#define NAMED(f) {#f, (void *)f}
int cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags, int *status) {
    static const struct { const char *name; void *address; } known[] = {
        NAMED(cuInit), NAMED(cuDriverGetVersion), NAMED(cuDeviceGetCount), NAMED(cuDeviceGet),
        NAMED(cuDeviceGetAttribute), NAMED(cuDevicePrimaryCtxRetain), NAMED(cuCtxGetCurrent), NAMED(cuCtxPushCurrent),
        NAMED(cuCtxPopCurrent), NAMED(cuModuleLoadDataEx), NAMED(cuModuleGetFunction), NAMED(cuFuncGetAttribute),
        NAMED(cuFuncSetAttribute), NAMED(cuMemAlloc), NAMED(cuMemFree), NAMED(cuModuleUnload), NAMED(cuMemcpyDtoDAsync), NAMED(cuMemcpyHtoD), NAMED(cuMemAllocAsync),
        NAMED(cuMemFreeAsync), NAMED(cuStreamIsCapturing), NAMED(cuEventCreate), NAMED(cuEventRecord),
        NAMED(cuDeviceGetName), NAMED(cuCtxSynchronize), NAMED(cuMemcpyDtoH), NAMED(cuEventSynchronize),
        NAMED(cuEventElapsedTime), NAMED(cuStreamCreate), NAMED(cuStreamDestroy), NAMED(cuStreamBeginCapture),
        NAMED(cuStreamEndCapture), NAMED(cuGraphInstantiateWithFlags), NAMED(cuGraphDestroy),
        {"cuGraphInstantiate", (void *)cuGraphInstantiateWithFlags}, NAMED(cuGraphExecDestroy), NAMED(cuGraphLaunch),
        NAMED(cuStreamWaitEvent), NAMED(cuEventDestroy), NAMED(cuLaunchKernel), NAMED(cuGetErrorName),
        NAMED(cuGetProcAddress_v2)};
    (void)version, (void)flags;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0) {
            *address = known[i].address;
            if (status) *status = 0;
            return 0;
        }
    *address = NULL;
    if (status) *status = 1;
    return 500;
}
