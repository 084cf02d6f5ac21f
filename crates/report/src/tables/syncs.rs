//! Host syncs as tables: by call and site, or one by one.

use laptime_analyze::{
    Judged, LapSource, LapWaits, Limit, Spent, Syncs, Wait, WaitGroup, WaitKind, WaitingThread, Waits, plural,
};

use super::overview;
use crate::layout::{in_one_unit, single};
use crate::{Cell, Table, table::table};

/// Laps over budget, and sites that cause it, that are named; the rest is counted.
const NAMED: usize = 5;

/// Lays out syncs by call and site.
pub fn syncs(answer: &Syncs, judged: Option<&Judged>) -> Table {
    let is_over = judged.is_some_and(|judged| !judged.is_kept());
    let mut table = table!("syncs", answer.groups.iter().enumerate(), (at, group): (usize, &WaitGroup) => {
        let over = judged.and_then(|judged| judged.causes.iter().find(|(cause, _)| *cause == at));
    } [
        ("site", "site").machine_only() => site(group, str::to_owned),
        ("short_site", "site").human_only() => site(group, short),
        ("call", "call").machine_only() => Cell::text(group.call.clone()),
        ("call_with_kind", "call").human_only() => Cell::text(call(group)),
        ("kind", "kind").machine_only() => Cell::text(group.kind.word()),
        ("stage", "stage").drop(7) => Cell::from(group.stage.clone().map(Cell::text)),
        ("count", "count") => Cell::Count(group.count),
        ("waits_per_lap", "per lap").drop(1) => Cell::number(group.a_lap),
        ("total_ms", "total") => nanos(group.total.map(|total| total.0)),
        ("median_ms", "median").drop(4) => nanos(group.median.map(|median| median.round() as u64)),
        ("max_ms", "longest").in_unit_of("median_ms").drop(5) => nanos(group.longest.map(|longest| longest.0)),
        ("busy_share", "busy").drop(2) => Cell::share(group.busy_share),
        ("cost_ms", "cost").drop(3) => nanos(group.cost.map(|cost| cost.0)),
        ("over_budget", "over budget").shown_if(is_over) => Cell::from(over.map(|(_, spent)| Cell::Count(spent.waits))),
    ]);
    add_remarks(&mut table, answer, judged);
    table
}

/// Lays out every sync.
pub fn waits(answer: &Syncs, judged: Option<&Judged>) -> Table {
    let mut table = table!("waits", &answer.waits, wait: &Wait => {
        let group = &answer.groups[wait.group];
        let stage = wait.stage.and_then(|stage| answer.stages.get(stage));
    } [
        ("site", "site").machine_only() => site(group, str::to_owned),
        ("short_site", "site").human_only() => site(group, short),
        ("call", "call").machine_only() => Cell::text(group.call.clone()),
        ("call_with_kind", "call").human_only() => Cell::text(call(group)),
        ("kind", "kind").machine_only() => Cell::text(group.kind.word()),
        ("stage", "stage").drop(5) => Cell::from(stage.cloned().map(Cell::text)),
        ("lap", "lap").drop(2) => Cell::from(laps(answer, wait).map(Cell::text)),
        ("start_ms", "start") => Cell::Nanos(wait.start.0),
        ("length_ms", "length") => nanos(wait.length.map(|length| length.0)),
        ("busy_ms", "busy").in_unit_of("length_ms").drop(1) => nanos(wait.busy.map(|busy| busy.0)),
        ("idle_ms", "idle").in_unit_of("length_ms").drop(4) => nanos(wait.idle().map(|idle| idle.0)),
        ("cost_ms", "cost").drop(3) => nanos(wait.cost.map(|cost| cost.0)),
    ]);
    add_remarks(&mut table, answer, judged);
    table
}

/// The lap in which a sync started, and the one in which it ended if that is another.
fn laps(answer: &Syncs, wait: &Wait) -> Option<String> {
    let label = |at: usize| Some(answer.laps.as_ref()?.laps.get(at)?.label.as_str());
    let first = label(wait.lap?)?;
    match wait.last_lap.filter(|last| Some(*last) != wait.lap).and_then(label) {
        Some(last) => Some(format!("{first} to {last}")),
        None => Some(first.to_owned()),
    }
}

