// Asynchronous copies to shared memory (cp.async).

DEVICE u32 shared_address(const void *pointer) { return (u32)__cvta_generic_to_shared(pointer); }

// Starts a copy of 16, 8 or 4 bytes, or of zeros if there is nothing to copy.
template <u32 BYTES = 16> DEVICE void cp_async(u32 to, const void *from, bool is_there) {
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(is_there ? 16 : 0));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(to), "l"(from), "r"(is_there ? BYTES : 0),
                     "n"(BYTES));
}
// The same after all plain reads of the target.
template <u32 BYTES = 16> DEVICE void cp_async(void *to, const void *from, bool is_there) {
    asm volatile("" ::: "memory");
    cp_async<BYTES>(shared_address(to), from, is_there);
}
DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;"); }

// Waits until at most `PENDING` groups of this thread's copies are unfinished.
template <u32 PENDING> DEVICE void cp_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }
