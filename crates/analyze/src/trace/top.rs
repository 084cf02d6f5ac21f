//! Which names took the most time.

mod launched;
mod open_names;

use hashbrown::HashMap;

use laptime_stats::quantile_by;
use laptime_trace::{Activity, Column, NameId, Nanos, Span, SpanId, Trace};

use self::{launched::Launched, open_names::OpenNames};
use crate::fleet::{Figure, Unit};
use crate::lap_unit::{family, is_lap};
use crate::{
    devices::Devices, families::Families, group::Group, intervals::total, overview::Overview, timeline::Prepared,
};

/// The names of a trace, most self time first.
#[derive(Debug, Clone, PartialEq)]
pub struct Top {
    /// The operations.
    pub operations: Vec<Operation>,
    /// The same time by group, in the order of [`Group::ALL`]; groups that do not occur are left out.
    pub groups: Vec<GroupTime>,
    /// Busy time of devices, summed over devices; none if the trace has no device.
    pub device: Option<Nanos>,
    /// Spans of the profiler itself, which have no row: their name and number.
    pub of_profiler: Option<(String, u64)>,
    /// The trace as a whole.
    pub overview: Overview,
}

laptime_trace::words! {
    /// The kind of an operation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum OperationKind: word {
        Stage = "stage",
        Lap = "lap",
        Wait = "wait",
        Operation = "operation",
        Python = "python",
        Launch = "launch",
        /// Another runtime or driver call.
        Call = "call",
        /// Something else on the host.
        Other = "other",
        /// A kernel, or a graph as a whole.
        Kernel = "kernel",
        Copy = "copy",
        Memset = "memset",
        /// A device stage, if nothing finer was recorded.
        Device = "device",
    }
}

impl OperationKind {
    /// Whether it runs on a device.
    pub const fn is_on_device(self) -> bool {
        matches!(self, Self::Kernel | Self::Copy | Self::Memset | Self::Device)
    }

    /// Whether it is a runtime or driver call: its launches count for what is around it.
    pub const fn is_call(self) -> bool {
        matches!(self, Self::Launch | Self::Call | Self::Wait)
    }

    fn of(span: &Span<'_>, activity: Activity, is_on_device: bool) -> Self {
        match activity {
            Activity::Kernel | Activity::Graph if is_on_device => Self::Kernel,
            Activity::Copy if is_on_device => Self::Copy,
            Activity::Memset if is_on_device => Self::Memset,
            _ if is_on_device => Self::Device,
            _ if is_lap(span) => Self::Lap,
            Activity::Stage => Self::Stage,
            Activity::Wait => Self::Wait,
            Activity::Launch => Self::Launch,
            Activity::Call => Self::Call,
            Activity::Operation => Self::Operation,
            Activity::Python => Self::Python,
            _ => Self::Other,
        }
    }
}

/// All spans of one name and kind, with counters ignored.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// Its name; counters are written as `*`.
    pub name: String,
    /// Its kind.
    pub kind: OperationKind,
    /// Its group.
    pub group: Group,
    /// How often it ran.
    pub count: u64,
    /// On the host, its self time; on a device, its time, where parallel work counts once.
    pub own: Nanos,
    /// Self time as a share: on the host of all self time, on a device of the busy time.
    pub own_share: f64,
    /// Its total time; if it contains itself, the outer span counts.
    pub total: Nanos,
    /// For host operations: device time of the work it launched itself, including runtime calls inside it. None for
    /// operations without launches, and for runtime calls.
    pub launched_own: Option<Nanos>,
    /// For host operations: device time of the work that it or its children launched.
    pub launched: Option<Nanos>,
    /// The median span, in nanoseconds.
    pub median: f64,
    /// The longest span.
    pub longest: Nanos,
}

/// The time of a kind of work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupTime {
    /// The kind of work.
    pub group: Group,
    /// Busy time of devices with this work; none if they did none.
    pub device: Option<Nanos>,
    /// That as a share of the busy time.
    pub device_share: Option<f64>,
    /// How many kernels and copies.
    pub device_count: u64,
    /// Host self time; none if there is none.
    pub host: Option<Nanos>,
    /// That as a share of all host self time.
    pub host_share: Option<f64>,
    /// How many host spans.
    pub host_count: u64,
}

/// Ranks names by self time.
///
/// If devices have kernels or copies, these are the device rows; stages on a stream are not work.
pub fn top(trace: &Trace) -> Top {
    Prepared::of(trace).top()
}

