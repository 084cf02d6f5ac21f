//! The pages of runs and of comparisons: charts, findings and tables.

use laptime_analyze::{ProfiledRun, Profiling, SharedDoubt, plural};
use laptime_report::chart::{Chart, Theme};
use laptime_report::html::{escape, html, prose};
use laptime_report::{Table, profiling, tables};
use laptime_trace::run::{CaseResult, Run};

use crate::Page;

/// Makes the page of runs: findings, charts and tables.
pub fn of_runs(answer: &Profiling, title: &str) -> Page {
    let mut page = Page { title: title.to_owned(), subtitle: subtitle(answer), ..Page::default() };
    let (first, others) = findings(answer);
    let mut charts = charts(answer).into_iter();
    page.section("answer", "Answer", first + &charts.next().unwrap_or_default());
    page.section("findings", "Findings", others);
    let charts: String = charts.collect();
    let charts = if charts.is_empty() { charts } else { format!("<div class=\"charts\">\n{charts}</div>\n") };
    page.section("charts", "Charts", charts);
    for (id, title, table) in run_tables(answer) {
        page.section(id, title, table);
    }
    let runs = answer.runs.iter().filter_map(|named| Some((&named.read.folder, named.read.run.as_ref()?)));
    let environment: Vec<String> = runs
        .map(|(folder, run)| {
            let heading = if answer.runs.len() > 1 { format!("<h3>{}</h3>\n", escape(folder)) } else { String::new() };
            heading + &environment(run)
        })
        .collect();
    page.section("environment", "Environment", environment.concat());
    page
}

/// A comparison: the verdict and its tables.
#[derive(Debug)]
pub struct Comparison<'a> {
    /// What is compared.
    pub title: &'a str,
    /// The verdict in a sentence.
    pub verdict: &'a str,
    /// The tables, each with its title.
    pub tables: Vec<(&'a str, &'a Table)>,
}

/// Makes the page of a comparison.
pub fn of_comparison(comparison: &Comparison<'_>) -> Page {
    let mut page = Page { title: comparison.title.to_owned(), ..Page::default() };
    let verdict = format!("<p class=\"headline\">{}</p>\n", prose(comparison.verdict));
    page.section("answer", "Verdict", if comparison.verdict.is_empty() { String::new() } else { verdict });
    for (title, table) in &comparison.tables {
        page.section("table", title, html(table, |_| None));
    }
    page
}

fn subtitle(answer: &Profiling) -> String {
    let workloads: Vec<&str> = answer.runs.iter().filter_map(|named| named.read.workload()).collect();
    let device = answer.runs.iter().find_map(|named| named.read.run.as_ref()).map(|run| {
        let gpu = run.environment.machine.gpus.first().map(|gpu| gpu.name.clone());
        gpu.filter(|_| run.device != "cpu").or_else(|| run.environment.machine.cpu.clone()).unwrap_or_default()
    });
    let cases: usize = answer.runs.iter().map(|named| named.read.results.len()).sum();
    let mut parts = vec![workloads.join(", "), plural(cases, "case", "cases")];
    parts.extend(device);
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}

/// The first finding, and the others as a list.
fn findings(answer: &Profiling) -> (String, String) {
    let mut all = answer.findings().into_iter();
    let main = all.next().map_or_else(String::new, |first| {
        let next =
            first.next.map_or_else(String::new, |next| format!("<p class=\"try\"><b>Try</b>: {}</p>", prose(&next)));
        let (text, rule) = (prose(&first.text), escape(first.rule));
        format!("<div class=\"main normal\"><p class=\"headline\">{text} <code>[{rule}]</code></p>{next}</div>\n")
    });
    let rest: String = all
        .map(|found| {
            let next = found.next.map_or_else(String::new, |next| format!(" Try: {}", prose(&next)));
            format!("<li><code>[{}]</code> {}{next}</li>\n", escape(found.rule), prose(&found.text))
        })
        .collect();
    (main, if rest.is_empty() { rest } else { format!("<ul class=\"findings\">\n{rest}</ul>\n") })
}

/// The charts of runs.
fn charts(answer: &Profiling) -> Vec<String> {
    profiling::charts(answer).iter().map(figure).collect()
}

