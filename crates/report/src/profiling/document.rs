//! The report as a document.

use laptime_analyze::{KeyFinding, NamedRun, Profiling, ProfilingPart, distinct};
use laptime_trace::run::{Environment, Run, Settings, Stop, WarmUp};

use super::{attention_summary, charts::device_name, model_summary};
use crate::tables::{crossovers, scaling};
use crate::{Cell, Format, Table, TextStyle, format::escape_prose, layout::single, visible::visible, write};

/// Files of the report with the same content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportFiles {
    /// Their names.
    pub names: Vec<String>,
    /// What they contain.
    pub about: String,
}

/// Writes the report in Markdown: machine and method, findings, recommendations, tables and
/// charts, and the files.
pub fn document(answer: &Profiling, charts: &[(String, String)], files: &[ReportFiles]) -> String {
    let findings = answer.findings();
    let sections = [
        overview(answer),
        list("Key Findings", findings.iter().map(finding).collect()),
        list("Recommendations", recommendations(&findings)),
        tables(answer),
        pictures(charts),
        list("Files Generated", files.iter().map(file_line).collect()),
    ];
    let sections: Vec<String> = sections.into_iter().flatten().collect();
    format!("# Profiling Report\n\n{}", sections.join("\n"))
}

fn list(title: &str, lines: Vec<String>) -> Option<String> {
    let lines: Vec<String> = lines.into_iter().map(|line| format!("- {line}\n")).collect();
    (!lines.is_empty()).then(|| format!("## {title}\n\n{}", lines.concat()))
}

fn finding(finding: &KeyFinding) -> String {
    format!("**{}**: {}", finding.rule, prose(&finding.text))
}

/// An escaped sentence: it may contain an error message.
fn prose(sentence: &str) -> String {
    escape_prose(&visible(sentence))
}

/// The recommendations of findings, each once.
fn recommendations(findings: &[KeyFinding]) -> Vec<String> {
    let line = |finding: &KeyFinding| Some(format!("{} (From **{}**.)", prose(finding.next.as_ref()?), finding.rule));
    distinct(findings.iter().filter_map(line))
}

fn file_line(files: &ReportFiles) -> String {
    let names: Vec<String> = files.names.iter().map(|name| format!("`{name}`")).collect();
    format!("{}: {}", names.join(", "), files.about)
}

/// What was measured, where and how: shared facts once, then one paragraph per run.
fn overview(answer: &Profiling) -> Option<String> {
    let of_runs: Vec<Vec<Fact>> =
        answer.runs.iter().map(|named| named.read.run.as_ref().map_or_else(Vec::new, facts)).collect();
    let first = of_runs.first()?;
    let is_common = |fact: &Fact| of_runs.len() > 1 && of_runs.iter().all(|facts| facts.contains(fact));
    let common: Vec<String> = first.iter().filter(|fact| is_common(fact)).map(fact_line).collect();
    let mut written = Vec::new();
    written.extend((!common.is_empty()).then(|| format!("**All runs**\n\n{}", common.concat())));
    for (named, facts) in answer.runs.iter().zip(&of_runs) {
        let own: Vec<String> = facts.iter().filter(|fact| !is_common(fact)).map(fact_line).collect();
        written.push(of_run(named, &own.concat()));
    }
    Some(format!("## Overview\n\n{}", written.join("\n")))
}

/// A label and a fact about a run.
pub type Fact = (&'static str, String);

fn fact_line((label, value): &Fact) -> String {
    format!("- {label}: {}\n", prose(value))
}

fn of_run(named: &NamedRun, facts: &str) -> String {
    let workload = named.read.workload().unwrap_or("nothing");
    let what = if named.read.is_warm_up() { "Warm-up of " } else { "" };
    let name = named.name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
    let cases = counts(named).map_or_else(String::new, |written| format!("- Cases: {written}\n"));
    let source = match named.read.run {
        Some(_) => String::new(),
        None => format!("- Read from `{}`, which does not contain machine and method\n", named.read.folder),
    };
    format!("**{what}`{workload}`{name}**\n\n{cases}{source}{facts}")
}

/// How many cases had which outcome.
fn counts(named: &NamedRun) -> Option<String> {
    let results = &named.read.results;
    let of = |word: &str| results.iter().filter(|result| result.outcome.word() == word).count();
    let words = ["measured", "out_of_memory", "failed", "skipped"].map(|word| (word, of(word)));
    let written: Vec<String> = words
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(word, count)| format!("{count} {}", word.replace('_', " ")))
        .collect();
    (!written.is_empty()).then(|| written.join(", "))
}

