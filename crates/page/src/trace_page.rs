//! The page of a trace: the answer, the timeline, and every table about it.

use std::{collections::HashSet, io};

use laptime_analyze::{
    Diagnosis, Evidence, Gain, Laps, Offload, OffloadFacts, OperationKind, Overview, Prepared, Reported, Severity,
    Stages, Syncs, Thresholds, Top, Waiting,
};
use laptime_report::html::{Place, escape, html, prose};
use laptime_report::tables::{self, Ranking, Side, Sort, StageLimits};
use laptime_report::{Cell, Table, single};
use laptime_trace::Trace;
use laptime_trace::run::{CaseResult, Run};

use crate::data::{self, Encoder, Extra, MOST_SPANS};
use crate::{Page, run_page, thin::Window};

/// Rows of a table at most; the command has the rest.
const MOST_ROWS: usize = 200;

/// Findings that the page explains at most.
const MOST_FINDINGS: usize = 8;

/// Places of the main finding that the page lists at most.
const MOST_EVIDENCE: usize = 3;

/// The width of a name in a list.
const SHORT_NAME: usize = 60;

/// What is known about a trace besides itself.
#[derive(Debug, Default)]
pub struct About<'a> {
    /// Its name, usually that of its file.
    pub name: String,
    /// The run that recorded it.
    pub run: Option<&'a Run>,
    /// The results of that run.
    pub results: &'a [CaseResult],
    /// The command that repeats the recording or the page, if there is no run.
    pub command: Option<String>,
}

/// Called with the bottlenecks and waits as soon as they are known, while the page is being made.
pub type OnDiagnosis<'a> = &'a (dyn Fn(&Waiting) + Sync);

/// Every answer about a trace.
#[derive(Debug)]
struct Answers {
    offload: Option<Offload>,
    waiting: Waiting,
    laps: Option<Laps>,
    stages: Stages,
    top: Top,
}

impl Answers {
    fn of(trace: &Trace, about: &About<'_>, on_diagnosis: OnDiagnosis<'_>) -> Self {
        let peaks = about.run.and_then(|run| run.peaks.as_ref());
        let prepared = Prepared::of(trace);
        let (mut waiting, (stages, (top, laps))) = rayon::join(
            || {
                let waiting = prepared.waiting(about.results, peaks, MOST_ROWS);
                on_diagnosis(&waiting);
                waiting
            },
            || rayon::join(|| prepared.stages(), || (prepared.top(), prepared.laps(None).ok())),
        );
        let offload = offload(trace, about);
        if let Some(offload) = &offload {
            let (findings, whole_ns) = (offload.findings.clone(), Some(offload.length.median));
            waiting.diagnosis = Diagnosis { findings, whole_ns, ..Diagnosis::default() };
        }
        Self { offload, waiting, laps, stages, top }
    }

    fn extra(&self) -> Extra<'_> {
        Extra { idle: &self.waiting.idle, laps: self.laps.as_ref(), stages: Some(&self.stages) }
    }

    fn findings(&self) -> Vec<Reported> {
        let Diagnosis { findings, whole_ns, .. } = &self.waiting.diagnosis;
        let shown = findings.iter().filter(|found| found.severity != Severity::Normal);
        shown.take(MOST_FINDINGS).map(|found| found.reported(*whole_ns)).collect()
    }
}

/// The offloaded layers of the trace, which have findings of their own.
fn offload(trace: &Trace, about: &About<'_>) -> Option<Offload> {
    let facts = about.results.iter().find_map(CaseResult::measured).map(OffloadFacts::of).unwrap_or_default();
    laptime_analyze::offload(trace, facts, Thresholds::default())
}

/// Makes the page of a trace.
///
/// # Errors
///
/// If the data cannot be compressed.
pub fn of_trace(trace: &Trace, about: &About<'_>) -> io::Result<Page> {
    of_trace_with(trace, about, &|_| ())
}

/// Makes the page of a trace, and calls back with the diagnosis before the page is done.
///
/// # Errors
///
/// If the data cannot be compressed.
pub fn of_trace_with(trace: &Trace, about: &About<'_>, on_diagnosis: OnDiagnosis<'_>) -> io::Result<Page> {
    Ok(Viewer::with(trace, about, MOST_SPANS, on_diagnosis)?.page)
}

/// A trace whose page is served: spans that the page leaves out are loaded when they become visible.
#[derive(Debug)]
pub struct Viewer<'a> {
    trace: &'a Trace,
    answers: Answers,
    page: Page,
    most: usize,
}

impl<'a> Viewer<'a> {
    /// Answers everything about a trace. The page holds at most `most` spans at a time.
    ///
    /// # Errors
    ///
    /// If the data cannot be compressed.
    pub fn of(trace: &'a Trace, about: &About<'_>, most: usize) -> io::Result<Self> {
        Self::with(trace, about, most, &|_| ())
    }

