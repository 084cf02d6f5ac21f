//! Whether the link is the limit, or stays below what it can do.

use super::{Bottleneck, Severity};
use crate::{
    finding::Finding,
    offload::Offload,
    units::{per_cent, three_figures, time},
};

/// Copies that are smaller take as long to begin as to move.
pub(super) const SMALL: u64 = 4 << 20;

/// The link is slow, or the link is the limit; not both.
pub(super) fn finding(seen: &Offload) -> Option<Bottleneck> {
    slow(seen).or_else(|| limit(seen))
}

fn is_worth_it(seen: &Offload, nanos: f64) -> bool {
    nanos > seen.thresholds.lost_share * seen.length.median
}

/// Copies stay far below the peak of the link, and compute waits for them.
fn slow(seen: &Offload) -> Option<Bottleneck> {
    let (rate, peak) = (seen.gb_s()?, seen.facts.link_gbps?);
    if rate >= seen.thresholds.link_share * peak || !is_worth_it(seen, seen.usual.exposed) {
        return None;
    }
    let (meaning, next) = why_slow(seen);
    let at_peak = seen.usual.bytes / peak;
    Some(Bottleneck {
        severity: Severity::Bad,
        finding: Finding {
            rule: "link_below_peak",
            evidence: format!(
                "Copies reached {} GB/s, {} of the {} GB/s that {} of the link",
                three_figures(rate),
                per_cent(rate / peak),
                three_figures(peak),
                if seen.facts.is_emulated() { "are emulated" } else { "were measured" }
            ),
            limit: per_cent(seen.thresholds.link_share),
            meaning: meaning.into(),
            next: next.into(),
        },
        gain_ns: Some((seen.usual.copied - at_peak).clamp(0.0, seen.usual.exposed)),
    })
}

fn why_slow(seen: &Offload) -> (&'static str, &'static str) {
    let is_pageable = seen.layers.iter().any(|layer| layer.pinned == Some(false));
    let bytes = || seen.layers.iter().filter_map(|layer| layer.bytes);
    let is_small = bytes().max().is_some_and(|largest| largest < SMALL);
    if matches!(seen.facts.link_kind.as_deref(), Some("file" | "emulated")) {
        ("they are read from a file, and what reads it is slower than the link", "name a faster disk with `TMPDIR`")
    } else if is_pageable {
        ("they come from pageable memory and go through a buffer of the driver", "pin the host memory of the weights")
    } else if is_small {
        ("they are small, and beginning one takes as long as moving it", "copy a layer as one block")
    } else {
        (
            "something else uses the link or the host's memory",
            "look for copies back, other processes and memory of another node",
        )
    }
}

/// Even perfect overlap leaves compute waiting.
fn limit(seen: &Offload) -> Option<Bottleneck> {
    let least = &seen.minimum;
    let left = least.with_wrap.saturating_sub(least.compute) as f64;
    if !is_worth_it(seen, left) || seen.async_share()? < seen.thresholds.async_bad {
        return None;
    }
    let rate = seen.gb_s().map_or_else(String::new, |rate| {
        let amount = amount(seen.usual.bytes);
        let emulated = if seen.facts.is_emulated() { ", emulated" } else { "" };
        format!(" ({amount} at {} GB/s{emulated})", three_figures(rate))
    });
    Some(Bottleneck {
        severity: Severity::Bad,
        finding: Finding {
            rule: "link_limit",
            evidence: format!(
                "A token copies for {}{rate} and computes for {}: with perfect overlap {} of waiting remain",
                time(least.copies as f64),
                time(least.compute as f64),
                time(left)
            ),
            limit: format!("{} of a token", per_cent(seen.thresholds.lost_share)),
            meaning: "the link is the limit, and prefetching cannot hide it".into(),
            next: remedies(seen, left),
        },
        // At best everything is hidden: a token is never shorter than what it computes.
        gain_ns: Some(left.max(seen.usual.exposed).min((seen.length.median - least.compute as f64).max(0.0))),
    })
}

/// Bytes in a unit in which they are no fraction of one.
fn amount(bytes: f64) -> String {
    if bytes < 1e8 {
        format!("{} MB", three_figures(bytes / 1e6))
    } else {
        format!("{} GB", three_figures(bytes / 1e9))
    }
}

/// What would make the traffic smaller, each with what it would bring.
fn remedies(seen: &Offload, left: f64) -> String {
    let counted = (seen.tokens.len() - seen.cold).max(1) as f64;
    let copies: u64 = seen.layers.iter().map(|layer| layer.copies).sum();
    let forwards = copies as f64 / counted / seen.layers.len().max(1) as f64;
    let a_layer = (seen.usual.copied / seen.layers.len().max(1) as f64).max(1.0);
    let layers = (left / a_layer).ceil().min(seen.layers.len() as f64);
    let half = time(left.min(seen.usual.copied / 2.0));
    let mut told = vec![format!(
        "keep more layers on the device (about {} less a token for each, {layers} for all of it)",
        time(left.min(a_layer))
    )];
    if forwards > 1.5 {
        told.push(format!("batch the streams with `--mode batched` (about {half} less)"));
    }
    told.push(smaller_weights(seen, &half));
    told.join(", or ")
}

/// A smaller number type, where there is one that runs.
fn smaller_weights(seen: &Offload, half: &str) -> String {
    match seen.facts.dtype.as_deref() {
        Some("f32") => format!("weights of half the bytes with `--dtype bf16` (about {half} less)"),
        _ => format!(
            "weights of half the bytes (about {half} less; `float8_e4m3fn` is refused: nothing here computes with it)"
        ),
    }
}
