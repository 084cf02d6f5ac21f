//! Whether the link is the bottleneck, or slower than measured.

use super::{Bottleneck, Severity};
use crate::units::{per_cent, three_figures, time};
use crate::{finding::Finding, offload::Offload};

/// The time of smaller copies is mostly latency.
const SMALL: u64 = 4 << 20;

/// Either the link is slower than measured, or it is the bottleneck.
pub(super) fn finding(seen: &Offload) -> Option<Bottleneck> {
    slow(seen).or_else(|| limit(seen))
}

fn is_worth_it(seen: &Offload, nanos: f64) -> bool {
    nanos > seen.thresholds.lost_share * seen.length.median
}

/// Copies are much slower than the link, and compute waits for them.
fn slow(seen: &Offload) -> Option<Bottleneck> {
    let (rate, peak) = (seen.gb_s()?, seen.facts.link_gbps?);
    if rate >= seen.thresholds.link_share * peak || !is_worth_it(seen, seen.usual.exposed) {
        return None;
    }
    let (meaning, next) = why_slow(seen);
    let at_peak = seen.usual.bytes / peak;
    let finding = Finding {
        rule: "link-below-peak",
        evidence: format!(
            "Copies reached {} GB/s, {} of the {} GB/s {} of the link",
            three_figures(rate),
            per_cent(rate / peak),
            three_figures(peak),
            if seen.facts.is_emulated() { "emulated rate" } else { "measured rate" }
        ),
        limit: per_cent(seen.thresholds.link_share),
        meaning: meaning.into(),
        next: next.into(),
    };
    Some(finding.bottleneck(Severity::Bad, Some((seen.usual.copied - at_peak).clamp(0.0, seen.usual.exposed))))
}

fn why_slow(seen: &Offload) -> (&'static str, &'static str) {
    let is_pageable = seen.layers.iter().any(|layer| layer.pinned == Some(false));
    let bytes = || seen.layers.iter().filter_map(|layer| layer.bytes);
    let is_small = bytes().max().is_some_and(|largest| largest < SMALL);
    if matches!(seen.facts.link_kind.as_deref(), Some("file" | "emulated")) {
        ("the weights are read from a file, which is slower than the link", "choose a faster disk with `TMPDIR`")
    } else if is_pageable {
        ("the weights are in pageable memory, so the driver copies them twice", "pin the host memory of the weights")
    } else if is_small {
        ("the copies are small, so latency dominates", "copy each layer as one block")
    } else {
        (
            "something else uses the link or the host's memory",
            "look for copies back to the host, other processes and memory of another NUMA node",
        )
    }
}

/// Compute would wait for copies even with perfect overlap.
fn limit(seen: &Offload) -> Option<Bottleneck> {
    let least = &seen.minimum;
    let left = least.with_wrap.saturating_sub(least.compute) as f64;
    if !is_worth_it(seen, left) || seen.async_share()? < seen.thresholds.async_bad {
        return None;
    }
    let rate = seen.gb_s().map_or_else(String::new, |rate| {
        let (size, unit) = if seen.usual.bytes < 1e8 { (1e6, "MB") } else { (1e9, "GB") };
        let amount = three_figures(seen.usual.bytes / size);
        let emulated = if seen.facts.is_emulated() { ", emulated" } else { "" };
        format!(" ({amount} {unit} at {} GB/s{emulated})", three_figures(rate))
    });
    let finding = Finding {
        rule: "link-bound",
        evidence: format!(
            "Per token, copies take {}{rate} and compute takes {}; with perfect overlap {} of waiting remain",
            time(least.copies as f64),
            time(least.compute as f64),
            time(left)
        ),
        limit: seen.thresholds.lost_limit(),
        meaning: "the link is the bottleneck, and prefetching cannot hide it".into(),
        next: remedies(seen, left),
    };
    // At best all copies are hidden: a token never takes less time than its compute.
    Some(finding.bottleneck(
        Severity::Bad,
        Some(left.max(seen.usual.exposed).min((seen.length.median - least.compute as f64).max(0.0))),
    ))
}

/// Ways to reduce the traffic, each with its estimated gain.
fn remedies(seen: &Offload, left: f64) -> String {
    let counted = (seen.tokens.len() - seen.cold).max(1) as f64;
    let copies: u64 = seen.layers.iter().map(|layer| layer.copies).sum();
    let forwards = copies as f64 / counted / seen.layers.len().max(1) as f64;
    let a_layer = (seen.usual.copied / seen.layers.len().max(1) as f64).max(1.0);
    let layers = (left / a_layer).ceil().min(seen.layers.len() as f64);
    let half = time(left.min(seen.usual.copied / 2.0));
    let mut remedies = vec![format!(
        "keep more layers on the GPU (about {} less per token for each layer; {layers} layers would remove the wait)",
        time(left.min(a_layer))
    )];
    if forwards > 1.5 {
        remedies.push(format!("batch the forward passes with `--mode batched` (about {half} less)"));
    }
    if seen.facts.dtype.as_deref() == Some("f32") {
        remedies.push(format!("use `--dtype bf16` (about {half} less)"));
    }
    remedies.join(", or ")
}
