//! The time of devices by finding: every idle or exposed moment of a device belongs to one finding.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};

use laptime_trace::{Activity, NameId, SpanId, Trace, TrackId};

use super::limits::FindingLimits;
use super::rules::{UNKNOWN, rule};
use crate::bottleneck::{Bottleneck, Evidence, Severity};
use crate::devices::{DeviceWork, Work, WorkKind};
use crate::python_lines::{line_of_samples, source_line};
use crate::ranks::{Describer, communication};
use crate::units::{per_cent, time};
use crate::{
    gap_cause::is_pageable,
    gap_verdict::VerdictKind,
    gaps::is_within_device,
    host_tree::HostPlace,
    idle_pieces::IdleKind,
    intervals::Stretches,
    lap_unit::{family, is_step},
    note::{capital, plural},
    timeline::Timeline,
};

/// Shares are of at least this share of the time, however little one-off initialisation leaves of it.
const LEAST_STEADY: f64 = 0.1;

/// Without laps, what happens this often is in a loop.
const LEAST_TIMES: usize = 3;

/// A shorter kernel is mostly overhead of its own.
const OVERHEAD: u64 = 5_000;

/// What recording one event of the host costs it, if a profiler records the operations of a framework. A training step with
/// 2,093 events became 5.3 ms longer under torch.profiler.
const EVENT_COST: f64 = 2_000.0;

/// A host that costs more of the time than this is late without a profiler too.
const MOST_LATE: f64 = 0.2;

/// Findings about a host that is late. A profiler makes it later.
const LATE_HOST: [&str; 3] = ["launch-bound", "tiny-kernels", "host-starved"];

/// A finding is mostly in something from this share of its time on …
const MOSTLY: f64 = 0.5;

/// … and with a smaller share than this it is spread over many places.
const NOTABLE: f64 = 0.25;

/// Longer names are cut in sentences.
const MOST_LETTERS: usize = 60;

/// How many enclosing spans are searched: files can nest without limit.
const MOST_OUTWARDS: usize = 256;

/// Spans that are kept as evidence of a finding.
const MOST_EVIDENCE: usize = 5;

/// The time of one finding.
#[derive(Default)]
struct Charge {
    /// Intervals of each device.
    stretches: Vec<Vec<(u64, u64)>>,
    /// The time that each span accounts for.
    spans: HashMap<SpanId, u64>,
    /// Intervals without a span: device and interval.
    bare: Vec<(usize, u64, u64)>,
}

impl Charge {
    fn bare_time(&self) -> u64 {
        self.bare.iter().map(|(_, from, to)| to - from).sum()
    }
}

/// What most of the time of a finding is spent in.
#[derive(Default)]
struct Most {
    /// The name of the spans; none if nothing was recorded.
    name: Option<NameId>,
    time: u64,
    /// The time as a share of that of the finding.
    share: f64,
    /// How many spans have the name.
    count: u64,
}

/// The time of devices by finding.
pub(super) struct Charges<'t> {
    timeline: &'t Timeline<'t>,
    /// The devices with enough work, by index.
    judged: Vec<usize>,
    charges: BTreeMap<&'static str, Charge>,
    whole: f64,
    /// The host time that the profiler needed, if it recorded operations.
    profiler: f64,
}

impl<'t> Charges<'t> {
    /// Charges idle time by reason, and copies and communication that run alone.
    pub(super) fn of(timeline: &'t Timeline<'t>, judged: &[usize]) -> Self {
        let devices = &timeline.devices.devices;
        let window = |at: &usize| devices[*at].recorded_length() as f64;
        let whole = judged.iter().map(window).fold(0.0, f64::max);
        let profiler = profiler_time(timeline);
        let mut found = Self { timeline, judged: judged.to_vec(), charges: BTreeMap::new(), whole, profiler };
        for &at in judged {
            for piece in &timeline.pieces[at].pieces {
                found.add(piece.kind.id(), at, piece.from, piece.to, piece.span);
            }
            found.add_copies(at, &devices[at]);
        }
        found.add_communication();
        found.add_tiny_kernels();
        // What happens once says little about the rest, so shares are of the time without it.
        let starting = found.charges.get("cold-start").map_or(0.0, |charge| found.gain(charge));
        found.whole = (whole - starting).max(LEAST_STEADY * whole);
        found
    }

