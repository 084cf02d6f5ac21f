//! What a workload adds to the commands: its own flags, checks, notes, files and summaries.
//!
//! The program knows no workload by name. It looks up the [`Extras`] of the workload that it runs and calls them at
//! fixed points; a workload without extras gets [`NoExtras`]. A program of your own passes extras for its workloads to
//! `laptime::main_with_extras`.

pub(crate) mod files;
pub(crate) mod nano;

use std::path::{Path, PathBuf};
use std::{collections::BTreeMap, io::Write, sync::Arc};

use laptime_analyze::Conclusion;
use laptime_bench::{Case, CaseResult, Device, Devices, Outcome, Workload};
use laptime_report::Table;
use laptime_trace::{Trace, run::Run};
use serde_json::Value;

pub use self::nano::own_run;

/// The files that were written outside of the run's folder.
pub type Written = anyhow::Result<Vec<PathBuf>>;

/// What a workload adds to the commands. By default, nothing.
#[allow(unused_variables, reason = "the defaults do nothing")]
pub trait Extras: Send + Sync {
    /// The workload, by its name.
    fn workload(&self) -> &'static str;

    /// The flags of a command that only this workload has, in addition to its axes.
    fn flags(&self, command: Command) -> Vec<FlagSpec> {
        Vec::new()
    }

    /// Refuses invalid combinations of flags and cases, before anything is opened.
    fn check(&self, flags: &Flags, cases: &[Case]) -> anyhow::Result<()> {
        Ok(())
    }

    /// Whether [`Extras::check_case`] has anything to check.
    fn checks_cases(&self) -> bool {
        false
    }

    /// Refuses a case that cannot run on a device, before anything is measured.
    fn check_case(&self, case: &Case, device: &dyn Device) -> anyhow::Result<()> {
        Ok(())
    }

    /// Whether standard output carries data, so that the tables go to standard error.
    fn uses_standard_output(&self, flags: &Flags) -> bool {
        false
    }

    /// Which of the cases of a profile is only measured for comparison and not recorded.
    fn baseline(&self, cases: &[Case]) -> Option<Case> {
        None
    }

    /// Prints information for the user before the first iteration.
    fn begin(&self, context: &Context<'_>, cases: &[Case], out: &mut dyn Write) -> anyhow::Result<()> {
        Ok(())
    }

    /// The baseline of a profile is about to be measured.
    fn begin_baseline(&self) {}

    /// Adds facts about a profiled case, before its result is written.
    fn complete(&self, outcome: &mut Outcome, run: &Run, baseline: Option<&CaseResult>) {}

    /// Prints the summary of a benchmark and writes its files.
    fn finish_bench(&self, context: &Context<'_>, results: &[CaseResult], out: &mut dyn Write) -> Written {
        Ok(Vec::new())
    }

    /// Prints the summary of a profile and writes its files.
    fn finish_profile(&self, context: &Context<'_>, profiled: ProfiledCase<'_>, out: &mut dyn Write) -> Written {
        Ok(Vec::new())
    }

    /// Writes the files of a comparison of warm-ups.
    fn finish_warmups(&self, flags: &Flags, folder: &Path, table: &Table) -> Written {
        Ok(Vec::new())
    }

    /// Whether `laptime warmup` with these axis flags compares numbers of warm-up iterations.
    fn compares_warmups(&self, written: &[&str]) -> bool {
        false
    }

    /// The experiment that `laptime diagnose --experiment` runs.
    fn experiment(&self) -> Option<&dyn Experiment> {
        None
    }

    /// The name of a file of results, written by another tool, that [`Extras::read_profile`] understands.
    fn profile_file(&self) -> Option<&'static str> {
        None
    }

    /// The results in such a file.
    fn read_profile(&self, profile: &Value) -> Vec<CaseResult> {
        Vec::new()
    }
}

/// A case that was profiled.
#[derive(Debug, Clone, Copy)]
pub struct ProfiledCase<'a> {
    /// The recorded case, and then its baseline if it has one.
    pub results: &'a [&'a CaseResult],
    /// None if the case was not measured.
    pub trace: Option<&'a Trace>,
}

/// The extras of a workload that has none.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoExtras;

impl Extras for NoExtras {
    fn workload(&self) -> &'static str {
        ""
    }
}

laptime_trace::words! {
    /// A command that measures.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Command: word {
        Bench = "bench",
        Profile = "profile",
        Warmup = "warmup",
    }
}

/// A flag that belongs to one workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlagSpec {
    /// Its name, without the dashes.
    pub name: &'static str,
    /// An older name, which the help does not show.
    pub alias: Option<&'static str>,
    /// The placeholder of its value, such as `FILE`; none for a switch.
    pub value: Option<&'static str>,
    /// One line of help; none hides the flag.
    pub help: Option<&'static str>,
}

