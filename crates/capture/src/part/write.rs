//! Encodes events into blocks.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use super::{Anchor, BLOCK_MARK, Call, Device, HEADER_BYTES, Kind, Payload, Range, RangeAction, State, checksum, tag};
use crate::cupti::{GraphNode, Memory, Wait, Work, WorkKind};
use crate::varint::{put, zigzag};

/// A launch's grid, block, registers and shared memory.
type Shape = ([u32; 3], [u32; 3], u16, u64);

/// Things that were defined, with their numbers.
type Numbers<K> = HashMap<K, u32, BuildHasherDefault<Quick>>;

/// Encodes events into blocks of a part.
#[derive(Debug, Default)]
pub struct Encoder {
    names: Numbers<Box<[u8]>>,
    shapes: Numbers<Shape>,
    queues: Numbers<(u32, u32)>,
    threads: Numbers<u32>,
    block: Vec<u8>,
    last: Last,
    in_block: [u64; Kind::ALL.len()],
    dropped: [u64; Kind::ALL.len()],
    dropped_written: [u64; Kind::ALL.len()],
}

/// The values that the next record of a block is encoded relative to.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Last {
    pub work: u64,
    pub call: u64,
    pub range: u64,
    pub correlation: u32,
    pub node: u64,
}

impl Encoder {
    /// Starts a new part: names, shapes and streams are defined again.
    pub fn begin_part(&mut self) {
        self.names.clear();
        self.shapes.clear();
        self.queues.clear();
        self.threads.clear();
        self.dropped_written = [0; Kind::ALL.len()];
        self.clear_block();
    }

    /// Bytes of the block so far.
    pub fn block_bytes(&self) -> usize {
        self.block.len()
    }

    /// The block with its header, ready to be written; `None` if nothing happened.
    pub fn block(&mut self) -> Option<&[u8]> {
        for kind in Kind::ALL {
            let (dropped, written) = (self.dropped[kind as usize], &mut self.dropped_written[kind as usize]);
            if dropped > *written {
                *written = dropped;
                begin(&mut self.block, tag::DROPPED);
                put(kind as u64, &mut self.block);
                put(dropped, &mut self.block);
            }
        }
        if self.block.is_empty() {
            return None;
        }
        let content = &self.block[HEADER_BYTES..];
        let (length, sum) = (content.len() as u32, checksum(content));
        self.block[..4].copy_from_slice(&BLOCK_MARK.to_le_bytes());
        self.block[4..8].copy_from_slice(&length.to_le_bytes());
        self.block[8..12].copy_from_slice(&sum.to_le_bytes());
        Some(&self.block)
    }

    /// The block was written.
    pub fn written(&mut self) {
        self.clear_block();
    }

    /// The block could not be written: its records count as dropped, and the next block starts a new part.
    pub fn failed(&mut self) {
        for kind in Kind::ALL {
            self.dropped[kind as usize] += self.in_block[kind as usize];
        }
        self.begin_part();
    }

    fn clear_block(&mut self) {
        self.block.clear();
        self.last = Last::default();
        self.in_block = [0; Kind::ALL.len()];
    }

    /// Counts records that were dropped before they came here.
    pub fn dropped(&mut self, kind: Kind, count: u64) {
        self.dropped[kind as usize] = self.dropped[kind as usize].saturating_add(count);
    }

    /// Adds a fact about the process.
    pub fn info(&mut self, key: &str, value: &str) {
        self.begin(tag::INFO);
        self.text(key.as_bytes());
        self.text(value.as_bytes());
    }

    /// Describes a device.
    pub fn device(&mut self, device: &Device) {
        self.begin(tag::DEVICE);
        put(device.number.into(), &mut self.block);
        self.text(device.name.as_bytes());
        self.text(device.bus.as_bytes());
        put(device.memory_bytes, &mut self.block);
        put(device.multiprocessors.into(), &mut self.block);
        put(device.capability.0.into(), &mut self.block);
        put(device.capability.1.into(), &mut self.block);
    }

    /// Adds a pair of clock readings.
    pub fn anchor(&mut self, anchor: Anchor) {
        self.begin(tag::ANCHOR);
        put(anchor.host_nanos, &mut self.block);
        put(anchor.cupti_nanos, &mut self.block);
        put(anchor.window_nanos, &mut self.block);
    }

