//! Offloaded layers.

use std::collections::{BTreeMap, HashMap};

use laptime_stats::spread::median_of;

use super::gather::{Gathered, Pass, TimeRange};
use super::tokens::TokenPart;

/// A wait below this share of its copy counts as zero.
pub const HIT: f64 = 0.1;

laptime_trace::words! {
    /// How the copy of a layer arrived.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Prefetch: word {
        /// It was issued ahead, and compute barely waited for it.
        Hit = "hit",
        /// It was issued ahead, and compute still waited.
        Late = "late",
        /// It was issued when the layer was needed.
        Miss = "miss",
    }
}

/// Which forward pass of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PassKind {
    /// Its index in the token.
    pub place: u64,
    /// Its kind, if a stage names it.
    pub part: Option<TokenPart>,
}

impl PassKind {
    /// Its name: that of its stage, or its number in the token.
    pub fn label(self) -> String {
        self.part.map_or_else(|| format!("pass {}", self.place + 1), |part| part.word().to_owned())
    }
}

/// The figures of an offloaded layer over all counted forward passes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OffloadedLayer {
    /// Its number.
    pub layer: u64,
    /// The forward pass of a token; none for all of them.
    pub pass: Option<PassKind>,
    /// Forward passes in which its copy was seen.
    pub copies: u64,
    /// The median time of its copy, in nanoseconds.
    pub copy_ns: Option<f64>,
    /// The bytes of its copy.
    pub bytes: Option<u64>,
    /// Whether all its copies came from pinned memory.
    pub pinned: Option<bool>,
    /// How long before it was needed the copy was issued, in nanoseconds: negative if after. The median.
    pub issued_ahead_ns: Option<f64>,
    /// How long before it was needed the copy was done: negative if after. The median.
    pub finished_ahead_ns: Option<f64>,
    /// The median time that compute waited for it.
    pub exposed_ns: Option<f64>,
    /// The median time that it computed.
    pub compute_ns: Option<f64>,
    /// The median time of its release.
    pub release_ns: Option<f64>,
    /// Copies that were done in time.
    pub hits: u64,
    /// Copies that were issued in time but that compute waited for.
    pub late: u64,
    /// Copies that were issued when they were needed.
    pub misses: u64,
}

impl OffloadedLayer {
    /// The rate of its copy in GB/s.
    pub fn gb_s(&self) -> Option<f64> {
        let copy = self.copy_ns.filter(|&copy| copy > 0.0)?;
        Some(self.bytes? as f64 / copy)
    }

    /// The hidden share of its copy.
    pub fn hidden(&self) -> Option<f64> {
        let copy = self.copy_ns.filter(|&copy| copy > 0.0)?;
        Some((1.0 - self.exposed_ns? / copy).clamp(0.0, 1.0))
    }

    /// Whether most of its copies were issued ahead; none if there are none.
    pub fn is_async(&self) -> Option<bool> {
        let ahead = self.hits + self.late;
        (ahead + self.misses > 0).then_some(ahead > self.misses)
    }

    /// `ASYNC` or `SYNC`.
    pub fn tag(&self) -> Option<&'static str> {
        self.is_async().map(|is_async| if is_async { "ASYNC" } else { "SYNC" })
    }

    /// The most frequent kind of its copies.
    pub fn prefetch(&self) -> Option<Prefetch> {
        let counted = [(self.hits, Prefetch::Hit), (self.late, Prefetch::Late), (self.misses, Prefetch::Miss)];
        // Among equals the last, which is the worst.
        counted.into_iter().filter(|(count, _)| *count > 0).max_by_key(|(count, _)| *count).map(|(_, kind)| kind)
    }
}

impl Pass {
    /// How its copy arrived; none if the trace does not show it.
    ///
    /// Both moments are on the host clock, so no clocks are compared.
    pub(super) fn prefetch(&self) -> Option<Prefetch> {
        let (copy, issued, needed) = (length(self.copy?), self.issued?, self.needed?);
        let exposed = self.wait.map_or(0, length);
        Some(if issued >= needed {
            Prefetch::Miss
        } else if (exposed as f64) < HIT * copy as f64 {
            Prefetch::Hit
        } else {
            Prefetch::Late
        })
    }
}

