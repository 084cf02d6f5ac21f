//! Assigns every moment of a trace to one entry, so that the entries add up to the whole.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use laptime_stats::Sorted;
use laptime_trace::{Activity, SpanId, Trace, TrackId, TrackKind};

use crate::devices::{DeviceWork, Devices, Work, WorkKind, devices, pauses};
use crate::lap_unit::{LapUnit, NoLaps, family, lap_unit};
use crate::waits::{Found, waits};
use crate::{
    check::check, families::Families, finding::Finding, gap_cause::device_gaps, group::Group, host::Host,
    intervals::Stretches,
};

/// How device work is grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum By {
    /// The kernel's name.
    #[default]
    Kernel,
    /// The kind of work: matmul, attention, ….
    Group,
    /// The outermost operation of the framework that launched it.
    Operation,
    /// The innermost stage that launched it.
    Stage,
}

/// How to split the time of a trace.
#[derive(Debug, Clone, Default)]
pub struct AccountOptions {
    /// How work is grouped.
    pub by: By,
    /// The name of the repeating unit; detected if none.
    pub lap: Option<String>,
    /// The number of the device; all devices if none.
    pub device: Option<i64>,
}

/// The time of a trace by entry, for laps and for the whole trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Accounts {
    /// From the first lap to the last, if there are laps.
    pub of_laps: Option<Account>,
    /// The whole trace.
    pub whole: Account,
    /// Devices that are not included.
    pub other_devices: usize,
    /// Checks that the trace fails.
    pub findings: Vec<Finding>,
}

/// The time of an interval by entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    /// Whose time it is.
    pub of: Owner,
    /// The laps in it; none for a whole trace.
    pub laps: Option<LapsCovered>,
    /// Its length in nanoseconds; the sum if there are several devices.
    pub total: u64,
    /// Its entries, which add up to the length.
    pub entries: Vec<Entry>,
    /// How many devices are added; 1 for a thread.
    pub devices: u64,
}

/// The laps of an interval.
#[derive(Debug, Clone, PartialEq)]
pub struct LapsCovered {
    /// What repeats.
    pub unit: String,
    /// How many.
    pub count: u64,
    /// How many laps the interval covers: it ends where the last lap starts, so each lap includes what follows it. For
    /// several devices, the sum, so that a share of it belongs to one device.
    pub periods: u64,
    /// The median lap, in nanoseconds.
    pub median: f64,
    /// The kernels of a lap, if it was detected as a sequence of kernels.
    pub kernels: Option<u64>,
}

/// Whose time is split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// A device, by name.
    Device(String),
    /// Several devices, on average.
    Devices(u64),
    /// A thread, by name: the trace has no device.
    Thread(String),
}

laptime_trace::words! {
    /// The kind of an entry.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum EntryKind: word, plural {
        Kernel = ("kernel", "kernels"),
        /// Kernels that exchange data with other devices, while nothing is computed.
        Communication = ("communication", "communication"),
        /// Copies while no kernel runs.
        Copy = ("copy", "copies"),
        /// The device was idle, for one cause.
        Gap = ("gap", "gaps"),
        /// A thread in a stage or an operation.
        Stage = ("stage", "stages"),
        /// A thread in a sync.
        Wait = ("wait", "syncs"),
        Nothing = ("nothing", "nothing recorded"),
    }
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: EntryKind,
    /// Its name.
    pub name: String,
    /// Its time.
    pub time: u64,
    /// How often it occurs.
    pub count: u64,
}

/// Why the time of a trace cannot be split.
#[derive(Debug, Clone, PartialEq)]
pub enum NoAccount {
    /// It has no spans.
    Empty,
    /// It does not have this device; it has these.
    NoSuchDevice(Vec<i64>),
    /// It has no laps with this name.
    NoLaps(NoLaps),
}

