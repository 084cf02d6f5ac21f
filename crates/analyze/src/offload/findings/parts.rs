//! What else a token is spent on.

use super::{Bottleneck, Severity};
use crate::{
    finding::Finding,
    offload::{Offload, TokenPart},
    units::{per_cent, time},
};

/// The part that makes a slow token slow, stalls, and a host that is late.
pub(super) fn findings(seen: &Offload) -> Vec<Bottleneck> {
    [largest(seen), stalls(seen), host(seen)].into_iter().flatten().collect()
}

fn bad(finding: Finding, gain_ns: f64) -> Bottleneck {
    Bottleneck { severity: Severity::Bad, finding, gain_ns: Some(gain_ns) }
}

/// Of a slow token the largest part, if it is none that other findings are about.
fn largest(seen: &Offload) -> Option<Bottleneck> {
    let audio = seen.facts.audio_ns.filter(|_| !seen.facts.is_judged_by_limit);
    let good = audio.unwrap_or(seen.thresholds.token_good_ns);
    if seen.length.median <= good {
        return None;
    }
    let part = |part| seen.part(part).unwrap_or(0.0);
    let codec = part(TokenPart::AudioDecode) + part(TokenPart::SemanticEncode);
    let waits = seen.usual.exposed + seen.usual.released;
    let sizes = [
        (Part::Waits, waits),
        (Part::Compute, seen.usual.compute),
        (Part::Diffusion, part(TokenPart::Diffusion)),
        (Part::Codec, codec),
        (Part::Other, part(TokenPart::Other)),
    ];
    let (kind, size) = sizes.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let (rule, what, meaning, next) = kind.words(seen)?;
    let evidence = format!(
        "{what} took {} of a token of {} ({})",
        time(size),
        time(seen.length.median),
        per_cent(size / seen.length.median.max(1.0))
    );
    let limit = format!("a token under {}", time(good));
    Some(bad(Finding { rule, evidence, limit, meaning: meaning.into(), next }, size))
}

/// What a token is spent on.
#[derive(Clone, Copy)]
enum Part {
    Waits,
    Compute,
    Diffusion,
    Codec,
    Other,
}

impl Part {
    /// Rule, name, meaning and next step; none of waits, which have findings of their own.
    fn words(self, seen: &Offload) -> Option<(&'static str, &'static str, &'static str, String)> {
        let steps = seen.facts.diffusion_steps.map_or_else(String::new, |steps| format!(" ({steps} now)"));
        Some(match self {
            Self::Waits => return None,
            Self::Compute => (
                "compute_limit",
                "Layers that compute",
                "the model itself is the limit, and not offloading",
                "see which kernels take it (`laptime top`), or whether the device waits for the host (`laptime gaps`)"
                    .into(),
            ),
            Self::Diffusion => (
                "diffusion_limit",
                "The diffusion head",
                "it is the limit, and not offloading",
                format!("fewer diffusion steps{steps}, and its steps as one graph"),
            ),
            Self::Codec => (
                "codec_limit",
                "Decoding and encoding audio",
                "they are the limit, and not offloading",
                "decode several tokens at once, and check that they run on the device (`laptime top`)".into(),
            ),
            Self::Other => (
                "other_limit",
                "What lies in no stage",
                "the time goes to something that was not marked",
                "see what the host does there (`laptime gaps`, `laptime syncs`), and mark it".into(),
            ),
        })
    }
}

fn share_limit(seen: &Offload) -> String {
    format!("{} of a token", per_cent(seen.thresholds.lost_share))
}

fn stalls(seen: &Offload) -> Option<Bottleneck> {
    let stalled = seen.usual.stalled;
    let share = stalled / seen.length.mean.max(1.0);
    let finding = || Finding {
        rule: "memory_stalls",
        evidence: format!(
            "Clearing caches and allocating took {} a token on average ({})",
            time(stalled),
            per_cent(share)
        ),
        limit: share_limit(seen),
        meaning: "memory is given back and asked for again while tokens wait".into(),
        next: "clear less often (`--cache-clear-interval 0` is never), and allocate before the first token".into(),
    };
    (share > seen.thresholds.lost_share).then(|| bad(finding(), stalled))
}

fn host(seen: &Offload) -> Option<Bottleneck> {
    let (late, issuing) = (seen.usual.host_late, seen.usual.issuing);
    let most = late.max(issuing);
    let share = most / seen.length.median.max(1.0);
    let finding = || Finding {
        rule: "host_late",
        evidence: format!(
            "In a token the device stood still for {} before layers that were ready, and the host took {} to ask for copies",
            time(late),
            time(issuing)
        ),
        limit: share_limit(seen),
        meaning: "the host issues work too slowly".into(),
        next: "launch layers as graphs, and copy each layer as one block".into(),
    };
    (share > seen.thresholds.lost_share).then(|| bad(finding(), most))
}
