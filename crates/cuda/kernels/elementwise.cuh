// Replaces each element by f(value, index), in a grid-stride loop: by 16-byte vectors from element `lead` on if
// `is_aligned`, and one by one over the rest.
template <class F> DEVICE void map_elements(dtype *x, u64 count, u64 lead, bool is_aligned, F f) {
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x, stride = (u64)gridDim.x * blockDim.x;
    u64 vectors = is_aligned ? (count - lead) / VEC : 0;
    for (u64 vector = thread; vector < vectors; vector += stride) {
        u64 at = lead + vector * VEC;
        vec_t values = load(x + at);
        store(x + at, make_vec<VEC>([&](u32 i) { return f(to_float(values.at[i]), at + i); }));
    }
    for (u64 i = thread; i < count - vectors * VEC; i += stride) {
        u64 at = i < lead ? i : i + vectors * VEC;
        x[at] = to_dtype(f(to_float(x[at]), at));
    }
}
