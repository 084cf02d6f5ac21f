//! A small seeded random number generator, so that every resampled answer is reproducible.
//!
//! xoshiro256++ of Blackman and Vigna, seeded by SplitMix64. Not cryptographically secure. The same seed gives the same
//! numbers on every machine.

/// A stream of random numbers determined by its seed.
///
/// ```
/// use laptime_stats::Rng;
///
/// assert_eq!(Rng::new(7).next_u64(), Rng::new(7).next_u64());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// Starts the stream of this seed.
    pub fn new(seed: u64) -> Self {
        let mut words = seed;
        Self { state: std::array::from_fn(|_| split_mix(&mut words)) }
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let answer = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        answer
    }

    /// Returns a number above 0 and below 1.
    pub fn uniform(&mut self) -> f64 {
        ((self.next_u64() >> 11) as f64 + 0.5) * 2_f64.powi(-53)
    }

    /// Returns a whole number below `end`, uniform up to a bias of at most `end` in 2^64; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next_u64()) * end as u128) >> 64) as usize
    }

    /// Shuffles the items.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (2..=items.len()).rev() {
            items.swap(end - 1, self.below(end));
        }
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    // From the authors' xoshiro256plusplus.c, state 1, 2, 3, 4.
    #[test]
    fn the_stream_matches_the_published_code() {
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let found: [u64; 6] = std::array::from_fn(|_| rng.next_u64());
        let expected =
            [41943041, 58720359, 3588806011781223, 3591011842654386, 9228616714210784205, 9973669472204895162];
        assert_eq!(found, expected);
    }

    // From the author's splitmix64.c, state 1234567.
    #[test]
    fn seeding_matches_the_published_code() {
        let mut state = 1234567;
        let found: [u64; 3] = std::array::from_fn(|_| split_mix(&mut state));
        assert_eq!(found, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Rng::new(1).shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn numbers_below_an_end_reach_every_value() {
        let mut rng = Rng::new(3);
        let mut seen = [0; 5];
        (0..1000).for_each(|_| seen[rng.below(5)] += 1);
        assert!(seen.iter().all(|&times| (150..250).contains(&times)), "{seen:?}");
    }
}
