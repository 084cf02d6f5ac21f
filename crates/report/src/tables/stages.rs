//! The stage tree as a table.

use laptime_analyze::{Per, Stage, Stages};
use laptime_trace::{DEEPEST, Nanos};

use super::overview;
use crate::layout::{counted, single};
use crate::{Cell, Table, table::table};

/// Which stages are shown; a note counts the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageLimits {
    /// The most levels that are shown.
    pub depth: usize,
    /// The most rows that are shown: the stages with the most time, with their parents.
    pub most: usize,
}

impl StageLimits {
    /// All stages.
    pub const NONE: Self = Self { depth: usize::MAX, most: usize::MAX };

    /// Whether each stage is shown.
    ///
    /// Stages are chosen by their host or device time, parents before children.
    fn chosen(self, answer: &Stages) -> Vec<bool> {
        let mut order: Vec<usize> = (0..answer.stages.len()).filter(|&at| self.is_in_reach(answer, at)).collect();
        order.sort_by_key(|&at| (std::cmp::Reverse(time(&answer.stages[at])), at));
        let mut is_chosen = vec![false; answer.stages.len()];
        let mut left = self.most;
        for at in order {
            let missing: Vec<usize> = std::iter::successors(Some(at), |&at| answer.stages[at].parent)
                .take_while(|&at| !is_chosen[at])
                .take(left.saturating_add(1))
                .collect();
            if missing.len() <= left {
                left -= missing.len();
                missing.into_iter().for_each(|at| is_chosen[at] = true);
            }
        }
        is_chosen
    }

    fn is_in_reach(self, answer: &Stages, at: usize) -> bool {
        answer.stages[at].depth < self.depth
    }
}

/// The time that stages are ranked by.
fn time(stage: &Stage) -> Nanos {
    stage.host.max(stage.device).unwrap_or(Nanos(0))
}

/// Lays out the stage tree.
pub fn stages(answer: &Stages) -> Table {
    stages_within(answer, StageLimits::NONE)
}

/// Lays out the stages with the most time, with a note on how many are left out.
pub fn stages_within(answer: &Stages, limits: StageLimits) -> Table {
    let is_chosen = limits.chosen(answer);
    let chosen = answer.stages.iter().enumerate().filter(|(at, _)| is_chosen[*at]);
    let mut table = table!("stages", chosen, (at, stage): (usize, &Stage) => {
        let nanos = |time: Option<Nanos>| Cell::from(time.map(|time| Cell::Nanos(time.0)));
        let kind = match (stage.is_lap, stage.is_wait, stage.host) {
            (true, ..) => "lap",
            (_, true, _) => "wait",
            (_, _, None) => "device",
            _ => "stage",
        };
        // The tree shows which lap it is; machines get the name.
        let (unit, per) = match &stage.per {
            Per::Call => ("call", "call"),
            Per::Lap(name) => ("lap", name.as_str()),
        };
    } [
        ("path", "stage") => Cell::tree(stage.depth, label(stage), answer.path(at).join("/")),
        ("name", "name").machine_only() => Cell::text(stage.name.clone()),
        ("depth", "depth").machine_only() => Cell::Count(stage.depth as u64),
        ("kind", "kind").machine_only() => Cell::text(kind),
        ("count", "count") => Cell::Count(stage.count),
        ("host_ms", "host") => nanos(stage.host),
        ("host_share", "share").drop(1) => Cell::share(stage.share),
        ("host_self_ms", "self").in_unit_of("host_ms").drop(3) => nanos(stage.host_self),
        ("device_ms", "device").in_unit_of("host_ms") => nanos(stage.device),
        ("median_ms", "median") => Cell::Nanos(stage.median.round() as u64),
        ("p95_ms", "p95").in_unit_of("median_ms").drop(4) => Cell::Nanos(stage.p95.round() as u64),
        ("unit", "per").human_only() => Cell::text(unit),
        ("per", "per").machine_only() => Cell::text(per),
        ("open", "open").machine_only() => Cell::Count(stage.open),
    ]);
    overview::add(&mut table, &answer.overview);
    add_left_out(&mut table, answer, limits, &is_chosen);
    if answer.too_deep > 0 {
        let too_deep = single(&Cell::Count(answer.too_deep));
        table.legend(format!("Spans deeper than {DEEPEST} levels ({too_deep}) count for the stage at that depth."));
    }
    if answer.overview.threads > 1 {
        table.legend(format!("Times are sums over {} threads; shares are of the wall time.", answer.overview.threads));
    }
    table
}

/// Counts the stages that are left out, with the longest time among them.
fn add_left_out(table: &mut Table, answer: &Stages, limits: StageLimits, is_chosen: &[bool]) {
    let left_out = |is_deep: bool| {
        let places = (0..answer.stages.len()).filter(|&at| !is_chosen[at] && limits.is_in_reach(answer, at) != is_deep);
        let times: Vec<Nanos> = places.map(|at| time(&answer.stages[at])).collect();
        Some((times.len() as u64, single(&Cell::Nanos(times.into_iter().max()?.0))))
    };
    let stages_are = |count| counted(count, "stage is", "stages are");
    if let Some((count, longest)) = left_out(false) {
        let (are, all) = (stages_are(count), answer.stages.len());
        table.note(format!("{are} not shown ({longest} or less each); `--most {all}` shows all."));
    }
    if let Some((count, longest)) = left_out(true) {
        let (are, depth) = (stages_are(count), limits.depth);
        table.note(format!("{are} deeper than `--depth {depth}` ({longest} or less each)."));
    }
}

/// Laps and syncs have a suffix; machines read the column `kind`.
fn label(stage: &Stage) -> String {
    match (stage.is_lap, stage.is_wait) {
        (true, _) => format!("{} (lap)", stage.name),
        (_, true) => format!("{} (sync)", stage.name),
        _ => stage.name.clone(),
    }
}
