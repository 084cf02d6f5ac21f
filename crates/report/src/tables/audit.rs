//! Calls in source code that sync with the GPU, as a table.

use laptime_analyze::{first_few, plural};
use laptime_audit::{Answer, Certainty, Placed, Problem, Seen, Unplaced};

use super::syncs::short;
use crate::{Cell, Table, layout::single, table::table};

/// Unreadable files that are named; the rest is counted.
const NAMED: usize = 5;

/// Which further sites are listed, in addition to counted and recorded ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExtraSites {
    /// Sites in tests.
    pub tests: bool,
    /// Allowed sites.
    pub allowed: bool,
}

impl ExtraSites {
    fn has(self, placed: &Placed) -> bool {
        let is_seen = placed.seen.as_ref().is_some_and(|seen| seen.count > 0);
        is_seen || (self.tests || !placed.site.is_test) && (self.allowed || placed.site.allowed.is_none())
    }
}

/// Lays out the sites of an audit.
pub fn audit(answer: &Answer, listed: ExtraSites) -> Table {
    let mut table = table!("sites", answer.sites.iter().filter(|placed| listed.has(placed)), placed: &Placed => {
        let site = &placed.site;
        let seen = placed.seen.as_ref();
        let known = seen.filter(|seen| seen.count > 0);
    } [
        ("site", "site").human_only().whole() => Cell::text(format!("{}:{}", placed.path, site.line)),
        ("file", "file").machine_only() => Cell::text(placed.path.clone()),
        ("line", "line").machine_only() => Cell::Whole(i64::from(site.line)),
        ("column", "column").machine_only() => Cell::Whole(i64::from(site.column)),
        ("call", "call").whole() => Cell::text(site.call.clone()),
        ("function", "function").drop(5) => text(&site.function),
        ("loop_depth", "loops") => Cell::Count(u64::from(site.loop_depth)),
        ("certainty", "sync").drop(6) => Cell::text(site.certainty.word()),
        ("in_test", "in").drop(4).shown_if(listed.tests) =>
            if site.is_test { Cell::text("test") } else { Cell::Empty },
        ("allowed", "allowed").drop(3).shown_if(listed.allowed) =>
            Cell::from(site.allowed.as_ref().map(|reason| {
                Cell::text(if reason.is_empty() { "no reason given" } else { reason.as_str() })
            })),
        ("recorded", "recorded") => Cell::from(known.map(|seen| Cell::Count(seen.count))),
        ("waited_ms", "waited") => Cell::from(known.and_then(|seen| seen.total).map(Cell::Nanos)),
        ("waits_per_lap", "per lap").drop(1) => Cell::number(known.and_then(|seen| seen.a_lap)),
        ("run", "in the run").drop(2) => Cell::from(seen.map(|seen| Cell::text(seen_word(seen)))),
    ]);
    for unplaced in answer.unplaced.iter().flatten() {
        table.push(unplaced_row(unplaced));
    }
    add_facts(&mut table, answer);
    add_notes(&mut table, answer, listed);
    table
}

fn unplaced_row(unplaced: &Unplaced) -> Vec<Cell> {
    let mut row = vec![Cell::Empty; 14];
    row[0] = if unplaced.place.is_empty() { Cell::text("(unknown)") } else { Cell::text(short(&unplaced.place)) };
    row[1] = text(&unplaced.place);
    row[4] = Cell::text(unplaced.call.clone());
    row[10] = Cell::Count(unplaced.seen.count);
    row[11] = Cell::from(unplaced.seen.total.map(Cell::Nanos));
    row[12] = Cell::number(unplaced.seen.a_lap);
    row[13] = Cell::text("no site");
    row
}

fn text(text: &str) -> Cell {
    if text.is_empty() { Cell::Empty } else { Cell::text(text) }
}

fn seen_word(seen: &Seen) -> String {
    match (seen.count, seen.reported_at) {
        (0, Some(line)) => format!("see line {line}"),
        (0, None) => "never".to_owned(),
        _ => "seen".to_owned(),
    }
}

fn add_facts(table: &mut Table, answer: &Answer) {
    let count = |is: &dyn Fn(&Placed) -> bool| answer.counted().filter(|placed| is(placed)).count() as u64;
    table.fact("site_count", "sites", Cell::Count(answer.counted().count() as u64));
    table.fact("sites_in_loops", "in loops", Cell::Count(count(&|placed| placed.site.loop_depth > 0)));
    table.fact("likely_sites", "likely", Cell::Count(count(&|placed| placed.site.certainty == Certainty::Likely)));
    table.fact("allowed_sites", "allowed", Cell::Count(answer.allowed()));
    table.fact("test_sites", "in tests", Cell::Count(answer.in_tests()));
    table.fact("rust_files", "Rust files", Cell::Count(answer.rust_files));
    table.fact("python_files", "Python files", Cell::Count(answer.python_files));
    table.fact("unread_files", "not read", Cell::Count(answer.unread.len() as u64));
    table.machine_fact("unknown_copies", Cell::Count(answer.unknown));
    if let Some(budget) = answer.limits.budget {
        table.machine_fact("budget", Cell::Count(budget));
    }
    if let Some(depth) = answer.limits.loop_depth {
        table.machine_fact("max_loop_depth", Cell::Count(u64::from(depth)));
    }
    if answer.limits != laptime_audit::Limits::default() {
        table.machine_fact("limits_kept", Cell::Bool(answer.is_kept()));
    }
}

