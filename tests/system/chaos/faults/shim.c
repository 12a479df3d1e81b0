/* Loaded into servers and databases (LD_PRELOAD): a full disk and a wall clock that jumps, switched from outside.
   The file named by CHAOS_CONTROL is two int64: whether the disk is full, and what is added to the wall clock, ns. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *control;

static volatile int64_t *switches(void) {
    static int64_t off[2];
    if (control == NULL) {
        const char *path = getenv("CHAOS_CONTROL");
        int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
        void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, 16, PROT_READ, MAP_SHARED, file, 0);
        if (file >= 0) close(file);
        control = mapped == MAP_FAILED ? off : mapped;
    }
    return control;
}

/* Sockets, pipes and terminals are no disk. */
static int full(int file) {
    struct stat found;
    return switches()[0] != 0 && fstat(file, &found) == 0 && S_ISREG(found.st_mode);
}

#define REAL(name, type) \
    static type real; \
    if (real == NULL) real = (type)dlsym(RTLD_NEXT, #name);
#define REFUSE(file) \
    if (full(file)) { errno = ENOSPC; return -1; }

typedef ssize_t (*write_t)(int, const void *, size_t);
ssize_t write(int file, const void *from, size_t size) { REAL(write, write_t) REFUSE(file) return real(file, from, size); }

typedef ssize_t (*pwrite_t)(int, const void *, size_t, off_t);
ssize_t pwrite(int file, const void *from, size_t size, off_t at) { REAL(pwrite, pwrite_t) REFUSE(file) return real(file, from, size, at); }
ssize_t pwrite64(int file, const void *from, size_t size, off_t at) { REAL(pwrite64, pwrite_t) REFUSE(file) return real(file, from, size, at); }

typedef ssize_t (*pwritev_t)(int, const struct iovec *, int, off_t);
ssize_t pwritev(int file, const struct iovec *from, int count, off_t at) { REAL(pwritev, pwritev_t) REFUSE(file) return real(file, from, count, at); }
ssize_t pwritev64(int file, const struct iovec *from, int count, off_t at) { REAL(pwritev64, pwritev_t) REFUSE(file) return real(file, from, count, at); }

typedef int (*allocate_t)(int, off_t, off_t);
int posix_fallocate(int file, off_t at, off_t size) { REAL(posix_fallocate, allocate_t) return full(file) ? ENOSPC : real(file, at, size); }
int posix_fallocate64(int file, off_t at, off_t size) { REAL(posix_fallocate64, allocate_t) return full(file) ? ENOSPC : real(file, at, size); }

static void shift(int64_t *seconds, int64_t *part, int64_t unit, int64_t by) {
    int64_t moved = *part + by % (1000000000 / unit);
    *seconds += by / (1000000000 / unit) + (moved >= 1000000000 / unit) - (moved < 0);
    *part = moved - (moved >= 1000000000 / unit ? 1000000000 / unit : 0) + (moved < 0 ? 1000000000 / unit : 0);
}

typedef int (*clock_t_)(clockid_t, struct timespec *);
int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime, clock_t_)
    int result = real(clock, now);
    if (result == 0 && clock == CLOCK_REALTIME && switches()[1] != 0) {
        int64_t seconds = now->tv_sec, part = now->tv_nsec;
        shift(&seconds, &part, 1, switches()[1]);
        now->tv_sec = seconds, now->tv_nsec = part;
    }
    return result;
}

typedef int (*gettimeofday_t)(struct timeval *, void *);
int gettimeofday(struct timeval *now, void *zone) {
    REAL(gettimeofday, gettimeofday_t)
    int result = real(now, zone);
    if (result == 0 && switches()[1] != 0) {
        int64_t seconds = now->tv_sec, part = now->tv_usec;
        shift(&seconds, &part, 1000, switches()[1] / 1000);
        now->tv_sec = seconds, now->tv_usec = part;
    }
    return result;
}
