//! Packets and events in place; the rarer messages are decoded by `proto`.

use super::wire::{Damaged, Field, Fields, varint};
use crate::value::Number;

/// The frame of a packet.
#[derive(Debug, Default)]
pub struct Packet<'a> {
    pub timestamp: Option<u64>,
    pub clock: Option<u32>,
    pub sequence: u32,
    pub sequence_flags: u32,
    pub event: Option<&'a [u8]>,
    pub compressed: Option<&'a [u8]>,
    /// Whether it contains one of the messages of [`super::proto::TracePacket`].
    pub has_messages: bool,
}

impl<'a> Packet<'a> {
    #[inline]
    pub fn of(bytes: &'a [u8]) -> Result<Self, Damaged> {
        match Self::usual(bytes) {
            Some(packet) => Ok(packet),
            None => Self::any(bytes),
        }
    }

    /// A packet with a time, a sequence and an event in this order: nearly all that we write.
    #[inline]
    fn usual(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(&[8 << 3])?;
        let timestamp = Some(varint(&mut rest)?);
        rest = rest.strip_prefix(&[10 << 3])?;
        let sequence = varint(&mut rest)? as u32;
        rest = rest.strip_prefix(&[11 << 3 | 2])?;
        let length = varint(&mut rest)?;
        (rest.len() as u64 == length).then(|| Self { timestamp, sequence, event: Some(rest), ..Self::default() })
    }

    fn any(bytes: &'a [u8]) -> Result<Self, Damaged> {
        let mut packet = Self::default();
        for field in Fields(bytes) {
            let (tag, value) = field?;
            match tag {
                8 => packet.timestamp = Some(value.varint()?),
                10 => packet.sequence = value.varint()? as u32,
                11 => packet.event = Some(value.bytes()?),
                13 => packet.sequence_flags = value.varint()? as u32,
                50 => packet.compressed = Some(value.bytes()?),
                58 => packet.clock = Some(value.varint()? as u32),
                5 | 6 | 12 | 59 | 60 => packet.has_messages = true,
                _ => {}
            }
        }
        Ok(packet)
    }
}

/// A track event. Annotations and flows are decoded on demand.
#[derive(Debug, Default)]
pub struct Event<'a> {
    pub kind: u64,
    pub track: Option<u64>,
    pub name_iid: Option<u64>,
    pub name: Option<&'a [u8]>,
    /// The first category.
    pub category_iid: Option<u64>,
    pub category: Option<&'a [u8]>,
    pub counter: Option<Number>,
    /// Its bytes from the first annotation on.
    annotations: &'a [u8],
    /// Its bytes from the first flow on.
    flows: &'a [u8],
}

const ANNOTATION: u32 = 4;
const FLOW: u32 = 47;
const TERMINATING_FLOW: u32 = 48;

/// The keys of the fields that most events have: number and wire type in one byte.
mod key {
    pub const CATEGORY_IID: u8 = 3 << 3;
    pub const ANNOTATION: u8 = 4 << 3 | 2;
    pub const KIND: u8 = 9 << 3;
    pub const NAME_IID: u8 = 10 << 3;
}

impl<'a> Event<'a> {
    #[inline]
    pub fn of(bytes: &'a [u8]) -> Result<Self, Damaged> {
        let (mut event, mut rest) = (Self::default(), bytes);
        while let Some((&key, after)) = rest.split_first() {
            let mut value = after;
            match key {
                key::KIND => event.kind = varint(&mut value).ok_or(Damaged)?,
                key::NAME_IID => event.name_iid = Some(varint(&mut value).ok_or(Damaged)?),
                key::CATEGORY_IID => {
                    let category = varint(&mut value).ok_or(Damaged)?;
                    event.category_iid = event.category_iid.or(Some(category));
                }
                key::ANNOTATION => {
                    take_bytes(&mut value).ok_or(Damaged)?;
                    if event.annotations.is_empty() {
                        event.annotations = rest;
                    }
                }
                _ => value = event.other_field(rest)?,
            }
            rest = value;
        }
        Ok(event)
    }

