// A stand-in for libcuda, libnvrtc and libcublas: a GPU with memory and no arithmetic.
//
// Allocations, copies, fills, streams, events and graphs work and are counted as by the driver. Kernels and matrix products
// compute nothing; with STAND_IN_LOG they are written to that file, one line each, in the order in which they run. So what a
// program allocates and launches can be tested where there is no GPU. With STAND_IN_NO_CAPTURE no graph can be captured. Built by `tests/gpu/tests/stand_in.rs`.
//
// With STAND_IN_EMULATOR and STAND_IN_NVRTC, the paths of `tests/emulated-gpu` and of the real NVRTC, kernels and products
// are computed on the CPU (`scripts/emulate-gpu`): NVRTC compiles to PTX, which is what a module is made of here.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

typedef unsigned long long address;

enum { SUCCESS = 0, INVALID = 1, OUT_OF_MEMORY = 2, INVALID_IMAGE = 200, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
#define LOCKED(statement) \
    do { \
        pthread_mutex_lock(&lock); \
        statement; \
        pthread_mutex_unlock(&lock); \
    } while (0)

// --- the log ---

static FILE *log_file(void) {
    static FILE *file;
    static int is_open;
    if (!is_open) {
        const char *path = getenv("STAND_IN_LOG");
        is_open = 1;
        file = path ? fopen(path, "a") : NULL;
    }
    return file;
}

static void note(const char *what, size_t bytes) {
    FILE *file = log_file();
    if (file) fprintf(file, "%s %zu\n", what, bytes);
}

// --- the emulator: see `tests/emulated-gpu/src/lib.rs` ---

// A function of a library that a variable names; nothing if the variable is not set.
static void *function_of(const char *variable, const char *name) {
    const char *path = getenv(variable);
    if (!path) return NULL;
    // A library that is open already is found again.
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *found = library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "stand-in: %s\n", dlerror());
        exit(2);
    }
    return found;
}
static pthread_mutex_t finding = PTHREAD_MUTEX_INITIALIZER;
#define FOUND(variable, type, name) \
    static type function; \
    static int is_known; \
    pthread_mutex_lock(&finding); \
    if (!is_known) function = (type)function_of(variable, name), is_known = 1; \
    pthread_mutex_unlock(&finding)
#define EMULATED(type, name) FOUND("STAND_IN_EMULATOR", type, "emulator_" name)

struct region {
    address from, end;
};
struct matrix {
    address at;
    int64_t column, stride;
    int is_transposed;
};
struct product {
    struct matrix a, b, c;
    int64_t m, n, k, count;
    int number;
    float scale, kept;
};
struct shape {
    unsigned grid[3], block[3], shared;
};

static int is_emulated(void) {
    static int is;
    if (!is) is = getenv("STAND_IN_EMULATOR") ? 1 : -1;
    return is > 0;
}

// After an error in a kernel the context is lost, as on a device.
static int lost;
static char message[4096];
static int lose(int status) {
    if (!lost) fprintf(stderr, "emulated GPU: %s\n", message);
    return lost = status;
}

// --- memory: an H200's, reserved at a fixed address, so that a program gets the same addresses in every run ---

static const size_t TOTAL = 141ull << 30, GRAIN = 512;

struct block {
    address at;
    size_t bytes, wanted;
    int is_of_graph;
    struct block *next;
};

// In the order of their addresses.
static struct block *blocks;
// Memory of the host that kernels may use, in any order.
static struct block *pinned;

// What kernels may touch: as much as was wanted, and not what was added to fill a grain.
static struct region *regions(size_t *count) {
    static struct region *all;
    static size_t capacity;
    struct block *lists[] = {blocks, pinned};
    *count = 0;
    for (int list = 0; list < 2; list++)
        for (struct block *block = lists[list]; block; block = block->next) {
            if (*count == capacity) all = realloc(all, (capacity = capacity * 2 + 64) * sizeof *all);
            all[(*count)++] = (struct region){block->at, block->at + block->wanted};
        }
    return all;
}
static uint64_t used[2], peak[2];