/// Splits the time of all devices or of one device, or of a thread if the trace has no device.
///
/// If several kernels run at once, a moment counts for the one that started first; for a copy only if no kernel runs.
pub fn accounts(trace: &Trace, how: &AccountOptions) -> Result<Accounts, NoAccount> {
    let devices = devices(trace);
    let unit = match lap_unit(trace, &devices, how.lap.as_deref()) {
        Ok(unit) => Some(unit),
        Err(no_laps) if how.lap.is_some() => return Err(NoAccount::NoLaps(no_laps)),
        Err(_) => None,
    };
    if devices.devices.is_empty() {
        return on_thread(trace, &devices, unit.as_ref()).ok_or(NoAccount::Empty);
    }
    let wanted: Vec<&DeviceWork> = match how.device {
        None => devices.devices.iter().collect(),
        Some(number) => devices.devices.iter().filter(|device| device.number == Some(number)).collect(),
    };
    if wanted.is_empty() {
        let numbers = devices.devices.iter().filter_map(|device| device.number).collect();
        return Err(NoAccount::NoSuchDevice(numbers));
    }
    let others = devices.devices.len() - wanted.len();
    let waits = waits(trace, &devices);
    let of_device = |device: &DeviceWork| on_device(trace, &devices, device, unit.as_ref(), &waits, how.by);
    let (of_laps, whole): (Vec<_>, Vec<_>) = wanted.into_iter().filter_map(of_device).unzip();
    let whole = together(whole).ok_or(NoAccount::Empty)?;
    let of_laps = together(of_laps.into_iter().flatten().collect());
    Ok(Accounts { of_laps, whole, other_devices: others, findings: check(trace, &devices) })
}

/// Adds up the accounts of devices.
fn together(mut accounts: Vec<Account>) -> Option<Account> {
    if accounts.len() <= 1 {
        return accounts.pop();
    }
    let devices = accounts.len() as u64;
    let mut entries = Entries::default();
    for entry in accounts.iter().flat_map(|account| &account.entries) {
        entries.add(entry.kind, &entry.name, entry.time, entry.count);
    }
    let periods = accounts.iter().filter_map(|account| Some(account.laps.as_ref()?.periods)).sum();
    let laps = accounts.iter().find_map(|account| account.laps.clone()).map(|laps| LapsCovered { periods, ..laps });
    let total = accounts.iter().map(|account| account.total).sum();
    Some(Account { of: Owner::Devices(devices), laps, total, entries: entries.into_entries(), devices })
}

/// Entries while they are collected.
#[derive(Default)]
struct Entries(HashMap<(EntryKind, String), (u64, u64)>);

impl Entries {
    fn add(&mut self, kind: EntryKind, name: &str, time: u64, count: u64) {
        let entry = self.0.entry((kind, name.to_owned())).or_default();
        entry.0 += time;
        entry.1 += count;
    }

    fn into_entries(self) -> Vec<Entry> {
        let entry = |((kind, name), (time, count))| Entry { kind, name, time, count };
        let mut entries: Vec<Entry> = self.0.into_iter().map(entry).collect();
        entries.sort_by(|a, b| (b.time, a.kind, &a.name).cmp(&(a.time, b.kind, &b.name)));
        entries
    }
}

fn on_device(
    trace: &Trace,
    devices: &Devices,
    device: &DeviceWork,
    unit: Option<&LapUnit>,
    waits: &[Found],
    by: By,
) -> Option<(Option<Account>, Account)> {
    let window = Stretches::union(vec![device.window()?]).minus(&device.not_recorded);
    let pieces = pieces(trace, devices, device, waits, by);
    let of = Owner::Device(device.name.clone());
    let of_laps = unit.and_then(|unit| {
        let (stretches, periods) = stretches_of_laps(trace, device, unit)?;
        Some(account(&pieces, &stretches, of.clone(), Some(laps_covered(unit, periods))))
    });
    Some((of_laps, account(&pieces, &window, of, None)))
}

fn laps_covered(unit: &LapUnit, periods: u64) -> LapsCovered {
    let lengths = unit.laps.iter().map(|lap| lap.end - lap.start).collect();
    let median = Sorted::<u64>::from_unsorted(lengths).median().unwrap_or(0.0);
    LapsCovered { unit: unit.name.clone(), count: unit.laps.len() as u64, periods, median, kernels: unit.kernels }
}

