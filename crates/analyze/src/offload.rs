//! Offloaded layers, copied to the device while others compute: hidden copies, waits, and the bottleneck of a token.

mod expected;
mod experiment;
mod facts;
mod findings;
mod gather;
mod layers;
pub mod names;
mod replay;
#[cfg(test)]
mod tests;
mod thresholds;
mod tokens;

use laptime_stats::spread::median_of;
use laptime_trace::Trace;

use self::layers::{by_pass, layers};
pub use self::{
    expected::{Expected, Rates, Sizes, expected},
    experiment::{Conclusion, Experiment, ExperimentLimits, Trial, experiment},
    facts::OffloadFacts,
    layers::{HIT, OffloadedLayer, PassKind, Prefetch},
    replay::{BUFFERS, Minimum, Step},
    thresholds::{AUDIO_OF_A_TOKEN, Thresholds},
    tokens::{LEAST_TOKENS, Token, TokenPart},
};
use self::{gather::gather, tokens::steps};
use crate::bottleneck::Bottleneck;
use crate::figures::{Figures, numbers};
use crate::overview::{Overview, overview};

/// The analysis of a run with offloaded layers.
#[derive(Debug, Clone, PartialEq)]
pub struct Offload {
    /// Facts about the run.
    pub facts: OffloadFacts,
    /// The tokens in order of time.
    pub tokens: Vec<Token>,
    /// Tokens at the start that are left out of all medians.
    pub cold: usize,
    /// The length of the counted tokens.
    pub length: Figures,
    /// Their parts.
    pub parts: Vec<(TokenPart, Figures)>,
    /// The typical token.
    pub usual: Usual,
    /// Offloaded layers in order of their numbers.
    pub layers: Vec<OffloadedLayer>,
    /// The same for each forward pass of a token; the passes of a layer are adjacent.
    pub passes: Vec<OffloadedLayer>,
    /// The lower bound of the token of median length.
    pub minimum: Minimum,
    /// The expected time, if sizes and peaks are known.
    pub expected: Option<Expected>,
    /// The thresholds.
    pub thresholds: Thresholds,
    /// The bottlenecks, the most important first.
    pub findings: Vec<Bottleneck>,
    /// The trace as a whole.
    pub overview: Overview,
}

/// Medians of the counted tokens, in nanoseconds; for stalls, which are rare, the mean.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usual {
    /// Copies.
    pub copied: f64,
    /// Their bytes.
    pub bytes: f64,
    /// How long compute waited for them.
    pub exposed: f64,
    /// Releases.
    pub released: f64,
    /// Forward passes without waits and releases.
    pub compute: f64,
    /// The compute time of offloaded layers.
    pub offloaded: f64,
    /// The host time for issuing copies.
    pub issuing: f64,
    /// The idle time of the device between a wait and its layer.
    pub host_late: f64,
    /// Clearing caches and allocating.
    pub stalled: f64,
}

impl Offload {
    /// Copies that were issued ahead, and all copies.
    pub fn ahead(&self) -> (u64, u64) {
        self.layers.iter().fold((0, 0), |(ahead, all), layer| {
            let more = layer.hits + layer.late;
            (ahead + more, all + more + layer.misses)
        })
    }

    /// The share of copies that were issued ahead.
    pub fn async_share(&self) -> Option<f64> {
        let (ahead, all) = self.ahead();
        (all > 0).then(|| ahead as f64 / all as f64)
    }

    /// The hidden share of the time of copies.
    pub fn hidden(&self) -> Option<f64> {
        (self.usual.copied > 0.0).then(|| (1.0 - self.usual.exposed / self.usual.copied).clamp(0.0, 1.0))
    }

    /// GB/s while copying.
    pub fn gb_s(&self) -> Option<f64> {
        (self.usual.copied > 0.0 && self.usual.bytes > 0.0).then(|| self.usual.bytes / self.usual.copied)
    }

    /// The real-time factor: time / audio; none if the audio per token is unknown.
    pub fn rtf(&self) -> Option<f64> {
        let audio = self.facts.audio_ns.filter(|&audio| audio > 0.0)?;
        Some(self.length.median / audio)
    }

    /// The median of a part; none if there is no such stage.
    pub fn part(&self, part: TokenPart) -> Option<f64> {
        self.parts.iter().find(|(known, _)| *known == part).map(|(_, figures)| figures.median)
    }
}

/// Analyses offloaded layers; none for a trace without tokens that use any.
pub fn offload(trace: &Trace, facts: OffloadFacts, thresholds: Thresholds) -> Option<Offload> {
    trace.known_name(names::LAYER_WAIT).or_else(|| trace.known_name(names::LAYER_COPY))?;
    let found = gather(trace);
    let tokens = tokens::tokens(&found);
    let cold = usize::from(tokens.len() >= LEAST_TOKENS);
    let counted = &tokens[cold..];
    let layers = layers(&found, cold);
    if layers.is_empty() {
        return None;
    }
    let lengths: Vec<u64> = counted.iter().map(|token| token.length).collect();
    let typical = cold + middle(&lengths)?;
    let mut answer = Offload {
        cold,
        length: Figures::of(vec![numbers(&lengths)])?,
        parts: tokens::parts(counted),
        usual: usual(counted),
        layers,
        passes: by_pass(&found, cold),
        minimum: Minimum::of(tokens[typical].length, &steps(&found, typical)),
        expected: facts.sizes.zip(facts.rates).and_then(|(sizes, rates)| expected(&sizes, &rates)),
        findings: Vec::new(),
        overview: overview(trace),
        tokens,
        facts,
        thresholds,
    };
    answer.findings = findings::findings(&answer);
    Some(answer)
}

/// The index of the lower median.
fn middle(lengths: &[u64]) -> Option<usize> {
    let mut places: Vec<usize> = (0..lengths.len()).collect();
    places.sort_by_key(|&at| lengths[at]);
    places.get(lengths.len().checked_sub(1)? / 2).copied()
}

fn usual(tokens: &[Token]) -> Usual {
    let of = |amount: fn(&Token) -> u64| median_of(tokens.iter().map(|token| amount(token) as f64)).unwrap_or(0.0);
    let stalled: f64 = tokens.iter().map(|token| token.stalled as f64).sum();
    Usual {
        copied: of(|token| token.copied),
        bytes: of(|token| token.bytes),
        exposed: of(|token| token.exposed),
        released: of(|token| token.released),
        compute: of(Token::compute),
        offloaded: of(|token| token.offloaded),
        issuing: of(|token| token.issuing),
        host_late: of(|token| token.host_late),
        stalled: stalled / tokens.len().max(1) as f64,
    }
}
