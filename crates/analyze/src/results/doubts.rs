//! Reasons to distrust the figures of a benchmark: one entry per kind of doubt.

use std::{collections::BTreeSet, fmt, mem::discriminant};

use laptime_stats::compare::LEAST_PROCESSES;
use laptime_trace::run::{Environment, Settings, Steady, Stop, StopReason};

use crate::cases::{CaseFigures, Cases, MeasuredFigures};
use crate::doubt::{BETWEEN_OVER_WITHIN, Doubt, LOAD_EACH};
use crate::{by_case::CaseId, limits::Bound, note::Note};

/// The share of outliers from which on they are reported.
const OUTLIER_SHARE: f64 = 0.05;

/// How far from the median the furthest of many outliers must be.
const OUTLIER_DISTANCE: f64 = 0.1;

/// How far from the median a single outlier must be.
const FAR_OUTLIER_DISTANCE: f64 = 0.5;

/// A smaller spread between processes is never reported.
const LEAST_BETWEEN: f64 = 0.01;

/// A doubt with the cases that it applies to.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedDoubt {
    /// The doubt, from the case in which it is worst.
    pub doubt: Doubt,
    /// The name of that case; none if it is the only case or the doubt is about the whole run.
    pub worst: Option<String>,
    /// How many cases share it.
    pub shared_by: usize,
    /// Of how many measured cases.
    pub of: usize,
}

impl SharedDoubt {
    /// The doubt as a note.
    pub fn note(&self) -> Note {
        Note { id: self.doubt.id(), text: self.to_string(), is_minor: self.doubt.is_minor() }
    }
}

impl fmt::Display for SharedDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.worst {
            None => {}
            Some(worst) if self.shared_by == 1 => write!(f, "`{worst}`: ")?,
            Some(worst) => write!(f, "{} of {} cases (worst `{worst}`): ", self.shared_by, self.of)?,
        }
        self.doubt.fmt(f)
    }
}

/// Lists reasons to distrust the figures of a run, one entry per kind of doubt.
pub fn doubts(cases: &Cases, settings: &Settings, environment: &Environment) -> Vec<SharedDoubt> {
    let measured: Vec<(&CaseFigures, &MeasuredFigures)> =
        cases.cases.iter().filter_map(|case| Some((case, case.measured.as_ref()?))).collect();
    let varying = Varying::of(cases.cases.iter().map(|case| &case.id));
    let mut shared: Vec<SharedDoubt> = Vec::new();
    for (case, figures) in &measured {
        for doubt in of_case(figures, settings) {
            add(&mut shared, doubt, varying.name(&case.id), measured.len());
        }
    }
    if !measured.is_empty() {
        let (shared_by, of) = (measured.len(), measured.len());
        let of_run = of_run(settings, environment).into_iter();
        shared.extend(of_run.map(|doubt| SharedDoubt { doubt, worst: None, shared_by, of }));
    }
    shared.sort_by_key(|shared| shared.doubt.kind());
    shared
}

/// The axes in which cases differ.
pub(crate) struct Varying {
    workload: bool,
    device: bool,
    axes: BTreeSet<String>,
}

impl Varying {
    pub(crate) fn of<'a>(mut ids: impl Iterator<Item = &'a CaseId>) -> Self {
        let mut varying = Self { workload: false, device: false, axes: BTreeSet::new() };
        let Some(first) = ids.next() else { return varying };
        for id in ids {
            varying.workload |= id.workload != first.workload;
            varying.device |= id.device != first.device;
            for (axis, value) in id.case.values() {
                if first.case.get(axis) != Some(value) && !varying.axes.contains(axis) {
                    varying.axes.insert(axis.to_owned());
                }
            }
        }
        varying
    }

    /// The name of a case by these axes; none if nothing differs.
    pub(crate) fn name(&self, id: &CaseId) -> Option<String> {
        let workload = self.workload.then(|| id.workload.clone());
        let axes = id.case.values().filter(|(axis, _)| self.axes.contains(*axis) && !id.case.is_implied(axis));
        let axes = axes.map(|(axis, value)| format!("{axis}={value}"));
        let device = self.device.then(|| format!("device={}", id.device));
        let parts: Vec<String> = workload.into_iter().chain(axes).chain(device).collect();
        (!parts.is_empty()).then(|| parts.join(" "))
    }
}