/// From the first work of the first lap to the first work of the last lap, and the laps between: a device lags behind
/// the host. A single lap ends with its last work. Laps in which recording was paused are left out.
fn stretches_of_laps(trace: &Trace, device: &DeviceWork, unit: &LapUnit) -> Option<(Stretches, u64)> {
    let mut begins: BTreeMap<usize, u64> = BTreeMap::new();
    let mut reached = 0;
    for work in &device.work {
        if let Some(lap) = unit.of_work(trace, work.start, work.launch) {
            begins.entry(lap).or_insert(work.start);
            reached = reached.max(work.end);
        }
    }
    if let (1, Some((_, &from))) = (begins.len(), begins.first_key_value()) {
        return (from < reached).then(|| (Stretches::union(vec![(from, reached)]).minus(&device.not_recorded), 1));
    }
    let pauses = pauses(trace);
    let (mut stretches, mut periods) = (Vec::new(), 0);
    for ((lap, from), (next, to)) in begins.iter().zip(begins.iter().skip(1)) {
        if pauses.length_within(*from, *to) == 0 {
            stretches.push((*from, *to));
            periods += (next - lap) as u64;
        }
    }
    let stretches = Stretches::union(stretches);
    (stretches.length() > 0).then_some((stretches, periods))
}

/// A time interval of one entry.
struct Piece<'a> {
    from: u64,
    to: u64,
    kind: EntryKind,
    name: Cow<'a, str>,
    /// The entry starts with this interval.
    is_first: bool,
}

fn account(pieces: &[Piece<'_>], within: &Stretches, of: Owner, laps: Option<LapsCovered>) -> Account {
    let mut entries = Entries::default();
    for piece in pieces {
        let time = within.length_within(piece.from, piece.to);
        let is_inside = within.contains(piece.from);
        if time > 0 || is_inside {
            entries.add(piece.kind, &piece.name, time, u64::from(piece.is_first && is_inside));
        }
    }
    Account { of, laps, total: within.length(), entries: entries.into_entries(), devices: 1 }
}

/// Splits the window of a device.
fn pieces<'a>(trace: &'a Trace, devices: &'a Devices, device: &DeviceWork, waits: &[Found], by: By) -> Vec<Piece<'a>> {
    let mut pieces = Vec::with_capacity(device.work.len() + device.work.len() / 2);
    busy_pieces(&device.work, |work, from, to, is_first| {
        let (kind, name) = called(trace, devices, work, by);
        pieces.push(Piece { from, to, kind, name, is_first });
    });
    for gap in device_gaps(trace, devices, device, waits) {
        let name = gap.cause.words().into();
        pieces.push(Piece { from: gap.from, to: gap.to, kind: EntryKind::Gap, name, is_first: true });
    }
    pieces.sort_by_key(|piece| piece.from);
    pieces
}

/// Assigns each busy moment to one piece of work: kernels before copies, then the one that started first.
fn busy_pieces(work: &[Work], mut emit: impl FnMut(&Work, u64, u64, bool)) {
    let mut ends: Vec<(u64, usize)> = work.iter().enumerate().map(|(at, work)| (work.end, at)).collect();
    ends.sort_unstable();
    let mut open: BTreeSet<(WorkKind, usize)> = BTreeSet::new();
    let mut has_started = vec![false; work.len()];
    let (mut starting, mut ending, mut now) = (0, 0, 0);
    while ending < ends.len() {
        let start = work.get(starting).map_or(u64::MAX, |work| work.start);
        let next = start.min(ends[ending].0);
        if let Some(&(_, at)) = open.first().filter(|_| now < next) {
            emit(&work[at], now, next, !has_started[at]);
            has_started[at] = true;
        }
        now = next;
        // Starts are handled before ends, because work can have zero length.
        if start == next {
            open.insert((work[starting].kind, starting));
            starting += 1;
        } else {
            let at = ends[ending].1;
            open.remove(&(work[at].kind, at));
            if !has_started[at] {
                // Hidden behind other work, or of zero length: it counts, but without time.
                emit(&work[at], work[at].start, work[at].start, true);
            }
            ending += 1;
        }
    }
}

fn called<'a>(trace: &'a Trace, devices: &Devices, work: &Work, by: By) -> (EntryKind, Cow<'a, str>) {
    let span = trace.span(work.id);
    let activity = devices.activities[work.id.index()];
    let kind = match work.kind {
        WorkKind::Compute => EntryKind::Kernel,
        WorkKind::Communication => EntryKind::Communication,
        WorkKind::Copy => EntryKind::Copy,
    };
    let name = match by {
        By::Kernel => span.name.into(),
        By::Group => Group::of(activity, span.name).word().into(),
        By::Operation => family(around(trace, &devices.activities, work.launch, Activity::Operation, true)),
        By::Stage => family(around(trace, &devices.activities, work.launch, Activity::Stage, false)),
    };
    (kind, name)
}

