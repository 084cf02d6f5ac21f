//! The commands as functions, for bindings of other languages: command line arguments in, tables out.
//!
//! Commands read traces and write tables through `output`. While [`ask`] runs one, traces come from memory, tables go
//! to the caller, and nothing is printed.

use std::path::{Path, PathBuf};
use std::{cell::RefCell, ffi::OsString, fmt, sync::Arc};

use laptime_report::Table;
use laptime_trace::{Trace, run::CaseResult};

use crate::{app::App, cli, failure, run_input, trace_input};

#[cfg(target_os = "linux")]
pub use crate::commands::record::in_process;

/// Traces in memory, by the path that the arguments use for them.
pub type Traces = Vec<(PathBuf, Arc<Trace>)>;

/// The output of a command.
#[derive(Debug, Default)]
pub struct Answer {
    /// The tables.
    pub tables: Vec<Table>,
    /// Lines of standard error: warnings and progress.
    pub messages: Vec<String>,
    /// Standard output other than tables.
    pub text: String,
}

/// Why a command failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The error and its causes.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.message)?;
        self.hint.iter().try_for_each(|hint| write!(out, "\nhint: {hint}"))
    }
}

impl std::error::Error for Failure {}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let message = match error.downcast_ref::<clap::Error>() {
            Some(refused) => {
                let text = refused.render().to_string();
                text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
            }
            None => format!("{error:#}"),
        };
        Self { message, hint: failure::hint(&error) }
    }
}

struct Question {
    traces: Traces,
    answer: Answer,
}

thread_local! {
    static QUESTION: RefCell<Option<Question>> = const { RefCell::new(None) };
}

/// Clears the thread's question, also on a panic.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        QUESTION.set(None);
    }
}

/// Runs a command, given by the arguments after `laptime`. Paths in `traces` are not read from disk.
pub fn ask(words: &[OsString], traces: Traces) -> Result<Answer, Failure> {
    QUESTION.set(Some(Question { traces, answer: Answer::default() }));
    let _end = End;
    let app = App::new(Vec::new(), Vec::new());
    let mut text = Vec::new();
    let words = std::iter::once(OsString::from("laptime")).chain(words.iter().cloned());
    cli::try_run(&app, words, &mut text)?;
    let answer =
        QUESTION.with_borrow_mut(|question| question.take().map(|question| question.answer)).unwrap_or_default();
    Ok(Answer { text: String::from_utf8_lossy(&text).into_owned(), ..answer })
}

/// Reads a trace, or the trace of a run folder.
pub fn read_trace(path: &Path) -> Result<Trace, Failure> {
    let read = || -> anyhow::Result<Trace> {
        let file = trace_input::trace_of(path)?;
        trace_input::read(&file)
            .map_err(|error| anyhow::Error::new(error).context(format!("cannot read trace `{}`", path.display())))
    };
    read().map_err(Failure::from)
}

/// The cases of a benchmark run, given by its folder or a file in it.
pub fn cases(path: &Path) -> Result<Table, Failure> {
    let read = run_input::read(&App::new(Vec::new(), Vec::new()), &[path.to_owned()])?;
    let results: Vec<CaseResult> = read.iter().flat_map(|run| run.results.iter().cloned()).collect();
    let run = read.iter().find_map(|run| run.run.as_ref()).filter(|_| read.len() == 1);
    let answer = laptime_analyze::cases(&results, run.and_then(|run| run.peaks.as_ref()));
    let doubts = run.map(|run| laptime_analyze::doubts(&answer, &run.settings, &run.environment));
    Ok(laptime_report::tables::cases(&answer, &doubts.unwrap_or_default()))
}

/// The trace in memory for a path.
pub(crate) fn given(path: &Path) -> Option<Arc<Trace>> {
    QUESTION.with_borrow(|question| {
        let (_, trace) = question.as_ref()?.traces.iter().find(|(known, _)| known == path)?;
        Some(Arc::clone(trace))
    })
}

/// Passes a table to the caller of [`ask`]; false outside of [`ask`].
pub(crate) fn take_table(table: &Table) -> bool {
    with_answer(|answer| answer.tables.push(table.clone()))
}

/// Passes a message to the caller of [`ask`]; false outside of [`ask`].
pub(crate) fn take_message(line: &str) -> bool {
    with_answer(|answer| answer.messages.push(line.to_owned()))
}

fn with_answer(add: impl FnOnce(&mut Answer)) -> bool {
    QUESTION.with_borrow_mut(|question| question.as_mut().map(|question| add(&mut question.answer)).is_some())
}

#[cfg(test)]
mod tests {
    use laptime_trace::{Nanos, TraceBuilder};

    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    fn trace() -> Arc<Trace> {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        builder.span(main, Nanos(0), Nanos(5_000_000), "step", "");
        Arc::new(builder.build().unwrap())
    }

    #[test]
    fn a_trace_in_memory_is_read_like_a_file() {
        let traces = || vec![(PathBuf::from("nowhere.pftrace"), trace())];
        let answer = ask(&words(&["stages", "nowhere.pftrace", "--format", "json"]), traces()).unwrap();
        assert_eq!(
            answer.tables.iter().map(|table| (table.name, table.rows.len())).collect::<Vec<_>>(),
            [("stages", 1)]
        );
        assert_eq!(answer.text, "");
        let answer = ask(&words(&["compare", "nowhere.pftrace", "nowhere.pftrace"]), traces()).unwrap();
        assert_eq!(answer.tables.len(), 1);
    }

    #[test]
    fn a_failure_has_its_causes_and_a_hint() {
        let failed = ask(&words(&["stages", "nowhere.pftrace"]), Vec::new()).unwrap_err();
        assert!(failed.message.starts_with("cannot read trace `nowhere.pftrace`"), "{failed}");
        assert!(failed.hint.is_some_and(|hint| hint.starts_with("check the path")));
        let refused = ask(&words(&["stages", "a.json", "--deep"]), Vec::new()).unwrap_err();
        assert_eq!(refused.message, "unexpected argument '--deep' found");
    }
}
