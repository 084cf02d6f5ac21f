//! The page of a trace: the answer, the timeline, and every table about it.

use std::{fmt::Write, io, thread};

use laptime_analyze::{
    Bottleneck, Cause, Diagnosis, Gap, Laps, OperationKind, Overview, Severity, Stages, Syncs, Top, Waiting, explain,
};
use laptime_report::{
    Cell,
    html::{Place, escape, html, prose},
    single,
    tables::{self, Ranking, Side, Sort, StageLimits},
};
use laptime_trace::{
    Trace,
    run::{CaseResult, Run},
};

use crate::{
    Page,
    data::{self, Extra, MOST_SPANS},
    run_page,
};

/// Rows of a table at most; the command has the rest.
const MOST_ROWS: usize = 200;

/// Findings that the page explains at most.
const MOST_FINDINGS: usize = 8;

/// What is known about a trace besides itself.
#[derive(Debug, Default)]
pub struct About<'a> {
    /// Its name, usually that of its file.
    pub name: String,
    /// The run that recorded it.
    pub run: Option<&'a Run>,
    /// The results of that run.
    pub results: &'a [CaseResult],
    /// The command that was recorded, if there is no run.
    pub command: Option<String>,
}

/// Every answer about a trace.
struct Answers {
    diagnosis: Diagnosis,
    waiting: Waiting,
    laps: Option<Laps>,
    stages: Stages,
    top: Top,
}

impl Answers {
    fn of(trace: &Trace, about: &About<'_>) -> Self {
        let peaks = about.run.and_then(|run| run.peaks.as_ref());
        thread::scope(|scope| {
            let first = scope.spawn(|| (laptime_analyze::diagnose(Some(trace), about.results, peaks), laps(trace)));
            let second = scope.spawn(|| (laptime_analyze::stages(trace), laptime_analyze::top(trace)));
            let waiting = laptime_analyze::waiting(trace, MOST_ROWS);
            let (diagnosis, laps) = first.join().expect("the analysis does not panic");
            let (stages, top) = second.join().expect("the analysis does not panic");
            Self { diagnosis, waiting, laps, stages, top }
        })
    }
}

fn laps(trace: &Trace) -> Option<Laps> {
    laptime_analyze::laps(trace, None).ok()
}

/// Makes the page of a trace.
///
/// # Errors
///
/// If the data cannot be compressed.
pub fn of_trace(trace: &Trace, about: &About<'_>) -> io::Result<Page> {
    let answers = Answers::of(trace, about);
    let extra = Extra { idle: &answers.waiting.idle, laps: answers.laps.as_ref(), stages: Some(&answers.stages) };
    let encoded = data::encode(trace, &extra, MOST_SPANS)?;
    let mut page = Page { title: about.name.clone(), subtitle: subtitle(trace, &answers), ..Page::default() };
    let begin = trace.bounds().map_or(0, |(first, _)| first.0);
    page.section("answer", "Answer", answer(&answers, begin));
    page.section("timeline", "Timeline", timeline(&encoded));
    add_tables(&mut page, trace, &answers);
    page.section("environment", "Environment", environment(trace, about));
    page.data = Some(encoded.bytes);
    Ok(page)
}

fn subtitle(trace: &Trace, answers: &Answers) -> String {
    let Overview { wall, spans, .. } = answers.waiting.syncs.overview;
    let devices: Vec<String> = trace.metadata.devices().into_iter().map(|device| device.name).collect();
    let mut parts = vec![single(&Cell::Nanos(wall.0)), format!("{} spans", single(&Cell::Count(spans)))];
    parts.extend(devices.first().filter(|name| !name.is_empty()).map(|name| match devices.len() {
        1 => name.clone(),
        count => format!("{count} x {name}"),
    }));
    parts.extend(trace.metadata.rank().map(|rank| format!("rank {rank}")));
    parts.join(" · ")
}

