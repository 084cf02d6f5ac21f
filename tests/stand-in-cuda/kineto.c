// Stands for torch.profiler (Kineto): it registers buffer callbacks of its own, as a library that imports CUPTI does. With
// BY_DLSYM it stands for the profiler of JAX, which looks the functions up.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int cuptiActivityRegisterCallbacks(void (*)(uint8_t **, size_t *, size_t *),
                                   void (*)(void *, uint32_t, uint8_t *, size_t, size_t));
int cuptiSubscribe(void **, void (*)(void *, uint32_t, uint32_t, const void *), void *);
int cuptiActivityEnable(uint32_t);
int cuptiActivityDisable(uint32_t);
int cuptiActivityFlushAll(uint32_t);
int cuptiActivityGetNextRecord(uint8_t *, size_t, uint8_t **);

static uint8_t *own;
static long kernels, strangers;

static void requested(uint8_t **buffer, size_t *size, size_t *most) {
    own = *buffer = malloc(*size = 1 << 20);
    *most = 0;
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context, (void)stream, (void)size;
    if (buffer != own) { strangers++; return; }
    for (uint8_t *record = NULL; cuptiActivityGetNextRecord(buffer, valid, &record) == 0;)
        kernels += *(uint32_t *)record == 10;
    free(buffer);
}

static void callback(void *own, uint32_t domain, uint32_t id, const void *data) {
    (void)own, (void)domain, (void)id, (void)data;
}

void kineto_start(void) {
    void *handle;
#ifdef BY_DLSYM
    void *cupti = dlopen("libcupti.so.13", RTLD_NOW);
    int (*cuptiSubscribe)(void **, void (*)(void *, uint32_t, uint32_t, const void *), void *) = dlsym(cupti, "cuptiSubscribe");
    int (*cuptiActivityRegisterCallbacks)(void *, void *) = dlsym(cupti, "cuptiActivityRegisterCallbacks");
#endif
    if (cuptiSubscribe(&handle, callback, NULL)) printf("kineto cannot subscribe\n");
    cuptiActivityRegisterCallbacks(requested, completed);
    cuptiActivityEnable(10);
}

void kineto_stop(void) {
    cuptiActivityDisable(10);
    cuptiActivityFlushAll(1);
    printf("kineto saw %ld kernels, %ld strange buffers\n", kernels, strangers);
}