static address memory_begins(void) {
    static address at;
    if (!at) {
        void *found = mmap((void *)0x100000000000, 2 * TOTAL, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        at = found == MAP_FAILED ? 0 : (address)(uintptr_t)found;
    }
    return at;
}

// The first gap that is large enough.
static int allocate(address *at, size_t bytes, int is_of_graph) {
    struct block **place = &blocks;
    // With gaps, memory takes more addresses than it has bytes.
    address free_from = memory_begins(), end = free_from + 2 * TOTAL;
    if (!free_from || bytes > TOTAL) return OUT_OF_MEMORY;
    // A gap behind each block, so that a kernel that goes too far is noticed.
    size_t wanted = bytes, gap = is_emulated() ? GRAIN : 0;
    bytes = (bytes + GRAIN - 1) / GRAIN * GRAIN;
    for (; *place && (*place)->at - free_from < bytes + gap; place = &(*place)->next)
        free_from = (*place)->at + (*place)->bytes + gap;
    if (end - free_from < bytes) return OUT_OF_MEMORY;
    if (used[0] + used[1] + bytes > TOTAL) return OUT_OF_MEMORY;
    struct block *block = malloc(sizeof *block);
    *block = (struct block){free_from, bytes, wanted, is_of_graph, *place};
    *place = block;
    used[is_of_graph] += bytes;
    if (used[is_of_graph] > peak[is_of_graph]) peak[is_of_graph] = used[is_of_graph];
    *at = free_from;
    // What nobody wrote is not zero on a device either. Large memory is mostly reserved and never touched.
    if (gap && bytes <= 64 << 20) memset((void *)(uintptr_t)free_from, 0xff, bytes);
    note("allocate", bytes);
    return SUCCESS;
}

static int release(address at) {
    for (struct block **place = &blocks; *place; place = &(*place)->next) {
        struct block *block = *place;
        if (block->at != at) continue;
        *place = block->next;
        used[block->is_of_graph] -= block->bytes;
        note("free", block->bytes);
        // The pages go back to the system, and are zeros when they are allocated again.
        madvise((void *)(uintptr_t)at, block->bytes / 4096 * 4096, at % 4096 ? MADV_NORMAL : MADV_DONTNEED);
        free(block);
        return SUCCESS;
    }
    return INVALID;
}

// --- work: run at once, or recorded by a stream that captures ---

enum kind { KERNEL, COPY, FILL, BATCH_OF_ROWS };

// A launch or product that the emulator runs.
struct emulated {
    void *kernel, *parameters;
    struct shape shape;
    struct product product;
};

struct work {
    enum kind kind;
    char *line;
    address to, from;
    size_t bytes, pitch_to, pitch_from, rows;
    uint32_t value;
    int width;
    struct emulated *emulated;
    struct work *next;
};

struct graph {
    struct work *first, **last;
    size_t nodes;
    int users;
};

struct stream {
    struct graph *capturing;
    // A stream of another capture, which waits for an event of it, records into the same graph.
    struct stream *origin;
};

struct event {
    struct timespec at;
    struct graph *capturing;
    struct stream *origin;
};

static void run_emulated(const struct emulated *given) {
    typedef int (*launch)(void *, const struct shape *, const void *, const struct region *, size_t, char *, size_t);
    typedef int (*multiply)(const struct product *, const struct region *, size_t, char *, size_t);
    size_t count;
    struct region *all = regions(&count);
    int status;
    if (lost) return;
    if (given->kernel) {
        EMULATED(launch, "launch");
        status = function(given->kernel, &given->shape, given->parameters, all, count, message, sizeof message);
    } else {
        EMULATED(multiply, "multiply");
        status = function(&given->product, all, count, message, sizeof message);
    }
    if (status) lose(ILLEGAL_ADDRESS);
}

static void forget(const struct work *work) {
    free(work->line);
    if (work->emulated) free(work->emulated->parameters);
    free(work->emulated);
}

static void run(const struct work *work) {
    FILE *file = log_file();
    if (file) fprintf(file, "%s\n", work->line);
    char *to = (char *)(uintptr_t)work->to, *from = (char *)(uintptr_t)work->from;
    switch (work->kind) {
    case KERNEL:
        if (work->emulated) run_emulated(work->emulated);
        break;
    case COPY: memmove(to, from, work->bytes); break;
    case FILL:
        if (work->width == 1) {
            // Fresh memory is zeros, and most fills are: what is not touched needs no page.
            for (size_t i = 0; i < work->bytes; i++)
                if (to[i] != (char)work->value) to[i] = (char)work->value;
        } else {
            for (size_t i = 0; i < work->bytes; i++) ((uint32_t *)to)[i] = work->value;
        }
        break;
    case BATCH_OF_ROWS:
        for (size_t row = 0; row < work->rows; row++)
            memmove(to + row * work->pitch_to, from + row * work->pitch_from, work->bytes);
        break;
    }
}

static int put(struct stream *stream, struct work work, char *line) {
    work.line = line;
    pthread_mutex_lock(&lock);
    struct graph *graph = stream ? stream->capturing : NULL;
    if (graph) {
        struct work *kept = malloc(sizeof *kept);
        *kept = work;
        *graph->last = kept;
        graph->last = &kept->next;
        graph->nodes++;
    } else {
        run(&work);
        forget(&work);
    }
    int status = lost;
    pthread_mutex_unlock(&lock);
    return status;
}

static char *text(const char *format, ...) {
    char *line = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&line, format, arguments) < 0) line = NULL;
    va_end(arguments);
    return line;
}