    /// Reads the first field of `bytes`, whatever it is, and returns the bytes after it.
    fn other_field(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], Damaged> {
        let mut fields = Fields(bytes);
        let (tag, value) = fields.next().ok_or(Damaged)??;
        match tag {
            3 => self.category_iid = self.category_iid.or(first_number(value)?),
            ANNOTATION => {
                value.bytes()?;
                self.annotations = if self.annotations.is_empty() { bytes } else { self.annotations };
            }
            9 => self.kind = value.varint()?,
            10 => self.name_iid = Some(value.varint()?),
            11 => self.track = Some(value.varint()?),
            22 => self.category = self.category.or(Some(value.bytes()?)),
            23 => self.name = Some(value.bytes()?),
            30 => self.counter = Some(Number::Int(value.varint()? as i64)),
            44 => self.counter = self.counter.or(Some(Number::Float(f64::from_bits(value.fixed()?)))),
            FLOW | TERMINATING_FLOW if self.flows.is_empty() => self.flows = bytes,
            _ => {}
        }
        Ok(fields.0)
    }

    pub fn has_flows(&self) -> bool {
        !self.flows.is_empty()
    }

    /// The messages of its annotations.
    #[inline]
    pub fn annotations(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.annotations;
        std::iter::from_fn(move || {
            while let Some((&key, mut after)) = rest.split_first() {
                if key == key::ANNOTATION {
                    let message = take_bytes(&mut after);
                    rest = after;
                    return message;
                }
                let mut fields = Fields(rest);
                let field = fields.next()?.ok()?;
                rest = fields.0;
                if let (ANNOTATION, Field::Bytes(message)) = field {
                    return Some(message);
                }
            }
            None
        })
    }

    /// The flows that leave it.
    pub fn flows(&self) -> impl Iterator<Item = u64> {
        self.flows_of(FLOW)
    }

    /// The flows that end in it.
    pub fn terminating_flows(&self) -> impl Iterator<Item = u64> {
        self.flows_of(TERMINATING_FLOW)
    }

    fn flows_of(&self, tag: u32) -> impl Iterator<Item = u64> {
        Fields(self.flows).flatten().filter(move |(known, _)| *known == tag).flat_map(|(_, value)| {
            let (single, packed) = match value {
                Field::Fixed(flow) => (Some(flow), &[][..]),
                Field::Bytes(packed) => (None, packed),
                _ => (None, &[][..]),
            };
            let packed = packed.chunks_exact(8).filter_map(|eight| Some(u64::from_le_bytes(eight.try_into().ok()?)));
            single.into_iter().chain(packed)
        })
    }
}

/// Removes a length and as many bytes from the front; none if they are not there.
#[inline]
fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(varint(rest)?).ok()?;
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
}

/// The first of repeated numbers, which may be packed.
fn first_number(value: Field<'_>) -> Result<Option<u64>, Damaged> {
    match value {
        Field::Bytes(mut packed) => Ok(varint(&mut packed)),
        other => other.varint().map(Some),
    }
}

/// An annotation of an event.
#[derive(Debug, Default)]
pub struct Annotation<'a> {
    pub name_iid: Option<u64>,
    pub name: Option<&'a [u8]>,
    pub bool_value: Option<bool>,
    /// A number or an address.
    pub uint_value: Option<u64>,
    pub int_value: Option<i64>,
    pub double_value: Option<f64>,
    /// Text, or JSON.
    pub text: Option<&'a [u8]>,
    pub text_iid: Option<u64>,
    /// Whether it is a dictionary or an array.
    pub is_nested: bool,
}

impl<'a> Annotation<'a> {
    #[inline]
    pub fn of(bytes: &'a [u8]) -> Result<Self, Damaged> {
        let mut annotation = Self::default();
        for field in Fields(bytes) {
            let (tag, value) = field?;
            match tag {
                1 => annotation.name_iid = Some(value.varint()?),
                2 => annotation.bool_value = Some(value.varint()? != 0),
                3 => annotation.uint_value = Some(value.varint()?),
                4 => annotation.int_value = Some(value.varint()? as i64),
                5 => annotation.double_value = Some(f64::from_bits(value.fixed()?)),
                6 => annotation.text = Some(value.bytes()?),
                7 => annotation.uint_value = annotation.uint_value.or(Some(value.varint()?)),
                9 => annotation.text = annotation.text.or(Some(value.bytes()?)),
                10 => annotation.name = Some(value.bytes()?),
                11 | 12 => annotation.is_nested = true,
                17 => annotation.text_iid = Some(value.varint()?),
                _ => {}
            }
        }
        Ok(annotation)
    }
}
