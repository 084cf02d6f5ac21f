//! Decodes the words of a batch into events.

use crate::device::{LaneId, Stamp};
use crate::site::{Site, site};
use crate::{Ticks, field::FieldKind, recorder::Batch, word};

/// An event as it was recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct RawEvent<'a> {
    /// When it happened.
    pub ticks: Ticks,
    /// What happened.
    pub kind: RawKind<'a>,
}

/// The position of an event on a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneStamp {
    /// The lane.
    pub lane: LaneId,
    /// The mark on the device's stream; none on a host lane, or if the clock provided none.
    pub stamp: Option<Stamp>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum RawKind<'a> {
    /// A stage, lap or sync began.
    Enter {
        /// The site.
        site: &'static Site,
        /// The lane, if it is not on the thread's own track.
        lane: Option<LaneStamp>,
        /// The fields.
        fields: Fields<'a>,
    },
    /// A stage, lap or sync ended: the innermost open one of this site.
    Exit {
        /// The site.
        site: &'static Site,
        /// The lane, if it is not on the thread's own track.
        lane: Option<LaneStamp>,
    },
    /// A mark or a value.
    Point {
        /// The site.
        site: &'static Site,
        /// The fields.
        fields: Fields<'a>,
    },
    /// Fields were added to the innermost open span of this site.
    Record {
        /// The site.
        site: &'static Site,
        /// The fields.
        fields: Fields<'a>,
    },
    /// The thread left the recording.
    Detach,
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldValue {
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating-point number.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// A string.
    Str(String),
}

/// The fields of an event in order; fields without a value are left out.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    names: std::slice::Iter<'static, &'static str>,
    shape: u64,
    words: &'a [u64],
}

impl Fields<'_> {
    fn next_value(&mut self) -> Option<Option<FieldValue>> {
        let kind = FieldKind::from_bits(self.shape & 0xf)?;
        self.shape >>= 4;
        let (&word, rest) = self.words.split_first()?;
        self.words = rest;
        Some(match kind {
            FieldKind::Absent => None,
            FieldKind::Int => Some(FieldValue::Int(word as i64)),
            FieldKind::Uint => Some(FieldValue::Uint(word)),
            FieldKind::Float => Some(FieldValue::Float(f64::from_bits(word))),
            FieldKind::Bool => Some(FieldValue::Bool(word != 0)),
            FieldKind::Str => {
                let len = usize::try_from(word).ok().filter(|&len| len <= word::LONGEST_STRING)?;
                let (text, rest) = self.words.split_at_checked(len.div_ceil(8))?;
                self.words = rest;
                let bytes: Vec<u8> = text.iter().flat_map(|word| word.to_le_bytes()).take(len).collect();
                Some(FieldValue::Str(String::from_utf8_lossy(&bytes).into_owned()))
            }
        })
    }
}

impl PartialEq for Fields<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.clone().eq(other.clone())
    }
}

impl Iterator for Fields<'_> {
    type Item = (&'static str, FieldValue);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let name = *self.names.next()?;
            if let Some(value) = self.next_value()? {
                return Some((name, value));
            }
        }
    }
}

/// Decodes the events of a batch, oldest first.
pub fn events(batch: &Batch) -> impl Iterator<Item = RawEvent<'_>> {
    let mut reader = Reader { words: &batch.words, read_at: batch.read_at.0 };
    std::iter::from_fn(move || reader.event())
}

struct Reader<'a> {
    words: &'a [u64],
    read_at: u64,
}

impl<'a> Reader<'a> {
    fn event(&mut self) -> Option<RawEvent<'a>> {
        let head = self.word()?;
        let ticks = Ticks(word::ticks(head, self.read_at));
        let code = word::code(head);
        let kind = match word::kind(head) {
            word::ENTER => {
                let site = site(code as u32)?;
                RawKind::Enter { site, lane: None, fields: self.fields(site)? }
            }
            word::EXIT => RawKind::Exit { site: site(code as u32)?, lane: None },
            word::POINT => {
                let site = site(code as u32)?;
                RawKind::Point { site, fields: self.fields(site)? }
            }
            _ => self.extended(code)?,
        };
        Some(RawEvent { ticks, kind })
    }

    fn extended(&mut self, code: u64) -> Option<RawKind<'a>> {
        match code {
            word::ENTER_ON => {
                let (site, lane) = self.lane()?;
                Some(RawKind::Enter { site, lane: Some(lane), fields: self.fields(site)? })
            }
            word::EXIT_ON => {
                let (site, lane) = self.lane()?;
                Some(RawKind::Exit { site, lane: Some(lane) })
            }
            word::RECORD => {
                let site = site(self.word()? as u32)?;
                Some(RawKind::Record { site, fields: self.fields(site)? })
            }
            word::DETACH => Some(RawKind::Detach),
            _ => None,
        }
    }

    fn lane(&mut self) -> Option<(&'static Site, LaneStamp)> {
        let (lane_and_site, stamp) = (self.word()?, self.word()?);
        let stamp = (stamp != 0).then_some(Stamp(stamp));
        let lane = LaneId((lane_and_site >> 32) as u32);
        Some((site(lane_and_site as u32)?, LaneStamp { lane, stamp }))
    }

    fn fields(&mut self, site: &'static Site) -> Option<Fields<'a>> {
        if site.fields.is_empty() {
            return Some(Fields { names: [].iter(), shape: 0, words: &[] });
        }
        let shape = self.word()?;
        let words = self.words;
        let mut length = 0;
        for at in 0..site.fields.len() {
            let is_string = (shape >> (4 * at)) & 0xf == FieldKind::Str as u64;
            let first = *words.get(length)?;
            length += if is_string { word::string_words(usize::try_from(first).ok()?) as usize } else { 1 };
        }
        let (fields, rest) = words.split_at_checked(length)?;
        self.words = rest;
        Some(Fields { names: site.fields.iter(), shape, words: fields })
    }

    fn word(&mut self) -> Option<u64> {
        let (&word, rest) = self.words.split_first()?;
        self.words = rest;
        Some(word)
    }
}