    /// Kernels that are mostly overhead of their own: fusing them removes them together with the pauses.
    fn add_tiny_kernels(&mut self) {
        for at in self.judged.clone() {
            let pieces = &self.timeline.pieces[at].pieces;
            let tiny = pieces.iter().filter(|piece| piece.kind == IdleKind::Tiny).map(|piece| piece.from);
            let gaps: HashSet<u64> = tiny.collect();
            let works = &self.timeline.devices.devices[at].work;
            let is_tiny = |work: &&Work| work.kind == WorkKind::Compute && work.length() < OVERHEAD;
            let kernels: Vec<Work> =
                works.iter().filter(is_tiny).filter(|work| gaps.contains(&work.end)).copied().collect();
            kernels.iter().for_each(|work| self.add("tiny-kernels", at, work.start, work.end, Some(work.id)));
        }
    }

    /// Charges an interval of a device to a finding.
    pub(super) fn add(&mut self, id: &'static str, device: usize, from: u64, to: u64, span: Option<SpanId>) {
        if from >= to {
            return;
        }
        let devices = self.timeline.devices.devices.len().max(1);
        let charge = self.charges.entry(id).or_default();
        charge.stretches.resize_with(devices, Vec::new);
        match charge.stretches[device].last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => charge.stretches[device].push((from, to)),
        }
        match span {
            Some(span) => *charge.spans.entry(span).or_default() += to - from,
            None => charge.bare.push((device, from, to)),
        }
    }

    /// Sets the time that shares refer to, for a trace without devices.
    pub(super) fn set_whole(&mut self, whole: f64) {
        self.whole = whole;
    }

    /// The time that shares refer to, in nanoseconds.
    pub(super) fn whole(&self) -> f64 {
        self.whole
    }

    pub(super) fn judged(&self) -> &[usize] {
        &self.judged
    }

    /// Everything that was charged on a device.
    pub(super) fn charged(&self, device: usize) -> Stretches {
        let of_device = self.charges.values().filter_map(|charge| charge.stretches.get(device));
        Stretches::union(of_device.flatten().copied().collect())
    }

    fn add_copies(&mut self, at: usize, device: &DeviceWork) {
        let trace = self.timeline.trace;
        let kernels = device.stretches(|work| work.kind != WorkKind::Copy);
        let mut reached = 0;
        for work in device.work.iter().filter(|work| work.kind == WorkKind::Copy) {
            let id = if is_within_device(trace, work) {
                "device-copies"
            } else if is_pageable(trace, work) && !is_small(trace, work) {
                "pageable-copy"
            } else {
                "exposed-copy"
            };
            // Copies that overlap count once.
            let alone = kernels.gaps_in(work.start.max(reached), work.end);
            reached = reached.max(work.end);
            alone.parts().iter().for_each(|&(from, to)| self.add(id, at, from, to, Some(work.id)));
        }
    }

    /// Collectives that run alone: until the last device has started them they wait for a straggler.
    fn add_communication(&mut self) {
        let last_starts = last_starts(self.timeline, &self.judged);
        for at in self.judged.clone() {
            let device = &self.timeline.devices.devices[at];
            let compute = device.busy_with(WorkKind::Compute);
            let mut reached = 0;
            for work in device.work.iter().filter(|work| work.kind == WorkKind::Communication) {
                let from = work.start.max(reached);
                let late = last_starts.get(&work.id).copied().unwrap_or(from).clamp(from.min(work.end), work.end);
                for (id, from, to) in [("rank-skew", from, late), ("exposed-communication", late, work.end)] {
                    let alone = compute.gaps_in(from, to);
                    alone.parts().iter().for_each(|&(from, to)| self.add(id, at, from, to, Some(work.id)));
                }
                reached = reached.max(work.end);
            }
        }
    }

    /// The findings whose share of the time reaches their threshold.
    pub(super) fn findings(&self, limits: &FindingLimits) -> Vec<Bottleneck> {
        self.charges.iter().filter_map(|(id, charge)| self.finding(id, charge, limits)).collect()
    }

    /// What fixing all findings would gain: moments that several findings explain count once.
    pub(super) fn together(&self, findings: &[Bottleneck]) -> f64 {
        let gaining = findings.iter().filter(|found| found.gain_ns.is_some());
        let ids: HashSet<&str> = gaining.map(|found| found.finding.rule).collect();
        let charges = || self.charges.iter().filter(|(id, _)| ids.contains(*id)).map(|(_, charge)| charge);
        let of_device = |at: usize| {
            let parts = charges().filter_map(|charge| charge.stretches.get(at)).flatten().copied();
            Stretches::union(parts.collect()).length() as f64
        };
        let count = self.judged.len().max(1);
        (0..count.max(self.timeline.devices.devices.len())).map(of_device).sum::<f64>() / count as f64
    }

    /// The mean over devices.
    fn gain(&self, charge: &Charge) -> f64 {
        let all: u64 = charge.stretches.iter().map(|parts| Stretches::union(parts.clone()).length()).sum();
        all as f64 / self.judged.len().max(1) as f64
    }

    fn finding(&self, id: &'static str, charge: &Charge, limits: &FindingLimits) -> Option<Bottleneck> {
        let gain = self.gain(charge);
        let whole = if id == "cold-start" { self.whole + gain } else { self.whole };
        let share = if whole > 0.0 { (gain / whole).min(1.0) } else { 0.0 };
        let rule = rule(id)?;
        let is_large = limits.is_bad(id, share);
        let is_once = !self.is_in_loop(id, charge);
        if share < limits.of(id) || gain <= 0.0 || is_once && !is_large {
            return None;
        }
        let is_by_profiler = LATE_HOST.contains(&id) && self.is_late_by_profiler();
        let is_bad = is_large && !is_once && !is_by_profiler;
        let severity = if is_bad { Severity::Bad } else { Severity::Notable };
        let limit = format!("{} of the time", per_cent(limits.of(id)));
        let place = self.place(id).filter(|place| place.time.0 as f64 >= NOTABLE * gain);
        let is_known = |most: &Most| place.is_none() && (most.name.is_some() || LATE_HOST.contains(&id));
        let most = self.most(charge).filter(is_known);
        let named = self.named(charge, place, most.as_ref());
        let mut finding = rule.finding(self.summary(id, charge, (gain, share), place, most.as_ref(), &named), limit);
        if let Some(waiting) = self.waiting(id, charge) {
            let waiting = time(waiting / self.judged.len().max(1) as f64);
            finding.evidence += &format!(
                "; {waiting} of it exceeds the shortest call with the same message, so it is probably spent waiting for \
                 other ranks"
            );
            finding.next =
                format!("find the late rank (`laptime ranks` with the traces of all ranks), {}", finding.next);
        }
        let gain_ns = Some(gain).filter(|_| rule.gain != UNKNOWN);
        Some(Bottleneck { severity, finding, gain_ns, evidence: self.evidence(charge, &named) })
    }

    /// The exposed time of collectives beyond the shortest one with the same message, if it is most of the time.
    fn waiting(&self, id: &str, charge: &Charge) -> Option<f64> {
        if id != "exposed-communication" {
            return None;
        }
        let describer = Describer::of(self.timeline.trace);
        let mut messages: HashMap<(NameId, String), Vec<&Work>> = HashMap::new();
        for work in self.judged.iter().flat_map(|&at| communication(&self.timeline.devices.devices[at])) {
            if let Some(message) = describer.message(work) {
                messages.entry((self.timeline.trace.span_name(work.id), message)).or_default().push(work);
            }
        }
        let beyond = |works: &Vec<&Work>| {
            let shortest = works.iter().map(|work| work.length()).min().unwrap_or(0);
            let exposed = |work: &&Work| charge.spans.get(&work.id).copied().unwrap_or(0).min(work.length() - shortest);
            works.iter().map(exposed).sum::<u64>()
        };
        let waiting: u64 = messages.values().filter(|works| works.len() >= LEAST_TIMES).map(beyond).sum();
        (2 * waiting > charge.spans.values().sum::<u64>()).then_some(waiting as f64)
    }

    /// Whether the profiler's own time can explain all the time that a late host costs.
    fn is_late_by_profiler(&self) -> bool {
        let late = LATE_HOST.iter().filter_map(|id| self.charges.get(id));
        late.map(|charge| self.gain(charge)).sum::<f64>() <= self.profiler.min(MOST_LATE * self.whole)
    }

    /// A remark on findings that the profiler may have caused.
    pub(super) fn profiler_remark(&self, findings: &[Bottleneck]) -> Option<String> {
        let is_late = findings.iter().any(|found| LATE_HOST.contains(&found.finding.rule));
        (is_late && self.is_late_by_profiler()).then(|| {
            format!(
                "Recording the operations took the host about {}; without the profiler it may be fast enough.",
                time(self.profiler)
            )
        })
    }

    /// Whether a finding about a loop was seen often enough: in two laps, or three times without laps.
    fn is_in_loop(&self, id: &str, charge: &Charge) -> bool {
        if !matches!(id, "sync-in-loop" | "allocation-in-loop") {
            return true;
        }
        let Some(unit) = &self.timeline.unit else { return charge.spans.len() >= LEAST_TIMES };
        let trace = self.timeline.trace;
        let laps = charge.spans.keys().filter_map(|span| unit.at(trace.span_start(*span).0));
        laps.collect::<HashSet<usize>>().len() >= 2 || charge.spans.len() >= LEAST_TIMES * unit.laps.len()
    }

    /// What was seen: `Device 0 lost 41.2 ms (20.1 % of its time): mostly 200 × cudaStreamSynchronize, at …`.
    fn summary(
        &self,
        id: &str,
        charge: &Charge,
        (gain, share): (f64, f64),
        place: Option<&HostPlace>,
        most: Option<&Most>,
        named: &HashSet<SpanId>,
    ) -> String {
        let who = match self.judged.as_slice() {
            [] => "The thread with the laps".to_owned(),
            [one] => capital(&self.timeline.devices.devices[*one].name),
            many => format!("Each of {} devices", many.len()),
        };
        let verb = if rule(id).is_some_and(|rule| rule.gain == UNKNOWN) { "spends" } else { "loses" };
        let mut text = format!("{who} {verb} {} ({} of its time)", time(gain), per_cent(share));
        if let Some(place) = place {
            text += &format!(": {}", in_words(place));
        } else if let Some(most) = most {
            text += &self.most_in_words(id, most);
        }
        // No line stands for time that is spread over many places.
        let is_spread = most.is_some_and(|most| most.share < NOTABLE);
        if let Some(line) = self.line(charge, named, is_spread) {
            text += &format!(", at `{line}`");
        }
        text
    }

    /// The cause with the most time: `, mostly during …`, or its part of the time if it is less than half.
    fn most_in_words(&self, id: &str, most: &Most) -> String {
        let during = match most.name {
            Some(name) => {
                // The span of these is the work that started late.
                let when = if matches!(id, "unexplained-idle" | "stream-bound") { "before" } else { "during" };
                let name = shortened(self.timeline.trace.name(name));
                format!("{when} `{name}` ({})", plural(most.count, "time", "times"))
            }
            None => "while the host recorded no operation".to_owned(),
        };
        match most.share {
            share if share >= MOSTLY => format!(", mostly {during}"),
            share if share >= NOTABLE => format!(", of which {} {during}", time(most.time as f64)),
            _ => format!(", spread over many places: at most {} {during}", time(most.time as f64)),
        }
    }

    /// Where in the host code the time was spent, for findings about the host.
    fn place(&self, id: &str) -> Option<&HostPlace> {
        let pieces = self.judged.iter().map(|&at| &self.timeline.pieces[at]);
        let places = pieces.filter_map(|pieces| match id {
            "host-starved" => pieces.late_place.as_ref(),
            "data-loading" => pieces.host.place(VerdictKind::DataLoading),
            "cold-start" => pieces.host.place(VerdictKind::ColdStart),
            _ => None,
        });
        places.max_by_key(|place| place.time)
    }

    /// The name with the most time. Time in a step of the profiler and in none of its children has no name.
    fn most(&self, charge: &Charge) -> Option<Most> {
        let mut names: HashMap<Option<NameId>, Most> = HashMap::new();
        for (&span, &time) in &charge.spans {
            let name = self.name_of(span);
            let most = names.entry(name).or_insert(Most { name, ..Most::default() });
            (most.time, most.count) = (most.time + time, most.count + 1);
        }
        if !charge.bare.is_empty() {
            names.entry(None).or_default().time += charge.bare_time();
        }
        let all: u64 = names.values().map(|most| most.time).sum();
        let most = names.into_values().max_by_key(|most| (most.time, std::cmp::Reverse(most.name)))?;
        Some(Most { share: most.time as f64 / all.max(1) as f64, ..most })
    }

    fn name_of(&self, span: SpanId) -> Option<NameId> {
        let trace = self.timeline.trace;
        Some(trace.span_name(span)).filter(|name| !is_step(trace.name(*name)))
    }

    /// The spans inside the place, or with the name, that explain a finding; all without either.
    fn named(&self, charge: &Charge, place: Option<&HostPlace>, most: Option<&Most>) -> HashSet<SpanId> {
        let trace = self.timeline.trace;
        let spans = charge.spans.keys().copied();
        match (place, most) {
            (Some(place), _) => {
                let innermost = place.inside.as_ref().map_or(&place.name, |(name, _)| name);
                let is_place = |name: NameId| trace.name(name) == innermost || family(trace.name(name)) == *innermost;
                let mut known: HashMap<NameId, bool> = HashMap::new();
                let mut is_inside = |span: SpanId| {
                    let mut around = std::iter::successors(Some(span), |id| trace.span_parent(*id)).take(MOST_OUTWARDS);
                    around.any(|id| *known.entry(trace.span_name(id)).or_insert_with_key(|name| is_place(*name)))
                };
                spans.filter(|span| is_inside(*span)).collect()
            }
            (None, Some(most)) => spans.filter(|span| self.name_of(*span) == most.name).collect(),
            (None, None) => spans.collect(),
        }
    }

    /// The source line with the most time of the named spans: of Python stacks, else of samples of the launching thread.
    fn line(&self, charge: &Charge, named: &HashSet<SpanId>, is_spread: bool) -> Option<String> {
        let (trace, activities) = (self.timeline.trace, &self.timeline.devices.activities);
        let mut lines: HashMap<String, u64> = HashMap::new();
        let of_name = charge.spans.iter().filter(|(span, _)| !is_spread && named.contains(*span));
        for (&span, &time) in longest(of_name.collect(), 64) {
            if let Some(line) = source_line(trace, activities, span) {
                *lines.entry(line).or_default() += time;
            }
        }
        let of_stacks = lines.into_iter().max_by(|a, b| (a.1, &b.0).cmp(&(b.1, &a.0))).map(|(line, _)| line);
        of_stacks.or_else(|| {
            let of_device = |(at, parts): (usize, &Vec<(u64, u64)>)| {
                let track = self.timeline.devices.devices[at].launching_thread(trace)?;
                line_of_samples(trace, track, &Stretches::union(parts.clone()))
            };
            let parts = charge.stretches.iter().enumerate().filter(|(at, _)| self.judged.contains(at));
            parts.filter_map(of_device).next()
        })
    }

    /// The longest spans, the named ones first.
    fn evidence(&self, charge: &Charge, named: &HashSet<SpanId>) -> Vec<Evidence> {
        let trace = self.timeline.trace;
        let begin = trace.bounds().map_or(0, |(first, _)| first.0);
        let mut found: Vec<(bool, u64, Evidence)> = Vec::new();
        let (first, others): (Vec<_>, Vec<_>) = charge.spans.iter().partition(|(span, _)| named.contains(*span));
        let is_bare_other = !first.is_empty() && !others.is_empty();
        for (is_other, spans) in [(false, first), (true, others)] {
            for (&span, &time) in longest(spans, MOST_EVIDENCE) {
                let line = source_line(trace, &self.timeline.devices.activities, span);
                let [start_ns, end_ns] = [trace.span_start(span), trace.span_end(span)].map(|at| at.0 - begin);
                let track = track_name(trace, trace.span_track(span));
                let name = trace.name(trace.span_name(span)).to_owned();
                found.push((is_other, time, Evidence { track, name, start_ns, end_ns, line }));
            }
        }
        let mut bare = charge.bare.clone();
        bare.sort_by_key(|(_, from, to)| std::cmp::Reverse(to - from));
        for &(device, from, to) in bare.iter().take(MOST_EVIDENCE) {
            let device = self.timeline.devices.devices.get(device);
            let track = device.map_or_else(String::new, |device| device.name.clone());
            let name = if device.is_some() { "idle" } else { "slow lap" }.to_owned();
            let (start_ns, end_ns) = (from - begin.min(from), to - begin.min(to));
            found.push((is_bare_other, to - from, Evidence { track, name, start_ns, end_ns, line: None }));
        }
        found.sort_by_key(|(is_other, time, evidence)| (*is_other, std::cmp::Reverse(*time), evidence.start_ns));
        found.truncate(MOST_EVIDENCE);
        found.into_iter().map(|(.., evidence)| evidence).collect()
    }
}