fn add_notes(table: &mut Table, answer: &Answer, listed: ExtraSites) {
    let counted = answer.counted().count() as u64;
    if counted == 0 {
        table.note("No calls that force a GPU sync were found.");
    }
    let hidden = |hidden: u64, flag: &str, what: &str| {
        let (are, them) = if hidden == 1 { ("site is", "it") } else { ("sites are", "them") };
        (hidden > 0).then(|| format!("{hidden} {are} {what}; `{flag}` lists {them}."))
    };
    let tests = if listed.tests { None } else { hidden(answer.in_tests(), "--tests", "in tests") };
    let allowed = if listed.allowed { None } else { hidden(answer.allowed(), "--allowed", "allowed") };
    for note in tests.into_iter().chain(allowed) {
        table.note(note);
    }
    add_unread(table, &answer.unread);
    add_run(table, answer);
    add_limits(table, answer, counted);
    if answer.unknown > 0 {
        let (calls, may) = match answer.unknown {
            1 => ("1 call is".to_owned(), "it may be a sync"),
            more => (format!("{more} calls are"), "they may be syncs"),
        };
        table.note(format!("{calls} not listed: {may}, depending on the value of `device` in `.to(device)`."));
    }
    table.legend(
        "Sites are found by name, without types: a site syncs only if its data is on a GPU. A function that syncs inside is \
         listed where it syncs, not where it is called, and loops are those of the function itself.",
    );
}

fn add_unread(table: &mut Table, unread: &[(String, Problem)]) {
    if unread.is_empty() {
        return;
    }
    let name = |(path, problem): &(String, Problem)| match problem.line {
        Some(line) => format!("`{path}:{line}` ({})", problem.reason),
        None => format!("`{path}` ({})", problem.reason),
    };
    table.note(format!("Not fully read: {}.", first_few(unread.iter().map(name), NAMED)));
}

fn add_run(table: &mut Table, answer: &Answer) {
    let Some(unplaced) = &answer.unplaced else { return };
    let seen = || answer.sites.iter().filter_map(|placed| placed.seen.as_ref());
    let (sites, waits) = (seen().filter(|seen| seen.count > 0).count() as u64, seen().map(|seen| seen.count).sum());
    let is_never = |seen: &Seen| seen.count == 0 && seen.reported_at.is_none();
    let never = answer.counted().filter(|placed| placed.seen.as_ref().is_some_and(is_never)).count() as u64;
    let others = unplaced.iter().fold(0, |count: u64, wait| count.saturating_add(wait.seen.count));
    let time = seen().filter_map(|seen| seen.total).fold(0, u64::saturating_add);
    table.machine_fact("sites_seen", Cell::Count(sites));
    table.machine_fact("sites_never_seen", Cell::Count(never));
    table.machine_fact("waits_at_sites", Cell::Count(waits));
    table.machine_fact("waits_without_site", Cell::Count(others));
    table.note(format!(
        "The run synced {} at {} of these sites ({}); {} did not occur in it.{}",
        times(waits),
        sites,
        single(&Cell::Nanos(time)),
        never,
        match others {
            0 => String::new(),
            others => format!(" It also synced {} outside the listed sites.", times(others)),
        }
    ));
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{} times", single(&Cell::Count(count))),
    }
}

fn add_limits(table: &mut Table, answer: &Answer, counted: u64) {
    if let Some(budget) = answer.limits.budget {
        let sites = plural(counted, "site", "sites");
        table.note(match answer.over_budget() {
            0 => format!("Within the budget of {budget}: {sites}."),
            over => format!("Over the budget of {budget} by {over}: {sites}."),
        });
    }
    let Some(depth) = answer.limits.loop_depth else { return };
    let loops = plural(depth, "loop", "loops");
    let too_deep = answer.sites.iter().filter(|placed| placed.is_too_deep);
    let named = first_few(too_deep.map(|placed| format!("`{}:{}`", placed.path, placed.site.line)), NAMED);
    table.note(match answer.too_deep() {
        0 => format!("No site is inside more than {loops}."),
        _ => format!("Inside more than {loops}: {named}."),
    });
}
