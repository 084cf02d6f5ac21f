//! `laptime report`: pages of runs and traces; for runs also charts, tables and a document.

use std::io::Write;
use std::path::{Path, PathBuf};

use laptime_analyze::Profiling;
use laptime_report::chart::{Chart, Theme};
use laptime_report::profiling::{self, ReportFiles};
use laptime_report::{Format, Table};
use laptime_trace::format::write_whole;

use crate::output::{say, warn, wrapped_for_screen, write_file};
use crate::run_folder::{self, PAGE_FILE};
use crate::{app::App, cli::Status, commands::page, failure::refuse, run_input};

pub const DOCUMENT: &str = "profiling_report.md";

/// The width of a chart in pixels: twice its layout width.
const WIDTH: u32 = 1600;

/// The charts that a report may have.
const CHARTS: [&str; 7] = [
    "attention_latency",
    "attention_memory",
    "attention_efficiency",
    "model_performance",
    "crossover",
    "warmup_laps",
    "roofline",
];

/// Write a page you can open, zoom and share
///
/// `report.html` is one file that needs no network: the answer, a timeline, charts and tables. Of a trace, it is written
/// next to the trace as `NAME.report.html`. Runs also get charts (SVG and PNG, light and dark), summaries and
/// `profiling_report.md` with findings and recommendations. Failed, skipped and missing cases are listed. The same runs
/// give the same bytes.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  laptime report trace.json.gz\n  laptime report runs/attention-20261115-093000 runs/model-20261115-094500 --out report\n  laptime report --input_dir profiling/results --output_dir profiling/reports"
)]
pub struct Args {
    /// A trace, the folder of a run, a folder of such folders, or one with profiles of Nano XYZ
    #[arg(value_name = "RUN|TRACE", required_unless_present = "input_dir")]
    runs: Vec<PathBuf>,
    /// Folder for the report [default: `report` in the first RUN]; for one trace, also a file `*.html` [also: --output-dir]
    #[arg(long, value_name = "DIR", alias = "output-dir")]
    out: Option<PathBuf>,
    /// Open the page in a browser
    #[arg(long)]
    open: bool,
    /// The same as RUN
    #[arg(long, value_name = "DIR", hide = true)]
    input_dir: Vec<PathBuf>,
}

pub fn run(app: &App, args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let paths: Vec<PathBuf> = args.input_dir.iter().chain(&args.runs).cloned().collect();
    let (traces, runs): (Vec<PathBuf>, Vec<PathBuf>) = paths.into_iter().partition(|path| page::is_trace(app, path));
    let is_one_file = args.out.as_deref().is_some_and(page::is_html);
    if is_one_file && traces.len() + usize::from(!runs.is_empty()) > 1 {
        return refuse("`--out` names one page, and these inputs need several", "name a folder with `--out DIR`");
    }
    let mut pages = Vec::new();
    if !runs.is_empty() {
        pages.push(report_runs(app, args, &runs, is_one_file, out)?);
    }
    for trace in &traces {
        let written = page::write_trace(trace, args.out.as_deref())?;
        say(&format!("Page: {}", written.display()));
        pages.push(written);
    }
    if args.open {
        pages.iter().for_each(|page| page::open(page));
    }
    Ok(Status::Done)
}

/// Writes the report of runs, or only its page. Returns the page.
fn report_runs(
    app: &App,
    args: &Args,
    runs: &[PathBuf],
    is_one_file: bool,
    out: &mut dyn Write,
) -> anyhow::Result<PathBuf> {
    let folder = args.out.clone().unwrap_or_else(|| default_folder(runs));
    let answer = laptime_analyze::profiling(run_input::read(app, runs)?);
    if is_one_file {
        page::write_runs(&answer, runs, &folder)?;
        say(&format!("Page: {}", folder.display()));
        return Ok(folder);
    }
    make(&answer, runs, &folder)?;
    show(&answer, out)?;
    say(&format!("\n{}", run_folder::saved(&folder, &[])));
    Ok(folder.join(PAGE_FILE))
}

fn default_folder(paths: &[PathBuf]) -> PathBuf {
    let first = paths.first().map_or(Path::new("."), PathBuf::as_path);
    let folder = if first.is_dir() { first } else { first.parent().unwrap_or(Path::new(".")) };
    folder.join("report")
}

