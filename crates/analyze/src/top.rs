//! Which names took most time, wherever they stand.

mod launched;
mod open_names;

use std::collections::HashMap;

use laptime_stats::Sorted;
use laptime_trace::{Activity, LAP, NameId, Nanos, Span, Trace};

use self::{launched::Launched, open_names::OpenNames};
use crate::{
    devices::{Devices, devices},
    fleet::{Figure, Unit},
    group::Group,
    intervals::total,
    overview::{Overview, overview},
};

/// The names of a trace, those with most time of their own first.
#[derive(Debug, Clone, PartialEq)]
pub struct Top {
    /// The operations.
    pub operations: Vec<Operation>,
    /// The same time by group, in the order of [`Group::ALL`]; groups that do not occur are left out.
    pub groups: Vec<GroupTime>,
    /// Time in which devices worked, each device by itself and then added; none if the trace has no device.
    pub device: Option<Nanos>,
    /// The trace as a whole.
    pub overview: Overview,
}

/// What an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OperationKind {
    /// A stage of the host.
    Stage,
    /// One turn of a loop.
    Lap,
    /// The host waiting for a device.
    Wait,
    /// An operation of a framework.
    Operation,
    /// A function of Python.
    Python,
    /// A call that puts work on a device.
    Launch,
    /// Another call of the runtime or the driver.
    Call,
    /// Something else on the host.
    Other,
    /// A kernel, or a graph as a whole.
    Kernel,
    /// A copy on a device.
    Copy,
    /// Memory being set on a device.
    Memset,
    /// A stage of a device, where nothing finer was recorded.
    Device,
}

