//! The parts of tokens.

use super::gather::{Gathered, Pass, Stage};
use super::{layers::length, names, replay::Step};
use crate::figures::{Figures, numbers};

/// From this many tokens on, the first is left out of medians: it is cold, and no earlier pass could prefetch for it.
pub const LEAST_TOKENS: usize = 3;

laptime_trace::words! {
    /// A part of a token.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum TokenPart, ALL: word {
        Positive = names::POSITIVE,
        Negative = names::NEGATIVE,
        /// One forward pass of all streams.
        Transformer = names::TRANSFORMER,
        Diffusion = names::DIFFUSION,
        /// Decoding the latent to audio.
        AudioDecode = names::AUDIO_DECODE,
        /// Encoding the audio again.
        SemanticEncode = names::SEMANTIC_ENCODE,
        /// The rest of the token.
        Other = "other",
    }
}

impl TokenPart {
    /// Whether it is a forward pass of the language model.
    pub const fn is_transformer(self) -> bool {
        matches!(self, Self::Positive | Self::Negative | Self::Transformer)
    }

    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.word() == name)
    }
}

/// One token. Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Token {
    /// When it began.
    pub start: u64,
    /// How long it took.
    pub length: u64,
    /// Its parts, in the order of [`TokenPart::ALL`]; none if there was no such stage. They add up to the token
    /// unless stages overlap.
    pub parts: [Option<u64>; 7],
    /// Copies of layers that were used in it.
    pub copied: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long compute waited for them.
    pub exposed: u64,
    /// The compute time of offloaded layers.
    pub offloaded: u64,
    /// The time of releases.
    pub released: u64,
    /// How long the host took to issue copies from pinned memory.
    pub issuing: u64,
    /// How long the device was idle between the wait of a layer and the layer.
    pub host_late: u64,
    /// The time of clearing caches and allocating.
    pub stalled: u64,
}

impl Token {
    /// The time of a part.
    pub fn part(&self, part: TokenPart) -> Option<u64> {
        self.parts[part as usize]
    }

    /// The time of forward passes.
    pub fn transformer(&self) -> u64 {
        let passes = TokenPart::ALL.into_iter().filter(|part| part.is_transformer());
        passes.filter_map(|part| self.part(part)).fold(0, u64::saturating_add)
    }

    /// The time of forward passes without waits and releases.
    pub fn compute(&self) -> u64 {
        self.transformer().saturating_sub(self.exposed).saturating_sub(self.released)
    }

    fn add_stage(&mut self, stage: &Stage) {
        let time = length(stage.time);
        match TokenPart::of(stage.name) {
            Some(part) => {
                let known = &mut self.parts[part as usize];
                *known = Some(known.unwrap_or(0).saturating_add(time));
            }
            None => self.stalled = self.stalled.saturating_add(time),
        }
    }

    fn add_pass(&mut self, pass: &Pass) {
        let add = |sum: &mut u64, more: Option<u64>| *sum = sum.saturating_add(more.unwrap_or(0));
        add(&mut self.copied, pass.copy.map(length));
        add(&mut self.bytes, pass.copy.and(pass.bytes));
        add(&mut self.exposed, pass.wait.map(length));
        let is_offloaded = pass.wait.is_some() || pass.copy.is_some();
        add(&mut self.offloaded, pass.compute.filter(|_| is_offloaded).map(length));
        add(&mut self.released, pass.release.map(length));
        // A copy from pageable memory blocks the host until it is done; that time belongs to the copy.
        add(&mut self.issuing, pass.issuing.filter(|_| pass.pinned != Some(false)));
        let late = pass.wait.zip(pass.compute).filter(|_| pass.is_on_device);
        add(&mut self.host_late, late.map(|(wait, compute)| compute.0.saturating_sub(wait.1)));
    }

    fn settle(&mut self) {
        let known = self.parts.iter().flatten().fold(0, |sum: u64, &part| sum.saturating_add(part));
        self.parts[TokenPart::Other as usize] = Some(self.length.saturating_sub(known));
    }
}

/// Computes figures per token.
pub(super) fn tokens(found: &Gathered) -> Vec<Token> {
    let made = |&time: &(u64, u64)| Token { start: time.0, length: length(time), ..Token::default() };
    let mut tokens: Vec<Token> = found.tokens.iter().map(made).collect();
    for stage in &found.stages {
        tokens[stage.token].add_stage(stage);
    }
    for pass in found.passes.values() {
        if let Some(token) = pass.token {
            tokens[token].add_pass(pass);
        }
    }
    tokens.iter_mut().for_each(Token::settle);
    tokens
}

/// The figures of the parts that occur.
pub(super) fn parts(tokens: &[Token]) -> Vec<(TokenPart, Figures)> {
    let of = |part: TokenPart| {
        let has_any = tokens.iter().any(|token| token.part(part).is_some());
        let times: Vec<u64> = tokens.iter().map(|token| token.part(part).unwrap_or(0)).collect();
        Some((part, Figures::of(vec![numbers(&times)]).filter(|_| has_any)?))
    };
    TokenPart::ALL.into_iter().filter_map(of).collect()
}

/// The compute and copies of a token, in the order of its compute queue.
pub(super) fn steps(found: &Gathered, at: usize) -> Vec<Step> {
    let mut moments: Vec<(u64, u64, Option<Step>)> = Vec::new();
    for stage in found.stages.iter().filter(|stage| stage.token == at) {
        if TokenPart::of(stage.name).is_some_and(TokenPart::is_transformer) {
            moments.push((stage.time.0, stage.time.0, Some(Step::Forward)));
        }
    }
    for pass in found.passes.values().filter(|pass| pass.token == Some(at)) {
        moments.extend(pass.wait.map(|wait| (wait.0, wait.1, None)));
        moments.extend(pass.release.map(|release| (release.0, release.1, None)));
        if let (Some(compute), Some(copy)) = (pass.compute, pass.copy) {
            let layer = Step::Layer { copy: length(copy), compute: length(compute) };
            moments.push((compute.0, compute.1, Some(layer)));
        }
    }
    moments.sort_by_key(|(start, end, _)| (*start, *end));
    let (start, end) = found.tokens[at];
    let mut reached = start;
    let mut steps = Vec::new();
    for (from, to, step) in moments {
        steps.push(Step::Compute(from.saturating_sub(reached)));
        steps.extend(step);
        reached = reached.max(to);
    }
    steps.push(Step::Compute(end.saturating_sub(reached)));
    steps
}
