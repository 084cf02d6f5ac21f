//! Interned strings: all in one text, found by hash.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::column::Cell;

/// The id of an interned string.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId(pub(crate) u32);

impl Cell for NameId {
    fn number(self) -> u64 {
        u64::from(self.0)
    }

    fn of(number: u64) -> Self {
        Self(number as u32)
    }
}

impl NameId {
    /// The empty string, which is first in every table.
    pub const EMPTY: Self = Self(0);

    /// The place in the table of names.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A table of strings. A name added twice has one id.
///
/// A trace may contain millions of different strings (addresses, shapes, Python sites): each needs its text and about
/// fifteen bytes, without a separate allocation.
#[derive(Debug, Clone)]
pub struct Names {
    text: String,
    /// The end of each name in the text; it begins at the end of the one before.
    ends: Vec<u64>,
    by_name: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Default for Names {
    fn default() -> Self {
        Self::hashed_by(DefaultHashBuilder::default())
    }
}

impl Names {
    /// An empty table with a fixed hash function, so that hashes can be passed on.
    pub(crate) fn hashed_by(hasher: DefaultHashBuilder) -> Self {
        let mut names = Self { text: String::new(), ends: Vec::new(), by_name: HashTable::new(), hasher };
        names.id("");
        names
    }

    /// Removes all names but the empty one, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
        self.by_name.clear();
        self.id("");
    }

    pub(crate) fn hash(&self, name: &str) -> u64 {
        // As bytes: hashing a string needs a second round for its end mark.
        self.hasher.hash_one(name.as_bytes())
    }

    /// Finds or adds a name.
    pub fn id(&mut self, name: &str) -> NameId {
        let hash = self.hash(name);
        self.hashed_id(name, hash)
    }

    /// Finds or adds a name with a known hash.
    pub(crate) fn hashed_id(&mut self, name: &str, hash: u64) -> NameId {
        let Self { text, ends, by_name, hasher } = self;
        let known = by_name.find(hash, |&id| slice(text, ends, id) == name);
        if let Some(&id) = known {
            return NameId(id);
        }
        // Four billion different names would need more memory than the ids.
        let id = u32::try_from(ends.len()).expect("fewer than 2^32 names");
        text.push_str(name);
        ends.push(text.len() as u64);
        by_name.insert_unique(hash, id, |&id| hasher.hash_one(slice(text, ends, id).as_bytes()));
        NameId(id)
    }

    /// The id of a name that may be missing, and its hash.
    pub(crate) fn find(&self, name: &[u8]) -> (Option<NameId>, u64) {
        let hash = self.hasher.hash_one(name);
        let found = self.by_name.find(hash, |&id| slice(&self.text, &self.ends, id).as_bytes() == name);
        (found.map(|&id| NameId(id)), hash)
    }

    /// The id of a name, if it was added.
    pub fn known(&self, name: &str) -> Option<NameId> {
        self.find(name.as_bytes()).0
    }

    /// The name of an id; empty for an id of another table.
    #[inline]
    pub fn name(&self, id: NameId) -> &str {
        if id.index() < self.ends.len() { slice(&self.text, &self.ends, id.0) } else { "" }
    }

    /// The approximate size of the names in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len() + self.ends.len() * (size_of::<u64>() + size_of::<u32>() + 1)
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Always false: the empty string is always there.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// Whether all names differ in the lowest bits of their ids: a fast test that avoids most comparisons.
pub(crate) fn differ_in_lowest_bits(names: impl IntoIterator<Item = NameId>) -> bool {
    let mut bits = [0_u64; 4];
    names.into_iter().all(|name| {
        let (word, bit) = (&mut bits[name.index() / 64 % 4], 1 << (name.0 % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    })
}

#[inline]
fn slice<'a>(text: &'a str, ends: &[u64], id: u32) -> &'a str {
    let at = id as usize;
    let start = if at == 0 { 0 } else { ends[at - 1] };
    &text[start as usize..ends[at] as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_added_twice_has_one_number() {
        let mut names = Names::default();
        let ids: Vec<NameId> = ["", "a", "ab", "", "a"].map(|name| names.id(name)).to_vec();
        assert_eq!(ids, [NameId(0), NameId(1), NameId(2), NameId(0), NameId(1)]);
        assert_eq!((names.len(), names.name(NameId(2))), (3, "ab"));
        assert_eq!((names.known("ab"), names.known("b")), (Some(NameId(2)), None));
        assert_eq!(names.name(NameId(9)), "");
    }
}
