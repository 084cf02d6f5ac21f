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

/// A track event. Annotations and flows stay in its bytes until they are asked for.
#[derive(Debug, Default)]
pub struct Event<'a> {
    bytes: &'a [u8],
    pub kind: u64,
    pub track: Option<u64>,
    pub name_iid: Option<u64>,
    pub name: Option<&'a [u8]>,
    /// The first category.
    pub category_iid: Option<u64>,
    pub category: Option<&'a [u8]>,
    pub counter: Option<Number>,
    pub has_annotations: bool,
    /// Its bytes from the first flow on.
    flows: &'a [u8],
}

const ANNOTATION: u32 = 4;
const FLOW: u32 = 47;
const TERMINATING_FLOW: u32 = 48;

impl<'a> Event<'a> {
    #[inline]
    pub fn of(bytes: &'a [u8]) -> Result<Self, Damaged> {
        let mut event = Self { bytes, ..Self::default() };
        let mut fields = Fields(bytes);
        loop {
            let rest = fields.0;
            let Some(field) = fields.next() else { break };
            let (tag, value) = field?;
            match tag {
                3 => event.category_iid = event.category_iid.or(first_number(value)?),
                ANNOTATION => {
                    value.bytes()?;
                    event.has_annotations = true;
                }
                9 => event.kind = value.varint()?,
                10 => event.name_iid = Some(value.varint()?),
                11 => event.track = Some(value.varint()?),
                22 => event.category = event.category.or(Some(value.bytes()?)),
                23 => event.name = Some(value.bytes()?),
                30 => event.counter = Some(Number::Int(value.varint()? as i64)),
                44 => event.counter = event.counter.or(Some(Number::Float(f64::from_bits(value.fixed()?)))),
                FLOW | TERMINATING_FLOW if event.flows.is_empty() => event.flows = rest,
                _ => {}
            }
        }
        Ok(event)
    }

    /// The messages of its annotations.
    pub fn annotations(&self) -> impl Iterator<Item = &'a [u8]> {
        let bytes = if self.has_annotations { self.bytes } else { &[] };
        Fields(bytes).flatten().filter(|(tag, _)| *tag == ANNOTATION).filter_map(|(_, value)| value.bytes().ok())
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