    /// Adds a change of the recording state.
    pub fn state(&mut self, host_nanos: u64, state: State) {
        self.begin(tag::STATE);
        put(host_nanos, &mut self.block);
        self.block.push(state as u8);
    }

    /// Names a thread.
    pub fn thread_name(&mut self, thread: u32, name: &[u8]) {
        let (thread, name) = (self.thread(thread), self.name(name));
        self.begin(tag::THREAD_NAME);
        put(thread.into(), &mut self.block);
        put(name.into(), &mut self.block);
    }

    /// The number of a name, which is defined where it is new. The empty name is zero.
    pub fn name(&mut self, name: &[u8]) -> u32 {
        if name.is_empty() {
            return 0;
        }
        if let Some(&number) = self.names.get(name) {
            return number;
        }
        let number = self.names.len() as u32 + 1;
        self.names.insert(name.into(), number);
        self.begin(tag::NAME);
        self.text(name);
        number
    }

    /// Adds work of a device. The name of a kernel comes from [`Encoder::name`].
    pub fn work(&mut self, work: &Work<u32>) {
        let queue = self.queue(work.device, work.stream);
        match work.kind {
            WorkKind::Kernel { name, grid, block, registers, shared_bytes } => {
                let shape = self.shape((grid, block, registers, shared_bytes));
                self.count(Kind::Kernel);
                self.work_start(tag::KERNEL, tag::GRAPH_KERNEL, queue, work);
                put(name.into(), &mut self.block);
                put(shape.into(), &mut self.block);
            }
            WorkKind::Copy { from, to, bytes } => {
                self.count(Kind::Copy);
                self.work_start(tag::COPY, tag::GRAPH_COPY, queue, work);
                self.block.extend([from as u8, to as u8]);
                put(bytes, &mut self.block);
            }
            WorkKind::Fill { memory, bytes } => {
                self.count(Kind::Fill);
                self.work_start(tag::FILL, tag::GRAPH_FILL, queue, work);
                self.block.push(memory as u8);
                put(bytes, &mut self.block);
            }
            WorkKind::Graph => {
                self.count(Kind::Kernel);
                self.work_start(tag::GRAPH, tag::GRAPH, queue, work);
            }
        }
    }

    fn work_start(&mut self, plain: u8, of_graph: u8, queue: u32, work: &Work<u32>) {
        self.begin(if work.graph.is_some() { of_graph } else { plain });
        put(queue.into(), &mut self.block);
        put(difference(work.start_nanos, &mut self.last.work), &mut self.block);
        put(work.end_nanos.saturating_sub(work.start_nanos), &mut self.block);
        self.correlation(work.correlation);
        if let Some(GraphNode { graph, node }) = work.graph {
            put(graph.into(), &mut self.block);
            put(difference(node, &mut self.last.node), &mut self.block);
        }
    }

    /// Adds a wait.
    pub fn wait(&mut self, wait: &Wait) {
        self.count(Kind::Wait);
        self.begin(tag::WAIT);
        self.block.push(wait.kind as u8);
        put(difference(wait.start_nanos, &mut self.last.work), &mut self.block);
        put(wait.end_nanos.saturating_sub(wait.start_nanos), &mut self.block);
        put(wait.stream.map_or(0, |stream| u64::from(stream) + 1), &mut self.block);
        self.correlation(wait.correlation);
    }

    /// Adds a call. The name comes from [`Encoder::name`].
    pub fn call(&mut self, call: &Call) {
        let thread = self.thread(call.thread);
        self.count(Kind::Call);
        self.begin(if call.is_driver { tag::DRIVER_CALL } else { tag::RUNTIME_CALL });
        put(thread.into(), &mut self.block);
        put(call.name.into(), &mut self.block);
        put(difference(call.start_nanos, &mut self.last.call), &mut self.block);
        put(call.end_nanos.saturating_sub(call.start_nanos), &mut self.block);
        self.correlation(call.correlation);
    }

    /// Adds an allocation or a release.
    pub fn memory(&mut self, memory: &Memory) {
        self.count(Kind::Memory);
        self.begin(tag::MEMORY);
        self.block.extend([u8::from(memory.is_release), memory.memory as u8]);
        put(memory.device.into(), &mut self.block);
        put(difference(memory.nanos, &mut self.last.work), &mut self.block);
        put(memory.bytes, &mut self.block);
    }

