// A stand-in for CUPTI: it keeps what is switched on, fills buffers of whoever registered last with records of the
// real layout, and hands them back on a flush. Built as libcupti.so.13 by the tests of `laptime record`.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef void (*requested_t)(uint8_t **, size_t *, size_t *);
typedef void (*completed_t)(void *, uint32_t, uint8_t *, size_t, size_t);

enum { MEMCPY = 1, MEMSET = 2, DRIVER = 4, RUNTIME = 5, KERNEL = 10, SYNC = 38, MEMORY2 = 49, GRAPH = 51, KINDS = 64 };
enum { FUNCTIONS = 600 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static requested_t requested;
static completed_t completed;
static int enabled[KINDS], function_on[2][FUNCTIONS], armed[2], has_context;
static uint8_t *buffer;
static size_t size, used;
static uint64_t dropped;
static volatile uint64_t flushes;

uint64_t stand_in_flushes(void) { return flushes; }

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    // Another origin than the host's clock, as the real one has.
    return 1700000000000000000ull + time.tv_sec * 1000000000ull + time.tv_nsec;
}

int cuptiGetVersion(uint32_t *version) { return *version = 130001, 0; }
int cuptiGetTimestamp(uint64_t *time) { return *time = now(), 0; }
int cuptiSetThreadIdType(uint32_t type) { return (void)type, 0; }
int cuptiGetResultString(uint32_t code, const char **text) { return (void)code, *text = "CUPTI_ERROR_STAND_IN", 0; }

int cuptiGetCallbackName(uint32_t domain, uint32_t id, const char **name) {
    static const struct { uint32_t domain, id; const char *name; } names[] = {
        {2, 3, "cudaGetDevice_v3020"}, {2, 20, "cudaMalloc_v3020"}, {2, 41, "cudaMemcpyAsync_v3020"},
        {2, 131, "cudaStreamSynchronize_v3020"}, {2, 188, "cudaProfilerStart_v4000"},
        {2, 505, "__cudaLaunchKernel_v13000"}, {1, 100, "cuProfilerStart"}, {1, 307, "cuLaunchKernel"},
    };
    for (size_t at = 0; at < sizeof names / sizeof *names; at++)
        if (names[at].domain == domain && names[at].id == id) return *name = names[at].name, 0;
    return 1;
}

int cuptiActivityRegisterCallbacks(requested_t r, completed_t c) {
    pthread_mutex_lock(&lock);
    requested = r;
    completed = c;
    pthread_mutex_unlock(&lock);
    return 0;
}

// CUPTI 13.0 reports no more kernels of a thread during whose launches another thread switches copies, sets or syncs.
static long launching_thread;
static int is_lost;
static void switched(uint32_t kind) {
    int is_harmless = kind == KERNEL || kind == RUNTIME || kind == DRIVER || kind == GRAPH || kind == MEMORY2;
    if (!is_harmless && launching_thread && launching_thread != syscall(SYS_gettid)) is_lost = 1;
}
int cuptiActivityEnable(uint32_t kind) { return switched(kind), kind < KINDS ? (enabled[kind] = 1, 0) : 1; }
int cuptiActivityDisable(uint32_t kind) {
    switched(kind);
    // Once the kind was switched off, single functions cannot be switched on any more.
    if (kind == RUNTIME || kind == DRIVER) armed[kind == DRIVER] = -1;
    return kind < KINDS ? (enabled[kind] = 0, 0) : 1;
}
static int switch_function(int is_driver, uint32_t id, uint8_t on) {
    if (id >= FUNCTIONS) return 1;
    function_on[is_driver][id] = on;
    // A function that is on when the context is made lets others be switched on later.
    if (on && !has_context && armed[is_driver] == 0) armed[is_driver] = 1;
    return 0;
}
#ifndef OLD_CUPTI
int cuptiActivityEnableRuntimeApi(uint32_t id, uint8_t on) { return switch_function(0, id, on); }
int cuptiActivityEnableDriverApi(uint32_t id, uint8_t on) { return switch_function(1, id, on); }
#endif

