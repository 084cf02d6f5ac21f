//! Whether copies are prefetched, and whether releases block compute.

use super::{Bottleneck, Severity};
use crate::finding::Finding;
use crate::offload::{Offload, OffloadedLayer, Prefetch};
use crate::units::{per_cent, time};

/// Findings about prefetching.
pub(super) fn findings(seen: &Offload) -> Vec<Bottleneck> {
    let Some(share) = seen.async_share() else { return Vec::new() };
    let limits = &seen.thresholds;
    if share >= limits.async_good {
        return Vec::new();
    }
    if seen.ahead().0 == 0 {
        return vec![not_running(seen)];
    }
    if share >= limits.async_bad
        && let Some(first) = first_alone(seen)
    {
        return vec![first_layer(seen, first)];
    }
    vec![partly(seen, share)]
}

fn limit(seen: &Offload) -> String {
    let limits = &seen.thresholds;
    format!("{:.0} % good, under {:.0} % bad", 100.0 * limits.async_good, 100.0 * limits.async_bad)
}

/// The gain of the best overlap that the mode allows.
fn saved(seen: &Offload) -> Option<f64> {
    Some(seen.minimum.saves(seen.facts.wraps()) as f64)
}

fn not_running(seen: &Offload) -> Bottleneck {
    let (_, all) = seen.ahead();
    let longest = seen.passes.iter().filter_map(|layer| layer.exposed_ns).fold(0.0, f64::max);
    let next = match seen.facts.mode.as_deref() {
        Some(mode @ ("sync" | "pinned")) => {
            format!("use `--mode wrap`; mode `{mode}` copies a layer when it is needed")
        }
        _ => "check that copies use a separate stream and are issued before the previous layer computes".into(),
    };
    let finding = Finding {
        rule: "async-not-running",
        evidence: format!(
            "None of {all} copies was issued before its layer was needed; layers waited up to {}",
            time(longest)
        ),
        limit: limit(seen),
        meaning: "copies and compute alternate, nothing is prefetched".into(),
        next,
    };
    finding.bottleneck(Severity::Bad, saved(seen))
}

fn partly(seen: &Offload, share: f64) -> Bottleneck {
    let (ahead, all) = seen.ahead();
    let missed = |layer: &&OffloadedLayer| layer.is_async() == Some(false);
    let missing: Vec<String> = seen.layers.iter().filter(missed).map(|layer| layer.layer.to_string()).collect();
    let which = match missing.len() {
        0 => String::new(),
        1..=8 => format!(", mostly not for layers {}", missing.join(", ")),
        many => format!(", mostly not for {many} layers"),
    };
    let finding = Finding {
        rule: "async-partly",
        evidence: format!("{ahead} of {all} copies ({}) were issued ahead{which}", per_cent(share)),
        limit: limit(seen),
        meaning: "compute waits for the whole copy of the other layers".into(),
        next: "issue the copy of each layer when the previous layer starts to compute".into(),
    };
    finding.bottleneck(if share < seen.thresholds.async_bad { Severity::Bad } else { Severity::Notable }, saved(seen))
}

/// The first offloaded layer, if it is the only one that is not prefetched.
fn first_alone(seen: &Offload) -> Option<&OffloadedLayer> {
    let (first, others) = seen.layers.split_first()?;
    let is_missed = first.prefetch() == Some(Prefetch::Miss);
    (is_missed && others.iter().all(|layer| layer.misses == 0)).then_some(first)
}

fn first_layer(seen: &Offload, first: &OffloadedLayer) -> Bottleneck {
    let counted = (seen.tokens.len() - seen.cold).max(1) as f64;
    let forwards = first.misses as f64 / counted;
    let waited = first.exposed_ns.unwrap_or(0.0);
    let (severity, meaning, next) = if seen.facts.wraps() {
        let next = "find out what empties the buffers between passes";
        (Severity::Notable, "the previous pass should have prefetched it", next)
    } else {
        let next = "use `--mode wrap`: the last offloaded layer then prefetches the first one of the next pass";
        (Severity::Normal, "this is normal without wrap-around: no earlier layer could prefetch it", next)
    };
    let finding = Finding {
        rule: "first-layer-not-prefetched",
        evidence: format!(
            "Only layer {}, the first offloaded layer, was not prefetched; it waited {}",
            first.layer,
            time(waited)
        ),
        limit: limit(seen),
        meaning: meaning.into(),
        next: next.into(),
    };
    finding.bottleneck(severity, Some(waited * forwards))
}

/// The layer for which something took longest, if it is not good, with the severity and the limit.
fn worst(
    seen: &Offload,
    time_of: fn(&OffloadedLayer) -> Option<f64>,
    [good, bad]: [f64; 2],
) -> Option<(&OffloadedLayer, String, Severity, String)> {
    let took = |layer: &OffloadedLayer| time_of(layer).unwrap_or(0.0);
    let worst = seen.passes.iter().max_by(|a, b| took(a).total_cmp(&took(b))).filter(|worst| took(worst) >= good)?;
    let severity = if took(worst) > bad { Severity::Bad } else { Severity::Notable };
    Some((worst, time(took(worst)), severity, format!("under {} good, over {} bad", time(good), time(bad))))
}

/// A long wait that no other finding explains.
pub(super) fn long_wait(seen: &Offload) -> Option<Bottleneck> {
    let limits = [seen.thresholds.pre_good_ns, seen.thresholds.pre_bad_ns];
    let (layer, waited, severity, limit) = worst(seen, |layer| layer.exposed_ns, limits)?;
    let finding = Finding {
        rule: "long-wait",
        evidence: format!("Compute waited {waited} for layer {}", layer.layer),
        limit,
        meaning: "its copy was issued too late or behind other copies".into(),
        next: "look at the copy stream around it in the trace".into(),
    };
    Some(finding.bottleneck(severity, Some(seen.usual.exposed)))
}

/// Releases that block compute.
pub(super) fn release(seen: &Offload) -> Option<Bottleneck> {
    let limits = [seen.thresholds.post_good_ns, seen.thresholds.post_bad_ns];
    let (layer, took, severity, limit) = worst(seen, |layer| layer.release_ns, limits)?;
    let finding = Finding {
        rule: "release-blocks",
        evidence: format!("The release of layer {} took {took}", layer.layer),
        limit,
        meaning: "compute waits while the buffer is freed".into(),
        next: "drop the buffer without copying it back, as every mode but `sync` does: weights do not change".into(),
    };
    Some(finding.bottleneck(severity, Some(seen.usual.released)))
}
