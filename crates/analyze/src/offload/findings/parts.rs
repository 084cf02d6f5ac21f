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
    let steps = seen.facts.diffusion_steps.map_or_else(String::new, |steps| format!(" ({steps} now)"));
    let parts = [
        (
            (seen.usual.compute, "compute-limit", "Computing the layers"),
            "the model itself is the bottleneck, not offloading",
            "find slow kernels with `laptime top`, and waits for the host with `laptime gaps`".to_owned(),
        ),
        (
            (part(TokenPart::Diffusion), "diffusion-limit", "The diffusion head"),
            "it is the bottleneck, not offloading",
            format!("use fewer diffusion steps{steps}, and run them as one CUDA graph"),
        ),
        (
            (
                part(TokenPart::AudioDecode) + part(TokenPart::SemanticEncode),
                "codec-limit",
                "Decoding and encoding audio",
            ),
            "the codec is the bottleneck, not offloading",
            "decode several tokens at once, and check that the codec runs on the GPU (`laptime top`)".to_owned(),
        ),
        (
            (part(TokenPart::Other), "other-limit", "Code outside all stages"),
            "no stage covers where the time goes",
            "see what the host does there (`laptime gaps`, `laptime syncs`), and mark it with `stage!`".to_owned(),
        ),
    ];
    let ((size, rule, what), meaning, next) = parts.into_iter().max_by(|a, b| a.0.0.total_cmp(&b.0.0))?;
    // Waits have findings of their own.
    if seen.usual.exposed + seen.usual.released > size {
        return None;
    }
    let (took, token) = (time(size), time(seen.length.median));
    let share = per_cent(size / seen.length.median.max(1.0));
    let evidence = format!("{what} took {took} of a token of {token} ({share})");
    let limit = format!("a token under {}", time(good));
    Some(bad(Finding { rule, evidence, limit, meaning: meaning.into(), next }, size))
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
        limit: seen.thresholds.lost_limit(),
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
        limit: seen.thresholds.lost_limit(),
        meaning: "the host issues work too slowly".into(),
        next: "launch layers as CUDA graphs, and copy each layer as one block".into(),
    };
    (share > seen.thresholds.lost_share).then(|| bad(finding(), most))
}
