// Layouts of block-sparse attention: what a block of queries is multiplied with, and the masking rule of partial tiles.

// Queries of a block and keys of a tile.
#define ROWS 128
#define KEYS 64
#define NO_WINDOW 0xffffffffu

// A block of queries: its tiles of keys and its gathered columns. Blocks are sorted by their work. The first two words
// of its tile list are here too, so that loading can begin.
struct alignas(32) Work {
    u32 block, first_tile, tiles, first_column, columns, words[2], unused;
};

struct Rule {
    u32 length, is_causal, half_window, global;
};

// There is one `Work` per block. `tiles` is null if every block takes its tiles in order. `column_rows` has two words
// per column.
#define BLOCK_PARAMETERS                                                                                               \
    const dtype *q, const dtype *k, const dtype *v, dtype *out, const Work *works, const u32 *tiles,                   \
        const u32 *columns, const u64 *column_rows, u32 tokens, u32 heads, u32 kv_heads, u32 capacity, float scale,    \
        u32 is_causal, u32 half_window, u32 global

// The keys visible to a row: those before `end` that are global or within `span` from `low` on.
struct Visible {
    u32 end, low, span, global;
};

DEVICE Visible visible_to(u32 row, const Rule &rule) {
    Visible visible = {rule.is_causal && row < rule.length ? row + 1 : rule.length, 0, ~0u, rule.global};
    if (rule.half_window != NO_WINDOW && row >= rule.global) {
        visible.low = row > rule.half_window ? row - rule.half_window : 0;
        visible.span = row + rule.half_window + 1 - visible.low;
    }
    return visible;
}
// Branches would cost more than they save.
DEVICE bool is_visible(const Visible &to, u32 key) {
    return (key < to.end) & ((key < to.global) | (key - to.low < to.span));
}

enum Part { NOTHING, SOME, ALL };

// How much of a partial tile these rows see; SOME if that is not obvious.
DEVICE Part part_of(u32 first_row, u32 last_row, u32 first_key, const Rule &rule) {
    u32 last_key = first_key + KEYS - 1, half = rule.half_window;
    bool is_windowed = half != NO_WINDOW && first_row >= rule.global;
    if (first_key >= rule.length || (rule.is_causal && first_key > last_row)) return NOTHING;
    bool is_far = first_key > last_row + half || last_key + half < first_row;
    if (is_windowed && first_key >= rule.global && is_far) return NOTHING;
    bool is_near = half == NO_WINDOW || last_row < rule.global || last_key < rule.global ||
                   (last_row <= first_key + half && last_key <= first_row + half);
    return is_near && last_key < rule.length && !(rule.is_causal && last_key > first_row) ? ALL : SOME;
}

// The word of a tile in the list: twice its index, plus one if it is partial.
DEVICE u32 tile_word(const u32 *tiles, const Work &work, u32 at, const Rule &rule) {
    if (tiles) return tiles[work.first_tile + at];
    u32 end = (at + 1) * KEYS;
    return at << 1 | (end > rule.length || (rule.is_causal && end > work.block * ROWS + 1));
}

// The source of a tile's rows: consecutive keys, or gathered columns.
struct Source {
    const u32 *columns;
    u32 first, end;
    DEVICE Row find(u32 row) const {
        bool is_there = first + row < end;
        u32 at = is_there && columns ? columns[first + row] : first + row;
        return {is_there, (u64)at * HEAD_DIM};
    }
};
DEVICE Source source_of(u32 tile, u32 word, const Work &work, const u32 *columns, u32 length) {
    if (tile < work.tiles) return {nullptr, (word >> 1) * KEYS, length};
    return {columns + work.first_column, (tile - work.tiles) * KEYS, work.columns};
}
DEVICE u32 tiles_of(const Work &work) { return work.tiles + (work.columns + KEYS - 1) / KEYS; }
