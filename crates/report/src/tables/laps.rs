//! Laps as tables: summary figures, or every lap.

use laptime_analyze::{
    LEAST_LAPS, Lap, LapPart, LapSource, Laps, Note, PartDifference, SLOW_DISTANCE, SLOW_SHARE, SlowLap, Trend,
    capital, plural,
};
use laptime_stats::Summary;

use super::overview;
use crate::layout::{in_one_unit, single};
use crate::{Cell, Table, curve::curve, kernel_name::short, table::table};

/// The most blocks in the curve.
const BLOCKS: usize = 60;

/// The width of a name in a sentence.
const NAME_IN_A_SENTENCE: usize = 48;

/// Lays out the figures of all laps, with the slow laps and their causes below.
pub fn laps(answer: &Laps) -> Table {
    let figures = &answer.figures;
    let rows = [
        ("length", Some(&figures.length)),
        ("period", figures.period.as_ref()),
        ("device busy", figures.busy.as_ref()),
        ("device idle", figures.idle.as_ref()),
        ("host syncs", figures.waiting.as_ref()),
    ];
    let rows = rows.into_iter().filter_map(|(name, summary)| Some((name, summary?)));
    let mut table = table!("figures", rows, (name, summary): (&str, &Summary) => {
        // A period is not part of a lap.
        let whole = (name != "period").then_some(figures.length.median);
        let share = whole.filter(|whole| *whole > 0.0).map(|whole| Cell::Share(summary.median / whole));
    } [
        ("time", "per lap") => Cell::text(name),
        ("n", "n") => Cell::Count(summary.n as u64),
        ("median_ms", "median") => Cell::nanos(summary.median),
        ("share", "share").drop(3) => share.into(),
        ("mean_ms", "mean").in_unit_of("median_ms").drop(4) => Cell::nanos(summary.mean),
        ("std_ms", "std").in_unit_of("median_ms").drop(5) => Cell::nanos(summary.std),
        ("min_ms", "shortest").in_unit_of("median_ms").drop(2) => Cell::nanos(summary.min),
        ("p5_ms", "p5").in_unit_of("median_ms").drop(7) => Cell::nanos(summary.p5),
        ("p95_ms", "p95").in_unit_of("median_ms").drop(1) => Cell::nanos(summary.p95),
        ("p99_ms", "p99").in_unit_of("median_ms").drop(6) => Cell::nanos(summary.p99),
        ("max_ms", "longest").in_unit_of("median_ms") => Cell::nanos(summary.max),
    ]);
    add_facts(&mut table, answer);
    add_notes(&mut table, answer);
    table
}

fn add_facts(table: &mut Table, answer: &Laps) {
    let figures = &answer.figures;
    let median = |summary: &Option<Summary>| Cell::from(summary.map(|summary| Cell::Number(summary.median)));
    table.fact("laps", "laps", Cell::Count(answer.laps.len() as u64));
    table.fact("launches_per_lap", "launches per lap", median(&figures.launches));
    table.fact("waits_per_lap", "syncs per lap", median(&figures.waits));
    table.fact("busy_share", "device busy", Cell::share(figures.busy_share));
    table.machine_fact("unit", Cell::text(answer.name.clone()));
    table.machine_fact("source", Cell::text(answer.source.word()));
    table.machine_fact("cold", Cell::Count(answer.cold as u64));
    table.machine_fact("slow", Cell::Count(answer.slow_count() as u64));
    table.machine_fact("limit_ms", Cell::nanos(answer.limit));
    table.machine_fact("slope_ms", Cell::from(answer.trend.map(|trend| Cell::Number(trend.slope / 1e6))));
    overview::add(table, &answer.overview);
}

fn add_notes(table: &mut Table, answer: &Laps) {
    table.note(unit(answer));
    table.note(in_order(answer));
    if let Some(first) = answer.slow.first().filter(|slow| slow.at < answer.cold) {
        table.note(cold(answer, first));
    }
    table.note(slow(answer));
    table.legend(format!(
        "A lap is slow if it is more than {SLOW_DISTANCE:.0} median absolute deviations and {:.0} % above the median; this \
         needs {LEAST_LAPS} laps.",
        100.0 * SLOW_SHARE
    ));
    for lap in answer.slow.iter().filter(|slow| slow.at >= answer.cold) {
        table.note(sentence(answer, lap));
    }
    let explained = answer.slow.iter().filter(|slow| slow.at >= answer.cold).count();
    if let Some(more @ 1..) = answer.slow_count().checked_sub(explained) {
        table.note(format!("{more} more laps are slow; `--each` shows every lap."));
    }
    if let Some(trend) = answer.trend {
        table.note(trend_sentence(trend));
    }
    if answer.devices > 1 {
        table.legend(format!("Busy is the time of a lap in which any of {} devices worked.", answer.devices));
    }
    if answer.is_stages {
        table.warn(Note::new("stages-only", "no kernels were recorded; busy time includes idle time inside stages"));
    }
    if !answer.others.is_empty() {
        let others: Vec<String> = answer.others.iter().map(|(name, count)| format!("`{name}` ({count})")).collect();
        table.legend(format!("`--lap NAME` chooses another unit: {}.", others.join(", ")));
    }
}

