//! How an error is told: once, as a chain, with a hint.

use std::io::{self, Write};

use laptime_bench::{AxisError, L2Error, PlanError, PlanFileError, SettingsError, Timing, TimingError};
use laptime_models::ModelError;
use laptime_report::FlameError;
use laptime_trace::{ReadError, RecordError, WriteError, run::RunFileError};

use crate::{near::nearest, output::wrapped_for_error};

/// An error with advice that only its place knows.
#[derive(Debug)]
pub struct Hinted {
    error: anyhow::Error,
    hint: String,
}

impl Hinted {
    /// Adds a hint to an error.
    pub fn wrap(error: impl Into<anyhow::Error>, hint: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Self { error: error.into(), hint: hint.into() })
    }
}

impl std::fmt::Display for Hinted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Hinted {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// Whether someone stopped reading our output: no failure.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let is_pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    error.chain().any(is_pipe)
}

/// Tells an error and what can be done about it.
pub fn tell(error: &anyhow::Error, out: &mut dyn Write) {
    // If standard error is closed too, there is nobody left to tell.
    let _ = try_tell(error, out);
}

/// Tells a fault of our own: the same form as any error, and where it is.
pub fn tell_fault(panic: &std::panic::PanicHookInfo<'_>, out: &mut dyn Write) {
    let what = panic.payload_as_str().unwrap_or("no message");
    let place = panic.location().map_or_else(String::new, |place| format!(" ({}:{})", place.file(), place.line()));
    let hint = "this is a fault of laptime itself; please report it with the command and the file that led to it";
    let _ = writeln!(out, "error: laptime failed: {what}{place}\n\nhint: {hint}");
}

fn try_tell(error: &anyhow::Error, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", wrapped_for_error(&format!("error: {error}")))?;
    for cause in error.chain().skip(1) {
        writeln!(out, "  caused by: {cause}")?;
    }
    if let Some(hint) = hint(error) {
        writeln!(out, "\n{}", wrapped_for_error(&format!("hint: {hint}")))?;
    }
    out.flush()
}

fn hint(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| {
        if let Some(hinted) = cause.downcast_ref::<Hinted>() {
            return Some(hinted.hint.clone());
        }
        if let Some(error) = cause.downcast_ref::<ReadError>() {
            return read_hint(error);
        }
        if let Some(error) = cause.downcast_ref::<WriteError>() {
            return write_hint(error);
        }
        if let Some(RecordError::Write { source, .. }) = cause.downcast_ref::<RecordError>() {
            return place_hint(source);
        }
        if let Some(error) = cause.downcast_ref::<FlameError>() {
            return flame_hint(error);
        }
        if let Some(error) = cause.downcast_ref::<PlanError>() {
            return plan_hint(error);
        }
        if let Some(error) = cause.downcast_ref::<PlanFileError>() {
            return plan_file_hint(error);
        }
        if let Some(error) = cause.downcast_ref::<SettingsError>() {
            return settings_hint(error);
        }
        if let Some(TimingError { known, .. }) = cause.downcast_ref::<TimingError>() {
            return Some(timing_hint(known));
        }
        if cause.is::<L2Error>() {
            return Some("leave `--l2` out there; it is of GPUs".to_owned());
        }
        if let Some(error) = cause.downcast_ref::<RunFileError>() {
            return run_file_hint(error);
        }
        if let Some(error) = cause.downcast_ref::<ModelError>() {
            return error.hint();
        }
        cause.downcast_ref::<io::Error>().and_then(place_hint)
    })
}

fn read_hint(error: &ReadError) -> Option<String> {
    let formats = "a trace is a Perfetto `.pftrace`, Chrome or torch.profiler JSON (`.json`, `.json.gz`), or an Nsight \
                   Systems export (`nsys export --type sqlite`)";
    Some(match error {
        ReadError::Open { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            "check the name; `laptime tour` records a trace to try".to_owned()
        }
        ReadError::Open { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            "you may not read it; `ls -l` shows who may".to_owned()
        }
        ReadError::Folder { path } => {
            let inside = path.join("trace.pftrace");
            if inside.is_file() {
                format!("its trace is `{}`", inside.display())
            } else {
                format!("name a file in it; {formats}")
            }
        }
        ReadError::Empty => "the program that wrote it may have been stopped before its first event".to_owned(),
        ReadError::Unsupported(known) => known.way.to_owned(),
        ReadError::TooLarge { .. } => "if the file is what it should be, unpack it first: `gunzip -k FILE`".to_owned(),
        ReadError::Memory { .. } => "record a shorter part, or read it on a machine with more memory".to_owned(),
        ReadError::NotATrace { found } if found.contains("without track events") => {
            "record track events: a data source named `track_event` in the Perfetto configuration".to_owned()
        }
        ReadError::NotATrace { .. } => formats.to_owned(),
        ReadError::NotBuilt { feature, .. } => {
            format!("`cargo build --release --features {feature}` makes a laptime that reads it")
        }
        ReadError::Database(_) => "`nsys export --type sqlite` makes it anew from the report".to_owned(),
        ReadError::OneWay { .. } => {
            "convert the trace it was made from; `.pftrace` and `.json` keep everything".to_owned()
        }
        _ => return None,
    })
}

fn write_hint(error: &WriteError) -> Option<String> {
    match error {
        WriteError::Extension { .. } => {
            Some("use one of `.pftrace`, `.json`, `.json.gz`, `.speedscope.json`, `.folded`, `.svg`".to_owned())
        }
        WriteError::Write { source, .. } => place_hint(source),
        _ => None,
    }
}