impl OperationKind {
    /// The kind in a word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Stage => "stage",
            Self::Lap => "lap",
            Self::Wait => "wait",
            Self::Operation => "operation",
            Self::Python => "python",
            Self::Launch => "launch",
            Self::Call => "call",
            Self::Other => "other",
            Self::Kernel => "kernel",
            Self::Copy => "copy",
            Self::Memset => "memset",
            Self::Device => "device",
        }
    }

    /// Whether a device does it.
    pub const fn is_on_device(self) -> bool {
        matches!(self, Self::Kernel | Self::Copy | Self::Memset | Self::Device)
    }

    /// Whether it is a call of the runtime or the driver: what it launches is the work of what is around it.
    pub const fn is_call(self) -> bool {
        matches!(self, Self::Launch | Self::Call | Self::Wait)
    }

    fn of(span: &Span<'_>, activity: Activity, is_on_device: bool) -> Self {
        match activity {
            Activity::Kernel | Activity::Graph if is_on_device => Self::Kernel,
            Activity::Copy if is_on_device => Self::Copy,
            Activity::Memset if is_on_device => Self::Memset,
            _ if is_on_device => Self::Device,
            _ if span.category == LAP => Self::Lap,
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

/// All spans of one name and kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: OperationKind,
    /// What kind of work it does.
    pub group: Group,
    /// How often it ran.
    pub count: u64,
    /// On the host its time less that of what is inside it; on a device its time, where several at once count once.
    pub own: Nanos,
    /// Own time as a share: on the host of all own time, on a device of the time in which devices worked.
    pub own_share: f64,
    /// Its whole time; where it contains itself, the outer one counts.
    pub total: Nanos,
    /// Of something on the host: device time of the work that it launched itself, calls of the runtime inside it
    /// included. None for what launched nothing, and for the calls.
    pub launched_own: Option<Nanos>,
    /// Of something on the host: device time of the work that it or anything inside it launched.
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
    /// Time in which devices did it; none if they did not.
    pub device: Option<Nanos>,
    /// That as a share of the time in which devices worked.
    pub device_share: Option<f64>,
    /// How many kernels and copies.
    pub device_count: u64,
    /// Own time of the host; none if there is none.
    pub host: Option<Nanos>,
    /// That as a share of all own time of the host.
    pub host_share: Option<f64>,
    /// How many spans of the host.
    pub host_count: u64,
}

/// Ranks names by their own time.
///
/// Where devices have kernels or copies, these are the rows of devices; stages projected to a stream are no work.
pub fn top(trace: &Trace) -> Top {
    let devices = devices(trace);
    let mut rows = Rows::gather(trace, &devices);
    let launched = Launched::of(trace, &devices, &rows);
    if launched.has_work {
        rows.take_device_times(&launched);
    }
    let host = total(rows.rows.iter().filter(|row| !row.kind.is_on_device()).map(|row| row.own));
    let stages = total(rows.rows.iter().filter(|row| row.kind.is_on_device()).map(|row| row.own));
    let device = if launched.has_work { launched.busy } else { stages };
    let groups = groups(&rows, &launched, host, device);
    let operation = |(at, row): (usize, Row)| {
        let all = if row.kind.is_on_device() { device } else { host };
        row.operation(trace, all, launched.own[at], launched.total[at])
    };
    let mut operations: Vec<Operation> = rows.rows.into_iter().enumerate().map(operation).collect();
    operations.sort_by(|a, b| (b.own, &a.name, a.kind).cmp(&(a.own, &b.name, b.kind)));
    let device = (!devices.devices.is_empty()).then_some(Nanos(device));
    Top { operations, groups, device, overview: overview(trace) }
}

/// No row: the span is no operation.
const NO_ROW: u32 = u32::MAX;

/// The rows of the answer, while they are gathered.
struct Rows {
    rows: Vec<Row>,
    /// The row of each span, by its place in the trace.
    of_span: Vec<u32>,
}

struct Row {
    name: NameId,
    kind: OperationKind,
    group: Group,
    own: u64,
    total: u64,
    durations: Vec<u64>,
}

impl Rows {
    fn gather(trace: &Trace, devices: &Devices) -> Self {
        let own = trace.own_times();
        let is_work = work_of_devices(trace, devices);
        let mut places: HashMap<(NameId, OperationKind), usize> = HashMap::new();
        let mut rows = Self { rows: Vec::new(), of_span: vec![NO_ROW; trace.span_count()] };
        let mut open = OpenNames::default();
        for span in trace.spans() {
            let at = span.id.index();
            let is_on_device = trace.track(span.track).kind.is_device();
            if is_on_device && is_work.as_ref().is_some_and(|is_work| !is_work[at]) {
                continue;
            }
            let is_inside_itself = open.enter(trace, &span);
            let (name, activity) = (trace.span_name(span.id), devices.activities[at]);
            let kind = OperationKind::of(&span, activity, is_on_device);
            let place = *places.entry((name, kind)).or_insert(rows.rows.len());
            if place == rows.rows.len() {
                let group = Group::of(activity, span.name);
                rows.rows.push(Row { name, kind, group, own: 0, total: 0, durations: Vec::new() });
            }
            rows.of_span[at] = place as u32;
            let total = if is_inside_itself { 0 } else { span.duration.0 };
            rows.rows[place].add(span.duration.0, own[at].0, total);
        }
        rows
    }

    /// The row of a span.
    fn of(&self, span: laptime_trace::SpanId) -> Option<usize> {
        let row = self.of_span[span.index()];
        (row != NO_ROW).then_some(row as usize)
    }

    /// Own time of kernels is what devices say: on two streams at once it counts once.
    fn take_device_times(&mut self, launched: &Launched) {
        for (row, time) in self.rows.iter_mut().zip(&launched.device) {
            if row.kind.is_on_device() {
                row.own = *time;
            }
        }
    }
}

/// Which spans are work of a device; none if the trace shows no finer work than stages.
fn work_of_devices(trace: &Trace, devices: &Devices) -> Option<Vec<bool>> {
    if devices.devices.iter().all(|device| device.is_stages) {
        return None;
    }
    let mut is_work = vec![false; trace.span_count()];
    for work in devices.devices.iter().flat_map(|device| &device.work) {
        is_work[work.id.index()] = true;
    }
    Some(is_work)
}

impl Row {
    fn add(&mut self, duration: u64, own: u64, total: u64) {
        self.own = self.own.saturating_add(own);
        self.total = self.total.saturating_add(total);
        self.durations.push(duration);
    }

    fn operation(self, trace: &Trace, all: u64, launched_own: Option<u64>, launched: Option<u64>) -> Operation {
        let durations = Sorted::<u64>::from_unsorted(self.durations);
        Operation {
            name: trace.name(self.name).to_owned(),
            kind: self.kind,
            group: self.group,
            count: durations.len() as u64,
            own: Nanos(self.own),
            own_share: share(self.own, all).unwrap_or(0.0),
            total: Nanos(self.total),
            launched_own: launched_own.map(Nanos),
            launched: launched.map(Nanos),
            median: durations.median().unwrap_or(0.0),
            longest: Nanos(durations.max().unwrap_or(0)),
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
            of_side.fold((0, 0), |(time, count), row| (time + row.own, count + row.durations.len() as u64))
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
    /// The figures that traces are set side by side by: the time of devices, in all and by group.
    pub const FIGURES: [Figure; 8] = {
        const fn time(key: &'static str, label: &'static str) -> Figure {
            Figure { key, label, unit: Unit::Time }
        }
        [
            time("device_ms", "device"),
            time("matmul_ms", "matmul"),
            time("attention_ms", "attention"),
            time("norm_ms", "norm"),
            time("activation_ms", "activation"),
            time("copy_ms", "copy"),
            time("communication_ms", "communication"),
            time("other_ms", "other"),
        ]
    };

    /// The values of those figures.
    pub fn values(&self) -> Vec<Option<f64>> {
        let of = |group: Group| self.groups.iter().find(|known| known.group == group)?.device;
        let all = std::iter::once(self.device).chain(Group::ALL.into_iter().map(of));
        all.map(|time| time.map(|time| time.0 as f64)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_trace::{SYNC, TraceBuilder, activity::category};

    fn shown(trace: &Trace) -> Vec<(String, &'static str, u64, u64, u64)> {
        let shown = |op: Operation| (op.name, op.kind.word(), op.count, op.own.0, op.total.0);
        top(trace).operations.into_iter().map(shown).collect()
    }

    #[test]
    fn names_are_ranked_by_their_own_time() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let worker = builder.thread(1, 2, "worker");
        builder.span(main, Nanos(0), Nanos(100), "generate", "");
        builder.span(main, Nanos(10), Nanos(70), "matmul", "");
        builder.span(worker, Nanos(0), Nanos(20), "matmul", "");
        builder.span(main, Nanos(85), Nanos(5), "read", SYNC);
        let trace = builder.build().unwrap();
        assert_eq!(
            shown(&trace),
            [
                ("matmul".into(), "stage", 2, 90, 90),
                ("generate".into(), "stage", 1, 25, 100),
                ("read".into(), "wait", 1, 5, 5)
            ]
        );
        let shares: f64 = top(&trace).operations.iter().map(|op| op.own_share).sum();
        assert!((shares - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_name_inside_itself_counts_its_whole_time_once() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        builder.span(main, Nanos(0), Nanos(100), "visit", "");
        builder.span(main, Nanos(10), Nanos(50), "visit", "");
        builder.span(main, Nanos(200), Nanos(7), "visit", "");
        let trace = builder.build().unwrap();
        assert_eq!(shown(&trace), [("visit".into(), "stage", 3, 107, 107)]);
    }

    #[test]
    fn host_and_device_work_of_one_name_stay_apart() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let stream = builder.stream(1, 7, "stream 7");
        builder.span(main, Nanos(0), Nanos(5), "gemm", "");
        builder.span(stream, Nanos(3), Nanos(80), "gemm", "");
        let trace = builder.build().unwrap();
        assert_eq!(shown(&trace), [("gemm".into(), "device", 1, 80, 80), ("gemm".into(), "stage", 1, 5, 5)]);
    }

    /// Two operations, one inside the other, with a kernel each; the kernels overlap on two streams.
    fn nested() -> Trace {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let streams = [builder.stream(1, 7, "stream 7"), builder.stream(1, 8, "stream 8")];
        builder.span(main, Nanos(0), Nanos(100), "aten::linear", category::OPERATION);
        let early = builder.span(main, Nanos(5), Nanos(5), "cudaLaunchKernel", category::RUNTIME);
        builder.span(main, Nanos(20), Nanos(50), "aten::addmm", category::OPERATION);
        let late = builder.span(main, Nanos(30), Nanos(5), "cudaLaunchKernel", category::RUNTIME);
        let copy = builder.span(streams[0], Nanos(10), Nanos(30), "direct_copy_kernel", category::KERNEL);
        let gemm = builder.span(streams[1], Nanos(30), Nanos(60), "gemm", category::KERNEL);
        builder.span(streams[1], Nanos(10), Nanos(90), "step", category::DEVICE_STAGE);
        builder.flow(early, copy);
        builder.flow(late, gemm);
        builder.build().unwrap()
    }

    #[test]
    fn an_operation_has_the_device_time_that_it_and_what_is_inside_it_launched() {
        let answer = top(&nested());
        let launched = |name: &str| {
            let found = answer.operations.iter().find(|operation| operation.name == name).unwrap();
            (found.kind.word(), found.launched_own.map(|time| time.0), found.launched.map(|time| time.0))
        };
        assert_eq!(launched("aten::linear"), ("operation", Some(30), Some(80)));
        assert_eq!(launched("aten::addmm"), ("operation", Some(60), Some(60)));
        assert_eq!(launched("cudaLaunchKernel"), ("launch", None, Some(80)));
        assert_eq!(launched("gemm"), ("kernel", None, None));
    }

    #[test]
    fn shares_of_kernels_are_of_the_time_in_which_a_device_worked() {
        let answer = top(&nested());
        let share = |name: &str| answer.operations.iter().find(|operation| operation.name == name).unwrap().own_share;
        assert_eq!(answer.device, Some(Nanos(80)));
        assert_eq!((share("gemm"), share("direct_copy_kernel")), (60.0 / 80.0, 30.0 / 80.0));
        let groups: Vec<_> = answer.groups.iter().map(|time| (time.group, time.device, time.device_count)).collect();
        let expected =
            [(Group::Matmul, Some(Nanos(60)), 1), (Group::Copy, Some(Nanos(30)), 1), (Group::Other, None, 0)];
        assert_eq!(groups, expected);
    }

    #[test]
    fn one_kernel_on_two_streams_at_once_counts_once_on_a_device_and_twice_on_two() {
        let trace = |second_device: i64| {
            let mut builder = TraceBuilder::default();
            for (number, device) in [(7, 0), (8, second_device)] {
                let stream = builder.stream(1, number, "stream");
                builder.track_mut(stream).device = Some(device);
                builder.span(stream, Nanos(0), Nanos(50), "gemm", category::KERNEL);
            }
            builder.build().unwrap()
        };
        assert_eq!(shown(&trace(0)), [("gemm".into(), "kernel", 2, 50, 100)]);
        assert_eq!(shown(&trace(1)), [("gemm".into(), "kernel", 2, 100, 100)]);
    }

    #[test]
    fn a_stage_projected_to_a_stream_is_no_work() {
        assert!(top(&nested()).operations.iter().all(|operation| operation.name != "step"));
    }

    #[test]
    fn a_function_that_calls_itself_launches_its_work_once() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let stream = builder.stream(1, 7, "stream 7");
        builder.span(main, Nanos(0), Nanos(100), "visit", category::PYTHON);
        let inner = builder.span(main, Nanos(10), Nanos(50), "visit", category::PYTHON);
        let kernel = builder.span(stream, Nanos(20), Nanos(30), "gemm", category::KERNEL);
        builder.flow(inner, kernel);
        let answer = top(&builder.build().unwrap());
        let visit = answer.operations.iter().find(|operation| operation.name == "visit").unwrap();
        assert_eq!((visit.launched_own, visit.launched), (Some(Nanos(30)), Some(Nanos(30))));
    }

    #[test]
    fn kinds_of_the_host_are_told_apart() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let kinds = [
            ("a", category::OPERATION, "operation"),
            ("b", category::PYTHON, "python"),
            ("cudaMalloc", category::RUNTIME, "call"),
            ("cudaLaunchKernel", category::RUNTIME, "launch"),
            ("cudaDeviceSynchronize", category::RUNTIME, "wait"),
            ("c", category::USER, "stage"),
            ("d", LAP, "lap"),
            ("e", "Trace", "other"),
        ];
        for (at, (name, category, _)) in kinds.iter().enumerate() {
            builder.span(main, Nanos(10 * at as u64), Nanos(9 - at as u64), name, category);
        }
        let found: Vec<_> = shown(&builder.build().unwrap()).into_iter().map(|row| row.1).collect();
        assert_eq!(found, kinds.map(|(_, _, kind)| kind));
    }
}