static void drop(struct graph *graph) {
    if (--graph->users) return;
    for (struct work *work = graph->first, *next; work; work = next) {
        next = work->next;
        forget(work);
        free(work);
    }
    free(graph);
}

// --- the driver: devices and contexts ---

static int context;

int cuInit(unsigned flags) { return (void)flags, SUCCESS; }
// NVRTC asks for a cache of the driver.
int cuGetExportTable(const void **table, const void *which) { return (void)which, *table = NULL, NOT_FOUND; }
int cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
int cuDeviceGetCount(int *count) { return *count = 1, SUCCESS; }
int cuDeviceGet(int *device, int number) { return *device = number, SUCCESS; }
int cuDeviceGetName(char *name, int length, int device) {
    return (void)device, snprintf(name, length, "Stand-in GPU"), SUCCESS;
}
int cuDeviceGetPCIBusId(char *name, int length, int device) {
    return (void)device, snprintf(name, length, "0000:01:00.0"), SUCCESS;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return (void)device, *bytes = TOTAL, SUCCESS; }
int cuDeviceGetAttribute(int *value, int which, int device) {
    (void)device;
    switch (which) {
    case 16: *value = 132; break;            // multiprocessors
    case 38: *value = 60 << 20; break;       // L2 cache
    case 75: *value = 9; break;              // compute capability
    case 97: *value = 227 << 10; break;      // shared memory of a block
    default: *value = 0;
    }
    return SUCCESS;
}
int cuDevicePrimaryCtxRetain(void **out, int device) { return (void)device, *out = &context, SUCCESS; }
int cuDevicePrimaryCtxRelease_v2(int device) { return (void)device, SUCCESS; }
static __thread void *current;
int cuCtxGetCurrent(void **out) { return *out = current, SUCCESS; }
int cuCtxSetCurrent(void *given) { return current = given, SUCCESS; }
int cuCtxSynchronize(void) { return lost; }

// --- the driver: memory ---