fn unit(answer: &Laps) -> String {
    let name = &answer.name;
    match answer.source {
        LapSource::Named => format!("A lap is one `{name}`."),
        LapSource::Kernels => {
            format!("A lap is one repetition of a {name}, detected automatically.")
        }
        source => format!("A lap is one `{name}` ({}).", source.words()),
    }
}

/// The laps as a curve; each block is the longest of several laps if there are many.
fn in_order(answer: &Laps) -> String {
    let lengths: Vec<u64> = answer.laps.iter().map(Lap::length).collect();
    let block = lengths.len().div_ceil(BLOCKS).max(1);
    let longest: Vec<u64> = lengths.chunks(block).filter_map(|laps| laps.iter().max().copied()).collect();
    let each =
        if block == 1 { "one block per lap".to_owned() } else { format!("each block is the longest of {block} laps") };
    format!("Laps in order ({each}): {}", curve(&longest))
}

fn cold(answer: &Laps, first: &SlowLap) -> String {
    let who = if answer.cold == 1 { "lap is".to_owned() } else { format!("{} laps are", answer.cold) };
    format!("The first {who} a warm-up and not in the figures. {}", capital(&sentence(answer, first)))
}

fn slow(answer: &Laps) -> String {
    let Some(limit) = answer.limit else {
        return "There are too few laps to find slow ones.".to_owned();
    };
    let limit = single(&Cell::nanos(limit));
    match answer.slow_count() {
        0 => format!("No lap is slow (longer than {limit})."),
        slow => format!("{} slow (longer than {limit}).", plural(slow, "lap is", "laps are")),
    }
}

/// How a lap differs from the median lap.
fn sentence(answer: &Laps, slow: &SlowLap) -> String {
    let Some(lap) = answer.laps.get(slow.at) else { return String::new() };
    let median = answer.figures.length.median;
    let [length, usual] = in_one_unit([lap.length() as f64, median].map(Cell::nanos));
    let times = lap.length() as f64 / median.max(1.0);
    let why: Vec<String> = slow.more.iter().map(difference).collect();
    let why = if why.is_empty() { "many small differences".to_owned() } else { why.join(", ") };
    format!("{}: {length}, {times:.1}x the median {usual}: {why}.", called(answer, lap))
}

fn called(answer: &Laps, lap: &Lap) -> String {
    if answer.source == LapSource::Kernels { format!("lap {}", lap.label) } else { format!("`{}`", lap.label) }
}

fn difference(difference: &PartDifference) -> String {
    let more = single(&Cell::nanos(difference.more));
    let name = |name: &str| short(name, NAME_IN_A_SENTENCE).into_owned();
    let count = match difference.usual_count {
        usual if usual == difference.count as f64 => String::new(),
        0.0 => " (not in most laps)".to_owned(),
        usual => format!(" ({} times, usually {usual})", difference.count),
    };
    match &difference.part {
        LapPart::Own => format!("+{more} in the lap itself"),
        LapPart::Host(host) => format!("+{more} in `{}`{count}", name(host)),
        LapPart::Unrecorded => format!("+{more} without recorded host activity"),
        LapPart::Device(kernel) => format!("+{more} of `{}` on the device{count}", name(kernel)),
        LapPart::Idle => format!("+{more} device idle"),
    }
}

fn trend_sentence(trend: Trend) -> String {
    let how = if trend.slope > 0.0 { "longer" } else { "shorter" };
    let slope = single(&Cell::nanos(trend.slope.abs()));
    let share = 100.0 * trend.share.abs();
    format!("Laps get {how} by {slope} per lap, {share:.1} % of the median in total.")
}

/// Lays out every lap.
pub fn each_lap(answer: &Laps) -> Table {
    let mut table = table!("laps", answer.laps.iter().enumerate(), (at, lap): (usize, &Lap) => {
        let time = |time: Option<u64>| Cell::from(time.map(Cell::Nanos));
        let slow = match (lap.is_cold, lap.is_slow) {
            (true, _) => Cell::text("cold"),
            (_, true) => Cell::text("slow"),
            _ => Cell::Empty,
        };
        let why = answer.slow.iter().find(|slow| slow.at == at);
    } [
        ("lap", "lap") => Cell::name(lap.label.clone()),
        ("start_ms", "start").drop(2) => Cell::Nanos(lap.start.saturating_sub(answer.begin)),
        ("length_ms", "length") => Cell::Nanos(lap.length()),
        ("busy_ms", "device busy").in_unit_of("length_ms").drop(1) => time(lap.busy),
        ("idle_ms", "device idle").in_unit_of("length_ms") => time(lap.idle()),
        ("waits", "syncs") => Cell::Count(lap.waits),
        ("waits_ms", "in syncs").in_unit_of("length_ms").drop(3) => Cell::Nanos(lap.waiting),
        ("launches", "launches") => Cell::from(lap.launches.map(Cell::Count)),
        ("slow", "slow") => slow,
        ("why", "why").machine_only() => Cell::from(why.map(|slow| Cell::text(sentence(answer, slow)))),
    ]);
    add_facts(&mut table, answer);
    add_notes(&mut table, answer);
    table
}
