//! Output flags and formats, shared by all commands.

pub mod absent;
pub mod failure;
pub mod http;
pub mod progress;
pub mod screen;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anyhow::Context;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use laptime_pipelines::extras::Screen;
use laptime_report::{Format, Table, TextStyle};
use laptime_trace::Trace;
use laptime_trace::format::{NO_EVENTS, write_whole};

use crate::{cli::Status, commands::page, failure::refuse, library, screen::Content, trace_input::trace_of};

/// `--verbose` and `--wide`; set once, after the arguments are parsed.
static VERBOSE: AtomicBool = AtomicBool::new(false);
static WIDE: AtomicBool = AtomicBool::new(false);

/// How much people are shown
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct DetailArgs {
    /// Show all notes and how to read the columns
    #[arg(long, short, global = true, display_order = 900)]
    verbose: bool,
    /// Show all columns, however wide the terminal is
    #[arg(long, global = true, display_order = 901)]
    wide: bool,
}

impl DetailArgs {
    pub fn apply(self) {
        VERBOSE.store(self.verbose, Ordering::Relaxed);
        WIDE.store(self.wide, Ordering::Relaxed);
    }
}

/// Where the output goes, and its format
#[derive(Debug, clap::Args)]
pub struct OutputArgs {
    /// Output format [default: from the extension of `--out`, else text]
    #[arg(long, value_parser = formats())]
    format: Option<Format>,
    /// Write to this file instead of standard output; its extension selects the format (`.html`: a page)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The format of output that goes to standard output
#[derive(Debug, Clone, Default, clap::Args)]
pub struct FormatArgs {
    /// Output format [default: text]
    #[arg(long, global = true, value_parser = formats())]
    format: Option<Format>,
}

impl FormatArgs {
    pub fn format(&self) -> Format {
        self.format.unwrap_or(Format::Text)
    }

    /// Whether people read the format, rather than programs.
    pub fn is_for_people(&self) -> bool {
        matches!(self.format(), Format::Text | Format::Md)
    }
}

fn formats() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::name)).try_map(|name| name.parse())
}

/// The width of a table that is not written to a terminal: wide enough for every name.
const WIDTH_OF_A_FILE: usize = 2000;

impl OutputArgs {
    /// The requested format, or that of the file's extension.
    fn format(&self) -> Format {
        let named = || self.out.as_deref()?.extension()?.to_str()?.to_ascii_lowercase().parse().ok();
        self.format.or_else(named).unwrap_or(Format::Text)
    }

    /// Reads a trace file or the trace of a run folder. Warns about dropped events if the format has no place for notes.
    pub fn read_trace(&self, path: &Path) -> anyhow::Result<Arc<Trace>> {
        let trace = self.read_quietly(path)?;
        if trace.lost > 0 && self.has_rows_only() {
            warn(&loss(&trace));
        }
        Ok(trace)
    }

    /// [`Self::read_trace`] without that warning.
    pub fn read_quietly(&self, path: &Path) -> anyhow::Result<Arc<Trace>> {
        if let Some(given) = library::given(path) {
            return Ok(given);
        }
        let path = trace_of(path)?;
        self.refuse_to_overwrite(&path)?;
        // A note under the table or an error reports an empty trace.
        let has_note = |warning: &str| warning == NO_EVENTS && !self.has_rows_only();
        read_trace_but(&path, has_note)
    }

    pub fn refuse_to_overwrite(&self, path: &Path) -> anyhow::Result<()> {
        if self.out.as_deref().is_some_and(|out| is_same_file(out, path)) {
            return refuse(format!("`--out` would overwrite the trace `{}`", path.display()), "name another file");
        }
        Ok(())
    }

    /// The HTML page that `--out` names.
    pub fn page(&self) -> Option<&Path> {
        self.out.as_deref().filter(|out| page::is_html(out))
    }

    pub fn write(&self, table: &Table, out: &mut dyn Write) -> anyhow::Result<Status> {
        let format = self.format();
        match &self.out {
            Some(path) if page::is_html(path) => page::write(&page::of_table(table), path),
            Some(path) => write_file(table, format, path),
            None if library::take_table(table) => Ok(()),
            None => write_to_screen(table, format, out),
        }?;
        Ok(Status::Done)
    }

    pub fn write_text(&self, text: &str, out: &mut dyn Write) -> anyhow::Result<()> {
        match &self.out {
            Some(path) => write_whole(path, |file| file.write_all(text.as_bytes())).map_err(Into::into),
            None => match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                done => done.context("cannot write the result"),
            },
        }
    }

    /// Whether people read the format, rather than programs.
    pub fn is_for_people(&self) -> bool {
        matches!(self.format(), Format::Text | Format::Md)
    }

    /// Whether the format has rows only, without notes or other facts about the whole table.
    pub fn has_rows_only(&self) -> bool {
        matches!(self.format(), Format::Csv | Format::Tsv | Format::Jsonl)
    }
}