fn show(answer: &Profiling, out: &mut dyn Write) -> anyhow::Result<()> {
    for finding in answer.findings() {
        let next = finding.next.map_or_else(String::new, |next| format!(" Try: {next}"));
        writeln!(out, "{}", wrapped_for_screen(&format!("{}: {}{next}", finding.rule, finding.text)))?;
    }
    out.flush()?;
    Ok(())
}

/// Writes a report into a folder, and returns the names of its files.
pub fn make(answer: &Profiling, runs: &[PathBuf], folder: &Path) -> anyhow::Result<Vec<String>> {
    if folder.exists() && !folder.is_dir() {
        let reason = format!("`{}` is a file; a report needs a folder", folder.display());
        return refuse(reason, "name another place with `--out DIR`");
    }
    run_folder::create(folder)?;
    let mut files = Vec::new();
    let charts = profiling::charts(answer);
    for chart in &charts {
        files.push(draw(chart, folder)?);
    }
    let tables = [
        ("attention_summary", "attention, one row per kind", profiling::attention_summary(answer)),
        ("model_summary", "models, one row per preset", profiling::model_summary(answer)),
    ];
    for (name, about, table) in tables {
        files.extend(table.map(|table| write_table(&table, name, about, folder)).transpose()?);
    }
    files.push(ReportFiles { names: vec![PAGE_FILE.to_owned()], about: "all of it as one page".to_owned() });
    files.push(ReportFiles { names: vec![DOCUMENT.to_owned()], about: "this report".to_owned() });
    let pictures: Vec<(String, String)> =
        charts.iter().map(|chart| (chart.name.to_owned(), chart.title.clone())).collect();
    let text = profiling::document(answer, &pictures, &files);
    write_whole(&folder.join(DOCUMENT), |file| file.write_all(text.as_bytes()))?;
    page::write_runs(answer, runs, &folder.join(PAGE_FILE))?;
    let names: Vec<String> = files.into_iter().flat_map(|files| files.names).collect();
    warn_about_older(folder, &names);
    Ok(names)
}

/// Writes a chart as SVG and PNG, light and dark.
fn draw(chart: &Chart, folder: &Path) -> anyhow::Result<ReportFiles> {
    let mut names = Vec::new();
    for (theme, mark) in [(Theme::Light, ""), (Theme::Dark, "-dark")] {
        let (svg, png) = (format!("{}{mark}.svg", chart.name), format!("{}{mark}.png", chart.name));
        write_whole(&folder.join(&svg), |file| file.write_all(chart.to_svg(theme).as_bytes()))?;
        let drawn = chart.to_png(theme, WIDTH)?;
        write_whole(&folder.join(&png), |file| file.write_all(&drawn))?;
        names.extend([svg, png]);
    }
    Ok(ReportFiles { names, about: chart.title.clone() })
}

fn write_table(table: &Table, name: &str, about: &str, folder: &Path) -> anyhow::Result<ReportFiles> {
    let mut names = Vec::new();
    for (format, ending) in [(Format::Csv, "csv"), (Format::Md, "md")] {
        let name = format!("{name}.{ending}");
        write_file(table, format, &folder.join(&name))?;
        names.push(name);
    }
    Ok(ReportFiles { names, about: about.to_owned() })
}

/// Warns about files of an earlier report.
fn warn_about_older(folder: &Path, names: &[String]) {
    let charts = CHARTS.iter().flat_map(|name| ["", "-dark"].map(|mark| format!("{name}{mark}")));
    let pictures = charts.flat_map(|name| ["svg", "png"].map(|ending| format!("{name}.{ending}")));
    let tables = ["attention_summary", "model_summary"].iter();
    let tables = tables.flat_map(|name| ["csv", "md"].map(|ending| format!("{name}.{ending}")));
    let is_older = |name: &String| !names.contains(name) && folder.join(name).is_file();
    let older: Vec<String> = pictures.chain(tables).filter(is_older).collect();
    if let Some(first) = older.first() {
        let count = older.len();
        warn(&format!("{count} files of an earlier report are still in `{}`, such as `{first}`", folder.display()));
    }
}