int cuDeviceGetDefaultMemPool(void **pool, int device) { return (void)device, *pool = used, SUCCESS; }
int cuMemPoolSetAttribute(void *pool, int which, uint64_t *value) {
    (void)pool, (void)value;
    if (which == 8) LOCKED(peak[0] = used[0]);
    return SUCCESS;
}
int cuMemPoolGetAttribute(void *pool, int which, uint64_t *value) {
    (void)pool;
    LOCKED(*value = which == 8 ? peak[0] : used[0]);
    return SUCCESS;
}
int cuMemPoolTrimTo(void *pool, size_t bytes) { return (void)pool, (void)bytes, SUCCESS; }
int cuDeviceGetGraphMemAttribute(int device, int which, uint64_t *value) {
    (void)device;
    LOCKED(*value = which == 1 ? peak[1] : used[1]);
    return SUCCESS;
}
int cuDeviceSetGraphMemAttribute(int device, int which, uint64_t *value) {
    (void)device, (void)value;
    if (which == 1) LOCKED(peak[1] = used[1]);
    return SUCCESS;
}
int cuDeviceGraphMemTrim(int device) { return (void)device, SUCCESS; }
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    LOCKED(*free_bytes = TOTAL - used[0] - used[1]);
    return *total = TOTAL, SUCCESS;
}
int cuMemAllocFromPoolAsync(address *at, size_t bytes, void *pool, void *stream) {
    struct stream *on = stream;
    int status;
    (void)pool;
    LOCKED(status = lost ? lost : allocate(at, bytes, on && on->capturing));
    return status;
}
int cuMemFreeAsync(address at, void *stream) {
    int status;
    (void)stream;
    LOCKED(status = release(at));
    return status;
}
int cuMemHostAlloc(void **at, size_t bytes, unsigned flags) {
    (void)flags;
    if (!(*at = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096))) return OUT_OF_MEMORY;
    struct block *block = malloc(sizeof *block);
    *block = (struct block){.at = (address)(uintptr_t)*at, .wanted = bytes};
    LOCKED(block->next = pinned; pinned = block);
    return SUCCESS;
}
int cuMemFreeHost(void *at) {
    pthread_mutex_lock(&lock);
    struct block **place = &pinned;
    while (*place && (*place)->at != (address)(uintptr_t)at) place = &(*place)->next;
    struct block *block = *place;
    if (block) *place = block->next;
    pthread_mutex_unlock(&lock);
    free(block);
    return free(at), SUCCESS;
}

static int copy(address to, address from, size_t bytes, void *stream, const char *name) {
    return put(stream, (struct work){.kind = COPY, .to = to, .from = from, .bytes = bytes}, text("%s %zu", name, bytes));
}
int cuMemcpyHtoDAsync_v2(address to, const void *from, size_t bytes, void *stream) {
    return copy(to, (address)(uintptr_t)from, bytes, stream, "copy to device");
}
int cuMemcpyDtoHAsync_v2(void *to, address from, size_t bytes, void *stream) {
    return copy((address)(uintptr_t)to, from, bytes, stream, "copy from device");
}
int cuMemcpyDtoDAsync_v2(address to, address from, size_t bytes, void *stream) {
    return copy(to, from, bytes, stream, "copy on device");
}

struct plane {
    size_t x, y;
    int kind;
    const void *host;
    address device;
    void *array;
    size_t pitch;
};
struct copy_2d {
    struct plane from, to;
    size_t width, height;
};
static address origin(const struct plane *plane) {
    address at = plane->kind == 1 ? (address)(uintptr_t)plane->host : plane->device;
    return at + plane->y * plane->pitch + plane->x;
}
int cuMemcpy2DAsync_v2(const struct copy_2d *given, void *stream) {
    struct work work = {.kind = BATCH_OF_ROWS, .to = origin(&given->to), .from = origin(&given->from), .bytes = given->width,
                        .pitch_to = given->to.pitch, .pitch_from = given->from.pitch, .rows = given->height};
    return put(stream, work, text("copy rows %zu x %zu", given->height, given->width));
}
int cuMemsetD8Async(address at, unsigned char value, size_t bytes, void *stream) {
    struct work work = {.kind = FILL, .to = at, .bytes = bytes, .value = value, .width = 1};
    return put(stream, work, text("fill %zu", bytes));
}
int cuMemsetD32Async(address at, unsigned value, size_t count, void *stream) {
    struct work work = {.kind = FILL, .to = at, .bytes = count, .value = value, .width = 4};
    return put(stream, work, text("fill %zu", count * 4));
}

// --- the driver: streams and events ---

