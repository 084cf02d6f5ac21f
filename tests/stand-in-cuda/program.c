// A small CUDA program for the tests of `laptime record`: it does what its arguments say, one after the other.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void *cupti(void) { return dlopen("libcupti.so.13", RTLD_NOW | RTLD_GLOBAL); }
#define CUPTI(type, name) ((type)dlsym(cupti(), name))

// The side of NVTX that the header brings into a program.
static void *core[17], *core2[17];
static void *core_table[17], *core2_table[17];
static int module_table(int module, void ***table, unsigned *size) {
    if (module != 1 && module != 5) return 0;
    for (int at = 1; at < 16; at++) core_table[at] = &core[at], core2_table[at] = &core2[at];
    *table = module == 1 ? core_table : core2_table;
    *size = 16;
    return 1;
}
struct callbacks { size_t size; int (*table)(int, void ***, unsigned *); };
static const struct callbacks callbacks = {sizeof(struct callbacks), module_table};
static const void *export_table(uint32_t number) { return number == 1 ? &callbacks : NULL; }
static void nvtx(void) {
    static int done;
    if (done++) return;
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    int (*attach)(const void *(*)(uint32_t)) = library ? dlsym(library, "InitializeInjectionNvtx2") : NULL;
    if (attach) attach(export_table);
}
static void push(const char *name) {
    nvtx();
    if (core[9]) ((int (*)(const char *))core[9])(name);
}
static void pop(void) {
    nvtx();
    if (core[11]) ((int (*)(void))core[11])();
}
struct attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    int64_t payload;
    int32_t message_type;
    const char *message;
};
// A range of a domain with a category and a payload, which ends elsewhere.
static void domain_range(const char *name) {
    nvtx();
    if (!core2[12]) return;
    void *domain = ((void *(*)(const char *))core2[12])("loader");
    ((void (*)(void *, uint32_t, const char *))core2[8])(domain, 3, "input");
    struct attributes attributes = {3, sizeof attributes, 3, 0, 0, 2, 0, -7, 1, name};
    uint64_t number = ((uint64_t (*)(void *, struct attributes *))core2[2])(domain, &attributes);
    ((void (*)(void *, uint64_t))core2[3])(domain, number);
    attributes.message_type = 3;
    attributes.message = ((const char *(*)(void *, const char *))core2[10])(domain, "registered");
    ((int (*)(void *, struct attributes *))core2[4])(domain, &attributes);
    ((int (*)(void *))core2[5])(domain);
}

static void kernels(int count) {
    static const char *names[] = {"_Z4gemmPf", "softmax", "copy_kernel"};
    for (int at = 0; at < count; at++)
        CUPTI(void (*)(const char *, uint32_t, uint64_t), "stand_in_kernel")(names[at % 3], 1 + at % 5, 2000);
}
static void init(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    int (*start)(unsigned) = cuda ? dlsym(cuda, "cuInit") : NULL;
    if (!start || start(0)) { fprintf(stderr, "no CUDA\n"); exit(3); }
    if (cupti()) CUPTI(void (*)(void), "stand_in_context")();
}
static void wait_for(const char *path) {
    while (access(path, F_OK)) usleep(1000);
}
static void until_flushed(void) {
    uint64_t (*flushes)(void) = CUPTI(uint64_t (*)(void), "stand_in_flushes");
    for (uint64_t before = flushes(); flushes() < before + 2;) usleep(1000);
}

