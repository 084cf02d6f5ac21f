//! Inflates the blocks of a file on a thread of its own, while earlier ones are read.

use std::sync::mpsc::{Receiver, SendError, SyncSender, sync_channel};
use std::{collections::VecDeque, io::Read, thread};

use flate2::bufread::ZlibDecoder;

use super::{packet::Packet, wire::Damaged};

/// How many blocks are inflated before they are read.
pub const AHEAD: usize = 4;

/// How a packet that is a compressed block begins.
pub const COMPRESSED: [u8; 2] = [0x92, 0x03];

/// Blocks up to this length are kept in memory while they are read. Writers compress blocks of at most a megabyte.
const LONGEST_KEPT: u64 = 1 << 20;

/// An inflated block; none if it is too long to keep.
type Inflated = Result<Option<Vec<u8>>, Damaged>;

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

/// The blocks that are on their way.
#[derive(Debug, Default)]
pub struct Ahead {
    /// The places of the blocks: offset and length; and the block, if it could not be handed over.
    places: VecDeque<(u64, u64, Option<Done>)>,
    thread: Option<(SyncSender<Vec<u8>>, Receiver<Done>)>,
}

impl Ahead {
    /// Adds a block. At most one more than [`AHEAD`] are on their way.
    pub fn push(&mut self, packet: Vec<u8>, offset: u64, whole: u64) {
        let (jobs, _) = self.thread.get_or_insert_with(|| {
            let (jobs, todo) = sync_channel::<Vec<u8>>(AHEAD + 1);
            let (done, blocks) = sync_channel(AHEAD + 1);
            let work = move || {
                for packet in todo {
                    let inflated = inflated(&packet);
                    // Nobody waits for it if the file ended early.
                    if done.send((packet, inflated)).is_err() {
                        return;
                    }
                }
            };
            // Without a thread the other end of the channel is gone, and blocks come back.
            drop(thread::Builder::new().spawn(work));
            (jobs, blocks)
        });
        let own = jobs.send(packet).err().map(|SendError(packet)| {
            let inflated = inflated(&packet);
            (packet, inflated)
        });
        self.places.push_back((offset, whole, own));
    }

    /// The next block, if more than `left` are on their way.
    pub fn next(&mut self, left: usize) -> Option<Block> {
        if self.places.len() <= left {
            return None;
        }
        let (offset, whole, own) = self.places.pop_front()?;
        let (_, blocks) = self.thread.as_ref()?;
        let (packet, inflated) = own.or_else(|| blocks.recv().ok()).unwrap_or((Vec::new(), Err(Damaged)));
        Some(Block { packet, inflated, offset, whole })
    }
}

fn inflated(packet: &[u8]) -> Inflated {
    // The reader knows what to do with a damaged packet.
    Packet::of(packet).ok().and_then(|packet| packet.compressed).map_or(Ok(None), inflate)
}

/// Inflates a block.
pub fn inflate(bytes: &[u8]) -> Inflated {
    let mut block = Vec::with_capacity(bytes.len().min(1 << 17) * 4);
    match ZlibDecoder::new(bytes).take(LONGEST_KEPT + 1).read_to_end(&mut block) {
        Ok(length) if length as u64 <= LONGEST_KEPT => Ok(Some(block)),
        Ok(_) => Ok(None),
        Err(_) => Err(Damaged),
    }
}
