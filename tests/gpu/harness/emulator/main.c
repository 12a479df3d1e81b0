/* emulator KERNEL REQUEST: runs the launches of a request file with the kernels of a shared object. */
#include "emu.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>

int main(int count, char **arguments) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  /* a kernel that hangs does not outlive who started it */
    void *object = count == 3 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    if (!object) {
        fprintf(stderr, "no kernel: %s\n", count == 3 ? dlerror() : "two arguments are needed");
        return 3;
    }
    const Kernel kernel = {
        .entries = dlsym(object, "emu_entries"),
        .globals = dlsym(object, "emu_globals"),
        .dynamic = dlsym(object, "emu_dynamic"),
        .dynamic_room = dlsym(object, "emu_dynamic_room"),
    };
    emulate(&kernel, arguments[2]);
    return 0;
}
