//! `laptime tour`: records a small pipeline and shows what it did.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::Context;
use laptime_trace::{Recorded, format::folded::By};

use crate::{
    Status,
    commands::convert,
    output::{read_trace, write_to_screen},
    run_folder,
    tour::generator::{Generator, Size},
};

/// Records a small text generator on this machine, shows its stages and says how to open the trace
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  laptime tour\n  laptime tour --out my-tour")]
pub struct Args {
    /// Folder for the files [default: `runs/tour-` and the time]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let folder = run_folder::make(args.out.as_deref(), "tour")?;
    let pftrace = folder.join("trace.pftrace");
    let (size, recorded) = record(&pftrace)?;
    let trace = read_trace(&pftrace)?;
    laptime_trace::write(&trace, folder.join("trace.json"))?;
    convert::draw(&trace, By::Host, &pftrace, &folder.join("flamegraph.svg"))?;
    writeln!(
        out,
        "A small text generator ({} layers, width {}, synthetic weights) wrote {} tokens on the CPU.\n",
        size.layers, size.width, size.tokens
    )?;
    let answer = laptime_analyze::stages(&trace);
    write_to_screen(&laptime_report::tables::stages(&answer), laptime_report::Format::Text, out)?;
    tell_where(&folder, &recorded, out)?;
    Ok(Status::Done)
}

fn record(path: &Path) -> anyhow::Result<(Size, Recorded)> {
    let recording = laptime_trace::record_to(path)?;
    let size = Size::default();
    let generator = Generator::new(size);
    generator.generate("Where does the time go? It goes where nobody measured it, and then it is gone for good.");
    let recorded = recording.finish().context("the recording was not kept")?;
    Ok((size, recorded))
}

fn tell_where(folder: &Path, recorded: &Recorded, out: &mut dyn Write) -> std::io::Result<()> {
    let show = |name: &str| folder.join(name).display().to_string();
    let call = if std::env::var_os("CARGO").is_some() { "cargo run --release --" } else { "laptime" };
    let files = [
        (show("trace.pftrace"), "open in https://ui.perfetto.dev"),
        (show("trace.json"), "open in chrome://tracing or https://www.speedscope.app"),
        (show("flamegraph.svg"), "open in a browser"),
    ];
    let width = files.iter().map(|(file, _)| file.len()).max().unwrap_or(0);
    writeln!(out, "\nWritten ({} spans, {} bytes of trace):", recorded.spans, recorded.bytes)?;
    for (file, how) in &files {
        writeln!(out, "  {file:width$}  {how}")?;
    }
    writeln!(out, "\nNext:\n  {call} top {}\n  {call} convert {} spans.speedscope.json", files[0].0, files[0].0)?;
    out.flush()
}