    fn with(trace: &'a Trace, about: &About<'_>, most: usize, on_diagnosis: OnDiagnosis<'_>) -> io::Result<Self> {
        let encoder = || Encoder::of(trace, None, most);
        let (answers, encoder) = rayon::join(|| Answers::of(trace, about, on_diagnosis), encoder);
        let page = page(trace, about, &answers, encoder.finish(&answers.extra())?);
        Ok(Self { trace, answers, page, most })
    }

    /// The page without its data.
    pub fn html(&self) -> Vec<u8> {
        self.page.served()
    }

    /// The data of the page.
    pub fn data(&self) -> &[u8] {
        self.page.data.as_deref().unwrap_or_default()
    }

    /// The data of a window, in nanoseconds after the start of the trace.
    ///
    /// # Errors
    ///
    /// If the data cannot be compressed.
    pub fn window(&self, window: Window) -> io::Result<Vec<u8>> {
        let encoder = Encoder::of(self.trace, Some(window), self.most);
        Ok(encoder.finish(&Extra { stages: None, ..self.answers.extra() })?.bytes)
    }
}

fn page(trace: &Trace, about: &About<'_>, answers: &Answers, encoded: data::Data) -> Page {
    let mut page = Page { title: about.name.clone(), subtitle: subtitle(trace, answers), ..Page::default() };
    page.section("answer", "Answer", answer(answers));
    page.section("timeline", "Timeline", timeline(&encoded));
    add_tables(&mut page, trace, about, answers);
    page.section("environment", "Environment", environment(trace, about));
    page.data = Some(encoded.bytes);
    page
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
fn answer(answers: &Answers) -> String {
    let (findings, remarks) = (answers.findings(), &answers.waiting.diagnosis.remarks);
    let mut out = String::new();
    let mut rest = &remarks[..];
    match (findings.first(), remarks.split_first()) {
        (Some(main), _) => push_main(&mut out, main),
        (None, Some((first, others))) => {
            out += &format!("<p class=\"headline\">{}</p>\n", prose(first));
            rest = others;
        }
        (None, None) => out.push_str("<p class=\"headline\">No bottleneck found.</p>\n"),
    }
    out.push_str(&figures(answers));
    if findings.len() > 1 {
        out.push_str("<h3>Also</h3>\n<ul class=\"findings\">\n");
        for found in &findings[1..] {
            let place = jump(found.evidence.first());
            out += &format!(
                "<li{place}><b>{}</b> <code>[{}]</code> {}; {}.{} {}</li>\n",
                escape(&found.title),
                escape(&found.id),
                prose(&found.summary),
                prose(&found.meaning),
                gain(found.gain.as_ref()),
                found.fixes.first().map_or_else(String::new, |fix| format!("Try: {}.", prose(&fix.text)))
            );
        }
        out.push_str("</ul>\n");
    }
    for remark in rest {
        out += &format!("<p>{}</p>\n", prose(remark));
    }
    out
}

/// The main finding with its evidence, its gain and its fixes.
fn push_main(out: &mut String, main: &Reported) {
    let Reported { id, severity, title, summary, evidence, meaning, fixes, .. } = main;
    *out += &format!(
        "<div class=\"main {}\"{}>\n<p class=\"headline\">Main bottleneck: {} <code>[{}]</code></p>\n\
             <p>{}; {}.{}</p>\n",
        severity.word(),
        jump(evidence.first()),
        escape(title),
        escape(id),
        prose(summary),
        prose(meaning),
        gain(main.gain.as_ref())
    );
    for fix in fixes {
        let framework = if fix.framework == "any" { "Try" } else { &fix.framework };
        *out += &format!("<p class=\"try\"><b>{}</b>: {}</p>\n", escape(framework), prose(&fix.text));
    }
    out.push_str("</div>\n");
    let seen: Vec<String> = evidence.iter().take(MOST_EVIDENCE).map(seen).collect();
    if !seen.is_empty() {
        *out += &format!("<h3>Where</h3>\n<ul class=\"findings\">\n{}</ul>\n", seen.concat());
    }
}

/// One place that shows a finding.
fn seen(evidence: &Evidence) -> String {
    let Evidence { track, name, start_ns, end_ns, line } = evidence;
    let line = line.as_ref().map_or_else(String::new, |line| format!(", <code>{}</code>", escape(line)));
    format!(
        "<li{}><code>{}</code> {} at {}, {}{line}</li>\n",
        jump(Some(evidence)),
        escape(&laptime_report::short(name, SHORT_NAME)),
        single(&Cell::Nanos(end_ns.saturating_sub(*start_ns))),
        single(&Cell::Nanos(*start_ns)),
        escape(track)
    )
}

fn gain(gain: Option<&Gain>) -> String {
    let Some(Gain { ns, share, reasoning }) = gain.filter(|gain| gain.ns > 0.0) else { return String::new() };
    let time = single(&Cell::Nanos(ns.round() as u64));
    let faster = share.filter(|share| *share < 1.0).map_or_else(String::new, |share| {
        format!(" ({}, up to {:.2}x as fast)", single(&Cell::Share(share)), 1.0 / (1.0 - share))
    });
    format!(" <span title=\"{}\">Estimated gain: <b>{time}</b>{faster}.</span>", escape(reasoning))
}

fn jump(evidence: Option<&Evidence>) -> String {
    evidence.map_or_else(String::new, |Evidence { start_ns, end_ns, .. }| {
        format!(" data-from=\"{start_ns}\" data-to=\"{end_ns}\"")
    })
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
        out += &format!(
            "<p class=\"note\">Level of detail: {} spans shorter than {} are drawn as blocks of up to {}. A block states how \
                 many spans it has and their exact total. All figures and tables use every span.</p>\n",
            single(&Cell::Count(encoded.thinned)),
            single(&Cell::Nanos(thinning.shortest)),
            single(&Cell::Nanos(thinning.longest_block))
        );
    }
    if encoded.mark_step > 1 {
        out += &format!("<p class=\"note\">One in {} marks is drawn.</p>\n", encoded.mark_step);
    }
    out
}

