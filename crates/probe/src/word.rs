//! How an event is packed into 64-bit words.
//!
//! An event begins with one word of 42 bits of ticks, 2 bits of kind and 20 bits of code (a call site, or the kind
//! of an extended event):
//!
//! | event | words |
//! | --- | --- |
//! | enter, point | head; with fields: shape, then the fields |
//! | exit | head |
//! | extended `ENTER_ON`, `EXIT_ON` | head, `lane << 32 \| site`, stamp; on entry also shape and fields |
//! | extended `RECORD` | head, site, shape, fields |
//! | extended `DETACH` | head |
//!
//! A shape is a word with four bits per field. A field is one word, a string its length and its bytes in words. 42 bits
//! of ticks last for about half an hour at 2.5 GHz; the reader knows when it read, and restores the upper bits.

/// Bits of a head word below the ticks.
const TICK_SHIFT: u32 = 22;
const KIND_SHIFT: u32 = 20;
/// The largest code of a call site.
pub const CODE_MASK: u64 = (1 << KIND_SHIFT) - 1;
const TICK_MASK: u64 = (1 << (64 - TICK_SHIFT)) - 1;

pub const ENTER: u64 = 0;
pub const EXIT: u64 = 1;
pub const POINT: u64 = 2;
pub const EXTENDED: u64 = 3;

pub const ENTER_ON: u64 = 1;
pub const EXIT_ON: u64 = 2;
pub const RECORD: u64 = 3;
pub const DETACH: u64 = 4;

/// The maximum number of fields in a shape word.
pub const MOST_FIELDS: usize = 15;

/// The maximum length of a string in bytes; a longer one is truncated at a character boundary.
pub const LONGEST_STRING: usize = 4096;

#[inline(always)]
pub const fn head(ticks: u64, kind: u64, code: u64) -> u64 {
    (ticks << TICK_SHIFT) | (kind << KIND_SHIFT) | code
}

pub const fn kind(head: u64) -> u64 {
    (head >> KIND_SHIFT) & 3
}

pub const fn code(head: u64) -> u64 {
    head & CODE_MASK
}

/// Restores the ticks of a head word that was read at `read_at`, less than one wrap of the counter after it was
/// written.
pub const fn ticks(head: u64, read_at: u64) -> u64 {
    let low = head >> TICK_SHIFT;
    let age = read_at.wrapping_sub(low) & TICK_MASK;
    // A thread on another core may be a few ticks ahead of the reader, which does not make its word half an hour old.
    if age > TICK_MASK - (1 << 24) { read_at.wrapping_add(TICK_MASK - age + 1) } else { read_at.wrapping_sub(age) }
}

/// Words of a string of `len` bytes.
#[inline(always)]
pub const fn string_words(len: usize) -> u64 {
    1 + len.div_ceil(8) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_head_word_unpacks_to_its_parts(
            ticks_at in 0_u64..u64::MAX / 2, age in 0..TICK_MASK - (1 << 24), kind_in in 0_u64..4, code_in in 0..=CODE_MASK,
        ) {
            let word = head(ticks_at, kind_in, code_in);
            prop_assert_eq!(ticks(word, ticks_at.wrapping_add(age)), ticks_at);
            prop_assert_eq!(kind(word), kind_in);
            prop_assert_eq!(code(word), code_in);
        }
    }

    #[test]
    fn a_word_slightly_ahead_of_its_reader_stays_ahead() {
        let word = head(1_000_500, ENTER, 1);
        assert_eq!(ticks(word, 1_000_000), 1_000_500);
    }
}
