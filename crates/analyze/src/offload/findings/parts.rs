//! Findings about the other parts of a token.

use super::{Bottleneck, Severity};
use crate::finding::Finding;
use crate::offload::{Offload, TokenPart};
use crate::units::{per_cent, time};

/// The largest part of a slow token, memory stalls, and a slow host.
pub(super) fn findings(seen: &Offload) -> Vec<Bottleneck> {
    [largest(seen), stalls(seen), host(seen)].into_iter().flatten().collect()
}

fn bad(finding: Finding, gain_ns: f64) -> Bottleneck {
    finding.bottleneck(Severity::Bad, Some(gain_ns))
}

/// The largest part of a slow token, unless it is covered by other findings.
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
    let words = kind.words(seen)?;
    let evidence = format!(
        "{} took {} of a token of {} ({})",
        words.what,
        time(size),
        time(seen.length.median),
        per_cent(size / seen.length.median.max(1.0))
    );
    let limit = format!("a token under {}", time(good));
    Some(bad(Finding { rule: words.rule, evidence, limit, meaning: words.meaning.into(), next: words.next }, size))
}

/// A part of a token.
#[derive(Clone, Copy)]
enum Part {
    Waits,
    Compute,
    Diffusion,
    Codec,
    Other,
}

/// The texts of a finding about a part.
struct Words {
    rule: &'static str,
    what: &'static str,
    meaning: &'static str,
    next: String,
}

impl Part {
    /// The finding about a part; waits have findings of their own.
    fn words(self, seen: &Offload) -> Option<Words> {
        let steps = seen.facts.diffusion_steps.map_or_else(String::new, |steps| format!(" ({steps} now)"));
        Some(match self {
            Self::Waits => return None,
            Self::Compute => Words {
                rule: "compute-limit",
                what: "Computing the layers",
                meaning: "the model itself is the bottleneck, not offloading",
                next: "find slow kernels with `laptime top`, and waits for the host with `laptime gaps`".into(),
            },
            Self::Diffusion => Words {
                rule: "diffusion-limit",
                what: "The diffusion head",
                meaning: "it is the bottleneck, not offloading",
                next: format!("use fewer diffusion steps{steps}, and run them as one CUDA graph"),
            },
            Self::Codec => Words {
                rule: "codec-limit",
                what: "Decoding and encoding audio",
                meaning: "the codec is the bottleneck, not offloading",
                next: "decode several tokens at once, and check that the codec runs on the GPU (`laptime top`)".into(),
            },
            Self::Other => Words {
                rule: "other-limit",
                what: "Code outside all stages",
                meaning: "no stage covers where the time goes",
                next: "see what the host does there (`laptime gaps`, `laptime syncs`), and mark it with `stage!`"
                    .into(),
            },
        })
    }
}

fn share_limit(seen: &Offload) -> String {
    format!("{} of a token", per_cent(seen.thresholds.lost_share))
}

fn stalls(seen: &Offload) -> Option<Bottleneck> {
    let stalled = seen.usual.stalled;
    let share = stalled / seen.length.all.mean.max(1.0);
    let finding = || Finding {
        rule: "memory-stalls",
        evidence: format!(
            "Clearing caches and allocating took {} per token on average ({})",
            time(stalled),
            per_cent(share)
        ),
        limit: share_limit(seen),
        meaning: "memory is freed and allocated again while tokens wait".into(),
        next: "clear caches less often (`--cache-clear-interval 0` never does), and allocate before the first token"
            .into(),
    };
    (share > seen.thresholds.lost_share).then(|| bad(finding(), stalled))
}

fn host(seen: &Offload) -> Option<Bottleneck> {
    let (late, issuing) = (seen.usual.host_late, seen.usual.issuing);
    let most = late.max(issuing);
    let share = most / seen.length.median.max(1.0);
    let finding = || Finding {
        rule: "host-late",
        evidence: format!(
            "Per token, the GPU was idle for {} before layers that were ready, and the host needed {} to issue copies",
            time(late),
            time(issuing)
        ),
        limit: share_limit(seen),
        meaning: "the host issues work too slowly".into(),
        next: "launch layers as CUDA graphs, and copy each layer as one block".into(),
    };
    (share > seen.thresholds.lost_share).then(|| bad(finding(), most))
}