int cuStreamCreate(void **out, unsigned flags) {
    return (void)flags, (*out = calloc(1, sizeof(struct stream))) ? SUCCESS : OUT_OF_MEMORY;
}
int cuStreamDestroy_v2(void *stream) { return free(stream), SUCCESS; }
int cuStreamSynchronize(void *stream) { return (void)stream, lost; }
int cuStreamQuery(void *stream) { return (void)stream, lost; }
int cuStreamIsCapturing(void *stream, int *status) {
    struct stream *on = stream;
    return *status = on && on->capturing ? 1 : 0, SUCCESS;
}
int cuStreamBeginCapture_v2(void *stream, int mode) {
    struct stream *on = stream;
    (void)mode;
    if (on->capturing || getenv("STAND_IN_NO_CAPTURE")) return INVALID;
    on->capturing = calloc(1, sizeof(struct graph));
    on->capturing->last = &on->capturing->first;
    on->capturing->users = 1;
    return SUCCESS;
}
int cuStreamEndCapture(void *stream, void **out) {
    struct stream *on = stream;
    return *out = on->capturing, on->capturing = NULL, *out ? SUCCESS : INVALID;
}
int cuStreamWaitEvent(void *stream, void *given, unsigned flags) {
    struct stream *on = stream;
    struct event *event = given;
    (void)flags;
    // A stream that waits for captured work is captured too, until it is waited for in turn.
    if (event->origin && event->origin->capturing && on != event->origin && !on->capturing) {
        on->capturing = event->origin->capturing;
        on->origin = event->origin;
    } else if (event->origin && event->origin->origin == on) {
        event->origin->capturing = NULL;
        event->origin->origin = NULL;
    }
    return SUCCESS;
}
int cuEventCreate(void **out, unsigned flags) {
    return (void)flags, (*out = calloc(1, sizeof(struct event))) ? SUCCESS : OUT_OF_MEMORY;
}
int cuEventDestroy_v2(void *event) { return free(event), SUCCESS; }
int cuEventRecord(void *given, void *stream) {
    struct event *event = given;
    event->origin = stream;
    return clock_gettime(CLOCK_MONOTONIC, &event->at), SUCCESS;
}
int cuEventQuery(void *event) { return (void)event, lost; }
int cuEventElapsedTime_v2(float *milliseconds, void *from, void *to) {
    struct timespec a = ((struct event *)from)->at, b = ((struct event *)to)->at;
    *milliseconds = (float)((b.tv_sec - a.tv_sec) * 1e3 + (b.tv_nsec - a.tv_nsec) / 1e6);
    return SUCCESS;
}

// --- the driver: graphs ---

int cuGraphGetNodes(void *graph, void **nodes, size_t *count) {
    return (void)nodes, *count = ((struct graph *)graph)->nodes, SUCCESS;
}
int cuGraphInstantiateWithFlags(void **out, void *graph, unsigned long long flags) {
    return (void)flags, ((struct graph *)graph)->users++, *out = graph, SUCCESS;
}
int cuGraphDestroy(void *graph) { return drop(graph), SUCCESS; }
int cuGraphExecDestroy(void *graph) { return drop(graph), SUCCESS; }
int cuGraphUpload(void *graph, void *stream) { return (void)graph, (void)stream, SUCCESS; }
int cuGraphLaunch(void *graph, void *stream) {
    (void)stream;
    pthread_mutex_lock(&lock);
    for (struct work *work = ((struct graph *)graph)->first; work; work = work->next) run(work);
    int status = lost;
    pthread_mutex_unlock(&lock);
    return status;
}

// --- the driver: modules and kernels ---

struct module {
    void *emulated;
};
struct kernel {
    char *name;
    void *emulated;
};

int cuModuleLoadData(void **out, const void *image) {
    typedef int (*load)(void **, const void *, char *, size_t);
    EMULATED(load, "load");
    struct module *module = *out = calloc(1, sizeof *module);
    if (!function || !function(&module->emulated, image, message, sizeof message)) return SUCCESS;
    free(module);
    return INVALID_IMAGE;
}
int cuModuleUnload(void *given) {
    typedef void (*unload)(void *);
    EMULATED(unload, "unload");
    struct module *module = given;
    if (function) function(module->emulated);
    return free(module), SUCCESS;
}
int cuModuleGetFunction(void **out, void *given, const char *name) {
    typedef int (*find)(void **, void *, const char *, char *, size_t);
    EMULATED(find, "find");
    struct module *module = given;
    // Kernels outlive their module in a graph, and there are few.
    struct kernel *kernel = *out = calloc(1, sizeof *kernel);
    kernel->name = strdup(name);
    if (function && function(&kernel->emulated, module->emulated, name, message, sizeof message)) {
        fprintf(stderr, "emulated GPU: %s\n", message);
        return NOT_FOUND;
    }
    return SUCCESS;
}
int cuFuncLoad(void *kernel) { return (void)kernel, SUCCESS; }
int cuFuncSetAttribute(void *kernel, int which, int value) { return (void)kernel, (void)which, (void)value, SUCCESS; }

