// Where attention finds the rows that it brings to shared memory: whether a row is there, and where it begins. `find` of a
// source says so.
struct Found {
    bool is_there;
    u64 begin;
};

// The first rows, `distance` numbers apart.
template <class Count> struct InTurn {
    Count rows;
    u64 distance = HEAD_DIM;
    __device__ __forceinline__ Found find(u32 row) const { return {row < rows, row * distance}; }
};