/// Machine, build, method and command of a run: a label and a value each.
pub fn facts(run: &Run) -> Vec<Fact> {
    let Environment { machine, build, .. } = &run.environment;
    let device = device_name(machine, &run.device)
        .map_or_else(|| format!("`{}`", run.device), |name| format!("`{}`, {name}", run.device));
    let memory = machine.memory_bytes.map(|bytes| format!(", {} of memory", single(&Cell::Bytes(bytes))));
    let system =
        machine.kernel.as_ref().map_or_else(|| machine.os.clone(), |kernel| format!("{} {kernel}", machine.os));
    let facts = [
        ("Device", format!("{device}{}", memory.unwrap_or_default())),
        ("System", system),
        ("Build", listed([&build.version, &build.commit, &build.profile, &build.target])),
        ("Method", method(&run.settings)),
        ("Started", run.started.clone()),
        ("Command", if run.command.is_empty() { String::new() } else { format!("`{}`", run.command.join(" ")) }),
    ];
    facts.into_iter().filter(|(_, value)| !value.trim().is_empty()).collect()
}

fn listed(words: [&String; 4]) -> String {
    words.into_iter().filter(|word| !word.is_empty()).cloned().collect::<Vec<_>>().join(", ")
}

/// How cases were measured, in a sentence.
fn method(settings: &Settings) -> String {
    let warmup = match settings.warmup {
        WarmUp::Iterations(0) => "every iteration counts".to_owned(),
        WarmUp::Iterations(1) => "the first iteration does not count".to_owned(),
        WarmUp::Iterations(iterations) => format!("the first {iterations} iterations do not count"),
        WarmUp::Auto => "iterations before the steady state do not count".to_owned(),
    };
    let stop = match settings.stop {
        Stop::Iterations(iterations) => format!("{iterations} iterations"),
        Stop::Interval { within, at_least, at_most_ns, .. } => format!(
            "iterations until the 95 % interval of the median is within {} of it, {at_least} at least, {} s at most",
            single(&Cell::Share(within)),
            at_most_ns as f64 / 1e9
        ),
    };
    let processes =
        if settings.runs > 1 { format!(" in each of {} fresh processes", settings.runs) } else { String::new() };
    let l2 = settings.l2.map_or_else(String::new, |l2| format!("; L2 {l2}"));
    format!(
        "{stop}{processes}; {warmup}; timed by `{}`{l2}; every result is checked before it is timed",
        settings.timing
    )
}

/// The tables of kinds, models, crossings and growth.
fn tables(answer: &Profiling) -> Option<String> {
    let of_part = |part: &ProfilingPart| [crossovers(&part.crossovers), scaling(&part.scaling)];
    let [attention_crossing, attention_growth] = of_part(&answer.attention).map(quiet);
    let [model_crossing, model_growth] = of_part(&answer.models).map(quiet);
    let all = [
        ("Attention", attention_summary(answer)),
        ("Attention: how much faster and smaller", attention_crossing),
        ("Attention: growth with length", attention_growth),
        ("Models", model_summary(answer)),
        ("Models: how much faster and smaller", model_crossing),
        ("Models: growth with length", model_growth),
    ];
    let written: Vec<String> =
        all.into_iter().filter_map(|(title, table)| Some(format!("### {title}\n\n{}", markdown(&table?)))).collect();
    (!written.is_empty()).then(|| format!("## Tables\n\n{}", written.join("\n")))
}

/// A table whose notes are already among the findings.
fn quiet(table: Option<Table>) -> Option<Table> {
    table.map(|table| Table { notes: Vec::new(), facts: Vec::new(), ..table })
}

fn markdown(table: &Table) -> String {
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    let _ = write(table, Format::Md, TextStyle::plain(usize::MAX), &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// The charts, light or dark like the reader's screen. The alternative text is the name and content of a chart.
fn pictures(charts: &[(String, String)]) -> Option<String> {
    let picture = |(name, title): &(String, String)| {
        format!(
            "<picture>\n  <source media=\"(prefers-color-scheme: dark)\" srcset=\"{name}-dark.svg\">\n  <img src=\"{name}.svg\" alt=\"{title}\">\n</picture>\n"
        )
    };
    let written: Vec<String> = charts.iter().map(picture).collect();
    (!written.is_empty()).then(|| format!("## Charts\n\n{}", written.join("\n")))
}
