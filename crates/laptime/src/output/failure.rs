//! Prints errors with their causes and a hint.

use std::io::{self, Write};

use laptime_bench::{AxisError, L2Error, NoDevice, PlanError, PlanFileError, SettingsError, Timing, TimingError};
use laptime_models::ModelError;
pub use laptime_pipelines::extras::{Hinted, refusal, refuse};
use laptime_report::FlameError;
use laptime_trace::{ReadError, RecordError, WriteError, run::RunFileError};

use crate::near::{did_you_mean, nearest};
use crate::output::wrapped_for_error;

/// Whether the reader closed our output, as `head` does, which is not an error.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let is_pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    error.chain().any(is_pipe)
}

pub fn print(error: &anyhow::Error, out: &mut dyn Write) {
    // Fails if standard error is closed: nobody is left to tell.
    let _ = try_print(error, out);
}

/// Prints a panic in the form of an error, with its source location.
pub fn print_panic(panic: &std::panic::PanicHookInfo<'_>, out: &mut dyn Write) {
    let what = panic.payload_as_str().unwrap_or("no message");
    let place = panic.location().map_or_else(String::new, |place| format!(" ({}:{})", place.file(), place.line()));
    let hint = "this is a bug in laptime; please report it with the command and its input file";
    let _ = writeln!(out, "error: laptime failed: {what}{place}\n\nhint: {hint}");
}

fn try_print(error: &anyhow::Error, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", wrapped_for_error(&format!("error: {error}")))?;
    for cause in error.chain().skip(1) {
        writeln!(out, "{}", wrapped_for_error(&format!("  caused by: {cause}")))?;
    }
    if let Some(hint) = hint(error) {
        writeln!(out, "\n{}", wrapped_for_error(&format!("hint: {hint}")))?;
    }
    out.flush()
}

pub fn hint(error: &anyhow::Error) -> Option<String> {
    /// The hint of the first listed type that the cause has.
    macro_rules! first_known {
        ($cause:ident, $($type:ty => $hint:expr,)*) => {
            $(if let Some(error) = $cause.downcast_ref::<$type>() {
                let hint: fn(&$type) -> Option<String> = $hint;
                return hint(error);
            })*
        };
    }
    error.chain().find_map(|cause| {
        first_known!(cause,
            Hinted => |hinted| Some(hinted.hint().to_owned()),
            NoDevice => |none| Some(none.hint.clone()),
            ReadError => read_hint,
            WriteError => write_hint,
            FlameError => flame_hint,
            PlanError => plan_hint,
            PlanFileError => plan_file_hint,
            SettingsError => settings_hint,
            TimingError => |error| Some(timing_hint(&error.known)),
            L2Error => |_| Some("leave out `--l2`; it applies to GPUs only".to_owned()),
            RunFileError => run_file_hint,
            ModelError => ModelError::hint,
        );
        match cause.downcast_ref::<RecordError>() {
            Some(RecordError::Write { source, .. }) => place_hint(source),
            _ => cause.downcast_ref::<io::Error>().and_then(place_hint),
        }
    })
}