impl Prepared<'_> {
    /// The names, see [`top`].
    pub fn top(&self) -> Top {
        let Prepared { trace, devices, overview, .. } = self;
        let mut rows = Rows::gather(trace, devices);
        let launched = Launched::of(trace, devices, &rows);
        if launched.has_work {
            rows.take_device_times(&launched);
        }
        let host = total(rows.rows.iter().filter(|row| !row.kind.is_on_device()).map(Row::own));
        let stages = total(rows.rows.iter().filter(|row| row.kind.is_on_device()).map(Row::own));
        let device = if launched.has_work { launched.busy } else { stages };
        let groups = groups(&rows, &launched, host, device);
        let operation = |(at, row): (usize, Row)| {
            let all = if row.kind.is_on_device() { device } else { host };
            row.operation(trace, all, launched.own[at], launched.total[at])
        };
        let mut operations: Vec<Operation> = rows.rows.into_iter().enumerate().map(operation).collect();
        operations.sort_by(|a, b| (b.own, &a.name, a.kind).cmp(&(a.own, &b.name, b.kind)));
        let device = (!devices.devices.is_empty()).then_some(Nanos(device));
        let of_profiler = rows.of_profiler.map(|(name, count)| (trace.name(name).to_owned(), count));
        Top { operations, groups, device, of_profiler, overview: overview.clone() }
    }
}

/// Whether a span belongs to the profiler itself, which torch.profiler writes from its start to its stop.
fn is_of_profiler(span: &Span<'_>) -> bool {
    span.category == "Trace" && span.name.contains("PyTorch Profiler")
}

/// The rows of the answer, while they are collected.
struct Rows {
    rows: Vec<Row>,
    /// The row of each span plus one, by index; zero if the span is not an operation.
    of_span: Column<u32>,
    /// The name of the first span of the profiler itself, and their number.
    of_profiler: Option<(NameId, u64)>,
}

struct Row {
    /// The name, or the first of its family.
    name: NameId,
    /// Whether the name has a counter.
    may_count: bool,
    kind: OperationKind,
    group: Group,
    /// A sum over all spans of a file may not fit into 64 bits.
    own: u128,
    total: u64,
    durations: Column<u64>,
}

impl Rows {
    fn gather(trace: &Trace, devices: &Devices) -> Self {
        let is_work = work_of_devices(trace, devices);
        let mut places: HashMap<(NameId, OperationKind), usize> = HashMap::new();
        let mut rows = Self { rows: Vec::new(), of_span: Column::default(), of_profiler: None };
        let (mut open, mut families) = (OpenNames::default(), Families::default());
        for span in trace.spans() {
            let at = span.id.index();
            // A parent comes before its children, so its row has its duration already.
            if let Some(parent) = span.parent.and_then(|parent| rows.of(parent)) {
                rows.rows[parent].own -= u128::from(span.duration.0);
            }
            let is_on_device = trace.track(span.track).kind.is_device();
            if is_on_device && is_work.as_ref().is_some_and(|is_work| !is_work[at]) {
                rows.of_span.push(0);
                continue;
            }
            if is_of_profiler(&span) {
                rows.of_profiler.get_or_insert((trace.span_name(span.id), 0)).1 += 1;
                rows.of_span.push(0);
                continue;
            }
            let activity = devices.activities[at];
            let name = families.of_span(trace, trace.span_name(span.id), activity);
            let name_of = |id: SpanId| rows.of(id).map(|row| rows.rows[row].name);
            let is_inside_itself = open.enter(&span, name, name_of);
            let kind = OperationKind::of(&span, activity, is_on_device);
            let place = *places.entry((name, kind)).or_insert(rows.rows.len());
            if place == rows.rows.len() {
                rows.rows.push(Row::new(name, kind, activity, span.name));
            }
            rows.of_span.push(place as u32 + 1);
            // Device work does not nest: overlapping kernels of one name are added.
            let total = if is_inside_itself && !is_on_device { 0 } else { span.duration.0 };
            rows.rows[place].add(span.duration.0, total);
        }
        rows
    }

    fn of(&self, span: SpanId) -> Option<usize> {
        (self.of_span.get(span.index()) as usize).checked_sub(1)
    }

    /// Self time of kernels comes from the devices: on two streams at once it counts once.
    fn take_device_times(&mut self, launched: &Launched) {
        for (row, time) in self.rows.iter_mut().zip(&launched.device) {
            if row.kind.is_on_device() {
                row.own = u128::from(*time);
            }
        }
    }
}

/// Which spans are device work; none if the trace only has stages.
fn work_of_devices(trace: &Trace, devices: &Devices) -> Option<Vec<bool>> {
    if devices.devices.iter().all(|device| device.is_stages) {
        return None;
    }
    let mut is_work = vec![false; trace.span_count()];
    for work in devices.work() {
        is_work[work.id.index()] = true;
    }
    Some(is_work)
}