fn add_tables(page: &mut Page, trace: &Trace, about: &About<'_>, answers: &Answers) {
    let mut tidy = Tidy::default();
    if let Some(offload) = &answers.offload {
        let all = [("Tokens", tables::offload_tokens(offload)), ("Layers", tables::offload_layers(offload))];
        let body: String =
            all.into_iter().map(|(title, table)| format!("<h3>{title}</h3>\n{}", tidy.html(table, |_| None))).collect();
        page.section("offload", "Offloaded layers", body);
    }
    let limits = StageLimits { depth: usize::MAX, most: MOST_ROWS };
    let stages = tidy.html(tables::stages_within(&answers.stages, limits), |_| None);
    page.section("stages", "Stages", format!("<div id=\"flame-view\"></div>\n{stages}"));
    let ranking = Ranking { most: MOST_ROWS, side: Side::Both, sort: Sort::Own, matching: String::new() };
    page.section("top", "Hot spots", tidy.html(tables::top(&answers.top, &ranking), |_| None));
    if let Some(gaps) = &answers.waiting.gaps {
        let parts = tidy.html(tables::gaps(gaps), |_| None);
        let list = tidy.html(tables::gap_list(gaps), |_| None);
        page.section("gaps", "Idle time", format!("{parts}<h3>Longest gaps</h3>\n{list}"));
    }
    page.section("syncs", "Host syncs", syncs(&answers.waiting.syncs, &mut tidy));
    if let Some(laps) = &answers.laps {
        let figures = tidy.html(tables::laps(laps), |_| None);
        let mut each = tables::each_lap(laps);
        each.rows.truncate(MOST_ROWS);
        let each = tidy.html(each, |_| None);
        let body = format!("<div id=\"laps-view\"></div>\n{figures}<h3>Each lap</h3>\n{each}");
        page.section("laps", "Laps", body);
    }
    if trace.values().len() > 0 {
        page.section("memory", "Counters", "<div id=\"curves-view\"></div>\n".to_owned());
    }
    if !about.results.is_empty() {
        page.section("cases", "Measured", run_page::cases(about.results, about.run, &[]));
        let roofline = about.run.map_or_else(String::new, |run| run_page::roofline(run, about.results));
        page.section("roofline", "Roofline", roofline);
    }
}

/// Facts that the key figures state.
const STATED: [&str; 5] = ["wall_ms", "spans", "threads", "streams", "dropped_events"];

/// Writes tables and leaves out what the page has already said.
#[derive(Default)]
struct Tidy {
    shown: HashSet<String>,
}

impl Tidy {
    fn html(&mut self, mut table: Table, place: impl Fn(usize) -> Option<Place>) -> String {
        table.facts.retain(|fact| !fact.key.as_ref().is_some_and(|key| STATED.contains(&key.as_ref())));
        table.notes.retain(|note| self.shown.insert(note.clone()));
        table.warnings.retain(|note| self.shown.insert(note.to_string()));
        table.legend.retain(|note| self.shown.insert(note.clone()));
        html(&table, place)
    }
}

/// The syncs by site; each row jumps to its longest sync.
fn syncs(answer: &Syncs, tidy: &mut Tidy) -> String {
    if answer.groups.is_empty() {
        return String::new();
    }
    let longest = |group: usize| {
        let waits = answer.waits.iter().filter(|wait| wait.group == group);
        let longest = waits.max_by_key(|wait| wait.length)?;
        let start = longest.start.0;
        Some(Place::Range(start, start + longest.length.map_or(0, |length| length.0)))
    };
    tidy.html(tables::syncs(answer, None), longest)
}

fn environment(trace: &Trace, about: &About<'_>) -> String {
    if let Some(run) = about.run {
        return run_page::environment(run);
    }
    let facts: Vec<(String, String)> =
        trace.metadata.iter().map(|(key, json)| (key.to_owned(), json.to_owned())).collect();
    run_page::repeat(about.command.as_deref()) + &run_page::fact_table(&facts)
}
