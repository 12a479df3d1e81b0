/* The thread pool that kernels bring along, from C alone: many callers at once, tasks that call again, errors,
   a fork, idle threads, stop. usage: pool_stress CALLERS ROUNDS; says what is wrong and exits with 1. */
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef int32_t (*kcache_task)(void *closure, int64_t begin, int64_t end, int64_t worker);
typedef struct {
  uint32_t size, abi;
  int64_t workers;
  void *ctx;
  int32_t (*parallel_for)(void *ctx, int64_t n, int64_t grain, kcache_task task, void *closure);
} kcache_host;
const kcache_host *kcache_pool_start(int64_t workers);
void kcache_pool_stop(void);

#define REQUIRE(fact, ...) \
  do { if (!(fact)) { dprintf(2, __VA_ARGS__); _exit(1); } } while (0)
enum { MOST_WORKERS = 9, MOST = 1 << 16 };

typedef struct {
  const kcache_host *host;
  uint8_t *seen;
  int64_t n, grain;
  int busy[MOST_WORKERS][16];
} job;

static int32_t launch(const kcache_host *host, int64_t n, int64_t grain, kcache_task task, void *closure) {
  return host->parallel_for(host->ctx, n, grain, task, closure);
}

static int32_t visit(void *closure, int64_t begin, int64_t end, int64_t worker) {
  job *j = closure;
  if (worker < 0 || worker >= j->host->workers) return 21;
  if (begin < 0 || begin >= end || end > j->n) return 22;
  if (__atomic_exchange_n(&j->busy[worker][0], 1, __ATOMIC_SEQ_CST)) return 23;
  for (int64_t i = begin; i < end; i++) __atomic_add_fetch(&j->seen[i], 1, __ATOMIC_RELAXED);
  __atomic_store_n(&j->busy[worker][0], 0, __ATOMIC_SEQ_CST);
  return 0;
}

static int32_t visit_again(void *closure, int64_t begin, int64_t end, int64_t worker) {
  job inner = {.host = ((job *)closure)->host, .n = 64, .grain = 1};
  uint8_t seen[64] = {0};
  inner.seen = seen;
  int32_t code = launch(inner.host, 64, 1, visit, &inner);
  for (int i = 0; i < 64; i++) if (seen[i] != 1) return 24;
  return code ? code : visit(closure, begin, end, worker);
}

static int32_t fail(void *closure, int64_t begin, int64_t end, int64_t worker) {
  (void)begin, (void)worker;
  return end > *(int64_t *)closure ? 77 : 0;
}

static int rounds;

static void *caller(void *number) {
  unsigned seed = (unsigned)(uintptr_t)number;
  job j = {.seen = malloc(MOST)};
  for (int round = 0; round < rounds; round++) {
    j.host = kcache_pool_start(1 + rand_r(&seed) % (MOST_WORKERS - 1));
    j.n = rand_r(&seed) % (round % 16 ? 3000 : MOST);
    j.grain = 1 + rand_r(&seed) % 5;
    memset(j.seen, 0, (size_t)j.n);
    int32_t code = launch(j.host, j.n, j.grain, round % 8 ? visit : visit_again, &j);
    REQUIRE(code == 0, "a launch of %ld by %ld returned %d", (long)j.n, (long)j.grain, code);
    for (int64_t i = 0; i < j.n; i++) REQUIRE(j.seen[i] == 1, "index %ld of %ld: %d times", (long)i, (long)j.n, j.seen[i]);
    int64_t bad = j.n / 2;
    REQUIRE(launch(j.host, j.n, 1, fail, &bad) == (j.n ? 77 : 0), "an error was lost");
  }
  free(j.seen);
  return NULL;
}

static void many_callers(int callers) {
  pthread_t threads[64];
  for (intptr_t i = 0; i < callers; i++) REQUIRE(!pthread_create(&threads[i], NULL, caller, (void *)(i + 1)), "no thread");
  for (int i = 0; i < callers; i++) pthread_join(threads[i], NULL);
}

/* Every task of the first launch waits for a whole launch of another thread, which must not need the pool. */
static int second_is_done;
static pthread_t second_thread;

static int32_t on_one_thread(void *closure, int64_t begin, int64_t end, int64_t worker) {
  (void)closure, (void)begin;
  return end == 1000 && worker == 0 && pthread_equal(pthread_self(), second_thread) ? 0 : 31;
}

static void *second(void *host) {
  second_thread = pthread_self();
  int32_t code = launch(host, 1000, 1, on_one_thread, NULL);
  REQUIRE(code == 0, "a second caller did not run alone: %d", code);
  __atomic_store_n(&second_is_done, 1, __ATOMIC_SEQ_CST);
  return NULL;
}

static int32_t wait_for_second(void *closure, int64_t begin, int64_t end, int64_t worker) {
  (void)closure, (void)begin, (void)end, (void)worker;
  while (!__atomic_load_n(&second_is_done, __ATOMIC_SEQ_CST)) sched_yield();
  return 0;
}

static int32_t start_second(void *closure, int64_t begin, int64_t end, int64_t worker) {
  static pthread_t thread;
  static int started;
  if (!__atomic_exchange_n(&started, 1, __ATOMIC_SEQ_CST)) {
    REQUIRE(!pthread_create(&thread, NULL, second, closure), "no thread");
    pthread_detach(thread);
  }
  return wait_for_second(closure, begin, end, worker);
}

static void idle_threads_sleep(void) {
  time_t end = time(NULL) + 20;
  for (int awake = 1, threads = 0; awake; threads = 0) {
    REQUIRE(time(NULL) < end, "idle threads stay awake");
    awake = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(tasks));) {
      if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid()) continue;
      char path[300], line[300] = "";
      snprintf(path, sizeof path, "/proc/self/task/%s/stat", entry->d_name);
      FILE *file = fopen(path, "r");
      if (!file) continue;
      if (fgets(line, sizeof line, file) && line[0]) threads++, awake |= strrchr(line, ')')[2] != 'S';
      fclose(file);
    }
    closedir(tasks);
    REQUIRE(threads == MOST_WORKERS - 1, "%d threads", threads);
  }
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  rounds = atoi(argv[2]);
  many_callers(atoi(argv[1]));
  pid_t child = fork();
  if (!child) {
    many_callers(2);
    _exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  REQUIRE(status == 0, "the child of a fork: status %d", status);

  const kcache_host *host = kcache_pool_start(MOST_WORKERS);
  REQUIRE(host->size == sizeof *host && host->abi == 1 && host->workers == MOST_WORKERS, "a wrong host");
  REQUIRE(kcache_pool_start(0)->workers == 1 && kcache_pool_start(5000)->workers == 1024, "bounds of workers");
  kcache_pool_stop();
  host = kcache_pool_start(MOST_WORKERS);
  int32_t code = launch(host, 64, 1, start_second, (void *)host);
  REQUIRE(code == 0, "the first caller: %d", code);
  idle_threads_sleep();
  kcache_pool_stop();
  kcache_pool_stop();
  many_callers(2);
  puts("ok");
  return 0;
}