impl Row {
    fn new(name: NameId, kind: OperationKind, activity: Activity, text: &str) -> Self {
        let (may_count, group) = (Families::may_count(activity), Group::of(activity, text));
        Self { name, may_count, kind, group, own: 0, total: 0, durations: Column::default() }
    }

    fn text(&self, trace: &Trace) -> String {
        let name = trace.name(self.name);
        if self.may_count { family(name).into_owned() } else { name.to_owned() }
    }

    /// Adds a span; the time of its children is taken away later.
    fn add(&mut self, duration: u64, total: u64) {
        self.own += u128::from(duration);
        self.total = self.total.saturating_add(total);
        self.durations.push(duration);
    }

    /// Its self time.
    fn own(&self) -> u64 {
        u64::try_from(self.own).unwrap_or(u64::MAX)
    }

    fn operation(self, trace: &Trace, all: u64, launched_own: Option<u64>, launched: Option<u64>) -> Operation {
        let (name, own) = (self.text(trace), self.own());
        let durations = self.durations.into_sorted();
        Operation {
            name,
            kind: self.kind,
            group: self.group,
            count: durations.len() as u64,
            own: Nanos(own),
            own_share: share(own, all).unwrap_or(0.0),
            total: Nanos(self.total),
            launched_own: launched_own.map(Nanos),
            launched: launched.map(Nanos),
            median: quantile_by(durations.len(), |at| durations.get(at), 0.5).unwrap_or(0.0),
            longest: Nanos(durations.iter().last().unwrap_or(0)),
        }
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn groups(rows: &Rows, launched: &Launched, host: u64, device: u64) -> Vec<GroupTime> {
    let of = |group: Group| {
        let of_group = |on_device: bool| {
            let of_side =
                rows.rows.iter().filter(move |row| row.group == group && row.kind.is_on_device() == on_device);
            of_side.fold((0, 0), |(time, count), row| (total([time, row.own()]), count + row.durations.len() as u64))
        };
        let ((mut on_device, device_count), (on_host, host_count)) = (of_group(true), of_group(false));
        if launched.has_work {
            on_device = launched.groups[group as usize];
        }
        let (is_on_device, is_on_host) = (device_count > 0, host_count > 0);
        GroupTime {
            group,
            device: is_on_device.then_some(Nanos(on_device)),
            device_share: share(on_device, device).filter(|_| is_on_device),
            device_count,
            host: is_on_host.then_some(Nanos(on_host)),
            host_share: share(on_host, host).filter(|_| is_on_host),
            host_count,
        }
    };
    let all = Group::ALL.into_iter().map(of);
    all.filter(|group| group.device_count + group.host_count > 0).collect()
}

impl Top {
    /// The figures for comparing traces: device time, in total and by group; host time if a trace has no
    /// device.
    pub const FIGURES: [Figure; 18] = {
        const fn time(key: &'static str, label: &'static str) -> Figure {
            Figure { key, label, unit: Unit::Time }
        }
        [
            time("device_ms", "device"),
            time("matmul_ms", "matmul"),
            time("attention_ms", "attention"),
            time("norm_ms", "norm"),
            time("activation_ms", "activation"),
            time("embedding_ms", "embedding"),
            time("copy_ms", "copy"),
            time("communication_ms", "communication"),
            time("other_ms", "other"),
            time("host_ms", "host"),
            time("host_matmul_ms", "host matmul"),
            time("host_attention_ms", "host attention"),
            time("host_norm_ms", "host norm"),
            time("host_activation_ms", "host activation"),
            time("host_embedding_ms", "host embedding"),
            time("host_copy_ms", "host copy"),
            time("host_communication_ms", "host communication"),
            time("host_other_ms", "host other"),
        ]
    };

    /// The values of those figures.
    pub fn values(&self) -> Vec<Option<f64>> {
        let of = |group: Group| self.groups.iter().find(|known| known.group == group);
        let on_device = Group::ALL.into_iter().map(|group| of(group)?.device);
        let is_host_only = self.device.is_none();
        let on_host = Group::ALL.into_iter().map(|group| of(group)?.host.filter(|_| is_host_only));
        let host: u64 = self.groups.iter().filter_map(|group| group.host).map(|time| time.0).sum();
        let all = std::iter::once(self.device).chain(on_device);
        let all = all.chain(std::iter::once(is_host_only.then_some(Nanos(host)))).chain(on_host);
        all.map(|time| time.map(|time| time.0 as f64)).collect()
    }
}

#[cfg(test)]
mod tests;