/// The outermost or innermost span of a kind around a call.
fn around<'a>(
    trace: &'a Trace,
    activities: &[Activity],
    call: Option<SpanId>,
    wanted: Activity,
    is_outermost: bool,
) -> &'a str {
    let Some(call) = call else { return "launch not recorded" };
    let around = std::iter::once(call).chain(trace.ancestors(trace.span(call)));
    let mut found = around.filter(|id| activities[id.index()] == wanted);
    let found = if is_outermost { found.last() } else { found.next() };
    match (found, wanted) {
        (Some(id), _) => trace.span(id).name,
        (None, Activity::Stage) => "in no stage",
        (None, _) => "in no operation",
    }
}

/// Splits the time of the thread with the laps, or of the busiest thread.
fn on_thread(trace: &Trace, devices: &Devices, unit: Option<&LapUnit>) -> Option<Accounts> {
    let activities = &devices.activities;
    let of_laps = unit.and_then(|unit| Some(trace.span(unit.laps.first()?.span?).track));
    let track = of_laps.or_else(|| busiest_thread(trace))?;
    let first = trace.spans_on(track).map(|span| span.start.0).min()?;
    let last = trace.spans_on(track).map(|span| span.end().0).max()?;
    let host = Host::of(trace, [track]);
    let of = Owner::Thread(trace.name(trace.track(track).name).to_owned());
    let divide = |from: u64, to: u64, laps: Option<LapsCovered>| {
        let parts = host.doing_within(track, from, to);
        let pieces: Vec<Piece<'_>> = parts.into_iter().map(|entry| thread_piece(trace, activities, entry)).collect();
        account(&pieces, &Stretches::union(vec![(from, to)]), of.clone(), laps)
    };
    let of_laps = unit.and_then(|unit| {
        let (first, last) = (unit.laps.first()?, unit.laps.last()?);
        let periods = unit.laps.len() as u64 - 1;
        let (to, periods) = if periods == 0 { (last.end, 1) } else { (last.start, periods) };
        Some(divide(first.start, to, Some(laps_covered(unit, periods))))
    });
    let whole = divide(first, last, None);
    Some(Accounts { of_laps, whole, other_devices: 0, findings: check(trace, devices) })
}

fn thread_piece<'a>(
    trace: &'a Trace,
    activities: &[Activity],
    (id, from, to): (Option<SpanId>, u64, u64),
) -> Piece<'a> {
    let Some(id) = id else {
        return Piece { from, to, kind: EntryKind::Nothing, name: "nothing recorded".into(), is_first: true };
    };
    let span = trace.span(id);
    let is_wait = activities[id.index()] == Activity::Wait;
    let kind = if is_wait { EntryKind::Wait } else { EntryKind::Stage };
    let name = if Families::may_count(activities[id.index()]) { family(span.name) } else { span.name.into() };
    Piece { from, to, kind, name, is_first: from == span.start.0 }
}