/// The length of an interval.
pub(super) fn length(stretch: TimeRange) -> u64 {
    stretch.1.saturating_sub(stretch.0)
}

/// Computes figures per layer, without the first `cold` tokens.
pub(super) fn layers(found: &Gathered, cold: usize) -> Vec<OffloadedLayer> {
    by_kind(found, cold, |_| Some(None))
}

/// Computes figures per layer and position in the token, because passes of two kinds only share the layer.
pub(super) fn by_pass(found: &Gathered, cold: usize) -> Vec<OffloadedLayer> {
    let kinds = kinds(found);
    by_kind(found, cold, |forward| kinds.get(&forward).copied().map(Some))
}

fn by_kind(found: &Gathered, cold: usize, kind: impl Fn(u64) -> Option<Option<PassKind>>) -> Vec<OffloadedLayer> {
    let mut groups: BTreeMap<(u64, Option<PassKind>), Vec<&Pass>> = BTreeMap::new();
    for ((forward, layer), pass) in &found.passes {
        let is_counted = pass.token.is_some_and(|token| token >= cold) && (pass.copy.is_some() || pass.wait.is_some());
        if let Some(kind) = kind(*forward).filter(|_| is_counted) {
            groups.entry((*layer, kind)).or_default().push(pass);
        }
    }
    groups.into_iter().map(|((layer, kind), passes)| summed(layer, kind, &passes)).collect()
}

/// The kind of each forward pass.
fn kinds(found: &Gathered) -> HashMap<u64, PassKind> {
    let mut of_token: BTreeMap<usize, BTreeMap<u64, u64>> = BTreeMap::new();
    for ((forward, _), pass) in &found.passes {
        if let (Some(token), Some(reached)) = (pass.token, pass.reached) {
            let first = of_token.entry(token).or_default().entry(*forward).or_insert(reached);
            *first = (*first).min(reached);
        }
    }
    let mut stages: HashMap<usize, Vec<(TimeRange, TokenPart)>> = HashMap::new();
    for stage in &found.stages {
        if let Some(part) = TokenPart::of(stage.name).filter(|part| part.is_transformer()) {
            stages.entry(stage.token).or_default().push((stage.host, part));
        }
    }
    let mut kinds = HashMap::new();
    for (token, forwards) in of_token {
        let stages = stages.get(&token).map_or(&[][..], Vec::as_slice);
        for (place, (forward, reached)) in forwards.into_iter().enumerate() {
            let around = stages.iter().find(|((from, to), _)| (*from..*to).contains(&reached));
            let part = around.map(|(_, part)| *part);
            kinds.insert(forward, PassKind { place: place as u64, part });
        }
    }
    kinds
}

fn summed(layer: u64, pass: Option<PassKind>, passes: &[&Pass]) -> OffloadedLayer {
    let time = |interval: fn(&Pass) -> Option<TimeRange>| {
        median_of(passes.iter().filter_map(|pass| interval(pass)).map(|interval| length(interval) as f64))
    };
    let of = |amount: fn(&Pass) -> Option<f64>| median_of(passes.iter().filter_map(|pass| amount(pass)));
    let count = |wanted| passes.iter().filter(|pass| pass.prefetch() == Some(wanted)).count() as u64;
    let pinned: Vec<bool> = passes.iter().filter_map(|pass| pass.pinned).collect();
    OffloadedLayer {
        layer,
        pass,
        copies: passes.iter().filter(|pass| pass.copy.is_some()).count() as u64,
        copy_ns: time(|pass| pass.copy),
        bytes: passes.iter().find_map(|pass| pass.bytes),
        pinned: (!pinned.is_empty()).then(|| pinned.iter().all(|&pinned| pinned)),
        issued_ahead_ns: of(|pass| Some(pass.needed? as f64 - pass.issued? as f64)),
        finished_ahead_ns: of(|pass| Some(pass.wait?.0 as f64 - pass.copy?.1 as f64)),
        exposed_ns: time(|pass| pass.wait),
        compute_ns: time(|pass| pass.compute),
        release_ns: time(|pass| pass.release),
        hits: count(Prefetch::Hit),
        late: count(Prefetch::Late),
        misses: count(Prefetch::Miss),
    }
}