/// The findings, the key figures and the remarks.
fn answer(answers: &Answers, begin: u64) -> String {
    let Diagnosis { findings, remarks, .. } = &answers.diagnosis;
    let mut out = String::new();
    let is_main = |found: &&Bottleneck| found.severity != Severity::Normal;
    match findings.iter().find(is_main) {
        Some(main) => push_main(&mut out, main, answers, begin),
        None if remarks.is_empty() => out.push_str("<p class=\"headline\">No bottleneck found.</p>\n"),
        None => {}
    }
    let (first, rest) = match (findings.is_empty(), remarks.split_first()) {
        (true, Some((first, rest))) => (Some(first), rest),
        _ => (None, &remarks[..]),
    };
    if let Some(first) = first {
        push(&mut out, format_args!("<p class=\"headline\">{}</p>\n", prose(first)));
    }
    out.push_str(&figures(answers));
    let others: Vec<&Bottleneck> = findings.iter().filter(is_main).skip(1).take(MOST_FINDINGS).collect();
    if !others.is_empty() {
        out.push_str("<h3>Also</h3>\n<ul class=\"findings\">\n");
        for found in others {
            let place = jump(place(found, answers, begin));
            push(&mut out, format_args!("<li{place}>{}</li>\n", finding(found)));
        }
        out.push_str("</ul>\n");
    }
    for remark in rest {
        push(&mut out, format_args!("<p>{}</p>\n", prose(remark)));
    }
    out
}

fn push_main(out: &mut String, main: &Bottleneck, answers: &Answers, begin: u64) {
    let place = jump(place(main, answers, begin));
    let found = &main.finding;
    push(
        out,
        format_args!(
            "<div class=\"main {}\"{place}>\n<p class=\"headline\">Main bottleneck: {} <code>[{}]</code></p>\n\
             <p>{}; {}.{}</p>\n<p class=\"try\"><b>Try</b>: {}.</p>\n</div>\n",
            severity(main.severity),
            escape(title(found.rule)),
            escape(found.rule),
            prose(&found.evidence),
            prose(&found.meaning),
            gain(main),
            prose(&found.next)
        ),
    );
}

fn finding(found: &Bottleneck) -> String {
    let Bottleneck { finding, .. } = found;
    format!(
        "<b>{}</b> <code>[{}]</code> {}; {}.{} Try: {}.",
        escape(title(finding.rule)),
        escape(finding.rule),
        prose(&finding.evidence),
        prose(&finding.meaning),
        gain(found),
        prose(&finding.next)
    )
}

fn gain(found: &Bottleneck) -> String {
    let gain = found.gain_ns.filter(|gain| *gain > 0.0);
    gain.map_or_else(String::new, |gain| format!(" At stake: <b>{}</b>.", single(&Cell::Nanos(gain.round() as u64))))
}

fn title(rule: &str) -> &str {
    explain(rule).map_or(rule, |topic| topic.title)
}

const fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Bad => "bad",
        Severity::Notable => "notable",
        Severity::Normal => "normal",
    }
}

/// The longest gap that a finding is about, else the longest sync.
fn place(found: &Bottleneck, answers: &Answers, begin: u64) -> Option<Place> {
    let causes: &[Cause] = match found.finding.rule {
        "host-bound" | "data-loading" | "cold-start" => &[Cause::Host],
        "sync-bound" => &[Cause::Sync],
        "copy-bound" => &[Cause::Copy],
        "stream-bound" => &[Cause::Stream],
        "turnaround-bound" => &[Cause::Turnaround],
        "unexplained-gaps" => &[Cause::StreamWait, Cause::HeldBack, Cause::NoLaunch],
        _ => return None,
    };
    let gaps = answers.waiting.idle.iter().flat_map(|(_, gaps)| gaps);
    let of_cause = gaps.filter(|gap| causes.contains(&gap.cause));
    of_cause.max_by_key(|gap| gap.length()).map(|gap| range(gap, begin))
}

fn range(gap: &Gap, begin: u64) -> Place {
    Place::Range(gap.from - begin, gap.to - begin)
}

fn jump(place: Option<Place>) -> String {
    match place {
        Some(Place::Range(from, to)) => format!(" data-from=\"{from}\" data-to=\"{to}\""),
        Some(Place::Name(name)) => format!(" data-find=\"{}\"", escape(&name)),
        None => String::new(),
    }
}