int main(int argc, char **argv) {
    for (int at = 1; at < argc; at++) {
        const char *word = argv[at];
#define IS(name) !strcmp(word, name)
        if (IS("init")) init();
        else if (IS("kernels")) kernels(atoi(argv[++at]));
        else if (IS("copy")) CUPTI(void (*)(uint64_t), "stand_in_copy")(4096);
        else if (IS("sync")) CUPTI(void (*)(uint64_t), "stand_in_sync")(50000);
        else if (IS("graph")) CUPTI(void (*)(int), "stand_in_graph")(atoi(argv[++at]));
        else if (IS("allocate")) CUPTI(void (*)(uint64_t, int), "stand_in_memory")(1 << 20, 0);
        else if (IS("release")) CUPTI(void (*)(uint64_t, int), "stand_in_memory")(1 << 20, 1);
        else if (IS("push")) push(argv[++at]);
        else if (IS("pop")) pop();
        else if (IS("domain-range")) domain_range(argv[++at]);
        else if (IS("steps")) {
            // Steps of equal work: a range with kernels, a copy and a sync.
            for (int steps = atoi(argv[++at]); steps > 0; steps--) {
                push("step");
                kernels(6);
                CUPTI(void (*)(uint64_t), "stand_in_copy")(4);
                CUPTI(void (*)(uint64_t), "stand_in_sync")(20000);
                usleep(2000);
                pop();
            }
        } else if (IS("behind")) {
            // Steps that launch much faster than the device works.
            for (int steps = atoi(argv[++at]); steps > 0; steps--) {
                push("step");
                CUPTI(void (*)(const char *, uint32_t, uint64_t), "stand_in_kernel")("slow", 1, 10000000);
                usleep(1000);
                pop();
            }
        } else if (IS("say")) { printf("%s\n", argv[++at]); fflush(stdout); }
        else if (IS("touch")) { FILE *file = fopen(argv[++at], "w"); if (file) fclose(file); }
        else if (IS("await")) wait_for(argv[++at]);
        else if (IS("until-flushed")) until_flushed();
        else if (IS("sleep-ms")) usleep(1000 * atoi(argv[++at]));
        else if (IS("fork")) {
            // A worker of a data loader: it marks, and ends without a word to us.
            pid_t child = fork();
            if (child == 0) { push("in child"); pop(); _exit(0); }
            int status = 1;
            waitpid(child, &status, 0);
            if (status) { fprintf(stderr, "the child failed\n"); return 4; }
        } else if (IS("fork-marks")) {
            // A worker that ends in good order, without CUDA of its own.
            pid_t child = fork();
            if (child == 0) { push("in child"); pop(); domain_range("of child"); exit(0); }
            int status = 1;
            waitpid(child, &status, 0);
            if (status) { fprintf(stderr, "the child failed\n"); return 4; }
        } else if (IS("spawn")) {
            // The rest of the arguments, up to a dot, in a new process.
            int end = ++at;
            while (end < argc && strcmp(argv[end], ".")) end++;
            pid_t child = fork();
            if (child == 0) {
                argv[end] = NULL;
                argv[at - 1] = argv[0];
                execv("/proc/self/exe", argv + at - 1);
                _exit(127);
            }
            int status = 1;
            waitpid(child, &status, 0);
            if (status) return 5;
            at = end;
        } else if (IS("exec")) {
            argv[at] = argv[0];
            execv("/proc/self/exe", argv + at);
        } else if (IS("close-all")) { for (int fd = 3; fd < 1024; fd++) close(fd); }
        else if (IS("clear-environment")) clearenv();
        else if (IS("kill")) kill(getpid(), SIGKILL);
        else if (IS("abort")) abort();
        else if (IS("interruptible")) { signal(SIGINT, SIG_DFL); pause(); }
        else if (IS("exit")) exit(atoi(argv[++at]));
        else if (IS("quick-exit")) _exit(atoi(argv[++at]));
        else if (IS("kineto")) {
            void *library = dlopen(argv[++at], RTLD_NOW | RTLD_GLOBAL);
            if (!library) { fprintf(stderr, "%s\n", dlerror()); return 6; }
            // As torch does: the library is there long before its profiler starts.
            until_flushed();
            kernels(4);
            ((void (*)(void))dlsym(library, "kineto_start"))();
            kernels(9);
            ((void (*)(void))dlsym(library, "kineto_stop"))();
        } else { fprintf(stderr, "unknown word %s\n", word); return 2; }
    }
    return 0;
}
