//! What a step reads and leaves behind, so that the next can follow without the host.

use crate::{device::Device, error::CudaError, kernels::expect, memory::Buffer};

/// The token that is next, its position, and the tokens chosen so far, all on the device.
#[derive(Debug)]
pub struct State {
    /// The next token of each sequence.
    pub token: Buffer<u32>,
    /// Its position, which is that of all sequences: so many are in the cache.
    pub position: Buffer<u32>,
    /// How many tokens of each sequence were chosen.
    pub count: Buffer<u32>,
    /// The tokens chosen, `[room, batch]`. Those beyond the room are not kept.
    pub chosen: Buffer<u32>,
    pub(super) best: Buffer<u64>,
    pub(super) done: Buffer<u32>,
    pub(super) batch: u32,
    pub(super) room: u32,
}

impl State {
    /// Makes room for `room` chosen tokens of each of `batch` sequences. Call [`State::begin`] next.
    pub fn new(device: &Device, batch: u32, room: u32) -> Result<Self, CudaError> {
        let sequences = batch as usize;
        Ok(Self {
            token: device.upload(&vec![0; sequences])?,
            position: device.upload(&[0])?,
            count: device.upload(&[0])?,
            chosen: device.upload(&vec![0; sequences * room as usize])?,
            best: device.upload(&vec![0; sequences])?,
            done: device.upload(&[0])?,
            batch,
            room,
        })
    }

    /// Says which tokens come next and where, and forgets those chosen. Waits for the device.
    pub fn begin(&mut self, tokens: &[u32], position: u32) -> Result<(), CudaError> {
        expect("beginning a step", tokens.len() == self.batch as usize, "every sequence needs one token")?;
        self.token.write(tokens)?;
        self.position.write(&[position])?;
        self.count.write(&[0])
    }

    /// The tokens chosen since [`State::begin`], step after step, each of all sequences. Waits for the device.
    pub fn chosen(&self) -> Result<Vec<u32>, CudaError> {
        let steps = self.count.read()?.first().map_or(0, |count| (*count).min(self.room));
        let mut chosen = self.chosen.read()?;
        chosen.truncate(steps as usize * self.batch as usize);
        Ok(chosen)
    }
}
