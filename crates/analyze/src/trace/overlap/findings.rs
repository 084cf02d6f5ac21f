//! Findings about copies.

use hashbrown::{HashMap, HashSet};

use laptime_trace::{Nanos, TrackId};

use super::{DeviceOverlap, Moves, Path, Traffic};
use crate::{devices::WorkKind, finding::Finding, note::plural};

/// Copies that take a smaller share of the window are not worth hiding.
const LEAST_SHARE: f64 = 0.01;

/// Copies do not overlap with compute if less than this share of their time does.
const LEAST_HIDDEN: f64 = 0.01;

/// A stream is a compute stream if it runs at least this share of the device's compute.
const LEAST_COMPUTE: f64 = 0.01;

/// The rate of smaller copies is not reported: their time is mostly latency.
const LEAST_BYTES: u64 = 64 << 10;

/// Fewer bytes through pageable memory are not a finding …
const LEAST_PAGEABLE_BYTES: u64 = 1 << 20;

/// … nor is a smaller share of the window.
const LEAST_PAGEABLE_SHARE: f64 = 0.001;

/// Copies within a device are a finding from this share of the window on.
const LEAST_WITHIN: f64 = 0.05;

/// Pageable copies are slower than pinned ones below this share of their rate.
const SLOWER: f64 = 0.95;

/// Findings about the copies of one device, which is named if there are several.
pub(super) fn findings(moves: &Moves<'_>, overlap: &DeviceOverlap, is_named: bool) -> Vec<Finding> {
    let on = if is_named { format!(" on {}", overlap.name) } else { String::new() };
    let mut found: Vec<Finding> = overlap
        .copies
        .iter()
        .filter(|(path, traffic)| path.is_pageable() && matters(overlap, traffic))
        .map(|(path, traffic)| pageable(overlap, *path, traffic, &on))
        .collect();
    found.extend(exposed(moves, overlap, &on));
    found.extend(within(overlap, &on));
    found
}

/// Whether pageable copies matter: enough bytes, and enough of the window.
fn matters(overlap: &DeviceOverlap, traffic: &Traffic) -> bool {
    let share = traffic.time.0 as f64 / overlap.window.0.max(1) as f64;
    traffic.bytes.is_none_or(|bytes| bytes >= LEAST_PAGEABLE_BYTES) && share >= LEAST_PAGEABLE_SHARE
}

/// Copies within the device that take long while nothing is computed.
fn within(overlap: &DeviceOverlap, on: &str) -> Option<Finding> {
    let (_, traffic) = overlap.copies.iter().find(|(path, _)| *path == Path::Within)?;
    let share = traffic.exposed().0 as f64 / overlap.window.0.max(1) as f64;
    (share >= LEAST_WITHIN).then(|| Finding {
        rule: "device-copies",
        evidence: format!(
            "{}{on} within the GPU{} took {:.1} % of the time while nothing was computed",
            plural(traffic.count, "copy", "copies"),
            traffic.bytes.map_or_else(String::new, |bytes| format!(" ({})", size(bytes))),
            100.0 * share
        ),
        limit: String::new(),
        meaning: "tensors are copied from one place in GPU memory to another".to_owned(),
        next: "avoid the copies (`contiguous()`, `clone()`, `cat`), write results where they are needed, or fuse the \
               copies into kernels"
            .to_owned(),
    })
}