/// Advice on a place that cannot be written to.
pub fn place_hint(source: &io::Error) -> Option<String> {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Some("the disk is full; make room or name a place on another one".to_owned())
        }
        io::ErrorKind::FileTooLarge => {
            Some("a limit on the size of files was reached; `ulimit -f` shows it".to_owned())
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Some("you may not write there; name another place".to_owned())
        }
        io::ErrorKind::NotFound => Some("make the folder first, or name one that is there".to_owned()),
        io::ErrorKind::IsADirectory => Some("that is a folder; name a file in it".to_owned()),
        _ => None,
    }
}

fn flame_hint(error: &FlameError) -> Option<String> {
    match error {
        FlameError::Empty => {
            Some("`laptime stages FILE` shows what there is; `--by host` and `--by device` choose the side".to_owned())
        }
        FlameError::Write(source) => place_hint(source),
        _ => None,
    }
}

/// Advice on an axis that a workload does not have.
pub fn axis_hint(error: &PlanError, near: Option<&str>, command: &str) -> Option<String> {
    let PlanError::NoSuchAxis { workload, known, .. } = error else { return None };
    let axes = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let near = near.unwrap_or_default();
    Some(format!("{near}its axes are {axes}; `laptime {command} {workload} --help` shows every flag"))
}

fn plan_hint(error: &PlanError) -> Option<String> {
    match error {
        PlanError::NoSuchAxis { axis, known, .. } => {
            let near = nearest(axis, known.iter().copied()).map(|near| format!("did you mean `{near}`? "));
            axis_hint(error, near.as_deref(), "bench")
        }
        PlanError::Values { axis, source } => Some(match source {
            AxisError::Backwards { .. } => format!("the smaller end comes first, as in `--{axis} 128-4096*2`"),
            AxisError::FromZero { .. } => {
                format!("start at 1, as in `--{axis} 1-1024*2`, or count by a step, as in `--{axis} 0-8+2`")
            }
            AxisError::TooMany { .. } => format!("take larger steps, or a factor, as in `--{axis} 1-1024*2`"),
            _ => format!("write a value, a list `a,b`, or a range `1-8+1`, `128-4096*2` behind `--{axis}`"),
        }),
        PlanError::Value { .. } => Some("`laptime list WORKLOAD` shows what each axis takes".to_owned()),
        PlanError::Refused { hint, .. } => Some(hint.clone()),
        PlanError::TooManyCases { .. } => {
            Some("every combination of values is a case: give fewer values, or several plans".to_owned())
        }
    }
}

fn plan_file_hint(error: &PlanFileError) -> Option<String> {
    match error {
        PlanFileError::Open { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Some("check the name; a plan is TOML, as docs/bench.md shows".to_owned())
        }
        PlanFileError::Open { source, .. } => place_hint(source),
        PlanFileError::Content { reason, .. } => {
            let mut names = reason.split('`').skip(1).step_by(2);
            let near = names.next().and_then(|wrong| nearest(wrong, names));
            Some(near.map_or_else(
                || "a plan is TOML, as docs/bench.md shows".to_owned(),
                |near| format!("did you mean `{near}`?"),
            ))
        }
    }
}

fn settings_hint(error: &SettingsError) -> Option<String> {
    Some(match error {
        SettingsError::TwoRules { other } => format!("give `--takes` or `--{other}`, not both"),
        SettingsError::TimesCross { .. } => "give a longer `--max-time` or a shorter `--min-time`".to_owned(),
        SettingsError::None { what } => format!("`--{what} 1` is the least"),
    })
}

fn timing_hint(known: &[Timing]) -> String {
    let words: Vec<String> = known.iter().map(|timing| format!("`--timing {timing}`")).collect();
    let more = if known.contains(&Timing::Events) { "" } else { "; the others need a device with a clock of its own" };
    format!("it can be timed by {}{more}", words.join(", "))
}

fn run_file_hint(error: &RunFileError) -> Option<String> {
    match error {
        RunFileError::Open { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Some("name the folder of a run, as `laptime bench` makes them under `runs/`".to_owned())
        }
        RunFileError::Write { source, .. } if source.kind() == io::ErrorKind::WouldBlock => {
            Some("another process is measuring into this folder; wait for it, or name another".to_owned())
        }
        RunFileError::Write { source, .. } => place_hint(source)
            .map(|hint| format!("{hint}; what was finished before is kept, and `laptime bench --resume DIR` goes on")),
        RunFileError::Schema { .. } => Some("it was written by another version; read it with that one".to_owned()),
        RunFileError::Content { .. } => {
            Some("the file was changed or damaged; a line that is no result can be removed".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(error: anyhow::Error) -> String {
        let mut text = Vec::new();
        tell(&error, &mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_file_that_may_not_be_read_is_told_with_its_cause_and_a_hint() {
        let source = io::Error::from(io::ErrorKind::PermissionDenied);
        let error =
            anyhow::Error::new(ReadError::Open { path: "a.json".into(), source }).context("cannot read `a.json`");
        assert_eq!(
            told(error),
            "error: cannot read `a.json`\n  caused by: cannot open `a.json`\n  caused by: permission denied\n\n\
             hint: you may not read it; `ls -l` shows who may\n"
        );
    }

    #[test]
    fn a_hint_of_its_place_goes_before_a_general_one() {
        let error = Hinted::wrap(anyhow::anyhow!("no room"), "make room");
        assert_eq!(told(error), "error: no room\n\nhint: make room\n");
    }

    #[test]
    fn a_closed_pipe_is_seen_through_the_chain() {
        let closed = anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe)).context("cannot write the answer");
        assert!(is_closed_pipe(&closed));
        assert!(!is_closed_pipe(&anyhow::anyhow!("something else")));
    }
}