/// Writes a table to a file, completely or not at all.
pub fn write_file(table: &Table, format: Format, path: &Path) -> anyhow::Result<()> {
    let style = TextStyle { verbose: true, ..TextStyle::plain(WIDTH_OF_A_FILE) };
    write_whole(path, |file| laptime_report::write(table, format, style, file)).map_err(Into::into)
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Writes a table to standard output in the width of the terminal.
pub fn write_to_screen(table: &Table, format: Format, out: &mut dyn Write) -> anyhow::Result<()> {
    let colour = anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never;
    let width = if WIDE.load(Ordering::Relaxed) { WIDTH_OF_A_FILE } else { screen_width() };
    let verbose = VERBOSE.load(Ordering::Relaxed);
    let style = TextStyle { width, colour: colour && io::stdout().is_terminal(), verbose };
    let content = if matches!(format, Format::Text | Format::Md) { Content::Table } else { Content::Data };
    match screen::with(content, || laptime_report::write(table, format, style, out)).and_then(|()| out.flush()) {
        // A closed pipe does not change the exit status.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done.context("cannot write the result"),
    }
}

fn screen_width() -> usize {
    let of_terminal = terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
    let of_environment = || std::env::var("COLUMNS").ok()?.parse().ok().filter(|&width| width >= 20);
    of_terminal.or_else(of_environment).unwrap_or(WIDTH_OF_A_FILE)
}

const PROSE_WIDTH: usize = 100;

/// Prose wrapped to the terminal, or to 100 columns outside of terminals.
pub fn wrapped(text: &str) -> String {
    let of_terminal = terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
    laptime_report::wrap(text, of_terminal.unwrap_or(PROSE_WIDTH).max(20)).join("\n")
}

/// Wraps prose for standard error to its terminal, if it is one.
pub fn wrapped_for_error(text: &str) -> String {
    wrapped_to(terminal_size::terminal_size_of(io::stderr()), text)
}

/// Wraps prose for standard output to its terminal, if it is one.
pub fn wrapped_for_screen(text: &str) -> String {
    wrapped_to(terminal_size::terminal_size_of(io::stdout()), text)
}

fn wrapped_to(terminal: Option<(terminal_size::Width, terminal_size::Height)>, text: &str) -> String {
    terminal.map_or_else(|| text.to_owned(), |(width, _)| lines_within(text, usize::from(width.0)))
}

/// A command line for display, with quotes around words that contain spaces.
pub fn joined(words: &[String]) -> String {
    let quoted = |word: &String| if word.contains(' ') { format!("'{word}'") } else { word.clone() };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Wraps long lines; continuation lines keep the indentation.
fn lines_within(text: &str, width: usize) -> String {
    let width = width.max(20);
    let fitted = text.split('\n').map(|line| {
        if line.chars().count() <= width {
            return line.to_owned();
        }
        let words = line.trim_start_matches(' ');
        let indent = " ".repeat((line.len() - words.len()).min(width / 2));
        let parts = laptime_report::wrap(words, width - indent.len());
        parts.iter().map(|part| format!("{indent}{part}")).collect::<Vec<_>>().join("\n")
    });
    fitted.collect::<Vec<_>>().join("\n")
}

/// Reads a trace and prints its warnings on standard error.
pub fn read_trace(path: &Path) -> anyhow::Result<Arc<Trace>> {
    read_trace_but(path, |_| false)
}

/// [`read_trace`] without the warnings that are reported elsewhere.
fn read_trace_but(path: &Path, is_reported: impl Fn(&str) -> bool) -> anyhow::Result<Arc<Trace>> {
    if let Some(given) = library::given(path) {
        return Ok(given);
    }
    let trace = crate::trace_input::read(path).with_context(|| format!("cannot read trace `{}`", path.display()))?;
    for warning in trace.warnings.iter().filter(|warning| !is_reported(warning)) {
        warn(&format!("`{}`: {warning}", path.display()));
    }
    Ok(Arc::new(trace))
}

pub fn say(line: &str) {
    if library::take_message(line) {
        return;
    }
    // If standard error is closed, the answer still matters.
    let _ = writeln!(screen::stderr(), "{}", wrapped_for_error(line));
}

pub fn say_above(text: &str) {
    let _ = screen::stderr().clear_line();
    say(text.trim_end());
}

/// The terminal, for the extras of workloads.
#[derive(Debug, Clone, Copy)]
pub struct Terminal {
    /// The format of tables.
    pub format: Format,
}

impl Default for Terminal {
    fn default() -> Self {
        Self { format: Format::Text }
    }
}

impl Screen for Terminal {
    fn say(&self, line: &str) {
        say(line);
    }

    fn say_above(&self, line: &str) {
        say_above(line);
    }

    fn prose(&self, text: &str, out: &mut dyn Write) -> anyhow::Result<()> {
        Ok(writeln!(out, "{}", wrapped_for_screen(text))?)
    }

    fn table(&self, table: &Table, out: &mut dyn Write) -> anyhow::Result<()> {
        write_to_screen(table, self.format, out)
    }
}

pub fn warn(warning: &str) {
    say(&format!("warning: {warning}"));
}

pub fn gib(bytes: u64) -> String {
    format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30))
}

/// `4 events were dropped while recording`.
pub fn loss(trace: &Trace) -> String {
    format!("{} dropped while recording", laptime_analyze::plural(trace.lost, "event was", "events were"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_wrapped_with_their_indentation() {
        let text = "  layer 1: wait 0.10 ms, release 0.02 ms\n\nshort  line";
        let expected = "  layer 1: wait 0.10 ms,\n  release 0.02 ms\n\nshort  line";
        assert_eq!(lines_within(text, 26), expected);
        assert_eq!(lines_within(text, 80), text);
    }
}
