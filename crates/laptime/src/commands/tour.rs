//! `laptime tour`: records a small pipeline, runs a small benchmark, and shows the results.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::Context;
use laptime_bench::{GivenSettings, Seconds, Share};
use laptime_report::Format;
use laptime_trace::{Recorded, format::folded::By};

use crate::{
    app::App,
    cli::Status,
    commands::{bench, convert, page},
    output::{read_trace, wrapped_for_screen, write_to_screen},
    request::Order,
    run_folder::{PAGE_FILE, TRACE_FILE},
    session::{Finished, Session},
    tour::generator::{Generator, Size},
};

/// Record a small text generator, run a small benchmark, and show where to go next
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  laptime tour\n  laptime tour --out my-tour")]
pub struct Args {
    /// Folder for the files [default: `runs/tour-` and the time]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs the command.
pub fn run(app: &App, args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let session = Session::begin(app, &benchmark(app)?, "tour", args.out.as_deref())?;
    let folder = session.folder.clone();
    let recorded = show_pipeline(&folder, out)?;
    writeln!(out, "\nA small benchmark. Each case runs until its median is known within 5 %:\n")?;
    out.flush()?;
    let finished = session.sweep(app, false)?;
    bench::show(&finished, Format::Text, out)?;
    if finished.was_interrupted {
        return bench::end(&finished, &[]);
    }
    let trace = read_trace(&folder.join(TRACE_FILE))?;
    page::write_recorded(&folder, &trace, Some(&finished.run), &finished.results);
    print_next(&finished, &recorded, out)?;
    Ok(Status::Done)
}

fn show_pipeline(folder: &Path, out: &mut dyn Write) -> anyhow::Result<Recorded> {
    let pftrace = folder.join(TRACE_FILE);
    let (size, recorded) = record(&pftrace)?;
    let trace = read_trace(&pftrace)?;
    laptime_trace::write(&trace, folder.join("trace.json"))?;
    convert::draw(&trace, By::Host, &pftrace, &folder.join("flamegraph.svg"))?;
    let about = format!(
        "A small text generator ({} layers, width {}, synthetic weights) wrote {} tokens on the CPU.\n",
        size.layers, size.width, size.tokens
    );
    writeln!(out, "{}", wrapped_for_screen(&about))?;
    let answer = laptime_analyze::stages(&trace);
    write_to_screen(&laptime_report::tables::stages(&answer), Format::Text, out)?;
    Ok(recorded)
}

fn record(path: &Path) -> anyhow::Result<(Size, Recorded)> {
    let recording = laptime_trace::record_to(path)?;
    let size = Size::default();
    let generator = Generator::new(size);
    generator.generate("Where does the time go? It goes where nobody measured it, and then it is gone for good.");
    let recorded = recording.finish().context("the recording was not saved")?;
    Ok((size, recorded))
}

/// The benchmark of the tour: a few seconds.
fn benchmark(app: &App) -> anyhow::Result<Order<'_>> {
    let workload = app.workload("matmul")?;
    let axes = [("size".to_owned(), vec!["128-512*2".to_owned()]), ("dtype".to_owned(), vec!["f32,f64".to_owned()])];
    let given = GivenSettings { within: Some(Share(0.05)), max_time: Some(Seconds(1.0)), ..GivenSettings::default() };
    let plan = workload.plan(&axes)?;
    Ok(Order { workload, plan, settings: given.settle()?, timings: Vec::new(), device: "auto".to_owned() })
}

fn print_next(finished: &Finished, recorded: &Recorded, out: &mut dyn Write) -> anyhow::Result<()> {
    let call = if std::env::var_os("CARGO").is_some() { "cargo run --release --" } else { "laptime" };
    let files = [
        (PAGE_FILE, "open in a browser: the timeline, the stages and the figures"),
        (TRACE_FILE, "open in https://ui.perfetto.dev"),
        ("trace.json", "open in chrome://tracing or https://www.speedscope.app"),
        ("flamegraph.svg", "open in a browser"),
        ("results.jsonl", "every sample of the benchmark, one line per case"),
        ("run.json", "the machine, the build and the settings"),
    ];
    let Recorded { spans, bytes, .. } = recorded;
    writeln!(out, "\nSaved to {} ({spans} spans, {bytes} bytes of trace):", finished.folder.display())?;
    let width = files.iter().map(|(file, _)| file.len()).max().unwrap_or(0);
    files.iter().try_for_each(|(file, how)| writeln!(out, "  {file:width$}  {how}"))?;
    writeln!(out, "\nNext:\n  {call} doctor\n  {call} bench matmul --size 256-1024*2 --runs 5")?;
    writeln!(out, "  {call} top {}", finished.folder.join(TRACE_FILE).display())?;
    out.flush()?;
    Ok(())
}
