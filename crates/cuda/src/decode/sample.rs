//! Token sampling on the device.
#![allow(unsafe_code)]

use super::{Frames, SAMPLE, frames::NO_CODE};
use crate::launch::*;

/// The maximum vocabulary: one block has all logits.
pub const MAX_SAMPLED_VOCAB: u32 = 4096;
const SHAPE: Shape = Shape::line(1, 256);
/// Words of the kernel's `Candidates`.
const CANDIDATE_WORDS: usize = 4 + 2 * MAX_SAMPLED_VOCAB as usize + MAX_SAMPLED_VOCAB as usize / 2;
/// Words of the kernel's `Rules`.
const RULE_WORDS: usize = 10;

/// The sampling rules.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// The temperature; 0 selects the most likely token.
    pub temperature: f32,
    /// The repetition penalty: logits of earlier tokens are divided by it, or multiplied by it if they are negative.
    pub repetition_penalty: f32,
    /// Top-k: the number of most likely tokens to keep; 0 keeps all. Ties with the last one are kept too.
    pub top_k: u32,
    /// Top-p: the total probability of the most likely tokens to keep.
    pub top_p: f64,
    /// The random seed.
    pub seed: u64,
    /// The minimum number of frames before the end token.
    pub least_frames: u32,
    /// The end token.
    pub end: u32,
}

impl Rules {
    fn words(&self) -> [u32; RULE_WORDS] {
        let top_p = self.top_p.to_bits();
        [
            self.temperature.to_bits(),
            self.repetition_penalty.to_bits(),
            top_p as u32,
            (top_p >> 32) as u32,
            self.top_k,
            self.seed as u32,
            (self.seed >> 32) as u32,
            self.least_frames,
            self.end,
            0,
        ]
    }
}

/// The sampling rules on the device, so that graphs stay valid when the rules change.
#[derive(Debug)]
pub struct Sampling {
    rules: Buffer<u32>,
    suppressed: Option<Buffer<u32>>,
    seen: Option<Buffer<u32>>,
    vocab: u32,
}

impl Sampling {
    /// Rules for a vocabulary, with tokens that are never sampled. With `remembers`, earlier tokens are penalised.
    pub fn new(device: &Device, vocab: u32, suppressed: &[u32], remembers: bool) -> Result<Self, CudaError> {
        expect(
            "preparing to sample",
            (1..=MAX_SAMPLED_VOCAB).contains(&vocab),
            "the vocabulary must have 1 to 4096 tokens",
        )?;
        let mut mask = vec![0_u32; vocab as usize];
        for token in suppressed {
            expect("preparing to sample", *token < vocab, "a suppressed token is outside the vocabulary")?;
            mask[*token as usize] = 1;
        }
        let table = |is_there: bool, words: &[u32]| is_there.then(|| device.upload(words)).transpose();
        Ok(Self {
            rules: device.upload(&[0; RULE_WORDS])?,
            suppressed: table(!suppressed.is_empty(), &mask)?,
            seen: table(remembers, &vec![0; vocab as usize])?,
            vocab,
        })
    }

    /// Sets the rules and forgets earlier tokens, in stream order.
    pub fn begin(&mut self, stream: &Stream, rules: &Rules) -> Done {
        // SAFETY: an array on the stack is not pinned memory.
        unsafe { self.rules.begin_write(&rules.words(), stream)? };
        self.seen.as_mut().map_or(Ok(()), |seen| seen.set_all(stream, 0))
    }
}

/// A lookup of the sampled token's embedding, as the input of the next step.
#[derive(Debug)]
pub struct NextRow<'a, T> {
    /// `[size, width]`.
    pub table: Slice<'a, T>,
    /// Rows of the table. A token outside it gives NaN.
    pub size: u32,
    /// The result, `[width]`.
    pub x: &'a mut Buffer<T>,
    /// The width of a row.
    pub width: u32,
}

/// The code that is sampled, and what advances with it.
#[derive(Debug)]
pub struct SampledCode<'a, T> {
    /// The code's group.
    pub group: u32,
    /// Whether it begins the next frame.
    pub begins: bool,
    /// A position that advances by one.
    pub position: Option<&'a mut Buffer<u32>>,
    /// Whether the result is reported to the host in [`Frames::word`]. Only such a code can be the end token.
    pub is_reported: bool,
    /// The input of the next step.
    pub next: Option<NextRow<'a, T>>,
}

impl<T> SampledCode<'_, T> {
    /// A code of the current frame.
    pub fn code(group: u32) -> Self {
        Self { group, begins: false, position: None, is_reported: false, next: None }
    }
}

kernels! {
    /// The sampling kernels on one device: in one kernel, or in parts that can be timed separately.
    Sampler
    SAMPLE {
        kernels: [Kernel; 4] = step_kernels(["sample_step", "top_k_step", "top_p_step", "draw_step"]),
    }
    |device| {
        candidates: Buffer<u32> = device.upload(&vec![0; CANDIDATE_WORDS])?,
        overlaps: bool = device.is_hopper_or_later(),
    }
}

/// All of sampling, or its parts in order. Both give the same result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplingPart {
    /// Everything in one kernel.
    All,
    /// Penalties, temperature and top-k.
    TopK,
    /// Top-p.
    TopP,
    /// The draw.
    Draw,
}

impl<T: Element> Sampler<T> {
    /// Samples a token from logits `[vocab]`, or does a part of it. The result is the same on every device, and token 0 if all
    /// logits are NaN.
    pub fn sample(
        &mut self,
        part: SamplingPart,
        stream: &Stream,
        logits: &Buffer<T>,
        (by, frames): (&mut Sampling, &mut Frames),
        code: SampledCode<'_, T>,
    ) -> Done {
        let SampledCode { group, begins, position, is_reported, next } = code;
        let next = next.as_ref();
        let (size, width) = next.map_or((0, 0), |next| (next.size, next.width));
        let launch = Launch::new(stream, "sampling a code")
            .require(logits.length() as u64 >= by.vocab.into(), "there are fewer logits than tokens")
            .require(group < frames.groups, NO_CODE)
            .read(logits, by.vocab)
            .with(by.vocab)
            .read(&by.rules, RULE_WORDS as u64)
            .read(by.suppressed.as_ref(), by.vocab)
            .write(by.seen.as_mut(), by.vocab)
            .write(&mut frames.frame, 1_u32)
            .with(begins)
            .write(&mut frames.codes, area(frames.capacity, frames.groups))
            .with_all([frames.capacity, frames.groups, group])
            .write(position, 1_u32)
            .write(is_reported.then_some(&mut frames.word), 2_u32)
            .read(next.map(|next| next.table), area(size, width))
            .with(size)
            .read(next.map(|next| &*next.x), width)
            .with(width)
            .write(&mut self.candidates, CANDIDATE_WORDS as u64);
        launch.run_early(&self.kernels[part as usize], SHAPE, self.overlaps)
    }
}
