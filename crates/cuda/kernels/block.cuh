// What the kernels of block attention share: what a block of queries is multiplied with, and the rule of partial tiles.

// Queries of a block and keys of a tile.
#define ROWS 128
#define KEYS 64
#define NO_WINDOW 0xffffffffu

// A block of queries, in the order in which they are begun: its tiles of keys and its gathered columns. The first two
// words of its list are here too, so that loading can begin.
struct alignas(32) Work {
    u32 block, first_tile, tiles, first_column, columns, words[2], unused;
};

struct Rule {
    u32 length, is_causal, half_window, global;
};

// `works` is by blocks; `tiles` is nothing where all tiles are taken in turn. `column_rows` has two words a column.
#define BLOCK_PARAMETERS                                                                                               \
    const number *q, const number *k, const number *v, number *out, const Work *works, const u32 *tiles,              \
        const u32 *columns, const u64 *column_rows, u32 tokens, u32 heads, u32 kv_heads, u32 capacity, float scale,    \
        u32 is_causal, u32 half_window, u32 global

// The keys that a row keeps: those before `end` which are global or among `span` from `low` on.
struct Seen {
    u32 end, low, span, global;
};

__device__ __forceinline__ Seen seen_by(u32 row, const Rule &rule) {
    Seen seen = {rule.is_causal && row < rule.length ? row + 1 : rule.length, 0, ~0u, rule.global};
    if (rule.half_window != NO_WINDOW && row >= rule.global) {
        seen.low = row > rule.half_window ? row - rule.half_window : 0;
        seen.span = row + rule.half_window + 1 - seen.low;
    }
    return seen;
}
// Without branches, which would cost more than they save.
__device__ __forceinline__ bool is_seen(const Seen &seen, u32 key) {
    return (key < seen.end) & ((key < seen.global) | (key - seen.low < seen.span));
}

enum Part { NOTHING, SOME, ALL };

// How much of a partial tile these rows keep; some, where that is not clear at once.
__device__ __forceinline__ Part part_of(u32 first_row, u32 last_row, u32 first_key, const Rule &rule) {
    u32 last_key = first_key + KEYS - 1, half = rule.half_window;
    bool is_windowed = half != NO_WINDOW && first_row >= rule.global;
    if (first_key >= rule.length || (rule.is_causal && first_key > last_row)) return NOTHING;
    bool is_far = first_key > last_row + half || last_key + half < first_row;
    if (is_windowed && first_key >= rule.global && is_far) return NOTHING;
    bool is_near = half == NO_WINDOW || last_row < rule.global || last_key < rule.global ||
                   (last_row <= first_key + half && last_key <= first_row + half);
    return is_near && last_key < rule.length && !(rule.is_causal && last_key > first_row) ? ALL : SOME;
}

// The word of a tile in the list: twice its number, and one more if it is partial.
__device__ __forceinline__ u32 tile_word(const u32 *tiles, const Work &work, u32 at, const Rule &rule) {
    if (tiles) return tiles[work.first_tile + at];
    u32 end = (at + 1) * KEYS;
    return at << 1 | (end > rule.length || (rule.is_causal && end > work.block * ROWS + 1));
}

// Where the rows of a tile come from: in turn from the first one on, or by the columns that are gathered.
struct Source {
    const u32 *columns;
    u32 first, end;
    __device__ __forceinline__ Found find(u32 row) const {
        bool is_there = first + row < end;
        u32 at = is_there && columns ? columns[first + row] : first + row;
        return {is_there, (u64)at * HEAD_DIM};
    }
};
__device__ __forceinline__ Source source_of(u32 tile, u32 word, const Work &work, const u32 *columns, u32 length) {
    if (tile < work.tiles) return {nullptr, (word >> 1) * KEYS, length};
    return {columns + work.first_column, (tile - work.tiles) * KEYS, work.columns};
}
__device__ __forceinline__ u32 tiles_of(const Work &work) { return work.tiles + (work.columns + KEYS - 1) / KEYS; }