/// A chart, light and dark; the style shows the one that fits.
fn figure(chart: &Chart) -> String {
    let themes = [(Theme::Light, "light"), (Theme::Dark, "dark")];
    let both = themes.map(|(theme, class)| format!("<div class=\"chart {class}\">{}</div>", chart.to_svg(theme)));
    format!("<figure>{}</figure>\n", both.concat())
}

/// The roofline of a run; empty if its peaks or the work of its cases are unknown.
pub(crate) fn roofline(run: &Run, results: &[CaseResult]) -> String {
    let read = ProfiledRun { folder: String::new(), run: Some(run.clone()), results: results.to_vec() };
    let answer = laptime_analyze::profiling(vec![read]);
    profiling::charts(&answer).iter().filter(|chart| chart.name == "roofline").map(figure).collect()
}

fn run_tables(answer: &Profiling) -> Vec<(&'static str, &'static str, String)> {
    let of_runs: String = answer
        .runs
        .iter()
        .filter(|named| !named.read.results.is_empty())
        .map(|named| {
            let table = cases(&named.read.results, named.read.run.as_ref(), &named.doubts);
            if answer.runs.len() > 1 { format!("<h3>{}</h3>\n{table}", escape(&named.read.folder)) } else { table }
        })
        .collect();
    let mut found = vec![("cases", "Cases", of_runs)];
    for (id, title, part) in [("attention", "Attention", &answer.attention), ("models", "Models", &answer.models)] {
        let all = [("Crossover", tables::crossovers(&part.crossovers)), ("Growth", tables::scaling(&part.scaling))];
        let body = all.into_iter().filter_map(|(heading, table)| Some(titled(heading, &table?))).collect();
        found.push((id, title, body));
    }
    found
}

fn titled(heading: &str, table: &Table) -> String {
    format!("<h3>{heading}</h3>\n{}", html(table, |_| None))
}

/// The cases of a run as a table.
pub(crate) fn cases(results: &[CaseResult], run: Option<&Run>, doubts: &[SharedDoubt]) -> String {
    let peaks = run.and_then(|run| run.peaks.as_ref());
    html(&tables::cases(&laptime_analyze::cases(results, peaks), doubts), |_| None)
}

/// Machine, build, settings and the command to repeat it.
pub(crate) fn environment(run: &Run) -> String {
    let mut facts = profiling::facts(run);
    // Commands are for copying, so they come first and alone.
    let command = facts.iter().position(|(label, _)| *label == "Command").map(|at| facts.remove(at).1);
    let command = repeat(command.as_deref().map(|command| command.trim_matches('`')));
    let facts: Vec<(String, String)> = facts.into_iter().map(|(label, value)| (label.to_owned(), value)).collect();
    command + &fact_table(&facts)
}

/// The command that repeats a run or a page.
pub(crate) fn repeat(command: Option<&str>) -> String {
    let shown = |command| format!("<p>Repeat it:</p>\n<pre class=\"command\">{}</pre>\n", escape(command));
    command.map_or_else(String::new, shown)
}

/// Values longer than this are folded.
const LONG: usize = 300;

/// Facts as a table of two columns.
pub(crate) fn fact_table(facts: &[(String, String)]) -> String {
    if facts.is_empty() {
        return String::new();
    }
    let row = |(label, value): &(String, String)| {
        let shown = match value.len() {
            ..LONG => prose(value),
            _ => format!("<details><summary>{} characters</summary>{}</details>", value.len(), escape(value)),
        };
        format!("<tr><th>{}</th><td>{shown}</td></tr>\n", escape(label))
    };
    let rows: String = facts.iter().map(row).collect();
    format!("<div class=\"facts-table\"><table><tbody>\n{rows}</tbody></table></div>\n")
}

/// Key figures as a list.
pub(crate) fn figure_list(figures: &[(String, String)]) -> String {
    let one =
        |(label, value): &(String, String)| format!("<div><dt>{}</dt><dd>{}</dd></div>", escape(label), escape(value));
    format!("<dl class=\"figures\">{}</dl>\n", figures.iter().map(one).collect::<String>())
}
