//! The device state of a step, so that steps need no host.

use crate::launch::*;

/// The next token, its position, and the tokens so far, on the device.
#[derive(Debug)]
pub struct State {
    /// The next token of each sequence.
    pub token: Buffer<u32>,
    /// The position, shared by all sequences: the number of cached positions.
    pub position: Buffer<u32>,
    /// The number of generated tokens per sequence.
    pub count: Buffer<u32>,
    /// The generated tokens, `[capacity, batch]`. Those beyond the capacity are not stored.
    pub generated: Buffer<u32>,
    pub(super) keys: Buffer<u64>,
    pub(super) done: Buffer<u32>,
    pub(super) batch: u32,
    pub(super) capacity: u32,
}

impl State {
    /// Allocates `capacity` generated tokens for each of `batch` sequences. Call [`State::begin`] next.
    pub fn new(device: &Device, batch: u32, capacity: u32) -> Result<Self, CudaError> {
        let sequences = batch as usize;
        Ok(Self {
            token: device.upload(&vec![0; sequences])?,
            position: device.upload(&[0])?,
            count: device.upload(&[0])?,
            generated: device.upload(&vec![0; sequences * capacity as usize])?,
            keys: device.upload(&vec![0; sequences])?,
            done: device.upload(&[0])?,
            batch,
            capacity,
        })
    }

    /// Sets the next tokens and their position, and clears the generated tokens. Waits for the device.
    pub fn begin(&mut self, tokens: &[u32], position: u32) -> Done {
        expect("beginning a step", tokens.len() == self.batch as usize, "every sequence needs one token")?;
        self.token.write(tokens)?;
        self.position.write(&[position])?;
        self.count.write(&[0])
    }
}