fn read_hint(error: &ReadError) -> Option<String> {
    let formats = "a trace is a Perfetto `.pftrace`, Chrome or torch.profiler JSON (`.json`, `.json.gz`), or an Nsight \
                   Systems export (`nsys export --type sqlite`)";
    Some(match error {
        ReadError::Open { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            "check the path; `laptime tour` records a trace to try".to_owned()
        }
        ReadError::Open { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            "you have no permission to read it; see `ls -l`".to_owned()
        }
        ReadError::Folder { path } => {
            let inside = path.join("trace.pftrace");
            if inside.is_file() {
                format!("its trace is `{}`", inside.display())
            } else {
                format!("name a file in it; {formats}")
            }
        }
        ReadError::Empty => "the program that wrote it may have stopped before its first event".to_owned(),
        ReadError::Unsupported(known) => known.way.to_owned(),
        ReadError::TooLarge { .. } => "if you expected this file to work, unpack it first: `gunzip -k FILE`".to_owned(),
        ReadError::Memory { .. } => "record a shorter part, or read it on a machine with more memory".to_owned(),
        ReadError::NoTrackEvents { .. } => {
            "record track events: a data source named `track_event` in the Perfetto configuration".to_owned()
        }
        ReadError::NotATrace { .. } => formats.to_owned(),
        ReadError::NotBuilt { feature, .. } => {
            format!("`cargo build --release --features {feature}` builds a laptime that reads it")
        }
        ReadError::Database(_) => "export it again with `nsys export --type sqlite`".to_owned(),
        ReadError::OneWay { .. } => "convert the original trace; `.pftrace` and `.json` keep everything".to_owned(),
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

/// Advice on a path that cannot be written to.
pub fn place_hint(source: &io::Error) -> Option<String> {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Some("the disk is full; free some space, or name a place on another disk".to_owned())
        }
        io::ErrorKind::FileTooLarge => Some("the file size limit was reached; see `ulimit -f`".to_owned()),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Some("you have no permission to write there; name another place".to_owned())
        }
        io::ErrorKind::NotFound => Some("create the folder first, or name an existing one".to_owned()),
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

pub fn axis_hint(error: &PlanError, near: &str, command: &str) -> Option<String> {
    let PlanError::NoSuchAxis { workload, known, .. } = error else { return None };
    let axes = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Some(format!("{near}its axes are {axes}; `laptime {command} {workload} --help` shows every flag"))
}

fn plan_hint(error: &PlanError) -> Option<String> {
    match error {
        PlanError::NoSuchAxis { axis, known, .. } => {
            axis_hint(error, &did_you_mean(axis, known.iter().copied()), "bench")
        }
        PlanError::Values { axis, source } => Some(match source {
            AxisError::Backwards { .. } => format!("the smaller end comes first, as in `--{axis} 128-4096*2`"),
            AxisError::FromZero { .. } => {
                format!("start at 1, as in `--{axis} 1-1024*2`, or count by a step, as in `--{axis} 0-8+2`")
            }
            AxisError::TooMany { .. } => format!("use larger steps, or a factor, as in `--{axis} 1-1024*2`"),
            _ => format!("write a value, a list `a,b`, or a range `1-8+1`, `128-4096*2` after `--{axis}`"),
        }),
        PlanError::Value { .. } => Some("`laptime list WORKLOAD` shows the values of each axis".to_owned()),
        PlanError::Refused { hint, .. } => Some(hint.clone()),
        PlanError::TooManyCases { .. } => {
            Some("every combination of values is a case; give fewer values, or use several plans".to_owned())
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
        SettingsError::TwoRules { other } => format!("give `--iterations` or `--{other}`, not both"),
        SettingsError::TimesCross { .. } => "give a longer `--max-time` or a shorter `--min-time`".to_owned(),
        SettingsError::None { what } => format!("use `--{what} 1` or more"),
    })
}

fn timing_hint(known: &[Timing]) -> String {
    let words: Vec<String> = known.iter().map(|timing| format!("`--timing {timing}`")).collect();
    let more = if known.contains(&Timing::Events) { "" } else { "; the other timings need a GPU" };
    format!("use {}{more}", words.join(", "))
}

fn run_file_hint(error: &RunFileError) -> Option<String> {
    match error {
        RunFileError::Open { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Some("name the folder of a run, such as one under `runs/`".to_owned())
        }
        RunFileError::Write { source, .. } if source.kind() == io::ErrorKind::WouldBlock => {
            Some("another process is measuring into this folder; wait for it, or name another".to_owned())
        }
        RunFileError::Write { source, .. } => place_hint(source)
            .map(|hint| format!("{hint}; finished cases are saved, and `laptime bench --resume DIR` continues")),
        RunFileError::Schema { .. } => {
            Some("it was written by a newer version; use that version or a later one".to_owned())
        }
        RunFileError::Content { .. } => {
            Some("the file was changed or damaged; you can remove lines that are not results".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_text(error: anyhow::Error) -> String {
        let mut text = Vec::new();
        print(&error, &mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_file_without_read_permission_is_reported_with_its_cause_and_a_hint() {
        let source = io::Error::from(io::ErrorKind::PermissionDenied);
        let error =
            anyhow::Error::new(ReadError::Open { path: "a.json".into(), source }).context("cannot read `a.json`");
        assert_eq!(
            error_text(error),
            "error: cannot read `a.json`\n  caused by: cannot open `a.json`\n  caused by: permission denied\n\n\
             hint: you have no permission to read it; see `ls -l`\n"
        );
    }

    #[test]
    fn a_hint_of_the_caller_precedes_a_general_one() {
        let error = Hinted::wrap(anyhow::anyhow!("no space"), "free some space");
        assert_eq!(error_text(error), "error: no space\n\nhint: free some space\n");
    }

    #[test]
    fn a_closed_pipe_is_recognised_as_a_cause() {
        let closed = anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe)).context("cannot write the result");
        assert!(is_closed_pipe(&closed));
        assert!(!is_closed_pipe(&anyhow::anyhow!("something else")));
    }
}