/// The host time that a profiler needed for the events of launching threads, if it recorded operations.
fn profiler_time(timeline: &Timeline<'_>) -> f64 {
    let (trace, activities) = (timeline.trace, &timeline.devices.activities);
    let launching: HashSet<TrackId> = (timeline.devices.devices.iter())
        .flat_map(|device| &device.work)
        .filter_map(|work| Some(trace.span_track(work.launch?)))
        .collect();
    let (mut events, mut operations) = (0_u64, 0_u64);
    for span in trace.spans() {
        let activity = activities[span.id.index()];
        let is_operation = matches!(activity, Activity::Operation | Activity::Python);
        if (is_operation || activity.is_call()) && launching.contains(&trace.span_track(span.id)) {
            events += 1;
            operations += u64::from(is_operation);
        }
    }
    if operations > 0 { events as f64 * EVENT_COST } else { 0.0 }
}

/// The spans with the most time.
fn longest<'a>(mut order: Vec<(&'a SpanId, &'a u64)>, most: usize) -> Vec<(&'a SpanId, &'a u64)> {
    let key = |(span, time): &(&SpanId, &u64)| (std::cmp::Reverse(**time), **span);
    if most < order.len() {
        order.select_nth_unstable_by_key(most, key);
        order.truncate(most);
    }
    order.sort_unstable_by_key(key);
    order
}