fn add(shared: &mut Vec<SharedDoubt>, doubt: Doubt, name: Option<String>, of: usize) {
    match shared.iter_mut().find(|known| discriminant(&known.doubt) == discriminant(&doubt)) {
        None => shared.push(SharedDoubt { doubt, worst: name, shared_by: 1, of }),
        Some(known) => {
            known.shared_by += 1;
            if doubt.weight() > known.doubt.weight() {
                (known.doubt, known.worst) = (doubt, name);
            }
        }
    }
}

fn of_run(settings: &Settings, environment: &Environment) -> Vec<Doubt> {
    let (build, cpus) = (&environment.build, environment.machine.cpus);
    let unoptimised = build.is_unoptimised().then(|| Doubt::Unoptimised { opt_level: build.opt_level.clone() });
    let load = environment.load.filter(|&load| load > LOAD_EACH * f64::from(cpus));
    let loaded = load.map(|load| Doubt::Loaded { load, cpus });
    let one_process = (settings.runs <= 1).then_some(Doubt::OneProcess);
    [unoptimised, loaded, one_process].into_iter().flatten().collect()
}

fn of_case(case: &MeasuredFigures, settings: &Settings) -> Vec<Doubt> {
    let (iterations, processes, is_interrupted) =
        (case.wall.all.n, case.wall.processes, case.stopped == StopReason::Interrupted);
    let (throttled, reasons) = (case.state.throttled, case.state.reasons.clone());
    let (unsteady, of) = (case.stability.unsteady, processes);
    let is_few = case.wall.interval.is_none() && !is_interrupted;
    let found = [
        is_interrupted.then_some(Doubt::Interrupted { iterations }),
        (throttled > 0).then_some(Doubt::Throttled { iterations: throttled, of: case.state.of, reasons }),
        beyond_peak(case),
        case.stability.slow_start.map(|slow| Doubt::SlowStart { slow, warmup: settings.warmup }),
        (unsteady > 0 || case.steady == Steady::NotReached).then_some(Doubt::NeverSteady { processes: unsteady, of }),
        case.stability.slow_down.map(|by| Doubt::BecameSlower { by }),
        time_up(case, settings),
        is_few.then_some(Doubt::FewIterations { iterations, processes }),
        processes_differ(case, settings),
        outliers(case),
    ];
    found.into_iter().flatten().collect()
}

fn beyond_peak(case: &MeasuredFigures) -> Option<Doubt> {
    let limits = case.limits?;
    let shares = [(limits.mfu, Bound::Arithmetic), (limits.mbu, Bound::Memory)];
    let beyond = shares.into_iter().filter_map(|(share, bound)| Some((share.filter(|&share| share > 1.0)?, bound)));
    let (share, bound) = beyond.max_by(|one, other| one.0.total_cmp(&other.0))?;
    Some(Doubt::BeyondPeak { share, bound })
}

fn time_up(case: &MeasuredFigures, settings: &Settings) -> Option<Doubt> {
    match (case.stopped, settings.stop) {
        // An interval that is narrow enough needs no note, even if there were too few iterations to stop.
        (StopReason::MaxTime { half_width }, Stop::Interval { within, at_most_ns, .. })
            if half_width.is_none_or(|half_width| half_width > within) =>
        {
            Some(Doubt::TimeUp { half_width, within, at_most_ns })
        }
        _ => None,
    }
}

fn processes_differ(case: &MeasuredFigures, settings: &Settings) -> Option<Doubt> {
    let (between, within, processes) = (case.wall.between?, case.wall.within?, case.wall.processes);
    let is_large = between > LEAST_BETWEEN && between > BETWEEN_OVER_WITHIN * within;
    let differ = Doubt::ProcessesDiffer { between, within, processes, runs: settings.runs };
    (is_large && processes >= LEAST_PROCESSES).then_some(differ)
}

fn outliers(case: &MeasuredFigures) -> Option<Doubt> {
    let (iterations, of, furthest) = (case.stability.outliers, case.wall.all.n, case.stability.furthest?);
    let is_many = iterations as f64 > OUTLIER_SHARE * of as f64;
    let distance = (furthest - 1.0).abs();
    let is_far = distance > FAR_OUTLIER_DISTANCE || (is_many && distance > OUTLIER_DISTANCE);
    (iterations > 0 && is_far).then_some(Doubt::Outliers { iterations, of, furthest })
}
