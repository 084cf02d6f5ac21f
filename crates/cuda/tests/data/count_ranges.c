// A tool for NVTX that counts what it is told, to test ranges without Nsight.
// It asks for its tables as NVIDIA's interface has it, and checks them as it goes.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef void (*function)(void);

struct callbacks {
    size_t size;
    int (*module_table)(int module, function*** table, unsigned* size);
};

struct version_info {
    size_t size;
    uint32_t version;
    uint32_t reserved;
    void (*set_tool_version)(uint32_t);
};

// Pushed, popped, started, ended, marked, the deepest nesting, and names that were not as expected.
int counts[7];
static int depth;

static void expect(const char* name, const char* expected) {
    if (strcmp(name, expected) != 0) {
        counts[6] += 1;
    }
}

static int push(const char* name) {
    expect(name, "decode");
    counts[0] += 1;
    depth += 1;
    if (depth > counts[5]) {
        counts[5] = depth;
    }
    return depth - 1;
}

static int pop(void) {
    counts[1] += 1;
    depth -= 1;
    return depth;
}

static uint64_t start(const char* name) {
    expect(name, "prefill");
    counts[2] += 1;
    return 4242;
}

static void end(uint64_t number) {
    counts[3] += number == 4242;
}

static void mark(const char* name) {
    expect(name, "first token");
    counts[4] += 1;
}

int InitializeInjectionNvtx2(const void* (*export_table)(uint32_t)) {
    const struct callbacks* callbacks = export_table(1);
    const struct version_info* version = export_table(3);
    if (!callbacks || callbacks->size < sizeof *callbacks || !version || version->version != 3 || export_table(99)) {
        return 0;
    }
    version->set_tool_version(3);
    function** table = NULL;
    unsigned size = 0;
    if (!callbacks->module_table(1, &table, &size) || size != 16 || table[0] || table[16]) {
        return 0;
    }
    if (!callbacks->module_table(5, NULL, &size) || size != 16 || callbacks->module_table(42, NULL, NULL)) {
        return 0;
    }
    *table[2] = (function)mark;
    *table[5] = (function)start;
    *table[7] = (function)end;
    *table[9] = (function)push;
    *table[11] = (function)pop;
    return 1;
}
