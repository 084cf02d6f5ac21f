//! Inflates the blocks of a file on a separate thread, ahead of the reader.

use std::sync::mpsc::{Receiver, SendError, SyncSender, sync_channel};
use std::{collections::VecDeque, io::Read, thread};

use flate2::bufread::ZlibDecoder;

use super::{packet::Packet, wire::Damaged};

/// The number of blocks inflated ahead of the reader.
pub const AHEAD: usize = 4;

/// The first bytes of a packet with a compressed block.
pub const COMPRESSED: [u8; 2] = [0x92, 0x03];

/// Blocks up to this length are kept in memory while they are read. Writers compress blocks of at most a megabyte.
const LONGEST_KEPT: u64 = 1 << 20;

/// An inflated block; none if it is too long to be kept in memory.
type Inflated = Result<Option<Vec<u8>>, Damaged>;

/// A packet, and the buffer for its block.
type Job = (Vec<u8>, Vec<u8>);

/// A packet and its inflated block.
type Done = (Vec<u8>, Inflated);

/// A block that is ready to be read.
#[derive(Debug)]
pub struct Block {
    /// The packet with the block.
    pub packet: Vec<u8>,
    pub inflated: Inflated,
    /// Where the packet begins in the file.
    pub offset: u64,
    /// The length of the packet in the file.
    pub whole: u64,
}

/// The blocks that were submitted and not yet read.
#[derive(Debug, Default)]
pub struct Ahead {
    /// Offset and length of each block; and the block itself, if there is no thread to inflate it.
    places: VecDeque<(u64, u64, Option<Done>)>,
    thread: Option<(SyncSender<Job>, Receiver<Done>)>,
    /// Buffers of earlier blocks: fresh memory for each block would cost as much as inflating it.
    spare: Vec<Vec<u8>>,
}

impl Ahead {
    /// Submits a block. At most one more than [`AHEAD`] are in flight.
    pub fn push(&mut self, packet: Vec<u8>, offset: u64, whole: u64) {
        let (jobs, _) = self.thread.get_or_insert_with(|| {
            let (jobs, todo) = sync_channel::<Job>(AHEAD + 1);
            let (done, blocks) = sync_channel(AHEAD + 1);
            let work = move || {
                for (packet, buffer) in todo {
                    let inflated = inflated(&packet, buffer);
                    // The reader is gone if the file ended early.
                    if done.send((packet, inflated)).is_err() {
                        return;
                    }
                }
            };
            // Without a thread the other end of the channel is gone, and blocks come back.
            drop(thread::Builder::new().spawn(work));
            (jobs, blocks)
        });
        let buffer = self.spare.pop().unwrap_or_default();
        let own = jobs.send((packet, buffer)).err().map(|SendError((packet, buffer))| {
            let inflated = inflated(&packet, buffer);
            (packet, inflated)
        });
        self.places.push_back((offset, whole, own));
    }

    /// The next block, if more than `left` are in flight.
    pub fn next(&mut self, left: usize) -> Option<Block> {
        if self.places.len() <= left {
            return None;
        }
        let (offset, whole, own) = self.places.pop_front()?;
        let (_, blocks) = self.thread.as_ref()?;
        let (packet, inflated) = own.or_else(|| blocks.recv().ok()).unwrap_or((Vec::new(), Err(Damaged)));
        Some(Block { packet, inflated, offset, whole })
    }

    /// Uses the buffer of a block again.
    pub fn reuse(&mut self, buffer: Vec<u8>) {
        self.spare.push(buffer);
    }
}

fn inflated(packet: &[u8], buffer: Vec<u8>) -> Inflated {
    // The reader reports damaged packets.
    Packet::of(packet).ok().and_then(|packet| packet.compressed).map_or(Ok(None), |block| inflate(block, buffer))
}

/// Inflates a block into a buffer.
pub fn inflate(bytes: &[u8], mut block: Vec<u8>) -> Inflated {
    block.clear();
    block.reserve(bytes.len().min(1 << 17) * 4);
    match ZlibDecoder::new(bytes).take(LONGEST_KEPT + 1).read_to_end(&mut block) {
        Ok(length) if length as u64 <= LONGEST_KEPT => Ok(Some(block)),
        Ok(_) => Ok(None),
        Err(_) => Err(Damaged),
    }
}
