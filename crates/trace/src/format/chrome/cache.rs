//! A cache of recent names, looked up by their ends and length instead of a hash of the whole.

use crate::names::{NameId, Names};

/// Slots; about the number of names that repeat in a chunk.
const SLOTS: usize = 512;

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
        Some(Self { first, last, length, slot: (mixed >> 55) as usize })
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
