//! Reads parts, whole or cut.

use std::sync::Arc;

use super::{
    Anchor, BLOCK_MARK, Call, Device, Event, HEADER_BYTES, Kind, LONGEST_BLOCK, Payload, Range, RangeAction, State,
    checksum, tag, write::Last,
};
use crate::cupti::{GraphNode, Memory, MemoryKind, Wait, WaitKind, Work, WorkKind};
use crate::varint::{Bytes, unzigzag};

/// The contents of a part.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Part {
    /// The names that events refer to; the first is empty.
    pub names: Vec<Arc<str>>,
    /// In the order they were written.
    pub events: Vec<Event>,
    /// The length of an incomplete block at the end: the process was killed while writing, or the file is damaged.
    pub cut_bytes: usize,
}

impl Part {
    /// A name by its number; empty if it is not known.
    pub fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", |name| name)
    }
}

/// Reads the complete blocks of a part.
pub fn read(bytes: &[u8]) -> Part {
    let mut reader = Reader { part: Part { names: vec!["".into()], ..Part::default() }, ..Reader::default() };
    let mut rest = bytes;
    while let Some((content, after)) = next_block(rest) {
        reader.last = Last::default();
        let mut block = Bytes(content);
        while !block.0.is_empty() {
            if reader.record(&mut block).is_none() {
                reader.part.cut_bytes = rest.len();
                return reader.part;
            }
        }
        rest = after;
    }
    reader.part.cut_bytes = rest.len();
    reader.part
}

fn next_block(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
    let word = |at: usize| header[at..at + 4].try_into().map(u32::from_le_bytes).unwrap_or_default();
    let length = word(4) as usize;
    if word(0) != BLOCK_MARK || length > LONGEST_BLOCK {
        return None;
    }
    let (content, rest) = rest.split_at_checked(length)?;
    (checksum(content) == word(8)).then_some((content, rest))
}

#[derive(Debug, Default)]
struct Reader {
    part: Part,
    shapes: Vec<WorkKind<u32>>,
    queues: Vec<(u32, u32)>,
    threads: Vec<u32>,
    last: Last,
}

impl Reader {
    fn record(&mut self, from: &mut Bytes<'_>) -> Option<()> {
        let tag = from.byte()?;
        let event = match tag {
            tag::NAME => {
                self.part.names.push(from.text()?.into());
                return Some(());
            }
            tag::SHAPE => {
                self.shapes.push(shape(from)?);
                return Some(());
            }
            tag::QUEUE => {
                self.queues.push((from.small()?, from.small()?));
                return Some(());
            }
            tag::THREAD => {
                self.threads.push(from.small()?);
                return Some(());
            }
            tag::INFO => Event::Info { key: from.text()?, value: from.text()? },
            tag::DEVICE => Event::Device(device(from)?),
            tag::ANCHOR => Event::Anchor(Anchor {
                host_nanos: from.number()?,
                cupti_nanos: from.number()?,
                window_nanos: from.number()?,
            }),
            tag::STATE => {
                Event::State { host_nanos: from.number()?, state: *State::ALL.get(usize::from(from.byte()?))? }
            }
            tag::DROPPED => {
                Event::Dropped { kind: *Kind::ALL.get(usize::try_from(from.number()?).ok()?)?, count: from.number()? }
            }
            tag::THREAD_NAME => Event::Thread { thread: self.thread(from)?, name: from.small()? },
            tag::WAIT => Event::Wait(self.wait(from)?),
            tag::RUNTIME_CALL | tag::DRIVER_CALL => Event::Call(self.call(from, tag == tag::DRIVER_CALL)?),
            tag::MEMORY => Event::Memory(self.memory(from)?),
            tag::PUSH..=tag::MARK => Event::Range(self.range(from, tag)?),
            tag::KERNEL..=tag::GRAPH => Event::Work(self.work(from, tag)?),
            _ => return None,
        };
        self.part.events.push(event);
        Some(())
    }

    fn work(&mut self, from: &mut Bytes<'_>, tag: u8) -> Option<Work<u32>> {
        let (device, stream) = *self.queues.get(from.small()? as usize)?;
        let start_nanos = moved(from, &mut self.last.work)?;
        let end_nanos = start_nanos.checked_add(from.number()?)?;
        let correlation = self.correlation(from)?;
        let is_of_graph = matches!(tag, tag::GRAPH_KERNEL | tag::GRAPH_COPY | tag::GRAPH_FILL | tag::GRAPH);
        let graph = if is_of_graph {
            Some(GraphNode { graph: from.small()?, node: moved(from, &mut self.last.node)? })
        } else {
            None
        };
        let kind = match tag {
            tag::KERNEL | tag::GRAPH_KERNEL => self.kernel(from)?,
            tag::COPY | tag::GRAPH_COPY => {
                WorkKind::Copy { from: memory_kind(from)?, to: memory_kind(from)?, bytes: from.number()? }
            }
            tag::FILL | tag::GRAPH_FILL => WorkKind::Fill { memory: memory_kind(from)?, bytes: from.number()? },
            _ => WorkKind::Graph,
        };
        Some(Work { kind, start_nanos, end_nanos, device, stream, correlation, graph })
    }

