//! A cache of recent names, looked up by their length and their first and last bytes instead of a hash.

use crate::names::{NameId, Names};

/// Slots; more than the names that repeat in most traces.
const SLOTS: usize = 1 << BITS;
const BITS: u32 = 10;

#[derive(Debug, Clone, Copy)]
struct Slot {
    first: u64,
    last: u64,
    length: u32,
    name: NameId,
}

/// An empty slot: no name has this length.
const VACANT: Slot = Slot { first: 0, last: 0, length: u32::MAX, name: NameId::EMPTY };

#[derive(Debug)]
pub struct NameCache(Box<[Slot; SLOTS]>);

impl Default for NameCache {
    fn default() -> Self {
        Self(Box::new([VACANT; SLOTS]))
    }
}

/// The key of a name: its first and last eight bytes, and the slot.
#[derive(Clone, Copy)]
pub struct Key {
    first: u64,
    last: u64,
    length: u32,
    slot: usize,
}

impl Key {
    /// None for a name that is too long.
    #[inline]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let length = u32::try_from(bytes.len()).ok()?;
        let (first, last) = match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
            (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
            _ => {
                let mut short = [0; 8];
                short[..bytes.len()].copy_from_slice(bytes);
                (u64::from_le_bytes(short), 0)
            }
        };
        let mixed = (first ^ last.rotate_left(23) ^ u64::from(length)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Some(Self { first, last, length, slot: (mixed >> (64 - BITS)) as usize })
    }
}

impl NameCache {
    pub fn clear(&mut self) {
        *self.0 = [VACANT; SLOTS];
    }

    /// The name of these bytes, if it was used recently.
    #[inline]
    pub fn find(&self, key: Key, bytes: &[u8], names: &Names) -> Option<NameId> {
        let slot = &self.0[key.slot];
        let looks_same = slot.first == key.first && slot.last == key.last && slot.length == key.length;
        // Most names have at most sixteen bytes.
        (looks_same && (key.length <= 16 || names.name(slot.name).as_bytes() == bytes)).then_some(slot.name)
    }

    pub fn keep(&mut self, key: Key, name: NameId) {
        self.0[key.slot] = Slot { first: key.first, last: key.last, length: key.length, name };
    }
}

/// The longest text that is expected.
const LONGEST: usize = 48;

/// The text expected between two values of an object: comma, white space, key and colon. It is compared with the next bytes
/// of the file in one step.
#[derive(Debug, Clone, Copy)]
pub struct Expected<K> {
    words: [u64; LONGEST / 8],
    masks: [u64; LONGEST / 8],
    length: usize,
    /// None for the end of the object.
    key: Option<K>,
}

impl<K: Copy> Expected<K> {
    pub const NONE: Self = Self { words: [0; LONGEST / 8], masks: [0; LONGEST / 8], length: 0, key: None };

    pub fn of(text: &[u8], key: Option<K>) -> Self {
        let mut expected = Self { key, ..Self::NONE };
        if text.len() <= LONGEST {
            expected.length = text.len();
            for (at, &byte) in text.iter().enumerate() {
                expected.words[at / 8] |= u64::from(byte) << (8 * (at % 8));
                expected.masks[at / 8] |= 0xff << (8 * (at % 8));
            }
        }
        expected
    }

    /// The key and the length of the text, if the bytes begin with it.
    #[inline(always)]
    pub fn find(&self, bytes: &[u8]) -> Option<(Option<K>, usize)> {
        let (words, _) = bytes.first_chunk::<LONGEST>()?.as_chunks();
        let pairs = words.iter().zip(self.words.iter().zip(&self.masks));
        let differing = pairs.fold(0, |all, (word, (own, mask))| all | (u64::from_le_bytes(*word) ^ own) & mask);
        (differing == 0 && self.length > 0).then_some((self.key, self.length))
    }
}
