// A stand-in for the CUDA driver: it loads injected libraries as the real one does, and reports made-up work to the
// stand-in for CUPTI. Built as libcuda.so.1 by the tests of `laptime record`.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuInit(unsigned flags) {
    static int done;
    (void)flags;
    if (done) return 0;
    done = 1;
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    int (*start)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
    if (start) start();
    return getenv("STAND_IN_NO_GPU") ? 100 : 0;
}

int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int number) { return *device = number, 0; }
int cuDeviceGetName(char *name, int length, int device) {
    (void)device;
    return snprintf(name, length, "Stand-in GPU"), 0;
}
int cuDeviceGetPCIBusId(char *name, int length, int device) {
    const char *bus = getenv("STAND_IN_BUS");
    (void)device;
    return snprintf(name, length, "%s", bus ? bus : "0000:01:00.0"), 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return (void)device, *bytes = 1 << 30, 0; }
int cuDeviceGetAttribute(int *value, int which, int device) {
    (void)device;
    return *value = which == 16 ? 132 : which == 75 ? 9 : 0, 0;
}

// Whether a context is active; the stand-in for CUPTI makes it.
int stand_in_has_context;
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    (void)device;
    return *flags = 0, *active = stand_in_has_context, 0;
}