/// The key figures: a label and a value each.
fn figures(answers: &Answers) -> String {
    let Overview { wall, dropped, waits, .. } = &answers.waiting.syncs.overview;
    let mut figures = vec![("wall time".to_owned(), single(&Cell::Nanos(wall.0)))];
    for device in answers.waiting.gaps.iter().flat_map(|gaps| &gaps.devices).take(8) {
        figures.push((format!("{} ran kernels", device.name), single(&Cell::Share(device.verdict.busy))));
    }
    let kernels = answers.top.operations.iter().filter(|operation| operation.kind == OperationKind::Kernel);
    let kernels: u64 = kernels.map(|operation| operation.count).sum();
    if kernels > 0 {
        figures.push(("kernels".to_owned(), single(&Cell::Count(kernels))));
    }
    if let Some(waits) = waits {
        let share = waits.time.0 as f64 / wall.0.max(1) as f64;
        figures.push(("time in host syncs".to_owned(), single(&Cell::Share(share))));
        figures.push(("host syncs".to_owned(), single(&Cell::Count(waits.count))));
    }
    if let Some(laps) = &answers.laps {
        let median = laps.figures.length.median.round() as u64;
        figures.push((format!("median lap of {}", laps.laps.len()), single(&Cell::Nanos(median))));
    }
    figures.push(("dropped events".to_owned(), single(&Cell::Count(*dropped))));
    run_page::figure_list(&figures)
}

/// The place of the timeline, and what is not in it.
fn timeline(encoded: &data::Data) -> String {
    let mut out = String::from(
        "<noscript><p class=\"note\">The timeline needs JavaScript; everything else can be read without it.</p></noscript>\n\
         <div id=\"timeline-view\"></div>\n",
    );
    if let Some(thinning) = encoded.thinning {
        push(
            &mut out,
            format_args!(
                "<p class=\"note\">Level of detail: {} spans shorter than {} are drawn as blocks of up to {}. A block states how \
                 many spans it has and their exact total. All figures and tables use every span.</p>\n",
                single(&Cell::Count(encoded.thinned)),
                single(&Cell::Nanos(thinning.shortest)),
                single(&Cell::Nanos(thinning.longest_block))
            ),
        );
    }
    out
}

fn add_tables(page: &mut Page, trace: &Trace, answers: &Answers) {
    let own = |_: usize| None;
    let limits = StageLimits { depth: usize::MAX, most: MOST_ROWS };
    let stages = html(&tables::stages_within(&answers.stages, limits), own);
    page.section("stages", "Stages", format!("<div id=\"flame-view\"></div>\n{stages}"));
    let ranking = Ranking { most: MOST_ROWS, side: Side::Both, sort: Sort::Own, matching: String::new() };
    page.section("top", "Hot spots", html(&tables::top(&answers.top, &ranking), own));
    if let Some(gaps) = &answers.waiting.gaps {
        let parts = html(&tables::gaps(gaps), own);
        let list = html(&without_notes(tables::gap_list(gaps)), own);
        page.section("gaps", "Idle time", format!("{parts}<h3>Longest gaps</h3>\n{list}"));
    }
    page.section("syncs", "Host syncs", syncs(&answers.waiting.syncs));
    if let Some(laps) = &answers.laps {
        let figures = html(&tables::laps(laps), own);
        let mut each = without_notes(tables::each_lap(laps));
        each.rows.truncate(MOST_ROWS);
        let each = html(&each, own);
        let body = format!("<div id=\"laps-view\"></div>\n{figures}<h3>Each lap</h3>\n{each}");
        page.section("laps", "Laps", body);
    }
    if trace.values().len() > 0 {
        page.section("memory", "Counters", "<div id=\"curves-view\"></div>\n".to_owned());
    }
}

/// The syncs by site; each row jumps to its longest sync.
fn syncs(answer: &Syncs) -> String {
    if answer.groups.is_empty() {
        return String::new();
    }
    let longest = |group: usize| {
        let waits = answer.waits.iter().filter(|wait| wait.group == group);
        let longest = waits.max_by_key(|wait| wait.length)?;
        let start = longest.start.0;
        Some(Place::Range(start, start + longest.length.map_or(0, |length| length.0)))
    };
    html(&tables::syncs(answer, None), longest)
}

fn without_notes(table: laptime_report::Table) -> laptime_report::Table {
    let (notes, facts, warnings, legend) = Default::default();
    laptime_report::Table { notes, facts, warnings, legend, ..table }
}

fn environment(trace: &Trace, about: &About<'_>) -> String {
    if let Some(run) = about.run {
        return run_page::environment(run);
    }
    let mut facts: Vec<(String, String)> =
        about.command.iter().map(|command| ("Command".into(), command.clone())).collect();
    facts.extend(trace.metadata.iter().map(|(key, json)| (key.to_owned(), json.to_owned())));
    run_page::fact_table(&facts)
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to memory cannot fail.
    let _ = out.write_fmt(text);
}