fn site(group: &WaitGroup, write: impl Fn(&str) -> String) -> Cell {
    if group.site.is_empty() { Cell::Empty } else { Cell::text(write(&group.site)) }
}

/// The width of a site for people, if its parts allow.
const SITE_WIDTH: usize = 34;

/// The innermost parts of a site.
pub(super) fn short(site: &str) -> String {
    let mut rest = site.trim_start_matches("…/");
    while rest.chars().count() > SITE_WIDTH
        && let Some((_, inner)) = rest.split_once('/')
    {
        rest = inner;
    }
    if rest.len() == site.len() { site.to_owned() } else { format!("…/{rest}") }
}

fn call(group: &WaitGroup) -> String {
    match group.kind {
        WaitKind::Implicit => format!("{} (implicit)", group.call),
        WaitKind::Call | WaitKind::Marked => group.call.clone(),
    }
}

fn nanos(nanos: Option<u64>) -> Cell {
    Cell::from(nanos.map(Cell::Nanos))
}

fn add_remarks(table: &mut Table, answer: &Syncs, judged: Option<&Judged>) {
    table.fact("waits", "syncs", Cell::Count(answer.waits.len() as u64));
    table.fact("waits_ms", "time in syncs", Cell::Nanos(answer.time().0));
    if let Some(share) = answer.share().filter(|_| !answer.waits.is_empty()) {
        table.machine_fact("wait_share", Cell::Share(share));
    }
    if let Some(cost) = answer.cost {
        table.fact("cost_ms", "idle time after syncs", Cell::Nanos(cost.0));
    }
    overview::add(table, &answer.overview);
    let waits = Waits { count: answer.waits.len() as u64, time: answer.time() };
    table.note(match waits.count {
        0 => "No host syncs found.".to_owned(),
        _ => overview::waited(&answer.overview, waits),
    });
    if answer.cost.is_some() && waits.count > 0 {
        table.legend(
            "Cost is the idle time of the device that would disappear without the sync. Busy is the share of the sync in \
             which the device worked.",
        );
    }
    if let Some(thread) = &answer.thread {
        add_thread(table, thread);
    }
    if let Some(laps) = &answer.laps {
        add_laps(table, laps);
    }
    add_implicit(table, answer);
    if let Some(judged) = judged {
        add_budget(table, answer, judged);
    }
}

/// The name that CUPTI gives to a launch that waits because the queue is full.
const QUEUE_FULL: &str = "Command Buffer Full";

fn add_implicit(table: &mut Table, answer: &Syncs) {
    let implicit = || answer.groups.iter().filter(|group| group.kind == WaitKind::Implicit);
    if implicit().any(|group| group.call != QUEUE_FULL) {
        table.legend(
            "An implicit sync is a call that normally returns at once but blocked until the device had finished its copy \
             or all earlier work.",
        );
    }
    if implicit().any(|group| group.call == QUEUE_FULL) {
        table.legend(format!(
            "`{QUEUE_FULL}` is a launch that waited because the queue of the device was full: the host is far ahead."
        ));
    }
}

fn add_thread(table: &mut Table, thread: &WaitingThread) {
    let Some(share) = thread.share() else { return };
    let which = if thread.is_launching { "launches the work" } else { "waits the most" };
    let [waited, wall] = [thread.waited, thread.wall].map(|time| single(&Cell::Nanos(time.0)));
    let share_text = single(&Cell::Share(share));
    table.note(format!("Thread `{}`, which {which}, waited {waited} of {wall} ({share_text}).", thread.name));
    table.machine_fact("thread", Cell::text(thread.name.clone()));
    table.machine_fact("thread_share", Cell::Share(share));
}

