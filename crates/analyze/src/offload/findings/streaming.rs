//! Whether copies are asked for ahead, and whether releases hold anything up.

use super::{Bottleneck, Severity};
use crate::{
    finding::Finding,
    offload::{Offload, OffloadedLayer, Prefetch},
    units::{per_cent, time},
};

/// What is wrong with asking for copies ahead.
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

/// What overlap as good as the mode allows would save.
fn saved(seen: &Offload) -> Option<f64> {
    Some(seen.minimum.saves(seen.facts.wraps()) as f64)
}

fn not_running(seen: &Offload) -> Bottleneck {
    let (_, all) = seen.ahead();
    let longest = seen.passes.iter().filter_map(|layer| layer.exposed_ns).fold(0.0, f64::max);
    let next = match seen.facts.mode.as_deref() {
        Some(mode @ ("sync" | "pinned")) => format!("mode `{mode}` copies when a layer is needed: take `--mode wrap`"),
        _ => {
            "check that copies go to a stream of their own and are asked for before the layer in front computes".into()
        }
    };
    Bottleneck {
        severity: Severity::Bad,
        finding: Finding {
            rule: "async_not_running",
            evidence: format!(
                "None of {all} copies was asked for before its layer's turn, and layers waited up to {}",
                time(longest)
            ),
            limit: limit(seen),
            meaning: "copies and compute take turns, nothing is prefetched".into(),
            next,
        },
        gain_ns: saved(seen),
    }
}

fn partly(seen: &Offload, share: f64) -> Bottleneck {
    let (ahead, all) = seen.ahead();
    let missed = |layer: &&OffloadedLayer| layer.is_async() == Some(false);
    let missing: Vec<String> = seen.layers.iter().filter(missed).map(|layer| layer.layer.to_string()).collect();
    let which = match missing.len() {
        0 => String::new(),
        1..=8 => format!(", most often not those of layers {}", missing.join(", ")),
        many => format!(", most often not those of {many} layers"),
    };
    Bottleneck {
        severity: if share < seen.thresholds.async_bad { Severity::Bad } else { Severity::Notable },
        finding: Finding {
            rule: "async_partly",
            evidence: format!("{ahead} of {all} copies ({}) were asked for ahead{which}", per_cent(share)),
            limit: limit(seen),
            meaning: "compute waits for whole copies of the others".into(),
            next: "ask for the copy of each layer when the one before it begins to compute".into(),
        },
        gain_ns: saved(seen),
    }
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
    let wraps = seen.facts.wraps();
    let (severity, meaning, next) = if wraps {
        (
            Severity::Notable,
            "the pass before it should have prefetched it",
            "look for what empties the buffers between passes",
        )
    } else {
        (Severity::Normal, "that is normal without wrap: nothing runs before it that could prefetch it", {
            "take `--mode wrap`: the last offloaded layer then prefetches the first of the next pass"
        })
    };
    Bottleneck {
        severity,
        finding: Finding {
            rule: "first_layer_not_prefetched",
            evidence: format!(
                "Only layer {}, the first that is offloaded, was not prefetched and waited {}",
                first.layer,
                time(waited)
            ),
            limit: limit(seen),
            meaning: meaning.into(),
            next: next.into(),
        },
        gain_ns: Some(waited * forwards),
    }
}

/// A wait that is too long, where nothing else says why.
pub(super) fn long_wait(seen: &Offload) -> Option<Bottleneck> {
    let limits = &seen.thresholds;
    let waited = |layer: &OffloadedLayer| layer.exposed_ns.unwrap_or(0.0);
    let worst = seen.passes.iter().max_by(|a, b| waited(a).total_cmp(&waited(b)))?;
    let is_long = waited(worst) >= limits.pre_good_ns;
    is_long.then(|| Bottleneck {
        severity: if waited(worst) > limits.pre_bad_ns { Severity::Bad } else { Severity::Notable },
        finding: Finding {
            rule: "long_wait",
            evidence: format!("Compute waited {} for layer {}", time(waited(worst)), worst.layer),
            limit: format!("under {} good, over {} bad", time(limits.pre_good_ns), time(limits.pre_bad_ns)),
            meaning: "its copy was asked for, but too late or behind others".into(),
            next: "look at the copy stream around it in the trace".into(),
        },
        gain_ns: Some(seen.usual.exposed),
    })
}

/// Releases that hold compute up.
pub(super) fn release(seen: &Offload) -> Option<Bottleneck> {
    let limits = &seen.thresholds;
    let took = |layer: &OffloadedLayer| layer.release_ns.unwrap_or(0.0);
    let worst = seen.passes.iter().max_by(|a, b| took(a).total_cmp(&took(b)))?;
    let is_long = took(worst) >= limits.post_good_ns;
    is_long.then(|| Bottleneck {
        severity: if took(worst) > limits.post_bad_ns { Severity::Bad } else { Severity::Notable },
        finding: Finding {
            rule: "release_blocks",
            evidence: format!("The release of layer {} took {}", worst.layer, time(took(worst))),
            limit: format!("under {} good, over {} bad", time(limits.post_good_ns), time(limits.post_bad_ns)),
            meaning: "compute waits while a layer is given up".into(),
            next: "weights do not change: give the buffer up without copying it back (any mode but `sync`)".into(),
        },
        gain_ns: Some(seen.usual.released),
    })
}