static struct emulated *emulated_launch(struct kernel *kernel, struct shape shape, void **arguments) {
    typedef size_t (*parameter_bytes)(void *);
    typedef void (*gather)(void *, void **, void *);
    if (!kernel->emulated) return NULL;
    EMULATED(parameter_bytes, "parameter_bytes");
    struct emulated *emulated = calloc(1, sizeof *emulated);
    // Tensor maps are aligned to 128 bytes.
    *emulated = (struct emulated){.kernel = kernel->emulated, .shape = shape};
    emulated->parameters = aligned_alloc(128, function(kernel->emulated) / 128 * 128 + 128);
    {
        EMULATED(gather, "gather");
        function(kernel->emulated, arguments, emulated->parameters);
    }
    return emulated;
}
int cuLaunchKernel(void *given, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
    struct kernel *kernel = given;
    struct shape shape = {{gx, gy, gz}, {bx, by, bz}, shared};
    (void)extra;
    return put(stream, (struct work){.kind = KERNEL, .emulated = emulated_launch(kernel, shape, arguments)},
               text("%s grid %u %u %u block %u %u %u shared %u", kernel->name, gx, gy, gz, bx, by, bz, shared));
}
struct launch {
    unsigned grid[3], block[3], shared;
    void *stream, *attributes;
    unsigned count;
};
int cuLaunchKernelEx(const struct launch *given, void *kernel, void **arguments, void **extra) {
    return cuLaunchKernel(kernel, given->grid[0], given->grid[1], given->grid[2], given->block[0], given->block[1],
                          given->block[2], given->shared, given->stream, arguments, extra);
}
int cuOccupancyMaxActiveClusters(int *clusters, void *kernel, const struct launch *given) {
    return (void)kernel, (void)given, *clusters = 8, SUCCESS;
}
int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *at, const uint64_t *dims, const uint64_t *strides,
                           const uint32_t *tile, const uint32_t *steps, int interleave, int swizzle, int cached, int outside) {
    typedef void (*encode)(void *, address, const uint64_t *, const uint64_t *, const uint32_t *, unsigned);
    EMULATED(encode, "map");
    (void)steps, (void)cached, (void)outside;
    if (!function) return SUCCESS;
    // Numbers of two bytes in rows of 128 swizzled bytes are what kernels of ours ask for.
    if ((type != 6 && type != 9) || rank != 3 || interleave || swizzle != 3 || tile[0] != 64) return INVALID;
    return function(map, (address)(uintptr_t)at, dims, strides, tile, 2), SUCCESS;
}

// --- the compiler: what it compiles to is its options, or PTX for the emulator ---

struct program {
    char *name;
    void *real;
};
#define COMPILER(type, name) FOUND("STAND_IN_NVRTC", type, name)

