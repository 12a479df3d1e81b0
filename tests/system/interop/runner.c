/* The C ABI of a kernel in one file: dlopen, one call, with this program's own threads, or with those of the pool that
   the kernel brings along, when the environment says KERNEL_POOL.
   usage: runner KERNEL.so WORKSPACE_BYTES OUTPUT_BYTES INPUT... > OUTPUT        (one output; inputs are raw files)
   With bound arguments PREPARED_BYTES PREPARE_WORKSPACE_BYTES COUNT BOUND... precede the inputs that are not bound. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int32_t (*kcache_task)(void *closure, int64_t begin, int64_t end, int64_t worker);
typedef struct {
  uint32_t size, abi;
  int64_t workers;
  void *ctx;
  int32_t (*parallel_for)(void *ctx, int64_t n, int64_t grain, kcache_task task, void *closure);
} kcache_host;
typedef int32_t (*kcache_run_fn)(void *const *, const int64_t *, void *, const kcache_host *);
typedef int32_t (*kcache_prepare_fn)(void *const *, const int64_t *, void *, void *, const kcache_host *);
typedef uint32_t (*kcache_abi_fn)(void);
typedef const kcache_host *(*kcache_pool_start_fn)(int64_t);
typedef void (*kcache_pool_stop_fn)(void);

enum { WORKERS = 3 };

typedef struct {
  kcache_task task;
  void *closure;
  int64_t begin, end, worker;
  int32_t code;
} slice;

static void *run_slice(void *argument) {
  slice *s = argument;
  s->code = s->begin < s->end ? s->task(s->closure, s->begin, s->end, s->worker) : 0;
  return NULL;
}

static int32_t parallel_for(void *ctx, int64_t n, int64_t grain, kcache_task task, void *closure) {
  (void)ctx, (void)grain;
  pthread_t threads[WORKERS];
  slice slices[WORKERS];
  for (int64_t w = 0; w < WORKERS; w++) {
    slices[w] = (slice){task, closure, n * w / WORKERS, n * (w + 1) / WORKERS, w, 0};
    if (pthread_create(&threads[w], NULL, run_slice, &slices[w])) abort();
  }
  int32_t code = 0;
  for (int w = 0; w < WORKERS; w++) {
    pthread_join(threads[w], NULL);
    if (slices[w].code) code = slices[w].code;
  }
  return code;
}

static void *buffer(size_t size) {
  size_t rounded = (size + 63) / 64 * 64;
  void *memory = aligned_alloc(64, rounded ? rounded : 64);
  if (!memory) abort();
  return memory;
}

static void *read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) { perror(path); exit(2); }
  fseek(file, 0, SEEK_END);
  size_t size = (size_t)ftell(file);
  rewind(file);
  void *memory = buffer(size);
  if (fread(memory, 1, size, file) != size) { perror(path); exit(2); }
  fclose(file);
  return memory;
}

/* The prepared buffer of a kernel of ABI 2: computed once, then only read, by any number of calls. */
static void *prepare(void *library, char **argv, int count) {
  kcache_prepare_fn prepare;
  *(void **)&prepare = dlsym(library, "kcache_prepare");
  if (!prepare) { fprintf(stderr, "the kernel has no kcache_prepare\n"); exit(2); }
  void **bound = calloc((size_t)count + 1, sizeof *bound);
  for (int i = 0; i < count; i++) bound[i] = read_file(argv[3 + i]);
  void *prepared = buffer(strtoull(argv[0], NULL, 10)), *workspace = buffer(strtoull(argv[1], NULL, 10));
  int32_t code = prepare(bound, NULL, prepared, workspace, NULL);
  if (code) { fprintf(stderr, "kcache_prepare returned %d\n", (int)code); exit(1); }
  for (int i = 0; i < count; i++) free(bound[i]); /* Calls read the prepared buffer only. */
  free(bound);
  free(workspace);
  return prepared;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) { fprintf(stderr, "%s\n", dlerror()); return 2; }
  kcache_run_fn run;
  kcache_abi_fn abi;
  *(void **)&run = dlsym(library, "kcache_run");
  *(void **)&abi = dlsym(library, "kcache_abi");
  if (!run || !abi || abi() < 1 || abi() > 2) { fprintf(stderr, "not a kernel of ABI 1 or 2\n"); return 2; }

  size_t output_bytes = strtoull(argv[3], NULL, 10);
  int first = 4, count = 0;
  void *prepared = NULL;
  if (abi() == 2) {
    if (argc < 7 || (count = atoi(argv[6])) < 1 || argc < 7 + count) return 2;
    prepared = prepare(library, argv + 4, count);
    first = 7 + count;
  }
  int inputs = argc - first;
  void **buffers = calloc((size_t)inputs + 2, sizeof *buffers);
  for (int i = 0; i < inputs; i++) buffers[i] = read_file(argv[first + i]);
  if (prepared) buffers[inputs++] = prepared;
  buffers[inputs] = buffer(output_bytes);
  void *workspace = buffer(strtoull(argv[2], NULL, 10));

  const kcache_host own = {sizeof own, 1, WORKERS, NULL, parallel_for}, *host = &own;
  kcache_pool_start_fn start;
  kcache_pool_stop_fn stop;
  *(void **)&start = dlsym(library, "kcache_pool_start");
  *(void **)&stop = dlsym(library, "kcache_pool_stop");
  if (getenv("KERNEL_POOL")) {
    if (!start || !stop) { fprintf(stderr, "the kernel brings no pool\n"); return 2; }
    host = start(WORKERS);
  }
  int32_t code = run(buffers, NULL, workspace, host);
  if (host != &own) {
    stop();
    dlclose(library);
  }
  if (code) { fprintf(stderr, "kcache_run returned %d\n", (int)code); return 1; }
  return fwrite(buffers[inputs], 1, output_bytes, stdout) == output_bytes ? 0 : 2;
}
