/* Loaded into writers (LD_PRELOAD): what a power loss would leave of their files. Each sync of a file copies it into
   the folder POWER_KEEPS, before the writer is told that it is on the disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int copy(int from, const char *to) {
    static const size_t most = 1 << 16;
    int file = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    char *part = malloc(most);
    off_t at = 0;
    ssize_t size = file < 0 || part == NULL ? -1 : 1;
    while (size > 0 && (size = pread(from, part, most, at)) > 0) {
        at += size;
        if (write(file, part, (size_t)size) != size) size = -1;
    }
    free(part);
    if (file >= 0) close(file);
    return size < 0 ? -1 : 0;
}

/* Whole or not at all; one after the other, so that a later sync is never overtaken by an earlier one. */
static int keep(int file) {
    const char *folder = getenv("POWER_KEEPS");
    struct stat found;
    char link[64], path[4096], kept[4096], made[4104];
    if (folder == NULL || fstat(file, &found) != 0 || !S_ISREG(found.st_mode)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return -1;
    path[length] = 0;
    snprintf(kept, sizeof kept, "%s/%.255s", folder, strrchr(path, '/') + 1);
    snprintf(made, sizeof made, "%s.lock", kept);
    int lock = open(made, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock < 0 || flock(lock, LOCK_EX) != 0) return -1;
    snprintf(made, sizeof made, "%s.new", kept);
    int result = copy(file, made) == 0 ? rename(made, kept) : -1;
    close(lock);
    return result;
}

typedef int (*sync_t)(int);
#define SYNC(name) \
    int name(int file) { \
        sync_t real = (sync_t)dlsym(RTLD_NEXT, #name); \
        int result = real(file); \
        return result == 0 ? keep(file) : result; \
    }
SYNC(fsync)
SYNC(fdatasync)