    fn kernel(&self, from: &mut Bytes<'_>) -> Option<WorkKind<u32>> {
        let number = from.small()?;
        let mut kind = self.shapes.get(from.small()? as usize)?.clone();
        if let WorkKind::Kernel { name, .. } = &mut kind {
            *name = number;
        }
        Some(kind)
    }

    fn wait(&mut self, from: &mut Bytes<'_>) -> Option<Wait> {
        let kind = *WaitKind::ALL.get(usize::from(from.byte()?))?;
        let start_nanos = moved(from, &mut self.last.work)?;
        let end_nanos = start_nanos.checked_add(from.number()?)?;
        let stream = from.number()?.checked_sub(1).map(u32::try_from).transpose().ok()?;
        Some(Wait { kind, start_nanos, end_nanos, stream, correlation: self.correlation(from)? })
    }

    fn call(&mut self, from: &mut Bytes<'_>, is_driver: bool) -> Option<Call> {
        let thread = self.thread(from)?;
        let name = from.small()?;
        let start_nanos = moved(from, &mut self.last.call)?;
        let end_nanos = start_nanos.checked_add(from.number()?)?;
        Some(Call { is_driver, name, start_nanos, end_nanos, thread, correlation: self.correlation(from)? })
    }

    fn memory(&mut self, from: &mut Bytes<'_>) -> Option<Memory> {
        let is_release = from.byte()? != 0;
        let memory = memory_kind(from)?;
        let device = from.small()?;
        let nanos = moved(from, &mut self.last.work)?;
        Some(Memory { nanos, device, memory, bytes: from.number()?, is_release })
    }

    fn range(&mut self, from: &mut Bytes<'_>, tag: u8) -> Option<Range> {
        let thread = self.thread(from)?;
        let host_nanos = moved(from, &mut self.last.range)?;
        let action = match tag {
            tag::PUSH => RangeAction::Push,
            tag::POP => RangeAction::Pop,
            tag::START => RangeAction::Start(from.number()?),
            tag::END => RangeAction::End(from.number()?),
            _ => RangeAction::Mark,
        };
        let domain = from.small()?;
        let mut range = Range { host_nanos, thread, action, name: 0, domain, category: 0, payload: None };
        if !matches!(action, RangeAction::Pop | RangeAction::End(_)) {
            range.name = from.small()?;
            range.category = from.small()?;
            range.payload = match from.byte()? {
                0 => None,
                1 => Some(Payload::Unsigned(from.number()?)),
                2 => Some(Payload::Signed(unzigzag(from.number()?))),
                3 => Some(Payload::Float(f64::from_bits(from.number()?))),
                _ => return None,
            };
        }
        Some(range)
    }

    fn correlation(&mut self, from: &mut Bytes<'_>) -> Option<u32> {
        let found = i64::from(self.last.correlation).checked_add(from.signed()?)?;
        self.last.correlation = u32::try_from(found).ok()?;
        Some(self.last.correlation)
    }

    fn thread(&self, from: &mut Bytes<'_>) -> Option<u32> {
        self.threads.get(from.small()? as usize).copied()
    }
}

fn moved(from: &mut Bytes<'_>, last: &mut u64) -> Option<u64> {
    *last = last.wrapping_add(from.signed()? as u64);
    Some(*last)
}

fn memory_kind(from: &mut Bytes<'_>) -> Option<MemoryKind> {
    MemoryKind::ALL.get(usize::from(from.byte()?)).copied()
}

fn shape(from: &mut Bytes<'_>) -> Option<WorkKind<u32>> {
    let mut three = || Some([from.small()?, from.small()?, from.small()?]);
    let (grid, block) = (three()?, three()?);
    let registers = u16::try_from(from.number()?).ok()?;
    Some(WorkKind::Kernel { name: 0, grid, block, registers, shared_bytes: from.number()? })
}

fn device(from: &mut Bytes<'_>) -> Option<Device> {
    Some(Device {
        number: from.small()?,
        name: from.text()?,
        bus: from.text()?,
        memory_bytes: from.number()?,
        multiprocessors: from.small()?,
        capability: (from.small()?, from.small()?),
    })
}