    /// Adds a range. Names come from [`Encoder::name`].
    pub fn range(&mut self, range: &Range) {
        let thread = self.thread(range.thread);
        self.count(Kind::Range);
        let (kind, number) = match range.action {
            RangeAction::Push => (tag::PUSH, None),
            RangeAction::Pop => (tag::POP, None),
            RangeAction::Start(number) => (tag::START, Some(number)),
            RangeAction::End(number) => (tag::END, Some(number)),
            RangeAction::Mark => (tag::MARK, None),
        };
        self.begin(kind);
        put(thread.into(), &mut self.block);
        put(difference(range.host_nanos, &mut self.last.range), &mut self.block);
        if let Some(number) = number {
            put(number, &mut self.block);
        }
        put(range.domain.into(), &mut self.block);
        if matches!(range.action, RangeAction::Push | RangeAction::Start(_) | RangeAction::Mark) {
            put(range.name.into(), &mut self.block);
            put(range.category.into(), &mut self.block);
            self.payload(range.payload);
        }
    }

    fn payload(&mut self, payload: Option<Payload>) {
        let (kind, bits) = match payload {
            None => (0, None),
            Some(Payload::Unsigned(number)) => (1, Some(number)),
            Some(Payload::Signed(number)) => (2, Some(zigzag(number))),
            Some(Payload::Float(number)) => (3, Some(number.to_bits())),
        };
        self.block.push(kind);
        if let Some(bits) = bits {
            put(bits, &mut self.block);
        }
    }

    fn correlation(&mut self, correlation: u32) {
        let step = i64::from(correlation) - i64::from(self.last.correlation);
        self.last.correlation = correlation;
        put(zigzag(step), &mut self.block);
    }

    fn shape(&mut self, shape: Shape) -> u32 {
        let (number, is_new) = number_in(&mut self.shapes, shape);
        if !is_new {
            return number;
        }
        self.begin(tag::SHAPE);
        let (grid, block, registers, shared) = shape;
        for part in grid.into_iter().chain(block) {
            put(part.into(), &mut self.block);
        }
        put(registers.into(), &mut self.block);
        put(shared, &mut self.block);
        number
    }

    fn queue(&mut self, device: u32, stream: u32) -> u32 {
        let (number, is_new) = number_in(&mut self.queues, (device, stream));
        if is_new {
            self.begin(tag::QUEUE);
            put(device.into(), &mut self.block);
            put(stream.into(), &mut self.block);
        }
        number
    }

    fn thread(&mut self, thread: u32) -> u32 {
        let (number, is_new) = number_in(&mut self.threads, thread);
        if is_new {
            self.begin(tag::THREAD);
            put(thread.into(), &mut self.block);
        }
        number
    }

    fn begin(&mut self, tag: u8) {
        begin(&mut self.block, tag);
    }

    fn count(&mut self, kind: Kind) {
        self.in_block[kind as usize] += 1;
    }

    fn text(&mut self, text: &[u8]) {
        put(text.len() as u64, &mut self.block);
        self.block.extend_from_slice(text);
    }
}

/// Begins a record; the first of a block comes after space for the header.
fn begin(block: &mut Vec<u8>, tag: u8) {
    if block.is_empty() {
        block.resize(HEADER_BYTES, 0);
    }
    block.push(tag);
}

fn difference(value: u64, last: &mut u64) -> u64 {
    let step = value.wrapping_sub(*last) as i64;
    *last = value;
    zigzag(step)
}

/// The number of a key, and whether it is new.
fn number_in<K: Eq + Hash>(known: &mut Numbers<K>, key: K) -> (u32, bool) {
    let next = known.len() as u32;
    let number = *known.entry(key).or_insert(next);
    (number, number == next)
}

/// A quick hash for long names: eight bytes at a time, multiplied and rotated.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Quick(u64);

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.write_u64(u64::from_le_bytes(chunk.try_into().unwrap_or_default()));
        }
        let mut last = [0; 8];
        last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
        self.write_u64(u64::from_le_bytes(last));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(26) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }
}

const _: () = {
    // The maps above use no other method of a hasher.
    const fn is_key<T: Hash + Eq>() {}
    is_key::<Shape>();
};