fn busiest_thread(trace: &Trace) -> Option<TrackId> {
    let threads = trace.tracks().filter(|(_, track)| matches!(track.kind, TrackKind::Thread | TrackKind::Lane));
    let outermost = |id: TrackId| trace.spans_on(id).filter(|span| span.parent.is_none());
    let busy = |id: TrackId| outermost(id).map(|span| span.duration.0).fold(0, u64::saturating_add);
    let busiest = threads.map(|(id, _)| (busy(id), std::cmp::Reverse(id))).max()?;
    trace.spans_on(busiest.1.0).next().map(|_| busiest.1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gap_cause::Cause;
    use laptime_trace::{LAP, Nanos, SYNC, TraceBuilder, activity::category};
    use proptest::prelude::*;

    fn shown(account: &Account) -> Vec<(&'static str, &str, u64, u64)> {
        account.entries.iter().map(|entry| (entry.kind.word(), entry.name.as_str(), entry.time, entry.count)).collect()
    }

    fn whole(builder: TraceBuilder, by: By) -> Account {
        accounts(&builder.build().unwrap(), &AccountOptions { by, ..AccountOptions::default() }).unwrap().whole
    }

    #[test]
    fn concurrent_time_goes_to_the_first_kernel_and_to_a_copy_only_without_kernels() {
        let mut builder = TraceBuilder::default();
        let stream = builder.stream(1, 7, "stream 7");
        let other = builder.stream(1, 8, "stream 8");
        builder.span(stream, Nanos(0), Nanos(50), "gemm", category::KERNEL);
        builder.span(other, Nanos(40), Nanos(30), "softmax", category::KERNEL);
        builder.span(other, Nanos(45), Nanos(5), "hidden", category::KERNEL);
        let copies = builder.stream(1, 9, "stream 9");
        builder.span(copies, Nanos(60), Nanos(40), "Memcpy HtoD (Pinned -> Device)", category::COPY);
        builder.span(stream, Nanos(110), Nanos(10), "gemm", category::KERNEL);
        let account = whole(builder, By::Kernel);
        assert_eq!(account.total, 120);
        assert_eq!(
            shown(&account),
            [
                ("kernel", "gemm", 60, 2),
                ("copy", "Memcpy HtoD (Pinned -> Device)", 30, 1),
                ("kernel", "softmax", 20, 1),
                ("gap", Cause::NoLaunch.words(), 10, 1),
                ("kernel", "hidden", 0, 1),
            ]
        );
    }

    #[test]
    fn work_is_assigned_to_the_operation_or_stage_that_launched_it() {
        let trace = || {
            let mut builder = TraceBuilder::default();
            let main = builder.thread(1, 1, "main");
            let stream = builder.stream(1, 7, "stream 7");
            builder.span(main, Nanos(0), Nanos(50), "decode", category::USER);
            builder.span(main, Nanos(5), Nanos(40), "aten::linear", category::OPERATION);
            builder.span(main, Nanos(6), Nanos(30), "aten::addmm", category::OPERATION);
            let launch = builder.span(main, Nanos(10), Nanos(5), "cudaLaunchKernel", category::RUNTIME);
            let kernel = builder.span(stream, Nanos(100), Nanos(10), "gemm", category::KERNEL);
            builder.span(stream, Nanos(110), Nanos(5), "unknown", category::KERNEL);
            builder.flow(launch, kernel);
            builder
        };
        let of = |by| whole(trace(), by).entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>();
        assert_eq!(of(By::Operation), ["aten::linear", "launch not recorded"]);
        assert_eq!(of(By::Stage), ["decode", "launch not recorded"]);
        assert_eq!(of(By::Group), ["matmul", "other"]);
    }

    #[test]
    fn host_laps_contain_the_work_they_launched() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let stream = builder.stream(1, 7, "stream 7");
        builder.span(stream, Nanos(0), Nanos(5), "before", category::KERNEL);
        for token in 0..4 {
            builder.span(main, Nanos(10 + token * 10), Nanos(9), "token", LAP);
            let launch = builder.span(main, Nanos(11 + token * 10), Nanos(5), "cudaLaunchKernel", category::RUNTIME);
            let kernel = builder.span(stream, Nanos(100 + token * 50), Nanos(40), "gemm", category::KERNEL);
            builder.flow(launch, kernel);
        }
        let accounts = accounts(&builder.build().unwrap(), &AccountOptions::default()).unwrap();
        let of_laps = accounts.of_laps.unwrap();
        assert_eq!(
            of_laps.laps,
            Some(LapsCovered { unit: "token".to_owned(), count: 4, periods: 3, median: 9.0, kernels: None })
        );
        assert_eq!(of_laps.total, 150);
        assert_eq!(
            of_laps.entries.iter().map(|entry| (entry.time, entry.count)).collect::<Vec<_>>(),
            [(120, 3), (30, 3)]
        );
        assert_eq!(accounts.whole.total, 290);
    }

    #[test]
    fn paused_time_is_not_a_gap_and_laps_with_a_pause_are_left_out() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let stream = builder.stream(1, 7, "stream 7");
        for token in 0..8 {
            builder.span(main, Nanos(token * 100), Nanos(90), "token", LAP);
            if token != 3 {
                let launch =
                    builder.span(main, Nanos(1 + token * 100), Nanos(5), "cudaLaunchKernel", category::RUNTIME);
                let kernel = builder.span(stream, Nanos(10 + token * 100), Nanos(70), "gemm", category::KERNEL);
                builder.flow(launch, kernel);
            }
        }
        let pause = r#"[{"process": 1, "start_ns": 285, "end_ns": 395}]"#;
        builder.metadata.set(laptime_trace::metadata::NOT_RECORDED, pause);
        let accounts = accounts(&builder.build().unwrap(), &AccountOptions::default()).unwrap();
        // Seven kernels and five gaps of 30; the stretch from 280 to 410 is not known.
        assert_eq!(accounts.whole.total, 7 * 70 + 5 * 30);
        let of_laps = accounts.of_laps.unwrap();
        assert_eq!((of_laps.total, of_laps.laps.as_ref().map(|laps| laps.periods)), (500, Some(5)));
        let times = |account: &Account| account.entries.iter().map(|entry| entry.time).collect::<Vec<_>>();
        assert_eq!((times(&accounts.whole), times(&of_laps)), (vec![490, 150], vec![350, 150]));
    }

    #[test]
    fn without_a_device_the_time_of_the_thread_with_the_laps_is_used() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let other = builder.thread(1, 2, "other");
        builder.span(other, Nanos(0), Nanos(1000), "idle loop", "");
        for token in 0..2 {
            builder.span(main, Nanos(token * 100), Nanos(80), "token", LAP);
            builder.span(main, Nanos(token * 100 + 10), Nanos(30), "attention", "");
            builder.span(main, Nanos(token * 100 + 50), Nanos(20), "read", SYNC);
        }
        let account = accounts(&builder.build().unwrap(), &AccountOptions::default()).unwrap().of_laps.unwrap();
        assert_eq!((account.of.clone(), account.total), (Owner::Thread("main".to_owned()), 100));
        assert_eq!(
            shown(&account),
            [
                ("stage", "attention", 30, 1),
                ("stage", "token", 30, 1),
                ("wait", "read", 20, 1),
                ("nothing", "nothing recorded", 20, 1),
            ]
        );
    }

    #[test]
    fn stages_that_differ_only_in_a_counter_are_merged() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        for step in 0..3 {
            builder.span(main, Nanos(step * 10), Nanos(10), &format!("ProfilerStep#{step}"), category::USER);
        }
        assert_eq!(shown(&whole(builder, By::Kernel)), [("stage", "ProfilerStep#*", 30, 3)]);
    }

    #[test]
    fn an_unknown_device_is_an_error() {
        let mut builder = TraceBuilder::default();
        let stream = builder.stream(1, 7, "stream 7");
        builder.span(stream, Nanos(0), Nanos(50), "gemm", category::KERNEL);
        let how = AccountOptions { device: Some(3), ..AccountOptions::default() };
        assert_eq!(accounts(&builder.build().unwrap(), &how), Err(NoAccount::NoSuchDevice(vec![])));
        assert_eq!(
            accounts(&TraceBuilder::default().build().unwrap(), &AccountOptions::default()),
            Err(NoAccount::Empty)
        );
    }

    proptest! {
        #[test]
        fn the_entries_add_up_to_the_whole(
            kernels in prop::collection::vec((0_u64..300, 0_u64..40, 0_i64..3, 0_usize..4), 1..30),
        ) {
            let mut builder = TraceBuilder::default();
            for stream in 0..3 {
                builder.stream(1, stream, &format!("stream {stream}"));
            }
            for (start, length, stream, name) in &kernels {
                let track = builder.stream(1, *stream, &format!("stream {stream}"));
                let category = if *name == 3 { category::COPY } else { category::KERNEL };
                builder.span(track, Nanos(*start), Nanos(*length), &format!("k{name}"), category);
            }
            let account = whole(builder, By::Kernel);
            prop_assert_eq!(account.entries.iter().map(|entry| entry.time).sum::<u64>(), account.total);
            let works: u64 = account.entries.iter().filter(|entry| entry.kind != EntryKind::Gap).map(|entry| entry.count).sum();
            // Work of no length at the very end lies outside; all other work is counted once.
            prop_assert!(works <= kernels.len() as u64 && works + 3 >= kernels.iter().filter(|kernel| kernel.1 > 0).count() as u64);
        }
    }
}
