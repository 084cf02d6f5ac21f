// A tool for NVTX that counts ranges, to test ranges without Nsight.
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

// Pushed, popped, the deepest nesting, and names that were not as expected.
int counts[4];
static int depth;

static void expect(const char* name, const char* expected) {
    if (strcmp(name, expected) != 0) {
        counts[3] += 1;
    }
}

static int push(const char* name) {
    expect(name, "decode");
    counts[0] += 1;
    depth += 1;
    if (depth > counts[2]) {
        counts[2] = depth;
    }
    return depth - 1;
}

static int pop(void) {
    counts[1] += 1;
    depth -= 1;
    return depth;
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
    *table[9] = (function)push;
    *table[11] = (function)pop;
    return 1;
}