// Callbacks around calls: one subscriber at a time.
struct callback_data {
    uint32_t site;
    const char *function_name;
    const void *parameters;
    void *return_value;
    const char *symbol_name;
    void *context;
    uint32_t context_number;
    uint64_t *own;
    uint32_t correlation;
};
typedef void (*callback_t)(void *, uint32_t, uint32_t, const struct callback_data *);
static callback_t subscriber;
static int callback_on[2][FUNCTIONS];
int cuptiSubscribe(void **handle, callback_t callback, void *own) {
    (void)own;
    if (subscriber) return 39;
    return *handle = &subscriber, subscriber = callback, 0;
}
int cuptiUnsubscribe(void *handle) { return (void)handle, subscriber = NULL, 0; }
int cuptiEnableCallback(uint32_t on, void *handle, uint32_t domain, uint32_t id) {
    (void)handle, (void)switch_function;
    return id < FUNCTIONS ? (callback_on[domain == 1][id] = on, 0) : 1;
}
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count) {
    (void)context, (void)stream;
    return *count = dropped, dropped = 0, 0;
}

static size_t length_of(uint32_t kind) {
    switch (kind) {
    case KERNEL: return 216;
    case MEMCPY: return 96;
    case RUNTIME: case DRIVER: return 40;
    case SYNC: return 56;
    case MEMORY2: return 136;
    case GRAPH: return 56;
    default: return 0;
    }
}

int cuptiActivityGetNextRecord(uint8_t *from, size_t valid, uint8_t **record) {
    uint32_t kind;
    uint8_t *next = from;
    if (*record) {
        memcpy(&kind, *record, 4);
        next = *record + length_of(kind);
    }
    if (next >= from + valid) return 8;
    return *record = next, 0;
}

int cuptiActivityFlushAll(uint32_t flag) {
    (void)flag;
    pthread_mutex_lock(&lock);
    uint8_t *full = buffer;
    size_t bytes = size, valid = used;
    completed_t give = completed;
    buffer = NULL;
    used = 0;
    pthread_mutex_unlock(&lock);
    if (full && give) give(NULL, 0, full, bytes, valid);
    flushes++;
    return 0;
}

static void put(uint32_t kind, const uint8_t *record) {
    size_t length = length_of(kind);
    pthread_mutex_lock(&lock);
    if (buffer && used + length > size) {
        uint8_t *full = buffer;
        size_t bytes = size, valid = used;
        completed_t give = completed;
        buffer = NULL;
        used = 0;
        pthread_mutex_unlock(&lock);
        give(NULL, 0, full, bytes, valid);
        pthread_mutex_lock(&lock);
    }
    if (!buffer && requested) {
        size_t most = 0;
        requested(&buffer, &size, &most);
        used = 0;
    }
    if (buffer) {
        memcpy(buffer + used, record, length);
        used += length;
    } else {
        dropped++;
    }
    pthread_mutex_unlock(&lock);
}

#define PUT(at, type, value) do { type v_ = (value); memcpy(record + (at), &v_, sizeof v_); } while (0)

static uint32_t correlation;

static int is_recorded(int is_driver, uint32_t id) {
    return enabled[is_driver ? DRIVER : RUNTIME] || (function_on[is_driver][id] && armed[is_driver] == 1);
}

static void around(int is_driver, uint32_t id, uint32_t site, uint64_t *own) {
    struct callback_data data = {.site = site, .own = own, .correlation = correlation};
    if (subscriber && callback_on[is_driver][id]) subscriber(NULL, is_driver ? 1 : 2, id, &data);
}

static void call(int is_driver, uint32_t id, uint64_t start, uint64_t end) {
    uint8_t record[40] = {0};
    if (!is_recorded(is_driver, id)) return;
    PUT(0, uint32_t, is_driver ? DRIVER : RUNTIME);
    PUT(4, uint32_t, id);
    PUT(8, uint64_t, start);
    PUT(16, uint64_t, end);
    PUT(24, uint32_t, getpid());
    PUT(28, uint32_t, syscall(SYS_gettid));
    PUT(32, uint32_t, correlation);
    put(is_driver ? DRIVER : RUNTIME, record);
}

// Calls take the time that their records say, and the device does one thing after the other.
static void spin_until(uint64_t time) {
    while (now() < time) {}
}
static uint64_t device_free;
static uint64_t device_begins(uint64_t time, uint64_t length) {
    uint64_t begin = time > device_free ? time : device_free;
    device_free = begin + length;
    return begin;
}

void stand_in_context(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    int *active = driver ? dlsym(driver, "stand_in_has_context") : NULL;
    if (active) *active = 1;
    has_context = 1;
}

