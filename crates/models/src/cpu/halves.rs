//! Half-precision products with AVX-512: of bf16 pairs, accumulated in f32, and of f32 with halves widened in registers.

// Intrinsics read vectors through pointers; sizes are checked before.
#![allow(unsafe_code)]

use half::{bf16, f16};

use super::{number::Number, rows::Rows, tiles::Lanes};

/// Whether this processor has instructions for pairs of this type.
pub fn suit_pairs<T: Number>(width: usize) -> bool {
    T::IS_BF16 && width.is_multiple_of(2) && has_pairs()
}

#[cfg(target_arch = "x86_64")]
fn has_pairs() -> bool {
    std::arch::is_x86_feature_detected!("avx512bf16")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_pairs() -> bool {
    false
}

/// As [`super::tiles::score`], for queries in pairs: each lane has the bits of two consecutive elements.
#[cfg(target_arch = "x86_64")]
pub fn score_pairs(queries: &[Lanes], keys: Rows<'_, bf16>, scores: &mut [Lanes], lanes: usize, is_added: bool) {
    assert!(2 * queries.len() == keys.width && scores.len() == keys.count, "the tile fits");
    assert!(suit_pairs::<bf16>(keys.width), "the processor multiplies pairs");
    // SAFETY: the CPU feature and the sizes were checked.
    unsafe {
        match lanes {
            ..=16 => x86::score_all::<1>(queries, keys, scores, is_added),
            17..=32 => x86::score_all::<2>(queries, keys, scores, is_added),
            _ => x86::score_all::<4>(queries, keys, scores, is_added),
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn score_pairs(_: &[Lanes], _: Rows<'_, bf16>, _: &mut [Lanes], _: usize, _: bool) {
    unreachable!("this architecture has no instructions for pairs");
}

/// A half-precision type that is widened in registers.
pub trait Half: Number {
    /// Widens 16 elements.
    ///
    /// # Safety
    /// They can be read, and the processor has AVX-512.
    #[cfg(target_arch = "x86_64")]
    unsafe fn load(from: *const Self) -> std::arch::x86_64::__m512;
}

impl Half for bf16 {
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load(from: *const Self) -> std::arch::x86_64::__m512 {
        use std::arch::x86_64::*;
        // SAFETY: as the caller ensures.
        unsafe {
            let numbers = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(numbers))
        }
    }
}

impl Half for f16 {
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load(from: *const Self) -> std::arch::x86_64::__m512 {
        use std::arch::x86_64::*;
        // SAFETY: as the caller ensures.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }
}

/// Computes the dot products of each row of `x` with each row of weights. False if the processor lacks the instructions.
pub fn dots<T: Half>(x: Rows<'_, f32>, weights: Rows<'_, T>, sums: &mut [f32]) -> bool {
    assert!(x.width == weights.width && sums.len() == x.count * weights.count, "the rows fit");
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        for column in 0..weights.count {
            for at in 0..x.count {
                // SAFETY: the CPU feature was checked, and the rows are equally long.
                sums[at * weights.count + column] = unsafe { x86::dot(x.row(at), weights.row(column)) };
            }
        }
        return true;
    }
    false
}

/// Converts numbers to f32. False if the processor lacks the instructions.
pub fn widen<T: Half>(numbers: &[T], to: &mut [f32]) -> bool {
    assert!(numbers.len() == to.len(), "the lengths are equal");
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the CPU feature and the lengths were checked.
        unsafe { x86::widen(numbers, to) };
        return true;
    }
    false
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::mem::transmute;

    use super::{Half, Lanes, Rows, bf16};

    /// The prefetch distance in bytes; hardware prefetching is too late.
    const AHEAD: usize = 8192;

    #[target_feature(enable = "avx512f")]
    pub unsafe fn widen<T: Half>(numbers: &[T], to: &mut [f32]) {
        let ((blocks, rest), (to_blocks, to_rest)) = (numbers.as_chunks::<16>(), to.as_chunks_mut::<16>());
        for (block, to) in blocks.iter().zip(to_blocks) {
            // SAFETY: a block is a vector.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), T::load(block.as_ptr())) };
        }
        to_rest.iter_mut().zip(rest).for_each(|(to, number)| *to = number.wide());
    }

    /// The product of two rows of the same length.
    #[target_feature(enable = "avx512f")]
    pub unsafe fn dot<T: Half>(x: &[f32], weights: &[T]) -> f32 {
        const VECTORS: usize = 4;
        let (x_blocks, x_rest) = x.as_chunks::<{ 16 * VECTORS }>();
        let (blocks, rest) = weights.as_chunks::<{ 16 * VECTORS }>();
        let mut sums = [_mm512_setzero_ps(); VECTORS];
        for (x, block) in x_blocks.iter().zip(blocks) {
            #[allow(clippy::needless_range_loop, reason = "the sums stay in registers")]
            for of in 0..VECTORS {
                // SAFETY: a block has this many vectors, and prefetching does not read.
                unsafe {
                    let from = block.as_ptr().add(16 * of);
                    if of % 2 == 0 {
                        _mm_prefetch::<_MM_HINT_T0>(from.cast::<i8>().wrapping_add(AHEAD));
                    }
                    sums[of] = _mm512_fmadd_ps(_mm512_loadu_ps(x.as_ptr().add(16 * of)), T::load(from), sums[of]);
                }
            }
        }
        let [a, b, c, d] = sums;
        let sum = _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d)));
        x_rest.iter().zip(rest).fold(sum, |sum, (x, weight)| sum + x * weight.wide())
    }

    /// The number of keys whose sums are kept in registers.
    const KEYS: usize = 6;

    #[target_feature(enable = "avx512f,avx512bf16")]
    pub unsafe fn score_all<const VECTORS: usize>(
        queries: &[Lanes],
        keys: Rows<'_, bf16>,
        scores: &mut [Lanes],
        is_added: bool,
    ) {
        for (at, some) in scores.chunks_mut(KEYS).enumerate() {
            // SAFETY: as the caller ensures.
            unsafe {
                match some.len() {
                    KEYS => score_some::<KEYS, VECTORS>(queries, keys, at * KEYS, some, is_added),
                    _ => some.chunks_mut(1).enumerate().for_each(|(next, one)| {
                        score_some::<1, VECTORS>(queries, keys, at * KEYS + next, one, is_added);
                    }),
                }
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    unsafe fn score_some<const COUNT: usize, const VECTORS: usize>(
        queries: &[Lanes],
        keys: Rows<'_, bf16>,
        from: usize,
        scores: &mut [Lanes],
        is_added: bool,
    ) {
        let keys: [*const bf16; COUNT] = std::array::from_fn(|at| keys.row(from + at).as_ptr());
        let mut sums = [[_mm512_setzero_ps(); VECTORS]; COUNT];
        // SAFETY: `VECTORS` vectors are at most all lanes, and a row of keys has two elements for each row of queries.
        unsafe {
            let vector = |lanes: *const Lanes, of: usize| _mm512_loadu_ps(lanes.cast::<f32>().add(16 * of));
            if is_added {
                for (sums, scores) in sums.iter_mut().zip(scores.iter()) {
                    *sums = std::array::from_fn(|of| vector(scores, of));
                }
            }
            for (at, query) in queries.iter().enumerate() {
                let query: [__m512bh; VECTORS] =
                    std::array::from_fn(|of| transmute::<__m512, __m512bh>(vector(query, of)));
                for key in 0..COUNT {
                    let pair = _mm512_set1_epi32(keys[key].add(2 * at).cast::<i32>().read_unaligned());
                    let pair = transmute::<__m512i, __m512bh>(pair);
                    for of in 0..VECTORS {
                        sums[key][of] = _mm512_dpbf16_ps(sums[key][of], pair, query[of]);
                    }
                }
            }
            for (scores, sums) in scores.iter_mut().zip(sums) {
                for (of, sum) in sums.into_iter().enumerate() {
                    _mm512_storeu_ps(scores.0.as_mut_ptr().add(16 * of), sum);
                }
            }
        }
    }
}