fn add_laps(table: &mut Table, laps: &LapWaits) {
    let (Some(counts), Some(times)) = (laps.counts(), laps.times()) else { return };
    let [least, median, most] = in_one_unit([times.min, times.median.round() as u64, times.max].map(Cell::Nanos));
    let outside = match laps.outside {
        0 => String::new(),
        outside => format!(" {} outside all laps.", plural(outside, "sync is", "syncs are")),
    };
    let per_lap = match (counts.min, counts.max) {
        (least, most) if least == most => plural(least, "sync per lap", "syncs per lap"),
        (least, most) => format!("{least} to {most} syncs per lap, median {}", counts.median),
    };
    let waited = if times.min == times.max {
        format!("{least} waited per lap")
    } else {
        format!("{least} to {most} waited per lap, median {median}")
    };
    let which = format!("{} laps of `{}` ({})", laps.laps.len(), laps.name, laps.source.words());
    if counts.max == 0 && times.max == 0 {
        table.note(format!("None of the {which} has a sync.{outside}"));
    } else {
        table.note(format!("{which}: {per_lap}; {waited}.{outside}"));
        if laps.source == LapSource::Kernels {
            table.legend(
                "These laps were detected on the device, so syncs are assigned to them by time: a sync counts for the lap \
                 in which it starts, and its time for every lap that it overlaps.",
            );
        }
    }
    table.machine_fact("lap_unit", Cell::text(laps.name.clone()));
    table.machine_fact("laps", Cell::Count(laps.laps.len() as u64));
    table.machine_fact("waits_outside_laps", Cell::Count(laps.outside));
    table.machine_fact("waits_per_lap_min", Cell::Count(counts.min));
    table.machine_fact("waits_per_lap_median", Cell::Number(counts.median));
    table.machine_fact("waits_per_lap_max", Cell::Count(counts.max));
    table.machine_fact("waited_per_lap_min_ms", Cell::Nanos(times.min));
    table.machine_fact("waited_per_lap_median_ms", Cell::Nanos(times.median.round() as u64));
    table.machine_fact("waited_per_lap_max_ms", Cell::Nanos(times.max));
}

fn add_budget(table: &mut Table, answer: &Syncs, judged: &Judged) {
    table.machine_fact("budget", Cell::text(judged.budget.to_string()));
    table.machine_fact("budget_kept", Cell::Bool(judged.is_kept()));
    table.machine_fact("budget_over", Cell::Count(judged.over.len() as u64));
    table.machine_fact("allowed_waits", Cell::Count(judged.allowed));
    if judged.is_kept() {
        let place = if judged.budget.is_per_lap { "no lap has more than" } else { "the trace has" };
        table.note(format!("Within the budget `{}`: {place} {}.", judged.budget, amount(judged, &judged.most)));
    } else {
        add_over(table, answer, judged);
    }
    match judged.allowed {
        0 => {}
        1 => table.note("1 sync is allowed by `--allow` and does not count."),
        more => table.note(format!("{more} syncs are allowed by `--allow` and do not count.")),
    }
}

fn add_over(table: &mut Table, answer: &Syncs, judged: &Judged) {
    let is_of_device = answer.laps.as_ref().is_some_and(|laps| laps.source == LapSource::Kernels);
    let place = |over: &laptime_analyze::Over| match &over.lap {
        Some(lap) if is_of_device => format!("lap {lap} has {}", amount(judged, &over.spent)),
        Some(lap) => format!("`{lap}` has {}", amount(judged, &over.spent)),
        None => format!("the trace has {}", amount(judged, &over.spent)),
    };
    let places = listed(judged.over.iter().map(place).collect());
    let laps = answer.laps.as_ref().map_or(0, |laps| laps.laps.len());
    let which = if judged.budget.is_per_lap {
        let are = if judged.over.len() == 1 { "is" } else { "are" };
        format!("{} of {laps} laps {are} over budget", judged.over.len())
    } else {
        "the trace is over budget".to_owned()
    };
    table.note(format!("Over budget (`{}`): {which}: {places}.", judged.budget));
    let cause = |(group, spent): &(usize, Spent)| {
        let group = &answer.groups[*group];
        let site = if group.site.is_empty() { String::new() } else { format!(" in `{}`", group.site) };
        format!("`{}`{site}, {}", group.call, amount(judged, spent))
    };
    let causes = listed(judged.causes.iter().map(cause).collect());
    table.note(format!("Causes: {causes}."));
}

/// What was used, in the unit of the budget.
fn amount(judged: &Judged, spent: &Spent) -> String {
    match judged.budget.limit {
        Limit::Count(_) => plural(spent.waits, "sync", "syncs"),
        Limit::Time(_) => format!("{} in syncs", single(&Cell::Nanos(spent.time.0))),
    }
}

/// The first few of a list, and how many more there are.
fn listed(mut all: Vec<String>) -> String {
    let more = all.len().saturating_sub(NAMED);
    all.truncate(NAMED);
    let list = all.join("; ");
    if more == 0 { list } else { format!("{list}; and {more} more") }
}
