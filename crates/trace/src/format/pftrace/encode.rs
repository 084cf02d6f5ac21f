//! Encodes packets: hand-written protobuf for the messages that make up nearly the whole file, and interned names.

use std::collections::HashMap;

use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

/// Field numbers of the packet and the event.
pub mod field {
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const INTERNED_DATA: u32 = 12;
    pub const TIMESTAMP_CLOCK_ID: u32 = 58;

    pub const EVENT_CATEGORY_IID: u32 = 3;
    pub const EVENT_ANNOTATION: u32 = 4;
    pub const EVENT_KIND: u32 = 9;
    pub const EVENT_NAME_IID: u32 = 10;
    pub const EVENT_COUNTER: u32 = 30;
    pub const EVENT_DOUBLE_COUNTER: u32 = 44;
    pub const EVENT_FLOW: u32 = 47;
    pub const EVENT_TERMINATING_FLOW: u32 = 48;
}

pub fn put_varint(tag: u32, value: u64, into: &mut Vec<u8>) {
    encode_key(tag, WireType::Varint, into);
    encode_varint(value, into);
}

pub fn put_fixed(tag: u32, value: u64, into: &mut Vec<u8>) {
    encode_key(tag, WireType::SixtyFourBit, into);
    into.extend_from_slice(&value.to_le_bytes());
}

pub fn put_length(tag: u32, length: usize, into: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, into);
    encode_varint(length as u64, into);
}

/// Recently used names, by the address of their text: most events repeat a recent name. A prime, so that adjacent texts
/// use different slots.
const RECENT: usize = 31;

/// The interned names of one sequence.
#[derive(Debug, Default)]
pub struct Interned {
    numbers: HashMap<Box<str>, u64>,
    by_number: Vec<Box<str>>,
    recent: [u32; RECENT],
}

impl Interned {
    /// The id of a name; a new one is added to `fresh` as an interned entry of field `tag`.
    pub fn iid(&mut self, name: &str, tag: u32, fresh: &mut Vec<u8>) -> u64 {
        // The address of a text is only a hint, so the text is compared: that is cheaper than hashing it.
        let slot = name.as_ptr() as usize % RECENT;
        let hint = self.recent[slot] as usize;
        if hint > 0 && &*self.by_number[hint - 1] == name {
            return hint as u64;
        }
        let iid = match self.numbers.get(name) {
            Some(&iid) => iid,
            None => self.add(name, tag, fresh),
        };
        self.recent[slot] = u32::try_from(iid).unwrap_or(0);
        iid
    }

    fn add(&mut self, name: &str, tag: u32, fresh: &mut Vec<u8>) -> u64 {
        self.by_number.push(name.into());
        let iid = self.by_number.len() as u64;
        self.numbers.insert(name.into(), iid);
        let body = 1 + encoded_len_varint(iid) + 1 + encoded_len_varint(name.len() as u64) + name.len();
        put_length(tag, body, fresh);
        put_varint(1, iid, fresh);
        put_length(2, name.len(), fresh);
        fresh.extend_from_slice(name.as_bytes());
        iid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_id_whatever_its_address() {
        let (mut interned, mut fresh) = (Interned::default(), Vec::new());
        let names: Vec<String> = (0..100).map(|name| format!("name {name}")).collect();
        let numbers = |interned: &mut Interned, fresh: &mut Vec<u8>| -> Vec<u64> {
            names.iter().map(|name| interned.iid(&name.clone(), 2, fresh)).collect()
        };
        assert_eq!(numbers(&mut interned, &mut fresh), (1..=100).collect::<Vec<_>>());
        fresh.clear();
        assert_eq!(numbers(&mut interned, &mut fresh), (1..=100).collect::<Vec<_>>());
        assert!(fresh.is_empty(), "known names are not written again");
    }

    #[test]
    fn a_text_that_changes_in_place_is_another_name() {
        let (mut interned, mut fresh) = (Interned::default(), Vec::new());
        let mut text = "a".to_owned();
        assert_eq!(interned.iid(&text, 2, &mut fresh), 1);
        text.replace_range(.., "b");
        assert_eq!(interned.iid(&text, 2, &mut fresh), 2);
    }
}