int nvrtcVersion(int *major, int *minor) {
    typedef int (*version)(int *, int *);
    COMPILER(version, "nvrtcVersion");
    if (function) return function(major, minor);
    return *major = 13, *minor = 0, SUCCESS;
}
const char *nvrtcGetErrorString(int status) {
    typedef const char *(*describe)(int);
    COMPILER(describe, "nvrtcGetErrorString");
    return function ? function(status) : "an error of the stand-in";
}
int nvrtcCreateProgram(struct program **out, const char *source, const char *name, int headers, const char **a,
                       const char **b) {
    typedef int (*create)(void **, const char *, const char *, int, const char **, const char **);
    COMPILER(create, "nvrtcCreateProgram");
    struct program *program = *out = calloc(1, sizeof *program);
    program->name = strdup(name);
    return function ? function(&program->real, source, name, headers, a, b) : SUCCESS;
}
int nvrtcCompileProgram(struct program *program, int count, const char **options) {
    typedef int (*compile)(void *, int, const char **);
    COMPILER(compile, "nvrtcCompileProgram");
    if (!function) return SUCCESS;
    const char **all = calloc(count, sizeof *all), *start = "--gpu-architecture=sm_";
    char *architecture = NULL;
    for (int at = 0; at < count; at++) {
        all[at] = options[at];
        if (strncmp(options[at], start, strlen(start))) continue;
        // PTX is for an architecture that is not a real one.
        free(architecture);
        all[at] = architecture = text("--gpu-architecture=compute_%s", options[at] + strlen(start));
    }
    int status = function(program->real, count, all);
    free(architecture);
    return free(all), status;
}
int nvrtcGetProgramLogSize(struct program *program, size_t *size) {
    typedef int (*get)(void *, size_t *);
    COMPILER(get, "nvrtcGetProgramLogSize");
    if (function) return function(program->real, size);
    return *size = 1, SUCCESS;
}
int nvrtcGetProgramLog(struct program *program, char *log) {
    typedef int (*get)(void *, char *);
    COMPILER(get, "nvrtcGetProgramLog");
    if (function) return function(program->real, log);
    return *log = 0, SUCCESS;
}
int nvrtcGetCUBINSize(struct program *program, size_t *size) {
    typedef int (*get)(void *, size_t *);
    COMPILER(get, "nvrtcGetPTXSize");
    if (function) return function(program->real, size);
    return *size = strlen(program->name) + 1, SUCCESS;
}
int nvrtcGetCUBIN(struct program *program, char *code) {
    typedef int (*get)(void *, char *);
    COMPILER(get, "nvrtcGetPTX");
    if (function) return function(program->real, code);
    return strcpy(code, program->name), SUCCESS;
}
int nvrtcDestroyProgram(struct program **program) {
    typedef int (*destroy)(void **);
    COMPILER(destroy, "nvrtcDestroyProgram");
    int status = function ? function(&(*program)->real) : SUCCESS;
    free((*program)->name);
    return free(*program), status;
}

// --- matrix products ---

struct handle {
    void *stream;
    int mode;
};
int cublasCreate_v2(void **out) { return (*out = calloc(1, sizeof(struct handle))) ? SUCCESS : 3; }
int cublasDestroy_v2(void *handle) { return free(handle), SUCCESS; }
int cublasSetStream_v2(struct handle *handle, void *stream) { return handle->stream = stream, SUCCESS; }
int cublasSetWorkspace_v2(void *handle, void *at, size_t bytes) { return (void)handle, (void)at, (void)bytes, SUCCESS; }
int cublasSetMathMode(struct handle *handle, int mode) { return handle->mode = mode, SUCCESS; }
int cublasGetMathMode(struct handle *handle, int *mode) { return *mode = handle->mode, SUCCESS; }

static int multiply(struct handle *handle, struct product product, char *line) {
    struct emulated *emulated = NULL;
    if (is_emulated()) {
        emulated = calloc(1, sizeof *emulated);
        emulated->product = product;
    }
    return put(handle->stream, (struct work){.kind = KERNEL, .emulated = emulated}, line);
}
int cublasGemmEx(struct handle *handle, int of_a, int of_b, int m, int n, int k, const float *scale, address a, int type,
                 int row_a, address b, int type_b, int row_b, const float *kept, address c, int type_c, int row_c) {
    (void)type_b, (void)type_c;
    struct product product = {{a, row_a, 0, of_a}, {b, row_b, 0, of_b}, {c, row_c, 0, 0}, m, n, k, 1, type, *scale, *kept};
    return multiply(handle, product, text("product %d%d %d x %d x %d", of_a, of_b, m, n, k));
}
int cublasGemmStridedBatchedEx(struct handle *handle, int of_a, int of_b, int m, int n, int k, const float *scale, address a,
                               int type, int row_a, long long next_a, address b, int type_b, int row_b, long long next_b,
                               const float *kept, address c, int type_c, int row_c, long long next_c, int count) {
    (void)type_b, (void)type_c;
    struct product product = {{a, row_a, next_a, of_a}, {b, row_b, next_b, of_b}, {c, row_c, next_c, 0}, m, n, k,
                              count, type, *scale, *kept};
    return multiply(handle, product, text("products %d%d %d x %d x %d", of_a, of_b, m, n, k));
}