impl FlagSpec {
    /// A switch.
    pub const fn switch(name: &'static str, help: &'static str) -> Self {
        Self { name, alias: None, value: None, help: Some(help) }
    }

    /// A flag with a path as its value.
    pub const fn path(name: &'static str, value: &'static str, help: &'static str) -> Self {
        Self { name, alias: None, value: Some(value), help: Some(help) }
    }
}

/// Prints what the original tool prints.
pub const COMPAT: FlagSpec = FlagSpec::switch("compat", "Also print what the original tool prints");

/// Writes the files of the original tool where it wrote them.
pub const COMPAT_FILES: FlagSpec = FlagSpec {
    name: "compat-files",
    alias: Some("kit-files"),
    value: None,
    help: Some("Also write the files of the original tool where it wrote them"),
};

/// The flags of workloads that were given, with their values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags {
    values: BTreeMap<String, PathBuf>,
}

impl Flags {
    /// Adds a flag; a switch has an empty value.
    pub fn insert(&mut self, name: &str, value: PathBuf) {
        self.values.insert(name.to_owned(), value);
    }

    /// Whether a flag was given.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The value of a flag.
    pub fn path(&self, name: &str) -> Option<&Path> {
        self.values.get(name).map(PathBuf::as_path)
    }

    /// The value of a flag, if it ends in this extension.
    pub fn path_ending_in(&self, name: &str, extension: &str) -> Option<&Path> {
        self.path(name).filter(|path| path.extension().is_some_and(|own| own.eq_ignore_ascii_case(extension)))
    }

    /// The names of the flags that were given.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// Whether the output of the original tool was requested.
    pub fn is_compat(&self) -> bool {
        self.has(COMPAT.name)
    }

    /// Whether the files of the original tool were requested.
    pub fn has_compat_files(&self) -> bool {
        self.has(COMPAT_FILES.name)
    }
}

/// The output of extras that is not data.
pub trait Screen: Send + Sync {
    /// Prints a line on standard error.
    fn say(&self, line: &str);

    /// Prints a line above the progress bar.
    fn say_above(&self, line: &str);

    /// Writes lines of text, wrapped to the width of the terminal.
    fn prose(&self, text: &str, out: &mut dyn Write) -> anyhow::Result<()> {
        Ok(writeln!(out, "{text}")?)
    }

    /// Writes a table in the format and width of the command.
    fn table(&self, table: &Table, out: &mut dyn Write) -> anyhow::Result<()>;

    /// Prints a warning on standard error.
    fn warn(&self, warning: &str) {
        self.say(&format!("warning: {warning}"));
    }
}

/// The run that extras are called for.
pub struct Context<'a> {
    /// The command.
    pub command: Command,
    /// What is in the run's `run.json`.
    pub run: &'a Run,
    /// The run's folder.
    pub folder: &'a Path,
    /// The workload.
    pub workload: &'a dyn Workload,
    /// Opens devices.
    pub devices: &'a dyn Devices,
    /// The flags of workloads that were given.
    pub flags: &'a Flags,
    /// Whether people read the output: it is text or Markdown.
    pub is_for_people: bool,
    /// Whether progress is hidden.
    pub is_quiet: bool,
    /// Where to print.
    pub screen: &'a dyn Screen,
}

impl Context<'_> {
    /// The run's device, opened if it is not open.
    pub fn device(&self) -> anyhow::Result<Arc<dyn Device>> {
        self.devices.open(&self.run.device)
    }
}

/// An experiment: variants of a case, measured alternately, and a conclusion.
pub trait Experiment: Send + Sync {
    /// The case to vary, if these cases are one.
    fn case(&self, cases: &[Case]) -> Option<Case>;

    /// The variants of a case, or why there is nothing to compare.
    fn variants(&self, case: &Case, device: &dyn Device) -> anyhow::Result<Vec<Variant>>;

    /// The table and the conclusion. Each variant comes with its outcomes, round by round.
    fn conclude(&self, device: &str, tried: &[(Variant, Vec<Outcome>)]) -> anyhow::Result<(Table, Conclusion)>;
}

/// A variant of a case.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    /// What the table calls it.
    pub name: &'static str,
    /// The case.
    pub case: Case,
}

/// An error with advice that only the code that raised it can give.
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

    /// The advice.
    pub fn hint(&self) -> &str {
        &self.hint
    }
}

/// An error with this reason and hint.
pub fn refusal(reason: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Hinted::wrap(anyhow::Error::msg(reason.into()), hint)
}

/// The same as a result.
pub fn refuse<T>(reason: impl Into<String>, hint: impl Into<String>) -> anyhow::Result<T> {
    Err(refusal(reason, hint))
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