fn pageable(overlap: &DeviceOverlap, path: Path, traffic: &Traffic, on: &str) -> Finding {
    let is_large = |traffic: &Traffic| traffic.bytes.is_some_and(|bytes| bytes / traffic.count.max(1) >= LEAST_BYTES);
    let rate = |traffic: &Traffic| traffic.gb_s().filter(|_| is_large(traffic));
    let pinned = path.pinned().and_then(|pinned| overlap.copies.iter().find(|(path, _)| *path == pinned));
    let pinned = pinned.and_then(|(_, traffic)| rate(traffic));
    let rate = rate(traffic);
    let is_slower = rate.zip(pinned).is_some_and(|(rate, pinned)| rate < SLOWER * pinned);
    let against = match pinned {
        Some(pinned) if is_slower => format!(" (pinned copies reach {pinned:.1} GB/s)"),
        Some(pinned) => format!(" (pinned copies: {pinned:.1} GB/s)"),
        None => String::new(),
    };
    let rate = rate.map_or_else(String::new, |rate| format!(" at {rate:.1} GB/s{against}"));
    let bytes = traffic.bytes.map_or_else(String::new, |bytes| format!(" ({})", size(bytes)));
    let way = if path.is_upload() { "host-to-device" } else { "device-to-host" };
    let copies = plural(traffic.count, &format!("{way} copy"), &format!("{way} copies"));
    let next = if path.is_upload() {
        "pin the host memory (`DataLoader(pin_memory=True)`, `tensor.pin_memory()`) and copy with `non_blocking=True`"
    } else {
        "copy into a pinned host tensor with `non_blocking=True`, and wait for an event before reading it"
    };
    Finding {
        rule: "pageable-copy",
        evidence: format!("{copies}{on}{bytes} used pageable memory{rate}"),
        limit: String::new(),
        meaning: if is_slower {
            "the driver copies through a buffer of its own, which is slower and may block the host"
        } else {
            "the driver copies through a buffer of its own, which may block the host"
        }
        .to_owned(),
        next: next.to_owned(),
    }
}

/// Copies to or from the device that could overlap with compute but do not.
fn exposed(moves: &Moves<'_>, overlap: &DeviceOverlap, on: &str) -> Option<Finding> {
    let crossing: Vec<_> = moves.copies.iter().filter(|(path, _)| path.crosses()).map(|(_, one)| *one).collect();
    let traffic = moves.copy_traffic(&crossing);
    let share = traffic.time.0 as f64 / overlap.window.0.max(1) as f64;
    let is_hidden = traffic.hidden_share().is_none_or(|hidden| hidden >= LEAST_HIDDEN);
    if overlap.is_stages || overlap.compute == Nanos(0) || share < LEAST_SHARE || is_hidden {
        return None;
    }
    let computing = computing(moves);
    let has_own_stream = crossing.iter().any(|one| !computing.contains(&one.work.stream));
    let copies = plural(traffic.count, "copy", "copies");
    let (run, took) = if traffic.count == 1 { ("runs", "it takes") } else { ("run", "they take") };
    let limit = format!("{:.0} % of the device's time and {:.0} % hidden", 100.0 * LEAST_SHARE, 100.0 * LEAST_HIDDEN);
    let share = format!("{took} {:.1} % of the time, {:.1} % of it hidden", 100.0 * share, {
        100.0 * traffic.hidden_share().unwrap_or(0.0)
    });
    Some(if has_own_stream {
        Finding {
            rule: "copies-never-overlap",
            evidence: format!(
                "{copies} to or from the GPU{on} {run} on a separate stream but hardly overlap with compute: {share}"
            ),
            limit,
            meaning: "something serialises copies and compute".to_owned(),
            next:
                "look for pageable memory, syncs (`laptime syncs`) and events between the streams; copy the next batch \
                   while this one is computed"
                    .to_owned(),
        }
    } else {
        Finding {
            rule: "copies-on-compute-stream",
            evidence: format!("{copies} to or from the GPU{on} {run} on compute streams: {share}"),
            limit,
            meaning: "work on one stream runs in order, so these copies cannot overlap with compute".to_owned(),
            next: "issue copies on a separate stream, and make compute wait for them with an event".to_owned(),
        }
    })
}

/// The compute streams.
fn computing(moves: &Moves<'_>) -> HashSet<TrackId> {
    let mut streams: HashMap<TrackId, u64> = HashMap::new();
    for work in moves.device.work.iter().filter(|work| work.kind == WorkKind::Compute) {
        let time = streams.entry(work.stream).or_default();
        *time = time.saturating_add(work.length());
    }
    let least = LEAST_COMPUTE * moves.compute.length() as f64;
    streams.into_iter().filter(|(_, time)| *time as f64 >= least).map(|(stream, _)| stream).collect()
}

fn size(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.iter().find(|(_, shift)| bytes >> shift > 0);
    unit.map_or_else(
        || format!("{bytes} bytes"),
        |(name, shift)| format!("{:.1} {name}", bytes as f64 / (1_u64 << shift) as f64),
    )
}