// A launch: other calls that PyTorch makes, the runtime's launch with the driver's inside it, and the kernel.
void stand_in_kernel(const char *name, uint32_t grid, uint64_t busy_ns) {
    uint64_t start = now();
    launching_thread = syscall(SYS_gettid);
    call(0, 3, start, start + 100);
    correlation++;
    uint64_t outer = 0, inner = 0;
    around(0, 505, 0, &outer);
    around(1, 307, 0, &inner);
    around(1, 307, 1, &inner);
    around(0, 505, 1, &outer);
    call(1, 307, start + 300, start + 1500);
    call(0, 505, start + 200, start + 2000);
    uint64_t begin = device_begins(start + 3000, busy_ns);
    spin_until(start + 2000);
    if (!enabled[KERNEL] || is_lost) return;
    uint8_t record[216] = {0};
    PUT(0, uint32_t, KERNEL);
    PUT(6, uint16_t, 32);
    PUT(16, uint64_t, begin);
    PUT(24, uint64_t, begin + busy_ns);
    PUT(40, uint32_t, 0);
    PUT(48, uint32_t, 7);
    PUT(52, uint32_t, grid); PUT(56, uint32_t, 1); PUT(60, uint32_t, 1);
    PUT(64, uint32_t, 128); PUT(68, uint32_t, 1); PUT(72, uint32_t, 1);
    PUT(76, uint32_t, 1024);
    PUT(92, uint32_t, correlation);
    PUT(104, const char *, name);
    put(KERNEL, record);
}

void stand_in_copy(uint64_t bytes) {
    uint64_t start = now();
    correlation++;
    call(0, 41, start, start + 3000);
    uint64_t begin = device_begins(start + 4000, 2000);
    spin_until(start + 3000);
    if (!enabled[MEMCPY]) return;
    uint8_t record[96] = {0};
    PUT(0, uint32_t, MEMCPY);
    PUT(4, uint8_t, 2); PUT(5, uint8_t, 3); PUT(6, uint8_t, 1);
    PUT(8, uint64_t, bytes);
    PUT(16, uint64_t, begin);
    PUT(24, uint64_t, begin + 2000);
    PUT(40, uint32_t, 7);
    PUT(44, uint32_t, correlation);
    put(MEMCPY, record);
}

void stand_in_sync(uint64_t length_ns) {
    uint64_t start = now();
    correlation++;
    call(0, 131, start, start + length_ns);
    spin_until(start + length_ns);
    if (!enabled[SYNC]) return;
    uint8_t record[56] = {0};
    PUT(0, uint32_t, SYNC);
    PUT(4, uint32_t, 3);
    PUT(8, uint64_t, start);
    PUT(16, uint64_t, start + length_ns);
    PUT(24, uint32_t, correlation);
    PUT(32, uint32_t, 7);
    put(SYNC, record);
}

void stand_in_memory(uint64_t bytes, int is_release) {
    if (!enabled[MEMORY2]) return;
    uint8_t record[136] = {0};
    PUT(0, uint32_t, MEMORY2);
    PUT(4, uint32_t, is_release ? 2 : 1);
    PUT(8, uint32_t, 3);
    PUT(24, uint64_t, bytes);
    PUT(32, uint64_t, now());
    put(MEMORY2, record);
}

// A graph of some kernels: one record for the whole, or one for each node.
void stand_in_graph(int nodes) {
    uint64_t start = now();
    correlation++;
    if (enabled[GRAPH]) {
        uint8_t record[56] = {0};
        PUT(0, uint32_t, GRAPH);
        PUT(4, uint32_t, correlation);
        PUT(8, uint64_t, start + 1000);
        PUT(16, uint64_t, start + 1000 + nodes * 1000);
        PUT(28, uint32_t, 3);
        PUT(36, uint32_t, 7);
        put(GRAPH, record);
        return;
    }
    if (!enabled[KERNEL]) return;
    for (int node = 0; node < nodes; node++) {
        uint8_t record[216] = {0};
        PUT(0, uint32_t, KERNEL);
        PUT(16, uint64_t, start + 1000 + node * 1000);
        PUT(24, uint64_t, start + 1900 + node * 1000);
        PUT(48, uint32_t, 7);
        PUT(52, uint32_t, 1); PUT(64, uint32_t, 32);
        PUT(92, uint32_t, correlation);
        PUT(104, const char *, "node_kernel");
        PUT(144, uint64_t, 100 + node);
        PUT(156, uint32_t, 3);
        put(KERNEL, record);
    }
}
