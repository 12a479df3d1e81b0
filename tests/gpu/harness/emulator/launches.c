/* Runs the launches of a request: a file with a header, launches and buffers, changed in place. */
#define _GNU_SOURCE
#include "emu.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct { uint64_t offset, size, kind; char name[40]; } Buffer;
typedef struct { uint64_t buffers, launches, order, seed; } Header;

Kernel kernel;

static const Launch *launch;

void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fflush(stdout);
    if (launch) fprintf(stderr, "%s: ", launch->name);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    _exit(3);
}

static void add_region(const char *name, uint8_t *base, uint64_t size, int kind) {
    if (region_count == MAX_REGIONS) fail("more than %d buffers and globals", MAX_REGIONS);
    regions[region_count++] = (Region){name, base, size, kind, NULL};
}

static void (*entry_named(const char *name))(const uint64_t *) {
    for (const Entry *one = kernel.entries; one->name; one++)
        if (!strcmp(one->name, name)) return one->call;
    fail("the module has no kernel of this name");
}

static void run(uint8_t *file, const Buffer *buffers, int order, uint64_t *seed) {
    uint64_t params[MAX_PARAMS], blocks = 1;
    for (uint64_t i = 0; i < launch->count; i++) {
        params[i] = launch->params[i].value;
        if (launch->params[i].is_pointer) params[i] += (uint64_t)(file + buffers[launch->params[i].region].offset);
    }
    thread_count = 1;
    for (int i = 0; i < 3; i++) {
        grid_size[i] = (uint32_t)launch->grid[i], block_size[i] = (uint32_t)launch->block[i];
        thread_count *= block_size[i], blocks *= grid_size[i];
    }
    if (!thread_count || thread_count > MAX_THREADS) fail("a block of %u threads", thread_count);
    if (launch->shared_bytes > *kernel.dynamic_room) fail("%llu bytes of dynamic shared memory", (unsigned long long)launch->shared_bytes);
    void (*call)(const uint64_t *) = entry_named(launch->name);
    launch_epoch = ++epoch;
    if (launch->first + launch->blocks > blocks) fail("there are %llu blocks", (unsigned long long)blocks);
    if (launch->blocks) blocks = launch->blocks;
    uint64_t shift = order == 2 ? *seed % blocks : 0;
    for (uint64_t n = 0; n < blocks; n++) {
        uint64_t block = launch->first + (order == 1 ? blocks - 1 - n : (n + shift) % blocks);
        block_index[0] = (uint32_t)(block % grid_size[0]);
        block_index[1] = (uint32_t)(block / grid_size[0] % grid_size[1]);
        block_index[2] = (uint32_t)(block / grid_size[0] / grid_size[1]);
        begin_block_memory(launch->shared_bytes);
        run_block(call, params, order, seed);
    }
}

void emulate(const Kernel *emulated, const char *path) {
    struct stat status;
    int descriptor = open(path, O_RDWR);
    kernel = *emulated;
    if (descriptor < 0 || fstat(descriptor, &status)) fail("no request file");
    uint8_t *file = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (file == MAP_FAILED) fail("the request file cannot be mapped");
    const Header *header = (const Header *)file;
    const Launch *launches = (const Launch *)(header + 1);
    const Buffer *buffers = (const Buffer *)(launches + header->launches);
    for (uint64_t i = 0; i < header->buffers; i++)
        add_region(buffers[i].name, file + buffers[i].offset, buffers[i].size, (int)buffers[i].kind);
    for (const Global *one = kernel.globals; one->name; one++) add_region(one->name, one->base, one->size, one->kind);
    uint64_t seed = header->seed | 1, parts = 0;
    for (uint64_t i = 0; i < header->launches; i++) {
        launch = &launches[i];
        parts += launch->blocks;
        run(file, buffers, (int)header->order, &seed);
    }
    launch = NULL;
    if (!parts) check_outputs_written();
}