fn is_small(trace: &Trace, work: &Work) -> bool {
    trace.span(work.id).copy_path().and_then(|path| path.bytes).is_some_and(|bytes| bytes < 64 << 10)
}

/// When the last device started each collective: the same occurrence of a name on devices that have it equally often.
fn last_starts(timeline: &Timeline<'_>, judged: &[usize]) -> HashMap<SpanId, u64> {
    let mut found = HashMap::new();
    if judged.len() < 2 {
        return found;
    }
    let mut by_name: BTreeMap<NameId, Vec<Vec<&Work>>> = BTreeMap::new();
    for (place, &at) in judged.iter().enumerate() {
        let works = timeline.devices.devices[at].work.iter().filter(|work| work.kind == WorkKind::Communication);
        for work in works {
            let of_name =
                by_name.entry(timeline.trace.span_name(work.id)).or_insert_with(|| vec![vec![]; judged.len()]);
            of_name[place].push(work);
        }
    }
    for of_name in by_name.into_values() {
        if of_name.iter().any(|works| works.len() != of_name[0].len()) {
            continue;
        }
        for at in 0..of_name[0].len() {
            let last = of_name.iter().map(|works| works[at].start).max().unwrap_or(0);
            found.extend(of_name.iter().map(|works| (works[at].id, last)));
        }
    }
    found
}

/// A place with what is inside it: `287 ms inside A, of which 213 ms in B`.
fn in_words(place: &HostPlace) -> String {
    let inside = place
        .inside
        .as_ref()
        .map_or_else(String::new, |(name, inside)| format!(", of which {} in `{name}`", time(inside.0 as f64)));
    format!("{} inside `{}`{inside}", time(place.time.0 as f64), place.name)
}

fn track_name(trace: &Trace, track: TrackId) -> String {
    let track = trace.track(track);
    match (trace.name(track.name), track.number) {
        ("", Some(number)) => format!("thread {number}"),
        (name, _) => name.to_owned(),
    }
}

/// A name of at most 60 characters, without the arguments of a kernel.
fn shortened(name: &str) -> String {
    let plain = name.strip_prefix("void ").unwrap_or(name);
    if plain.chars().count() <= MOST_LETTERS {
        return plain.to_owned();
    }
    plain.chars().take(MOST_LETTERS - 1).chain(['…']).collect()
}
